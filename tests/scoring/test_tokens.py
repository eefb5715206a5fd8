"""Where an option begins, under every tokenization, with tokenizers made for the purpose."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.scoring.job import Settings
from llmc.scoring.tokens import CannotScore, DoesNotFit, Sequence, Tokenized, common_prefix, tokenize
from scorer_helpers import item

BOS, EOS = 1, 2


class Vocabulary:
    """One token a character, but for the ``merged`` strings, which are one token each; a space joins what follows."""

    def __init__(
        self, *merged: str, bos: int | None = BOS, eos: int | None = EOS, adds_bos: bool = False, adds_eos: bool = False
    ) -> None:
        self.merged, self.bos, self.eos, self.adds_bos, self.adds_eos = merged, bos, eos, adds_bos, adds_eos

    def encode(self, text: str, *, special: bool) -> array[int]:
        found: list[int] = [BOS] if special and self.adds_bos else []
        at = 0
        while at < len(text):
            piece = next((m for m in self.merged if text.startswith(m, at)), text[at])
            found.append(1000 + self.merged.index(piece) if piece in self.merged else ord(piece))
            at += len(piece)
        return array("i", [*found, EOS] if special and self.adds_eos else found)


def options(found: Tokenized) -> list[tuple[int, int, int | None, int]]:
    return [(each.split, each.end, each.prefix, len(each.tokens)) for each in found.options]


def tokenized(
    context: str, *continuations: str, vocabulary: Vocabulary | None = None, room: int = 1000, **settings: object
) -> Tokenized:
    chosen = Settings(**settings)  # type: ignore[arg-type]
    return tokenize(item(0, context, *continuations), chosen, vocabulary or Vocabulary(" A", " B"), room)


@pytest.mark.parametrize(
    ("context", "continuations", "wanted"),
    [
        ("Q:", (" A", " B"), [(2, 3, 2, 3), (2, 3, 2, 3)]),
        ("Q: ", (" A", " B"), [(2, 4, 3, 4), (2, 4, 3, 4)]),  # the context's space belongs to the option
        ("Q:", (" xyz", " xyw"), [(2, 6, 5, 6), (2, 6, 5, 6)]),  # shared first letters are in llama.cpp's prefix
        ("Q:", (" xy", " xyz"), [(2, 5, 4, 5), (2, 6, 4, 6)]),  # the prefix leaves every option a token
        ("Q:", (" x", " x"), [(2, 4, 3, 4), (2, 4, 3, 4)]),
        ("Q:\n", ("\nA", "\nB"), [(2, 5, 4, 5), (2, 5, 4, 5)]),
    ],
)
def test_joint(context: str, continuations: tuple[str, ...], wanted: list[tuple[int, int, int, int]]) -> None:
    assert options(tokenized(context, *continuations)) == wanted


def test_joint_where_context_and_option_merge() -> None:
    """lm-eval splits at the length of the context's own tokens, whether they are a prefix of the whole or not."""
    found = tokenized("Q:\n", " A", vocabulary=Vocabulary(":\n", ": "))
    assert options(found)[0][:2] == (2, 4)
    swallowed = tokenized("ab", "c", "d", vocabulary=Vocabulary("abc", "abd", bos=BOS, adds_bos=True))
    assert options(swallowed) == [(1, 2, 1, 2), (1, 2, 1, 2)]


@pytest.mark.parametrize(
    ("bos", "adds_bos", "head"),
    [
        ("model", True, (BOS,)),
        ("model", False, ()),
        ("never", True, ()),
        ("always", False, (BOS,)),
        ("always", True, (BOS,)),
    ],
)
@pytest.mark.parametrize("tokenization", ["joint", "separate"])
def test_bos(tokenization: str, bos: str, adds_bos: bool, head: tuple[int, ...]) -> None:
    vocabulary = Vocabulary(adds_bos=adds_bos)
    found = tokenized("Q", " a", " b", vocabulary=vocabulary, bos=bos, tokenization=tokenization)
    assert [tuple(each.tokens) for each in found.options] == [(*head, ord("Q"), ord(" "), ord(x)) for x in "ab"]
    assert {each.split for each in found.options} == {len(head) + 1}


