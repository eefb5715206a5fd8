"""Which llama-cpp-python is used: the variable's, an installed engine's, this Python's own; and which is too old."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from llmc.engine.binding import Binding, find_binding, require_binding
from llmc.errors import EngineError
from llmc.files import write_json
from llmc.scoring.session import worker_environment


def package(
    site: Path, version: str = "0.3.36", libraries: tuple[str, ...] = ("libllama.so", "libggml-cpu.so")
) -> Path:
    """Write what pip leaves of llama-cpp-python, as far as finding it goes."""
    lib = site / "llama_cpp" / "lib"
    lib.mkdir(parents=True)
    (site / "llama_cpp" / "__init__.py").write_text(f'from .llama import *\n\n__version__ = "{version}"\n')
    for name in libraries:
        (lib / name).write_bytes(name.encode())
    return site


def engine(cache: Path, name: str, when: str) -> Path:
    root = cache / "engines" / name
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "llama-perplexity").write_text("#!/bin/sh\n")
    (root / "bin" / "llama-perplexity").chmod(0o755)
    (root / "binding" / "llama_cpp").mkdir(parents=True)
    meta = {"schema": "llmc.engine/1", "version": "0.3.36", "backend": "cuda", "installed": when}
    write_json(root / "engine.json", meta)
    return root


@pytest.fixture(autouse=True)
def nothing_there(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMC_BINDING", raising=False)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / "llama_cpp").exists()])


def test_places_are_asked_in_order(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_binding() is None
    with pytest.raises(EngineError, match="neither is installed") as caught:
        require_binding()
    assert "llmc engine install" in caught.value.remedy and "pip install" in caught.value.remedy

    site = package(tmp_path / "own")
    monkeypatch.syspath_prepend(str(site))
    found = require_binding()
    assert found == Binding(site, site / "llama_cpp/lib", "0.3.36", "Python")

    root = engine(own_cache, "0.3.36-cuda", "2026-01-01")
    found = require_binding()
    assert (found.site, found.lib, found.found_by) == (root / "binding", root / "lib", "installed")
    assert found.engine is not None and found.engine.name == "0.3.36-cuda"
    assert (found.version, found.backend) == ("0.3.36", "cuda")

    other = package(tmp_path / "named", "0.4.1")
    for named in (other, other / "llama_cpp"):
        monkeypatch.setenv("LLMC_BINDING", str(named))
        found = require_binding()
        assert (found.site, found.version, found.found_by) == (other, "0.4.1", "$LLMC_BINDING")


@pytest.mark.parametrize("version", ["0.3.16", "0.2.90", "0.1"])
def test_one_that_is_too_old_is_refused_when_named_and_else_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    site = package(tmp_path, version)
    monkeypatch.syspath_prepend(str(site))
    assert find_binding() is None
    monkeypatch.setenv("LLMC_BINDING", str(site))
    with pytest.raises(EngineError, match=f"{version} is too old"):
        find_binding()


def test_what_the_variable_names_must_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_BINDING", str(tmp_path / "nothing"))
    with pytest.raises(EngineError, match="holds no llama_cpp package"):
        find_binding()
    monkeypatch.setenv("LLMC_BINDING", str(package(tmp_path / "bare", libraries=())))
    with pytest.raises(EngineError, match="holds no libllama"):
        find_binding()


def test_a_package_without_its_library_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(package(tmp_path, libraries=())))
    assert find_binding() is None


@pytest.mark.parametrize(
    ("libraries", "backend"),
    [
        (("libllama.so", "libggml-base.so", "libggml-cpu.so"), "cpu"),
        (("libllama.so", "libggml-base.so", "libggml-cpu.so", "libggml-cuda.so"), "cuda"),
        (("libllama.dylib", "libggml-metal.dylib", "libggml-blas.dylib"), "blas+metal"),
    ],
)
def test_its_backend_is_read_off_its_libraries(tmp_path: Path, libraries: tuple[str, ...], backend: str) -> None:
    site = package(tmp_path, libraries=libraries)
    assert Binding(site, site / "llama_cpp/lib", "0.3.36", "Python").backend == backend


def test_its_identity_changes_with_library_and_version_and_not_with_the_folder(tmp_path: Path) -> None:
    def identity(name: str, version: str = "0.3.36", library: str = "x") -> str:
        site = package(tmp_path / name, version)
        (site / "llama_cpp/lib/libggml-cpu.so").write_text(library)
        return Binding(site, site / "llama_cpp/lib", version, "Python").identity()

    first = identity("a")
    assert identity("b") == first
    assert len({first, identity("c", version="0.3.37"), identity("d", library="y")}) == 3


def test_its_variables_reach_the_process_that_loads_it(tmp_path: Path) -> None:
    site = package(tmp_path)
    pinned = Binding(site, site / "llama_cpp/lib", variables={"CUDA_VISIBLE_DEVICES": "2,3"})
    assert worker_environment(pinned)["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert worker_environment(replace(pinned, variables={})).get("CUDA_VISIBLE_DEVICES") != "2,3"
