"""Which questions a run takes."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.benchmarks.select import document_sample, even_sample, like_llama, seeded_sample

# The first outputs of std::mt19937(1).
OUTPUTS = [1791095845, 4282876139, 3093770124, 4005303368, 491263]


def test_llamas_selection_by_hand() -> None:
    left = list(range(12))
    picked = []
    for output in OUTPUTS:
        place = int(output / 2**32 * len(left))
        picked.append(left[place])
        left[place] = left[-1]
        left.pop()
    assert like_llama(12, 5) == picked == [5, 10, 7, 8, 0]


@given(st.integers(1, 400), st.data())
def test_llamas_selection_has_no_repeats_and_grows(tasks: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, tasks))
    picked = like_llama(tasks, count)
    assert len(set(picked)) == count and set(picked) <= set(range(tasks))
    assert like_llama(tasks, tasks)[:count] == picked


@given(st.integers(1, 400), st.integers(0, 2**32), st.data())
def test_a_sample_is_sorted_stable_and_nested(tasks: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, tasks))
    sample = seeded_sample(tasks, count, seed)
    assert sample == sorted(set(sample)) and len(sample) == count and max(sample) < tasks
    assert sample == seeded_sample(tasks, count, seed)
    assert set(sample) <= set(seeded_sample(tasks, tasks, seed))
    assert set(sample) <= set(seeded_sample(tasks, min(tasks, count + 5), seed))


def test_a_fixed_sample() -> None:
    """Published subsets depend on it: the sample of a seed may never change."""
    assert seeded_sample(1000, 5, 0) == [160, 237, 439, 549, 621]
    assert seeded_sample(570, 8, 1234) == [15, 28, 49, 186, 236, 387, 395, 436]


@pytest.mark.parametrize(("tasks", "count"), [(10962, 10000), (12, 5), (5, 5), (5, 9)])
def test_documents_are_drawn_as_olmes_draws_them(tasks: int, count: int) -> None:
    documents = [f"document {i}" for i in range(tasks)]
    drawn = random.Random(1234).sample(documents, count) if count < tasks else documents
    assert [documents[i] for i in document_sample(tasks, count, 1234)] == drawn


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=120), st.integers(1, 130), st.integers())
def test_an_even_sample_takes_as_much_of_each_group(groups: list[str | None], count: int, seed: int) -> None:
    picked = even_sample(groups, count, seed)
    assert picked == sorted(set(picked)) and len(picked) == min(count, len(groups))
    taken = Counter(groups[i] for i in picked)
    sizes = Counter(groups)
    short = {group for group, size in sizes.items() if taken[group] < size}
    if short:
        most = max(taken.values())
        assert all(taken[group] >= most - 1 for group in short)
