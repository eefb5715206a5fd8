#!/usr/bin/env python3
"""llmc's scorer against llama-perplexity, answer by answer, under llama.cpp's rule.

    python scripts/compare_scorers.py -m MODEL -b FILE.bin [-b FILE.bin ...] [--limit N] [--kv-type f16|f32]
    python scripts/compare_scorers.py -m MODEL -b piqa-validation.bin --tasks 178,987,1028

llama-perplexity runs at its planned layout. Every task on which the two disagree is listed with the scorer's margin
(highest mean less second highest, nats per token). The exit status is 1 when they disagree on more than --allow of the
tasks (default 0.02), or, with --beyond X, on a task whose margin is above X.

With --tasks, those alone (counted from 0) are scored by the bare llama-perplexity and by the scorer, and both are shown
with the mean of every option: for tasks that llama-perplexity gets wrong, where the two need not agree.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from scorer_parts import binding, first_tasks, llmc_json

from llmc import mcbin
from llmc.engine.audit import audit
from llmc.engine.gguf_model import read_model
from llmc.engine.locate import locate
from llmc.engine.transcript import TranscriptParser
from llmc.scoring.job import Job, Settings
from llmc.scoring.metrics import choose
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import score_items

LAYOUT = ("-np", "16", "-c", "512", "-fa", "off")


def scorer_answers(model: Path, bench: Path, folder: Path, settings: Settings) -> list[ScoredItem]:
    found: list[ScoredItem] = []
    scored = score_items(Job(bench, settings), read_model(model), binding(), folder, on_result=found.append)
    if not scored.trusted:
        sys.exit("\n".join(f"{finding.slug}: {finding.detail}" for finding in scored.findings))
    return found


def engine_answers(model: Path, bench: Path, folder: Path, threads: int | None) -> str:
    """Return right (1) and wrong (0) for every task, as llama-perplexity has it."""
    words: list[str | Path] = ["run", "-m", model, "-b", bench, "--out", folder]
    words += ["--no-health-check", "--force", "--json"]
    data = llmc_json(*words, *(("--", "-t", str(threads)) if threads else ()))
    record = data["runs"][0]["record"]
    if record["status"] != "trusted":
        sys.exit(f"llama-perplexity's run is not to be trusted: {record['findings']}")
    return str(record["correct"])


def show_tasks(model: Path, bench: Path, chosen: list[int], settings: Settings) -> None:
    """Print what llama-perplexity says of some tasks, as it is, and what the scorer says."""
    tasks = list(mcbin.Reader(bench))
    with tempfile.TemporaryDirectory() as name:
        some = Path(name) / "some.bin"
        facts = mcbin.write(some, [tasks[i] for i in chosen])
        command = [str(locate().binary), "-m", str(model), "--multiple-choice", "-bf", str(some)]
        done = subprocess.run([*command, *LAYOUT], check=False, stdin=subprocess.DEVNULL, capture_output=True)
        parser = TranscriptParser()
        parser.feed("stdout", done.stdout)
        parser.feed("stderr", done.stderr)
        marks = audit(parser.close(), facts=facts, outcome=None).correct or ""
        ours = scorer_answers(model, some, Path(name), settings)
    for place, (index, item) in enumerate(zip(chosen, ours, strict=True)):
        task, choice = tasks[index], choose(item, "llama_cpp")
        theirs = {"1": "right", "0": "wrong"}.get(marks[place : place + 1], f"no answer (exit {done.returncode})")
        mine = "undefined" if choice is None else "right" if choice.correct else "wrong"
        print(f"task {index}: llama-perplexity alone: {theirs}; scorer: {mine}")
        for number, (option, text) in enumerate(zip(item.options, task.options, strict=True)):
            gold = "gold" if number == task.gold else ""
            print(f"  {option.llama_mean:9.4f} over {option.llama_tokens:3d} tokens  {gold:4s}  {text!r}")


def compare(model: Path, bench: Path, settings: Settings, allow: float, beyond: float | None) -> bool:
    with tempfile.TemporaryDirectory() as name:
        theirs = engine_answers(model, bench, Path(name), settings.threads)
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
    parser.add_argument("--tasks", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--allow", type=float, default=0.02)
    parser.add_argument("--beyond", type=float)
    given = parser.parse_args()
    settings = Settings(kv_type=given.kv_type, threads=given.threads)
    good = True
    for bench in given.bench:
        if given.tasks:
            show_tasks(given.model, bench, given.tasks, settings)
            continue
        with tempfile.TemporaryDirectory() as name:
            part = first_tasks(bench, given.limit, Path(name))
            good &= compare(given.model, part, settings, given.allow, given.beyond)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
