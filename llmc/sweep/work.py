"""One cell of a sweep, from its specification to its run: here, in a thread, or on another machine.

What cells share (the engine, a model, a benchmark) is prepared once and kept; what fails to be prepared fails
every cell that needs it, and no other.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from llmc.engine.process import Limits
from llmc.errors import ExitCode, InterruptedRun, LlmcError, RefusedError, os_error
from llmc.runs.bench import Bench, open_bench
from llmc.runs.cell import plan_cell, run_cell
from llmc.runs.memory import available_bytes
from llmc.runs.planned import Cell, Finished, ScoredCell
from llmc.runs.prepare import PreparedEngine, PreparedModel, prepare_engine, prepare_model
from llmc.runs.scored import plan_scored_cell, run_scored_cell
from llmc.runs.scorer import PreparedScorer, prepare_scorer
from llmc.runs.settings import FirstTime, Settings
from llmc.runs.store import Store
from llmc.runs.sweep_map import Status
from llmc.sweep.matrix import CellSpec
from llmc.sweep.quantize import Quantized, find_quantizer
from llmc.sweep.sources import ModelSource
from llmc.sweep.suites import open_part

Kept = TypeVar("Kept")
Planned = Cell | ScoredCell
UNCONDITIONAL = "acc_uncond"  # the rule that needs the options' log-probabilities without the question
SYSTEM = "system"  # the kind of an error that is the machine's: a full disk, no memory


@dataclass(frozen=True)
class Done:
    """How a cell ended. ``run`` is its folder; ``error`` has kind, message, remedy (and slug) when there is no run."""

    status: Status
    run: Path | None
    error: dict[str, str] | None
    reused: bool
    accuracy: float | None = None


class Workshop:
    """What the cells of a sweep share on one machine. Safe to use from several threads.

    ``slots`` is how many cells run side by side: each gets its part of the memory when no budget is set.
    """

    def __init__(self, settings: Settings, folder: Path, slots: int = 1) -> None:
        if settings.memory_budget is None:
            # Nine tenths of what is available: beyond it the kernel would end a run.
            settings = replace(settings, memory_budget=available_bytes() * 9 // 10 // slots)
        self.settings, self.folder = settings, folder
        self._kept: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def _keep(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """Return what ``make`` returned, or raise what it raised, the first time it was called for ``key``."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._kept:
                try:
                    self._kept[key] = make()
                except InterruptedRun:
                    raise
                except Exception as error:
                    self._kept[key] = _Failed(error)
            found = self._kept[key]
        if isinstance(found, _Failed):
            raise found.error.with_traceback(None)  # else it would grow with every cell that meets it
        return found  # type: ignore[no-any-return]

    def engine(self, variables: Mapping[str, str] | None = None) -> PreparedEngine:
        """Return the engine, its environment with ``variables`` added (the devices of a slot)."""
        prepared = self._keep("engine", lambda: prepare_engine(self.settings, FirstTime()))
        if not variables:
            return prepared
        environment = replace(prepared.environment, variables={**prepared.environment.variables, **variables})
        return replace(prepared, environment=environment)

    def bench(self, name: str) -> Bench:
        return self._keep(("bench", name), lambda: open_bench(name, self.settings))

    def bench_of(self, cell: CellSpec) -> Bench:
        """Return the questions of a cell; of a suite's, what is asked for each of its tasks is noted in the folder."""
        part = cell.suite
        if part is None:
            return self.bench(cell.bench)
        return self._keep(("bench", cell.bench), lambda: open_part(part, self.settings, self.folder))

    def file(self, ref: str) -> PreparedModel:
        """Return the model that a reference names, fetched and checksummed."""
        return self._keep(("model", ref), lambda: prepare_model(ref, FirstTime()))

    def quantized(self) -> Quantized:
        return self._keep("quantized", lambda: Quantized(self.folder / "models", find_quantizer(self.settings.engine)))

    def planned_model(self, source: ModelSource) -> PreparedModel:
        """Return the model for planning; one that is still to be quantized is described, not made."""
        base = self.file(source.ref)
        return self.quantized().planned(source, base) if source.recipe else base

    @contextlib.contextmanager
    def model(self, source: ModelSource) -> Iterator[PreparedModel]:
        """Have the model's file there for the length of the block."""
        base = self.file(source.ref)
        if source.recipe is None:
            yield base
            return
        with self.quantized().use(source, base) as made:
            yield made

    def drop(self, source: ModelSource) -> None:
        """Delete a quantized model that is not to be kept, unless another process uses it."""
        if source.recipe is not None and not source.recipe.keep:
            with contextlib.suppress(LlmcError):  # a base that cannot be read left nothing to delete
                self.quantized().drop(source, self.file(source.ref))

    def scorer(self, variables: Mapping[str, str] | None = None) -> PreparedScorer:
        """Return the scorer, its worker's environment with ``variables`` added."""
        limits = Limits(timeout=self.settings.timeout, stall=self.settings.stall)
        prepared = self._keep("scorer", lambda: prepare_scorer(limits))
        return replace(prepared, binding=replace(prepared.binding, variables=variables or {}))

    def plan(self, cell: CellSpec, model: PreparedModel, variables: Mapping[str, str] | None = None) -> Planned:
        """Plan a cell for its scorer; RefusedError for what would go wrong."""
        engine = cell.engine
        settings = replace(
            self.settings,
            user_flags=engine.flags,
            scorer=engine.scorer,
            rule=engine.rule,
            scoring=replace(engine.scoring, uncond=engine.scoring.uncond or engine.rule == UNCONDITIONAL),
        )
        bench = self.bench_of(cell)
        if engine.scorer == "logprobs":
            return plan_scored_cell(self.scorer(variables), model, bench, settings, FirstTime())
        return plan_cell(self.engine(variables), model, bench, settings, FirstTime())

    def known_run(self, planned: Planned) -> Done | None:
        """Return the trusted run that already answers a planned cell, if the store has one."""
        known = None if self.settings.force else Store(self.settings.out).find_trusted(planned.reuse_key)
        return _done(Finished(*known, reused=True)) if known else None


