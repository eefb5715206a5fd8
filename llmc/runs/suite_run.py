"""Run a suite's cells: one worker, the model loaded once, a record for each cell, and the tasks' results."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from llmc.errors import RefusedError
from llmc.runs.planned import Finished, ScoredCell
from llmc.runs.prepare import PreparedModel
from llmc.runs.scored import ScoredRun, locked_cell, plan_scored_cell, reusable
from llmc.runs.scorer import PreparedScorer
from llmc.runs.settings import FirstTime, Settings
from llmc.runs.suite_plan import SuiteCell, SuitePlan
from llmc.runs.suite_results import Absent, Result, results_of
from llmc.scoring.job import Job
from llmc.scoring.results import ScoredItem
from llmc.scoring.series import score_series
from llmc.scoring.session import Scored


@dataclass
class SuiteRun:
    """``results`` of the tasks by their path (those not run have none), and the runs in the order of the cells."""

    results: dict[str, Result]
    finished: list[Finished] = field(default_factory=list)

    @property
    def interrupted(self) -> bool:
        return any(each.record.status == "interrupted" for each in self.finished)

    def add(self, part: SuiteCell, finished: Finished) -> None:
        self.finished.append(finished)
        self.results |= results_of(finished.folder, finished.record, part.places)


def scored_cells(
    plan: SuitePlan, scorer: PreparedScorer, model: PreparedModel, settings: Settings, first: FirstTime
) -> list[ScoredCell]:
    """Return the planned cells of a suite, ready to run."""
    firsts = [first, *(FirstTime() for _ in plan.cells[1:])]
    return [
        plan_scored_cell(scorer, model, part.bench, part.settings(settings), each)
        for part, each in zip(plan.cells, firsts, strict=False)
    ]


def run_suite(plan: SuitePlan, cells: list[ScoredCell]) -> SuiteRun:
    """Run what the store does not have, and return what came of every task.

    A cell that goes wrong does not stop those after it; Ctrl-C does. Whatever was scored before it is taken up by the
    next run: finished cells from the store, the one that was under way from its last whole batch.
    """
    done = SuiteRun(dict(plan.absent))
    with contextlib.ExitStack() as locks:
        # In an order that all processes share, so that no two wait for each other.
        for cell in sorted(cells, key=lambda cell: cell.reuse_key):
            locks.enter_context(locked_cell(cell))
        todo: list[tuple[SuiteCell, ScoredCell]] = []
        for part, cell in zip(plan.cells, cells, strict=True):
            if (known := reusable(cell)) is not None:
                done.add(part, known)
            else:
                todo.append((part, cell))
        while todo and not done.interrupted:
            todo = todo[_run_some(todo, done) :]
    order = {cell.reuse_key: place for place, cell in enumerate(cells)}
    done.finished.sort(key=lambda finished: order[finished.record.reuse_key or ""])
    return done


def _run_some(todo: list[tuple[SuiteCell, ScoredCell]], done: SuiteRun) -> int:
    """Run cells by one worker until all are done, or one goes wrong; return how many had their turn."""
    if todo[0][1].settings.timeout is not None:
        todo = todo[:1]  # the limit is that of one cell
    with contextlib.ExitStack() as stack:
        turns = []
        for part, cell in todo:
            run = ScoredRun(cell)
            stack.enter_context(run.cleaned_up())
            if not run.healthy:
                done.add(part, run.finish(None))
                return 1
            turns.append(_Turn(part, run, done))
        scorer, model = todo[0][1].scorer, todo[0][1].model
        return score_series(turns, model.facts, scorer.binding, limits=scorer.limits)


class _Turn:
    """A cell's turn with the worker."""

    def __init__(self, part: SuiteCell, run: ScoredRun, done: SuiteRun) -> None:
        self.job: Job = run.job
        self.folder = run.folder
        self._part, self._run, self._done = part, run, done

    def begin(self) -> None:
        self._run.begin()

    def take(self, item: ScoredItem) -> None:
        self._run.take(item)

    def finish(self, scored: Scored) -> None:
        self._done.add(self._part, self._run.finish(scored))

    def refuse(self, error: RefusedError) -> None:
        absent = Absent("refused", error.what, error.remedy)
        self._done.results |= dict.fromkeys(self._part.places, absent)
