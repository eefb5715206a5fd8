"""What a sweep's suites score, read from its runs: whole, with one cell damaged, and when the suite has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers import Cli
from llmc.files import write_json
from llmc.report.sweep_view import view_sweep
from llmc.runs.store import finish
from llmc.runs.suite_tree import find
from llmc.runs.sweep_suites import PartKey, places_file, write_places
from llmc.scoring.results import ScoredItem, ScoredOption
from made_runs import record

SUITE = """
name: small
aggregate: mean
splits: [validation]
parts:
  - {name: one, benchmark: piqa}
  - {name: two, benchmark: coqa}
"""
CORRECT = {"a": ("1101", "10"), "b": ("1000", "11")}


def items(correct: str) -> str:
    """Answers of a model that holds the first of two options to be likelier: gold where it is right."""
    options = tuple(ScoredOption(score, 2, 4, 4, 3, 3) for score in (-1.0, -2.0))
    made = (ScoredItem(i, str(i), 0 if mark == "1" else 1, i, options) for i, mark in enumerate(correct))
    return "".join(item.to_json() + "\n" for item in made)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A finished sweep of two models on a suite of two files, ``b`` compared with ``a``."""
    path = tmp_path / "small.yaml"
    path.write_text(SUITE)
    definition = find(str(path)).definition
    folder = tmp_path / "out/sweeps/s"
    cells: dict[str, Any] = {}
    for model, each in CORRECT.items():
        for number, correct in enumerate(each):
            sha, run = f"{number}" * 64, f"20260102T030405Z-{model}-p{number}-0000000000"
            target = tmp_path / "out/runs" / run
            target.mkdir(parents=True)
            (target / "items.jsonl").write_text(items(correct))
            must = {"benchmark_sha256": sha, "scorer": "logprobs", "rule": "acc_raw"}
            changes: dict[str, Any] = {"scorer": "logprobs", "items_file": "items.jsonl"}
            finish(target, record(correct, model=model, bench=f"p{number}", must=must, **changes))
            name = f"{model}/small/p{number}"
            cells[name] = {
                "model": model, "benchmark": f"small/p{number}", "definition": "d", "status": "trusted", "run": run,
                "suite": str(path), "suite_part": number, "suite_definition": definition,
                "baseline": None if model == "a" else f"a/small/p{number}",
            }  # fmt: skip
            key = PartKey(f"{path}#{number}", definition, sha)
            write_places(folder, key, {("one", "two")[number]: range(len(correct))}, {})
    head = {"schema": "llmc.sweep/1", "name": "s", "updated": "2026-01-02T03:05:05Z", "config": {"name": "s"}}
    write_json(folder / "cells.json", {**head, "cells": cells})
    return folder


def report(cli: Cli, sweep: Path) -> tuple[int, dict[str, Any], str, str]:
    """The exit code, cells.json, and the two pages."""
    called = cli("report", sweep)
    assert "internal error" not in called.err, called.err
    folder = sweep / "report"
    data = json.loads((folder / "cells.json").read_text())
    return called.code, data, (folder / "report.md").read_text(), (folder / "index.html").read_text()


def scores(data: dict[str, Any]) -> dict[str, float | None]:
    return {each["label"]: each["score"] for each in data["suites"]}


def test_a_whole_suite_has_its_score(cli: Cli, sweep: Path) -> None:
    code, data, markdown, page = report(cli, sweep)
    assert code == 0 and data["problems"] == [] and "Without a verdict" not in markdown + page
    assert scores(data) == {"a": (0.75 + 0.5) / 2, "b": (0.25 + 1.0) / 2}


