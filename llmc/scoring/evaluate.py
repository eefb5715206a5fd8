"""Run a planned batch through a context, and put the log-probabilities back where they belong."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from llmc.benchmarks.item import Item
from llmc.scoring.logprobs import log_probabilities
from llmc.scoring.planning import Batch
from llmc.scoring.results import ScoredItem, ScoredOption, lengths
from llmc.scoring.tokens import Sequence, Tokenized
from llmc.scoring.tree import ItemBranches, Wave, branch


class Evaluator(Protocol):
    """What evaluates tokens (``native.Context``)."""

    def enter(self, batch: Batch) -> int: ...
    def wave(self, wave: Wave) -> None: ...
    def call(self, wave: Wave, begin: int, end: int) -> Any: ...


def branches(item: Tokenized) -> ItemBranches:
    """Return what of an item has to be evaluated."""
    main = tuple(branch(each.tokens, each.start) for each in item.options)
    return ItemBranches(main, tuple(branch(each.tokens, each.start) for each in item.uncond or ()))


def evaluate(batch: Batch, items: list[Tokenized], context: Evaluator) -> tuple[list[list[Any]], int]:
    """Return, per item of the batch and per sequence, the log-probabilities of its tokens from ``start`` on (float64);
    and the number of tokens decoded for them.
    """
    found: list[list[Any]] = [[None] * len(item.sequences()) for item in items]
    decoded = context.enter(batch)
    for wave in batch.waves:
        context.wave(wave)
        values = _wave_values(wave, context)
        begin = 0
        for pick in wave.picks:
            found[pick.item][pick.branch] = values[begin : begin + len(pick.tokens)]
            begin += len(pick.tokens)
        decoded += len(wave.token)
    return found, decoded


def _wave_values(wave: Wave, context: Evaluator) -> Any:
    """Return the log-probabilities of all picks of a wave, one behind the other."""
    rows_before = np.concatenate(([0], np.cumsum(wave.output, dtype=np.int64)))
    rows = rows_before[np.concatenate([pick.nodes for pick in wave.picks])]
    tokens = np.concatenate([pick.tokens for pick in wave.picks])
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    values = np.empty(len(rows), np.float64)
    for begin, end in wave.calls:
        logits = context.call(wave, begin, end)
        chosen = order[slice(*np.searchsorted(ascending, rows_before[[begin, end]]))]
        if len(chosen):
            values[chosen] = log_probabilities(logits, rows[chosen] - rows_before[begin], tokens[chosen])
    return values


def score(item: Item, tokenized: Tokenized, values: list[Any], batch: int) -> ScoredItem:
    """Return an item's figures from the log-probabilities of its sequences."""
    count = len(tokenized.options)
    options = []
    for i, (sequence, found) in enumerate(zip(tokenized.options, values[:count], strict=True)):
        mean = length = None
        if sequence.prefix is not None:
            past = found[sequence.prefix - sequence.start :]
            mean, length = float(past.sum()) / len(past), len(past)
        options.append(
            ScoredOption(
                sum_logprob=_sum(sequence, found),
                tokens=sequence.end - sequence.split,
                **lengths(item.continuations[i]),
                llama_mean=mean,
                llama_tokens=length,
                uncond_sum_logprob=_sum(tokenized.uncond[i], values[count + i]) if tokenized.uncond else None,
                dropped=sequence.dropped,
            )
        )
    return ScoredItem(item.index, item.id, item.gold, batch, tuple(options))


def _sum(sequence: Sequence, found: Any) -> float:
    return float(found[sequence.split - sequence.start : sequence.end - sequence.start].sum())
