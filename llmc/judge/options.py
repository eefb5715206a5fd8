"""Two runs with per-option log-probabilities: what changed below the level of right and wrong.

The distribution over a question's options is the softmax of their summed log-probabilities: what the model holds each
continuation to be worth, given that it is one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import fsum, log
from pathlib import Path
from typing import TYPE_CHECKING

from llmc.errors import InputFileError
from llmc.judge.answers import Answers
from llmc.judge.stats import Estimate, clustered, mean_estimate, quantile
from llmc.runs.kept import read_items_jsonl
from llmc.stats import Z95

if TYPE_CHECKING:
    from llmc.scoring.results import ScoredItem

DEFAULT_RULE = "acc_raw"
_REMEDY = "score the run again; items.jsonl is not meant to be edited"


@dataclass(frozen=True)
class OptionChanges:
    """``kl_*`` in nats, from the baseline's distribution to the candidate's; ``gold`` is the mean change of the right
    option's probability. Answers are those of ``rule``; ``other_wrong`` changed from one wrong option to another.
    """

    rule: str
    changed: int
    lost: int
    gained: int
    other_wrong: int
    same_top: float
    kl: Estimate
    kl_median: float
    kl_99: float
    kl_max: float
    gold: Estimate


def option_changes(
    a: Answers, b: Answers, clusters: Sequence[str | None] | None = None, z: float = Z95
) -> OptionChanges:
    """Compare the option figures of two pairable runs, reading both files side by side.

    KL divergence is sum P ln(P/Q) with P the baseline, the mean over questions with median, 99 % quantile and largest;
    S. Kullback, R. A. Leibler, Ann. Math. Stat. 22 (1951). Its standard error takes questions as independent, or the
    clusters when they are given. Answer flips, wrong to other wrong included: Dutta et al. (2024), arXiv:2407.09141.
    Raises InputFileError when a file does not hold the answers of its record.
    """
    from llmc.scoring.metrics import RULES, choose

    assert a.items is not None and b.items is not None
    rule = str(a.must.get("rule"))
    rule = rule if rule in RULES else DEFAULT_RULE
    divergences, golds = [], []
    lost = gained = other_wrong = same_top = 0
    for place, (one, other) in enumerate(_side_by_side(a.items, b.items)):
        first, second = choose(one, rule), choose(other, rule)
        p, q = choose(one, DEFAULT_RULE), choose(other, DEFAULT_RULE)
        if first is None or second is None or p is None or q is None:
            raise InputFileError(f"item {one.id} of {a.items} or {b.items} lacks what the rule {rule} takes", _REMEDY)
        for side, choice in ((a, first), (b, second)):
            _check_answer(side, place, choice.correct, strict=rule == str(a.must.get("rule")))
        divergences.append(_divergence(p.probabilities, q.probabilities, p.scores, q.scores))
        golds.append(q.probabilities[one.gold] - p.probabilities[one.gold])
        same_top += p.chosen == q.chosen
        lost += first.correct and not second.correct
        gained += second.correct and not first.correct
        other_wrong += not first.correct and not second.correct and first.chosen != second.chosen
    for side in (a, b):
        if len(golds) != side.n:
            raise InputFileError(f"{side.items} holds {len(golds)} items, its record {side.n} answers", _REMEDY)

    def mean(values: list[float]) -> Estimate:
        return mean_estimate(values, z) if clusters is None else clustered(values, clusters, z)

    return OptionChanges(
        rule=rule,
        changed=lost + gained + other_wrong,
        lost=lost,
        gained=gained,
        other_wrong=other_wrong,
        same_top=same_top / len(golds),
        kl=mean(divergences),
        kl_median=quantile(divergences, 0.5),
        kl_99=quantile(divergences, 0.99),
        kl_max=max(divergences),
        gold=mean(golds),
    )


def _divergence(p: Sequence[float], q: Sequence[float], scores_p: Sequence[float], scores_q: Sequence[float]) -> float:
    """Return sum p ln(p/q); the logarithms come from the scores, since probabilities may underflow to 0."""
    top = max(range(len(p)), key=lambda i: scores_p[i])
    shift = (log(p[top]) - scores_p[top]) - _log_share(scores_q)
    return max(0.0, fsum(x * (u - v + shift) for x, u, v in zip(p, scores_p, scores_q, strict=True)))


def _log_share(scores: Sequence[float]) -> float:
    """Return ln q - score, the same for every option: minus the log of the sum of all exp(score)."""
    from llmc.scoring.metrics import normalized

    top = max(range(len(scores)), key=lambda i: scores[i])
    return log(normalized(scores)[top]) - scores[top]


def _check_answer(side: Answers, place: int, correct: bool, *, strict: bool) -> None:
    """Figures that lead to other answers than the record's are those of another run."""
    if place < side.n and strict and (side.correct[place] == "1") != correct:
        raise InputFileError(
            f"{side.items}: by its figures question {side.task_index(place)} is "
            f"{'right' if correct else 'wrong'}, by its record it is not",
            _REMEDY,
        )


def _side_by_side(a: Path, b: Path) -> Iterator[tuple[ScoredItem, ScoredItem]]:
    for one, other in zip_longest(read_items_jsonl(a), read_items_jsonl(b)):
        if one is None or other is None:
            raise InputFileError(f"{a} and {b} do not hold the same number of items", _REMEDY)
        if (one.index, one.id, one.gold, len(one.options)) != (other.index, other.id, other.gold, len(other.options)):
            raise InputFileError(f"{a} and {b} part ways at item {one.id!r} ({other.id!r})", _REMEDY)
        yield one, other
