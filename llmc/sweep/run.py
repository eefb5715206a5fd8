"""A sweep from its configuration to its map: what is to be done, by whom, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llmc import console
from llmc.engine.plan import parse_bytes
from llmc.errors import InputFileError, UsageError
from llmc.files import with_home
from llmc.runs.record import content_key
from llmc.runs.settings import Settings
from llmc.runs.sweep_map import CellState, SweepMap
from llmc.sweep.board import Board, Event
from llmc.sweep.config import SweepConfig
from llmc.sweep.devices import slots
from llmc.sweep.local import Executor, LocalExecutor, Steps
from llmc.sweep.matrix import CellSpec, Matrix
from llmc.sweep.state import SweepFolder
from llmc.sweep.work import Workshop
from llmc.yamlfile import YamlFile

LAYOUT_SAMPLE = 200


@dataclass(frozen=True)
class Request:
    """What one call asks for: a sweep, whole or a shard of it, and where its results go."""

    config: SweepConfig
    file: YamlFile
    matrix: Matrix
    out: Path
    shard: tuple[int, int] | None = None
    force: bool = False
    jobs: int | None = None
    gpus: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[CellSpec, ...]:
        if self.shard is None:
            return self.matrix.cells
        return tuple(cell for cell in self.matrix.cells if cell.in_shard(*self.shard))

    @property
    def folder(self) -> SweepFolder:
        return SweepFolder(self.out, self.config.name)

    def slots(self) -> list[dict[str, str]]:
        executor = self.config.executor
        return slots(self.jobs or executor.jobs, self.gpus or executor.gpus)

    def settings(self) -> Settings:
        config = self.config
        budget = config.memory_budget
        return Settings(
            out=self.out,
            engine=self._engine(),
            source=self._path(config.source),
            limit=config.limit,
            seed=config.seed,
            like_llama=config.like_llama,
            on_hazard=config.on_hazard or Settings.on_hazard,
            memory_budget=parse_bytes(str(budget)) if budget is not None else None,
            health_check=config.health_check,
            force=self.force,
            part_size=config.part_size,
            timeout=config.timeout,
            stall=config.stall_timeout,
            layout_check=LAYOUT_SAMPLE if config.layout_check else 0,
        )

    def workshop(self) -> Workshop:
        return Workshop(self.settings(), self.folder.path, len(self.slots()))

    def _engine(self) -> str | None:
        """The engine as a path when there is one beside the configuration, else as a name to look for."""
        engine = self.config.engine
        beside = self._path(engine)
        return str(beside) if beside is not None and beside.exists() else engine

    def _path(self, text: str | None) -> Path | None:
        return None if text is None else self.file.path.parent / with_home(text)


def parse_shard(text: str) -> tuple[int, int]:
    """Return (i, n) of ``i/n`` with 1 <= i <= n; UsageError otherwise."""
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise UsageError(f"{text!r} is no shard", "write --shard i/n with i from 1 to n, as --shard 2/8")
    return int(index), int(count)


def definition(cell: CellSpec, config: SweepConfig) -> str:
    """Hash what the configuration says of a cell: when it changes, what is known of the cell no longer stands."""
    keys = ("limit", "seed", "like_llama", "on_hazard", "health_check", "layout_check", "source")
    return content_key(
        {
            "model": cell.model.ref,
            "recipe": [str(part) for part in (cell.model.recipe.type, cell.model.recipe.imatrix)]
            if cell.model.recipe
            else None,
            "bench": cell.bench if cell.suite is None else [cell.bench, cell.suite.definition],
            "engine": asdict(cell.engine),
            "program": config.engine,
            **config.model_dump(mode="json", include=set(keys)),
        }
    )[:16]


def run_sweep(request: Request, on_done: Callable[[Event], None], steps: Steps) -> SweepMap:
    """Run the cells that have no trusted run yet and return the map as it then is.

    Cells fail by themselves: what is raised here concerns the sweep as a whole (no engine, no room for the map).
    """
    folder, cells = request.folder, request.cells
    workshop = request.workshop()

    def preparing(title: str, total: float | None, done: float, remark: str) -> None:
        steps("", title, total, done, remark)

    # What this thread itself does (a probe, checksums) has no bar of its own: the sweep's is on the screen.
    with console.progress_to(preparing):
        _require_tools(workshop, request)
        folder.begin(request.config.model_dump(mode="json"), _states(request))
        with folder.claims():
            board = Board(cells, folder, on_done, workshop.drop)
            _executor(request, workshop, steps).run(board)
    return folder.load()


def _executor(request: Request, workshop: Workshop, steps: Steps) -> Executor:
    if request.config.executor.kind == "ray":
        from llmc.sweep.ray_cluster import RayExecutor

        return RayExecutor(workshop, request.config.executor)
    return LocalExecutor(workshop, request.slots(), steps)


def _states(request: Request) -> dict[str, CellState]:
    matrix = request.matrix
    return {
        cell.id: CellState(
            model=cell.model.name,
            benchmark=cell.bench_name,
            axes=dict(cell.axes),
            flags=cell.engine.flags,
            definition=definition(cell, request.config),
            baseline=matrix.baseline_of(cell),
            suite=cell.suite.suite if cell.suite else None,
            suite_part=cell.suite.number if cell.suite else None,
            suite_definition=cell.suite.definition if cell.suite else None,
        )
        for cell in matrix.cells
    }


def _require_tools(workshop: Workshop, request: Request) -> None:
    """Raise before anything runs what would fail every cell: no engine, no scorer, a type that cannot be made."""
    cells = request.cells
    scorers = {cell.engine.scorer for cell in cells}
    if "perplexity" in scorers:
        workshop.engine()
    if "logprobs" in scorers:
        workshop.scorer()
    wanted = {cell.model.recipe.type for cell in cells if cell.model.recipe}
    for number, kind in enumerate(request.config.quantize):
        if kind.upper() not in wanted:
            continue
        quantizer = workshop.quantized().quantizer
        try:
            quantizer.require_type(kind)
        except UsageError as error:
            where = request.file.at(("quantize", number))
            raise InputFileError(f"{where}: {error.what}", error.remedy) from error


def preview(request: Request) -> list[dict[str, Any]]:
    """Return what every cell would take, and run nothing: see ``llmc sweep --dry-run``.

    ``cached`` says that the store has its trusted run; ``disk_bytes`` is a quantized model still to be made;
    ``memory_bytes`` the engine's expected peak; ``error`` why a cell would fail.
    """
    from llmc.sweep.preview import preview_cell

    workshop = request.workshop()
    _require_tools(workshop, request)
    return [preview_cell(cell, workshop) for cell in request.cells]
