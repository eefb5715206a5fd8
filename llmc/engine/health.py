"""Is this a working model? Once per engine and model, a small file of obvious questions decides.

A model with NaN weights makes llama.cpp choose option 0 always and report a score with exit status 0; broken
conversions and backends do little better. Both fail here.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc import mcbin
from llmc.engine.binding import Binding
from llmc.engine.canary import POSITIONS, canary_tasks
from llmc.engine.flags import adapter_sums
from llmc.engine.gguf_model import ModelFacts
from llmc.engine.launch import launch
from llmc.engine.plan import plan
from llmc.engine.preflight import preflight
from llmc.engine.probe import ProbeResult
from llmc.engine.process import Limits
from llmc.files import cache_dir, read_cache, write_cache
from llmc.findings import Finding, finding

SIGNIFICANCE = 0.01
LAYOUT_FLAGS = ("-np", "--parallel", "-c", "--ctx-size", "-b", "--batch-size", "-ub", "--ubatch-size")


@dataclass(frozen=True)
class Health:
    """``p`` is the chance of at least that many right answers by guessing (exact binomial)."""

    right: int
    tasks: int
    p: float
    position: int | None  # always chosen, when the answers say so
    failed: str  # why the check itself could not be completed
    cached: bool
    seconds: float

    @property
    def healthy(self) -> bool:
        return not self.failed and self.position is None and self.p <= SIGNIFICANCE

    def findings(self) -> list[Finding]:
        if self.healthy:
            return []
        if self.failed:
            detail = f"the health check could not be completed: {self.failed}"
        elif self.position is not None:
            detail = f"on {self.tasks} obvious questions the model always chose option {self.position}"
        else:
            detail = f"{self.right} of {self.tasks} obvious questions right; guessing does that with p = {self.p:.2g}"
        return [finding("model-unhealthy", detail)]


def binomial_tail(successes: int, trials: int, chance: float) -> float:
    """P(X >= successes) for X binomial(trials, chance), summed exactly."""
    terms = (math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(successes, trials + 1))
    return min(1.0, math.fsum(terms))


def constant_position(correct: str, golds: Sequence[int]) -> int | None:
    """The position k for which a task is right exactly when its gold is k, or None."""
    for k in range(POSITIONS):
        if all((mark == "1") == (gold == k) for mark, gold in zip(correct, golds, strict=True)):
            return k
    return None


def health_check(
    probe: ProbeResult,
    model: ModelFacts,
    model_sha256: str,
    binding: Binding | None,
    environment: Mapping[str, str],
    user: Sequence[str],
    limits: Limits,
) -> Health:
    """Score the canary questions, or return what is known from last time.

    The result is kept per engine, model and the user's flags (without those that set the layout): a cache type
    or a device that breaks a model is the model's trouble with those flags only.
    """
    flags = _without_layout(user)
    parts: list[Any] = [probe.identity, model_sha256, flags, _canary_version()]
    if adapters := adapter_sums(flags):
        parts.append(adapters)
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    entry = cache_dir("health", f"{key}.json")
    if (known := read_cache(entry)) is not None:
        try:
            return Health(**{**known, "cached": True})
        except TypeError:
            pass  # written by another version of llmc: check again
    with tempfile.TemporaryDirectory(prefix="llmc-health-") as folder:
        health = _check(probe, model, binding, environment, flags, limits, Path(folder))
    if not health.failed:
        write_cache(entry, health.__dict__)
    return health


def _check(
    probe: ProbeResult,
    model: ModelFacts,
    binding: Binding | None,
    environment: Mapping[str, str],
    flags: Sequence[str],
    limits: Limits,
    folder: Path,
) -> Health:
    tasks = canary_tasks()
    questions = folder / "canary.bin"
    facts = mcbin.write(questions, tasks)
    golds = bytes(task.gold for task in tasks)
    layout = plan(probe, model, facts, preflight(questions, model, binding, facts=facts), user=flags)
    result = launch(
        layout.command(probe.command, model.path, questions),
        facts=facts,
        golds=golds,
        stdout_log=folder / "stdout.log",
        stderr_log=folder / "stderr.log",
        environment=environment,
        limits=limits,
    ).not_interrupted()
    errors = [f"{f.slug} ({f.detail})" for f in result.audit.findings if f.severity == "error"]
    correct = result.audit.correct or ""
    failed = "; ".join(errors)
    if not failed and len(correct) != len(tasks):
        failed = f"{len(correct)} of {len(tasks)} answers could be read"
    right = correct.count("1")
    return Health(
        right=right,
        tasks=len(tasks),
        p=binomial_tail(right, len(tasks), 1 / POSITIONS),
        position=None if failed else constant_position(correct, golds),
        failed=failed,
        cached=False,
        seconds=result.outcome.seconds,
    )


def _without_layout(user: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in user:
        if skip:
            skip = False
        elif word in LAYOUT_FLAGS:
            skip = True
        else:
            kept.append(word)
    return kept


def _canary_version() -> str:
    return hashlib.sha256(repr(canary_tasks()).encode()).hexdigest()
