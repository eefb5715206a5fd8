"""The tree that a batch's sequences form, as columns for llama_decode.

Tokens are kept as big-endian bytes, so that sorting sequences sorts their tree and a XOR finds common prefixes.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 4  # bytes of a token


@dataclass(frozen=True)
class Limits:
    """What a batch may take.

    ``tokens`` beyond the stem that a batch aims at, and the most of one call; ``outputs`` the most rows of logits of
    one call; ``sequences`` the most in the cache at once, the stem's own included. With ``share`` off every sequence
    is evaluated alone.
    """

    tokens: int
    outputs: int
    sequences: int
    share: bool = True


@dataclass(frozen=True)
class Branch:
    """A sequence to evaluate: the log-probabilities of its tokens from ``start`` on are wanted."""

    tokens: bytes
    start: int

    @property
    def length(self) -> int:
        return len(self.tokens) // WIDTH


def branch(tokens: Sequence[int], start: int) -> Branch:
    """Return the branch of a token sequence; ``start`` is at least 1, since the first token has no prediction."""
    if not 1 <= start < len(tokens):
        raise ValueError(f"token {start} of {len(tokens)} cannot be the first one to score")
    packed = array("i", tokens)
    if sys.byteorder == "little":
        packed.byteswap()
    return Branch(packed.tobytes(), start)


@dataclass(frozen=True)
class ItemBranches:
    """The branches of one item. Only ``main`` ones, which begin with its context, count for what items share."""

    main: tuple[Branch, ...]
    other: tuple[Branch, ...] = ()

    def branches(self) -> tuple[Branch, ...]:
        return self.main + self.other


@dataclass(frozen=True)
class Pick:
    """A run of wanted log-probabilities: of ``tokens`` (int32), predicted at the nodes ``nodes`` of a wave.

    They belong to branch ``branch`` of item ``item`` (both counted within the batch).
    """

    item: int
    branch: int
    nodes: Any
    tokens: Any


@dataclass(frozen=True)
class Wave:
    """One filling of the cache beyond the stem.

    Per token to decode (``node``), as int32 arrays: ``token``, ``position``, and the sequences that it belongs to,
    ``width`` consecutive ones from ``leaf`` on; ``output`` (int8) is 1 where logits are wanted. ``shared`` has, per
    sequence, how many tokens of the stem it begins with. ``calls`` are the
    ranges of tokens that go into one call of llama_decode.
    """

    token: Any
    position: Any
    leaf: Any
    width: Any
    output: Any
    shared: tuple[int, ...]
    calls: tuple[tuple[int, int], ...]
    picks: tuple[Pick, ...]


def common(a: bytes, b: bytes) -> int:
    """Return how many leading tokens two packed sequences share."""
    length = min(len(a), len(b))
    a, b = a[:length], b[:length]
    if a == b:
        return length // WIDTH
    difference = int.from_bytes(a, "big") ^ int.from_bytes(b, "big")
    return (8 * length - difference.bit_length()) // (8 * WIDTH)


@dataclass(frozen=True)
class Leaves:
    """The decoded parts of branches as a tree: sorted, none a prefix of another. ``shared[k]`` is what leaf k has in
    common with leaf k - 1.
    """

    tokens: list[bytes]
    shared: list[int]

    @classmethod
    def of(cls, branches: Sequence[Branch]) -> Leaves:
        tokens: list[bytes] = []
        for each in sorted({branch.tokens[:-WIDTH] for branch in branches}):
            if tokens and each.startswith(tokens[-1]):
                tokens[-1] = each  # a prefix sorts right before what it begins
            else:
                tokens.append(each)
        return cls(tokens, [0, *(common(a, b) for a, b in itertools.pairwise(tokens))])

    def nodes(self) -> int:
        """Distinct tokens to decode."""
        return sum(len(tokens) // WIDTH - shared for tokens, shared in zip(self.tokens, self.shared, strict=True))


def waves(items: Sequence[ItemBranches], stem: bytes, limits: Limits) -> tuple[Wave, ...]:
    wanted = [(i, p, branch) for i, item in enumerate(items) for p, branch in enumerate(item.branches())]
    # No token may come from a stem whose successor is to be scored; only texts without the question ever meet this.
    usable = [branch.start - 1 for _, _, branch in wanted if common(branch.tokens, stem) >= branch.start]
    stem = stem[: WIDTH * min(usable)] if usable else stem
    leaves = Leaves.of([branch for _, _, branch in wanted])
    held = [common(leaf, stem) for leaf in leaves.tokens]
    return tuple(
        _wave(leaves.tokens[begin:end], held[begin:end], wanted, limits) for begin, end in _parts(leaves, held, limits)
    )


def _parts(leaves: Leaves, held: list[int], limits: Limits) -> Iterator[tuple[int, int]]:
    """Cut the leaves into waves: one, unless a single item is too large for that."""
    lengths = [len(leaf) // WIDTH - depth for leaf, depth in zip(leaves.tokens, held, strict=True)]
    most = limits.tokens + max(lengths)
    begin = total = 0
    for k in range(len(lengths)):
        shared = max(0, leaves.shared[k] - held[k])
        if k > begin and (k - begin >= limits.sequences - 1 or total + lengths[k] - shared > most):
            yield begin, k
            begin, total, shared = k, 0, 0
        total += lengths[k] - shared
    yield begin, len(lengths)


def lone_waves(item: ItemBranches, limits: Limits) -> tuple[Wave, ...]:
    wanted = [(0, p, branch) for p, branch in enumerate(item.branches())]
    return tuple(_wave([leaf], [0], wanted, limits) for leaf in Leaves.of(item.branches()).tokens)


def _wave(leaves: list[bytes], held: list[int], wanted: list[tuple[int, int, Branch]], limits: Limits) -> Wave:
    import numpy as np

    shared = [0, *(common(a, b) for a, b in itertools.pairwise(leaves))]
    token, position, leaf, width, nodes = [], [], [], [], []
    count = 0
    previous = np.empty(0, np.int32)
    for k, packed in enumerate(leaves):
        tokens = np.frombuffer(packed, ">i4")
        depth = held[k]
        known = max(shared[k], depth)
        new = len(tokens) - known
        # Nodes are counted from the leaf's own stem on; leaves that share more than it have the same stem.
        own = np.arange(count, count + new, dtype=np.int32)
        previous = np.concatenate((previous[: known - depth], own))
        nodes.append(previous)
        token.append(tokens[known:].astype(np.int32))
        position.append(np.arange(known, len(tokens), dtype=np.int32))
        leaf.append(np.full(new, k, np.int32))
        width.append(_widths(shared, k, known, new))
        count += new
    output = np.zeros(count, np.int8)
    picks = tuple(_picks(leaves, held, nodes, wanted))
    for pick in picks:
        output[pick.nodes] = 1
    return Wave(
        token=np.concatenate(token),
        position=np.concatenate(position),
        leaf=np.concatenate(leaf),
        width=np.concatenate(width),
        output=output,
        shared=tuple(held),
        calls=_calls(output, limits),
        picks=picks,
    )


def _widths(shared: list[int], k: int, known: int, new: int) -> Any:
    """For the new tokens of leaf k: how many leaves from k on run through each."""
    import numpy as np

    width = np.ones(new, np.int32)
    through = known + new
    for depth in shared[k + 1 :]:
        through = min(through, depth)
        if through <= known:
            break
        width[: through - known] += 1
    return width


def _picks(
    leaves: list[bytes], held: list[int], nodes: list[Any], wanted: list[tuple[int, int, Branch]]
) -> Iterator[Pick]:
    import numpy as np

    for item, number, branch in wanted:
        decoded = branch.tokens[:-WIDTH]
        k = bisect_left(leaves, decoded)
        if k == len(leaves) or not leaves[k].startswith(decoded):
            continue  # in another wave
        begin = branch.start - 1 - held[k]
        yield Pick(
            item,
            number,
            nodes[k][begin : len(decoded) // WIDTH - held[k]],
            np.frombuffer(branch.tokens, ">i4")[branch.start :].astype(np.int32),
        )


def _calls(output: Any, limits: Limits) -> tuple[tuple[int, int], ...]:
    """Cut the tokens of a wave into calls of nearly equal length, within the limits on tokens and outputs."""
    import numpy as np

    count = len(output)
    rows = np.concatenate(([0], np.cumsum(output)))
    parts = -(-count // limits.tokens)
    while True:
        calls = spans(count, parts)
        if all(rows[end] - rows[begin] <= limits.outputs for begin, end in calls):
            return calls
        parts += 1


def spans(count: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Cut ``count`` things into ``parts`` runs of nearly equal length."""
    return tuple((count * i // parts, count * (i + 1) // parts) for i in range(parts))
