"""From the scorer's answers to the record of a run: counts, findings, metrics, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from llmc import __version__
from llmc.engine.audit import score_findings
from llmc.files import file_stamp, sha256_file
from llmc.findings import Finding, finding, has_error
from llmc.runs import evidence, store
from llmc.runs.identity import host, result_of
from llmc.runs.kept import ITEMS
from llmc.runs.record import Counts, PartLog, RunRecord, TaskGroups, Timings
from llmc.scoring.metrics import Tally, choose
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import STDERR_LOG, STDOUT_LOG, Scored

if TYPE_CHECKING:
    from llmc.runs.planned import ScoredCell


@dataclass
class Answers:
    """What the answers amount to under ``rule``, counted as they come."""

    rule: str
    tally: Tally = field(default_factory=Tally)
    marks: list[str] = field(default_factory=list)
    undefined: list[str] = field(default_factory=list)

    def add(self, item: ScoredItem) -> None:
        self.tally.add(item)
        choice = choose(item, self.rule)
        if choice is None:
            self.undefined.append(item.id)
        self.marks.append("1" if choice is not None and choice.correct else "0")


def assemble(
    cell: ScoredCell,
    answers: Answers,
    scored: Scored | None,
    resumed: int,
    unhealthy: list[Finding],
    health: dict[str, Any],
    started: str,
    seconds: float,
) -> RunRecord:
    """Return the record of a run by the scorer; its status follows from the findings alone."""
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
        stdout=STDOUT_LOG,
        stderr=STDERR_LOG,
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
