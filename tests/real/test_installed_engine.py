"""The engine that ``llmc engine install`` built: whole, tested, and independent of where it lies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmc.engine.build import PINNED, PROGRAMS
from llmc.engine.install import flaw
from llmc.engine.locate import identity, locate
from llmc.engine.probe import probe

if TYPE_CHECKING:
    from llmc.engine.locate import EngineFiles

pytestmark = pytest.mark.real


def test_it_is_whole_and_answers_rightly(real_engine: EngineFiles) -> None:
    assert real_engine.installed is not None and flaw(real_engine.installed) == ""
    result = probe(real_engine, force=True)
    assert (result.usable, result.build, result.flavour) == (True, PINNED.build, "mainline")
    names = " ".join(path.name for path in real_engine.libraries)
    assert all(name in names for name in ("libllama.", "libllama-common.", "libggml-base.", "libggml-cpu."))


def test_it_works_wherever_it_is_moved(real_engine: EngineFiles, tmp_path: Path) -> None:
    assert real_engine.installed is not None
    target = tmp_path / "with space" / "engine"
    shutil.copytree(real_engine.installed.root, target, symlinks=True)
    moved = locate(str(target))
    assert moved.libraries and all(target in path.parents for path in moved.libraries)
    assert identity(moved) == identity(real_engine)
    for program in PROGRAMS:
        done = subprocess.run([target / "bin" / program, "--help"], capture_output=True)
        assert done.returncode in (0, 1) and b"sage" in done.stdout + done.stderr, program
    code = "import llama_cpp; print(llama_cpp.__file__, llama_cpp.llama_max_devices())"
    paths = {"PYTHONPATH": str(target / "binding"), "LLAMA_CPP_LIB_PATH": str(target / "lib")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=paths)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(target / "binding"))
