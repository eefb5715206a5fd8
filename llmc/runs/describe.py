"""What a planned cell would do, for a dry run: plain data."""

from __future__ import annotations

import shlex
from typing import Any

from llmc.runs.estimate import expected_seconds
from llmc.runs.planned import Cell, ScoredCell


def describe(cell: Cell | ScoredCell) -> dict[str, Any]:
    """Return the exact command, the layout, the memory in bytes and the seconds expected."""
    if isinstance(cell, ScoredCell):
        return {
            "scorer": "logprobs",
            "benchmark": cell.bench.name,
            "tasks": cell.tasks,
            "rule": cell.settings.rule,
            "settings": {**cell.settings.scoring.evaluated(), **cell.settings.scoring.computed()},
            "findings": [f.model_dump(mode="json") for f in cell.findings],
        }
    memory = cell.plan.memory
    command = cell.command()
    return {
        "scorer": "perplexity",
        "benchmark": cell.bench.name,
        "tasks": cell.tasks,
        "command": command,
        "command_line": shlex.join(command),
        "environment_dropped": sorted(cell.engine.environment.dropped),
        "layout": cell.plan.layout(),
        "basis": cell.plan.basis,
        "longest_tokens": cell.preflight.longest_tokens,
        "total_tokens": cell.preflight.total_tokens,
        "memory_bytes": {**memory.__dict__, "total": memory.total},
        "expected_seconds": expected_seconds(cell),
        "excluded": len(cell.excluded),
        "rescored": len(cell.rescored),
        "findings": [f.model_dump(mode="json") for f in cell.findings],
    }
