"""Runs in parts: each audited and kept, taken up again where they were, and never mixed with others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers import Called, Cli, letter_tasks
from llmc import mcbin

pytestmark = pytest.mark.usefixtures("own_cache", "fake_engine")
TASKS, SIZE = 30, 8


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    path = tmp_path / "questions.bin"
    mcbin.write(path, letter_tasks(TASKS, golds=(0, 1, 0, 2)))
    return path


def score(cli: Cli, model: Path, bench: Path, out: Path, *more: str) -> Called:
    words = ["run", "-m", model, "-b", bench, "--out", out, "--no-health-check", "--json"]
    return cli(*words, "--part-size", str(SIZE), *more)


def launches(log: Path) -> int:
    return sum("tasks.bin" in line for line in log.read_text().splitlines()) if log.exists() else 0


def test_finished_parts_are_taken_up_again(
    cli: Cli, known_model: Path, bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "calls"
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(log))
    monkeypatch.setenv("FAKE_ENGINE", "error=decode")
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "part-0002")
    failed = score(cli, known_model, bench, tmp_path / "out")
    assert failed.code == 3 and failed.record["result"] is None
    assert [part["scored"] for part in failed.record["parts"]][:2] == [SIZE, SIZE]
    assert any("part 2" in found["detail"] for found in failed.record["findings"])
    before = launches(log)
    monkeypatch.delenv("FAKE_ENGINE")
    again = score(cli, known_model, bench, tmp_path / "out")
    assert again.code == 0
    assert [part["resumed"] for part in again.record["parts"]] == [True, True, False, False]
    assert launches(log) - before == 2
    whole = score(cli, known_model, bench, tmp_path / "out2", "--part-size", "1000")
    assert again.record["correct"] == whole.record["correct"]
    assert all((Path(again.data["runs"][0]["folder"]) / part["stdout"]).is_file() for part in again.record["parts"])


@pytest.mark.parametrize("change", ["model", "flags", "force", "bench"])
def test_what_matters_starts_from_the_beginning(
    change: str, cli: Cli, known_model: Path, bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "error=decode")
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "part-0002")
    assert score(cli, known_model, bench, tmp_path / "out").code == 3
    monkeypatch.delenv("FAKE_ENGINE")
    model, more = known_model, []
    if change == "model":
        model = tmp_path / "other.gguf"
        model.write_bytes(known_model.read_bytes()[:-1] + b"\x01")
    elif change == "flags":
        more = ["--", "-t", "1"]
    elif change == "force":
        more = ["--force"]
    else:
        mcbin.write(bench, letter_tasks(TASKS, golds=(1, 0, 0, 2)))
    called = score(cli, model, bench, tmp_path / "out", *more)
    assert called.code == 0 and not any(part["resumed"] for part in called.record["parts"])


def test_a_damaged_part_is_scored_again(
    cli: Cli, known_model: Path, bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "error=decode")
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "part-0002")
    assert score(cli, known_model, bench, tmp_path / "out").code == 3
    monkeypatch.delenv("FAKE_ENGINE")
    (kept,) = (tmp_path / "out/runs").glob(".parts-*/part-0001/part.json")
    body = json.loads(kept.read_text())
    kept.write_text(json.dumps({**body, "sha256": "0" * 64}))
    called = score(cli, known_model, bench, tmp_path / "out")
    assert [part["resumed"] for part in called.record["parts"]] == [True, False, False, False]


def test_the_score_is_judged_over_the_whole(
    cli: Cli, known_model: Path, bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "always=1")
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "tasks.bin")
    called = score(cli, known_model, bench, tmp_path / "out")
    assert called.code == 0
    assert called.slugs.count("always-one-position") == 1 and called.slugs.count("below-majority") == 1


def test_a_model_replaced_between_two_parts_is_noticed(
    cli: Cli, known_model: Path, bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmc.runs import parts

    model = tmp_path / "model.gguf"
    model.write_bytes(known_model.read_bytes())
    score_part = parts.score_part

    def then_replace(part: parts.Part, *more: object) -> parts.PartResult:
        result = score_part(part, *more)  # type: ignore[arg-type]
        if part.index == 0:
            other = tmp_path / "other.gguf"
            other.write_bytes(model.read_bytes())
            other.replace(model)
        return result

    monkeypatch.setattr(parts, "score_part", then_replace)
    called = score(cli, model, bench, tmp_path / "out")
    assert called.code == 3 and "model-changed" in called.slugs and called.record["result"] is None
    assert [part["scored"] for part in called.record["parts"]] == [SIZE, SIZE]


def test_nothing_is_left_beside_the_runs(cli: Cli, known_model: Path, bench: Path, tmp_path: Path) -> None:
    called = score(cli, known_model, bench, tmp_path / "out")
    assert called.code == 0
    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == [
        Path(called.data["runs"][0]["folder"]).name
    ]
    assert not list((tmp_path / "out").rglob("*.bin"))


@pytest.mark.parametrize("after_part", [None, 0])
def test_a_benchmark_replaced_after_it_was_planned_is_noticed(
    cli: Cli, known_model: Path, bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_part: int | None
) -> None:
    """Before it is split (None), or while its parts are scored."""
    from llmc.runs import parts

    original = {"split": parts.split, "score_part": parts.score_part}
    tasks = list(mcbin.Reader(bench))
    other = tmp_path / "other.bin"
    mcbin.write(other, [replace(task, gold=(task.gold + 1) % len(task.options)) for task in tasks])

    def split(*words: Any) -> Any:
        if after_part is None:
            other.replace(bench)
        return original["split"](*words)

    def score_part(part: parts.Part, *more: Any) -> Any:
        result = original["score_part"](part, *more)
        if part.index == after_part:
            other.replace(bench)
        return result

    monkeypatch.setattr(parts, "split", split)
    monkeypatch.setattr(parts, "score_part", score_part)
    called = score(cli, known_model, bench, tmp_path / "out")
    assert called.code == 3 and "benchmark-changed" in called.slugs and called.record["result"] is None


def test_an_adapter_that_changed_is_another_run(cli: Cli, known_model: Path, bench: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "lora.gguf"
    adapter.write_text("one")
    seen = []
    for text in ("one", "one", "two"):
        adapter.write_text(text)
        called = score(cli, known_model, bench, tmp_path / "out", "--", "--lora", str(adapter))
        assert called.code == 0, called.out
        seen.append(called.data["runs"][0]["reused"])
    assert seen == [False, True, False]
