"""How long a run will take, from what this engine has done with this model before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmc.runs.record import RunRecord
from llmc.runs.store import Store

if TYPE_CHECKING:
    from llmc.runs.planned import Cell

RECENT = 50  # newest records looked at


def expected_seconds(cell: Cell) -> float | None:
    """Return the expected wall time of the engine in seconds, None when nothing comparable was run.

    The newest complete run of the same model by the same engine gives tokens per second, load time aside.
    """
    folders = Store(cell.settings.out).folders()[-RECENT:]
    from llmc.errors import LlmcError
    from llmc.runs.record import load_record

    for folder in reversed(folders):
        try:
            record = load_record(folder)
        except LlmcError:
            continue
        if _comparable(record, cell) and record.timings and record.timings.tokens_per_second:
            load = record.timings.load or 0.0
            return load + cell.preflight.total_tokens / record.timings.tokens_per_second
    return None


def _comparable(record: RunRecord, cell: Cell) -> bool:
    return (
        record.model is not None
        and record.model.sha256 == cell.model.sha256
        and record.engine is not None
        and record.engine.identity == cell.engine.probe.identity
        and record.user_flags == cell.settings.user_flags
    )
