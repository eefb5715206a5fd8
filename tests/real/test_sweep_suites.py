"""Suites in a sweep: every file a suite asks is a cell, and each model gets the score that `llmc run --suite` gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import Called, Cli
from llmc.engine.known_answer import KnownAnswerModel
from llmc.files import configs_dir
from llmc.runs.sweep_map import load_map
from suite_rows import write_all

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("real_engine")]

SUITE = """
name: small
scoring: {bos: never}
aggregate: mean-of-means
protocol: olmes
shots: 0
splits: [validation]
parts:
  - {name: exams, aggregate: mean, benchmark: mmlu, groups: [virology, sociology], shots: 1}
  - {name: piqa, benchmark: piqa, shots: 2}
  - {name: coqa, benchmark: coqa}
"""
Sweep = Callable[..., Called]


def model(path: Path, favourite: int) -> Path:
    """A model that prefers one letter."""
    logits = tuple(6.0 if i == favourite else 5.0 - 0.1 * i for i in range(26))
    return KnownAnswerModel(letter_logits=logits).write(path)


@pytest.fixture
def sweep(tmp_path: Path, cli: Cli) -> Sweep:
    for number, name in enumerate("ab"):
        model(tmp_path / f"{name}.gguf", number)
    (tmp_path / "small.yaml").write_text(SUITE)

    def run(*words: str, **keys: Any) -> Called:
        config = {
            "name": "suites",
            "models": ["*.gguf"],
            "suites": ["small.yaml"],
            "source": "rows",
            "health_check": False,
            "baseline": "a",
            **keys,
        }
        (tmp_path / "sweep.yaml").write_text(json.dumps(config))
        return cli("sweep", tmp_path / "sweep.yaml", "--out", tmp_path / "out", *words)

    return run


def alone(cli: Cli, tmp_path: Path, name: str) -> dict[str, Any]:
    words = ["--source", tmp_path / "rows", "--out", tmp_path / "alone", "--no-health-check", "--json"]
    called = cli("run", "--suite", tmp_path / "small.yaml", "-m", tmp_path / f"{name}.gguf", *words)
    found: dict[str, Any] = called.data["suite"]
    return found


def test_each_model_gets_the_suites_score(cli: Cli, tmp_path: Path, sweep: Sweep) -> None:
    write_all(tmp_path / "rows")
    called = sweep("--json")
    assert called.code == 0, called.out
    assert [cell["cell"] for cell in called.data["cells"]] == [
        f"{name}/small/{part}"
        for name in "ab"
        for part in ("mmlu-validation@olmes-1shot", "piqa-validation@olmes-2shot", "coqa-validation")
    ]
    assert [(each["label"], each["suite"]) for each in called.data["suites"]] == [("a", "small"), ("b", "small")]
    for each in called.data["suites"]:
        expected = alone(cli, tmp_path, each["label"])
        assert expected["score"] is not None
        assert (each["score"], each["tree"]) == (expected["score"], expected["tree"])
    assert len({each["score"] for each in called.data["suites"]}) == 2
    # Parts are compared with the baseline's like any other cell.
    assert all(cell["difference"] is not None for cell in called.data["cells"][3:])

    again = sweep("--json", "--dry-run")
    assert again.code == 0 and all(cell["cached"] for cell in again.data["cells"])
    shown = sweep()
    assert shown.code == 0 and "small:\n" in shown.out
    report = cli("report", tmp_path / "out/sweeps/suites", "--to", tmp_path / "report")
    assert report.code == 0
    scored = f"{100 * called.data['suites'][1]['score']:.2f}"
    assert f"| b | {scored} |" in (tmp_path / "report/report.md").read_text()
    assert f"<td>{scored}</td>" in (tmp_path / "report/index.html").read_text()


def test_the_shipped_example_runs(cli: Cli, tmp_path: Path) -> None:
    write_all(tmp_path / "rows")
    (tmp_path / "models").mkdir()
    for number, name in enumerate(("model-f16", "model-Q8_0")):
        model(tmp_path / f"models/{name}.gguf", number)
    text = (configs_dir("sweeps") / "suite.yaml").read_text()
    (tmp_path / "suite.yaml").write_text(f"{text}source: rows\nhealth_check: false\n")
    called = cli("sweep", tmp_path / "suite.yaml", "--out", tmp_path / "out", "--json")
    assert called.code == 0, called.out
    assert len(called.data["cells"]) == 18
    assert [each["label"] for each in called.data["suites"]] == ["model-Q8_0", "model-f16"]
    assert all(each["score"] is not None for each in called.data["suites"])


def test_a_suite_with_a_missing_part_has_no_score(cli: Cli, tmp_path: Path, sweep: Sweep) -> None:
    write_all(tmp_path / "rows", leave_out=("coqa",))
    called = sweep("--json")
    assert called.code == 3
    assert [cell["status"] for cell in called.data["cells"]] == ["trusted", "trusted", "failed"] * 2
    for each in called.data["suites"]:
        assert each["score"] is None
        parts = {part["name"]: part["score"] for part in each["tree"]["parts"]}
        assert parts["coqa"] is None and parts["piqa"] is not None and parts["exams"] is not None
    shown = sweep()
    assert shown.code == 3 and "a: missing: coqa: " in shown.out


def test_a_place_on_gpus_holds_for_the_scorer_too(tmp_path: Path, sweep: Sweep) -> None:
    write_all(tmp_path / "rows")
    called = sweep("--gpus", "0,1", "--json")
    assert called.code == 0, called.out
    places = {cell.where for cell in load_map(tmp_path / "out/sweeps/suites").cells.values()}
    assert places <= {"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"} and places


def test_a_suite_that_changed_is_scored_again(tmp_path: Path, sweep: Sweep) -> None:
    write_all(tmp_path / "rows")
    assert sweep().code == 0
    (tmp_path / "small.yaml").write_text(SUITE.replace("shots: 2", "shots: 3"))
    called = sweep("--json")
    assert called.code == 0
    names = [cell["benchmark"] for cell in called.data["cells"]]
    assert "small/piqa-validation@olmes-3shot" in names and "small/piqa-validation@olmes-2shot" not in names
    assert all(each["score"] is not None for each in called.data["suites"])


def test_a_preview_of_another_text_leaves_the_scores_of_the_finished_one(
    cli: Cli, tmp_path: Path, sweep: Sweep
) -> None:
    """The groups of a part in another order: the same questions, at other places of another file."""
    write_all(tmp_path / "rows")
    before = sweep("--json").data["suites"]
    (tmp_path / "small.yaml").write_text(SUITE.replace("virology, sociology", "sociology"))
    assert sweep("--dry-run").code == 0
    changed = cli("report", tmp_path / "out/sweeps/suites", "--json")
    assert changed.code == 3 and "no longer what it was" in " ".join(changed.data["problems"])
    (tmp_path / "small.yaml").write_text(SUITE)
    after = cli("report", tmp_path / "out/sweeps/suites", "--json")
    assert after.code == 0 and after.data["suites"] == before


@pytest.mark.parametrize("damage", ["gone", "short"])
def test_a_cell_whose_answers_are_lost_is_scored_again(tmp_path: Path, sweep: Sweep, damage: str) -> None:
    write_all(tmp_path / "rows")
    first = sweep("--json").data
    file = next((tmp_path / "out/runs").glob("*-a-piqa*/items.jsonl"))
    lines = file.read_text().splitlines(keepends=True)
    file.unlink()
    if damage == "short":
        file.write_text("".join(lines[:-1]))
    again = sweep("--json").data
    assert again["suites"] == first["suites"]
    runs = [[cell["run"] for cell in data["cells"]] for data in (first, again)]
    assert [one == other for one, other in zip(*runs, strict=True)].count(False) == 1


def test_a_group_without_questions_leaves_the_suite_without_a_score(tmp_path: Path, sweep: Sweep) -> None:
    """Every cell is trusted, and the suite is none the less not scored."""
    write_all(tmp_path / "rows")
    (tmp_path / "small.yaml").write_text(SUITE.replace("[virology, sociology]", "[virology, sociologyy]"))
    called = sweep("--json")
    assert called.code == 3 and called.data["trusted"] == len(called.data["cells"])
    assert "sociologyy" in " ".join(called.data["problems"])


def test_a_benchmark_beside_it_is_scored_by_llama_perplexity(tmp_path: Path, sweep: Sweep) -> None:
    write_all(tmp_path / "rows")
    called = sweep("--json", benchmarks=["piqa-validation@olmes"], models=["a.gguf"], baseline=None)
    assert called.code == 0, called.out
    assert called.data["cells"][0]["benchmark"] == "piqa-validation@olmes"
    records = [
        json.loads((tmp_path / "out/runs" / cell["run"] / "record.json").read_text()) for cell in called.data["cells"]
    ]
    assert [record["engine"]["flavour"] for record in records] == ["mainline", "libllama", "libllama", "libllama"]
