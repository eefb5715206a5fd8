"""What a suite's YAML file may say, read strictly, and the tree that it stands for.

A suite is a tree. Its leaves are benchmarks or groups of one (a subject of MMLU), each with the metric that is its
score; a node above makes one score of those below it. What a node says of ``protocol``, ``shots``, ``splits``,
``sample`` and ``metric`` holds below it too, unless a part says otherwise. A variant says it otherwise by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from llmc.errors import InputFileError, UsageError, did_you_mean
from llmc.files import configs_dir
from llmc.runs.record import content_key
from llmc.yamlfile import read_yaml, validate

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Metric = Literal[
    "acc_raw", "acc_per_token", "acc_per_char", "acc_per_byte", "acc_uncond", "acc_norm", "acc_bytes", "llama_cpp"
]
Aggregate = Literal["mean", "macro-mean", "mean-of-means", "micro"]
BANANAMIND = "bananamind-base-bench-1.1"  # rated by Elo, gated, and not to be copied: no suite of built files
EXAMPLE = "see configs/suites/ in llmc's repository"
_SETTABLE = ("protocol", "shots", "splits", "sample", "metric")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Sample(_Strict):
    """So many of a part's questions. ``documents``: as olmes draws them; ``even``: as many of each group."""

    count: Annotated[int, Field(gt=0)]
    seed: int = 0
    draw: Literal["documents", "even"]


class Asked(_Strict):
    """How questions are asked and scored; None where what stands above holds.

    ``splits`` are put one behind the other in this order before anything is drawn from them.
    """

    protocol: Name | None = None
    shots: Annotated[int, Field(ge=0)] | None = None
    splits: Annotated[tuple[Name, ...], Field(min_length=1, strict=False)] | None = None
    sample: Sample | None = None
    metric: Metric | None = None

    def over(self, above: Asked) -> Asked:
        """Return what holds for a part that says this, below one for which ``above`` holds."""
        own = {name: getattr(self, name) for name in _SETTABLE if getattr(self, name) is not None}
        return Asked.model_construct(**{name: own.get(name, getattr(above, name)) for name in _SETTABLE})


