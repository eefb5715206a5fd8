"""From a sweep's configuration to its cells: which model, benchmark and flags each one is, and its stable name."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from llmc.errors import InputFileError, UsageError, did_you_mean
from llmc.runs.settings import Scorer, Settings
from llmc.scoring.job import Settings as Scoring
from llmc.sweep.config import AxisValue, Baseline, SweepConfig
from llmc.sweep.gate import check_demands
from llmc.sweep.sources import ModelSource, benchmarks_of, models_of
from llmc.sweep.suites import SuitePart, suites_of
from llmc.yamlfile import Location, YamlFile

Axes = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class EngineSettings:
    """What configuration and axes set together: llama-perplexity's ``flags``, the scorer's ``rule`` and ``scoring``."""

    flags: tuple[str, ...] = ()
    scorer: Scorer = "perplexity"
    rule: str = Settings.rule
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class CellSpec:
    """One model on one benchmark with one set of flags. ``bench`` is what ``-b`` takes, ``bench_name`` is shown.

    Of a cell of a suite ``bench`` is a name that stands for its ``suite`` part alone.
    """

    model: ModelSource
    bench: str
    bench_name: str
    axes: tuple[tuple[str, str], ...]
    engine: EngineSettings
    suite: SuitePart | None = None

    @property
    def id(self) -> str:
        """The cell's name: made of the configuration's words only, so it is the same on every machine."""
        values = ",".join(f"{axis}={value}" for axis, value in self.axes)
        return "/".join(part for part in (self.model.name, self.bench_name, values) if part)

    def in_shard(self, index: int, count: int) -> bool:
        """Whether the cell belongs to shard ``index`` of 1..``count``."""
        return int(hashlib.sha256(self.id.encode()).hexdigest()[:16], 16) % count == index - 1


@dataclass(frozen=True)
class Matrix:
    """All cells in order, models outermost, and what each is compared with."""

    cells: tuple[CellSpec, ...]
    baseline: Baseline | None

    def baseline_of(self, cell: CellSpec) -> str | None:
        """Return the id of the cell to compare ``cell`` with; None without one, or when it is that cell itself."""
        if self.baseline is None:
            return None
        model = self.baseline.model or cell.model.name
        values = {**dict(cell.axes), **self.baseline.axes}
        for other in self.cells:
            if other.model.name == model and other.bench == cell.bench and dict(other.axes) == values:
                return None if other.id == cell.id else other.id
        return None


def expand(config: SweepConfig, file: YamlFile) -> Matrix:
    """Return the cells of a configuration.

    Raises InputFileError, with file and line, for a glob or path that matches nothing, a label a repository does
    not have, a model, benchmark or cell that stands twice, a flag that a run refuses, a baseline that is no cell, a
    gate that asks for nothing.
    """
    models = models_of(config, file)
    benches = benchmarks_of(config, file)
    suites = suites_of(config, file)
    settings = list(_settings(config, file))
    cells = tuple(cell for model in models for cell in _cells(model, benches, suites, settings, file))
    _refuse_twins(cells, file)
    matrix = Matrix(cells, _baseline(config, file, models))
    check_demands(config, file, compared=any(matrix.baseline_of(cell) for cell in cells))
    return matrix


def _cells(
    model: ModelSource,
    benches: Iterable[tuple[str, str]],
    suites: Iterable[SuitePart],
    settings: list[tuple[Axes, EngineSettings]],
    file: YamlFile,
) -> Iterator[CellSpec]:
    for bench, name in benches:
        for axes, engine in settings:
            yield CellSpec(model, bench, name, axes, engine)
    for part in suites:
        seen: dict[EngineSettings, str] = {}
        for axes, engine in settings:
            if engine.flags:
                raise InputFileError(
                    f"{file.at(('suites',))}: suites are scored by log-probabilities, and the flags"
                    f" {' '.join(engine.flags)} are llama-perplexity's",
                    "set what you want under scoring:, or give the suites a sweep of their own",
                )
            _refuse_overruled(part, axes, engine, file)
            scored = replace(engine, scorer="logprobs", rule=part.rule, scoring=part.over(engine.scoring))
            name = _said(axes)
            if scored in seen:
                raise InputFileError(
                    f"{file.at(('axes',))}: {name} and {seen[scored]} set the same for {part.name}, so the same cell"
                    " stands twice",
                    "a suite decides for itself how it is scored; remove one value, or give it a sweep of its own",
                )
            seen[scored] = name
            yield CellSpec(model, part.key, part.name, axes, scored, part)


def _refuse_overruled(part: SuitePart, axes: Axes, engine: EngineSettings, file: YamlFile) -> None:
    for key, (given, own) in part.overruled(engine.scoring, engine.rule).items():
        places: list[Location] = [("axes", axis, value, *key) for axis, value in axes]
        where = next((place for place in places if place in file.lines), key)
        raise InputFileError(
            f"{file.at(where)}: {key[-1]} {given} would have no effect: the suite of {part.name} says {own}",
            f"drop {key[-1]}, or give the suites a sweep of their own",
        )


def _said(axes: Axes) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in axes)


def _refuse_twins(cells: Iterable[CellSpec], file: YamlFile) -> None:
    """A cell is known by its name alone: of two with one name the map would hold one."""
    seen: set[str] = set()
    for cell in cells:
        if cell.id in seen:
            where: Location = ("suites",) if cell.suite else ("axes",) if cell.axes else ("benchmarks",)
            raise InputFileError(
                f"{file.at(where)}: two cells would be called {cell.id}",
                "give models, benchmarks, suites and axis values names that tell them apart",
            )
        seen.add(cell.id)


def _settings(config: SweepConfig, file: YamlFile) -> Iterator[tuple[Axes, EngineSettings]]:
    """Yield every combination of axis values with all that it sets."""
    _check_flags(config.flags, file, ("flags",))
    for axis, values in config.axes.items():
        for value, given in values.items():
            _check_flags(given.flags, file, ("axes", axis, value))
    choices = [[(axis, value, given) for value, given in values.items()] for axis, values in config.axes.items()]
    seen: dict[EngineSettings, str] = {}
    for combination in itertools.product(*choices):
        axes = tuple((axis, value) for axis, value, _ in combination)
        name = _said(axes)
        engine = _together(config, [given for _, _, given in combination])
        _check_scorer(engine, name, file)
        if engine in seen:
            raise InputFileError(
                f"{file.at(('axes',))}: {name} and {seen[engine]} set the same, so the same cell stands twice",
                "remove one value, or correct what it sets",
            )
        seen[engine] = name
        yield axes, engine


def _together(config: SweepConfig, values: Iterable[AxisValue]) -> EngineSettings:
    engine = EngineSettings(config.flags, config.scorer, config.rule, config.scoring)
    for value in values:
        engine = EngineSettings(
            flags=(*engine.flags, *value.flags),
            scorer=value.scorer or engine.scorer,
            rule=value.rule or engine.rule,
            scoring=value.scoring or engine.scoring,
        )
    return engine


def _check_scorer(engine: EngineSettings, name: str, file: YamlFile) -> None:
    """What says nothing to the scorer in use is a mistake, not a wish to be ignored."""
    from llmc.scoring.metrics import RULES

    where: Location = ("axes",) if name else ("scorer",)
    of = f" of {name}" if name else ""
    if engine.rule not in RULES:
        raise InputFileError(
            f"{file.at(where)}: no rule is called {engine.rule!r}{did_you_mean(engine.rule, RULES)}",
            f"the rules are {', '.join(RULES)}",
        )
    if engine.scorer == "logprobs" and engine.flags:
        raise InputFileError(
            f"{file.at(where)}: the flags{of} are llama-perplexity's, and the logprobs scorer does not run it",
            "drop them, or set what you want under scoring:",
        )
    if engine.scorer == "perplexity" and (engine.rule, engine.scoring) != (Settings.rule, Scoring()):
        raise InputFileError(
            f"{file.at(where)}: rule and scoring{of} belong to the logprobs scorer",
            "add scorer: logprobs, or drop them",
        )


def _check_flags(flags: tuple[str, ...], file: YamlFile, where: Location) -> None:
    from llmc.engine.flags import parse

    try:
        parse(flags)
    except UsageError as error:
        raise InputFileError(f"{file.at(where)}: {error.what}", error.remedy) from error


def _baseline(config: SweepConfig, file: YamlFile, models: list[ModelSource]) -> Baseline | None:
    """Return the baseline as written, else the base model where there is one."""
    given = config.baseline
    if given is None:
        return Baseline(model=models[0].name) if config.base is not None and config.score_base else None
    where: Location = ("baseline",)
    names = [model.name for model in models]
    if given.model is not None and given.model not in names:
        raise InputFileError(
            f"{file.at(where)}: no model of this sweep is called {given.model!r}{did_you_mean(given.model, names)}",
            f"its models are {', '.join(names)}",
        )
    for axis, value in given.axes.items():
        if axis not in config.axes:
            raise InputFileError(f"{file.at(where)}: no axis is called {axis!r}{did_you_mean(axis, config.axes)}", "")
        if value not in config.axes[axis]:
            raise InputFileError(
                f"{file.at(where)}: axis {axis} has no value {value!r}{did_you_mean(value, config.axes[axis])}",
                f"its values are {', '.join(config.axes[axis])}",
            )
    return given
