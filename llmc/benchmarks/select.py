"""Which questions of a benchmark a run takes, when it does not take all."""

from __future__ import annotations

import random

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