class Part(Asked):
    """A node with ``parts``, or questions of a ``benchmark``: one leaf, or with ``groups`` a node with one for each.

    ``aggregate``, of a node, is what makes one score of those below: ``mean`` of leaves; ``macro-mean`` of all leaves
    below, each counting once, however deep; ``mean-of-means`` of the parts themselves, each by its own aggregation;
    ``micro`` of all questions below, each counting once.
    """

    name: Name
    aggregate: Aggregate | None = None
    parts: tuple[Part, ...] = Field(default=(), strict=False)
    benchmark: Name | None = None
    groups: tuple[Text, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _one_kind(self) -> Part:
        if bool(self.parts) == (self.benchmark is not None):
            raise ValueError(f"{self.name} needs either parts or a benchmark")
        if self.groups and self.benchmark is None:
            raise ValueError(f"{self.name}: groups are those of a benchmark")
        if (self.aggregate is None) == bool(self.parts or self.groups):
            raise ValueError(f"{self.name}: aggregate belongs to parts and groups, and they need one")
        names = [part.name for part in self.parts] or list(self.groups)
        if len(set(names)) != len(names):
            raise ValueError(f"{self.name} names a part twice")
        if self.aggregate == "mean" and any(part.aggregate for part in self.parts):
            raise ValueError(f"{self.name} has parts of parts: say macro-mean (leaves) or mean-of-means (parts)")
        return self


class Variant(_Strict):
    """The suite with other questions: ``all`` parts that name a benchmark, or single ``parts`` by their name."""

    description: str = ""
    all: Asked = Asked()
    parts: dict[Name, Asked] = Field(default_factory=dict)


class Scoring(_Strict):
    """What the suite's own evaluation does with special tokens and with sequences that are too long."""

    tokenization: Literal["joint", "separate"] = "joint"
    bos: Literal["model", "never", "always"] = "model"
    truncate: Literal["never", "left"] = "never"


class SuiteFile(Part):
    """A whole suite: its topmost node, and what it is."""

    title: str = ""
    description: str = ""
    source: str = ""
    scoring: Scoring = Scoring()
    variants: dict[Name, Variant] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> SuiteFile:
        names = [part.name for part in _with_benchmark(self)]
        if len(set(names)) != len(names):
            raise ValueError("two parts with a benchmark have the same name")
        for variant in self.variants.values():
            for name in variant.parts:
                if name not in names:
                    raise ValueError(f"a variant names the part {name!r}{did_you_mean(name, names)}")
        return self


def _with_benchmark(part: Part) -> Iterator[Part]:
    if part.benchmark is not None:
        yield part
    for below in part.parts:
        yield from _with_benchmark(below)


# The tree


@dataclass(frozen=True)
class Questions:
    """The questions of a part: whose they are, how they are asked, and which of them."""

    benchmark: str
    protocol: str | None
    shots: int
    splits: tuple[str, ...]
    sample: Sample | None
    groups: tuple[str, ...]

    @property
    def asked(self) -> tuple[str, str | None, int, tuple[str, ...]]:
        """What parts must have in common to be asked together."""
        return self.benchmark, self.protocol, self.shots, self.splits


@dataclass(frozen=True)
class Leaf:
    """One task: all of a part's questions, or those of one group. ``path`` names it from below the top, joined by /."""

    path: str
    name: str
    questions: Questions
    group: str | None
    metric: str


@dataclass(frozen=True)
class Node:
    path: str
    name: str
    aggregate: str
    parts: tuple[Node | Leaf, ...]

    def leaves(self) -> Iterator[Leaf]:
        for part in self.parts:
            if isinstance(part, Leaf):
                yield part
            else:
                yield from part.leaves()


@dataclass(frozen=True)
class Suite:
    """A suite or one of its variants, whose ``name`` then stands behind a colon.

    ``scoring`` are the settings of the scorer that its figures are defined with.
    """

    name: str
    title: str
    description: str
    source: str
    scoring: Mapping[str, str]
    tree: Node

    @property
    def file_name(self) -> str:
        return self.name.replace(":", ".")

    @property
    def definition(self) -> str:
        """A hash of all that makes its score; another text of the file has another, unless it says the same."""
        return content_key(repr((self.tree, sorted(self.scoring.items()))))[:16]


def catalogue() -> dict[str, Path]:
    """Return suite name -> its YAML file."""
    return {path.stem: path for path in sorted(configs_dir("suites").glob("*.yaml"))}


def find(name: str) -> Suite:
    """Return a suite by its name, ``name:variant``, or the path of a YAML file (``:variant`` may follow).

    Raises UsageError with the nearest name when there is none, InputFileError for a file that is not a suite.
    """
    body, _, variant = name.partition(":")
    known = catalogue()
    if body.endswith((".yaml", ".yml")):
        return resolve(load(Path(body)), variant)
    if body == BANANAMIND:
        raise UsageError(f"{body} has a runner of its own", "use `llmc bananamind -m MODEL`")
    if body not in known:
        near = did_you_mean(body, known)
        raise UsageError(f"unknown suite {body!r}{near}", f"there are {', '.join(known)}, or name a YAML file")
    return resolve(load(known[body]), variant)


def load(path: Path) -> SuiteFile:
    """Read a suite's file; InputFileError names the line of every fault."""
    return validate(SuiteFile, read_yaml(path, "the suite"), EXAMPLE)


def resolve(file: SuiteFile, variant: str = "") -> Suite:
    """Return the tree of a suite or a variant of it, with all that is inherited filled in."""
    if variant and variant not in file.variants:
        near = did_you_mean(variant, file.variants)
        raise UsageError(
            f"{file.name} has no variant {variant!r}{near}",
            f"it has {', '.join(file.variants)}" if file.variants else "leave the variant out",
        )
    chosen = file.variants[variant] if variant else Variant()
    top = _node(file, Asked(), chosen, "")
    if isinstance(top, Leaf):
        raise InputFileError(f"the suite {file.name} has no parts", "list parts, each with a benchmark")
    return Suite(
        name=f"{file.name}:{variant}" if variant else file.name,
        title=file.title,
        description=chosen.description or file.description,
        source=file.source,
        scoring=file.scoring.model_dump(),
        tree=top,
    )


def _node(part: Part, above: Asked, variant: Variant, path: str) -> Node | Leaf:
    asked = part.over(above)
    if part.parts:
        below = [(each, f"{path}/{each.name}" if path else each.name) for each in part.parts]
        return Node(path, part.name, str(part.aggregate), tuple(_node(p, asked, variant, at) for p, at in below))
    asked = variant.parts.get(part.name, Asked()).over(variant.all.over(asked))
    questions = _questions(part, asked)
    metric = asked.metric or "acc_raw"
    if not part.groups:
        return Leaf(path, part.name, questions, None, metric)
    leaves = tuple(Leaf(f"{path}/{group}", group, questions, group, metric) for group in part.groups)
    return Node(path, part.name, str(part.aggregate), leaves)


def _questions(part: Part, asked: Asked) -> Questions:
    assert part.benchmark is not None
    if asked.splits is None:
        raise InputFileError(f"{part.name} names no splits", "give splits to it, or to a node above it")
    return Questions(part.benchmark, asked.protocol, asked.shots or 0, asked.splits, asked.sample, part.groups)
