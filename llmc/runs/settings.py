"""What the user asked of a run, and what several cells of one call share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Literal

from llmc.scoring.job import Settings as ScoringSettings

OnHazard = Literal["rescore", "exclude", "fail"]
Scorer = Literal["perplexity", "logprobs"]
DEFAULT_PART_SIZE = 50_000


@dataclass(frozen=True)
class Settings:
    """``limit`` with ``seed``, or ``like_llama``: how many questions; ``layout_check`` and ``cross_check``: sizes of
    their samples.

    ``scoring`` are the settings of the logprobs scorer, ``rule`` the one whose answers are the run's result.
    """

    out: Path = Path("out")
    engine: str | None = None
    source: Path | None = None
    limit: int | None = None
    seed: int = 0
    like_llama: int | None = None
    on_hazard: OnHazard = "rescore"
    memory_budget: int | None = None
    health_check: bool = True
    force: bool = False
    part_size: int = DEFAULT_PART_SIZE
    timeout: float | None = None
    stall: float = 300.0
    layout_check: int = 0
    cross_check: int = 0
    scorer: Scorer = "perplexity"
    scoring: ScoringSettings = field(default_factory=ScoringSettings)
    rule: str = "llama_cpp"
    resume: bool = False
    user_flags: tuple[str, ...] = ()


@dataclass
class FirstTime:
    """Seconds spent on what later runs find in the cache, by name."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        start = monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + monotonic() - start

    def total(self) -> float:
        return sum(self.seconds.values())
