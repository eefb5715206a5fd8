"""Every way a run can fail, as `llmc run` meets it: exit code, finding, and nothing that looks like a score."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from helpers import Called, Cli, letter_tasks
from llmc import mcbin

TASKS = 24
SCORE = re.compile(r"\d+(\.\d+)? %\s+\d+(\.\d+)?-\d")

SILENT = [
    ("cut=3", "scored-fewer"),
    ("skip=4", "row-gap"),
    ("double=4", "row-gap"),
    ("swap=4", "row-gap"),
    ("impossible=6", "impossible-accuracy"),
    ("extra=2", "scored-more"),
    ("final=wrong", "final-mismatch"),
    ("final=twice", "several-finals"),
    ("chance=wrong", "baseline-mismatch"),
    ("announce=25", "announced-mismatch"),
    ("read=17", "bytes-read-mismatch"),
    ("error=options", "too-many-options"),
    ("error=context", "context-too-small"),
    ("error=decode", "error-line"),
    ("error=malformed", "error-line"),
    ("silent", "no-output"),
    ("mute", "no-output"),
    ("exit=1", "exit-status"),
    ("exit=134", "killed-by-signal"),
    ("signal=11", "killed-by-signal"),
    ("signal=9,at=5", "killed-by-signal"),
    ("signal=6,at=5", "killed-by-signal"),
    ("child", "left-children"),
    ("daemon", "left-children"),
    ("orphan", "left-children"),
    ("rewrite-bench", "benchmark-changed"),
    ("rewrite-model", "model-changed"),
]


@pytest.fixture
def setup(tmp_path: Path, fake_engine: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A benchmark of 24 questions and a copy of a model that some failures may change."""
    from llmc.engine.known_answer import KnownAnswerModel

    bench = tmp_path / "questions.bin"
    mcbin.write(bench, letter_tasks(TASKS))
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "questions")
    return KnownAnswerModel().write(tmp_path / "model.gguf"), bench


def score(cli: Cli, setup: tuple[Path, Path], out: Path, *more: str) -> Called:
    model, bench = setup
    words = ["run", "-m", model, "-b", bench, "--out", out, "--no-health-check"]
    return cli(*words, *more)


def assert_no_score(called: Called, out: Path) -> dict[str, object]:
    """The record says untrusted and holds nothing to be taken for a result; nor does the table."""
    (folder,) = [path.parent for path in out.glob("runs/*/record.json")]
    record = json.loads((folder / "record.json").read_text())
    assert record["status"] in ("untrusted", "interrupted")
    assert record["result"] is None and record["correct"] is None and not record["groups"]
    assert not SCORE.search(called.out)
    return record


@pytest.mark.parametrize(("mode", "slug"), SILENT)
def test_silent_failures_are_found(
    mode: str, slug: str, cli: Cli, setup: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", mode)
    called = score(cli, setup, tmp_path / "out")
    record = assert_no_score(called, tmp_path / "out")
    assert called.code == 3
    assert slug in [found["slug"] for found in record["findings"]], record["findings"]  # type: ignore[attr-defined]
    assert "untrusted" in called.out and slug in called.out


@pytest.mark.parametrize(
    ("mode", "words", "slug"),
    [
        ("hang=loading", ["--stall-timeout", "1"], "stalled"),
        ("hang=before", ["--stall-timeout", "1"], "stalled"),
        ("hang=during", ["--stall-timeout", "1"], "stalled"),
        ("hang=during,ignore-int,ignore-term", ["--stall-timeout", "1"], "stalled"),
        ("spin=during", ["--timeout", "2"], "timeout"),
        ("hang=before,ignore-term,child", ["--timeout", "2"], "timeout"),
    ],
)
def test_a_process_that_hangs_is_ended(
    mode: str,
    words: list[str],
    slug: str,
    cli: Cli,
    setup: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", mode)
    called = score(cli, setup, tmp_path / "out", *words)
    record = assert_no_score(called, tmp_path / "out")
    assert called.code == 3
    assert record["findings"][0]["slug"] == slug  # type: ignore[index]


def test_a_process_that_said_everything_and_stays_is_ended(
    cli: Cli, setup: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmc.runs import prepare

    usual = prepare.Limits
    monkeypatch.setattr(prepare, "Limits", lambda **given: usual(**given, exit_grace=1.0))
    monkeypatch.setenv("FAKE_ENGINE", "hang=after")
    called = score(cli, setup, tmp_path / "out")
    record = assert_no_score(called, tmp_path / "out")
    assert called.code == 3
    assert record["findings"][0]["slug"] == "did-not-exit"  # type: ignore[index]


@pytest.mark.parametrize(
    "mode", ["", "printf", "old", "jsonl", "colours", "no-prefix", "quiet", "crlf", "final=missing"]
)
def test_complete_runs_are_trusted(
    mode: str, cli: Cli, setup: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", mode)
    called = score(cli, setup, tmp_path / "out", "--json")
    assert called.code == 0, called.out
    record = called.record
    assert record["status"] == "trusted" and record["counts"]["scored"] == TASKS
    assert record["correct"] == "1000" * 6 and record["result"]["correct"] == 6
    warned = {"final=missing": ["final-missing"], "quiet": ["final-missing", "not-announced"]}.get(mode, [])
    assert set(warned) <= set(called.slugs)


@pytest.mark.parametrize("mode", ["cut=3", "always=0", "exit=1"])
def test_a_failure_in_one_benchmark_leaves_the_others_alone(
    mode: str, cli: Cli, setup: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.bin"
    mcbin.write(other, letter_tasks(8, widths=(5, 3)))
    monkeypatch.setenv("FAKE_ENGINE", mode)
    called = score(cli, setup, tmp_path / "out", str(other), "--json")
    first, second = (run["record"] for run in called.data["runs"])
    assert second["status"] == "trusted" and second["benchmark"]["name"] == "other"
    assert first["status"] == ("trusted" if mode == "always=0" else "untrusted")
    assert called.code == (0 if mode == "always=0" else 3)


def test_always_one_position_is_a_warning(
    cli: Cli, setup: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "always=2")
    called = score(cli, setup, tmp_path / "out", "--json")
    assert called.code == 0 and "always-one-position" in called.slugs
    monkeypatch.setenv("FAKE_ENGINE", "share=60")
    called = score(cli, setup, tmp_path / "out", "--json", "--force")
    assert called.code == 0 and "always-one-position" not in called.slugs


def test_lost_last_lines_are_asked_for_again(
    cli: Cli, setup: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run cut off at its exit is launched again, and given up after a few attempts."""
    log = tmp_path / "calls.jsonl"
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(log))
    monkeypatch.setenv("FAKE_ENGINE", "cut=20")
    called = score(cli, setup, tmp_path / "out", "--json")
    launches = [line for line in log.read_text().splitlines() if "questions.bin" in line]
    assert called.code == 3
    assert len(launches) == called.record["parts"][0]["attempts"] > 1
    monkeypatch.setenv("FAKE_ENGINE", "error=decode,at=20")
    called = score(cli, setup, tmp_path / "out2", "--json")
    assert called.code == 3 and called.record["parts"][0]["attempts"] == 1
