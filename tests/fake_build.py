"""Stand-ins for pip, cmake and ninja, so that an install takes a second and fails on demand.

``use(folder)`` puts them in the place of the real ones for this process. Run as a program, this file installs
an engine with them: ``python fake_build.py FOLDER`` (for tests that kill or race an install).

``FAKE_BUILD`` chooses what ninja does: nothing (works), ``hang`` (starts a child, creates ``$FAKE_MARK`` and
sleeps), ``slow`` (works after a second), or any other text, which it prints as an error and fails.
Every call of a tool appends its name to ``FOLDER/calls``.
"""

from __future__ import annotations

import dataclasses
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmc.engine import build, install
from llmc.engine.steps import Steps
from llmc.files import sha256_file

TOOL = """\
#!{python}
import os, shutil, subprocess, sys, time
from pathlib import Path

name, arguments = Path(sys.argv[0]).name, sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(" ".join([name, *arguments[:3]]) + "\\n")

def after(flag):
    return Path(arguments[arguments.index(flag) + 1])

def pip():
    if "download" in arguments:
        shutil.copy({sdist!r}, after("--dest"))
    elif "--target" in arguments:
        package = after("--target") / "llama_cpp"
        package.mkdir(parents=True)
        package.joinpath("__init__.py").write_text(
            "import os\\nassert os.environ['LLAMA_CPP_LIB_PATH']\\n"
            "__version__ = '0'\\ndef llama_max_devices(): return 1\\n")

def cmake():
    assert after("-S").joinpath("CMakeLists.txt").is_file()
    after("-B").mkdir()

def ninja():
    mode = os.environ.get("FAKE_BUILD", "")
    if mode == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        mark = Path(os.environ["FAKE_MARK"])
        mark.with_suffix(".new").write_text(f"{{os.getpid()}} {{child.pid}}")
        mark.with_suffix(".new").rename(mark)
        time.sleep(60)
    elif mode == "slow":
        time.sleep(1)
    elif mode:
        print("[1/2] compiling")
        print("error:", mode)
        sys.exit(1)
    for n in range(1, 4):
        print(f"[{{n}}/3] compiling", flush=True)
    out = after("-C") / "bin"
    out.mkdir()
    for program in {programs!r}:
        (out / program).write_text("#!/bin/sh\\necho 'version: 1 (build {number})' >&2\\n")
        (out / program).chmod(0o755)
    (out / "libllama.so.0").write_text("library")
    (out / "libllama.so").symlink_to("libllama.so.0")

{{"python": pip, "cmake": cmake, "ninja": ninja}}[name]()
"""


def use(folder: Path, patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Replace the tools and the source package by those in ``folder`` (made when missing).

    ``patch`` sets the attributes: pytest's ``monkeypatch.setattr`` where they have to be set back.
    """
    sdist = folder / "llama_cpp_python-0.0.0.tar.gz"
    if not sdist.exists():
        lists = folder / "CMakeLists.txt"
        lists.write_text("")
        with tarfile.open(sdist, "w:gz") as archive:
            archive.add(lists, "llama_cpp_python-0.0.0/vendor/llama.cpp/CMakeLists.txt")
    pinned = dataclasses.replace(build.PINNED, sha256=sha256_file(sdist))
    patch(build, "PINNED", pinned)
    patch(install, "PINNED", pinned)
    text = TOOL.format(
        python=sys.executable,
        calls=str(folder / "calls"),
        sdist=str(sdist),
        programs=build.PROGRAMS,
        number=pinned.build,
    )

    def make_tools(steps: Steps, tools: Path) -> tuple[str, ...]:
        (tools / "bin").mkdir(parents=True)
        for name in ("python", "cmake", "ninja"):
            (tools / "bin" / name).write_text(text)
            (tools / "bin" / name).chmod(0o755)
        return (str(tools / "bin" / "python"), "-m", "pip")

    patch(build, "make_tools", make_tools)


def calls(folder: Path, tool: str) -> int:
    """Return how often a tool was called."""
    path = folder / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(line.split()[0] == tool for line in lines)


if __name__ == "__main__":
    use(Path(sys.argv[1]))
    from llmc.__main__ import run

    sys.exit(run(["engine", "install", "--backend", "cpu"]))
