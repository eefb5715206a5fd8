"""One cell: a model on a benchmark, from the plan to the record in the store."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

from llmc import __version__, console, mcbin
from llmc.engine.flags import adapter_sums, changing_the_model
from llmc.engine.plan import Plan, plan
from llmc.engine.preflight import Preflight, preflight
from llmc.errors import RefusedError, UsageError
from llmc.files import locked
from llmc.findings import Finding, finding, has_error
from llmc.runs import evidence, parts, store
from llmc.runs.bench import Bench
from llmc.runs.layout_check import layout_check
from llmc.runs.planned import Cell, Finished
from llmc.runs.prepare import PreparedEngine, PreparedModel, check_health
from llmc.runs.record import content_key
from llmc.runs.settings import FirstTime, Settings

NAMED_IDS = 20  # ids listed in a message; the record lists all


def plan_cell(engine: PreparedEngine, model: PreparedModel, bench: Bench, settings: Settings, first: FirstTime) -> Cell:
    """Plan one cell; raises RefusedError for what would go wrong, before anything is launched."""
    with first.measure("preflight"), console.progress(f"token counts of {bench.name}", bench.facts.tasks) as advance:
        checked = preflight(bench.path, model.facts, engine.binding, facts=bench.facts, advance=advance)
    adapters = adapter_sums(settings.user_flags)
    if settings.cross_check and (changing := changing_the_model(settings.user_flags)):
        raise UsageError(
            f"--cross-check compares with the scorer, which does not apply {changing[0]}",
            f"leave out one of the two, --cross-check or {changing[0]}",
        )
    hazards = _hazards(bench, checked, settings)
    excluded, rescored = ([], hazards) if settings.on_hazard == "rescore" else (hazards, [])
    launch = _plan(engine, model, bench, checked, settings)
    if settings.layout_check:
        _plan(engine, model, bench, checked, settings, alternative=True)  # refused now, not after a long run
    findings = [*engine.findings(), *launch.findings]
    if checked.basis == "bounds":
        findings.append(finding("preflight-bounds-only", checked.reason))
    if bench.facts.duplicates:
        first_few = ", ".join(map(str, bench.facts.first_duplicates[:10]))
        findings.append(finding("duplicate-options", f"{bench.facts.duplicates} tasks, the first: {first_few}"))
    if excluded:
        findings.append(finding("items-excluded", f"{len(excluded)} tasks: {_named(bench, excluded)}"))
    if rescored:
        findings.append(finding("items-rescored", f"{len(rescored)} tasks: {_named(bench, rescored)}"))
    comparability = evidence.comparability(engine, bench, launch, excluded, rescored)
    reuse_key = content_key(
        {
            "comparability": comparability.key,
            "model": model.content,
            "engine": engine.probe.identity,
            "arguments": launch.arguments,
            "health_check": settings.health_check,
            "layout_check": settings.layout_check,
            "cross_check": settings.cross_check,
            "part_size": settings.part_size if bench.facts.tasks > settings.part_size else None,
            "config_files": engine.environment.config_files,
            **({"adapters": adapters} if adapters else {}),
        }
    )
    return Cell(
        engine,
        model,
        bench,
        settings,
        checked,
        launch,
        tuple(excluded),
        tuple(rescored),
        tuple(findings),
        comparability,
        reuse_key,
        first,
        adapters,
    )


def _plan(
    engine: PreparedEngine,
    model: PreparedModel,
    bench: Bench,
    checked: Preflight,
    settings: Settings,
    *,
    alternative: bool = False,
) -> Plan:
    return plan(
        engine.probe,
        model.facts,
        bench.facts,
        checked,
        user=settings.user_flags,
        budget=settings.memory_budget,
        alternative=alternative,
    )


def _hazards(bench: Bench, checked: Preflight, settings: Settings) -> list[int]:
    """Return the tasks llama-perplexity would score wrongly; RefusedError when nothing may be done about them."""
    hazards = {slug: indices for slug, indices in checked.hazards.items() if indices}
    if not hazards:
        return []
    slug = next(iter(hazards))
    count = sum(len(each) for each in hazards.values())
    listed = ", ".join(f"{name}: {_named(bench, indices)}" for name, indices in hazards.items())
    what = f"{bench.name}: {count} of {bench.facts.tasks} tasks would be scored wrongly by llama-perplexity ({listed})"
    why = f"why: `llmc explain {slug}`"
    if settings.on_hazard == "fail":
        raise RefusedError(slug, what, f"leave out `--on-hazard fail` and the scorer takes them over; {why}")
    if settings.on_hazard == "rescore" and (changing := changing_the_model(settings.user_flags)):
        remedy = f"leave these tasks out with `--on-hazard exclude`, or leave out {changing[0]}; {why}"
        raise RefusedError(slug, f"{what}, and the scorer that takes them over does not apply {changing[0]}", remedy)
    if settings.on_hazard == "rescore" and checked.basis == "bounds":
        remedy = "`llmc engine install` brings the scorer that can take them over, or leave them out with"
        raise RefusedError(slug, what, f"{remedy} `--on-hazard exclude`; {why}")
    if settings.on_hazard == "rescore" and "no-common-prefix" in hazards:
        named = _named(bench, hazards["no-common-prefix"])
        raise RefusedError(
            "no-common-prefix",
            f"{bench.name}: the options of {named} share no token to score from",
            "leave these tasks out with `--on-hazard exclude`; why: `llmc explain no-common-prefix`",
        )
    indices = sorted({index for each in hazards.values() for index in each})
    if len(indices) == bench.facts.tasks:
        raise RefusedError(
            "items-excluded",
            f"{bench.name}: every task is a hazard; none is left for llama-perplexity to score",
            f"use `--scorer logprobs`; look at one with `llmc inspect {bench.path} --model MODEL`; {why}",
        )
    return indices


def _named(bench: Bench, indices: Sequence[int]) -> str:
    ids = bench.ids()
    shown = ", ".join(ids[i] for i in indices[:NAMED_IDS])
    return shown + (f" and {len(indices) - NAMED_IDS} more" if len(indices) > NAMED_IDS else "")


def run_cell(cell: Cell) -> Finished:
    """Run a planned cell, or return the trusted run that the store already has; always leaves a record."""
    runs = store.Store(cell.settings.out)
    if not cell.in_parts:
        return _reused(cell, runs) or _run(cell, runs, None)
    partial = runs.partial_folder(cell.reuse_key)
    # Two processes at the same run in parts: the second waits, and finds the first one's result.
    with locked(partial.with_name(partial.name + ".lock"), _tell_of_other, remove=True):
        known = _reused(cell, runs)
        if known is not None:
            return known
        if cell.settings.force:
            shutil.rmtree(partial, ignore_errors=True)
        finished = _run(cell, runs, partial)
        if finished.record.status == "trusted":
            shutil.rmtree(partial, ignore_errors=True)
        return finished


def _tell_of_other() -> None:
    console.note("waiting for another llmc that is at work on this very run ...")


def _reused(cell: Cell, runs: store.Store) -> Finished | None:
    known = None if cell.settings.force else runs.find_trusted(cell.reuse_key)
    return Finished(known[0], known[1], reused=True) if known else None


def _run(cell: Cell, runs: store.Store, partial: Path | None) -> Finished:
    """Score a cell and write its record; ``partial`` is where finished parts outlive a run that is killed."""
    started, begin = store.now(), monotonic()
    health, unhealthy = check_health(cell.engine, cell.model, cell.settings, cell.first)
    folder = runs.new_folder(started, cell.model.short_name, cell.bench.name, cell.reuse_key)
    reader = ThreadPoolExecutor(max_workers=1)
    groups = reader.submit(cell.bench.groups)  # read while the engine works
    try:
        results: list[parts.PartResult] = []
        changed: list[Finding] = []
        if not has_error(unhealthy):
            results, changed = _score(cell, partial or folder)
        checks = _checks(cell, results, folder)
        changed = changed or _changed(cell)
        record = evidence.assemble(
            cell,
            results,
            checks,
            extra=[*unhealthy, *changed],
            health=health,
            started=started,
            seconds=monotonic() - begin,
            version=__version__,
            groups=groups.result,
        )
        if partial is not None:
            for part in sorted(partial.glob("part-*")):
                shutil.copytree(part, folder / part.name, ignore=shutil.ignore_patterns("*.bin"))
        store.finish(folder, record)
    except BaseException:
        store.discard(folder)
        raise
    finally:
        reader.shutdown(wait=False, cancel_futures=True)
    return Finished(folder, record, reused=False)


def _checks(cell: Cell, results: list[parts.PartResult], folder: Path) -> evidence.Checks:
    """What is done beside the engine's own run, once that is trusted."""
    correct = evidence.merged_correct(results, cell.tasks)
    if correct is None:
        return evidence.Checks()
    layout, findings = layout_check(cell, results, folder)
    marks: dict[int, bool] = {}
    crossed = None
    if cell.rescored or cell.settings.cross_check:
        # The scorer is imported only where it is used.
        from llmc.runs.rescore import cross_check, rescore

        marks, wrong = rescore(cell, folder)
        crossed, apart = cross_check(cell, correct, folder)
        findings = [*findings, *wrong, *apart]
    return evidence.Checks(layout, crossed, marks, tuple(findings))


