"""The scorer that a run uses: libllama and its binding, and whether the model is well under it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc import console, mcbin
from llmc.engine.binding import Binding, require_binding
from llmc.engine.canary import canary_tasks
from llmc.engine.health import Health, binomial_tail, constant_position
from llmc.engine.process import Limits
from llmc.files import cache_dir, read_cache, write_cache
from llmc.findings import Finding
from llmc.runs.prepare import PreparedModel
from llmc.runs.record import EngineIdentity
from llmc.runs.settings import FirstTime
from llmc.scoring.job import Job, Settings
from llmc.scoring.metrics import choose
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import score_items

LLAMA_RULE = "llama_cpp"


@dataclass(frozen=True)
class PreparedScorer:
    binding: Binding
    identity_sha256: str
    limits: Limits

    def identity(self) -> EngineIdentity:
        engine = self.binding.engine
        build = engine.meta.get("build") if engine is not None else None
        return EngineIdentity(
            command=("llmc.scoring.worker",),
            flavour="libllama",
            version=f"llama-cpp-python {self.binding.version}",
            build=build if isinstance(build, int) else None,
            identity=self.identity_sha256,
            backend=self.binding.backend,
        )


def prepare_scorer(limits: Limits) -> PreparedScorer:
    """Return the scorer over the binding that is found first (see ``find_binding``); EngineError without one."""
    binding = require_binding()
    return PreparedScorer(binding, binding.identity(), limits)


def check_scorer_health(
    scorer: PreparedScorer, model: PreparedModel, settings: Settings, first: FirstTime
) -> tuple[dict[str, Any], list[Finding]]:
    """Score the canary questions with the scorer; the same verdict as ``engine.health`` gives an engine."""
    with first.measure("health check"), console.progress(f"health check of {model.short_name}"):
        health = _health(scorer, model, settings)
    seen = {"checked": True, "right": health.right, "tasks": health.tasks, "p": health.p}
    return seen, health.findings()


def _health(scorer: PreparedScorer, model: PreparedModel, settings: Settings) -> Health:
    tasks = canary_tasks()
    parts = [
        scorer.identity_sha256,
        model.sha256,
        settings.computed(),
        hashlib.sha256(repr(tasks).encode()).hexdigest(),
    ]
    entry = cache_dir("health", hashlib.sha256(json.dumps(parts).encode()).hexdigest() + ".json")
    if (known := read_cache(entry)) is not None:
        try:
            return Health(**{**known, "cached": True})
        except TypeError:
            pass  # written by another version of llmc: check again
    with tempfile.TemporaryDirectory(prefix="llmc-health-") as folder:
        health = _check(scorer, model, settings, Path(folder), tasks)
    if not health.failed:
        write_cache(entry, health.__dict__)
    return health


def _check(
    scorer: PreparedScorer, model: PreparedModel, settings: Settings, folder: Path, tasks: list[mcbin.Task]
) -> Health:
    questions = folder / "canary.bin"
    mcbin.write(questions, tasks)
    marks: list[str] = []

    def take(item: ScoredItem) -> None:
        choice = choose(item, LLAMA_RULE)
        marks.append("1" if choice is not None and choice.correct else "0")

    scored = score_items(
        Job(questions, settings), model.facts, scorer.binding, folder, on_result=take, limits=scorer.limits
    )
    if scored.outcome.ended_by == "interrupted":
        raise KeyboardInterrupt
    failed = "; ".join(f"{f.slug} ({f.detail})" for f in scored.findings if f.severity == "error")
    correct = "".join(marks)
    if not failed and len(correct) != len(tasks):
        failed = f"{len(correct)} of {len(tasks)} answers came"
    right = correct.count("1")
    return Health(
        right=right,
        tasks=len(tasks),
        p=binomial_tail(right, len(tasks), 1 / len(tasks[0].options)),
        position=None if failed else constant_position(correct, [task.gold for task in tasks]),
        failed=failed,
        cached=False,
        seconds=scored.outcome.seconds,
    )
