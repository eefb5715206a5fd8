"""Elo: worked values, closed forms, and what must hold for any items and any weights."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.judge.elo import PRIOR_RATING, PRIOR_WEIGHT, Elo, Game, balance, elo, expected

# Category weight, ratings of easy, medium and hard items, and how many there are of each: BananaMind Base Bench 1.1.
CATEGORIES = {
    "language": (1.00, (750, 850, 1000), (17, 17, 16)),
    "commonsense": (1.10, (800, 900, 1050), (17, 16, 17)),
    "world": (1.10, (800, 900, 1050), (16, 17, 17)),
    "context": (1.20, (850, 950, 1100), (17, 17, 16)),
    "quantitative": (1.30, (900, 1000, 1150), (17, 16, 17)),
    "logic": (1.35, (950, 1050, 1200), (16, 17, 17)),
    "code": (1.40, (950, 1050, 1200), (17, 17, 16)),
}
DIFFICULTY = (1.0, 1.5, 2.25)


def items(category: str) -> list[tuple[float, float, int]]:
    """(weight, rating, difficulty) of every item of a category."""
    weight, ratings, counts = CATEGORIES[category]
    return [(weight * DIFFICULTY[d], ratings[d], d) for d in range(3) for _ in range(counts[d])]


ALL = [item for category in CATEGORIES for item in items(category)]


def games(chosen: list[tuple[float, float, int]], right: set[int]) -> list[Game]:
    return [Game(weight, rating, difficulty in right) for weight, rating, difficulty in chosen]


def by_share(chosen: list[tuple[float, float, int]], share: float) -> Elo:
    """The rating of a model that wins this share of every item's weight: the rating depends on their sum alone."""
    halves = [(Game(w * share, e, True), Game(w * (1 - share), e, False)) for w, e, _ in chosen]
    return elo(game for pair in halves for game in pair if game.weight > 0)


@pytest.mark.parametrize(
    ("right", "rating", "share"),
    [
        ({0, 1, 2}, 2066.089857, 1.0),
        (set(), -39.403300, 0.0),
        ({0}, 763.674357, 0.211318),
        ({0, 1}, 1037.708071, 0.528407),
        ({2}, 993.670832, 0.471593),
    ],
)
def test_whole_benchmark_by_difficulty(right: set[int], rating: float, share: float) -> None:
    found = elo(games(ALL, right))
    assert found.rating == pytest.approx(rating, abs=1e-6)
    assert found.weighted_accuracy == pytest.approx(share, abs=1e-6)
    assert found.weight == pytest.approx(668.1875) and found.games == 350


@pytest.mark.parametrize(
    ("share", "rating", "digits"),
    [
        (0.5, 1015.695899, 6), (0.25, 804.680816, 6), (0.1, 603.22, 2), (0.2, 750.76, 2), (0.3, 852.38, 2),
        (0.4, 937.24, 2), (0.6, 1093.99, 2), (0.7, 1178.36, 2), (0.75, 1225.67, 2), (0.8, 1279.11, 2),
        (0.9, 1425.33, 2), (0.95, 1554.07, 2),
    ],
)  # fmt: skip
def test_whole_benchmark_by_weighted_accuracy(share: float, rating: float, digits: int) -> None:
    # A value with so many digits may be off by half of the last one.
    assert by_share(ALL, share).rating == pytest.approx(rating, abs=max(1e-6, 0.51 * 10**-digits))


@pytest.mark.parametrize(
    ("category", "values", "weight"),
    [
        ("language", (1569.7232, 231.7896, 902.9495, 708.6695), 78.5),
        ("commonsense", (1637.9158, 265.1546, 954.0382, 758.8601), 87.175),
        ("world", (1639.2039, 265.7613, 954.8711, 760.0719), 87.725),
        ("context", (1695.3647, 297.1753, 997.8190, 802.4349), 94.2),
        ("quantitative", (1763.0372, 332.8432, 1049.6793, 853.0513), 103.025),
        ("logic", (1819.8689, 374.6775, 1098.7799, 901.8388), 107.6625),
        ("code", (1819.4827, 366.6447, 1094.0903, 896.9410), 109.9),
    ],
)
def test_categories(category: str, values: tuple[float, ...], weight: float) -> None:
    chosen = items(category)
    found = [by_share(chosen, share) for share in (1, 0, 0.5, 0.25)]
    assert [each.rating for each in found] == pytest.approx(values, abs=0.51e-4)
    assert found[0].weight == pytest.approx(weight)


THREE = [(1.0, 750.0), (2.1, 1000.0), (3.15, 1200.0)]


