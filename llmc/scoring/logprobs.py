"""Log-probabilities from rows of logits, with numpy, in bounded memory."""

from __future__ import annotations

from typing import Any

CHUNK = 1 << 16  # logits worked on at a time: they stay in the processor's cache


def normalizers(logits: Any, rows: Any) -> Any:
    """Return log(sum(exp(logits[row]))) for each of ``rows``, as float64.

    ``logits`` is a float32 matrix (rows x vocabulary) that is only read. The exponentials are of float32, their sum of
    float64: an error of about 1e-7. NaN or +inf in a row gives NaN.
    """
    import numpy as np

    vocabulary = logits.shape[1]
    step = max(1, CHUNK // vocabulary)
    buffer = np.empty((step, vocabulary), np.float32)
    result = np.empty(len(rows), np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        for begin in range(0, len(rows), step):
            chosen = rows[begin : begin + step]
            block = buffer[: len(chosen)]
            block[...] = logits[chosen]
            top = block.max(axis=1, keepdims=True)
            block -= top
            np.exp(block, out=block)
            result[begin : begin + step] = top[:, 0] + np.log(block.sum(axis=1, dtype=np.float64))
    return result


def log_probabilities(logits: Any, rows: Any, tokens: Any) -> Any:
    """Return log p(token) under the softmax of ``logits[row]`` for each pair of ``rows`` and ``tokens``, as float64.

    A row that is asked several times is normalized once.
    """
    import numpy as np

    distinct, place = np.unique(rows, return_inverse=True)
    return logits[rows, tokens].astype(np.float64) - normalizers(logits, distinct)[place]
