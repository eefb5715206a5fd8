"""From a sweep's configuration to its cells: which model, benchmark and flags each one is, and its stable name."""

from __future__ import annotations

import glob
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from llmc.errors import FetchError, InputFileError, UsageError, did_you_mean
from llmc.fetch import HubRef, PypiRef, labels_of, parse_reference, pick_by_label
from llmc.runs.settings import Scorer, Settings
from llmc.scoring.job import Settings as Scoring
from llmc.sweep.config import AxisValue, Baseline, ModelEntry, SweepConfig
from llmc.sweep.yamlfile import Location, YamlFile

_PART = re.compile(r"-(?P<part>\d{5})-of-\d{5}\.gguf$", re.IGNORECASE)
_TYPE_AT_END = re.compile(r"[-._](?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|BF16|FP?16|FP?32)$", re.IGNORECASE)


@dataclass(frozen=True)
class Recipe:
    """How a quantized model is made of its base."""

    type: str
    imatrix: Path | None
    allow_requantize: bool
    keep: bool


@dataclass(frozen=True)
class ModelSource:
    """A model of the sweep. ``ref`` names its file or, when there is a ``recipe``, that of its base."""

    name: str
    ref: str
    recipe: Recipe | None = None


@dataclass(frozen=True)
class EngineSettings:
    """What configuration and axes set together: llama-perplexity's ``flags``, the scorer's ``rule`` and ``scoring``."""

    flags: tuple[str, ...] = ()
    scorer: Scorer = "perplexity"
    rule: str = Settings.rule
    scoring: Scoring = field(default_factory=Scoring)


