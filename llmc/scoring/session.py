"""Score items in a worker process, from the parent's side: start it, watch it, judge it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import llmc
from llmc.engine.binding import Binding
from llmc.engine.environment import scrubbed
from llmc.engine.gguf_model import ModelFacts
from llmc.engine.process import Limits, Outcome, Stream, run_process
from llmc.errors import InputFileError, RefusedError, os_error
from llmc.findings import Finding, has_error
from llmc.scoring.audit import Auditor, OnResult
from llmc.scoring.items import chosen_items
from llmc.scoring.job import Job

JOB_FILE, STDOUT_LOG, STDERR_LOG = "scorer-job.json", "scorer-stdout.log", "scorer-stderr.log"
DEFAULT_LIMITS = Limits()

LOG_END = 1 << 15  # bytes: with room for the backtrace that follows a failed assertion
OnAnnounce = Callable[[dict[str, Any]], None]

# What is refused before anything is evaluated is for the user to decide, not a fault of the run.
_REMEDIES = {
    "context-too-small": "cut the questions from the left with `--truncate left`, as lm-eval does, or allow longer "
    "sequences than the model was trained on with --context",
    "cannot-score": "leave these items out, or score with BOS (--bos always)",
    "no-shared-prefix": "leave --road out, and it is scored one sequence at a time",
}


@dataclass(frozen=True)
class Scored:
    """How a job went. ``announcement`` and ``final`` are the worker's own (see ``worker``), None when they never came.

    ``first`` is the place in the job of the first answer given, ``answered`` how many were. ``findings`` without an
    error mean that every item of the job from ``first`` on is answered, in order, with possible figures.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]
    first: int
    answered: int
    announcement: dict[str, Any] | None
    final: dict[str, Any] | None

    @property
    def trusted(self) -> bool:
        return not has_error(self.findings)


def score_items(
    job: Job,
    model: ModelFacts,
    binding: Binding,
    folder: Path,
    *,
    on_result: OnResult,
    on_announce: OnAnnounce = lambda message: None,
    limits: Limits = DEFAULT_LIMITS,
) -> Scored:
    """Score a job's items; each answer goes to ``on_result`` as it comes, in order, and only while all is well.

    ``folder`` gets the job and the logs. ``on_announce`` learns what is coming before the first answer. The worker
    never outlives this process. Raises RefusedError when the job cannot be done as it is (an item too long, a model
    without weights), and what reading the items or starting a process raises.
    """
    job = write_job(job, model, folder)
    auditor = Auditor(chosen_items(job.items, job.indices), on_result, on_announce)

    def hear(stream: Stream, data: bytes) -> None:
        if stream == "stdout":
            auditor.feed(data)

    outcome = run_process(
        worker_command(model, [folder / JOB_FILE]),
        stdout_log=folder / STDOUT_LOG,
        stderr_log=folder / STDERR_LOG,
        env=worker_environment(binding),
        cwd=folder,
        limits=limits,
        on_output=hear,
        said_everything=lambda: auditor.finished,
    )
    if (refusal := refused(auditor, job)) is not None:
        raise refusal
    return Scored(
        outcome=outcome,
        findings=tuple(auditor.findings(outcome, limits, end_of(folder / STDERR_LOG))),
        first=auditor.first,
        answered=auditor.answered,
        announcement=auditor.announcement,
        final=auditor.final,
    )


def write_job(job: Job, model: ModelFacts, folder: Path) -> Job:
    """Write a job into a folder for the worker, and return it as written; raises what ``score_items`` says."""
    if model.is_vocab_only:
        raise RefusedError(
            "model-unreadable", f"{model.path} holds a vocabulary and no weights", "name the model itself"
        )
    items = job.items.resolve()
    if not items.is_file():
        raise InputFileError(f"{items} is not a file", "build it with `llmc build`")
    settings = job.settings
    if settings.road == "auto" and model.has_recurrent_memory:
        settings = replace(settings, road="plain")  # older bindings cannot tell by themselves
    job = replace(job, items=items, settings=settings)
    try:
        (folder / JOB_FILE).write_text(job.to_json(), encoding="utf-8")
    except OSError as error:
        raise os_error(error, "write", "choose another folder with --out, or make room") from error
    return job


def worker_command(model: ModelFacts, jobs: Sequence[Path]) -> list[str]:
    """Return the command of a worker that does these jobs one after the other."""
    files = [str(path.resolve()) for path in (model.path, *jobs)]
    return [sys.executable, "-m", "llmc.scoring.worker", *files]


def refused(auditor: Auditor, job: Job) -> RefusedError | None:
    """Return the error of a job that the worker refused before it evaluated anything; None when it did not."""
    if auditor.error is None or auditor.announcement is not None or auditor.error[0] not in _REMEDIES:
        return None
    slug, what = auditor.error
    return RefusedError(slug, f"{job.items.name}: {what}", _REMEDIES[slug])


def end_of(log: Path) -> str:
    """Return the last part of a log; empty when it cannot be read."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - LOG_END))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def worker_environment(binding: Binding) -> dict[str, str]:
    root = Path(llmc.__file__).resolve().parents[1]
    return {
        **scrubbed().variables,
        **binding.variables,
        "PYTHONPATH": os.pathsep.join((str(binding.site.resolve()), str(root))),
        "PYTHONSAFEPATH": "1",
        "PYTHONUTF8": "1",
        "LLAMA_CPP_LIB_PATH": str(binding.lib.resolve()),
        # numpy multiplies no matrices here; the threads of its BLAS would only take memory.
        "OPENBLAS_NUM_THREADS": "1",
    }