@dataclass(frozen=True)
class _Failed:
    error: Exception


def perform(cell: CellSpec, workshop: Workshop, variables: Mapping[str, str] | None = None) -> Done:
    """Run one cell, or find its trusted run; never raises for what is wrong with this cell alone."""
    try:
        return _perform(cell, workshop, variables)
    except KeyboardInterrupt:
        return Done("interrupted", None, None, reused=False)
    except LlmcError as error:
        interrupted = error.exit_code == ExitCode.INTERRUPTED
        return Done("interrupted" if interrupted else "failed", None, describe(error), reused=False)
    except Exception as error:
        return Done("failed", None, describe(error), reused=False)


def _perform(cell: CellSpec, workshop: Workshop, variables: Mapping[str, str] | None) -> Done:
    planned = workshop.plan(cell, workshop.planned_model(cell.model), variables)
    if cell.model.recipe is not None:
        if (known := workshop.known_run(planned)) is not None:
            return known
        with workshop.model(cell.model) as made:
            return _done(_run(workshop.plan(cell, made, variables)))
    return _done(_run(planned))


def _run(planned: Planned) -> Finished:
    return run_cell(planned) if isinstance(planned, Cell) else run_scored_cell(planned)


def _done(finished: Finished) -> Done:
    result = finished.record.result
    return Done(finished.record.status, finished.folder, None, finished.reused, result.accuracy if result else None)


def describe(error: Exception) -> dict[str, str]:
    """Return an error as a cell's state keeps it."""
    if isinstance(error, OSError | MemoryError):
        what = str(os_error(error, "read or write")) if isinstance(error, OSError) else "there is not enough memory"
        return {"kind": SYSTEM, "message": what, "remedy": "check the room on the disk and in memory, and run again"}
    if not isinstance(error, LlmcError):
        what = f"internal error: {type(error).__name__}: {error}"
        return {"kind": "internal", "message": what, "remedy": "run this cell alone with LLMC_DEBUG=1 and report it"}
    detail = {"kind": error.kind, "message": error.what, "remedy": error.remedy}
    return {**detail, "slug": error.slug} if isinstance(error, RefusedError) else detail
