"""A command of the user's own: run exactly as given, its streams passed on untouched, audited afterwards."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

from llmc import __version__
from llmc.engine import environment
from llmc.engine.audit import audit
from llmc.engine.case import selection
from llmc.engine.process import Limits, Outcome, run_process
from llmc.engine.transcript import TranscriptParser
from llmc.errors import ExitCode, LlmcError
from llmc.findings import Finding, finding
from llmc.runs import store
from llmc.runs.command import EngineCommand, read_command
from llmc.runs.identity import host, model_identity, result_of
from llmc.runs.observed import Observed, stem
from llmc.runs.record import (
    EngineIdentity,
    ModelIdentity,
    PartLog,
    RunRecord,
    Timings,
    content_key,
)
from llmc.runs.watched import Contents, WatchedBenchmark, WatchedModel

DEFAULT_LIMITS = Limits(timeout=None, stall=600.0, exit_grace=60.0, may_go_on=True)


@dataclass(frozen=True)
class Executed:
    """``exit_code`` is the command's own when not 0 (128 + N for signal N), 130 after Ctrl-C, else the
    verdict's."""

    folder: Path
    record: RunRecord
    exit_code: int


@dataclass(frozen=True)
class _Seen(Observed):
    """Everything one run of a command left behind."""

    argv: tuple[str, ...]
    command: EngineCommand
    outcome: Outcome
    started: str
    seconds: float


def execute(argv: Sequence[str], out: Path, limits: Limits = DEFAULT_LIMITS) -> Executed:
    """Run ``argv`` with this process's own stdin, stdout, stderr and environment; audit and record it.

    Raises EngineError when it cannot be started, InputFileError when the logs or the record cannot be
    written.
    """
    store.require_writable(out)
    started, begin = store.now(), monotonic()
    command = read_command(argv)
    variables = given_environment()
    benchmark = WatchedBenchmark(Path(command.binary_file)) if command.binary_file else None
    model_name = command.model or _setting("LLAMA_ARG_MODEL", command, variables)
    model = WatchedModel(Path(model_name)) if model_name else None
    parser = TranscriptParser()
    parser.expected = _expected(benchmark, command.subset)
    key = content_key(list(argv))
    folder = store.Store(out).new_folder(started, f"exec-{stem(model_name)}", stem(command.binary_file), key)
    try:
        outcome = run_process(
            argv,
            stdout_log=folder / "stdout.log",
            stderr_log=folder / "stderr.log",
            env=variables,
            limits=limits,
            on_output=parser.feed,
            said_everything=lambda: parser.said_everything,
            stdin=None,
            passthrough=True,
        )
        contents = benchmark.contents() if benchmark else Contents(None, b"", ())
        transcript = parser.close()
        # A script's own output tells what it ran, where its command line does not.
        hidden = command.shows_nothing and bool(transcript.announced)
        asked = [] if hidden else command.findings()
        extra = [*asked, *contents.findings, *(model.findings() if model else [])]
        verdict = audit(
            transcript,
            facts=contents.facts,
            outcome=outcome,
            subset=command.subset,
            golds=_golds_in_order(contents, command.subset),
            extra=[*extra, *_in_force(command, variables)],
            limits=limits,
        )
        seen = _Seen(
            transcript=transcript,
            audit=verdict,
            bin_name=command.binary_file,
            facts=contents.facts,
            subset=command.subset,
            argv=tuple(argv),
            command=command,
            outcome=outcome,
            started=started,
            seconds=monotonic() - begin,
        )
        record = _record(seen, model_name)
        store.finish(folder, record)
    except BaseException:
        _discard_if_empty(folder)
        raise
    return Executed(folder, record, exit_code(outcome, record))


def _discard_if_empty(folder: Path) -> None:
    """Remove the folder of a command that never said anything; what it did say is worth keeping."""
    if not any(path.stat().st_size for path in folder.glob("*.log")):
        store.discard(folder)


def exit_code(outcome: Outcome, record: RunRecord) -> int:
    """Return what the shell gets: a command that llmc had to end has no exit code of its own."""
    if outcome.ended_by == "interrupted":
        return int(ExitCode.INTERRUPTED)
    if outcome.ended_by == "itself":
        if outcome.signal is not None:
            return 128 + outcome.signal
        if outcome.exit_code:
            return outcome.exit_code
    return int(record.exit_code)