def test_eos_is_scored_by_llama_cpp_and_by_no_sum() -> None:
    found = tokenized("Q", " ab", " c", vocabulary=Vocabulary(adds_bos=True, adds_eos=True))
    assert [each.tokens[-1] for each in found.options] == [EOS, EOS]
    assert options(found) == [(2, 5, 3, 6), (2, 4, 3, 5)]
    assert options(tokenized("Q", " ab", " c", vocabulary=Vocabulary(adds_eos=True), bos="never"))[0] == (1, 4, 2, 4)
    apart = tokenized("Q", " ab", " c", vocabulary=Vocabulary(adds_eos=True), tokenization="separate")
    assert all(EOS not in each.tokens for each in apart.options)


def test_separate_keeps_the_spaces_of_the_context() -> None:
    found = tokenized("Q: ", " A", vocabulary=Vocabulary(" A"), tokenization="separate")
    assert options(found) == [(3, 4, None, 4)]


@pytest.mark.parametrize("tokenization", ["joint", "separate"])
def test_without_a_context_the_first_token_is_conditioned_on_bos_else_eos(tokenization: str) -> None:
    for vocabulary, head in ((Vocabulary(), BOS), (Vocabulary(bos=None), EOS)):
        found = tokenized("", " ab", " c", vocabulary=vocabulary, tokenization=tokenization, bos="never")
        assert [each.tokens[0] for each in found.options] == [head, head]
        assert [(each.split, each.end) for each in found.options] == [(1, 4), (1, 3)]
    with pytest.raises(CannotScore, match="neither BOS nor EOS"):
        tokenized("", " ab", " c", vocabulary=Vocabulary(bos=None, eos=None), tokenization=tokenization)


def test_options_without_a_common_token_have_no_mean_of_llama_cpp() -> None:
    found = tokenized("", "ab", "cd", bos="never")
    assert [each.prefix for each in found.options] == [None, None]


def test_an_option_without_tokens_is_refused() -> None:
    with pytest.raises(CannotScore, match="no tokens"):
        tokenized("Q", "", " a", tokenization="separate")


def test_unconditioned_options() -> None:
    each = item(0, "Why?", " a", " b", uncond="Answer:")
    found = tokenize(each, Settings(uncond=True), Vocabulary(), 1000)
    assert found.uncond is not None and [len(u.tokens) - u.split for u in found.uncond] == [2, 2]
    assert tokenize(each, Settings(), Vocabulary(), 1000).uncond is None
    assert tokenize(item(0, "Why?", " a", " b"), Settings(uncond=True), Vocabulary(), 1000).uncond is None


def test_the_last_token_needs_no_room() -> None:
    assert tokenized("Q" * 9, " a", room=10).options[0].dropped == 0
    with pytest.raises(DoesNotFit) as caught:
        tokenized("Q" * 10, " a", room=10)
    assert caught.value.tokens == 12


def test_cutting_keeps_the_end() -> None:
    (first, second) = tokenized("0123456789", " ab", " c", room=6, truncate="left").options
    assert (first.dropped, second.dropped) == (6, 5)
    assert "".join(map(chr, first.tokens)) == "6789 ab" and "".join(map(chr, second.tokens)) == "56789 c"
    assert "".join(map(chr, first.tokens[first.split : first.end])) == " ab"
    with pytest.raises(DoesNotFit):
        tokenized("Q", " a long option", room=6, truncate="left")


TEXT = st.text("ab :\nA", max_size=8)


@given(TEXT, st.lists(TEXT.map(lambda t: " x" + t), min_size=2, max_size=4), st.integers(3, 30), st.booleans())
def test_whatever_the_texts_every_option_has_something_to_score(
    context: str, texts: list[str], room: int, adds_bos: bool
) -> None:
    vocabulary = Vocabulary(" A", ": ", ":\n", adds_bos=adds_bos)
    for tokenization in ("joint", "separate"):
        try:
            found = tokenized(
                context, *texts, vocabulary=vocabulary, tokenization=tokenization, room=room, truncate="left"
            )
        except DoesNotFit:
            continue
        for each in found.options:
            assert 1 <= each.start <= each.split < each.end <= len(each.tokens) <= room + 1
            assert each.prefix is None or 1 <= each.prefix < len(each.tokens)


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_common_prefix(a: list[int], b: list[int]) -> None:
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(array("i", a), array("i", b)) == expected


def test_a_sequence_starts_where_the_first_rule_does() -> None:
    tokens = array("i", [1, 2, 3])
    assert Sequence(tokens, 2, 3).start == 2 and Sequence(tokens, 2, 3, 1).start == 1