@pytest.mark.parametrize(
    ("played", "rating"),
    [
        ([Game(1, 1000, True)], 1000 + 400 * math.log10(3 / 2)),
        ([Game(4, 1000, False)], 1000 + 400 * math.log10(2 / 6)),
        ([Game(w, e, e != 1200) for w, e in THREE], 1037.100794),
        ([Game(w, e, True) for w, e in THREE], 1310.870766),
        ([Game(w, e, False) for w, e in THREE], 763.493088),
        ([], 1000.0),
    ],
)
def test_few_items(played: list[Game], rating: float) -> None:
    assert elo(played).rating == pytest.approx(rating, abs=1e-6)


def test_standard_error_by_hand() -> None:
    # One item of the prior's rating, answered right: E = 3/5, spread 6/25, information (1 + 4) * 6/25.
    found = elo([Game(1, 1000, True)])
    spread = 6 / 25
    assert found.standard_error == pytest.approx(math.sqrt(spread) / (5 * spread) * 400 / math.log(10))
    assert elo([]).standard_error == 0


def test_standard_error_is_the_spread_of_ratings() -> None:
    """Answers drawn from a model's own expectations give ratings that spread by the standard error."""
    chance, truth = random.Random(7), 1050.0
    drawn = [elo(Game(w, e, chance.random() < expected(truth, e)) for w, e, _ in ALL) for _ in range(100)]
    errors = [each.standard_error for each in drawn]
    assert min(errors) > 20 and max(errors) < 23
    assert statistics.stdev(each.rating for each in drawn) == pytest.approx(statistics.mean(errors), rel=0.15)


def test_weights_are_not_normalised() -> None:
    once = elo([Game(1, 900, True), Game(1, 1100, True)])
    twice = elo([Game(2, 900, True), Game(2, 1100, True)])
    assert twice.rating > once.rating + 50


@pytest.mark.parametrize(
    ("played", "prior"),
    [
        ([Game(0, 1000, True)], 4),
        ([Game(-1, 1000, True)], 4),
        ([Game(math.nan, 1000, True)], 4),
        ([Game(math.inf, 1000, True)], 4),
        ([Game(1, math.nan, True)], 4),
        ([Game(1, math.inf, False)], 4),
        ([Game(1, 1000, True)], 0),
    ],
)
def test_what_has_no_rating(played: list[Game], prior: float) -> None:
    with pytest.raises(ValueError):
        elo(played, prior_weight=prior)


weights = st.floats(1e-6, 1e6)
ratings = st.floats(-5000, 5000)
some_games = st.lists(st.builds(Game, weights, ratings, st.booleans()), max_size=30)


@given(some_games)
def test_the_root_is_unique_and_found(played: list[Game]) -> None:
    found = elo(played).rating

    def f(rating: float) -> float:
        return balance(played, rating, PRIOR_RATING, PRIOR_WEIGHT)

    total = PRIOR_WEIGHT + sum(game.weight for game in played)
    # Where the curve is flat, rounding hides on which side of the root a point lies.
    rounding = total * 1e-13
    assert f(found - 1e-5) >= -rounding and f(found + 1e-5) <= rounding
    steps = [found + d for d in (-900, -300, -100, -10, 0, 10, 100, 300, 900)]
    values = [f(rating) for rating in steps]
    assert all(a >= b for a, b in itertools.pairwise(values))


@given(some_games.filter(bool), st.data())
def test_monotone_in_the_answers(played: list[Game], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(played) - 1))

    def with_answer(right: bool) -> float:
        return elo([replace(g, right=right) if i == place else g for i, g in enumerate(played)]).rating

    assert with_answer(True) >= with_answer(False) - 2e-9


@given(some_games, st.floats(-1000, 1000))
def test_shift_and_mirror(played: list[Game], shift: float) -> None:
    plain = elo(played).rating
    moved = elo([replace(g, rating=g.rating + shift) for g in played], prior_rating=PRIOR_RATING + shift)
    assert moved.rating == pytest.approx(plain + shift, abs=1e-5)
    mirrored = elo([Game(g.weight, 2000 - g.rating, not g.right) for g in played])
    assert mirrored.rating == pytest.approx(2000 - plain, abs=1e-5)


@given(some_games.filter(bool))
def test_only_the_weight_won_counts(played: list[Game]) -> None:
    """Any answers with the same sum of won weight give the same rating: here each is split between right and wrong."""
    found = elo(played)
    if 0 < found.weighted_accuracy < 1:
        parts = [
            Game(g.weight * share, g.rating, right)
            for g in played
            for right, share in ((True, found.weighted_accuracy), (False, 1 - found.weighted_accuracy))
            if g.weight * share > 0
        ]
        assert elo(parts).rating == pytest.approx(found.rating, abs=1e-3)
    assert math.isfinite(found.rating) and found.standard_error >= 0


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_expected_is_a_share(rating: float, item: float) -> None:
    assert 0 <= expected(rating, item) <= 1
    assert expected(rating, item) + expected(item, rating) == pytest.approx(1)
