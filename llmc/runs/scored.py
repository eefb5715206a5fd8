"""One cell by the scorer: every option's log-probability, every metric, and a run that resumes where it stopped."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from llmc import console
from llmc.files import locked, sha256_file
from llmc.findings import Finding, has_error
from llmc.runs import store
from llmc.runs.bench import Bench
from llmc.runs.kept import ITEMS, Kept, require_resumable
from llmc.runs.planned import Finished, ScoredCell
from llmc.runs.prepare import PreparedModel
from llmc.runs.record import Comparability, content_key
from llmc.runs.scored_record import Answers, assemble
from llmc.runs.scorer import PreparedScorer, check_scorer_health
from llmc.runs.settings import FirstTime, Settings
from llmc.scoring.job import Job
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import Scored, score_items


def plan_scored_cell(
    scorer: PreparedScorer, model: PreparedModel, bench: Bench, settings: Settings, first: FirstTime
) -> ScoredCell:
    """Plan one cell for the scorer; with ``--resume``, UsageError when there is nothing to go on with."""
    must = {
        "benchmark_sha256": bench.facts.sha256,
        "excluded": [],
        "scorer": "logprobs",
        "rule": settings.rule,
        **settings.scoring.evaluated(),
    }
    should = {
        "engine_flavour": "libllama",
        "engine_version": scorer.binding.version,
        "backend": scorer.binding.backend,
        **settings.scoring.computed(),
    }
    comparability = Comparability(key=content_key(must), must=must, should=should)
    cell = ScoredCell(
        scorer=scorer,
        model=model,
        bench=bench,
        settings=settings,
        items=bench.items or bench.path,
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
        "model": cell.model.content,
        "scorer": cell.scorer.identity_sha256,
        "rule": settings.rule,
        "settings": {**settings.scoring.evaluated(), **settings.scoring.computed(), "uncond": settings.scoring.uncond},
        "health check": settings.health_check,
    }


def _partial(cell: ScoredCell) -> Path:
    return store.Store(cell.settings.out).root / f".scored-{cell.reuse_key[:32]}"


def run_scored_cell(cell: ScoredCell) -> Finished:
    """Run a planned cell, or return the trusted run that the store already has; always leaves a record."""
    with locked_cell(cell):
        if (known := reusable(cell)) is not None:
            return known
        run = ScoredRun(cell)
        with run.cleaned_up():
            if run.healthy:
                run.begin()
                scored = score_items(
                    run.job, cell.model.facts, cell.scorer.binding, run.folder, on_result=run.take,
                    limits=cell.scorer.limits,
                )  # fmt: skip
                return run.finish(scored)
            return run.finish(None)


@contextlib.contextmanager
def locked_cell(cell: ScoredCell) -> Iterator[None]:
    """Keep other processes from this very run for the length of the block."""
    partial = _partial(cell)
    with locked(partial.with_name(partial.name + ".lock"), _tell_of_other, remove=True):
        yield


def _tell_of_other() -> None:
    console.note("waiting for another llmc that is at work on this very run ...")


def reusable(cell: ScoredCell) -> Finished | None:
    """Return the trusted run that the store already has; None when there is none, or --force asks for a new one."""
    if cell.settings.force:
        return None
    known = store.Store(cell.settings.out).find_trusted(cell.reuse_key)
    return None if known is None else Finished(known[0], known[1], reused=True)


class ScoredRun:
    """A cell on its way to its record: a folder, the answers there are from before, and those that come.

    The caller holds ``locked_cell``. ``job`` is for the worker unless the model is not ``healthy``; ``begin`` is called
    when its turn comes, ``take`` with each answer, ``finish`` at the end.
    """

    def __init__(self, cell: ScoredCell) -> None:
        self.cell = cell
        self._started, self._began = store.now(), monotonic()
        self._health: dict[str, Any] = {"checked": False, "reason": "--no-health-check"}
        self._unhealthy: list[Finding] = []
        settings = cell.settings
        if settings.health_check:
            found = check_scorer_health(cell.scorer, cell.model, settings.scoring, cell.first)
            self._health, self._unhealthy = found
        self.healthy = not has_error(self._unhealthy)
        partial = _partial(cell)
        if settings.force and not settings.resume:
            shutil.rmtree(partial, ignore_errors=True)
        self._answers = Answers(settings.rule)
        self._kept = Kept(partial, _wanted(cell))
        self._stack = contextlib.ExitStack()
        runs = store.Store(settings.out)
        self.folder = runs.new_folder(self._started, cell.model.short_name, cell.bench.name, cell.reuse_key)
        try:
            for item in self._kept.take_up() if self.healthy else ():
                self._answers.add(item)
        except BaseException:
            store.discard(self.folder)
            raise
        self._resumed = len(self._answers.marks)
        self.job = Job(cell.items, settings.scoring, done=self._resumed)

    @contextlib.contextmanager
    def cleaned_up(self) -> Iterator[None]:
        """Leave no folder without a record behind, and no file open, however the block ends."""
        try:
            yield
        finally:
            self._stack.close()
            store.discard(self.folder)

    def begin(self) -> None:
        cell = self.cell
        self._started, self._began = store.now(), monotonic()
        title = f"{cell.model.short_name} on {cell.bench.name}"
        self._advance = self._stack.enter_context(console.progress(title, cell.tasks))
        self._stack.enter_context(self._kept)

    def take(self, item: ScoredItem) -> None:
        self._kept.add(item)
        self._answers.add(item)
        count = len(self._answers.marks)
        rate = (count - self._resumed) / max(monotonic() - self._began, 1e-9)
        self._advance(count, f"{count}/{self.cell.tasks} items, {rate:.1f}/s")

    def finish(self, scored: Scored | None) -> Finished:
        """Write the record of what came; the answers of a run that is not trusted stay for the next one."""
        self._stack.close()
        seconds = monotonic() - self._began
        record = assemble(
            self.cell, self._answers, scored, self._resumed, self._unhealthy, self._health, self._started, seconds
        )
        if record.status == "trusted":
            shutil.copyfile(self._kept.path, self.folder / ITEMS)
        store.finish(self.folder, record)
        if record.status == "trusted":
            shutil.rmtree(self._kept.folder, ignore_errors=True)
        return Finished(self.folder, record, reused=False)
