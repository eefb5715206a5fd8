"""Is the candidate no worse than the baseline by more than a margin? Yes, no, or too few questions to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, isinf
from statistics import NormalDist
from typing import Literal

from llmc.judge.answers import Answers
from llmc.judge.pairing import groups_of, same_computation
from llmc.judge.stats import (
    Pairs,
    design_effect,
    differences,
    holm,
    score_interval,
    score_statistic,
    upper_tail,
)

Decision = Literal["pass", "fail", "inconclusive"]
MOST_QUESTIONS = 10_000_000  # more than any benchmark has: said as "no realistic number"


@dataclass(frozen=True)
class NonInferiority:
    """One test at ``margin`` (a share) and one-sided ``alpha``.

    ``statistic`` is Tango's score statistic (``stats.score_statistic``) against a true difference of -margin: far above
    0 speaks for a pass, far below for a fail. ``effect`` is the design effect of clusters, 1 without. ``p_pass`` and
    ``p_fail`` are the chances of as much or more when the truth lies at the margin; ``adjusted_*`` take the other tests
    of the gate into account, and ``level`` is what a p value of this test had to be below. ``identical`` is the very
    same computation with the same answers, of which nothing need be inferred.
    """

    baseline: Answers
    candidate: Answers
    margin: float
    alpha: float
    pairs: Pairs
    effect: float
    statistic: float
    adjusted_pass: float
    adjusted_fail: float
    level: float
    identical: bool

    @property
    def p_pass(self) -> float:
        return upper_tail(self.statistic)

    @property
    def p_fail(self) -> float:
        return upper_tail(-self.statistic)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The one-sided bounds at ``alpha`` of the true difference, each by itself."""
        lost, gained, n = (count / self.effect for count in (self.pairs.lost, self.pairs.gained, self.pairs.n))
        return score_interval(lost, gained, n, NormalDist().inv_cdf(1 - self.alpha))

    @property
    def decision(self) -> Decision:
        if self.identical or self.adjusted_pass < self.alpha:
            return "pass"
        return "fail" if self.adjusted_fail < self.alpha else "inconclusive"

    @property
    def questions_needed(self) -> int | None:
        """How many questions would decide, were difference and discordance to stay as observed; None: no number.

        The statistic grows with the square root of the number of questions, so n (z / statistic)^2 takes it to the z
        that decides.
        """
        if isinf(self.statistic):
            return self.pairs.n
        if abs(self.statistic) < 1e-9:
            return None
        needed = ceil(self.pairs.n * (NormalDist().inv_cdf(1 - self.level) / self.statistic) ** 2)
        return max(needed, self.pairs.n + 1) if needed <= MOST_QUESTIONS else None


def non_inferiority(a: Answers, b: Answers, margin: float, alpha: float, *, by_cluster: bool = False) -> NonInferiority:
    """Test one candidate against its baseline; the two must be pairable."""
    counts = Pairs.of(a.correct, b.correct)
    effect = 1.0
    groups = groups_of(a, b)
    if by_cluster and groups:
        effect = design_effect(differences(a.correct, b.correct), groups)
    statistic = score_statistic(counts.lost / effect, counts.gained / effect, counts.n / effect, -margin)
    return NonInferiority(
        baseline=a,
        candidate=b,
        margin=margin,
        alpha=alpha,
        pairs=counts,
        effect=effect,
        statistic=statistic,
        adjusted_pass=upper_tail(statistic),
        adjusted_fail=upper_tail(-statistic),
        level=alpha,
        identical=same_computation(a, b),
    )


def adjust(tests: Sequence[NonInferiority]) -> list[NonInferiority]:
    """Return the tests with their p values adjusted by Holm: one family of passes, one of fails.

    So the chance of even one wrong pass is at most alpha, and that of even one wrong fail likewise.
    """
    open_ = [i for i, test in enumerate(tests) if not test.identical]
    passes = dict(zip(open_, holm([tests[i].p_pass for i in open_]), strict=True))
    fails = dict(zip(open_, holm([tests[i].p_fail for i in open_]), strict=True))
    adjusted = list(tests)
    for i in open_:
        test = tests[i]
        same_side = passes if test.statistic >= 0 else fails
        left = sum(p >= test.alpha for p in same_side.values())
        adjusted[i] = replace(test, adjusted_pass=passes[i], adjusted_fail=fails[i], level=test.alpha / max(1, left))
    return adjusted
