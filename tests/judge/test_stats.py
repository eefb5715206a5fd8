"""Every formula against published or re-computed figures, an independent implementation, and its own symmetries."""

from __future__ import annotations

import random
from math import comb, inf, isclose, nan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels import api
from statsmodels.stats import contingency_tables as tables
from statsmodels.stats import multitest

from llmc.judge.stats import (
    Pairs,
    clustered,
    design_effect,
    detectable,
    differences,
    estimate,
    holm,
    mcnemar,
    mean_estimate,
    paired_difference,
    quantile,
    score_interval,
    score_statistic,
    stratified,
    unpaired_se,
    upper_tail,
    z_of,
)
from llmc.stats import Z95

counts = st.integers(0, 300)


@pytest.mark.parametrize(
    ("lost", "gained", "exact", "mid_p", "asymptotic", "corrected"),
    [
        (300, 220, 0.000519416, 0.000446015, 0.000451095, 0.000531457),
        (25, 15, 0.15386, 0.117275, 0.113846, 0.154729),
        (6, 1, 0.125, 0.0703125, None, None),
        (5, 5, 1.0, 0.876953, None, None),
        (0, 0, 1.0, 1.0, 1.0, 1.0),
    ],
)
def test_mcnemar_vectors(
    lost: int, gained: int, exact: float, mid_p: float, asymptotic: float | None, corrected: float | None
) -> None:
    found = mcnemar(lost, gained)
    assert found.exact == pytest.approx(exact, abs=1e-6)
    assert found.mid_p == pytest.approx(mid_p, abs=1e-6)
    if asymptotic is not None:
        assert found.asymptotic == pytest.approx(asymptotic, abs=1e-6)
        assert found.corrected == pytest.approx(corrected, abs=1e-6)


@pytest.mark.parametrize(("lost", "gained"), [(3, 9), (300, 220), (640, 700), (2000, 2100), (5000, 4000), (0, 1200)])
def test_mcnemar_as_statsmodels_and_scipy_have_it(lost: int, gained: int) -> None:
    found = mcnemar(lost, gained)
    table = [[7, lost], [gained, 11]]
    assert found.exact == pytest.approx(tables.mcnemar(table, exact=True).pvalue, abs=1e-9, rel=1e-7)
    assert found.asymptotic == pytest.approx(tables.mcnemar(table, exact=False, correction=False).pvalue, rel=1e-9)
    assert found.corrected == pytest.approx(tables.mcnemar(table, exact=False, correction=True).pvalue, rel=1e-9)
    m, k = lost + gained, min(lost, gained)
    assert found.mid_p == pytest.approx(2 * stats.binom.cdf(k, m, 0.5) - stats.binom.pmf(k, m, 0.5), rel=1e-7)


@given(st.integers(0, 2500), st.integers(0, 2500))
@settings(max_examples=60)
def test_mcnemar_is_the_same_both_ways_and_a_probability(lost: int, gained: int) -> None:
    found = mcnemar(lost, gained)
    assert found == mcnemar(gained, lost)
    for p in (found.exact, found.mid_p, found.asymptotic, found.corrected):
        assert 0 <= p <= 1
    assert found.mid_p <= found.exact + 1e-12


def test_both_ways_of_summing_a_tail_meet() -> None:
    m, k = 1001, 470  # just past the length up to which whole numbers are used
    exact = sum(comb(m, i) for i in range(k + 1)) * 2 / 2**m
    assert mcnemar(k, m - k).exact == pytest.approx(exact, rel=1e-10)
    assert mcnemar(500, 501).exact == pytest.approx(1.0, abs=1e-9)


def test_a_paired_difference() -> None:
    found = paired_difference(300, 220, 10_000)
    assert found.mean == -0.008
    assert found.se == pytest.approx(0.00227906, abs=1e-8)
    assert (found.low, found.high) == (pytest.approx(-0.01247, abs=5e-6), pytest.approx(-0.00353, abs=5e-6))
    assert unpaired_se(0.9, 0.9, 10_000) == pytest.approx(0.00424, abs=5e-6)


@given(st.text("01", min_size=2, max_size=200), st.randoms(use_true_random=False))
def test_the_difference_is_the_mean_of_the_differences(a: str, chance: random.Random) -> None:
    b = "".join(mark if chance.random() < 0.7 else chance.choice("01") for mark in a)
    pairs, values = Pairs.of(a, b), differences(a, b)
    found, plain = paired_difference(pairs.lost, pairs.gained, pairs.n), mean_estimate(values)
    assert pairs.n == len(a) and pairs.both == sum(x == y == "1" for x, y in zip(a, b, strict=True))
    assert found.mean == pytest.approx(plain.mean, abs=1e-12) == pytest.approx(np.mean(values), abs=1e-12)
    assert found.se == pytest.approx(plain.se, abs=1e-9)
    assert plain.se == pytest.approx(np.std(values, ddof=1) / sqrt(len(values)), abs=1e-9)
    # Every question its own cluster, or a single stratum, is no grouping at all.
    assert clustered(values, range(len(values))).se == pytest.approx(plain.se, abs=1e-9)
    assert stratified([(found.mean, found.se)]).se == pytest.approx(found.se)


