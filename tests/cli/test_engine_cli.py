"""llmc engine: what is printed, the envelope, and the exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fake_build
import fake_engine
from llmc.__main__ import run
from llmc.engine import install as builder


@pytest.fixture(autouse=True)
def no_engine(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("LLMC_ENGINE", raising=False)


def envelope(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run([*arguments, "--json"])
    body = json.loads(capsys.readouterr().out)
    assert body["exit_code"] == code
    return code, body


def test_install_says_whether_it_built(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_build.use(tmp_path, monkeypatch.setattr)
    code, body = envelope(capsys, "engine", "install", "--backend", "cpu")
    assert (code, body["data"]["installed_now"]) == (0, True)
    engine = body["data"]["engine"]
    assert engine["name"] == "0.3.36-cpu" and Path(engine["binary"]).is_file()
    assert "files" not in engine["meta"]
    code, body = envelope(capsys, "engine", "install", "--backend", "cpu")
    assert (code, body["data"]["installed_now"]) == (0, False)
    assert run(["engine", "install", "--backend", "cpu"]) == 0
    assert f"already, and whole: {own_cache}" in capsys.readouterr().out
    assert run(["engine", "install", "--backend", "cpu", "--force"]) == 0
    assert "is installed in 0 s" in capsys.readouterr().out or fake_build.calls(tmp_path, "ninja") == 2


def test_install_shows_progress_lines_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_build.use(tmp_path, monkeypatch.setattr)
    monkeypatch.setenv("LLMC_PROGRESS", "plain")
    assert run(["engine", "install", "--backend", "cpu"]) == 0
    errors = capsys.readouterr().err
    for step in ("Fetching llama-cpp-python", "Configuring", "Building", "binding", "Trying the engine"):
        assert step in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "cudda"], "did you mean cuda"),
        (["--backend", "cpu", "--cmake-arg", "GGML_X=1"], "is no cmake option"),
        (["--backend", "cpu", "--jobs", "0"], "greater than or equal to 1"),
        (["--backend", "cpu", "--jobs", "many"], "--jobs"),
        (["--bakend", "cpu"], "--bakend"),
        (["extra"], "extra"),
    ],
)
def test_install_with_wrong_options(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    code, body = envelope(capsys, "engine", "install", *arguments)
    assert (code, body["status"], body["error"]["kind"]) == (2, "usage", "usage")
    assert message in body["error"]["message"] and body["error"]["remedy"]


def test_default_backend_is_one_there_is() -> None:
    assert builder.default_backend() in builder.BACKENDS


def test_list_without_engines(capsys: pytest.CaptureFixture[str]) -> None:
    code, body = envelope(capsys, "engine", "list")
    assert (code, body["data"]) == (0, {"engines": [], "used": None})
    assert run(["engine", "list"]) == 0
    assert "llmc engine install" in capsys.readouterr().out


def test_list_names_the_flaw_and_the_engine_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_build.use(tmp_path, monkeypatch.setattr)
    engine = builder.install("cpu")
    code, body = envelope(capsys, "engine", "list")
    assert [(e["name"], e["flaw"]) for e in body["data"]["engines"]] == [(engine.name, "")]
    assert body["data"]["used"] == {"command": [str(engine.binary)], "found_by": "installed"}
    (engine.lib / "libllama.so.0").write_text("changed")
    code, body = envelope(capsys, "engine", "list")
    assert (code, body["data"]["engines"][0]["flaw"]) == (0, "its file lib/libllama.so.0 has changed")
    assert run(["engine", "list"]) == 0
    printed = capsys.readouterr().out
    assert "has changed" in printed and "found by: installed" in printed


def test_probe_of_a_usable_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = fake_engine.install(tmp_path)
    code, body = envelope(capsys, "engine", "probe", str(binary))
    assert (code, body["data"]["usable"], body["data"]["command"]) == (0, True, [str(binary)])
    assert run(["engine", "probe", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "context rule" in printed and "listed with --json" in printed


def test_probe_of_an_engine_that_answers_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "wrong")
    code, body = envelope(capsys, "engine", "probe", str(fake_engine.install(tmp_path)))
    assert (code, body["status"], body["data"]["usable"]) == (2, "usage", False)
    assert body["data"]["reason"]


def test_probe_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, body = envelope(capsys, "engine", "probe", str(tmp_path / "absent"))
    assert (code, body["error"]["kind"]) == (2, "engine")
    code, body = envelope(capsys, "engine", "probe")
    assert (code, body["error"]["kind"]) == (2, "engine")
    assert "llmc engine install" in body["error"]["remedy"]


@pytest.mark.parametrize("command", [["engine"], ["engine", "install", "--help"], ["engine", "probe", "--help"]])
def test_help_is_help_and_no_error(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command) == (2 if command == ["engine"] else 0)
    captured = capsys.readouterr()
    assert "Usage: llmc engine" in captured.out and "error" not in captured.err


def test_ctrl_c_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(builder, "installed_whole", interrupt)
    code, body = envelope(capsys, "engine", "install")
    assert (code, body["error"]["kind"]) == (130, "interrupted")
    assert run(["engine", "install"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_script_named_as_engine_that_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "llama-perplexity"
    path.write_text("#!/absent/interpreter\n")
    path.chmod(0o755)
    with pytest.raises(OSError):
        subprocess.run([path])
    code, body = envelope(capsys, "engine", "probe", str(path))
    assert code == 2 and "internal" not in str(body)
