"""Checksums that other publishers' manifests give for a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmc.benchmarks.manifest import MANIFEST

_SHA256 = re.compile(r"[0-9a-f]{64}")


def published_sha256(path: Path) -> str | None:
    """Return the SHA-256 that ``manifest.json`` in the folder of ``path`` gives for it, or None.

    Manifests differ in their shape. What counts is an object with a ``sha256`` that is named after the file: as
    its key, or as its ``file``, ``name``, ``path`` or ``filename``; or the file's name as key of the checksum.
    """
    try:
        data = json.loads((path.parent / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    found = set(_digests(data, "", path.name))
    return found.pop() if len(found) == 1 else None


def _digests(data: Any, key: str, name: str) -> Iterator[str]:
    if isinstance(data, list):
        for entry in data:
            yield from _digests(entry, "", name)
    elif isinstance(data, dict):
        called = [key, *(str(data.get(word)) for word in ("file", "name", "path", "filename"))]
        if any(_same_file(one, name) for one in called) and _is_sha256(data.get("sha256")):
            yield data["sha256"].lower()
        for inner, value in data.items():
            if _same_file(inner, name) and _is_sha256(value):
                yield value.lower()
            yield from _digests(value, inner, name)


def _same_file(called: str, name: str) -> bool:
    return Path(called).name in (name, name.removesuffix(".bin"))


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value.lower()) is not None
