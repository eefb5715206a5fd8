"""The run record: what one cell produced. Identity, evidence, verdict; JSON, versioned, written once.

Fields that later versions add are optional, and so is identity that ``audit`` and ``exec`` cannot know. Only a
trusted record has a ``result``: an untrusted one holds counts and findings, and nothing that looks like a score.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from llmc.errors import ExitCode, InputFileError, os_error
from llmc.files import readable
from llmc.findings import Finding

SCHEMA = "llmc.run/1"
RULE = "llama.cpp: mean log-probability past the common prefix"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _readable(cls, values: Any) -> Any:
        # Names and arguments need not be UTF-8; a record is.
        return readable(values)


class ModelIdentity(_Part):
    """``size`` in bytes; ``bits_per_weight`` is the file's size over its parameters.

    ``made_from`` is the recipe of a model that a sweep quantized; its file may be gone.
    """

    ref: str
    path: str | None = None
    sha256: str | None = None
    size: int | None = None
    name: str | None = None
    architecture: str | None = None
    quantization: str | None = None
    parameters: int | None = None
    vocab_size: int | None = None
    bits_per_weight: float | None = None
    made_from: dict[str, Any] | None = None


class BenchmarkIdentity(_Part):
    """``chance`` is the mean of 1/options; majority is the most frequent gold position and its share."""

    name: str
    path: str
    sha256: str | None = None
    tasks: int | None = None
    chance: float | None = None
    majority_position: int | None = None
    majority_share: float | None = None
    selection: dict[str, Any] | None = None
    source: dict[str, Any] | None = None


class EngineIdentity(_Part):
    command: tuple[str, ...]
    flavour: str | None = None
    version: str | None = None
    build: int | None = None
    identity: str | None = None
    backend: str | None = None
    devices: tuple[str, ...] = ()


class Counts(_Part):
    """Tasks in the file, announced by the engine, expected of it, and scored."""

    in_file: int | None = None
    announced: int | None = None
    expected: int | None = None
    scored: int = 0


class Timings(_Part):
    """Seconds. ``engine`` is the child's wall time; ``overhead`` what llmc added around it."""

    total: float
    engine: float
    overhead: float
    first_time: dict[str, float] = Field(default_factory=dict)
    load: float | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None


class PartLog(_Part):
    """One launch of several: tasks ``first`` to ``first + tasks - 1``, its logs and how it ended."""

    index: int
    first: int
    tasks: int
    scored: int
    exit_code: int | None
    signal: int | None
    ended_by: str
    stdout: str
    stderr: str
    attempts: int = 1
    resumed: bool = False


class GroupScore(_Part):
    tasks: int
    correct: int


class TaskGroups(_Part):
    """The group of every scored task in file order, run-length coded: what pairs two runs group by group.

    ``runs`` reads ``0x100 1x30 -x2``: 100 tasks of ``names[0]``, 30 of ``names[1]``, 2 of no group.
    """

    names: tuple[str, ...]
    runs: str

    @classmethod
    def of(cls, groups: Sequence[str | None]) -> TaskGroups | None:
        """Return the coded form, or None when no task has a group."""
        names = tuple(sorted({group for group in groups if group is not None}))
        if not names:
            return None
        place: dict[str | None, str] = {name: str(number) for number, name in enumerate(names)}
        place[None] = "-"
        runs = (f"{place[group]}x{sum(1 for _ in same)}" for group, same in itertools.groupby(groups))
        return cls(names=names, runs=" ".join(runs))

    def expand(self, tasks: int) -> tuple[str | None, ...]:
        """Return one group for each of ``tasks`` tasks; ValueError when the coded form says otherwise."""
        lengths = []
        for run in self.runs.split():
            match = re.fullmatch(r"(-|[0-9]{1,9})x([0-9]{1,9})", run)
            if not match or (match[1] != "-" and int(match[1]) >= len(self.names)):
                raise ValueError(f"{run[:40]!r} is no run of groups")
            lengths.append((None if match[1] == "-" else self.names[int(match[1])], int(match[2])))
        if sum(length for _, length in lengths) != tasks:
            raise ValueError(f"the groups are those of {sum(length for _, length in lengths)} tasks, not of {tasks}")
        return tuple(name for name, length in lengths for _ in range(length))


