#!/usr/bin/env python3
"""llmc's scorer against llama-perplexity, answer by answer, under llama.cpp's rule.

    python scripts/compare_scorers.py -m MODEL -b FILE.bin [-b FILE.bin ...] [--limit N] [--kv-type f16|f32]

llama-perplexity runs at its planned layout. Every task on which the two disagree is listed with the scorer's margin
(highest mean less second highest, nats per token). The exit status is 1 when they disagree on more than --allow of the
tasks (default 0.02), or, with --beyond X, on a task whose margin is above X.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from scorer_parts import binding, first_tasks, llmc_json

from llmc.engine.gguf_model import read_model
from llmc.scoring.job import Job, Settings
from llmc.scoring.metrics import choose
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import score_items


def scorer_answers(model: Path, bench: Path, folder: Path, settings: Settings) -> list[ScoredItem]:
    found: list[ScoredItem] = []
    scored = score_items(Job(bench, settings), read_model(model), binding(), folder, on_result=found.append)
    if not scored.trusted:
        sys.exit("\n".join(f"{finding.slug}: {finding.detail}" for finding in scored.findings))
    return found


def engine_answers(model: Path, bench: Path, folder: Path) -> str:
    """Return right (1) and wrong (0) for every task, as llama-perplexity has it."""
    data = llmc_json("run", "-m", model, "-b", bench, "--out", folder, "--no-health-check", "--force", "--json")
    record = data["runs"][0]["record"]
    if record["status"] != "trusted":
        sys.exit(f"llama-perplexity's run is not to be trusted: {record['findings']}")
    return str(record["correct"])


def compare(model: Path, bench: Path, settings: Settings, allow: float, beyond: float | None) -> bool:
    with tempfile.TemporaryDirectory() as name:
        theirs = engine_answers(model, bench, Path(name))
        ours = scorer_answers(model, bench, Path(name), settings)
    apart, worst = [], 0.0
    for item, mark in zip(ours, theirs, strict=True):
        choice = choose(item, "llama_cpp")
        if choice is None:
            sys.exit(f"task {item.index}: llama.cpp's rule has nothing to condition on")
        if choice.correct != (mark == "1"):
            apart.append((item.index, choice))
            worst = max(worst, choice.margin)
    right = sum(mark == "1" for mark in theirs)
    mine = right + sum(1 if choice.correct else -1 for _, choice in apart)
    print(f"{bench.name}: {len(ours)} tasks, right: llama-perplexity {right}, scorer {mine}, apart {len(apart)}")
    for index, choice in apart:
        side = "scorer right" if choice.correct else "scorer wrong"
        print(f"  task {index:5d}  {side}  margin {choice.margin:.4f}")
    good = len(apart) <= allow * len(ours)
    return good and (beyond is None or worst <= beyond)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("-b", "--bench", type=Path, action="append", required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--kv-type", choices=("f16", "f32"), default="f16")
    parser.add_argument("--allow", type=float, default=0.02)
    parser.add_argument("--beyond", type=float)
    given = parser.parse_args()
    good = True
    for bench in given.bench:
        with tempfile.TemporaryDirectory() as name:
            part = first_tasks(bench, given.limit, Path(name))
            good &= compare(given.model, part, Settings(kv_type=given.kv_type), given.allow, given.beyond)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
