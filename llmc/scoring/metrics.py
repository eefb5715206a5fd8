"""Every score the field uses, from the figures of each option: pure arithmetic.

A rule gives every option a score; the option with the highest one is chosen, the first where several are equal.

====================  ============================================================================================
``acc_raw``           sum of log-probabilities (lm-eval's ``acc``)
``acc_per_token``     sum / tokens (BananaMind's rule too)
``acc_per_char``      sum / characters, the leading space counted (olmes)
``acc_per_byte``      bits per byte, the leading space counted; the lowest is chosen (olmes)
``acc_uncond``        sum - sum without the question (olmes; lm-eval's acc_mutual_info where that context is empty)
``acc_norm``          sum / characters without the leading space (lm-eval)
``acc_bytes``         sum / bytes without the leading space (lm-eval)
``llama_cpp``         mean past the common prefix of all options (llama-perplexity)
====================  ============================================================================================

Gold values, with ``s`` the sum of the gold option: ``sum_logits_corr`` s, ``logits_per_token_corr`` s / tokens,
``logits_per_char_corr`` s / characters, ``bits_per_byte_corr`` -1.44269504089 s / bytes. A task's score is the plain
mean over its items. Sources: olmes (metrics/metric.py), lm-evaluation-harness (api/task.py), llama.cpp
(perplexity.cpp). Counts of 0 are taken as 1, as olmes does.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from llmc.scoring.results import ScoredItem, ScoredOption

LOG_2_OF_E = 1.44269504089  # to the digits of olmes, so that its figures are met exactly


def bits_per_byte(option: ScoredOption) -> float:
    return -LOG_2_OF_E * (option.sum_logprob / max(option.bytes, 1))


def _per_token(option: ScoredOption) -> float:
    return option.sum_logprob / max(option.tokens, 1)


def _per_char(option: ScoredOption) -> float:
    return option.sum_logprob / max(option.chars, 1)


def _uncond(option: ScoredOption) -> float | None:
    return None if option.uncond_sum_logprob is None else option.sum_logprob - option.uncond_sum_logprob


RULES: dict[str, Callable[[ScoredOption], float | None]] = {
    "acc_raw": lambda option: option.sum_logprob,
    "acc_per_token": _per_token,
    "acc_per_char": _per_char,
    "acc_per_byte": lambda option: -bits_per_byte(option),
    "acc_uncond": _uncond,
    "acc_norm": lambda option: option.sum_logprob / max(option.chars_bare, 1),
    "acc_bytes": lambda option: option.sum_logprob / max(option.bytes_bare, 1),
    "llama_cpp": lambda option: option.llama_mean,
}
GOLD_VALUES: dict[str, Callable[[ScoredOption], float]] = {
    "sum_logits_corr": lambda option: option.sum_logprob,
    "logits_per_token_corr": _per_token,
    "logits_per_char_corr": _per_char,
    "bits_per_byte_corr": bits_per_byte,
}


@dataclass(frozen=True)
class Choice:
    """What a rule makes of an item.

    ``margin`` is the highest score less the second highest, in the rule's own unit (nats, nats per token, bits per
    byte, ...). ``probabilities`` are the softmax of the sums of log-probabilities under ``acc_raw``, and likewise of
    each rule's own scores: they add up to 1 over the options.
    """

    chosen: int
    correct: bool
    margin: float
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]


def scores(item: ScoredItem, rule: str) -> tuple[float, ...] | None:
    """Return every option's score under a rule, higher is better; None where the item lacks what it takes."""
    found = [RULES[rule](option) for option in item.options]
    known = [score for score in found if score is not None]
    return tuple(known) if len(known) == len(found) else None


def choose(item: ScoredItem, rule: str) -> Choice | None:
    """Return the choice of a rule; None where the item lacks what it takes."""
    found = scores(item, rule)
    if found is None:
        return None
    chosen = found.index(max(found))
    return Choice(chosen, chosen == item.gold, _margin(found, chosen), found, normalized(found))


def choices(item: ScoredItem) -> dict[str, Choice]:
    """Return the choice of every rule that applies to the item."""
    found = {rule: choose(item, rule) for rule in RULES}
    return {rule: choice for rule, choice in found.items() if choice is not None}


def gold_values(item: ScoredItem) -> dict[str, float]:
    """Return the gold option's values."""
    option = item.options[item.gold]
    return {name: value(option) for name, value in GOLD_VALUES.items()}


def normalized(log_weights: Sequence[float]) -> tuple[float, ...]:
    """Return exp(x) over their sum."""
    top = max(log_weights)
    weights = [math.exp(x - top) for x in log_weights]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def _margin(found: Sequence[float], chosen: int) -> float:
    others = [score for i, score in enumerate(found) if i != chosen]
    return found[chosen] - max(others) if others else math.inf


@dataclass
class Tally:
    """Adds up items one by one; ``means`` are the scores of the task so far.

    A rule counts only when it applies to every item: a mean over some of them would be no score of the task.
    """

    items: int = 0
    _right: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)
    _values: dict[str, array[float]] = field(default_factory=dict)

    def add(self, item: ScoredItem) -> None:
        self.items += 1
        for rule in RULES:
            found = scores(item, rule)
            if found is not None:
                self._seen[rule] = self._seen.get(rule, 0) + 1
                self._right[rule] = self._right.get(rule, 0) + (found.index(max(found)) == item.gold)
        for name, value in gold_values(item).items():
            self._values.setdefault(name, array("d")).append(value)

    def means(self) -> dict[str, float]:
        """Return accuracies (0 to 1) and the means of the gold values; empty when there are no items."""
        whole = (rule for rule in RULES if self.items and self._seen.get(rule) == self.items)
        accuracies = {rule: self._right[rule] / self.items for rule in whole}
        return accuracies | {name: math.fsum(values) / self.items for name, values in self._values.items()}


def metrics(items: Iterable[ScoredItem]) -> dict[str, float]:
    """Return every score of a task from its items; see ``Tally``."""
    tally = Tally()
    for item in items:
        tally.add(item)
    return tally.means()
