"""What a sweep is to run: a strict YAML file.

Paths in it are relative to the file itself. See configs/sweeps/ for examples of every kind.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from llmc.engine.plan import parse_bytes
from llmc.errors import LlmcError
from llmc.judge.policy import Policy
from llmc.runs.settings import DEFAULT_PART_SIZE, OnHazard, Scorer, Settings
from llmc.scoring.job import Settings as Scoring
from llmc.sweep.devices import slots
from llmc.yamlfile import YamlFile, read_yaml, validate

EXAMPLE = "configs/sweeps/ in llmc's repository holds a commented file of each kind"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _words(value: Any) -> Any:
    """Flags as one text, split as a shell does, or as a list of words."""
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(shlex.split(value))
    return tuple(str(word) for word in value) if isinstance(value, list | tuple) else value


def _model(value: Any) -> Any:
    return {"model": value} if isinstance(value, str) else value


def _baseline(value: Any) -> Any:
    return {"model": value} if isinstance(value, str) else value


def _executor(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


def _slots(value: Any) -> Any:
    """``[0, "1+2", [3, 4]]``: one entry per slot, several devices of a slot joined by +."""
    if not isinstance(value, list | tuple):
        return value
    return tuple("+".join(map(str, each)) if isinstance(each, list) else str(each) for each in value)


def _known_devices(value: tuple[str, ...]) -> tuple[str, ...]:
    _said(lambda: slots(None, value))
    return value


def _memory(value: str | int | None) -> str | int | None:
    if value is not None:
        _said(lambda: parse_bytes(str(value)))
    return value


def _scoring(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    return _said(lambda: handler(value))


def _said(check: Callable[[], Any]) -> Any:
    """Let what refuses a value in its own words be a complaint about that place of the file."""
    try:
        return check()
    except LlmcError as error:
        raise ValueError(f"{error.what}; {error.remedy}") from error


def _axis_value(value: Any) -> Any:
    return value if isinstance(value, dict) else {"flags": value}


ScoringSettings = Annotated[Scoring, WrapValidator(_scoring)]
Flags = Annotated[tuple[str, ...], BeforeValidator(_words)]
Names = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]


class ModelEntry(_Strict):
    """``model``: a path, a glob or a reference; or ``hf`` with ``labels``: quantizations of a repository by name."""

    model: str | None = None
    hf: str | None = Field(default=None, pattern=r"^[\w.-]+/[\w.-]+$")
    labels: Names = ()
    revision: str | None = None
    name: str | None = Field(default=None, pattern=NAME)

    @model_validator(mode="after")
    def _one_kind(self) -> ModelEntry:
        if (self.model is None) == (self.hf is None):
            raise ValueError("a model is named by either model: or hf:")
        if self.hf is not None and not self.labels:
            raise ValueError(f"hf: {self.hf} needs labels: the quantizations wanted, as [Q8_0, Q4_K_M]")
        if self.model is not None and (self.labels or self.revision):
            raise ValueError("labels: and revision: belong to hf:; a path or reference names its own file")
        if self.name is not None and len(self.labels) > 1:
            raise ValueError("one name: cannot stand for several labels")
        return self


class Baseline(_Strict):
    """What every cell is compared with: the cell of this model and these axis values, all else equal."""

    model: str | None = None
    axes: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _something(self) -> Baseline:
        if self.model is None and not self.axes:
            raise ValueError("the baseline names neither a model nor an axis value")
        return self


class ExecutorConfig(_Strict):
    """``local``: ``jobs`` cells side by side here, one slot of ``gpus`` each. ``ray``: one task a cell on a cluster."""

    kind: Literal["local", "ray"] = "local"
    jobs: int | None = Field(default=None, ge=1)
    gpus: Annotated[tuple[str, ...], BeforeValidator(_slots), AfterValidator(_known_devices)] = ()
    address: str | None = None
    num_cpus: float = Field(default=1, ge=0)
    num_gpus: float = Field(default=0, ge=0)
    retries: int = Field(default=3, ge=0)

    @model_validator(mode="after")
    def _own_keys(self) -> ExecutorConfig:
        foreign = {"local": ("address", "num_cpus", "num_gpus", "retries"), "ray": ("jobs", "gpus")}[self.kind]
        for key in foreign:
            if key in self.model_fields_set:
                raise ValueError(f"{key}: has no meaning for executor kind {self.kind}")
        return self


class AxisValue(_Strict):
    """What one value of an axis sets: flags for llama-perplexity, or the scorer and how it scores."""

    flags: Flags = ()
    scorer: Scorer | None = None
    rule: str | None = None
    scoring: ScoringSettings | None = None


class SweepConfig(_Strict):
    """A sweep. What is also an option of ``llmc run`` has its name and meaning there."""

    name: str = Field(pattern=NAME)
    models: Annotated[tuple[Annotated[ModelEntry, BeforeValidator(_model)], ...], BeforeValidator(_one_or_many)] = ()
    base: Annotated[ModelEntry, BeforeValidator(_model)] | None = None
    quantize: Names = ()
    imatrix: str | None = None
    keep: bool = True
    allow_requantize: bool = False
    score_base: bool = True
    benchmarks: Names = ()
    suites: Names = ()
    flags: Flags = ()
    axes: dict[str, dict[str, Annotated[AxisValue, BeforeValidator(_axis_value)]]] = Field(default_factory=dict)
    scorer: Scorer = "perplexity"
    rule: str = Settings.rule
    scoring: ScoringSettings = Scoring()
    limit: int | None = Field(default=None, ge=1)
    seed: int = 0
    like_llama: int | None = Field(default=None, ge=1)
    on_hazard: OnHazard | None = None
    memory_budget: Annotated[str | int | None, AfterValidator(_memory)] = None
    health_check: bool = True
    layout_check: bool = False
    part_size: int = Field(default=DEFAULT_PART_SIZE, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    stall_timeout: float = Field(default=300.0, ge=1)
    engine: str | None = None
    source: str | None = None
    baseline: Annotated[Baseline, BeforeValidator(_baseline)] | None = None
    gate: Policy | None = None
    executor: Annotated[ExecutorConfig, BeforeValidator(_executor)] = ExecutorConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> SweepConfig:
        if not self.models and self.base is None:
            raise ValueError("nothing to score: give models:, or base: with quantize:")
        if not self.benchmarks and not self.suites:
            raise ValueError("nothing to ask: give benchmarks: or suites:")
        if self.suites and (self.limit is not None or self.like_llama is not None):
            raise ValueError("limit: and like_llama: would make another suite of suites:; name a variant, as NAME:mini")
        if self.quantize and self.base is None:
            raise ValueError("quantize: needs base:, the model to quantize")
        if self.base is not None and not self.quantize:
            raise ValueError(
                "base: needs quantize:, the types to make of it; a model to score as it is goes to models:"
            )
        if self.base is None and self.imatrix is not None:
            raise ValueError("imatrix: is for quantize: with base:")
        if self.base is not None and self.base.hf is not None and len(self.base.labels) != 1:
            raise ValueError("base: is one model; give one label")
        if self.limit is not None and self.like_llama is not None:
            raise ValueError("limit: and like_llama: exclude each other")
        if self.gate is not None and self.gate.runs:
            raise ValueError("gate: judges the runs of this sweep; leave gate.runs out")
        for axis, values in self.axes.items():
            if not values:
                raise ValueError(f"axis {axis} has no values; write for example {axis}: {{a: -t 4, b: -t 8}}")
        return self


def load_config(path: Path) -> tuple[SweepConfig, YamlFile]:
    """Return a sweep's configuration and the file it stands in; InputFileError that names line and key."""
    file = read_yaml(path)
    config = validate(SweepConfig, file, EXAMPLE)
    if config.gate is not None and config.gate.baseline is not None:
        # A file beside the configuration; anything else is the name of a run or of a sweep.
        beside = path.parent / config.gate.baseline
        if beside.exists() or config.gate.baseline.endswith(".json"):
            gate = config.gate.model_copy(update={"baseline": str(beside)})
            config = config.model_copy(update={"gate": gate})
    return config, file
