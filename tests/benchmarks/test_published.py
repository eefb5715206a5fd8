"""Real rows against published figures, each task derived again from the row by another road than the renderer's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmc import mcbin
from llmc.benchmarks.build import ensure_built

pytestmark = pytest.mark.usefixtures("own_cache")


def expected_task(name: str, row: dict[str, Any]) -> mcbin.Task:
    if name == "boolq":
        question = row["passage"] + '\nQuestion: "' + row["question"] + '?" Answer:'
        return mcbin.Task(question, ("no", "yes"), 1 if row["answer"] else 0)
    texts, gold = row["choices"]["text"], row["choices"]["label"].index(row["answerKey"])
    if name == "arc-easy":
        return mcbin.Task("Question: " + row["question"] + "\nAnswer:", tuple(texts), gold)
    lines = [letter + ". " + text for letter, text in zip("ABCDE", texts, strict=True)]
    return mcbin.Task("\n".join(["Question: " + row["question"], *lines, "Answer:"]), tuple("ABCDE"), gold)


@pytest.mark.parametrize(
    ("target", "file", "tasks", "majority"),
    [
        ("commonsense-qa-validation", "commonsense_qa/validation.jsonl", 1221, 20.88),
        ("boolq-validation", "boolq/validation.jsonl", 3270, 62.17),
        ("arc-easy-validation", "ai2_arc/ARC-Easy_validation.jsonl", 570, 27.72),
        ("arc-easy-test", "ai2_arc/ARC-Easy_test.jsonl", 2376, 26.64),
    ],
)
def test_every_task_of_the_real_splits(
    shared: Path, tmp_path: Path, target: str, file: str, tasks: int, majority: float
) -> None:
    entry = ensure_built(target, tmp_path, source=shared / "data")
    assert entry.tasks == tasks
    assert round(100 * entry.majority.share, 2) == majority
    assert [warned for warned in entry.warnings if warned.kind == "not-as-published"] == []
    rows = [json.loads(line) for line in (shared / "data" / file).read_text(encoding="utf-8").splitlines()]
    assert mcbin.read(entry.bin_path(tmp_path)) == [expected_task(entry.benchmark or "", row) for row in rows]


def test_known_defects_of_commonsense_qa_are_named(shared: Path, tmp_path: Path) -> None:
    entry = ensure_built("commonsense-qa", tmp_path, source=shared / "data")
    counts = {warned.kind: warned.count for warned in entry.warnings}
    assert counts == {"duplicate-options": 24, "gold-behind-twin": 2}
