"""llmc doctor: ready or not, and what it says about settings that matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fake_engine
from llmc.__main__ import run
from llmc.engine import environment
from llmc.report import doctor as examination


@pytest.fixture(autouse=True)
def bare_machine(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(environment, "SYSTEM_CONFIG", tmp_path / "etc" / "config.ini")
    monkeypatch.delenv("LLMC_ENGINE", raising=False)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    binary = fake_engine.install(tmp_path / "engine")
    monkeypatch.setenv("LLMC_ENGINE", str(binary))
    return binary


def examine(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, list[dict[str, Any]]], bool]:
    code = run(["doctor", "--json"])
    body = json.loads(capsys.readouterr().out)
    assert (body["schema"], body["command"], body["exit_code"]) == ("llmc.cli/1", "doctor", code)
    named: dict[str, list[dict[str, Any]]] = {}
    for check in body["data"]["checks"]:
        named.setdefault(check["name"], []).append(check)
    return code, named, body["data"]["ready"]


def test_without_an_engine_it_is_not_ready(capsys: pytest.CaptureFixture[str]) -> None:
    code, named, ready = examine(capsys)
    assert (code, ready) == (2, False)
    assert named["engine"][0]["level"] == "missing"
    assert "llmc engine install" in named["engine"][0]["remedy"]
    assert run(["doctor"]) == 2
    assert "not ready: engine" in capsys.readouterr().out


def test_with_an_engine_it_is_ready(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, named, ready = examine(capsys)
    assert (code, ready) == (0, True)
    assert str(engine) in named["engine"][0]["detail"] and "mainline" in named["engine"][0]["detail"]
    assert named["binding"][0]["level"] == "note"
    assert run(["doctor"]) == 0
    assert "ready: everything" in capsys.readouterr().out


def test_an_engine_that_fails_its_known_answers_is_missing(
    engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "wrong")
    code, named, _ = examine(capsys)
    assert code == 2
    assert "known answers" in named["engine"][0]["detail"] and "known answers" not in named


def test_settings_that_llama_cpp_reads_are_named(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, named, _ = examine(capsys)
    assert {named[name][0]["level"] for name in ("LLAMA_* variables", "config.ini")} == {"ok"}
    for path in (tmp_path / "config" / "llama.cpp" / "config.ini", environment.SYSTEM_CONFIG):
        path.parent.mkdir(parents=True)
        path.write_text("verbosity = 0\n")
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "9")
    code, named, _ = examine(capsys)
    assert code == 0
    assert "LLAMA_ARG_CTX_SIZE" in named["LLAMA_* variables"][0]["detail"]
    assert [check["level"] for check in named["config.ini"]] == ["note", "note"]
    assert str(tmp_path / "config") in named["config.ini"][0]["detail"]
    assert str(environment.SYSTEM_CONFIG) in named["config.ini"][1]["detail"]


def test_secrets_are_not_shown(
    engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:pa55word@index.example/simple")
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    assert run(["doctor", "--json"]) == 0
    printed = capsys.readouterr().out
    assert "verysecret" not in printed and "pa55word" not in printed
    assert "HF_TOKEN=(set, not shown)" in printed
    assert "https://...@index.example/simple" in printed and "https://mirror.example" in printed


def test_a_cache_that_cannot_be_written(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLMC_CACHE", str(tmp_path / "file"))
    code, named, _ = examine(capsys)
    assert (code, named["cache"][0]["level"]) == (2, "missing")
    assert "LLMC_CACHE" in named["cache"][0]["remedy"]


def test_a_broken_binding_and_engine_are_noted(
    engine: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = own_cache / "engines" / "1-cpu"
    package = root / "binding" / "llama_cpp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no libllama here')")
    fake_engine.install(root / "bin")
    (root / "engine.json").write_text('{"schema": "llmc.engine/1", "version": "1", "backend": "cpu"}')
    code, named, _ = examine(capsys)
    assert code == 0
    assert "no libllama here" in named["binding"][0]["detail"]
    assert named["installed engine"][0]["level"] == "note"


def test_a_missing_package_is_missing(
    engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(examination, "PACKAGES", ("rich", "no-such-package"))
    code, named, _ = examine(capsys)
    assert code == 2
    assert named["packages"][0]["detail"] == "not installed: no-such-package"


def test_a_machine_without_compiler_or_room_is_noted(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(examination, "LOW_DISK_BYTES", 1e30)
    code, named, _ = examine(capsys)
    assert code == 0
    assert named["C++ compiler"][0]["level"] == "note"
    assert named["disk (cache)"][0]["level"] == "note"
