"""install: whole or absent, whatever happens on the way. The tools are stand-ins for the real ones."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fake_build
from llmc.engine import build, install, steps
from llmc.engine.binding import find_binding
from llmc.engine.install import engine_folder, flaw, installed_whole
from llmc.engine.locate import installed, locate
from llmc.errors import EngineError, UsageError
from llmc.files import read_cache, write_json


@pytest.fixture
def tools(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.delenv("FAKE_BUILD", raising=False)
    fake_build.use(folder, monkeypatch.setattr)
    return folder


def leftovers(cache: Path) -> list[str]:
    """What lies in the engines folder, but for the lock."""
    folder = cache / "engines"
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock") if folder.exists() else []


def test_an_install_is_whole_and_found(tools: Path, own_cache: Path) -> None:
    engine = install.install("cpu")
    assert leftovers(own_cache) == [engine.name] == [f"{build.PINNED.version}-cpu"]
    assert installed() == [engine] and flaw(engine) == ""
    assert installed_whole("cpu") == engine and installed_whole("vulkan") is None
    for program in build.PROGRAMS:
        assert os.access(engine.root / "bin" / program, os.X_OK)
    assert (engine.lib / "libllama.so").is_symlink() and (engine.lib / "libllama.so").exists()
    assert (found := find_binding()) is not None
    assert (found.site, found.lib, found.engine) == (engine.root / "binding", engine.lib, engine)
    assert (engine.meta["build"], engine.meta["backend"]) == (11434, "cpu")
    assert "[3/3] compiling" in (engine.root / "build.log").read_text()
    found = locate(engine.name)
    assert (found.binary, found.installed) == (engine.binary.resolve(), engine)


def test_an_installed_engine_is_not_built_again_unless_forced(tools: Path) -> None:
    first = install.install("cpu")
    assert install.install("cpu") == first
    assert fake_build.calls(tools, "ninja") == 1
    install.install("cpu", force=True)
    assert fake_build.calls(tools, "ninja") == 2


def remove_program(root: Path) -> None:
    (root / "bin" / "llama-quantize").unlink()


def change_library(root: Path) -> None:
    (root / "lib" / "libllama.so.0").write_text("other")


def remove_binding(root: Path) -> None:
    shutil.rmtree(root / "binding")


def make_unexecutable(root: Path) -> None:
    (root / "bin" / "llama-perplexity").chmod(0o644)


def damage_note(root: Path) -> None:
    (root / "engine.json").write_text("{")


def move_to_a_better_cpu(root: Path) -> None:
    meta = read_cache(root / "engine.json")
    assert meta is not None
    write_json(root / "engine.json", {**meta, "cpu": f"{meta['cpu']} avx9000"})


DAMAGES = [
    remove_program,
    change_library,
    remove_binding,
    make_unexecutable,
    damage_note,
    move_to_a_better_cpu,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_engine_is_built_again(tools: Path, damage: object) -> None:
    root = install.install("cpu").root
    assert callable(damage)
    damage(root)
    assert installed_whole("cpu") is None
    again = install.install("cpu")
    assert fake_build.calls(tools, "ninja") == 2
    assert flaw(again) == ""


@pytest.mark.parametrize("option", ["-DGGML_NATIVE=OFF", "-DGGML_NATIVE:BOOL=off", "-DGGML_NATIVE=0"])
def test_an_engine_for_any_cpu_needs_no_feature(tools: Path, option: str) -> None:
    assert install.install("cpu", [option]).meta["cpu"] == ""
    assert set(install.install("cpu").meta["cpu"].split()) == install.cpu_features()


def test_a_failed_build_keeps_the_old_engine_and_names_its_log(
    tools: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = install.install("cpu")
    monkeypatch.setenv("FAKE_BUILD", "No space left on device")
    with pytest.raises(EngineError) as caught:
        install.install("cpu", force=True)
    log = own_cache / "engines" / f"{old.name}.log"
    assert str(log) in caught.value.what and "error: No space left on device" in caught.value.what
    assert "LLMC_CACHE" in caught.value.remedy
    assert "error: No space left on device" in log.read_text()
    assert leftovers(own_cache) == [old.name, log.name]
    assert flaw(old) == ""
    monkeypatch.delenv("FAKE_BUILD")
    install.install("cpu", force=True)
    assert leftovers(own_cache) == [old.name]


@pytest.mark.parametrize(
    ("printed", "remedy"),
    [
        ("g++: fatal error: Killed signal terminated program cc1plus", "--jobs 1"),
        ("[Errno -3] Temporary failure in name resolution", "PIP_INDEX_URL"),
        ("ERROR: No matching distribution found for ninja", "pip config list"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "pip cache purge"),
        ("ensurepip is not available", "python3-venv"),
        ("CMake Error: CUDA Toolkit not found", "CUDACXX"),
        ("Could NOT find Vulkan (missing: glslc)", "Vulkan SDK"),
        ("No CMAKE_CXX_COMPILER could be found", "g++"),
        ("something nobody has seen before", "read the log"),
    ],
)
def test_what_tools_print_decides_the_remedy(tmp_path: Path, printed: str, remedy: str) -> None:
    runner = steps.Steps(tmp_path / "log", dict(os.environ))
    script = f"import sys; print('before'); print({printed!r}); sys.exit(3)"
    with pytest.raises(EngineError) as caught:
        runner.run("Doing it", (sys.executable, "-c", script))
    assert remedy in caught.value.remedy
    assert printed in caught.value.what and "exit status 3" in caught.value.what


def test_a_tool_that_cannot_start_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="No such file"):
        steps.Steps(tmp_path / "log", {}).run("Doing it", (str(tmp_path / "absent"),))


def test_a_source_with_another_checksum_is_refused(
    tools: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools / "llama_cpp_python-0.0.0.tar.gz").write_bytes(b"something else")
    with pytest.raises(EngineError, match=r"has the SHA-256 \w{64}, expected \w{64}") as caught:
        install.install("cpu")
    assert "do not use" in caught.value.remedy
    assert fake_build.calls(tools, "cmake") == 0
    assert installed() == [] and not list((own_cache / "engines").glob(".build-*"))


def run_install(tools: Path, **variables: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, fake_build.__file__, str(tools)]
    environment = {**os.environ, **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(path: Path) -> None:
    limit = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < limit, f"{path} did not appear"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # a zombie whose parent is gone is not running
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return True


def test_ctrl_c_ends_the_compilers_and_leaves_nothing(tools: Path, own_cache: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    process = run_install(tools, FAKE_BUILD="hang", FAKE_MARK=str(mark))
    wait_for(mark)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"interrupted" in errors and b"Traceback" not in errors
    assert not any(is_running(int(pid)) for pid in mark.read_text().split())
    assert leftovers(own_cache) == []


def test_what_a_killed_install_left_is_removed_by_the_next(tools: Path, own_cache: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    process = run_install(tools, FAKE_BUILD="hang", FAKE_MARK=str(mark))
    wait_for(mark)
    process.kill()
    process.communicate(timeout=20)
    for pid in mark.read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    assert any(name.startswith(".build-") for name in leftovers(own_cache))
    assert installed() == []
    engine = install.install("cpu")
    assert leftovers(own_cache) == [engine.name]


def test_two_installs_at_once_build_once(tools: Path, own_cache: Path) -> None:
    both = [run_install(tools, FAKE_BUILD="slow") for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert fake_build.calls(tools, "ninja") == 1
    assert leftovers(own_cache) == [f"{build.PINNED.version}-cpu"]


def test_no_compiler(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"no C\+\+ compiler: c\+\+, g\+\+, clang\+\+ not found") as caught:
        install.install("cpu")
    assert "LLMC_ENGINE" in caught.value.remedy
    monkeypatch.setenv("CXX", "ccache-absent g++")
    with pytest.raises(EngineError, match=r"ccache-absent not found on PATH \(from \$CXX\)"):
        install.install("cpu")


def test_no_room(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil._ntuple_diskusage(10**9, 10**9, 3 * 10**8)  # type: ignore[attr-defined]
    monkeypatch.setattr(install.shutil, "disk_usage", lambda path: free)
    with pytest.raises(EngineError, match=r"0\.3 GB free.*needs 1 GB"):
        install.install("cpu")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_refuses_is_an_engine_error(
    tools: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number), "somewhere")

    monkeypatch.setattr(install.shutil, "copyfile", refuse)
    with pytest.raises(EngineError, match=re.escape(os.strerror(number))) as caught:
        install.install("cpu")
    assert "LLMC_CACHE" in caught.value.remedy
    assert leftovers(own_cache) == []


def test_a_cache_that_is_a_file(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLMC_CACHE", str(tmp_path / "file"))
    with pytest.raises(EngineError, match="cannot install the engine"):
        install.install("cpu")


@pytest.mark.parametrize(
    ("backend", "arguments", "message"),
    [
        ("cdua", [], "did you mean cuda"),
        ("cpu", ["GGML_NATIVE=OFF"], "is no cmake option"),
        ("cpu", ["-DBUILD_SHARED_LIBS=OFF"], "llmc sets this itself"),
        ("cpu", ["-DBUILD_SHARED_LIBS:BOOL=OFF"], "llmc sets this itself"),
        ("cpu", ["-GNinja"], "llmc sets this itself"),
    ],
)
def test_options_that_cannot_work(backend: str, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        install.install(backend, arguments)


def test_jobs(tools: Path) -> None:
    with pytest.raises(UsageError, match="at least one"):
        install.install("cpu", jobs=0)
    assert 1 <= install.default_jobs() <= install.usable_cores()


def test_cmake_arguments_have_a_folder_of_their_own(own_cache: Path) -> None:
    folders = [
        engine_folder("cpu"),
        engine_folder("cuda"),
        engine_folder("cpu", ["-DA=1"]),
        engine_folder("cpu", ["-DA=2"]),
    ]
    assert len(set(folders)) == 4
    assert engine_folder("cpu", ["-DA=1"]) == folders[2]
