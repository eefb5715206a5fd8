"""Put a pinned llama.cpp, and the Python binding against the very library that was built, into the cache.

The source is the ``llama-cpp-python`` source package on the Python package index: it holds all of llama.cpp,
and pip finds it wherever the user's index settings point. cmake and ninja come from the same index into a
private environment. All work happens in a hidden folder of the cache that is renamed at the end, so an engine
in the cache is whole or absent; what an interrupted install left is removed by the next one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from llmc import __version__, console
from llmc.engine.build import BACKENDS, PINNED, RESERVED, build, compiler_names
from llmc.engine.locate import META, META_SCHEMA, InstalledEngine, engines_dir, read_installed
from llmc.errors import EngineError, UsageError, did_you_mean
from llmc.files import locked, sha256_file, write_json

FREE_BYTES = 1_000_000_000  # a CPU build takes 0.6 GB at its peak

# With this option the build runs on any CPU of the kind, without it on CPUs like the one it was made on.
PORTABLE = re.compile(r"-DGGML_NATIVE(:\w+)?=(OFF|NO|FALSE|N|0)", re.IGNORECASE)


def default_backend() -> str:
    """Return "metal" on Apple silicon, else "cpu"."""
    return "metal" if (sys.platform, platform.machine()) == ("darwin", "arm64") else "cpu"


def install(
    backend: str = "cpu", cmake_args: Sequence[str] = (), jobs: int | None = None, force: bool = False
) -> InstalledEngine:
    """Return the engine for ``backend``, built when it is not in the cache yet (or with ``force``).

    ``cmake_args`` go to cmake as they are and are part of the engine's folder name; ``jobs`` is the number of
    compilers at a time. One install runs at a time; others wait for it. UsageError for arguments that cannot
    work; EngineError, with the log's name, when the build fails.
    """
    root = engine_folder(backend, cmake_args)
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least one job is needed", "leave --jobs out to use every core")
    try:
        with locked(engines_dir() / ".lock", lambda: console.note("waiting for another `llmc engine install` ...")):
            _sweep()
            known = read_installed(root)
            if known is not None and not force:
                if not (reason := flaw(known)):
                    return known
                console.note(f"building {root.name} again: {reason}")
            return _install(root, backend, tuple(cmake_args), jobs or default_jobs())
    except OSError as failure:
        raise _disk_error(failure) from failure


def engine_folder(backend: str, cmake_args: Sequence[str] = ()) -> Path:
    """Return where an engine with these options lies; UsageError when the options cannot work."""
    if backend not in BACKENDS:
        raise UsageError(
            f"no backend is called {backend!r}{did_you_mean(backend, BACKENDS)}",
            f"choose one of {', '.join(sorted(BACKENDS))}",
        )
    for argument in cmake_args:
        if not re.match(r"-[A-Za-z]", argument):
            raise UsageError(f"--cmake-arg {argument!r} is no cmake option", "write --cmake-arg=-DNAME=VALUE")
        if argument.split("=")[0].split(":")[0] in RESERVED or argument.startswith(("-G", "-S", "-B")):
            raise UsageError(f"--cmake-arg {argument}: llmc sets this itself", "leave it out")
    key = f"-{hashlib.sha256(chr(0).join(cmake_args).encode()).hexdigest()[:8]}" if cmake_args else ""
    return engines_dir() / f"{PINNED.version}-{backend}{key}"


def installed_whole(backend: str, cmake_args: Sequence[str] = ()) -> InstalledEngine | None:
    """Return the engine with these options when it is in the cache and usable, else None; takes no lock."""
    engine = read_installed(engine_folder(backend, cmake_args))
    return engine if engine is not None and not flaw(engine) else None


def flaw(engine: InstalledEngine) -> str:
    """Return what keeps an installed engine from being usable here; empty when nothing does."""
    if lacking := set(str(engine.meta.get("cpu", "")).split()) - cpu_features():
        return f"it was built for a CPU with {', '.join(sorted(lacking))}, which this one lacks"
    if engine.binding is None:
        return "its Python binding is missing"
    checksums = engine.meta.get("files")
    if not isinstance(checksums, dict) or not checksums:
        return "its list of files is missing"
    for name, digest in checksums.items():
        try:
            if sha256_file(engine.root / name) != digest:
                return f"its file {name} has changed"
        except OSError as failure:
            return f"its file {name} cannot be read: {failure.strerror}"
    return ""


def cpu_features() -> set[str]:
    """Return the instruction set extensions of this CPU that compilers make use of; empty off Linux."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    wanted = re.compile(r"(avx|sse|ssse|fma|f16c|bmi|amx|sve|sme|asimd|i8mm|bf16|fphp)")
    return {word for word in (match[1].split() if match else ()) if wanted.match(word)}


