"""Cells that are planned and ready to run, for either scorer, and what is left of them when they have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llmc.engine.plan import Plan
from llmc.engine.preflight import Preflight
from llmc.findings import Finding
from llmc.runs.bench import Bench
from llmc.runs.prepare import PreparedEngine, PreparedModel
from llmc.runs.record import Comparability, RunRecord
from llmc.runs.settings import FirstTime, Settings

if TYPE_CHECKING:
    from llmc.runs.scorer import PreparedScorer


@dataclass(frozen=True)
class Cell:
    """A cell planned and ready to launch.

    ``excluded`` are task indices that are not scored at all, ``rescored`` those that the scorer takes over from
    llama-perplexity, which would get them wrong. ``adapters`` are the files that the user's flags add to the model (a
    LoRA, a control vector), by path, with their SHA-256.
    """

    engine: PreparedEngine
    model: PreparedModel
    bench: Bench
    settings: Settings
    preflight: Preflight
    plan: Plan
    excluded: tuple[int, ...]
    rescored: tuple[int, ...]
    findings: tuple[Finding, ...]
    comparability: Comparability
    reuse_key: str
    first: FirstTime
    adapters: dict[str, str]

    @property
    def left_out(self) -> tuple[int, ...]:
        """Tasks that llama-perplexity does not see."""
        return (*self.excluded, *self.rescored)

    @property
    def tasks(self) -> int:
        """Tasks that llama-perplexity scores."""
        return self.bench.facts.tasks - len(self.left_out)

    @property
    def in_parts(self) -> bool:
        """True when what is scored are files made for the purpose: a very large benchmark, or one with gaps."""
        return self.tasks > self.settings.part_size or bool(self.left_out)

    def places(self) -> list[int]:
        """Return the index in the file of every task that llama-perplexity scores."""
        out = set(self.left_out)
        return [index for index in range(self.bench.facts.tasks) if index not in out]

    def command(self) -> list[str]:
        return self.plan.command(self.engine.probe.command, self.model.facts.path, self.bench.path)


@dataclass(frozen=True)
class ScoredCell:
    """A cell planned for the scorer. ``items`` is the item file, or the benchmark file where there is none."""

    scorer: PreparedScorer
    model: PreparedModel
    bench: Bench
    settings: Settings
    items: Path
    findings: tuple[Finding, ...]
    comparability: Comparability
    reuse_key: str
    first: FirstTime

    @property
    def tasks(self) -> int:
        return self.bench.facts.tasks


@dataclass(frozen=True)
class Finished:
    folder: Path
    record: RunRecord
    reused: bool
