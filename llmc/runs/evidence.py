"""From the results of a cell's parts to its record: merged counts, findings, groups, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from llmc.engine.audit import score_findings
from llmc.engine.plan import Plan
from llmc.findings import Finding, finding, has_error
from llmc.runs import store
from llmc.runs.bench import Bench
from llmc.runs.identity import host, must_match, result_of
from llmc.runs.parts import PartResult
from llmc.runs.prepare import PreparedEngine
from llmc.runs.record import (
    RULE as LLAMA_RULE,
)
from llmc.runs.record import (
    Comparability,
    Counts,
    CrossCheck,
    GroupScore,
    LayoutCheck,
    RunRecord,
    TaskGroups,
    Timings,
    content_key,
)

if TYPE_CHECKING:
    from llmc.runs.planned import Cell


@dataclass(frozen=True)
class Checks:
    """What was done beside the engine's own run; ``rescored`` are marks by task index."""

    layout: LayoutCheck | None = None
    cross: CrossCheck | None = None
    rescored: dict[int, bool] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def comparability(
    engine: PreparedEngine, bench: Bench, plan: Plan, excluded: Sequence[int], rescored: Sequence[int]
) -> Comparability:
    """What must be equal before two runs are paired, hashed, and what should be equal, listed."""
    must = must_match(bench.facts.sha256, excluded)
    if rescored:
        must["rescored"] = list(rescored)
    should = {
        "engine_flavour": engine.probe.flavour,
        "engine_version": engine.probe.version,
        "backend": engine.probe.backend,
        "layout": plan.layout(),
        "arguments": list(plan.arguments),
    }
    return Comparability(key=content_key(must), must=must, should=should)


def assemble(
    cell: Cell,
    results: Sequence[PartResult],
    checks: Checks,
    *,
    extra: Sequence[Finding],
    health: dict[str, Any],
    started: str,
    seconds: float,
    version: str,
    groups: Callable[[], Sequence[str | None]],
) -> RunRecord:
    """Return the record of a run; its status follows from the findings alone.

    ``groups`` returns those of all tasks of the file; a run that is not trusted has no use for them.
    """
    correct = _with_rescored(cell, merged_correct(results, cell.tasks), checks.rescored)
    in_pieces = len(results) > 1 or bool(cell.rescored)
    findings = [*_merged_findings(results, in_pieces), *checks.findings, *extra, *cell.findings]
    if correct is None and not has_error(findings):
        findings.insert(0, finding("scored-fewer", "not every part of the benchmark was scored"))
    elif correct is not None and in_pieces:
        findings += score_findings(correct, _golds(cell), cell.bench.facts)
    trusted = correct is not None and not has_error(findings)
    interrupted = any(f.slug == "interrupted" for f in findings)
    status: Literal["trusted", "untrusted", "interrupted"] = "untrusted"
    if trusted:
        status = "trusted"
    elif interrupted:
        status = "interrupted"
    engine_se = None if in_pieces or not results else results[0].standard_error
    left_out = set(cell.excluded)
    scored = [group for i, group in enumerate(groups()) if i not in left_out] if trusted else []
    return RunRecord(
        llmc_version=version,
        kind="run",
        status=status,
        started=started,
        finished=store.now(),
        model=cell.model.identity(),
        benchmark=cell.bench.identity(),
        engine=cell.engine.identity(),
        argv=tuple(cell.command()),
        user_flags=cell.settings.user_flags,
        layout=cell.plan.layout(),
        layout_basis=cell.plan.basis,
        environment_dropped=cell.engine.environment.dropped,
        config_files=cell.engine.environment.config_files,
        host=host(),
        health=health,
        counts=_counts(cell, results, checks),
        parts=tuple(r.log for r in results),
        peak_rss=max((r.peak_rss for r in results if r.peak_rss is not None), default=None),
        timings=_timings(cell, results, seconds),
        findings=tuple(errors_first(findings)),
        correct=correct if trusted else None,
        excluded=_ids(cell, cell.excluded),
        groups=group_scores(scored, correct) if trusted and correct is not None else {},
        task_groups=TaskGroups.of(scored),
        result=result_of(correct, engine_se) if trusted and correct is not None else None,
        layout_check=checks.layout,
        cross_check=checks.cross,
        rescored=_ids(cell, cell.rescored),
        rule=LLAMA_RULE,
        comparability=cell.comparability,
        reuse_key=cell.reuse_key,
    )


