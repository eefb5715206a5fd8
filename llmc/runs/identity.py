"""What a record says about the model, the benchmark, the machine and the score, whoever made the run."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmc.runs.record import RULE, BenchmarkIdentity, ModelIdentity, Result
from llmc.stats import wilson

if TYPE_CHECKING:
    from llmc.engine.gguf_model import ModelFacts
    from llmc.mcbin import BinFacts


def model_identity(
    ref: str, facts: ModelFacts, sha256: str | None = None, made_from: dict[str, Any] | None = None
) -> ModelIdentity:
    bits = facts.bits_per_weight
    return ModelIdentity(
        ref=ref,
        path=str(facts.path),
        sha256=sha256,
        size=facts.size,
        name=facts.name,
        architecture=facts.architecture,
        quantization=facts.quantization,
        parameters=facts.parameters,
        vocab_size=facts.vocab_size,
        bits_per_weight=None if bits is None else round(bits, 4),
        made_from=made_from,
    )


def benchmark_identity(
    name: str,
    path: Path,
    facts: BinFacts,
    *,
    selection: dict[str, Any] | None = None,
    source: dict[str, Any] | None = None,
) -> BenchmarkIdentity:
    return BenchmarkIdentity(
        name=name,
        path=str(path),
        sha256=facts.sha256,
        tasks=facts.tasks,
        chance=facts.chance,
        majority_position=facts.majority_position,
        majority_share=facts.majority_share,
        selection=selection,
        source=source,
    )


def result_of(correct: str, engine_se: float | None) -> Result:
    """Return the score of a trusted run; ``engine_se`` is the engine's own standard error in percent."""
    right, tasks = correct.count("1"), len(correct)
    low, high = wilson(right, tasks)
    return Result(
        accuracy=right / tasks,
        correct=right,
        tasks=tasks,
        wilson_low=low,
        wilson_high=high,
        standard_error=None if engine_se is None else engine_se / 100,
    )


def must_match(benchmark_sha256: str, excluded: Sequence[int] = ()) -> dict[str, Any]:
    """Return what must be equal before two runs by llama-perplexity are paired."""
    return {
        "benchmark_sha256": benchmark_sha256,
        "excluded": list(excluded),
        "scorer": "perplexity",
        "rule": RULE,
        "tokenization": "joint",
        "bos": "model",
        "truncation": "never",
    }


def host() -> dict[str, Any]:
    """What this machine is, as far as it bears on speed and numerics; ``memory`` in bytes."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()
