"""Run records made by hand, with answers and settings as a test wants them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmc.findings import finding
from llmc.runs.identity import must_match, result_of
from llmc.runs.record import (
    BenchmarkIdentity,
    Comparability,
    EngineIdentity,
    ModelIdentity,
    RunRecord,
    TaskGroups,
    Timings,
    content_key,
)
from llmc.runs.store import finish

SHA = {"arc": "a1" * 32, "boolq": "b2" * 32}
SHOULD: dict[str, Any] = {
    "engine_flavour": "mainline",
    "engine_version": "11434",
    "backend": "cpu",
    "layout": {"np": 16, "c": 128, "fa": "off"},
    "arguments": ["-np", "16", "-c", "128", "-fa", "off", "--no-escape"],
}


def record(
    correct: str,
    *,
    model: str = "base",
    bench: str = "arc",
    must: dict[str, Any] | None = None,
    should: dict[str, Any] | None = None,
    groups: Sequence[str | None] | None = None,
    trusted: bool = True,
    **changes: Any,
) -> RunRecord:
    """Return a trusted record with these answers, or an untrusted one that was cut off."""
    full = {**must_match(SHA.get(bench, "c3" * 32)), **(must or {})}
    fields: dict[str, Any] = {
        "llmc_version": "0",
        "kind": "run",
        "status": "trusted" if trusted else "untrusted",
        "started": "2026-01-02T03:04:05Z",
        "finished": "2026-01-02T03:05:05Z",
        "model": ModelIdentity(ref=f"/models/{model}.gguf", path=f"/models/{model}.gguf", sha256=content_key(model)),
        "benchmark": BenchmarkIdentity(name=bench, path=f"/data/{bench}.bin", sha256=full["benchmark_sha256"]),
        "engine": EngineIdentity(command=("/opt/llama-perplexity",), flavour="mainline", identity="e5" * 32),
        "timings": Timings(total=12.5, engine=12.0, overhead=0.5),
        "comparability": Comparability(key=content_key(full), must=full, should={**SHOULD, **(should or {})}),
    }
    if trusted:
        fields |= {"correct": correct, "result": result_of(correct, None)}
        fields["task_groups"] = TaskGroups.of(groups) if groups else None
    else:
        fields["findings"] = (finding("scored-fewer", f"3 of {len(correct)} tasks were scored"),)
    return RunRecord(**{**fields, **changes})


def write(folder: Path, made: RunRecord) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    finish(folder, made)
    return folder


def answers(n: int, right: int, seed: int = 1) -> str:
    """Return ``n`` answers, ``right`` of them right, in a shuffled order that the seed gives."""
    marks = ["1"] * right + ["0"] * (n - right)
    random.Random(seed).shuffle(marks)
    return "".join(marks)


def changed(correct: str, lost: int, gained: int) -> str:
    """Return the answers with the first ``lost`` right ones wrong and the first ``gained`` wrong ones right."""
    marks = list(correct)
    for place, mark in enumerate(correct):
        if mark == "1" and lost:
            marks[place], lost = "0", lost - 1
        elif mark == "0" and gained:
            marks[place], gained = "1", gained - 1
    assert not lost and not gained
    return "".join(marks)
