"""A run's numerical noise floor: a sample of its tasks scored again at another layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmc import console, mcbin
from llmc.benchmarks.select import seeded_sample
from llmc.engine.plan import plan
from llmc.engine.preflight import preflight
from llmc.errors import RefusedError
from llmc.findings import Finding, finding
from llmc.runs import parts
from llmc.runs.record import LayoutCheck

if TYPE_CHECKING:
    from llmc.runs.planned import Cell

NOISE = 0.01  # share of changed answers above which the noise is worth a warning


def layout_check(
    cell: Cell, results: Sequence[parts.PartResult], folder: Path
) -> tuple[LayoutCheck | None, list[Finding]]:
    """Score a sample of a trusted run again at another layout and count the answers that changed.

    A check that fails costs the run nothing but the check: it becomes a warning.
    """
    count = min(cell.settings.layout_check, cell.tasks)
    if not count or not results or not all(r.trusted for r in results):
        return None, []
    correct = "".join(r.correct or "" for r in results)
    chosen = seeded_sample(cell.tasks, count, seed=0)
    places = cell.places()
    wanted = {places[each] for each in chosen}
    tasks = [task for index, task in enumerate(mcbin.Reader(cell.bench.path)) if index in wanted]
    sample = folder / "layout-check.bin"
    facts = mcbin.write(sample, tasks)
    try:
        other = plan(
            cell.engine.probe,
            cell.model.facts,
            facts,
            preflight(sample, cell.model.facts, cell.engine.binding, facts=facts),
            user=cell.settings.user_flags,
            budget=cell.settings.memory_budget,
            alternative=True,
        )
        subfolder = folder / "layout-check"
        subfolder.mkdir()
        part = parts.Part(0, 0, sample, facts, bytes(task.gold for task in tasks), subfolder, temporary=False)
        with console.progress("layout check", count) as advance:
            result = parts.score_part(part, cell.engine, cell.model, other, lambda rows: advance(rows, ""))
    except RefusedError as refusal:
        return None, [_not_done(refusal.what)]
    finally:
        sample.unlink(missing_ok=True)
    if result.correct is None:
        errors = [f for f in result.findings if f.severity == "error"]
        if any(f.slug == "interrupted" for f in errors):
            return None, [finding("interrupted", "during the layout check; the run itself was complete")]
        return None, [_not_done("; ".join(f.detail for f in errors))]
    flipped = tuple(places[chosen[i]] for i, mark in enumerate(result.correct) if mark != correct[chosen[i]])
    check = LayoutCheck(tasks=count, flipped=len(flipped), layout=other.layout(), flipped_tasks=flipped)
    return check, _noise(check)


def _not_done(why: str) -> Finding:
    return finding("layout-noise", f"the check could not be completed: {why}")


def _noise(check: LayoutCheck) -> list[Finding]:
    if check.flipped <= NOISE * check.tasks:
        return []
    share = 100 * check.flipped / check.tasks
    return [finding("layout-noise", f"{check.flipped} of {check.tasks} answers ({share:.1f} %) changed")]
