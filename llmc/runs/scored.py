"""One cell by the scorer: every option's log-probability, every metric, and a run that resumes where it stopped."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from llmc import __version__, console
from llmc.benchmarks.item import items_path
from llmc.engine.audit import score_findings
from llmc.files import file_stamp, locked, sha256_file
from llmc.findings import Finding, finding, has_error
from llmc.runs import evidence, store
from llmc.runs.bench import Bench
from llmc.runs.cell import Finished
from llmc.runs.identity import host, result_of
from llmc.runs.kept import ITEMS, Kept, require_resumable
from llmc.runs.prepare import PreparedModel
from llmc.runs.record import Comparability, Counts, PartLog, RunRecord, TaskGroups, Timings, content_key
from llmc.runs.scorer import PreparedScorer, check_scorer_health
from llmc.runs.settings import FirstTime, Settings
from llmc.scoring.job import Job
from llmc.scoring.metrics import Tally, choose
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import Scored, score_items


@dataclass(frozen=True)
class ScoredCell:
    """A cell planned for the scorer. ``items`` is the item file, or the benchmark file where there is none."""

    scorer: PreparedScorer
    model: PreparedModel
    bench: Bench
    settings: Settings
    items: Path
    findings: tuple[Finding, ...]
    comparability: Comparability
    reuse_key: str
    first: FirstTime

    @property
    def tasks(self) -> int:
        return self.bench.facts.tasks


@dataclass
class _Answers:
    """What the answers amount to, counted as they come."""

    rule: str
    tally: Tally
    marks: list[str]
    undefined: list[str]

    def add(self, item: ScoredItem) -> None:
        self.tally.add(item)
        choice = choose(item, self.rule)
        if choice is None:
            self.undefined.append(item.id)
        self.marks.append("1" if choice is not None and choice.correct else "0")


def plan_scored_cell(
    scorer: PreparedScorer, model: PreparedModel, bench: Bench, settings: Settings, first: FirstTime
) -> ScoredCell:
    """Plan one cell for the scorer; with ``--resume``, UsageError when there is nothing to go on with."""
    items = items_path(bench.path)
    must = {
        "benchmark_sha256": bench.facts.sha256,
        "excluded": [],
        "scorer": "logprobs",
        "rule": settings.rule,
        **settings.scoring.evaluated(),
    }
    should = {
        "engine_flavour": "libllama",
        "engine_version": scorer.engine.version,
        "backend": scorer.engine.backend,
        **settings.scoring.computed(),
    }
    comparability = Comparability(key=content_key(must), must=must, should=should)
    cell = ScoredCell(
        scorer=scorer,
        model=model,
        bench=bench,
        settings=settings,
        items=items if items.is_file() else bench.path,
        findings=(),
        comparability=comparability,
        reuse_key="",
        first=first,
    )
    wanted = _wanted(cell)
    cell = ScoredCell(**{**cell.__dict__, "reuse_key": content_key(wanted)})
    if settings.resume:
        require_resumable(_partial(cell), wanted)
    return cell


def _wanted(cell: ScoredCell) -> dict[str, Any]:
    """Everything that can change a figure, by names that a person understands."""
    settings = cell.settings
    return {
        "benchmark": cell.bench.name,
        "benchmark sha256": cell.bench.facts.sha256,
        "items sha256": sha256_file(cell.items),
        "model": cell.model.sha256,
        "scorer": cell.scorer.identity_sha256,
        "rule": settings.rule,
        "settings": {**settings.scoring.evaluated(), **settings.scoring.computed(), "uncond": settings.scoring.uncond},
        "health check": settings.health_check,
    }


def _partial(cell: ScoredCell) -> Path:
    return store.Store(cell.settings.out).root / f".scored-{cell.reuse_key[:32]}"


def run_scored_cell(cell: ScoredCell) -> Finished:
    """Run a planned cell, or return the trusted run that the store already has; always leaves a record."""
    runs = store.Store(cell.settings.out)
    partial = _partial(cell)
    with locked(partial.with_name(partial.name + ".lock"), _tell_of_other, remove=True):
        if not cell.settings.force and (known := runs.find_trusted(cell.reuse_key)) is not None:
            return Finished(known[0], known[1], reused=True)
        if cell.settings.force and not cell.settings.resume:
            shutil.rmtree(partial, ignore_errors=True)
        folder, record = _run(cell, runs, partial)
        if record.status == "trusted":
            shutil.rmtree(partial, ignore_errors=True)
        return Finished(folder, record, reused=False)


def _tell_of_other() -> None:
    console.note("waiting for another llmc that is at work on this very run ...")


def _run(cell: ScoredCell, runs: store.Store, partial: Path) -> tuple[Path, RunRecord]:
    started, begin = store.now(), monotonic()
    health: dict[str, Any] = {"checked": False, "reason": "--no-health-check"}
    unhealthy: list[Finding] = []
    if cell.settings.health_check:
        health, unhealthy = check_scorer_health(cell.scorer, cell.model, cell.settings.scoring, cell.first)
    folder = runs.new_folder(started, cell.model.short_name, cell.bench.name, cell.reuse_key)
    try:
        answers = _Answers(cell.settings.rule, Tally(), [], [])
        kept = Kept(partial, _wanted(cell))
        scored, resumed = None, 0
        if not has_error(unhealthy):
            scored, resumed = _score(cell, kept, answers, folder)
        record = _assemble(cell, answers, scored, resumed, unhealthy, health, started, monotonic() - begin)
        if record.status == "trusted":
            shutil.copyfile(kept.path, folder / ITEMS)
        store.finish(folder, record)
    except BaseException:
        store.discard(folder)
        raise
    return folder, record


def _score(cell: ScoredCell, kept: Kept, answers: _Answers, folder: Path) -> tuple[Scored, int]:
    done = kept.take_up()
    for item in done:
        answers.add(item)
    job = Job(cell.items, cell.settings.scoring, done=len(done))
    begin = monotonic()
    with console.progress(f"{cell.model.short_name} on {cell.bench.name}", cell.tasks) as advance, kept:

        def take(item: ScoredItem) -> None:
            kept.add(item)
            answers.add(item)
            count = len(answers.marks)
            rate = (count - len(done)) / max(monotonic() - begin, 1e-9)
            advance(count, f"{count}/{cell.tasks} items, {rate:.1f}/s")

        scored = score_items(
            job, cell.model.facts, cell.scorer.binding, folder, on_result=take, limits=cell.scorer.limits
        )
    return scored, len(done)


def _assemble(
    cell: ScoredCell,
    answers: _Answers,
    scored: Scored | None,
    resumed: int,
    unhealthy: list[Finding],
    health: dict[str, Any],
    started: str,
    seconds: float,
) -> RunRecord:
    findings = [*unhealthy, *(scored.findings if scored else ()), *_changes(cell), *cell.findings]
    correct = "".join(answers.marks)
    if answers.undefined:
        named = ", ".join(answers.undefined[:20])
        findings.append(finding("rule-undefined", f"{cell.settings.rule} has no value for {named}"))
    if len(correct) != cell.tasks and not has_error(findings):
        findings.append(finding("scored-fewer", f"{len(correct)} of {cell.tasks} items answered"))
    trusted = not has_error(findings)
    if trusted:
        findings += score_findings(correct, cell.bench.golds, cell.bench.facts)
    status: Literal["trusted", "untrusted", "interrupted"] = "trusted" if trusted else "untrusted"
    if any(f.slug == "interrupted" for f in findings):
        status = "interrupted"
    groups = cell.bench.groups() if trusted else []
    announced = scored.announcement if scored else None
    return RunRecord(
        llmc_version=__version__,
        kind="run",
        status=status,
        started=started,
        finished=store.now(),
        scorer="logprobs",
        rule=cell.settings.rule,
        model=cell.model.identity(),
        benchmark=cell.bench.identity(),
        engine=cell.scorer.identity(),
        argv=cell.scorer.identity().command,
        host=host(),
        health=health,
        scoring={**cell.settings.scoring.__dict__, "worker": announced},
        counts=Counts(
            in_file=cell.tasks,
            announced=announced["items"] if announced else None,
            expected=cell.tasks,
            scored=len(correct),
        ),
        parts=(_log(cell, scored, resumed),) if scored else (),
        peak_rss=scored.outcome.peak_rss if scored else None,
        timings=_timings(cell, scored, seconds),
        findings=tuple(evidence.errors_first(findings)),
        correct=correct if trusted else None,
        groups=evidence.group_scores(groups, correct) if trusted else {},
        task_groups=TaskGroups.of(groups),
        result=result_of(correct, None) if trusted else None,
        metrics=answers.tally.means() if trusted else None,
        items_file=ITEMS if trusted else None,
        comparability=cell.comparability,
        reuse_key=cell.reuse_key,
    )


def _changes(cell: ScoredCell) -> list[Finding]:
    """What changed on the disk while the scorer was at work."""
    found = []
    try:
        if sha256_file(cell.bench.path) != cell.bench.facts.sha256:
            found.append(finding("benchmark-changed", f"{cell.bench.path.name} is not what it was"))
        if tuple(file_stamp(path) for path in cell.model.facts.parts) != cell.model.stamps:
            found.append(finding("model-changed", f"{cell.model.facts.path.name}: size, time or inode changed"))
    except OSError as error:
        found.append(finding("benchmark-changed", f"{error.filename} cannot be read any more: {error.strerror}"))
    return found


def _log(cell: ScoredCell, scored: Scored, resumed: int) -> PartLog:
    return PartLog(
        index=0,
        first=resumed,
        tasks=cell.tasks - resumed,
        scored=scored.answered,
        exit_code=scored.outcome.exit_code,
        signal=scored.outcome.signal,
        ended_by=scored.outcome.ended_by,
        stdout="scorer-stdout.log",
        stderr="scorer-stderr.log",
        resumed=resumed > 0,
    )


def _timings(cell: ScoredCell, scored: Scored | None, seconds: float) -> Timings:
    engine = scored.outcome.seconds if scored else 0.0
    final = (scored.final if scored else None) or {}
    announced = (scored.announcement if scored else None) or {}
    tokens, spent = final.get("tokens"), final.get("score_seconds")
    health = cell.first.seconds.get("health check", 0.0)
    return Timings(
        total=seconds,
        engine=engine,
        overhead=max(0.0, seconds - engine - health),
        first_time={name: round(value, 3) for name, value in cell.first.seconds.items()},
        load=announced.get("load_seconds"),
        tokens=tokens,
        tokens_per_second=tokens / spent if tokens and spent else None,
    )
