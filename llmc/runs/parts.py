"""The launches of one cell: one for most, several for a file of very many tasks.

A part is a file of its own, scored and audited by itself. In a run of several parts each finished one is kept
under the run's content key until all are done, so that a day-long run that is killed starts again where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from llmc import mcbin
from llmc.engine.launch import Launch, launch
from llmc.engine.plan import Plan
from llmc.files import file_stamp, sha256_file, write_json
from llmc.findings import Finding, finding
from llmc.mcbin import BinFacts
from llmc.runs.prepare import PreparedEngine, PreparedModel
from llmc.runs.record import PartLog

PART_FILE = "part.json"


@dataclass(frozen=True)
class PartResult:
    """``correct`` is None unless the part is trusted."""

    log: PartLog
    findings: tuple[Finding, ...]
    correct: str | None
    trusted: bool
    announced: int | None
    expected: int | None
    standard_error: float | None
    seconds: float
    peak_rss: int | None
    load_seconds: float | None
    tokens: int | None
    eval_seconds: float | None


@dataclass(frozen=True)
class Part:
    index: int
    first: int
    path: Path
    facts: BinFacts
    golds: bytes
    folder: Path
    temporary: bool


def whole(path: Path, facts: BinFacts, golds: bytes, folder: Path) -> list[Part]:
    """Return the single part that is the file itself."""
    return [Part(0, 0, path, facts, golds, folder, temporary=False)]


def split(reader: mcbin.Reader, keep: Callable[[int], bool], size: int, root: Path) -> Iterator[Part]:
    """Write and yield one part after the other, each of at most ``size`` of the tasks that ``keep`` accepts.

    After the last one ``reader.facts`` tells which file it was that was read.
    """
    tasks = ((i, task) for i, task in enumerate(reader) if keep(i))
    index = first = 0
    while chunk := list(islice(tasks, size)):
        folder = root / f"part-{index:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "tasks.bin"
        facts = mcbin.write(file, (task for _, task in chunk))
        yield Part(index, first, file, facts, bytes(task.gold for _, task in chunk), folder, temporary=True)
        index += 1
        first += len(chunk)


def score_part(
    part: Part, engine: PreparedEngine, model: PreparedModel, plan: Plan, on_rows: Callable[[int], None]
) -> PartResult:
    """Score one part, or return the result that an earlier run kept for the very same part."""
    kept = _read_kept(part)
    if kept is not None:
        part.path.unlink(missing_ok=True)
        return kept

    def after() -> list[Finding]:
        return [*benchmark_changed(part.path, part.facts.sha256), *_model_changed(model.facts.parts, model.stamps)]

    result = launch(
        plan.command(engine.probe.command, model.facts.path, part.path),
        facts=part.facts,
        golds=part.golds,
        stdout_log=part.folder / "stdout.log",
        stderr_log=part.folder / "stderr.log",
        environment=engine.environment.variables,
        limits=engine.limits,
        on_rows=on_rows,
        after=after,
    )
    scored = _result(part, result)
    if part.temporary:
        if scored.trusted:
            _keep(part, scored)
        part.path.unlink(missing_ok=True)
    return scored


def _result(part: Part, result: Launch) -> PartResult:
    audit, outcome, transcript = result.audit, result.outcome, result.transcript
    log = PartLog(
        index=part.index,
        first=part.first,
        tasks=part.facts.tasks,
        scored=audit.tasks_scored,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        ended_by=outcome.ended_by,
        stdout=_log_name(part, "stdout.log"),
        stderr=_log_name(part, "stderr.log"),
        attempts=result.attempts,
    )
    return PartResult(
        log=log,
        findings=audit.findings,
        correct=audit.correct if audit.trusted else None,
        trusted=audit.trusted,
        announced=transcript.announced[0] if transcript.announced else None,
        expected=audit.tasks_expected,
        standard_error=audit.engine_se,
        seconds=outcome.seconds,
        peak_rss=outcome.peak_rss,
        load_seconds=transcript.timings.load_seconds,
        tokens=transcript.timings.prompt_tokens,
        eval_seconds=transcript.timings.prompt_seconds,
    )


def _log_name(part: Part, name: str) -> str:
    return f"{part.folder.name}/{name}" if part.temporary else name


def benchmark_changed(path: Path, sha256: str) -> list[Finding]:
    """Return the finding when a file is not what it was when it had this checksum."""
    try:
        now = sha256_file(path)
    except OSError as error:
        return [finding("benchmark-changed", f"{path.name} cannot be read any more: {error.strerror}")]
    if now == sha256:
        return []
    return [finding("benchmark-changed", f"{path.name}: sha256 was {sha256[:12]}, is now {now[:12]}")]


def _model_changed(paths: Sequence[Path], before: Iterable[tuple[int, int, int]]) -> list[Finding]:
    for path, stamp in zip(paths, before, strict=True):
        try:
            now = file_stamp(path)
        except OSError as error:
            return [finding("model-changed", f"{path.name} cannot be read any more: {error.strerror}")]
        if now != stamp:
            return [finding("model-changed", f"{path.name}: size, time or inode changed: {stamp} -> {now}")]
    return []


def _keep(part: Part, result: PartResult) -> None:
    body = {**result.__dict__, "log": result.log.model_dump(mode="json"), "sha256": part.facts.sha256}
    body["findings"] = [f.model_dump(mode="json") for f in result.findings]
    write_json(part.folder / PART_FILE, body)


def _read_kept(part: Part) -> PartResult | None:
    """A part kept for the same tasks stands; anything unreadable is simply scored again."""
    if not part.temporary:
        return None
    try:
        body = json.loads((part.folder / PART_FILE).read_bytes())
        if body.pop("sha256") != part.facts.sha256:
            return None
        body["log"] = PartLog.model_validate({**body["log"], "resumed": True})
        body["findings"] = tuple(Finding.model_validate(f) for f in body["findings"])
        return PartResult(**body)
    except (OSError, ValueError, KeyError, TypeError):
        return None