def merged_correct(results: Sequence[PartResult], tasks: int) -> str | None:
    if not results or any(r.correct is None for r in results):
        return None
    correct = "".join(r.correct or "" for r in results)
    return correct if len(correct) == tasks else None


def _with_rescored(cell: Cell, correct: str | None, rescored: dict[int, bool]) -> str | None:
    """Put the scorer's marks among the engine's, in file order; None when any is missing."""
    if correct is None or set(rescored) != set(cell.rescored):
        return None
    out, engine = set(cell.excluded), iter(correct)
    marks = []
    for index in range(cell.bench.facts.tasks):
        if index in rescored:
            marks.append("1" if rescored[index] else "0")
        elif index not in out:
            marks.append(next(engine))
    return "".join(marks)


def _merged_findings(results: Sequence[PartResult], in_pieces: bool) -> list[Finding]:
    if not in_pieces:
        return [f for result in results for f in result.findings]
    merged: list[Finding] = []
    for result in results:
        for each in result.findings:
            # What depends on the score is judged over the whole, not over a part of it.
            if each.slug in ("always-one-position", "below-majority"):
                continue
            where = f"part {result.log.index}: " if len(results) > 1 else ""
            merged.append(finding(each.slug, f"{where}{each.detail}", each.severity))
    return merged


def errors_first(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda f: f.severity != "error")


def _golds(cell: Cell) -> bytes:
    out = set(cell.excluded)
    return bytes(gold for i, gold in enumerate(cell.bench.golds) if i not in out)


def _ids(cell: Cell, indices: Sequence[int]) -> tuple[str, ...]:
    if not indices:
        return ()
    ids = cell.bench.ids()
    return tuple(ids[i] for i in indices)


def _counts(cell: Cell, results: Sequence[PartResult], checks: Checks) -> Counts:
    announced = [r.announced for r in results]
    return Counts(
        in_file=cell.bench.facts.tasks,
        announced=None if not announced or None in announced else sum(n or 0 for n in announced),
        expected=cell.tasks + len(cell.rescored),
        scored=sum(r.log.scored for r in results) + len(checks.rescored),
    )


def group_scores(groups: Sequence[str | None], correct: str) -> dict[str, GroupScore]:
    tally: dict[str, list[int]] = {}
    for group, mark in zip(groups, correct, strict=True):
        if group is not None:
            seen = tally.setdefault(group, [0, 0])
            seen[0] += 1
            seen[1] += mark == "1"
    return {name: GroupScore(tasks=n, correct=k) for name, (n, k) in sorted(tally.items())}


def _timings(cell: Cell, results: Sequence[PartResult], seconds: float) -> Timings:
    engine = sum(r.seconds for r in results if not r.log.resumed)
    health = cell.first.seconds.get("health check", 0.0)
    tokens = [r.tokens for r in results]
    spent = [r.eval_seconds for r in results]
    known = bool(results) and None not in tokens and None not in spent
    total_tokens = sum(n or 0 for n in tokens) if known else None
    total_spent = sum(s or 0.0 for s in spent)
    return Timings(
        total=seconds,
        engine=engine,
        overhead=max(0.0, seconds - engine - health),
        first_time={name: round(value, 3) for name, value in cell.first.seconds.items()},
        load=results[0].load_seconds if results else None,
        tokens=total_tokens,
        tokens_per_second=total_tokens / total_spent if total_tokens and total_spent else None,
    )
