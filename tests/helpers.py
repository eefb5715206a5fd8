"""What tests of whole commands share: calling llmc as the shell does, and small benchmarks written for them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmc import mcbin
from llmc.__main__ import run
from llmc.engine.known_answer import KnownAnswerModel


@dataclass(frozen=True)
class Called:
    """One call of llmc: exit code, both streams, and the JSON envelope when ``--json`` was among the words."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)["data"]

    @property
    def error(self) -> Any:
        return json.loads(self.out)["error"]

    @property
    def record(self) -> dict[str, Any]:
        (only,) = self.data["runs"]
        return only["record"]  # type: ignore[no-any-return]

    @property
    def slugs(self) -> list[str]:
        return [found["slug"] for found in self.record["findings"]]


class Cli:
    """Calls llmc in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture

    def __call__(self, *words: str | Path) -> Called:
        self.capture.readouterr()
        code = run([str(word) for word in words])
        out, err = self.capture.readouterr()
        return Called(code, out, err)


def letter_tasks(count: int, widths: Sequence[int] = (4,), golds: Sequence[int] | None = None) -> list[mcbin.Task]:
    """Questions with the options listed and letters to choose from; golds in turn unless given."""
    tasks = []
    for number in range(count):
        names = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: widths[number % len(widths)]]
        lines = "\n".join(f"{name}. answer {name.lower()}{number}" for name in names)
        gold = golds[number % len(golds)] if golds else number % len(names)
        tasks.append(mcbin.Task(f"Question: number {number}?\n{lines}\nAnswer:", tuple(names), gold % len(names)))
    return tasks


def text_tasks(count: int, seed: int = 1) -> list[mcbin.Task]:
    """Questions whose options are texts of unequal length, some sharing their first words."""
    chance = random.Random(seed)
    words = ["river", "sea", "old house", "7", "caf\u00e9", "blue", "the Big Tree", "ox", "\u6c34", "mm mm"]
    tasks = []
    for number in range(count):
        width = chance.randint(2, 6)
        start = "the " if number % 3 == 0 else ""
        chosen = [start + word + chance.choice([".", "!", "?"]) for word in chance.sample(words, width)]
        tasks.append(mcbin.Task(f"Question: what is {number}?\nAnswer:", tuple(chosen), chance.randrange(width)))
    return tasks


def expected_correct(model: KnownAnswerModel, tasks: Sequence[mcbin.Task]) -> str:
    """Right (1) or wrong (0) for every task, by the definition of llama.cpp's score."""
    return "".join("1" if model.choice(task.question, task.options) == task.gold else "0" for task in tasks)
