"""What a cell would take, without running it."""

from __future__ import annotations

from typing import Any

from llmc.errors import LlmcError
from llmc.runs.estimate import expected_seconds
from llmc.runs.planned import Cell
from llmc.sweep.matrix import CellSpec
from llmc.sweep.work import Workshop, describe


def preview_cell(cell: CellSpec, workshop: Workshop) -> dict[str, Any]:
    """Return a cell's name, whether its run is in the store, and the disk, memory and time it needs."""
    found: dict[str, Any] = {
        "cell": cell.id,
        "model": cell.model.name,
        "benchmark": cell.bench_name,
        "axes": dict(cell.axes),
        "scorer": cell.engine.scorer,
        "flags": list(cell.engine.flags),
        "cached": False,
        "disk_bytes": 0,
        "memory_bytes": None,
        "tasks": None,
        "expected_seconds": None,
        "error": None,
    }
    try:
        planned = workshop.plan(cell, workshop.planned_model(cell.model))
        found["cached"] = workshop.known_run(planned) is not None
        found["tasks"] = planned.tasks
        if isinstance(planned, Cell):
            found["memory_bytes"] = planned.plan.memory.total
            found["expected_seconds"] = expected_seconds(planned)
        if cell.model.recipe is not None and not found["cached"]:
            base = workshop.file(cell.model.ref)
            quantized = workshop.quantized()
            there = quantized.path(cell.model, base).is_file()
            found["disk_bytes"] = 0 if there else quantized.size(cell.model, base)
    except LlmcError as error:
        found["error"] = describe(error)
    return found
