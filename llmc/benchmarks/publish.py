"""Files into the folder for results: all of a benchmark's or none, the sidecar last."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmc.benchmarks import manifest
from llmc.benchmarks.checks import Counts
from llmc.benchmarks.item import SUFFIX
from llmc.benchmarks.manifest import FileRecord, ManifestEntry
from llmc.errors import os_error
from llmc.files import sha256_file

_ROOM = "choose another folder with --out, or make room"


def recipe_of(data: Any) -> str:
    """Return the hash that identifies what files are made with."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def figures(counts: Counts) -> dict[str, Any]:
    return {
        "tasks": counts.tasks,
        "options": dict(sorted(counts.widths.items())),
        "chance": counts.chance,
        "majority": counts.majority,
    }


def records(folder: Path, name: str) -> Any:
    found = {}
    for kind, suffix in (("bin", ".bin"), ("items", SUFFIX)):
        path = folder / f"{name}{suffix}"
        found[kind] = FileRecord(name=path.name, sha256=sha256_file(path), bytes=path.stat().st_size)
    return found


@contextlib.contextmanager
def explained(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise os_error(error, f"write to {out}" if error.filename is None else "use", _ROOM) from error


@contextlib.contextmanager
def staged(out: Path, name: str) -> Iterator[Path]:
    """Give a fresh hidden folder in ``out``, removed at the end; the caller holds the lock of ``name``."""
    folder = out / f".{name}.building"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(entry: ManifestEntry, folder: Path, out: Path) -> None:
    # All writing is done before anything is moved: a full disk leaves the older files as they are.
    manifest.write_sidecar(folder, entry)
    sidecar = manifest.sidecar_path(out, entry.name)
    sidecar.unlink(missing_ok=True)
    for record in entry.files.values():
        (folder / record.name).replace(out / record.name)
    (folder / sidecar.name).replace(sidecar)
