"""The gate's test: its error rates by simulation, its decisions at the edge, and what it says is still needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc.judge.answers import Answers, given_record
from llmc.judge.noninferiority import NonInferiority, adjust, non_inferiority
from llmc.judge.stats import score_statistic
from made_runs import answers, changed, record

ALPHA = 0.05
Z = 1.6448536269514722
MARGIN = 0.01


def side(correct: str, model: str = "base", groups: list[str] | None = None) -> Answers:
    return given_record(record(correct, model=model, groups=groups), Path(model)).required()


def gate_test(n: int, right: int, lost: int, gained: int, **more: object) -> NonInferiority:
    base = answers(n, right)
    candidate = side(changed(base, lost, gained), "candidate")
    return non_inferiority(side(base), candidate, MARGIN, ALPHA, **more)  # type: ignore[arg-type]


def rates(n: int, lost: float, gained: float, trials: int = 20_000) -> tuple[float, float]:
    """Return how often the gate passes and fails when the true shares of lost and gained answers are these."""
    drawn = np.random.default_rng(11).multinomial(n, [lost, gained, 1 - lost - gained], size=trials)
    kinds, often = np.unique(drawn[:, :2], axis=0, return_counts=True)
    statistics = np.array([score_statistic(b, c, n, -MARGIN) for b, c in kinds.tolist()])
    return float(often[statistics > Z].sum() / trials), float(often[statistics < -Z].sum() / trials)


@pytest.mark.parametrize(
    ("n", "lost", "gained"),
    [
        (400, 0.01, 0.0),
        (1000, 0.01, 0.0),
        (1000, 0.03, 0.02),
        (1172, 0.055, 0.045),
        (3000, 0.02, 0.01),
        (10_042, 0.04, 0.03),
    ],
)
def test_at_the_margin_each_error_is_as_rare_as_alpha(n: int, lost: float, gained: float) -> None:
    """A true loss of exactly the margin must seldom pass and seldom fail."""
    passed, failed = rates(n, lost, gained)
    assert passed <= ALPHA + 0.012 and failed <= ALPHA + 0.012
    assert passed + failed >= 0.02  # and the test is not so shy that it never decides


@pytest.mark.parametrize("n", [20, 50, 100, 200])
def test_few_questions_never_pass_a_model_that_loses_the_margin(n: int) -> None:
    passed, _ = rates(n, 0.01, 0.0)
    assert passed == 0


def test_enough_questions_decide() -> None:
    passed, failed = rates(10_042, 0.02, 0.02)
    assert passed > 0.99 and failed == 0
    passed, failed = rates(10_042, 0.05, 0.02)
    assert passed == 0 and failed > 0.99


def test_the_four_ways_it_goes() -> None:
    assert gate_test(10_000, 6000, 150, 150).decision == "pass"
    assert gate_test(10_000, 6000, 400, 150).decision == "fail"
    assert gate_test(500, 300, 20, 15).decision == "inconclusive"
    same = side(answers(20, 8))
    assert non_inferiority(same, same, MARGIN, ALPHA).decision == "pass"


def test_no_flip_passes_from_the_number_of_questions_that_says_so() -> None:
    enough = ceil(Z**2 * (1 - MARGIN) / MARGIN)
    short = gate_test(enough - 10, 100, 0, 0)
    assert short.decision == "inconclusive" and short.questions_needed == pytest.approx(enough, abs=1)
    assert gate_test(enough + 1, 100, 0, 0).decision == "pass"


@given(st.integers(0, 40), st.integers(0, 40), st.integers(100, 1500))
@settings(max_examples=40, deadline=None)
def test_so_many_questions_as_it_asks_for_do_decide(lost: int, gained: int, rest: int) -> None:
    """As many more of the same kind as it says, and the statistic is at its bound."""
    n = lost + gained + rest
    right = lost + rest // 2
    test = gate_test(n, right, lost, gained)
    if test.decision != "inconclusive" or test.questions_needed is None:
        return
    grown = test.questions_needed / n
    more, less = (
        score_statistic(lost * f, gained * f, n * f, -MARGIN) for f in (grown * 1.001, (grown - 2 / n) * 0.999)
    )
    assert abs(more) >= Z
    if test.questions_needed > n + 1:
        assert abs(less) < Z


def test_a_difference_at_the_margin_is_never_decided() -> None:
    test = gate_test(1000, 500, 10, 0)
    assert test.decision == "inconclusive" and test.questions_needed is None


def test_bounds_and_p_values_agree_with_the_decision() -> None:
    for lost, gained in ((10, 8), (60, 20), (25, 22), (0, 0), (90, 10)):
        test = gate_test(2000, 1000, lost, gained)
        low, high = test.bounds
        assert (low > -MARGIN) == (test.p_pass < ALPHA) and (high < -MARGIN) == (test.p_fail < ALPHA)
        assert test.p_pass + test.p_fail == pytest.approx(1)


def test_clusters_count_for_fewer_questions() -> None:
    base = "1" * 4000
    groups = [f"passage {i // 10}" for i in range(4000)]
    lost = "".join("0" if i // 10 in (3, 99) else "1" for i in range(4000))
    candidate = side(lost, "candidate", groups)
    plain = non_inferiority(side(base), candidate, MARGIN, ALPHA)
    by_cluster = non_inferiority(side(base), candidate, MARGIN, ALPHA, by_cluster=True)
    assert plain.effect == 1 and by_cluster.effect == pytest.approx(10, rel=0.1)
    assert plain.decision == "pass" and by_cluster.decision == "inconclusive"


@pytest.mark.parametrize(
    "change",
    [
        lambda a: replace(a, model=a.model.model_copy(update={"sha256": "0" * 64})),
        lambda a: replace(a, model=None),
        lambda a: replace(a, engine=None),
        lambda a: replace(a, engine=a.engine.model_copy(update={"identity": "other"})),
        lambda a: replace(a, should={**a.should, "backend": "cuda"}),
        lambda a: replace(a, correct=changed(a.correct, 1, 1)),
    ],
)
def test_only_the_very_same_computation_needs_no_inference(change: Callable[[Answers], Answers]) -> None:
    a = side(answers(50, 20))
    assert non_inferiority(a, a, MARGIN, ALPHA).identical
    test = non_inferiority(a, change(a), MARGIN, ALPHA)
    assert not test.identical and test.decision == "inconclusive"


def test_many_tests_are_held_to_more() -> None:
    alone = gate_test(1800, 1000, 14, 6)
    assert alone.decision == "pass" and 0.01 < alone.p_pass < ALPHA
    adjusted = adjust([alone, *[gate_test(1800, 1000, 20, 6)] * 9])
    assert adjusted[0].decision == "inconclusive" and adjusted[0].adjusted_pass > ALPHA
    assert adjusted[0].questions_needed is not None and adjusted[0].questions_needed > 1800
    assert adjust([alone])[0].decision == "pass"


def test_wrong_passes_are_as_rare_among_many_cells() -> None:
    """Ten models that all lose the margin: the chance that the gate passes any of them is at most alpha."""
    cells, trials, n = 10, 1500, 3000
    drawn = np.random.default_rng(5).multinomial(n, [0.03, 0.02, 0.95], size=(trials, cells))
    best = np.array([[score_statistic(b, c, n, -MARGIN) for b, c, _ in row] for row in drawn.tolist()]).max(axis=1)
    from llmc.judge.stats import holm, upper_tail

    wrong = sum(min(holm([upper_tail(float(z))] + [0.999] * (cells - 1))) < ALPHA for z in best)
    assert wrong / trials <= ALPHA + 0.015