@given(st.text("01", min_size=2, max_size=120), st.text("01", min_size=2, max_size=120), st.randoms())
def test_swapping_the_sides_turns_the_sign_and_order_does_not_matter(a: str, b: str, chance: random.Random) -> None:
    n = min(len(a), len(b))
    a, b = a[:n], b[:n]
    one, other = Pairs.of(a, b), Pairs.of(b, a)
    assert one.difference == -other.difference and one.flip_rate == other.flip_rate
    low, high = score_interval(one.lost, one.gained, n)
    assert score_interval(other.lost, other.gained, n) == (
        pytest.approx(-high, abs=1e-9),
        pytest.approx(-low, abs=1e-9),
    )
    order = list(range(n))
    chance.shuffle(order)
    assert Pairs.of("".join(a[i] for i in order), "".join(b[i] for i in order)) == one


def test_one_question_and_none() -> None:
    assert paired_difference(0, 1, 1).se is None
    assert mean_estimate([0.3]).low is None
    for a, b in (("", ""), ("1", "11"), ("12", "11"), ("1x", "10")):
        with pytest.raises(ValueError, match="equal length"):
            Pairs.of(a, b)
    for lost, gained, n in ((-1, 0, 5), (3, 3, 5), (0, -1, 5)):
        with pytest.raises(ValueError, match="questions"):
            paired_difference(lost, gained, n)
    assert estimate(0.1, nan).se is None and estimate(0.1, inf).high is None


