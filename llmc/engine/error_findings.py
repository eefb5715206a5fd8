"""The engine's own error lines as findings."""

from __future__ import annotations

from collections.abc import Iterator

from llmc.engine.case import Case, number
from llmc.engine.lines import ErrorLine
from llmc.findings import Finding, finding

# Error lines by which llama.cpp says that it cannot read the tasks.
BROKEN_FILE = frozenset({"no-tasks", "task-positions", "read-task", "malformed-tasks", "bad-task"})
QUOTED_LINES = 3


def error_findings(case: Case) -> Iterator[Finding]:
    """The engine's own errors: the specific finding where there is one, then the lines themselves."""
    lines = list(dict.fromkeys(case.transcript.error_lines))
    for line in lines:
        if line.kind == "options":
            yield finding("too-many-options", f"{case.progress}; {_options_needed(case, line)}")
        elif line.kind == "context":
            yield finding("context-too-small", f"{case.progress}; {_context_needed(case, line)}")
        elif line.kind in BROKEN_FILE and case.facts is None and not case.known_broken:
            yield finding("bad-binary", f"the engine could not read it: {line.text}")
    if lines:
        more = f"; and {len(lines) - QUOTED_LINES} more" if len(lines) > QUOTED_LINES else ""
        quoted = "; ".join(line.text for line in lines[:QUOTED_LINES])
        yield finding("error-line", f"{quoted}{more}{_hint(case, lines)}")


def _options_needed(case: Case, line: ErrorLine) -> str:
    there = f", there were {case.transcript.n_seq_max}" if case.transcript.n_seq_max else ""
    needed = f"{line.needed} sequences (-np {line.needed})" if line.needed else "more sequences (-np)"
    return f"stopped at task {line.task}, counted from 0, which needs {needed}{there}"


def _context_needed(case: Case, line: ErrorLine) -> str:
    total = case.transcript.n_ctx
    there = f", the context holds {number(total)}" if total else ""
    if line.needed:
        needs = f"needs {number(line.needed)} tokens{there}"
    else:
        needs = f"does not fit{there} (builds of March to August 2025 say so of too many options for -np too)"
    return f"stopped at task {line.task}, counted from 0, which {needs}"


def _hint(case: Case, lines: list[ErrorLine]) -> str:
    kinds = {line.kind for line in lines}
    if kinds & BROKEN_FILE and case.facts is not None:
        return ". The file is whole, so the engine was given other bytes: escapes were on (-e), or -f was used"
    if kinds & {"coupled-sequences", "memory-slot"}:
        return ". Builds of August 2025 to March 2026 need -kvu; recurrent models cannot run at all"
    return ""
