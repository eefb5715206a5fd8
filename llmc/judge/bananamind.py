"""What answers to BananaMind Base Bench amount to: Elo, raw and weighted accuracy, over all and by category. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmc.benchmarks.bananamind import Example
from llmc.judge.elo import Elo, Game, elo
from llmc.scoring.metrics import choose
from llmc.scoring.results import ScoredItem

RULE = "acc_per_token"  # the mean log-probability of a continuation's tokens; the first of equals


@dataclass(frozen=True)
class Answer:
    """An example with what the model chose: the position, and every continuation's mean log-probability in nats."""

    example: Example
    item: ScoredItem
    prediction: int
    means: tuple[float, ...]

    @property
    def correct(self) -> bool:
        return self.prediction == self.example.label


@dataclass(frozen=True)
class Rated:
    """Some examples together; accuracies from 0 to 1, the weighted one by category and difficulty weight."""

    elo: Elo
    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.total


@dataclass(frozen=True)
class Figures:
    """``categories`` and ``difficulties`` by name, in the order in which they come in the file."""

    overall: Rated
    categories: dict[str, Rated]
    difficulties: dict[str, Rated]


def answer(example: Example, item: ScoredItem) -> Answer:
    """Return what a scored item says; ValueError when it is not that of the example."""
    choice = choose(item, RULE)
    if choice is None or item.id != example.id or len(item.options) != len(example.continuations):
        raise ValueError(f"{item.id} is not what came of {example.id}")
    return Answer(example, item, choice.chosen, choice.scores)


def figures(answers: Sequence[Answer]) -> Figures:
    """Return the figures of one or more answers; each part's Elo has the same four-game prior as the whole's."""
    return Figures(
        _rated(answers),
        _by(answers, lambda one: one.example.category),
        _by(answers, lambda one: one.example.difficulty),
    )


def _by(answers: Sequence[Answer], name: Callable[[Answer], str]) -> dict[str, Rated]:
    parts: dict[str, list[Answer]] = {}
    for one in answers:
        parts.setdefault(name(one), []).append(one)
    return {part: _rated(own) for part, own in parts.items()}


def _rated(answers: Sequence[Answer]) -> Rated:
    games = [Game(one.example.weight, one.example.item_elo, one.correct) for one in answers]
    return Rated(elo(games), sum(one.correct for one in answers), len(answers))
