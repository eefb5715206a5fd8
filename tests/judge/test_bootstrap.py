from __future__ import annotations

import random

import numpy as np
import pytest

from llmc.judge.bootstrap import bootstrap
from llmc.judge.stats import clustered, paired_difference

VALUES = [-1] * 30 + [1] * 18 + [0] * 352


def test_its_error_is_the_formulas() -> None:
    found = bootstrap(VALUES)
    exact = paired_difference(30, 18, 400)
    assert exact.se is not None and exact.low is not None and exact.high is not None
    assert found.se == pytest.approx(exact.se, rel=0.03)
    assert found.low == pytest.approx(exact.low, abs=0.004) and found.high == pytest.approx(exact.high, abs=0.004)
    assert (found.replicates, found.over) == (10_000, "questions")


def test_clusters_are_drawn_whole() -> None:
    chance = random.Random(5)
    clusters = [i // 8 for i in range(400)]
    lean = [chance.choice((-1, 0, 0, 1)) for _ in range(50)]
    values = [lean[c] if chance.random() < 0.8 else 0 for c in clusters]
    found, apart = bootstrap(values, clusters=clusters), bootstrap(values)
    exact = clustered(values, clusters).se
    assert exact is not None
    assert found.se == pytest.approx(exact, rel=0.05) and found.se > 1.5 * apart.se
    assert found.over == "clusters"


def test_clusters_of_unequal_size_keep_their_weight() -> None:
    values, clusters = [1] * 90 + [-1] * 10, ["big"] * 90 + list("abcdefghij")
    found = bootstrap(values, clusters=clusters, replicates=4000)
    assert -1 <= found.low < 0.8 < found.high <= 1


def test_equal_seeds_give_equal_figures() -> None:
    assert bootstrap(VALUES, seed=3) == bootstrap(VALUES, seed=3) != bootstrap(VALUES, seed=4)
    shuffled = list(np.random.default_rng(1).permutation(VALUES).tolist())
    assert bootstrap(shuffled, seed=3) == bootstrap(VALUES, seed=3)


@pytest.mark.parametrize(("values", "replicates"), [([], 100), ([1, 0], 1), ([1], 0)])
def test_nothing_to_draw(values: list[int], replicates: int) -> None:
    with pytest.raises(ValueError, match="replicates"):
        bootstrap(values, replicates=replicates)


def test_no_difference_has_no_spread() -> None:
    found = bootstrap([0] * 50, replicates=200)
    assert (found.se, found.low, found.high) == (0, 0, 0)
