"""Which questions of a benchmark a run takes, when it does not take all."""

from __future__ import annotations

import random
from collections.abc import Sequence

from llmc.errors import UsageError


def seeded_sample(tasks: int, count: int, seed: int) -> list[int]:
    """Return ``count`` of ``tasks`` indices in file order; a larger sample of one seed contains a smaller one."""
    order = list(range(tasks))
    random.Random(seed).shuffle(order)
    return sorted(order[:count])


def like_llama(tasks: int, count: int) -> list[int]:
    """Return the indices, in order, that llama.cpp's ``--multiple-choice-tasks count`` picks.

    perplexity.cpp draws from mt19937(1) in single precision: with scale = 1/(1 + float(max)) it takes
    j = int(scale * rng() * remaining), uses entry j and puts the last entry in its place.
    """
    import numpy as np

    # RandomState(1) seeds as std::mt19937(1) does; its bytes are the generator's raw 32-bit outputs in order.
    draws = np.frombuffer(np.random.RandomState(1).bytes(4 * count), dtype="<u4").astype(np.float32)
    scale = np.float32(1) / (np.float32(1) + np.float32(4294967295))
    left = list(range(tasks))
    picked = []
    for draw in draws * scale:
        j = int(draw * np.float32(len(left)))
        if j >= len(left):  # a draw that rounds up to 1: llama.cpp would read past the end here
            raise UsageError(f"llama.cpp's own selection of {count} questions is undefined here", "choose another N")
        picked.append(left[j])
        left[j] = left[-1]
        left.pop()
    return picked


def document_sample(tasks: int, count: int, seed: int) -> list[int]:
    """Return ``count`` of ``tasks`` indices as olmes draws documents, in the order drawn; all, in order, if as many.

    olmes: ``random.Random(random_subsample_seed).sample(documents, limit)``, the seed being 1234 unless changed.
    """
    if count >= tasks:
        return list(range(tasks))
    return random.Random(seed).sample(range(tasks), count)


def even_sample(groups: Sequence[str | None], count: int, seed: int) -> list[int]:
    """Return ``count`` indices in file order, as many of each group as of any other as far as the groups go.

    Where it does not divide, the smallest groups that have enough give one more (of equal ones the first).
    """
    places: dict[str | None, list[int]] = {}
    for index, group in enumerate(groups):
        places.setdefault(group, []).append(index)
    chosen: list[int] = []
    left = count
    smallest_first = sorted(places.values(), key=len)
    for number, own in enumerate(smallest_first):
        share = min(len(own), -(-left // (len(smallest_first) - number)))
        chosen += [own[i] for i in seeded_sample(len(own), share, seed)]
        left -= share
    return sorted(chosen)
