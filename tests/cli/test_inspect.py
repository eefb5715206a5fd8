"""``llmc inspect``: what it says of whole files, and of broken ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import fake_binding
from llmc import mcbin
from llmc.__main__ import run as llmc
from llmc.mcbin import Task
from llmc.report.inspection import is_lettered, printable
from made_gguf import LLAMA, TENSORS, gguf_bytes

TASKS = [
    Task("What is it?\nAnswer:", ("a cat", "a dog", "an owl"), 2),
    Task("Yes or no?", ("Yes", "Yes and no"), 1),
    Task("Twins", ("same", "other", "same"), 2),
    Task("Twins", ("same", "same"), 0),
]


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    mcbin.write(tmp_path / "x.bin", TASKS)
    return tmp_path / "x.bin"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(LLAMA, TENSORS))
    return path


@pytest.fixture
def binding(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished install in the cache whose binding is the stand-in."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    root = own_cache / "engines" / "b1-cpu"
    made = fake_binding.make_binding(root)
    made.site.rename(root / "binding")
    (root / "bin").mkdir()
    (root / "bin" / "llama-perplexity").write_text("#!/bin/sh\n")
    (root / "bin" / "llama-perplexity").chmod(0o755)
    (root / "engine.json").write_text('{"schema": "llmc.engine/1", "version": "b1", "backend": "cpu"}')
    return root / "binding"


def as_json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert llmc(["inspect", "--json", *map(str, words)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    body: dict[str, Any] = json.loads(out)
    assert (body["schema"], body["command"], body["exit_code"]) == ("llmc.cli/1", "inspect", 0)
    return body["data"]


def test_figures_by_hand(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, bench)
    assert data["tasks"] == 4 and data["bytes"] == bench.stat().st_size
    assert data["sha256"] == mcbin.scan(bench).sha256
    assert data["options"] == {"2": 2, "3": 2}
    assert data["gold_positions"] == {"0": 1, "1": 1, "2": 2}
    assert data["chance"] == pytest.approx((1 / 3 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert data["engine_chance"] == pytest.approx(4 / 10)
    assert (data["majority_position"], data["majority_share"]) == (2, 0.5)
    assert data["form"] == "text"
    assert data["duplicate_options"] == {"tasks": 2, "first": [2, 3]}
    assert data["never_right"] == {"tasks": 1, "first": [2]}
    assert data["text_hazards"] == {"option-prefix": {"tasks": 2, "first": [1, 3]}}
    assert data["task"]["question"] == TASKS[0].question and "model" not in data


def test_the_task_asked_for(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, bench, "--task", "2")["task"] == {
        "index": 2,
        "question": "Twins",
        "options": ["same", "other", "same"],
        "gold": 2,
    }
    assert llmc(["inspect", str(bench), "--task", "1"]) == 0
    shown = capsys.readouterr().out
    assert "    Yes or no?\n" in shown and "\n    ' Yes'\n  * ' Yes and no'\n" in shown


def test_people_see_the_same_figures(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmc(["inspect", str(bench)]) == 0
    lines = {line[:18].strip(): line[18:] for line in capsys.readouterr().out.splitlines()}
    assert lines["tasks"] == "4" and lines["form"] == "text"
    assert lines["options"].startswith("2: 2, 3: 2")
    assert lines["chance"].startswith("41.67 %") and "40.00 %" in lines["chance"]
    assert lines["majority"].startswith("C, 50.00 %")
    assert lines["equal options"] == "2 tasks: 2, 3"
    assert lines["never right"].startswith("1 task: 2")
    assert lines["option-prefix"].startswith("2 tasks: 1, 3") and lines["no-common-prefix"] == "none"


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ([("A", "B"), ("A", "B", "C")], "letter"),
        ([("A", "B"), ("yes", "no")], "mixed"),
        ([("yes", "no")], "text"),
        ([("B", "A")], "text"),
        ([("a", "b")], "text"),
        ([("AB", "C")], "text"),
    ],
)
def test_the_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[tuple[str, ...]], form: str
) -> None:
    mcbin.write(tmp_path / "x.bin", [Task("q", each, 0) for each in options])
    assert as_json(capsys, tmp_path / "x.bin")["form"] == form


def test_more_options_than_letters_are_no_letter_form() -> None:
    assert not is_lettered(Task("q", tuple(map(str, range(40))), 0))
    assert is_lettered(Task("q", tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), 0))


def test_a_task_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mcbin.write(tmp_path / "x.bin", [Task("a\x1b]0;evil\x07\u202eb\tc [bold]x[/]", ("\x1b[2J", "b"), 0)])
    assert llmc(["inspect", str(tmp_path / "x.bin")]) == 0
    out = capsys.readouterr().out
    assert not any(bad in out for bad in "\x1b\x07\u202e")
    assert "a\\x1b]0;evil\\x07\\u202eb\\tc [bold]x[/]" in out


@pytest.mark.parametrize(
    ("text", "shown"), [("é 🦙\n\t", "é 🦙\n\\t"), ("\0\r\x7f", "\\x00\\r\\x7f"), ("\u200b\u2028", "\\u200b\u2028")]
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


# With a model


def test_tokens_and_hazards_of_a_model(
    bench: Path, model: Path, binding: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = as_json(capsys, bench, "--model", model)["model"]
    assert (found["basis"], found["reason"], found["cached"]) == ("tokens", "", False)
    # BOS What is it ? NL Answer : = 8 with " a" shared by two options of three
    assert found["hazards"] == {"option-prefix": [1, 3]}
    assert found["longest_task"] == 0 and found["task_tokens"] == found["longest_tokens"] == 8 + 6
    assert (found["architecture"], found["quantization"]) == ("llama", "Q4_K_M")
    assert as_json(capsys, bench, "--model", model)["model"]["cached"] is True


def test_a_models_findings_in_words(
    bench: Path, model: Path, binding: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmc(["inspect", str(bench), "-m", str(model)]) == 0
    out = capsys.readouterr().out
    assert "(14 tokens of context)" in out
    assert "option-prefix" in out and "2 tasks: 1, 3" in out and "explain" in out


def test_a_file_without_hazards_says_so(
    tmp_path: Path, model: Path, binding: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mcbin.write(tmp_path / "ok.bin", TASKS[:1])
    assert llmc(["inspect", str(tmp_path / "ok.bin"), "-m", str(model)]) == 0
    out = capsys.readouterr().out
    assert "hazards           none" in out and "explain" not in out


def test_without_a_binding_bounds_are_called_bounds(
    bench: Path, model: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmc(["inspect", str(bench), "-m", str(model)]) == 0
    out = capsys.readouterr().out
    assert "at most" in out and "preflight-bounds-only" in out and "llmc engine install" in out
    found = as_json(capsys, bench, "-m", model)["model"]
    assert found["basis"] == "bounds" and found["task_tokens"] is None


# What cannot be inspected


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, ["task 3", "3 tasks before are whole"]),
        (lambda p: p.write_bytes(p.read_bytes() + b"\0"), ["1 bytes follow"]),
        (lambda p: p.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"), ["Git LFS"]),
        (lambda p: p.write_bytes(b""), ["at least 4 bytes"]),
        (lambda p: p.unlink(), ["No such file"]),
        (lambda p: (p.unlink(), p.mkdir()), ["directory"]),
    ],
    ids=["cut", "longer", "pointer", "empty", "missing", "directory"],
)
@pytest.mark.parametrize("machine", [False, True])
def test_broken_files_say_where_and_exit_2(
    bench: Path, capsys: pytest.CaptureFixture[str], damage: Any, words: list[str], machine: bool
) -> None:
    damage(bench)
    assert llmc(["inspect", str(bench), *(["--json"] if machine else [])]) == 2
    out, err = capsys.readouterr()
    text = json.loads(out)["error"]["message"] if machine else " ".join(err.split())
    assert all(word in text for word in [*words, bench.name])
    assert "Traceback" not in err
    assert err == "" if machine else out == ""


def test_the_place_is_data_too(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = bench.stat().st_size
    cut(bench)
    assert llmc(["inspect", str(bench), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["task"], error["offset"]) == ("bad-binary", 3, size - 4)
    assert error["remedy"]


def test_a_task_that_is_not_there(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmc(["inspect", str(bench), "--task", "4"]) == 2
    assert "no task 4" in capsys.readouterr().err
    assert llmc(["inspect", str(bench), "--task", "-1"]) == 2


@pytest.mark.parametrize("name", ["missing.gguf", "x.bin"])
def test_a_model_that_is_none(bench: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert llmc(["inspect", str(bench), "--model", str(bench.with_name(name))]) == 2
    assert name in capsys.readouterr().err