def given_environment() -> dict[str, str]:
    """Return this process's environment as given: Python adds LC_CTYPE to an empty locale (PEP 538)."""
    variables = dict(os.environ)
    if variables.get("LC_CTYPE") == "C.UTF-8":
        try:
            given = Path("/proc/self/environ").read_bytes().split(b"\0")
        except OSError:
            return variables
        if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
            del variables["LC_CTYPE"]
    return variables


def _setting(name: str, command: EngineCommand, variables: Mapping[str, str]) -> str | None:
    return command.assigned.get(name) or variables.get(name)


def _expected(benchmark: WatchedBenchmark | None, subset: int | None) -> int | None:
    tasks = benchmark.announced() if benchmark else None
    return None if tasks is None else selection(subset, tasks) or tasks


def _golds_in_order(contents: Contents, subset: int | None) -> bytes | None:
    """Return the gold of each task in the order of scoring, None when the file is not known."""
    if contents.facts is None:
        return None
    tasks = contents.facts.tasks
    chosen = selection(subset, tasks)
    if chosen is None:
        return contents.golds
    from llmc.benchmarks.select import like_llama

    return bytes(contents.golds[i] for i in like_llama(tasks, chosen))


def _in_force(command: EngineCommand, variables: Mapping[str, str]) -> list[Finding]:
    """Settings from outside the command line that llama.cpp obeys, and that ``llmc run`` would take away."""
    merged = {**variables, **command.assigned}
    named = [f"{name}={value}" for name, value in sorted(merged.items()) if name.startswith("LLAMA_")]
    files = list(_config_files(merged))
    return [finding("environment-in-force", ", ".join([*named, *files]))] if named or files else []


def _config_files(variables: Mapping[str, str]) -> dict[str, str]:
    """Return path -> sha256 of the configuration files that llama.cpp reads under these variables."""
    return environment.config_sums(environment.SYSTEM_CONFIG, environment.user_config(variables))


def _record(seen: _Seen, model_name: str | None) -> RunRecord:
    verdict, outcome = seen.audit, seen.outcome
    trusted = verdict.trusted and verdict.correct is not None
    status: Literal["trusted", "untrusted", "interrupted"] = "trusted" if trusted else "untrusted"
    if outcome.ended_by == "interrupted":
        status = "interrupted"
    timings = seen.transcript.timings
    return RunRecord(
        llmc_version=__version__,
        kind="exec",
        status=status,
        started=seen.started,
        finished=store.now(),
        model=_model(model_name),
        benchmark=seen.benchmark(),
        engine=EngineIdentity(command=seen.command.program or seen.argv[:1], version=seen.transcript.build),
        argv=seen.argv,
        layout=seen.layout(),
        config_files=_config_files({**given_environment(), **seen.command.assigned}),
        host=host(),
        counts=seen.counts(),
        parts=(_part(seen),),
        peak_rss=outcome.peak_rss,
        timings=Timings(
            total=seen.seconds,
            engine=outcome.seconds,
            overhead=max(0.0, seen.seconds - outcome.seconds),
            load=timings.load_seconds,
            tokens=timings.prompt_tokens,
            tokens_per_second=timings.tokens_per_second,
        ),
        findings=verdict.findings,
        correct=verdict.correct if trusted else None,
        result=result_of(verdict.correct, verdict.engine_se) if trusted and verdict.correct is not None else None,
        comparability=seen.comparability(),
    )


def _model(name: str | None) -> ModelIdentity | None:
    if name is None:
        return None
    from llmc.engine.gguf_model import read_model

    try:
        facts = read_model(Path(name))
    except LlmcError:
        return ModelIdentity(ref=name)
    return model_identity(name, facts)


def _part(seen: _Seen) -> PartLog:
    return PartLog(
        index=0,
        first=0,
        tasks=seen.audit.tasks_expected or 0,
        scored=seen.audit.tasks_scored,
        exit_code=seen.outcome.exit_code,
        signal=seen.outcome.signal,
        ended_by=seen.outcome.ended_by,
        stdout="stdout.log",
        stderr="stderr.log",
    )
