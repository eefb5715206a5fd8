"""Find llama-perplexity on this machine, and give it an identity that changes when its behaviour can."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmc.engine.libraries import engine_libraries
from llmc.errors import EngineError
from llmc.files import cache_dir, looks_like, read_cache, sha256_cached, with_home

PROGRAM = "llama-perplexity"
APP = "llama"  # llama.cpp's single program, with sub-commands
META = "engine.json"
META_SCHEMA = "llmc.engine/1"

# Older and other names under which the same program is shipped, looked for inside a folder.
NAMES_IN_FOLDER = (PROGRAM, "perplexity", "llamafile-perplexity", APP)
SIBLINGS = {"llama-cli", "llama-server", "llama-bench", "llama-quantize", "llama-tokenize", "llama-simple"}
PROGRAM_MAGICS = (b"\x7fELF", b"#!", b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
APP_SECONDS = 20.0

HOW_TO_GET = (
    "build one with `llmc engine install` (a few minutes, needs a C++ compiler), or install llama.cpp "
    "(`brew install llama.cpp`, a release from github.com/ggml-org/llama.cpp, or your own build) and put "
    "llama-perplexity on PATH or name it with --engine or LLMC_ENGINE"
)


@dataclass(frozen=True)
class InstalledEngine:
    """One engine that ``llmc engine install`` made: ``root`` holds bin/, lib/, binding/ and engine.json."""

    root: Path
    version: str
    backend: str
    binary: Path
    lib: Path
    binding: Path | None
    meta: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        return self.root.name


@dataclass(frozen=True)
class EngineFiles:
    """A llama-perplexity as it lies on disk.

    ``command`` is the argv prefix, ``binary`` the resolved executable, ``libraries`` what else of llama.cpp
    it loads, ``found_by`` how it was found ("--engine", "$LLMC_ENGINE", "PATH" or "installed").
    """

    command: tuple[str, ...]
    binary: Path
    libraries: tuple[Path, ...]
    found_by: str
    installed: InstalledEngine | None


def locate(engine: str | None = None) -> EngineFiles:
    """Return the engine to use.

    In this order: ``engine`` (a path to the program, a folder that holds it, a name on PATH or of an
    installed engine), ``$LLMC_ENGINE`` (the same), llama-perplexity on PATH, ``llama perplexity``, the newest
    installed engine. EngineError when what was asked for is not usable, or when there is none at all.
    """
    if engine:
        return _named(engine, "--engine")
    if wanted := os.environ.get("LLMC_ENGINE"):
        return _named(wanted, "$LLMC_ENGINE")
    if on_path := shutil.which(PROGRAM):
        return _files(Path(on_path), "PATH")
    if (app := shutil.which(APP)) and _is_llama_cpp(app):
        return _files(Path(app), "PATH")
    if engines := installed():
        return _files(engines[0].binary, "installed")
    raise EngineError("no llama-perplexity on this machine", HOW_TO_GET)


def identity(files: EngineFiles) -> str:
    """Return the SHA-256 over the names and SHA-256 sums of the program and its llama.cpp libraries.

    Folders are left out, so a copy of an engine is the same engine. Compute libraries of vendors (cuBLAS,
    MKL) are not part of it. EngineError when a file cannot be read.
    """
    digest = hashlib.sha256("\0".join(files.command[1:]).encode())
    try:
        for path in (files.binary, *files.libraries):
            digest.update(f"\n{path.name} {sha256_cached(path)}".encode("utf-8", "surrogateescape"))
    except OSError as failure:
        raise _unreadable(failure, "engine") from None
    return digest.hexdigest()


def _unreadable(failure: OSError, found_by: str) -> EngineError:
    return EngineError(
        f"{found_by}: cannot read {failure.filename}: {failure.strerror}",
        "check its permissions; llmc reads the program to know it again",
    )


def engines_dir() -> Path:
    return cache_dir("engines")


def installed() -> list[InstalledEngine]:
    """Return the engines in the cache whose program is there, newest first."""
    try:
        roots = [path for path in engines_dir().iterdir() if not path.name.startswith(".")]
    except OSError:
        return []
    engines = [engine for root in roots if (engine := read_installed(root)) is not None]
    return sorted(engines, key=lambda e: (str(e.meta.get("installed", "")), e.name), reverse=True)


def read_installed(root: Path) -> InstalledEngine | None:
    """Return the engine in ``root``, or None when the folder holds no finished install."""
    meta = read_cache(root / META)
    binary = root / "bin" / PROGRAM
    if meta is None or meta.get("schema") != META_SCHEMA or not _is_executable(binary):
        return None
    binding = root / "binding"
    return InstalledEngine(
        root=root,
        version=str(meta.get("version", "")),
        backend=str(meta.get("backend", "")),
        binary=binary,
        lib=root / "lib",
        binding=binding if (binding / "llama_cpp").is_dir() else None,
        meta=meta,
    )


def _named(text: str, found_by: str) -> EngineFiles:
    """Find what the user named; every way to be wrong gets its own sentence."""
    try:
        return _files(_program(text, found_by), found_by)
    except OSError as failure:
        raise _unreadable(failure, found_by) from None


def _program(text: str, found_by: str) -> Path:
    if os.sep not in text:
        if on_path := shutil.which(text):
            return _checked(Path(on_path), found_by)
        for engine in installed():
            if engine.name == text:
                return engine.binary
    path = with_home(text)
    if path.is_dir():
        return _checked(_in_folder(path, found_by), found_by)
    if not path.exists():
        if path.is_symlink():
            target = path.readlink()
            raise EngineError(f"{found_by}: {text} is a link to {target}, which does not exist", HOW_TO_GET)
        where = "no such file" if os.sep in text else "no such file, and no command of that name on PATH"
        raise EngineError(f"{found_by}: {text}: {where}", HOW_TO_GET)
    return _checked(path, found_by)


def _in_folder(folder: Path, found_by: str) -> Path:
    for inside in (folder, folder / "bin", folder / "build" / "bin"):
        for name in NAMES_IN_FOLDER:
            if (inside / name).is_file():
                return inside / name
    raise EngineError(
        f"{found_by}: the folder {folder} holds no {PROGRAM}, nor does its bin/ or build/bin/",
        f"name the program itself, build it there (`cmake --build build --target {PROGRAM}`), or leave "
        f"{found_by} out to use the one on PATH or in the cache",
    )


def _checked(path: Path, found_by: str) -> Path:
    """Return ``path`` when it looks like a program that can be started; EngineError otherwise."""
    if not path.is_file():
        raise EngineError(f"{found_by}: {path} is not a regular file", f"name the {PROGRAM} program")
    with path.open("rb") as stream:
        magic = stream.read(64)
    if magic.startswith(b"GGUF"):
        raise EngineError(
            f"{found_by}: {path} is a GGUF model, not a program",
            f"give the model with -m, and {PROGRAM} here",
        )
    if not magic.startswith(PROGRAM_MAGICS):
        raise EngineError(
            f"{found_by}: {path} is not a program" + (f" but {kind}" if (kind := looks_like(magic)) else ""),
            f"name the {PROGRAM} program itself",
        )
    if path.name in SIBLINGS:
        beside = path.with_name(PROGRAM)
        raise EngineError(
            f"{found_by}: {path} is {path.name}, which has no multiple-choice mode",
            f"use {beside}" if beside.is_file() else f"name the {PROGRAM} that belongs to it. {HOW_TO_GET}",
        )
    if not _is_executable(path):
        raise EngineError(f"{found_by}: {path} is not executable", f"chmod +x '{path}'")
    return path


def _files(path: Path, found_by: str) -> EngineFiles:
    binary = path.resolve()
    command = (str(path.absolute()), *(("perplexity",) if path.name == APP else ()))
    return EngineFiles(command, binary, engine_libraries(binary), found_by, _owner(binary))


def _owner(binary: Path) -> InstalledEngine | None:
    return next((engine for engine in installed() if engine.binary.resolve() == binary), None)


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _is_llama_cpp(app: str) -> bool:
    # Other projects ship a `llama` command too; llama.cpp's is the one that knows this sub-command.
    try:
        done = subprocess.run(
            (app, "perplexity", "--version"),
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=APP_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and b"version" in done.stdout
