"""One launch of llama-perplexity: the process, what it printed, and the audit of both.

llama.cpp hands its lines to a logger thread with a queue of 512 entries and does not wait for it at the end
(since build 8980): on a busy machine the last lines of a run, or all lines of a short one, can be lost
although every task was scored and the exit status is 0. Such a run cannot be trusted, and nothing is wrong with
it, so it is launched again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmc.engine.audit import Audit, audit
from llmc.engine.case import lost_its_tail
from llmc.engine.process import Limits, Outcome, run_process
from llmc.engine.transcript import Transcript, TranscriptParser
from llmc.findings import Finding
from llmc.mcbin import BinFacts

OnRows = Callable[[int], None]
EXTRA_ROWS = 1000  # rows kept beyond the expected ones, as evidence of too many
ATTEMPTS, QUICK_ATTEMPTS = 3, 15
QUICK_SECONDS = 20.0  # in all: a tiny run on a busy machine loses its lines one time in four
RETRY_SECONDS = 600.0  # a launch that took longer is not repeated without being asked


@dataclass(frozen=True)
class Launch:
    """``attempts`` is above 1 when the output of earlier ones was cut off at their exit."""

    outcome: Outcome
    transcript: Transcript
    audit: Audit
    attempts: int = 1

    def not_interrupted(self) -> Launch:
        """Return this launch; KeyboardInterrupt where it was ended by a request of the user's.

        For launches that only prepare a run: what they would say of the engine or the model is not known.
        """
        if self.outcome.ended_by == "interrupted":
            raise KeyboardInterrupt
        return self


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
    changed). The logs are those of the last attempt.
    """
    spent = 0.0
    for attempt in range(1, QUICK_ATTEMPTS + 1):
        parser = TranscriptParser(max_rows=facts.tasks + EXTRA_ROWS)
        parser.expected = facts.tasks
        outcome = run_process(
            command,
            stdout_log=stdout_log,
            stderr_log=stderr_log,
            env=environment,
            limits=limits,
            on_output=_feeder(parser, on_rows),
            said_everything=lambda parser=parser: parser.said_everything,  # type: ignore[misc]
        )
        transcript = parser.close()
        spent += outcome.seconds
        tried = attempt == QUICK_ATTEMPTS or (attempt >= ATTEMPTS and spent > QUICK_SECONDS)
        enough = tried or outcome.seconds >= RETRY_SECONDS
        if enough or not lost_its_tail(transcript, outcome, facts.tasks):
            break
    extra = after() if after is not None else []
    verdict = audit(transcript, facts=facts, outcome=outcome, golds=golds, extra=extra, limits=limits)
    return Launch(outcome, transcript, verdict, attempt)


def _feeder(parser: TranscriptParser, on_rows: OnRows | None) -> Callable[[str, bytes], None]:
    seen = 0

    def feed(stream: str, data: bytes) -> None:
        nonlocal seen
        parser.feed("stdout" if stream == "stdout" else "stderr", data)
        if on_rows is not None and parser.rows != seen:
            seen = parser.rows
            on_rows(seen)

    return feed
