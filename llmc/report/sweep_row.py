"""One cell of a sweep as reports see it."""

from __future__ import annotations

from dataclasses import dataclass

from llmc.findings import Finding
from llmc.judge.answers import Given
from llmc.judge.compare import Pair
from llmc.judge.gate import Case
from llmc.runs.record import Result, RunRecord
from llmc.runs.sweep_map import CellState


@dataclass(frozen=True)
class Row:
    """One cell. ``pair`` compares it with its baseline, ``unpaired`` says why it cannot be compared.

    ``cases`` are what the gate said of it. Only a trusted cell has a ``result``.
    """

    id: str
    cell: CellState
    run: Given
    is_baseline: bool
    pair: Pair | None = None
    unpaired: str = ""
    cases: tuple[Case, ...] = ()

    @property
    def label(self) -> str:
        return self.run.label

    @property
    def record(self) -> RunRecord | None:
        return self.run.record

    @property
    def trusted(self) -> bool:
        return self.run.trusted

    @property
    def result(self) -> Result | None:
        return self.record.result if self.record and self.trusted else None

    @property
    def status(self) -> str:
        return "trusted" if self.trusted else self.cell.status if self.cell.status != "trusted" else "failed"

    @property
    def errors(self) -> tuple[Finding, ...]:
        found = self.record.findings if self.record else ()
        return tuple(each for each in found if each.severity == "error")

    @property
    def problem(self) -> str:
        """Why there is no score: the findings, or what kept a run from being made; empty for a trusted cell."""
        if self.trusted:
            return ""
        if self.cell.error:
            return self.cell.error["message"]
        return "; ".join(f"{each.slug}: {each.detail}" for each in self.errors) or self.run.problem

    @property
    def remedy(self) -> str:
        if self.cell.error:
            return self.cell.error.get("remedy", "")
        return self.errors[0].remedy if self.errors else "run `llmc sweep` again" if not self.trusted else ""

    @property
    def verdict(self) -> str:
        """The gate's word where it has one, else the run's own."""
        words = dict.fromkeys(case.outcome for case in self.cases if case.outcome != "skipped")
        return ", ".join(words) if words and self.trusted else self.status
