"""A stand-in for a context of libllama: it keeps a cache by llama.cpp's rules and breaks where those are broken."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from llmc.scoring.planning import Batch, Held
from llmc.scoring.tree import WIDTH, Limits, Wave

VOCABULARY = 11


def logits(prefix: tuple[int, ...]) -> Any:
    """The logits after a prefix: any function of all its tokens and nothing else will do."""
    digest = hashlib.sha256(repr(prefix).encode()).digest()
    return np.frombuffer(digest[:VOCABULARY], np.uint8).astype(np.float32) / 16


def log_probability(prefix: tuple[int, ...], token: int) -> float:
    row = logits(prefix).astype(np.float64)
    return float(row[token] - np.log(np.exp(row).sum()))


class FakeCache:
    """``decoded`` counts how often each prefix was decoded, ``most_cells`` the most cells held at once."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.base = 1 if limits.share else 0
        self.cells: list[tuple[int, int, set[int]]] = []  # position, token, sequences
        self.decoded: list[tuple[int, ...]] = []
        self.calls: list[list[tuple[int, ...]]] = []
        self.most_cells = 0
        self.held = Held()

    # ---- the cache

    def prefix(self, sequence: int) -> tuple[int, ...]:
        mine = sorted((position, token) for position, token, members in self.cells if sequence in members)
        assert [position for position, _ in mine] == list(range(len(mine))), "positions are not consecutive"
        return tuple(token for _, token in mine)

    def remove(self, sequence: int, begin: int = 0) -> None:
        for position, _, members in self.cells:
            if position >= begin:
                members.discard(sequence)
        self.cells = [cell for cell in self.cells if cell[2]]

    def decode(self, columns: list[tuple[int, int, list[int]]]) -> list[tuple[int, ...]]:
        assert 0 < len(columns) <= self.limits.tokens
        before = {s: len(self.prefix(s)) for _, _, members in columns for s in members}
        for _, _, members in columns:
            assert len({before[s] for s in members}) == 1, "coupled sequences have diverged"
        prefixes = []
        for token, position, members in columns:
            assert members and max(members) < self.limits.sequences
            for s in members:
                assert len(self.prefix(s)) == position, "a position is out of turn"
            self.cells.append((position, token, set(members)))
            (prefix,) = {self.prefix(s) for s in members}
            prefixes.append(prefix)
        self.decoded += prefixes
        self.calls.append(prefixes)
        self.most_cells = max(self.most_cells, len(self.cells))
        return prefixes

    # ---- what evaluate() asks of a context

    def enter(self, batch: Batch) -> int:
        self._drop_leaves()
        ranges = self.held.change(batch)
        self.remove(0, ranges[0][0] if ranges else (batch.stems[-1] if batch.stems else 0))
        stem = [int(t) for t in np.frombuffer(batch.stem, ">i4")]
        for begin, end in ranges:
            for at in range(begin, end, self.limits.tokens):
                piece = range(at, min(end, at + self.limits.tokens))
                self.decode([(stem[i], i, [0]) for i in piece])
        return sum(end - begin for begin, end in ranges)

    def wave(self, wave: Wave) -> None:
        self._drop_leaves()
        for sequence, depth in enumerate(wave.shared, self.base):
            for position, _, members in self.cells:
                if 0 in members and position < depth and self.base:
                    members.add(sequence)

    def call(self, wave: Wave, begin: int, end: int) -> Any:
        columns = [
            (
                int(wave.token[i]),
                int(wave.position[i]),
                [int(wave.leaf[i]) + self.base + k for k in range(int(wave.width[i]))],
            )
            for i in range(begin, end)
        ]
        prefixes = self.decode(columns)
        rows = [logits(prefix) for prefix, wanted in zip(prefixes, wave.output[begin:end], strict=True) if wanted]
        assert len(rows) <= self.limits.outputs
        return np.array(rows, np.float32).reshape(-1, VOCABULARY)

    def _drop_leaves(self) -> None:
        for sequence in range(self.base, self.limits.sequences):
            self.remove(sequence)


def tokens_of(packed: bytes) -> tuple[int, ...]:
    assert len(packed) % WIDTH == 0
    return tuple(int(token) for token in np.frombuffer(packed, ">i4"))
