"""One launch of llama-perplexity: the process, what it printed, and the audit of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmc.engine.audit import Audit, audit
from llmc.engine.process import Limits, Outcome, run_process
from llmc.engine.transcript import Transcript, TranscriptParser
from llmc.findings import Finding
from llmc.mcbin import BinFacts

OnRows = Callable[[int], None]
EXTRA_ROWS = 1000  # rows kept beyond the expected ones, as evidence of too many


@dataclass(frozen=True)
class Launch:
    outcome: Outcome
    transcript: Transcript
    audit: Audit


def launch(
    command: Sequence[str],
    *,
    facts: BinFacts,
    golds: bytes | None,
    stdout_log: Path,
    stderr_log: Path,
    environment: Mapping[str, str],
    limits: Limits,
    on_rows: OnRows | None = None,
    after: Callable[[], list[Finding]] | None = None,
) -> Launch:
    """Run one command to its end and audit it against the benchmark file's facts.

    ``golds`` holds the gold index of every task, one byte each; ``on_rows`` is called with the number of tasks
    scored so far; ``after`` runs when the process has ended and returns what else was found (files that
    changed).
    """
    parser = TranscriptParser(max_rows=facts.tasks + EXTRA_ROWS)
    parser.expected = facts.tasks
    seen = 0

    def on_output(stream: str, data: bytes) -> None:
        nonlocal seen
        parser.feed("stdout" if stream == "stdout" else "stderr", data)
        if on_rows is not None and parser.rows != seen:
            seen = parser.rows
            on_rows(seen)

    outcome = run_process(
        command,
        stdout_log=stdout_log,
        stderr_log=stderr_log,
        env=environment,
        limits=limits,
        on_output=on_output,
        said_everything=lambda: parser.said_everything,
    )
    transcript = parser.close()
    extra = after() if after is not None else []
    return Launch(outcome, transcript, audit(transcript, facts=facts, outcome=outcome, golds=golds, extra=extra))