def test_tangos_interval_is_the_published_one() -> None:
    # Fagerland, Lydersen & Laake, Stat. Med. 33 (2014): airway reactivity before and after transplantation,
    # 21 children, (both, lost, gained) = (1, 7, 1): asymptotic score interval -0.517 to -0.026.
    low, high = score_interval(7, 1, 21)
    assert (low, high) == (pytest.approx(-0.517, abs=5e-4), pytest.approx(-0.026, abs=5e-4))


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 200), st.floats(-0.95, 0.95))
@settings(max_examples=60, deadline=None)
def test_the_score_statistic_has_the_variance_that_fits_best(
    lost: int, gained: int, rest: int, supposed: float
) -> None:
    """The restricted estimate by brute force: the loss share that makes what was seen most likely."""
    n = lost + gained + rest
    low, high = max(0.0, -supposed), (1 - supposed) / 2
    grid = np.linspace(low, high, 20_001)[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = rest * np.log(1 - 2 * grid - supposed)
        likelihood += lost * np.log(grid) if lost else 0
        likelihood += gained * np.log(grid + supposed) if gained else 0
    best = float(grid[np.nanargmax(likelihood)])
    variance = n * (2 * best + supposed - supposed**2)
    found = score_statistic(lost, gained, n, supposed)
    assert found == pytest.approx((gained - lost - n * supposed) / sqrt(variance), rel=2e-2, abs=1e-2)


@given(counts, counts, counts)
def test_the_score_interval_is_where_the_statistic_crosses(lost: int, gained: int, rest: int) -> None:
    n = lost + gained + rest
    if n == 0:
        return
    low, high = score_interval(lost, gained, n)
    assert -1 <= low <= (gained - lost) / n <= high <= 1 and low < high
    if low > -1 + 1e-9:
        assert score_statistic(lost, gained, n, low) == pytest.approx(Z95, abs=1e-4)
    if high < 1 - 1e-9:
        assert score_statistic(lost, gained, n, high) == pytest.approx(-Z95, abs=1e-4)


@given(st.integers(1, 100_000))
def test_no_flip_is_no_proof(n: int) -> None:
    """Without any flip the bound is that of n trials without a loss: z^2 / (n + z^2)."""
    low, high = score_interval(0, 0, n)
    assert high == pytest.approx(Z95**2 / (n + Z95**2), rel=1e-6) and low == pytest.approx(-high)


def test_detectable_differences() -> None:
    table = {
        817: (1.39, 2.19, 3.10, 6.79),
        1172: (1.16, 1.83, 2.59, 5.67),
        2376: (0.81, 1.29, 1.82, 3.98),
        10042: (0.40, 0.63, 0.88, 1.94),
        14042: (0.33, 0.53, 0.75, 1.64),
    }
    for n, figures in table.items():
        found = [100 * detectable(psi, n) for psi in (0.02, 0.05, 0.10, 2 * 0.6 * 0.4)]
        assert found == [pytest.approx(figure, abs=0.005) for figure in figures]


def test_clusters_as_a_regression_with_robust_errors_has_them() -> None:
    chance = random.Random(3)
    clusters = [chance.randrange(40) for _ in range(300)]
    values = [float(chance.choice((-1, 0, 0, 1)) + (cluster % 3 == 0)) for cluster in clusters]
    fit = api.OLS(values, np.ones(300)).fit(cov_type="cluster", cov_kwds={"groups": np.array(clusters)})
    found = clustered(values, clusters)
    assert found.mean == pytest.approx(fit.params[0], abs=1e-9) and found.se == pytest.approx(fit.bse[0], abs=1e-9)
    assert clustered([1.0, 0.0], ["a", "a"]).se is None


@given(
    st.lists(st.sampled_from([(-1, 0, 0), (0, -1, 0), (0, 0, -1)]), min_size=2, max_size=60),
    st.sampled_from([1, 0.1, 1 / 3, 1e-9, 1e9]),
)
def test_clusters_that_all_changed_alike_leave_no_error_at_all(kinds: list[tuple[int, ...]], scale: float) -> None:
    """Not 1e-17, which would make a difference of nearly nothing as sure as can be."""
    values = [value * scale for kind in kinds for value in kind]
    clusters = [i // 3 for i in range(len(values))]
    found = clustered(values, clusters)
    assert found.se == 0 and found.mean == pytest.approx(-scale / 3)
    assert design_effect(values, clusters) == 3
    assert mean_estimate([0.1] * len(values)).se == 0


def test_whole_numbers_and_others_give_the_same_error() -> None:
    chance = random.Random(5)
    values = [chance.choice((-1, 0, 1)) for _ in range(900)]
    clusters = [chance.randrange(77) for _ in values]
    whole, broken = clustered(values, clusters), clustered([float(value) for value in values], clusters)
    assert whole.mean == broken.mean and whole.se == pytest.approx(broken.se, rel=1e-12) and whole.se


def test_strata_add_up() -> None:
    found = stratified([(0.02, 0.01), (-0.04, 0.02), (0.05, 0.02)])
    assert found.mean == pytest.approx(0.01) and found.se == pytest.approx(sqrt(0.0009) / 3)
    assert stratified([(0.02, 0.01), (1.0, None)]).se is None


def test_design_effect() -> None:
    doubled = [1, 1, 0, 0, -1, -1, 0, 0, 1, 1] * 20
    effect = design_effect(doubled, [i // 2 for i in range(len(doubled))])
    assert effect == pytest.approx(2, abs=0.05)
    assert design_effect([0] * 100, [i // 4 for i in range(100)]) == 4
    # Differences that cancel inside each cluster make the mean surer, which is not relied upon.
    assert design_effect([1, 0, -1, 0] * 25, [i // 4 for i in range(100)]) >= 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
@settings(max_examples=12, deadline=None)  # statsmodels collects garbage at each call, which takes its time
def test_holm_as_statsmodels_has_it(p_values: list[float]) -> None:
    expected = multitest.multipletests(p_values, method="holm")[1]
    assert holm(p_values) == [pytest.approx(p, abs=1e-12) for p in expected]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.randoms())
def test_holm_does_not_look_at_the_order(p_values: list[float], chance: random.Random) -> None:
    order = list(range(len(p_values)))
    chance.shuffle(order)
    straight, shuffled = holm(p_values), holm([p_values[i] for i in order])
    assert all(isclose(straight[i], shuffled[place]) for place, i in enumerate(order))
    assert all(adjusted >= p for adjusted, p in zip(straight, p_values, strict=True))
    assert holm([]) == []


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_as_numpy_has_them(values: list[float], share: float) -> None:
    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), rel=1e-9, abs=1e-6)


def test_normal_quantiles() -> None:
    assert z_of(0.95) == Z95 and z_of(0.9) == pytest.approx(1.6448536269514722)
    assert upper_tail(Z95) == pytest.approx(0.025) and 0 < upper_tail(30) < 1e-190
    for bad in (0, 1, -1, 2, nan):
        with pytest.raises(ValueError, match="confidence"):
            z_of(bad)


def _coverage(n: int, lost: float, gained: float, trials: int = 4000) -> tuple[float, float]:
    """Return how often each interval holds the true difference, over seeded draws."""
    drawn = np.random.default_rng(7).multinomial(n, [lost, gained, 1 - lost - gained], size=trials)
    kinds, often = np.unique(drawn[:, :2], axis=0, return_counts=True)
    truth = gained - lost
    normal = score = 0
    for (b, c), times in zip(kinds.tolist(), often.tolist(), strict=True):
        found = paired_difference(b, c, n)
        assert found.low is not None and found.high is not None
        normal += times * (found.low <= truth <= found.high)
        score += times * (abs(score_statistic(b, c, n, truth)) <= Z95)
    return normal / trials, score / trials


@pytest.mark.parametrize(
    ("n", "lost", "gained"), [(800, 0.06, 0.04), (1200, 0.03, 0.03), (300, 0.10, 0.15), (2000, 0.02, 0.005)]
)
def test_intervals_hold_the_truth_as_often_as_they_say(n: int, lost: float, gained: float) -> None:
    normal, score = _coverage(n, lost, gained)
    assert 0.935 <= normal <= 0.965 and 0.938 <= score <= 0.965


def test_where_few_answers_differ_only_the_score_interval_holds() -> None:
    normal, score = _coverage(150, 0.01, 0.0)
    assert normal < 0.9 and score > 0.93
