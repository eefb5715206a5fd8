"""Which of llama.cpp's shared libraries a program uses: those the loader maps and those ggml opens."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from llmc.errors import EngineError
from llmc.files import is_file

OURS = re.compile(r"^lib(llama|ggml|mtmd)")
BACKEND = re.compile(r"^libggml-.+\.(so|dylib)(\.\d+)*$")
TOOL_SECONDS = 30.0
SCRIPT_BYTES = 1 << 16


def engine_libraries(binary: Path) -> tuple[Path, ...]:
    """Return the resolved paths of the llama.cpp libraries behind ``binary``, sorted by name.

    These are the libllama*, libggml* and libmtmd* libraries it is linked against (or any library that lies
    beside it), and the backends ggml opens at run time from the program's own folder, from the places where
    distributions put them, and from ``$GGML_BACKEND_PATH``. A static program has none; a wrapper script has
    the programs that it names, and theirs. EngineError when the
    loader cannot find a library the program needs.
    """
    binary = binary.resolve()
    found = _libraries(binary)
    for program in named_in_script(binary):
        found.add(program)
        with contextlib.suppress(EngineError):  # the wrapper may be what sets the library path
            found |= _libraries(program)
    return tuple(sorted(found - {binary}, key=lambda path: (path.name, str(path))))


def _libraries(binary: Path) -> set[Path]:
    linked = [p for p in linked_libraries(binary) if OURS.match(p.name) or p.parent == binary.parent]
    return {path.resolve() for path in (*linked, *_opened_at_run_time(binary, linked))}


def named_in_script(script: Path) -> list[Path]:
    """Return the programs that a wrapper script names by their full paths, interpreters aside.

    A wrapper stays the same when the llama.cpp behind it is built again. One that finds it by other means
    (PATH, a variable) cannot be looked through.
    """
    try:
        with script.open("rb") as stream:
            text = stream.read(SCRIPT_BYTES)
    except OSError:
        return []
    if not text.startswith(b"#!"):
        return []
    words = re.findall(r"/[^\s\"'`$;|&<>()]+", text.partition(b"\n")[2].decode("utf-8", "surrogateescape"))
    found = (Path(word) for word in words)
    return [path.resolve() for path in dict.fromkeys(found) if is_file(path) and os.access(path, os.X_OK)]


def linked_libraries(binary: Path) -> list[Path]:
    """Return every shared library the loader maps for ``binary``; empty for a static program or a script."""
    if sys.platform == "darwin":
        return _mach_libraries(binary)
    return parse_ldd(_tool_output("ldd", str(binary)), binary)


def parse_ldd(text: str, binary: Path) -> list[Path]:
    """Read the lines ``name => path (address)`` of ldd; EngineError names what it reports as not found."""
    paths, missing = [], []
    for line in text.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if not arrow:
            continue
        if rest.startswith("not found"):
            missing.append(name)
        elif (path := re.sub(r"\s+\(0x[0-9a-f]+\)$", "", rest)).startswith("/"):
            paths.append(Path(path))
    if missing:
        raise _missing(binary, missing)
    return paths


def _missing(binary: Path, names: list[str]) -> EngineError:
    return EngineError(
        f"{binary} cannot start: the loader does not find {', '.join(sorted(set(names)))}",
        "put the folder that holds it into LD_LIBRARY_PATH, rebuild llama.cpp, or use `llmc engine install`",
    )


def _opened_at_run_time(binary: Path, linked: Iterable[Path]) -> list[Path]:
    # ggml looks beside the program and in a folder fixed when it was compiled. The latter cannot be asked
    # for, so packagers' folders are tried: <lib>/ggml/... (Debian, Arch) and <prefix>/libexec (Homebrew).
    found = list(binary.parent.glob("libggml-*"))
    for library in linked:
        if library.name.startswith("libggml."):
            home = library.resolve().parent
            found += [*(home / "ggml").glob("**/libggml-*"), *(home.parent / "libexec").glob("libggml-*")]
    if extra := os.environ.get("GGML_BACKEND_PATH"):
        found.append(Path(extra))
    return [path for path in found if path.is_file() and (BACKEND.match(path.name) or str(path) == extra)]


def _mach_libraries(binary: Path) -> list[Path]:
    """Follow ``otool`` from the program through its libraries, resolving @rpath the way dyld does."""
    seen: dict[Path, None] = {}
    missing: list[str] = []
    queue: list[tuple[Path, tuple[Path, ...]]] = [(binary, ())]
    while queue:
        image, inherited = queue.pop()
        own = parse_rpaths(_tool_output("otool", "-l", str(image)))
        rpaths = (*(_expand(path, image, binary) for path in own), *inherited)
        for name in parse_otool(_tool_output("otool", "-L", str(image))):
            path = _resolve_install_name(name, image, binary, rpaths)
            if path is None:
                if OURS.match(Path(name).name):
                    missing.append(name)
            elif path != image and path not in seen:
                seen[path] = None
                queue.append((path, rpaths))
    if missing:
        raise _missing(binary, missing)
    return list(seen)


def parse_otool(text: str) -> list[str]:
    """Return the install names in the output of ``otool -L``."""
    return re.findall(r"^\s+(\S.*?) \(compatibility version", text, re.MULTILINE)


def parse_rpaths(text: str) -> list[str]:
    """Return the LC_RPATH entries in the output of ``otool -l``."""
    return re.findall(r"cmd LC_RPATH\s+cmdsize \d+\s+path (.+?) \(offset \d+\)", text)


def _expand(name: str, image: Path, binary: Path) -> Path:
    for word, base in (("@loader_path", image.parent), ("@executable_path", binary.parent)):
        if name == word or name.startswith(word + "/"):
            return base / name[len(word) :].lstrip("/")
    return Path(name)


def _resolve_install_name(name: str, image: Path, binary: Path, rpaths: Iterable[Path]) -> Path | None:
    if name.startswith("@rpath/"):
        candidates = [folder / name[len("@rpath/") :] for folder in rpaths]
    else:
        candidates = [_expand(name, image, binary)]
    # System libraries exist only in dyld's shared cache, not as files.
    return next((path for path in candidates if path.exists()), None)


def _tool_output(*command: str) -> str:
    """Return the stdout of a small tool; empty when it is missing, fails to start, or hangs."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TOOL_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "surrogateescape")