def _changed(cell: Cell) -> list[Finding]:
    """Look at what was read beside the engine's own run, or in pieces: it must be what was planned for."""
    settings, bench = cell.settings, cell.bench
    found: list[Finding] = []
    if cell.in_parts or settings.layout_check or settings.cross_check:
        found += parts.benchmark_changed(bench.path, bench.facts.sha256)
    if bench.items is not None and bench.entry is not None and (cell.rescored or settings.cross_check):
        found += parts.benchmark_changed(bench.items, bench.entry.files["items"].sha256)
    for path, digest in cell.adapters.items():
        if parts.benchmark_changed(Path(path), digest):
            found.append(finding("model-changed", f"{path} changed during the run"))
    return found


def _score(cell: Cell, root: Path) -> tuple[list[parts.PartResult], list[Finding]]:
    """Return the results of all parts, and a finding when the file that was split is not the one planned for."""
    bench = cell.bench
    with console.progress(f"{cell.model.short_name} on {bench.name}", cell.tasks) as advance:
        if not cell.in_parts:
            return _score_all(cell, parts.whole(bench.path, bench.facts, bench.golds, root), advance), []
        out = set(cell.left_out)
        reader = mcbin.Reader(bench.path)
        each = parts.split(reader, lambda i: i not in out, cell.settings.part_size, root)
        results = _score_all(cell, each, advance)
    read = reader.facts
    if read is None or read.sha256 == bench.facts.sha256:  # None: a part went wrong before all was read
        return results, []
    was, now = bench.facts.sha256[:12], read.sha256[:12]
    return results, [finding("benchmark-changed", f"{bench.path.name}: sha256 was {was}, was {now} when it was split")]


def _score_all(cell: Cell, each: Iterable[parts.Part], advance: console.Advance) -> list[parts.PartResult]:
    """Score part after part; stop at the first that is not trusted, since no score can come of the rest."""
    results: list[parts.PartResult] = []
    begin = monotonic()
    for part in each:

        def on_rows(rows: int, first: int = part.first) -> None:
            rate = (first + rows) / max(monotonic() - begin, 1e-9)
            advance(first + rows, f"{first + rows}/{cell.tasks} tasks, {rate:.1f}/s")

        results.append(parts.score_part(part, cell.engine, cell.model, cell.plan, on_rows))
        if not results[-1].trusted:
            break
    return results