@dataclass(frozen=True)
class CellSpec:
    """One model on one benchmark with one set of flags. ``bench`` is what ``-b`` takes, ``bench_name`` is shown."""

    model: ModelSource
    bench: str
    bench_name: str
    axes: tuple[tuple[str, str], ...]
    engine: EngineSettings

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
    not have, a model, benchmark or cell that stands twice, a flag that a run refuses, a baseline that is no cell.
    """
    models = _models(config, file)
    benches = _benchmarks(config, file)
    settings = list(_settings(config, file))
    cells = tuple(
        CellSpec(model, bench, name, axes, engine)
        for model in models
        for bench, name in benches
        for axes, engine in settings
    )
    baseline = _baseline(config, file, models)
    return Matrix(cells, baseline)


def _models(config: SweepConfig, file: YamlFile) -> list[ModelSource]:
    found: list[tuple[ModelSource, Location]] = []
    if config.base is not None:
        (base,) = _entry_models(config.base, file, ("base",))
        if config.score_base:
            found.append((base, ("base",)))
        imatrix = _existing(config.imatrix, file, ("imatrix",)) if config.imatrix else None
        stem = config.base.name or _TYPE_AT_END.sub("", base.name)
        for number, kind in enumerate(config.quantize):
            recipe = Recipe(kind.upper(), imatrix, config.allow_requantize, config.keep)
            found.append((ModelSource(f"{stem}-{kind.upper()}", base.ref, recipe), ("quantize", number)))
    for number, entry in enumerate(config.models):
        found += [(each, ("models", number)) for each in _entry_models(entry, file, ("models", number))]
    _refuse_twins(found, file)
    return [model for model, _ in found]


def _refuse_twins(found: Iterable[tuple[ModelSource, Location]], file: YamlFile) -> None:
    names: dict[str, tuple[ModelSource, Location]] = {}
    for model, where in found:
        if model.name not in names:
            names[model.name] = (model, where)
            continue
        other, first = names[model.name]
        same = (other.ref, other.recipe) == (model.ref, model.recipe)
        raise InputFileError(
            f"{file.at(where)}: {model.ref} "
            + (
                f"stands twice (first in {file.at(first)})" if same else f"and {other.ref} are both called {model.name}"
            ),
            "keep one of them" if same else "give one another name: {model: ..., name: ...}",
        )


def _entry_models(entry: ModelEntry, file: YamlFile, where: Location) -> list[ModelSource]:
    if entry.hf is not None:
        refs = [f"{entry.hf}:{label}" + (f"@{entry.revision}" if entry.revision else "") for label in entry.labels]
        _check_labels(entry.hf, entry.labels, entry.revision or "main", file, where)
        return [ModelSource(entry.name or _label_name(ref), ref) for ref in refs]
    text = entry.model or ""
    beside = file.path.parent / Path(text).expanduser()
    if not _is_remote(text) and glob.has_magic(text) and not beside.exists():
        # The later parts of a split model belong to its first.
        paths = [
            path
            for path in _matching(text, file, where)
            if not ((part := _PART.search(path.name)) and int(part["part"]) > 1)
        ]
        if entry.name is not None and len(paths) > 1:
            raise InputFileError(
                f"{file.at(where)}: one name for the {len(paths)} files {text} matches", "leave it out"
            )
        return [ModelSource(entry.name or _stem(path.name), str(path)) for path in paths]
    if beside.exists():
        return [ModelSource(entry.name or _stem(beside.name), str(_existing(text, file, where)))]
    try:
        parsed = parse_reference(text)
    except UsageError as error:
        raise InputFileError(f"{file.at(where)}: {error.what}", error.remedy) from error
    if isinstance(parsed, HubRef):
        if parsed.label is not None:
            _check_labels(parsed.repo, (parsed.label,), parsed.revision, file, where)
        name = _label_name(text) if parsed.label else _stem(PurePosixPath(parsed.path or "").name)
        return [ModelSource(entry.name or name, text)]
    if isinstance(parsed, PypiRef):
        return [ModelSource(entry.name or _stem(PurePosixPath(parsed.member).name), text)]
    path = _existing(text.removeprefix("file:"), file, where)
    return [ModelSource(entry.name or _stem(path.name), str(path))]


def _matching(pattern: str, file: YamlFile, where: Location) -> list[Path]:
    """Return the files that a pattern beside the configuration matches, in order; InputFileError for none."""
    whole = str(file.path.parent / Path(pattern).expanduser())
    # Path.glob takes no pattern that begins with a folder from the root.
    paths = [Path(each) for each in sorted(glob.glob(whole, recursive=True))]  # noqa: PTH207
    if not (files := [path for path in paths if path.is_file()]):
        raise InputFileError(f"{file.at(where)}: {pattern} matches no file", f"looked for {whole}")
    return files


def _is_remote(text: str) -> bool:
    return text.startswith(("hf:", "pypi:"))


def _existing(text: str, file: YamlFile, where: Location) -> Path:
    path = file.path.parent / Path(text).expanduser()
    if path.is_file():
        return path
    near = did_you_mean(path.name, (p.name for p in path.parent.iterdir())) if path.parent.is_dir() else ""
    what = f"{path} is a folder" if path.is_dir() else f"no such file: {path}{near}"
    raise InputFileError(
        f"{file.at(where)}: {what}",
        f"paths are relative to the configuration file; write {text}/*.gguf for what a folder holds"
        if path.is_dir()
        else "paths are relative to the configuration file",
    )


def _check_labels(repo: str, labels: Iterable[str], revision: str, file: YamlFile, where: Location) -> None:
    """Refuse a label that the repository does not have; a Hub that cannot be reached will be met by the cell."""
    from llmc import hub

    try:
        names = [each.path for each in hub.list_files(repo, revision).files]
    except hub.HubUnreachable:
        known = hub.cached_names(repo, revision)
        if known is None:
            return
        names = list(known[1])
    except FetchError as error:
        raise FetchError(f"{file.at(where)}: {error.what}", error.remedy) from error
    for label in labels:
        try:
            pick_by_label(names, label, repo)
        except FetchError as error:
            # Several files under one label are the cell's to explain only if the label is there at all.
            known_labels = ", ".join(sorted(labels_of(names)))
            raise FetchError(f"{file.at(where)}: {error.what}", error.remedy or f"it has {known_labels}") from error


def _stem(name: str) -> str:
    return _clean(_PART.sub("", name).removesuffix(".gguf"))


def _label_name(ref: str) -> str:
    repo, _, label = ref.removeprefix("hf:").partition("@")[0].partition(":")
    return _clean(re.sub(r"[-_]gguf$", "", repo.split("/")[-1], flags=re.IGNORECASE) + f"-{label}")


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def _benchmarks(config: SweepConfig, file: YamlFile) -> list[tuple[str, str]]:
    """Return what to open and its name, for every benchmark: names as they are, files as paths."""
    found: list[tuple[str, str]] = []
    for number, text in enumerate(config.benchmarks):
        where: Location = ("benchmarks", number)
        if glob.has_magic(text):
            paths = _matching(text, file, where)
            new = [(str(path), _clean(path.name.removesuffix(".bin"))) for path in paths]
        elif text.endswith(".bin") or "/" in text:
            path = _existing(text, file, where)
            new = [(str(path), _clean(path.name.removesuffix(".bin")))]
        else:
            new = [(text, text)]
        for bench, name in new:
            if any(name == other for _, other in found):
                raise InputFileError(f"{file.at(where)}: the benchmark {name} stands twice", "keep one of them")
            found.append((bench, name))
    return found


def _settings(config: SweepConfig, file: YamlFile) -> Iterator[tuple[tuple[tuple[str, str], ...], EngineSettings]]:
    """Yield every combination of axis values with all that it sets."""
    _check_flags(config.flags, file, ("flags",))
    for axis, values in config.axes.items():
        for value, given in values.items():
            _check_flags(given.flags, file, ("axes", axis, value))
    choices = [[(axis, value, given) for value, given in values.items()] for axis, values in config.axes.items()]
    seen: dict[EngineSettings, str] = {}
    for combination in itertools.product(*choices):
        axes = tuple((axis, value) for axis, value, _ in combination)
        name = ", ".join(f"{axis}={value}" for axis, value in axes)
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
