"""What an audit looks at: the output, the file, how the process ended, and what was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmc.engine.rows import RowEvidence

if TYPE_CHECKING:
    from llmc.engine.process import Limits, Outcome
    from llmc.engine.transcript import Transcript
    from llmc.mcbin import BinFacts

LOGGER_QUEUE = 512  # entries of llama.cpp's log queue: no more lines can be lost at exit


@dataclass(frozen=True)
class Case:
    """Everything one audit looks at, told apart from what it concludes."""

    transcript: Transcript
    facts: BinFacts | None
    outcome: Outcome | None
    subset: int | None
    limits: Limits | None
    rows: RowEvidence
    known_broken: bool = False

    @property
    def expected(self) -> int | None:
        """Tasks that had to be scored: as asked where that is known, else as the engine announced."""
        if self.subset is not None:
            return self.subset
        if self.facts is not None:
            return self.facts.tasks
        said = self.transcript
        if said.selected:
            return said.selected[-1][0]
        return said.announced[-1] if said.announced else None

    @property
    def complete(self) -> bool:
        return self.rows.sound and self.expected == self.transcript.rows_total == self.rows.count > 0

    @property
    def progress(self) -> str:
        """How many tasks were scored, in words."""
        scored, expected = self.transcript.rows_total, self.expected
        if expected is None:
            return f"{counted(scored, 'task')} scored"
        return f"{number(scored)} of {counted(expected, 'task')} scored"


def selection(subset: int | None, tasks: int | None) -> int | None:
    """Return how many tasks ``--multiple-choice-tasks`` selects, None when it is all of them.

    As llama.cpp has it, 0 or less and as many as the file holds, or more, are all; ``tasks`` is None when the file is
    not known.
    """
    if subset is None or subset <= 0 or (tasks is not None and subset >= tasks):
        return None
    return subset


def counted(value: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun."""
    return f"{number(value)} {singular if value == 1 else plural or singular + 's'}"


def number(value: int) -> str:
    """Return a number with its thousands marked."""
    return f"{value:,}"


def lost_its_tail(transcript: Transcript, outcome: Outcome | None, tasks: int) -> bool:
    """True when a run ended well by itself, said nothing wrong, and only its last lines are missing."""
    return (
        outcome is not None
        and outcome.exit_code == 0
        and outcome.ended_by == "itself"
        and not outcome.left_children
        and not transcript.error_lines
        and not transcript.finals
        and 0 < tasks - transcript.rows_total <= LOGGER_QUEUE
    )
