"""Batches: every wanted log-probability comes out, no token is decoded twice, and no limit is passed."""

from __future__ import annotations

import itertools
from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc.scoring.evaluate import branches, evaluate
from llmc.scoring.planning import MIN_STEM, Batch, decoded_tokens, plan
from llmc.scoring.tokens import Sequence, Tokenized
from llmc.scoring.tree import ItemBranches, Limits, branch, common, spans
from scoring.fake_cache import VOCABULARY, FakeCache, log_probability, tokens_of

TOKEN = st.integers(0, VOCABULARY - 1)
WIDE = Limits(tokens=64, outputs=1000, sequences=64)


@st.composite
def tokenized_items(draw: st.DrawFn) -> list[Tokenized]:
    """Items whose contexts nest: headers with passages with questions, of any length, in any order."""
    headers = draw(st.lists(st.lists(TOKEN, max_size=30), min_size=1, max_size=3))
    passages = [[], *draw(st.lists(st.lists(TOKEN, max_size=30), max_size=3))]
    items = []
    for _ in range(draw(st.integers(1, 12))):
        question = draw(st.lists(TOKEN, min_size=1, max_size=6))
        context = (*draw(st.sampled_from(headers)), *draw(st.sampled_from(passages)), *question)
        options = draw(st.lists(st.lists(TOKEN, min_size=1, max_size=5), min_size=2, max_size=5))
        split = draw(st.integers(1, len(context)))
        uncond = None
        if draw(st.booleans()):
            before = draw(st.sampled_from([(7,), context[:1], context]))
            uncond = tuple(
                Sequence(array("i", [*before, *tail]), len(before), len(before) + len(tail)) for tail in options
            )
        sequences = [Sequence(array("i", [*context, *tail]), split, len(context) + len(tail)) for tail in options]
        items.append(Tokenized(tuple(sequences), uncond))
    return items


LIMITS = st.builds(
    Limits,
    tokens=st.sampled_from([1, 2, 5, 16, 40, 200]),
    outputs=st.sampled_from([1, 3, 1000]),
    sequences=st.sampled_from([2, 3, 7, 64]),
    share=st.booleans(),
)


def planned(items: list[Tokenized], limits: Limits) -> list[Batch]:
    return plan([branches(item) for item in items], limits)


def run(batches: list[Batch], items: list[Tokenized], cache: FakeCache) -> tuple[list[list[list[float]]], int]:
    values, tokens = [], 0
    for batch in batches:
        found, decoded = evaluate(batch, items[batch.first : batch.first + batch.items], cache)
        values += [[list(map(float, each)) for each in item] for item in found]
        tokens += decoded
    return values, tokens


def by_hand(item: Tokenized) -> list[list[float]]:
    return [
        [log_probability(tuple(each.tokens[:j]), each.tokens[j]) for j in range(each.start, len(each.tokens))]
        for each in item.sequences()
    ]


@settings(max_examples=200, deadline=None)
@given(tokenized_items(), LIMITS)
def test_every_value_is_the_one_of_its_own_sequence(items: list[Tokenized], limits: Limits) -> None:
    batches = planned(items, limits)
    cache = FakeCache(limits)
    values, tokens = run(batches, items, cache)
    assert [batch.first for batch in batches] == [sum(b.items for b in batches[:i]) for i in range(len(batches))]
    assert len(values) == len(items)
    for found, item in zip(values, items, strict=True):
        assert len(found) == len(item.sequences())
        for mine, wanted in zip(found, by_hand(item), strict=True):
            assert mine == pytest.approx(wanted, abs=1e-6)
    assert tokens == decoded_tokens(batches) == len(cache.decoded)
    assert cache.most_cells <= max(batch.cells for batch in batches)
    assert max(batch.sequences for batch in batches) <= max(1, limits.sequences - 1)


@settings(max_examples=100, deadline=None)
@given(tokenized_items(), LIMITS.filter(lambda limits: limits.share))
def test_within_a_batch_no_token_is_decoded_twice_and_no_last_one_at_all(
    items: list[Tokenized], limits: Limits
) -> None:
    for batch in planned(items, limits):
        part = items[batch.first : batch.first + batch.items]
        cache = FakeCache(limits)
        run([replace(batch, first=0)], part, cache)
        wanted = {
            tuple(each.tokens[:j]) for item in part for each in item.sequences() for j in range(1, len(each.tokens))
        }
        stem = tokens_of(batch.stem)
        assert set(cache.decoded) == wanted | {stem[: j + 1] for j in range(len(stem))}
        if len(batch.waves) == 1 and all(item.uncond is None for item in part):
            assert len(cache.decoded) == len(set(cache.decoded))


@settings(max_examples=100, deadline=None)
@given(tokenized_items(), LIMITS)
def test_a_run_that_goes_on_makes_the_same_calls_as_an_unbroken_one(items: list[Tokenized], limits: Limits) -> None:
    """The calls after a stem is in the cache, and those that bring it there, hold the same tokens."""
    batches = planned(items, limits)
    for at in range(1, len(batches)):
        fresh = FakeCache(limits)
        run(batches[at:], items, fresh)
        unbroken = FakeCache(limits)
        run(batches[:at], items, unbroken)
        before = len(unbroken.calls)
        stems = [call for call in unbroken.calls[:before] if len(call[-1]) <= len(tokens_of(batches[at].stem))]
        run(batches[at:], items, unbroken)
        after = unbroken.calls[before:]
        assert fresh.calls[len(fresh.calls) - len(after) :] == after
        assert all(call in stems for call in fresh.calls[: len(fresh.calls) - len(after)])


