"""Files that are whole or absent, checksums that are computed once, and where the cache lies."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

CHUNK = 1 << 20


def cache_dir(*parts: str) -> Path:
    """Return ``$LLMC_CACHE`` or the platform's user cache folder for llmc, joined with ``parts``."""
    root = os.environ.get("LLMC_CACHE")
    if not root:
        from platformdirs import user_cache_dir

        root = user_cache_dir("llmc", appauthor=False)
    return Path(root).expanduser().joinpath(*parts)


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path`` and rename it over ``path`` when the block ends well.

    When the block raises, the temporary file is removed and ``path`` is left as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    # os.umask can only be read by setting it; mkstemp's 0600 would hide results from colleagues.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_json(path: Path, data: Any) -> None:
    """Write ``data`` as indented JSON with sorted keys left as given, atomically."""
    with atomic_write(path, "w") as stream:
        json.dump(data, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` (created when missing) for the length of the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


def sha256_file(path: Path) -> str:
    """Return the hex SHA-256 of a file, read in bounded memory."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Return (size, mtime in ns, inode): what must be equal for a cached checksum to stand."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def sha256_cached(path: Path) -> str:
    """Return the SHA-256 of ``path``, from the cache when path, size, mtime and inode are unchanged."""
    path = path.resolve()
    stamp = list(file_stamp(path))
    entry = cache_dir("sha256", hashlib.sha256(os.fsencode(path)).hexdigest()[:32] + ".json")
    known = read_cache(entry)
    if known is not None and known.get("stamp") == stamp and known.get("path") == str(path):
        return str(known["sha256"])
    digest = sha256_file(path)
    # A file that changed while it was read has a checksum of neither version.
    if list(file_stamp(path)) == stamp:
        write_cache(entry, {"path": str(path), "stamp": stamp, "sha256": digest})
    return digest


def read_cache(entry: Path) -> dict[str, Any] | None:
    """Return a cached JSON object, or None when it is missing or unreadable: a cache never fails a run."""
    try:
        data = json.loads(entry.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def write_cache(entry: Path, data: dict[str, Any]) -> None:
    """Store a JSON object in the cache; a full or read-only disk only costs the next run some time."""
    with contextlib.suppress(OSError):
        write_json(entry, data)
