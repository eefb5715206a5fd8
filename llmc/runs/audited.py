"""The record of logs that were audited: what they say of a run that llmc did not see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from llmc import __version__
from llmc.engine.process import Outcome
from llmc.runs import store
from llmc.runs.identity import result_of
from llmc.runs.observed import Observed, stem
from llmc.runs.record import EngineIdentity, PartLog, RunRecord, content_key


def audited_record(observed: Observed, logs: Sequence[str], outcome: Outcome | None, started: str) -> RunRecord:
    """Return the record; the model, the command and the machine are not in a log, so they are not in it either.

    ``logs`` are as named, ``-`` for standard input; ``outcome`` is None when the exit status is not known.
    """
    verdict = observed.audit
    trusted = verdict.trusted and verdict.correct is not None
    status: Literal["trusted", "untrusted"] = "trusted" if trusted else "untrusted"
    files = [name if name == "-" else str(Path(name).absolute()) for name in logs]
    return RunRecord(
        llmc_version=__version__,
        kind="audit",
        status=status,
        started=started,
        finished=store.now(),
        benchmark=observed.benchmark(),
        engine=EngineIdentity(command=("llama-perplexity",), version=observed.transcript.build),
        layout=observed.layout(),
        counts=observed.counts(),
        parts=(
            PartLog(
                index=0,
                first=0,
                tasks=verdict.tasks_expected or 0,
                scored=verdict.tasks_scored,
                exit_code=outcome.exit_code if outcome else None,
                signal=outcome.signal if outcome else None,
                ended_by="itself" if outcome else "unknown",
                stdout=files[0],
                stderr=files[-1],
            ),
        ),
        findings=verdict.findings,
        correct=verdict.correct if trusted else None,
        result=result_of(verdict.correct, verdict.engine_se) if trusted and verdict.correct is not None else None,
        comparability=observed.comparability(),
    )


def keep(record: RunRecord, out: Path) -> Path:
    """Write the record into the store and return its folder; raises UsageError or LlmcError when it cannot be."""
    store.require_writable(out)
    name = record.benchmark.name if record.benchmark else None
    body = record.dump()
    folder = store.Store(out).new_folder(record.started, "audit", stem(name), content_key(body))
    try:
        store.finish(folder, record)
    except BaseException:
        store.discard(folder)
        raise
    return folder