@given(tokenized_items(), LIMITS)
@settings(max_examples=50, deadline=None)
def test_the_plan_is_a_function_of_the_items_and_the_limits(items: list[Tokenized], limits: Limits) -> None:
    def picture(batches: list[Batch]) -> list[Any]:
        return [
            (b.first, b.items, b.stems, b.stem, [(w.token.tolist(), w.leaf.tolist(), w.calls) for w in b.waves])
            for b in batches
        ]

    assert picture(planned(items, limits)) == picture(planned(items, limits))


def item(context: tuple[int, ...], *tails: tuple[int, ...]) -> ItemBranches:
    return ItemBranches(tuple(branch((*context, *tail), len(context)) for tail in tails))


LETTERS = ((1,), (2,), (3,), (4,))


def test_letters_take_one_sequence_and_none_of_their_own_tokens() -> None:
    (batch,) = plan([item((5, 6, 7), *LETTERS)], WIDE)
    (wave,) = batch.waves
    assert wave.token.tolist() == [5, 6, 7] and wave.output.tolist() == [0, 0, 1] and batch.sequences == 1
    assert sorted(int(pick.tokens[0]) for pick in wave.picks) == [1, 2, 3, 4]


def test_a_header_of_all_items_is_decoded_once() -> None:
    header = tuple(i % VOCABULARY for i in range(100))
    items = [item((*header, i % 5, i % 7, i % 3), *LETTERS) for i in range(300)]
    batches = plan(items, WIDE)
    assert len(batches) > 5 and {batch.stems for batch in batches} == {(100,)}
    assert decoded_tokens(batches) <= 100 + 3 * 300


def test_passages_under_a_header_nest() -> None:
    header = tuple(i % VOCABULARY for i in range(50))
    passages = [tuple((i * k + k) % VOCABULARY for i in range(40)) for k in (2, 3, 5)]
    items = [item((*header, *passage, i % 5, i % 7), *LETTERS) for passage in passages for i in range(60)]
    batches = plan(items, WIDE)
    assert {batch.stems[0] for batch in batches} == {50}
    assert any(len(batch.stems) == 2 for batch in batches)
    assert decoded_tokens(batches) <= 50 + 3 * 40 + 2 * 180


def test_a_passage_whose_questions_fit_one_batch_is_not_torn() -> None:
    passages = [tuple((i * k + k) % VOCABULARY for i in range(30)) for k in range(1, 8)]
    items = [item((k % VOCABULARY, *passage, i), *LETTERS) for k, passage in enumerate(passages) for i in range(3)]
    batches = plan(items, WIDE)
    assert decoded_tokens(batches) == sum(31 + 3 for _ in passages)
    assert all(batch.items % 3 == 0 for batch in batches)


def test_what_items_share_below_the_worth_of_a_call_is_not_kept() -> None:
    items = [item((*range(MIN_STEM - 8), i % 5, i % 7), *LETTERS) for i in range(200)]
    assert {batch.stems for batch in plan(items, WIDE)} == {()}


def test_an_item_larger_than_a_batch_shares_its_context_all_the_same() -> None:
    context = tuple(i % VOCABULARY for i in range(500))
    tails = tuple(tuple((i * k) % VOCABULARY for i in range(1, 40)) for k in range(1, 11))
    batches = plan([item(context, *tails)], WIDE)
    # The context's last token, whose successors are scored, is decoded in every filling of the cache.
    assert len(batches) == 1 and decoded_tokens(batches) <= 499 + 10 * 38 + len(batches[0].waves)
    assert all(end - begin <= WIDE.tokens for wave in batches[0].waves for begin, end in wave.calls)


def test_a_hundred_options_with_few_sequences() -> None:
    tails = tuple((i // VOCABULARY, i % VOCABULARY, 3) for i in range(100))
    limits = replace(WIDE, sequences=8)
    (batch,) = plan([item(tuple(range(10)) * 3, *tails)], limits)
    assert batch.sequences <= 7 and len(batch.stems) == 1
    assert sum(len(wave.picks) for wave in batch.waves) == 100


def test_without_sharing_every_option_stands_alone() -> None:
    (batch,) = plan([item((5, 6), (1, 2), (3, 4))], replace(WIDE, share=False))
    assert [wave.token.tolist() for wave in batch.waves] == [[5, 6, 1], [5, 6, 3]]


def test_the_first_token_has_no_prediction() -> None:
    with pytest.raises(ValueError, match="token 0"):
        branch((1, 2), 0)
    with pytest.raises(ValueError, match="token 2"):
        branch((1, 2), 2)


@given(st.lists(TOKEN, max_size=8), st.lists(TOKEN, max_size=8))
def test_common_prefix_of_packed_tokens(a: list[int], b: list[int]) -> None:
    packed = [b"".join(t.to_bytes(4, "big") for t in tokens) for tokens in (a, b)]
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common(*packed) == expected


@given(st.integers(1, 1000), st.integers(1, 50))
def test_spans_cover_everything_evenly(count: int, parts: int) -> None:
    cut = spans(count, parts)
    assert cut[0][0] == 0 and cut[-1][1] == count
    assert all(a[1] == b[0] for a, b in itertools.pairwise(cut))
    assert max(end - begin for begin, end in cut) <= -(-count // parts)