def test_a_suite_without_a_score_is_exit_3_and_stands_first(cli: Cli, sweep: Path) -> None:
    """All cells are trusted, and a task of the suite has no questions in them."""
    path = sweep.parents[2] / "small.yaml"
    path.write_text(SUITE.replace("{name: two, benchmark: coqa}", "{name: two, benchmark: coqa, metric: acc_uncond}"))
    text = (sweep / "cells.json").read_text()
    definition = find(str(path)).definition
    cells = json.loads(text)
    for number in (0, 1):
        places = {("one", "two")[number]: range(len(CORRECT["a"][number]))}
        write_places(sweep, PartKey(f"{path}#{number}", definition, f"{number}" * 64), places, {})
    for cell in cells["cells"].values():
        cell["suite_definition"] = definition
    write_json(sweep / "cells.json", cells)
    code, data, markdown, page = report(cli, sweep)
    assert code == 3 and data["trusted"] == 4 and scores(data) == {"a": None, "b": None}
    for shown in (markdown.replace("\\", ""), page):
        assert shown.index("its run has no acc_uncond") < shown.index("75.00 %")
    assert "untrusted</span>" in page.split("</header>")[0]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("gone", "cannot read"),
        ("short", "does not hold the run's items"),
        ("garbage", "line 2"),
        ("nested", "line 2"),
        ("folder", "cannot read"),
    ],
)
def test_damage_to_one_cells_answers_hides_no_other(cli: Cli, sweep: Path, damage: str, said: str) -> None:
    file = next((sweep.parents[1] / "runs").glob("*-b-p0-*/items.jsonl"))
    lines = file.read_text().splitlines(keepends=True)
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage != "gone":
        second = {"short": "", "garbage": '{"index": "x"}\n', "nested": "[" * 100_000 + "\n"}[damage]
        file.write_text("".join([lines[0], second, *lines[2:]]))
    code, data, markdown, _ = report(cli, sweep)
    assert code == 3 and data["trusted"] == 4
    assert scores(data) == {"a": 0.625, "b": None} and said in " ".join(data["problems"])
    # The answers of the record are whole: they are compared all the same.
    assert all(cell["difference"] is not None for cell in data["cells"] if cell["model"] == "b")
    assert "62.50" in markdown


@pytest.mark.parametrize("change", ["metric", "parts", "gone", "damaged"])
def test_a_suite_that_has_changed_has_no_score_and_says_so(cli: Cli, sweep: Path, change: str) -> None:
    path = sweep.parents[2] / "small.yaml"
    if change == "gone":
        path.unlink()
    else:
        other = {
            "metric": SUITE.replace("aggregate: mean", "aggregate: micro"),
            "parts": SUITE.replace("coqa", "boolq"),
            "damaged": "parts: [",
        }
        path.write_text(other[change])
    code, data, markdown, _ = report(cli, sweep)
    assert code == 3 and scores(data) == {"a": None, "b": None}
    wanted = {"gone": "cannot read the suite", "damaged": "not valid YAML"}.get(change, "no longer what it was")
    assert wanted in " ".join(data["problems"]) and "small/p0" in markdown.replace("\\", "")
    path.write_text(SUITE)
    assert report(cli, sweep)[0] == 0


def test_questions_of_another_file_are_not_taken_for_the_runs(cli: Cli, sweep: Path) -> None:
    """What a preview of another text of the suite, or of other questions, notes down changes no finished score."""
    path = sweep.parents[2] / "small.yaml"
    before = scores(report(cli, sweep)[1])
    definition = find(str(path)).definition
    write_places(sweep, PartKey(f"{path}#0", "other", "0" * 64), {"one": (0,)}, {})
    write_places(sweep, PartKey(f"{path}#0", definition, "f" * 64), {"one": (0,)}, {})
    code, data, _, _ = report(cli, sweep)
    assert code == 0 and scores(data) == before
    right = places_file(sweep, PartKey(f"{path}#0", definition, "0" * 64))
    shutil.copyfile(places_file(sweep, PartKey(f"{path}#0", "other", "0" * 64)), right)
    code, data, _, _ = report(cli, sweep)
    assert code == 3 and "it is of other questions" in " ".join(data["problems"])
    right.unlink()
    code, data, _, _ = report(cli, sweep)
    assert code == 3 and "run `llmc sweep` again" in " ".join(data["problems"])


def test_a_shard_shows_suites_from_the_runs_of_all(sweep: Path) -> None:
    view = view_sweep(sweep, only=["a/small/p0"])
    assert [(each.label, each.judged.score) for each in view.suites] == [("a", 0.625)]
    assert len(view.rows) == 1 and view.exit_code == 0


def test_a_shard_is_not_blamed_for_what_others_have_still_to_run(sweep: Path) -> None:
    body = json.loads((sweep / "cells.json").read_text())
    body["cells"]["a/small/p1"] |= {"status": "pending", "run": None}
    write_json(sweep / "cells.json", body)
    assert view_sweep(sweep, only=["a/small/p0"]).exit_code == 0
    assert view_sweep(sweep).exit_code == 3
