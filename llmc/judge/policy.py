"""What a gate demands: a strict model, from flags or from a YAML file in the repository (``llmc gate --config``)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

DEFAULT_MARGIN = 1.0
DEFAULT_ALPHA = 0.05


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _percent(value: float) -> float:
    if not 1 <= value <= 100:
        raise ValueError(f"an accuracy is given in percent, from 1 to 100: {value:g} (45 means 45 %)")
    return value


def _margin(value: float) -> float:
    if not 0 < value < 100:
        raise ValueError(f"a margin is given in percentage points, above 0 and below 100: {value:g}")
    return value


def _alpha(value: float) -> float:
    if not 0 < value < 0.5:
        raise ValueError(f"alpha, the chance of a wrong pass, lies above 0 and below 0.5: {value:g}")
    return value


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Percent = Annotated[float, AfterValidator(_percent)]
Margin = Annotated[float, AfterValidator(_margin)]
Alpha = Annotated[float, AfterValidator(_alpha)]
Names = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]


class BenchmarkPolicy(_Strict):
    """What is asked of one benchmark, where it is not what is asked of all. ``skip`` is the reason to leave it out."""

    margin: Margin | None = None
    min_accuracy: Percent | None = None
    skip: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _skip_alone(self) -> BenchmarkPolicy:
        if self.skip is not None and (self.margin is not None or self.min_accuracy is not None):
            raise ValueError("skip: leaves a benchmark out; remove it, or the demands beside it")
        return self


class Policy(_Strict):
    """``margin`` in percentage points, ``min_accuracy`` in percent, ``alpha`` one-sided.

    ``baseline`` and ``runs`` are paths or names of runs. ``groups`` is ``clusters`` where questions of one group hang
    together. ``holm`` adjusts for the number of tests. ``axis`` names settings that differ from the baseline's on
    purpose.
    """

    baseline: str | None = None
    runs: Names = ()
    margin: Margin = DEFAULT_MARGIN
    alpha: Alpha = DEFAULT_ALPHA
    min_accuracy: Percent | None = None
    benchmarks: dict[str, BenchmarkPolicy] = Field(default_factory=dict)
    groups: Literal["none", "clusters"] = "none"
    holm: bool = True
    axis: Names = ()

    def margin_of(self, benchmark: str) -> float:
        """Return the margin as a share."""
        own = self.benchmarks.get(benchmark, BenchmarkPolicy()).margin
        return (self.margin if own is None else own) / 100

    def floor_of(self, benchmark: str) -> float | None:
        """Return the least accuracy as a share, None when none is asked."""
        own = self.benchmarks.get(benchmark, BenchmarkPolicy()).min_accuracy
        percent = self.min_accuracy if own is None else own
        return None if percent is None else percent / 100

    def skip_reason(self, benchmark: str) -> str | None:
        return self.benchmarks.get(benchmark, BenchmarkPolicy()).skip

    @property
    def has_floors(self) -> bool:
        own = any(each.min_accuracy is not None for each in self.benchmarks.values())
        return self.min_accuracy is not None or own
