"""Files that are whole or absent, checksums that are computed once, and where the cache lies."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from llmc.errors import UsageError

CHUNK = 1 << 20


def cache_dir(*parts: str) -> Path:
    """Return ``$LLMC_CACHE`` or the platform's user cache folder for llmc, joined with ``parts``.

    UsageError when neither the variable nor a home folder says where that is.
    """
    root = os.environ.get("LLMC_CACHE")
    if not root:
        from platformdirs import user_cache_dir

        try:
            root = user_cache_dir("llmc", appauthor=False)
        except RuntimeError:
            raise UsageError("there is no home folder to keep a cache in", "set HOME, or LLMC_CACHE") from None
    return with_home(root).joinpath(*parts)


def with_home(text: str) -> Path:
    """Return the path with ``~`` replaced, as a shell does: left alone when there is no such user."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser raises RuntimeError instead


def is_file(path: Path) -> bool:
    """Return whether ``path`` is a regular file that this user may see; unlike ``Path.is_file``, never raise."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


# A file's name need not be UTF-8: Python holds a stray byte as a lone surrogate, which is written as JSON has it.
_TEXT: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace"}


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path`` and rename it over ``path`` when the block ends well.

    When the block raises, the temporary file is removed and ``path`` is left as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, mode, **_TEXT if "b" not in mode else {}) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    # os.umask can only be read by setting it; mkstemp's 0600 would hide results from colleagues. Two threads that
    # did so at once could leave the wrong one behind.
    with _umask_lock:
        mask = os.umask(0o022)
        os.umask(mask)
    return mask


_umask_lock = threading.Lock()


def readable(value: Any) -> Any:
    """Return a value with what is no Unicode in its texts spelt out (``\\udcff`` for the byte 0xff of a file's name).

    Dictionaries, lists and tuples are gone through.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {readable(name): readable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(readable(each) for each in value)
    return value


def write_json(path: Path, data: Any) -> None:
    """Write ``data`` as indented JSON with sorted keys left as given, atomically."""
    with atomic_write(path, "w") as stream:
        json.dump(data, stream, indent=1, ensure_ascii=False)
        stream.write("\n")


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None, *, remove: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` (created when missing) for the length of the block.

    ``waiting`` is called once when another process holds the lock and this one has to wait. With ``remove``
    (to be given by all that use the path) the file is gone afterwards.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    waiting()
                    waiting = None
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_still(path, handle):
                continue  # removed by whoever held it: others lock a new file of that name
            try:
                yield
            finally:
                if remove:
                    path.unlink(missing_ok=True)
                fcntl.flock(handle, fcntl.LOCK_UN)
            return


def _is_still(path: Path, handle: IO[Any]) -> bool:
    try:
        return path.stat().st_ino == os.fstat(handle.fileno()).st_ino
    except FileNotFoundError:
        return False


# First bytes -> what a person would call the file; for messages only.
_SIGNATURES = (
    (b"GGUF", "a GGUF model"),
    (b"FUGG", "a big-endian GGUF model"),
    (b"version https://git-lfs", "a Git LFS pointer (the file itself was never fetched: run `git lfs pull`)"),
    (b"PK\x03\x04", "a zip archive (or a PyTorch checkpoint)"),
    (b"PK\x05\x06", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"PAR1", "a parquet file"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"lmgg", "a model in a format older than GGUF"),
    (b"fmgg", "a model in a format older than GGUF"),
    (b"tjgg", "a model in a format older than GGUF"),
)


def looks_like(head: bytes) -> str:
    """Return what a file that begins with ``head`` (64 bytes or more) looks like, or an empty string."""
    if not head:
        return "an empty file"
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            return name
    start = head.lstrip()[:64].lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "an HTML or XML page (a download that was answered by a web page)"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 30:
        return "a safetensors file"
    if start.startswith((b"{", b"[")):
        return "JSON text"
    if not head.strip(b"\0"):
        return "filled with zero bytes (a download or copy that was never finished)"
    return "text" if _is_text(head) else ""


def _is_text(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return all(byte >= 32 or byte in b"\t\n\r\f" for byte in head)


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


def configs_dir(*parts: str) -> Path:
    """Return the folder of shipped configuration: inside the installed package, else the checkout's own."""
    package = Path(__file__).resolve().parent
    installed = package / "configs"
    return (installed if installed.is_dir() else package.parent / "configs").joinpath(*parts)
