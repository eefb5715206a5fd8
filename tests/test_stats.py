from __future__ import annotations

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.stats import Z95, wilson


@pytest.mark.parametrize(
    ("right", "tasks", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_published_intervals(right: int, tasks: int, low: float, high: float) -> None:
    assert wilson(right, tasks) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(1, 10**6), st.data())
def test_the_ends_are_where_the_score_test_rejects(tasks: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, tasks))
    low, high = wilson(right, tasks)
    assert 0 <= low <= right / tasks <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            score = (right / tasks - end) ** 2 * tasks
            assert isclose(score, Z95**2 * end * (1 - end), rel_tol=1e-5, abs_tol=1e-9)


def test_scipy_agrees() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    for right, tasks in ((0, 1), (1, 1), (3, 12), (60, 100), (999, 1000)):
        expected = stats.binomtest(right, tasks).proportion_ci(method="wilson")
        assert wilson(right, tasks) == (pytest.approx(expected.low), pytest.approx(expected.high))


@given(st.integers(1, 1000), st.data())
def test_right_and_wrong_mirror_each_other(tasks: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, tasks))
    low, high = wilson(right, tasks)
    assert wilson(tasks - right, tasks) == (pytest.approx(1 - high), pytest.approx(1 - low))


@pytest.mark.parametrize(("right", "tasks"), [(0, 0), (-1, 5), (6, 5)])
def test_impossible_counts(right: int, tasks: int) -> None:
    with pytest.raises(ValueError, match="right of"):
        wilson(right, tasks)
