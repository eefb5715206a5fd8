"""Log-softmax against its definition, and its behaviour on numbers that are none."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.scoring.logprobs import CHUNK, log_probabilities, normalizers

ROWS = st.lists(
    st.lists(st.floats(-80, 80, width=32), min_size=5, max_size=5),
    min_size=1,
    max_size=9,
)


@given(ROWS, st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), max_size=20))
def test_equals_its_definition(rows: list[list[float]], asked: list[tuple[int, int]]) -> None:
    matrix = np.array(rows, np.float32)
    pairs = [(row % len(rows), token) for row, token in asked]
    found = log_probabilities(matrix, np.array([r for r, _ in pairs], int), np.array([t for _, t in pairs], int))
    for (row, token), value in zip(pairs, found, strict=True):
        top = max(rows[row])
        norm = top + math.log(math.fsum(math.exp(x - top) for x in rows[row]))
        assert value == pytest.approx(rows[row][token] - norm, abs=1e-5)


@pytest.mark.parametrize("vocabulary", [3, 1000, CHUNK, CHUNK + 1])
def test_every_row_is_normalized_whatever_its_chunk(vocabulary: int) -> None:
    matrix = np.random.default_rng(0).normal(0, 5, (7, vocabulary)).astype(np.float32)
    rows = np.array([6, 0, 3, 3])
    exact = np.log(np.exp(matrix.astype(np.float64)).sum(axis=1))[rows]
    assert normalizers(matrix, rows) == pytest.approx(exact, abs=1e-6)


def test_memory_does_not_grow_with_the_rows() -> None:
    matrix = np.zeros((400, 20_000), np.float32)
    tracemalloc.start()
    normalizers(matrix, np.arange(400))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * CHUNK * 8 < matrix.nbytes / 10


def test_a_distant_token_keeps_its_digits() -> None:
    """llama.cpp's own first token goes to -inf below e^-103."""
    matrix = np.array([[0.0, -500.0, -1e4]], np.float32)
    found = log_probabilities(matrix, np.array([0, 0, 0]), np.array([0, 1, 2]))
    assert found.tolist() == pytest.approx([0.0, -500.0, -1e4])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_numbers_show_in_every_token_of_their_row_and_in_no_other(bad: float) -> None:
    matrix = np.array([[0.0, bad, 1.0], [0.0, 1.0, 2.0]], np.float32)
    found = log_probabilities(matrix, np.array([0, 0, 1]), np.array([0, 2, 2]))
    assert not np.isfinite(found[:2]).any() and np.isfinite(found[2])


def test_an_impossible_token_is_minus_infinity() -> None:
    matrix = np.array([[0.0, -math.inf]], np.float32)
    assert log_probabilities(matrix, np.array([0, 0]), np.array([0, 1])).tolist() == [0.0, -math.inf]
