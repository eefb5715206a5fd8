"""What a sweep's configuration names, as single models and benchmark files: globs, labels, references, recipes."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from llmc.errors import FetchError, InputFileError, UsageError, did_you_mean
from llmc.fetch import HubRef, PypiRef, labels_of, parse_reference, pick_by_label
from llmc.sweep.config import ModelEntry, SweepConfig
from llmc.yamlfile import Location, YamlFile

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


def models_of(config: SweepConfig, file: YamlFile) -> list[ModelSource]:
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


def benchmarks_of(config: SweepConfig, file: YamlFile) -> list[tuple[str, str]]:
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
