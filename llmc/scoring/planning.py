"""From token sequences to the batches that evaluate them: a pure function of the sequences and the settings.

A batch holds whole items. Its sequences form a tree over one unified KV cache: tokens that sequences share are decoded
once, and the last token of a sequence, whose successor nobody asks for, never. Where consecutive items share a stem
(a few-shot header, a description, a passage with many questions) and do not fit into one batch together, the stem is
decoded by itself first and kept from batch to batch; stems nest. That a stem has calls of its own makes every batch
repeatable alone, to the bit, which is what resuming rests on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmc.scoring.tree import WIDTH, ItemBranches, Leaves, Limits, Wave, common, lone_waves, waves

MIN_STEM = 16  # tokens: what a stem must save in every batch to be worth a call of its own


@dataclass(frozen=True)
class Batch:
    """Items ``first`` to ``first + items - 1``. ``stems`` are the lengths of the nested stems to be in the cache
    before the waves, each decoded in calls of its own; ``stem`` has the tokens of the longest.
    """

    first: int
    items: int
    stems: tuple[int, ...]
    stem: bytes
    waves: tuple[Wave, ...]

    @property
    def cells(self) -> int:
        """Cells of the cache that the batch needs."""
        return len(self.stem) // WIDTH + max(len(wave.token) for wave in self.waves)

    @property
    def sequences(self) -> int:
        return max(len(wave.shared) for wave in self.waves)


def plan(items: Sequence[ItemBranches], limits: Limits) -> list[Batch]:
    """Return the batches that evaluate ``items`` in order; every item is in exactly one."""
    if not limits.share:
        return [Batch(i, 1, (), b"", lone_waves(item, limits)) for i, item in enumerate(items)]
    return [
        Batch(first, end - first, stems, stem, waves(items[first:end], stem, limits))
        for first, end, stems, stem in _Packing(items, limits).batches()
    ]


def decoded_tokens(batches: Sequence[Batch]) -> int:
    """Return how many tokens the batches decode, stems counted whenever they enter the cache."""
    total, held = 0, Held()
    for batch in batches:
        total += sum(end - begin for begin, end in held.change(batch))
        total += sum(len(wave.token) for wave in batch.waves)
    return total


class Held:
    """The stems that are in the cache."""

    def __init__(self) -> None:
        self.stems: tuple[int, ...] = ()
        self.stem = b""

    def change(self, batch: Batch) -> list[tuple[int, int]]:
        """Take in a batch's stems; return the ranges of tokens to decode. What the cache holds up to the first of
        them, or up to the batch's stem when there is none, stays.
        """
        kept = 0
        for old, new in zip(self.stems, batch.stems, strict=False):
            if old != new or self.stem[: WIDTH * old] != batch.stem[: WIDTH * new]:
                break
            kept += 1
        begin = batch.stems[kept - 1] if kept else 0
        self.stems, self.stem = batch.stems, batch.stem
        ranges = []
        for end in batch.stems[kept:]:
            ranges.append((begin, end))
            begin = end
        return ranges


class _Packing:
    """Cuts the items into batches: what fits stays together, what shares a stem and does not fit gets one."""

    def __init__(self, items: Sequence[ItemBranches], limits: Limits) -> None:
        self.limits = limits
        self.keys = [_key(item) for item in items]
        leaves = [Leaves.of(item.branches()) for item in items]
        self.nodes = [each.nodes() for each in leaves]
        self.widths = [len(each.tokens) for each in leaves]
        self.longest = [max(len(tokens) for tokens in each.tokens) // WIDTH for each in leaves]
        # What an item shares with the one before it.
        self.shared = [0, *(common(a, b) for a, b in itertools.pairwise(self.keys))]

    def batches(self) -> Iterator[tuple[int, int, tuple[int, ...], bytes]]:
        yield from self._pack(0, len(self.keys), ())

    def _pack(self, first: int, end: int, stems: tuple[int, ...]) -> Iterator[tuple[int, int, tuple[int, ...], bytes]]:
        depth = stems[-1] if stems else 0
        if self._fits(first, end, depth):
            yield self._batch(first, end, stems)
            return
        alone = end - first == 1
        if (stem := self._stem(first, end)) >= depth + MIN_STEM and not (alone and self._one_wave(first, depth)):
            stems, depth = (*stems, stem), stem
        if alone:
            yield self._batch(first, end, stems)
            return
        open_from = first
        for begin, stop in self._groups(first, end, depth):
            if self._fits(open_from, stop, depth):
                continue
            if open_from < begin:
                yield self._batch(open_from, begin, stems)
            open_from = begin
            if not self._fits(begin, stop, depth):
                yield from self._pack(begin, stop, stems)
                open_from = stop
        if open_from < end:
            yield self._batch(open_from, end, stems)

    def _batch(self, first: int, end: int, stems: tuple[int, ...]) -> tuple[int, int, tuple[int, ...], bytes]:
        return first, end, stems, self.keys[first][: WIDTH * stems[-1]] if stems else b""

    def _fits(self, first: int, end: int, depth: int) -> bool:
        if sum(self.widths[first:end]) >= self.limits.sequences:
            return False
        shared = depth + sum(max(self.shared[i], depth) for i in range(first + 1, end))
        return sum(self.nodes[first:end]) - shared <= self.limits.tokens

    def _one_wave(self, item: int, depth: int) -> bool:
        most = self.limits.tokens + self.longest[item] - depth
        return self.widths[item] < self.limits.sequences and self.nodes[item] - depth <= most

    def _stem(self, first: int, end: int) -> int:
        return min(self.shared[first + 1 : end], default=len(self.keys[first]) // WIDTH)

    def _groups(self, first: int, end: int, depth: int) -> Iterator[tuple[int, int]]:
        """Cut a range into runs of items that share clearly more than ``depth`` tokens."""
        begin = first
        for i in range(first + 1, end):
            if self.shared[i] < depth + MIN_STEM:
                yield begin, i
                begin = i
        yield begin, end


def _key(item: ItemBranches) -> bytes:
    """What an item may share with others: the common prefix of its branches, short of the first token to score."""
    first = item.main[0].tokens
    most = min(branch.start for branch in item.main) - 1
    for each in item.main[1:]:
        most = min(most, common(first, each.tokens))
    return first[: WIDTH * most]
