"""The catalogue: one YAML file per benchmark (schema.py says what may stand in it), found and loaded here."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from llmc.benchmarks.paths import stored
from llmc.benchmarks.schema import (
    LETTERS,
    Answer,
    Benchmark,
    Choices,
    Encoding,
    Expect,
    Form,
    Mirror,
    Protocol,
    Shots,
    Source,
    parse_template,
    placeholders,
)
from llmc.errors import InputFileError, UsageError, did_you_mean, os_error
from llmc.files import configs_dir

__all__ = [
    "LETTERS",
    "Answer",
    "Benchmark",
    "Choices",
    "Encoding",
    "Expect",
    "Form",
    "Mirror",
    "Protocol",
    "Shots",
    "Source",
    "catalogue",
    "find",
    "load",
    "load_own",
    "parse_template",
    "placeholders",
]


@cache
def load(path: Path) -> Benchmark:
    """Read one spec. Raises InputFileError that names file and key, with the nearest known key for a typo."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise os_error(error, "read the benchmark file", "check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path} is not valid YAML: {error}", "correct the line it names") from error
    if not isinstance(data, dict):
        raise InputFileError(f"{path} does not describe a benchmark", "see `llmc bench show` for the form")
    try:
        return Benchmark.model_validate(data)
    except ValidationError as error:
        lines = [_sentence(detail) for detail in error.errors()]
        raise InputFileError(f"{path}: {'; '.join(lines)}", "correct the file") from error


def load_own(path: Path) -> Benchmark:
    """Read a spec of the user's own: files without a Hub dataset lie beside it.

    Raises what ``load`` does, and InputFileError for a name that the catalogue has.
    """
    spec = load(path)
    if spec.name in catalogue():
        raise InputFileError(f"{path}: {spec.name} is a benchmark of the catalogue", "choose another name")
    if spec.source.hf is not None:
        return spec
    files = {split: stored(path.parent.absolute() / file) for split, file in spec.source.files.items()}
    return spec.model_copy(update={"source": spec.source.model_copy(update={"files": files})})


def _sentence(detail: Any) -> str:
    where = tuple(detail["loc"])
    at = ".".join(str(part) for part in where) or "the whole"
    if detail["type"] == "extra_forbidden":
        return f"unknown key {at}{did_you_mean(str(where[-1]), _known_keys(where[:-1]))}"
    if detail["type"] == "missing":
        return f"{at} is missing"
    return f"{at}: {detail['msg'].removeprefix('Value error, ')}"


def _known_keys(where: tuple[Any, ...]) -> list[str]:
    """Return the keys allowed at a place in a spec, found by walking the models' annotations."""
    here: Any = Benchmark
    for part in where:
        if isinstance(here, type) and issubclass(here, BaseModel):
            here = here.model_fields[part].annotation if part in here.model_fields else None
        else:
            here = next((a for a in reversed(get_args(here)) if a is not type(None) and a is not Ellipsis), None)
    for candidate in (here, *get_args(here)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return list(candidate.model_fields)
    return []


def catalogue() -> dict[str, Path]:
    """Return benchmark name -> its YAML file, in alphabetical order."""
    return {path.stem: path for path in sorted(configs_dir("benchmarks").glob("*.yaml"), key=lambda path: path.stem)}


def find(name: str) -> Benchmark:
    """Return the spec of a benchmark; UsageError with the nearest name when the catalogue has none."""
    known = catalogue()
    if name not in known:
        raise UsageError(f"unknown benchmark {name!r}{did_you_mean(name, known)}", "see `llmc bench list`")
    spec = load(known[name])
    if spec.name != name:
        raise InputFileError(f"{known[name]}: the name inside is {spec.name!r}", "file name and name must agree")
    return spec
