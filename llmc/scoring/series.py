"""Several jobs by one worker, with the model loaded once; each is judged and put away when its turn is over."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Protocol

from llmc.engine.binding import Binding
from llmc.engine.gguf_model import ModelFacts
from llmc.engine.process import Limits, Outcome, Stream, run_process
from llmc.errors import RefusedError
from llmc.scoring.audit import LONGEST_LINE, Auditor
from llmc.scoring.items import chosen_items
from llmc.scoring.job import Job
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import (
    DEFAULT_LIMITS,
    JOB_FILE,
    STDERR_LOG,
    STDOUT_LOG,
    Scored,
    refused,
    worker_command,
    worker_environment,
    write_job,
)


class Turn(Protocol):
    """A job, the folder for it and its logs, and what hears of it.

    ``begin`` is called when its turn comes, ``take`` with each answer that stands, in order, then either ``finish`` or,
    for a job that cannot be done as it is, ``refuse``.
    """

    job: Job
    folder: Path

    def begin(self) -> None: ...
    def take(self, item: ScoredItem) -> None: ...
    def finish(self, scored: Scored) -> None: ...
    def refuse(self, error: RefusedError) -> None: ...


# While a job is over and the worker goes on, its exit status is not known; that it went on says that all was well.
_WENT_ON = Outcome(exit_code=0, signal=None, ended_by="itself", left_children=0, seconds=0.0, peak_rss=None)


def score_series(turns: Sequence[Turn], model: ModelFacts, binding: Binding, *, limits: Limits = DEFAULT_LIMITS) -> int:
    """Do the jobs in order by one worker; return how many had their turn.

    These are all of them, unless the worker ended early: the last one to have its turn is then the one that went
    wrong, and those after it were not begun. The settings of all jobs name the same model layers. Raises what
    ``score_items`` raises, but for RefusedError, which the turn hears of, and what the turns raise.
    """
    series = _Series(turns, model, limits)
    with tempfile.TemporaryDirectory(prefix="llmc-series-") as name, series:
        folder = Path(name)
        outcome = run_process(
            worker_command(model, [turn.folder / JOB_FILE for turn in turns]),
            stdout_log=folder / STDOUT_LOG,
            stderr_log=folder / STDERR_LOG,
            env=worker_environment(binding),
            cwd=folder,
            limits=limits,
            on_output=series.hear,
            said_everything=lambda: series.finished,
        )
        series.end(outcome)
    return series.number + 1


class _Series:
    """Gives what the worker says to the turn that it is about."""

    def __init__(self, turns: Sequence[Turn], model: ModelFacts, limits: Limits) -> None:
        self.turns, self.limits = turns, limits
        self.jobs = [write_job(turn.job, model, turn.folder) for turn in turns]
        self.number = -1
        self.finished = False
        self._partial = b""
        self._logs: dict[Stream, IO[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Series:
        self._next()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def _next(self) -> None:
        self.number += 1
        turn, job = self.turns[self.number], self.jobs[self.number]
        self._stack.close()
        for stream, log in (("stdout", STDOUT_LOG), ("stderr", STDERR_LOG)):
            self._logs[stream] = self._stack.enter_context((turn.folder / log).open("wb"))  # type: ignore[index]
        self.began = time.monotonic()
        self.auditor = Auditor(chosen_items(job.items, job.indices), turn.take, lambda message: None)
        turn.begin()

    def hear(self, stream: Stream, data: bytes) -> None:
        if stream == "stderr":
            self._logs[stream].write(data)
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._said(line + b"\n")
        if len(self._partial) > LONGEST_LINE:
            rest, self._partial = self._partial, b""
            self._said(rest)

    def _said(self, line: bytes) -> None:
        self._logs["stdout"].write(line)
        self.auditor.feed(line)
        self.finished = self.auditor.finished
        if self.auditor.final is not None and self.auditor.wrong is None and self.number + 1 < len(self.turns):
            self.finished = False
            self._put_away(_WENT_ON, exit_code=None)
            self._next()

    def end(self, outcome: Outcome) -> None:
        """Put the last turn away, with the worker's own end."""
        self._said(self._partial)
        if (refusal := refused(self.auditor, self.jobs[self.number])) is not None:
            self.turns[self.number].refuse(refusal)
        else:
            self._put_away(outcome, exit_code=outcome.exit_code)

    def _put_away(self, outcome: Outcome, *, exit_code: int | None) -> None:
        for log in self._logs.values():
            log.flush()
        auditor = self.auditor
        scored = Scored(
            outcome=replace(outcome, exit_code=exit_code, seconds=time.monotonic() - self.began),
            findings=tuple(auditor.findings(outcome, self.limits)),
            first=auditor.first,
            answered=auditor.answered,
            announcement=auditor.announcement,
            final=auditor.final,
        )
        self.turns[self.number].finish(scored)
