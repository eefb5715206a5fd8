"""Seeded paired bootstrap: questions, or clusters of them, drawn again with replacement.

B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap" (1993): the standard error is the standard deviation
of the replicates, the interval their percentiles. A question is drawn with both answers to it, so pairs stay pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

REPLICATES = 10_000
_CELLS = 4_000_000  # drawn numbers held at once


@dataclass(frozen=True)
class Bootstrap:
    """``se`` and the percentile interval of a mean difference; the same seed and numpy give the same figures."""

    se: float
    low: float
    high: float
    replicates: int
    seed: int
    over: str


def bootstrap(
    values: Sequence[int],
    *,
    clusters: Sequence[Hashable] | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
    confidence: float = 0.95,
) -> Bootstrap:
    """Resample paired differences (-1, 0 or 1) and return the spread of their mean.

    With ``clusters`` whole clusters are drawn. ValueError for fewer than 2 replicates or no values.
    """
    import numpy as np

    if replicates < 2 or not values:
        raise ValueError("a bootstrap takes 2 or more replicates of at least one value")
    generator = np.random.default_rng(seed)
    if clusters is not None:
        over, means = "clusters", _over_clusters(values, clusters, replicates, generator)
    else:
        over, means = "questions", _over_questions(values, replicates, generator)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Bootstrap(float(means.std(ddof=1)), float(low), float(high), replicates, seed, over)


def _over_questions(values: Sequence[int], replicates: int, generator: Any) -> Any:
    """Differences take three values only: how often each is drawn is multinomial."""
    n, counts = len(values), Counter(values)
    drawn = generator.multinomial(n, [counts[-1] / n, counts[0] / n, counts[1] / n], size=replicates)
    return (drawn[:, 2] - drawn[:, 0]) / n


def _over_clusters(values: Sequence[int], clusters: Sequence[Hashable], replicates: int, generator: Any) -> Any:
    import numpy as np

    totals: dict[Hashable, list[int]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        seen = totals.setdefault(cluster, [0, 0])
        seen[0] += value
        seen[1] += 1
    sums, sizes = np.array(list(totals.values()), dtype=np.int64).T
    means = np.empty(replicates)
    step = max(1, _CELLS // len(sums))
    for first in range(0, replicates, step):
        chosen = generator.integers(len(sums), size=(min(step, replicates - first), len(sums)))
        means[first : first + step] = sums[chosen].sum(axis=1) / sizes[chosen].sum(axis=1)
    return means
