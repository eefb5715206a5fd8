"""Which questions a built split asks, as 64-bit digests, so that another split can be held against it.

Digests are kept in the cache, by the checksum of the built file; where the cache was emptied, a comparison is
left out until the other split is built again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from llmc.benchmarks import manifest, names
from llmc.benchmarks.manifest import Warned
from llmc.files import atomic_write, cache_dir

Asked = array  # of digests ("q"), one for each task in order


def digest(text: str) -> bytes:
    """Return the digest of a question, eight bytes: of the texts that its prompt shows, options aside."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def keep(asked: Asked[int], bin_sha256: str) -> None:
    with atomic_write(_path(bin_sha256)) as stream:
        stream.write(asked.tobytes())


def _path(bin_sha256: str) -> Path:
    return cache_dir("questions", f"{bin_sha256}.bin")


def shared(asked: Asked[int], out: Path, target: names.Target) -> tuple[Warned, ...]:
    """Return a warning for each other built split of the same benchmark that asks some of the same questions."""
    mine = set(asked)
    found = []
    for entry, theirs in _others(out, target):
        common = mine & set(theirs)
        if common:
            count = sum(one in common for one in asked)
            detail = f"{count} questions are also asked in {entry.name}"
            found.append(Warned(kind=f"shared-with-{entry.split}", count=count, detail=detail))
    return tuple(found)


def _others(out: Path, target: names.Target) -> Iterator[tuple[manifest.ManifestEntry, Asked[int]]]:
    seen: set[str | None] = set()
    for entry in manifest.entries(out).values():
        same = entry.benchmark == target.spec.name and entry.config == target.config
        if not same or entry.selection is not None or entry.split in (target.split, *seen):
            continue
        try:
            theirs = array("q", _path(entry.files["bin"].sha256).read_bytes())
        except (OSError, ValueError):
            continue
        seen.add(entry.split)
        yield entry, theirs