def default_jobs() -> int:
    """Return one job per usable core, but no more than memory allows at 1.5 GB each."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(usable_cores(), round(memory / 1.5e9)))


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def log_file(root: Path) -> Path:
    return engines_dir() / f"{root.name}.log"


def _install(root: Path, backend: str, cmake_args: tuple[str, ...], jobs: int) -> InstalledEngine:
    _require_compiler(backend)
    _require_room(engines_dir())
    started = time.monotonic()
    staging = Path(tempfile.mkdtemp(dir=engines_dir(), prefix=".build-"))
    log = log_file(root)
    log.write_bytes(f"llmc {__version__}, {PINNED.package} {PINNED.version}, {backend}\n".encode())
    try:
        engine = build(staging, log, backend, cmake_args, jobs)
        shutil.copyfile(log, engine / "build.log")
        meta = {
            "schema": META_SCHEMA,
            "version": PINNED.version,
            "build": PINNED.build,
            "backend": backend,
            "cmake_args": list(cmake_args),
            "source_sha256": PINNED.sha256,
            "cpu": "" if any(map(PORTABLE.fullmatch, cmake_args)) else " ".join(sorted(cpu_features())),
            "installed": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - started),
            "llmc": __version__,
            "files": _checksums(engine),
        }
        write_json(engine / META, meta)
        if root.exists():
            root.rename(staging / "replaced")
        engine.rename(root)
    except EngineError:
        raise  # names the log, which is kept
    except BaseException:
        log.unlink(missing_ok=True)
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    log.unlink(missing_ok=True)
    done = read_installed(root)
    if done is None:
        raise EngineError(f"{root} vanished while it was installed", "run `llmc engine install` again")
    return done


def _checksums(engine: Path) -> dict[str, str]:
    paths = (path for path in sorted(engine.rglob("*")) if path.is_file() and not path.is_symlink())
    names = (path for path in paths if path.suffix != ".pyc")
    return {str(path.relative_to(engine)): sha256_file(path) for path in names}


def _sweep() -> None:
    """Remove what killed installs left. Called under the lock: no living install owns any of it."""
    for stale in engines_dir().glob(".build-*"):
        shutil.rmtree(stale, ignore_errors=True)


def _require_compiler(backend: str) -> None:
    names = compiler_names(backend)
    if any(shutil.which(name) for name in names):
        return
    how = "xcode-select --install" if sys.platform == "darwin" else "apt install g++` or `dnf install gcc-c++"
    origin = " (from $CXX)" if os.environ.get("CXX") else ""
    raise EngineError(
        f"no C++ compiler: {', '.join(names)} not found on PATH{origin}",
        f"install one (`{how}`), or bring your own llama.cpp and name it with LLMC_ENGINE",
    )


def _require_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES:
        raise EngineError(
            f"{folder} has {free / 1e9:.1f} GB free; building llama.cpp needs {FREE_BYTES / 1e9:.0f} GB",
            "make room, or set LLMC_CACHE to a folder on a larger disk",
        )


def _disk_error(failure: OSError) -> EngineError:
    where = f" {failure.filename}" if failure.filename else f" in {engines_dir()}"
    full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
    return EngineError(
        f"cannot install the engine: {failure.strerror or failure}:{where}",
        "make room, or set LLMC_CACHE to a folder on a larger disk"
        if full
        else "check the permissions of the cache, or set LLMC_CACHE to another folder",
    )
