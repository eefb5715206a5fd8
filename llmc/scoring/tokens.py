"""From the texts of an item to the token sequences that are evaluated, under each tokenization in use.

``joint`` encodes context and continuation as one text. Two rules then say where an option begins, and both are kept:

* sums follow lm-eval's _encode_pair: trailing whitespace of the context belongs to the continuation, and the option is
  what comes after as many tokens as the context alone encodes to (which need not be a prefix of the whole);
* llama.cpp's mean begins past the longest common prefix of all options. Here that prefix is capped one token before
  the end of the shortest option, so that every option has a scored token; for all others the cap changes nothing.

``separate`` encodes both apart and puts one behind the other; the context keeps its whitespace. llama.cpp's rule is not
defined for it.

BOS (and EOS, which llama.cpp appends for models that ask for it and scores in its mean; no sum holds it): ``model`` as
the model's file says, ``never``, or ``always``. Special tokens in texts are plain text. A continuation with nothing
before it is conditioned on BOS, else EOS, as in lm-eval. Sources: lm-evaluation-harness api/model.py and
models/huggingface.py; llama.cpp tools/perplexity/perplexity.cpp.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from llmc.benchmarks.item import Item
from llmc.scoring.job import Settings

if TYPE_CHECKING:
    Tokens = array[int]  # int32: a chunk of few-shot items has millions of them


class Tokenizer(Protocol):
    """What a vocabulary offers. ``encode`` with ``special`` adds BOS and EOS where the model asks for them."""

    bos: int | None
    eos: int | None
    adds_eos: bool

    def encode(self, text: str, *, special: bool) -> Tokens: ...


class DoesNotFit(Exception):
    """An item that the context cannot hold; ``tokens`` is the length of its longest sequence."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = tokens


class CannotScore(Exception):
    """An item that has no score under these settings; the message says why."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """One text to evaluate: the log-probabilities of ``tokens[start:]`` are wanted, each given all before it.

    The sum runs over ``tokens[split:end]``, llama.cpp's mean over ``tokens[prefix:]`` (None where that rule says
    nothing). ``dropped`` tokens were cut off on the left.
    """

    tokens: Tokens
    split: int
    end: int
    prefix: int | None = None
    dropped: int = 0

    @property
    def start(self) -> int:
        return self.split if self.prefix is None else min(self.split, self.prefix)


@dataclass(frozen=True, slots=True)
class Tokenized:
    """The sequences of an item, one per option; ``uncond`` those without the question, where asked for."""

    options: tuple[Sequence, ...]
    uncond: tuple[Sequence, ...] | None = None

    def sequences(self) -> tuple[Sequence, ...]:
        return self.options + (self.uncond or ())


def tokenize(item: Item, settings: Settings, vocabulary: Tokenizer, context: int) -> Tokenized:
    """Return an item's sequences; none is longer than ``context`` tokens.

    DoesNotFit when one is and may not be cut, or when the tokens to score alone do not fit; CannotScore when an option
    has no token to score, or nothing to condition its first one on.
    """
    encode = _encoder(settings, vocabulary)
    ending = 1 if settings.bos == "model" and vocabulary.adds_eos else 0
    pairs = _joint if settings.tokenization == "joint" else _separate
    options = pairs(item.context, item.continuations, encode, ending, vocabulary)
    if settings.tokenization == "joint":
        options = _with_prefix(options)
    uncond = None
    if settings.uncond and item.uncond_context is not None:
        uncond = pairs(item.uncond_context, item.continuations, encode, ending, vocabulary)
    cut = settings.truncate == "left"
    return Tokenized(
        tuple(_fitted(_conditioned(each, vocabulary), context, cut) for each in options),
        None if uncond is None else tuple(_fitted(_conditioned(each, vocabulary), context, cut) for each in uncond),
    )


def _encoder(settings: Settings, vocabulary: Tokenizer) -> Callable[[str], Tokens]:
    if settings.bos == "model":
        return lambda text: vocabulary.encode(text, special=True)
    if settings.bos == "always" and vocabulary.bos is not None:
        head = array("i", [vocabulary.bos])
        return lambda text: head + vocabulary.encode(text, special=False)
    return lambda text: vocabulary.encode(text, special=False)


def _joint(
    context: str, texts: tuple[str, ...], encode: Callable[[str], Tokens], ending: int, vocabulary: Tokenizer
) -> list[Sequence]:
    split = len(encode(context.rstrip())) - ending
    wholes = [encode(context + text) for text in texts]
    # Where the last token of the context swallows the continuation, that token is what is left to score.
    return [Sequence(each, max(0, min(split, len(each) - ending - 1)), len(each) - ending) for each in wholes]


def _separate(
    context: str, texts: tuple[str, ...], encode: Callable[[str], Tokens], ending: int, vocabulary: Tokenizer
) -> list[Sequence]:
    head = encode(context)
    head = head[: len(head) - ending]
    wholes = [head + vocabulary.encode(text, special=False) for text in texts]
    return [Sequence(each, len(head), len(each)) for each in wholes]


def _with_prefix(options: list[Sequence]) -> list[Sequence]:
    first = options[0].tokens
    shared = min(len(each.tokens) for each in options) - 1
    for each in options[1:]:
        shared = min(shared, common_prefix(first, each.tokens))
    # Without a common token llama.cpp has nothing to condition the first one on.
    return [Sequence(each.tokens, each.split, each.end, shared if shared > 0 else None) for each in options]


def common_prefix(a: Tokens, b: Tokens) -> int:
    """Return how many leading tokens two sequences share."""
    same, most = 0, min(len(a), len(b))
    if a[:most] == b[:most]:
        return most
    while most - same > 1:  # the first ``same`` are equal, the first ``most`` are not
        middle = (same + most) // 2
        same, most = (middle, most) if a[same:middle] == b[same:middle] else (same, middle)
    return same


def _conditioned(sequence: Sequence, vocabulary: Tokenizer) -> Sequence:
    if sequence.end <= sequence.split:
        raise CannotScore("an option has no tokens")
    if sequence.start > 0:
        return sequence
    head = vocabulary.bos if vocabulary.bos is not None else vocabulary.eos
    if head is None:
        raise CannotScore("nothing comes before its options, and the vocabulary has neither BOS nor EOS")
    if len(sequence.tokens) > 1 and sequence.tokens[0] == head:
        return Sequence(sequence.tokens, 1, sequence.end, sequence.prefix)
    prefix = None if sequence.prefix is None else sequence.prefix + 1
    return Sequence(array("i", [head]) + sequence.tokens, sequence.split + 1, sequence.end + 1, prefix)


def _fitted(sequence: Sequence, context: int, cut: bool) -> Sequence:
    """Keep the last tokens, as lm-eval does: the last one is never an input, so ``context + 1`` may stay."""
    excess = len(sequence.tokens) - 1 - context
    if excess <= 0:
        return sequence
    if not cut or sequence.start - excess < 1:
        raise DoesNotFit(len(sequence.tokens))
    return Sequence(
        sequence.tokens[excess:],
        sequence.split - excess,
        sequence.end - excess,
        None if sequence.prefix is None else sequence.prefix - excess,
        excess,
    )
