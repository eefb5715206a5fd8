"""Right or wrong, task by task, from the running accuracy.

llama.cpp prints ``100.*correct/done`` with 8 decimals after every task, so each row holds a whole number
of right answers: with n tasks done, neighbours k/n and (k+1)/n are 1e10/n printed units apart, more than the
half unit lost in print up to n = 1e10.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmc.engine.lines import UNITS

if TYPE_CHECKING:
    from llmc.engine.transcript import Transcript

# Half a printed unit, and a little for 100.*k/n itself: two roundings of a double, 1e-6 of a unit.
SLACK = 0.5 + 1e-5
FLOAT32_ROUNDING = 2.0**-24
_IMPOSSIBLE = "not a whole number of right answers, or not 0 or 1 more than in the row before"
_ZERO = ord("0")
PRINTED_ROUNDING = 0.00005  # "%.4f"


@dataclass(frozen=True)
class RowEvidence:
    """What the rows say: how many there are, how many right, and where they are wrong in themselves.

    ``correct`` has a 0 or 1 for each row, and ``right`` counts the ones; None and 0 where ``gap`` or
    ``impossible`` says why not.
    """

    count: int
    right: int
    correct: str | None
    gap: str = ""
    impossible: str = ""

    @property
    def sound(self) -> bool:
        return self.correct is not None


def summary_tolerance(percent: float) -> float:
    """Return how far a printed summary may be from its true value, in percent; below 0.0001.

    llama.cpp computes ``100.f*p`` with ``p = 1.f*k/n`` in float32: at most four roundings (k and n beyond
    2**24 are rounded too), each by a factor within 1 +- 2**-24, and then prints 4 decimals.
    """
    return PRINTED_ROUNDING + 4.1 * FLOAT32_ROUNDING * abs(percent)


def read_rows(transcript: Transcript) -> RowEvidence:
    """Return what the task lines of a transcript say when taken as one run of 1, 2, 3, ... tasks."""
    # In plain integers: to import numpy takes longer than to go through 100,000 rows.
    count = len(transcript.row_numbers)
    if count == 0:
        return RowEvidence(0, 0, "")
    if transcript.rows_total > count:
        return RowEvidence(count, 0, None, gap=f"only the first {count:,} rows were kept")
    counting = array("q", range(1, count + 1))
    if transcript.row_numbers != counting:
        wrong = next(i for i, number in enumerate(transcript.row_numbers) if number != i + 1)
        return RowEvidence(count, 0, None, gap=_gap(wrong, list(transcript.row_numbers[: wrong + 1])))
    correct = bytearray()
    right = 0
    for done, printed in zip(counting, transcript.accuracies, strict=True):
        now = (printed * done + UNITS // 2) // UNITS
        if abs(printed * done - now * UNITS) > SLACK * done or not 0 <= now - right <= 1:
            return RowEvidence(count, 0, None, impossible=f"row {done:,}: {_IMPOSSIBLE}")
        correct.append(_ZERO + now - right)
        right = now
    return RowEvidence(count, right, correct.decode("ascii"))


def _gap(at: int, numbers: list[int]) -> str:
    if at == 0:
        return f"the rows begin with {numbers[0]:,}"
    return f"after row {numbers[-2]:,} comes row {numbers[-1]:,}"