class Result(_Part):
    """Shares from 0 to 1. ``standard_error`` is the engine's own (Wald); the interval is Wilson's at 95 %."""

    accuracy: float
    correct: int
    tasks: int
    wilson_low: float
    wilson_high: float
    standard_error: float | None = None


class LayoutCheck(_Part):
    """A sample scored again at another layout: ``flipped`` of ``tasks`` answers changed."""

    tasks: int
    flipped: int
    layout: dict[str, Any]
    flipped_tasks: tuple[int, ...]


class CrossCheck(_Part):
    """Tasks scored both by llama-perplexity and by the scorer under llama.cpp's rule.

    ``disagreements`` name the tasks whose right or wrong differs, with the margin (nats per token) between the two best
    options; those above ``near_tie`` are not explained by rounding.
    """

    tasks: int
    agreed: int
    near_tie: float
    disagreements: tuple[dict[str, Any], ...]


class Comparability(_Part):
    """``key``: equal or two runs cannot be paired. ``should``: what differs without need is warned about."""

    key: str
    must: dict[str, Any]
    should: dict[str, Any]


class RunRecord(_Part):
    schema_: Literal["llmc.run/1"] = Field(default="llmc.run/1", alias="schema")
    llmc_version: str
    kind: Literal["run", "exec", "audit"]
    status: Literal["trusted", "untrusted", "interrupted"]
    started: str
    finished: str
    scorer: str = "perplexity"
    model: ModelIdentity | None = None
    benchmark: BenchmarkIdentity | None = None
    engine: EngineIdentity | None = None
    argv: tuple[str, ...] = ()
    user_flags: tuple[str, ...] = ()
    layout: dict[str, Any] | None = None
    layout_basis: str | None = None
    environment_dropped: dict[str, str] = Field(default_factory=dict)
    config_files: dict[str, str] = Field(default_factory=dict)
    host: dict[str, Any] = Field(default_factory=dict)
    health: dict[str, Any] | None = None
    counts: Counts = Counts()
    parts: tuple[PartLog, ...] = ()
    peak_rss: int | None = None
    timings: Timings | None = None
    findings: tuple[Finding, ...] = ()
    correct: str | None = None
    excluded: tuple[str, ...] = ()
    groups: dict[str, GroupScore] = Field(default_factory=dict)
    task_groups: TaskGroups | None = None
    result: Result | None = None
    layout_check: LayoutCheck | None = None
    cross_check: CrossCheck | None = None
    rescored: tuple[str, ...] = ()
    rule: str | None = None
    metrics: dict[str, float] | None = None
    scoring: dict[str, Any] | None = None
    items_file: str | None = None
    comparability: Comparability | None = None
    reuse_key: str | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _untrusted_has_no_score(self) -> RunRecord:
        held = (self.result, self.correct, self.metrics, self.groups or None)
        if self.status != "trusted" and any(each is not None for each in held):
            raise ValueError("an untrusted record cannot hold a result")
        if self.status == "trusted" and (self.result is None or any(f.severity == "error" for f in self.findings)):
            raise ValueError("a trusted record needs a result and no error finding")
        return self

    @property
    def exit_code(self) -> ExitCode:
        """The verdict as an exit code: what is printed and what is returned come from this one object."""
        codes = {"trusted": ExitCode.OK, "untrusted": ExitCode.UNTRUSTED, "interrupted": ExitCode.INTERRUPTED}
        return codes[self.status]

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


def load_record(path: Path) -> RunRecord:
    """Read a record.json, or the one in a run's folder; InputFileError when it is none."""
    file = path / "record.json" if path.is_dir() else path
    try:
        return RunRecord.model_validate_json(file.read_bytes())
    except OSError as error:
        raise os_error(error, "read", "name a run's folder or its record.json; see `llmc runs list`") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputFileError(
            f"{file} is not a run record of this version of llmc: {where}: {first['msg']}",
            "see `llmc runs list` for the runs in the store",
        ) from error


def content_key(parts: Any) -> str:
    """SHA-256 over the canonical JSON of ``parts``."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
