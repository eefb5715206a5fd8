"""Seeded paired bootstrap: questions, or clusters of them, drawn again with replacement.

B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap" (1993): the standard error is the standard deviation
of the replicates, the interval their percentiles. A question is drawn with both answers to it, so pairs stay pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

REPLICATES = 10_000


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
    totals: dict[Hashable, list[int]] = {}
    for value, cluster in zip(values, range(len(values)) if clusters is None else clusters, strict=True):
        seen = totals.setdefault(cluster, [0, 0])
        seen[0] += value
        seen[1] += 1
    # Clusters of equal sum and size are interchangeable: how often each kind is drawn is multinomial.
    kinds = sorted(Counter((total, size) for total, size in totals.values()).items())
    sums, sizes = np.array([kind for kind, _ in kinds], dtype=np.int64).T
    shares = np.array([count for _, count in kinds]) / len(totals)
    drawn = np.random.default_rng(seed).multinomial(len(totals), shares, size=replicates)
    means = (drawn @ sums) / (drawn @ sizes)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    over = "questions" if clusters is None else "clusters"
    return Bootstrap(float(means.std(ddof=1)), float(low), float(high), replicates, seed, over)
