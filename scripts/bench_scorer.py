#!/usr/bin/env python3
"""How fast llmc's scorer is, beside llama-perplexity and llama-bench, in one go.

    python scripts/bench_scorer.py -m MODEL --letter FILE.bin --few-shot FILE.bin --text FILE.bin [--limit N]

For every file: llama-perplexity at its planned flags, the scorer's worker, and llama-bench's prompt processing (512
tokens, the same threads, flash attention off), each a whole process, one after the other in every round. Printed are
medians, their ratio, the tokens that each decodes, and the scorer's rate on its tokens beside llama-bench's. Targets:
letter form 1.05 times llama-perplexity and 0.9 of llama-bench's rate; few-shot 0.8 of the ratio of tokens; text form
1.0 times and 0.8. The exit status is 1 when one is missed.

On a machine that does other things too, --threads 1 --cpu compares seconds of CPU time, which those hardly move.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scorer_parts import binding, first_tasks, planned_command, worker_environment

from llmc import mcbin
from llmc.engine.gguf_model import read_model
from llmc.engine.preflight import preflight
from llmc.scoring.job import Job, Settings

BENCH_TOKENS = 512
TARGETS = {"letter": (1.05, 0.9), "few-shot": (0.8, None), "text": (1.0, 0.8)}


@dataclass(frozen=True)
class Timed:
    seconds: float
    output: str


def timed(command: list[str], cpu: bool, env: dict[str, str] | None = None) -> Timed:
    """Run a command to its end; its output, and its wall time or CPU time in seconds."""

    def clock() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime if cpu else time.perf_counter()

    start = clock()
    done = subprocess.run(command, check=False, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    seconds = clock() - start
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return Timed(seconds, done.stdout)


@dataclass(frozen=True)
class Round:
    perplexity: float
    scorer: float
    scorer_rate: float
    bench_rate: float
    tokens: int


def measure(model: Path, bench: Path, settings: Settings, rounds: int, cpu: bool, folder: Path) -> list[Round]:
    threads = ["-t", str(settings.threads)] if settings.threads else []
    found = binding()
    perplexity = planned_command(model, bench, folder, *threads)
    whole = worker_command(model, bench, settings, None, folder)
    # What one task costs is nearly all loading: the difference is the evaluation, by either clock.
    single = worker_command(model, bench, settings, (0,), folder)
    speed = [str(found.lib.parent / "bin" / "llama-bench"), "-m", str(model), "-n", "0", "-fa", "0", "-o", "json"]
    done = []
    for _ in range(rounds):
        engine = timed(perplexity, cpu, {**os.environ, "LLAMA_ARG_LOG_COLORS": "off"})
        scorer, little = (timed(command, cpu, worker_environment(found)) for command in (whole, single))
        announced, tokens = said(scorer.output)
        speed_threads = ["-p", str(BENCH_TOKENS), "-t", str(announced["threads"])]
        once, thrice = (timed([*speed, *speed_threads, "-r", str(n)], cpu) for n in (1, 3))
        rate = (tokens - said(little.output)[1]) / (scorer.seconds - little.seconds)
        done.append(
            Round(engine.seconds, scorer.seconds, rate, 2 * BENCH_TOKENS / (thrice.seconds - once.seconds), tokens)
        )
    return done


def worker_command(
    model: Path, bench: Path, settings: Settings, indices: tuple[int, ...] | None, folder: Path
) -> list[str]:
    job = folder / f"job{'' if indices is None else len(indices)}.json"
    job.write_text(Job(bench.resolve(), settings, indices).to_json(), encoding="utf-8")
    return [sys.executable, "-m", "llmc.scoring.worker", str(model), str(job)]


def said(output: str) -> tuple[dict[str, Any], int]:
    """Return the worker's announcement, and how many tokens it decoded."""
    first, *_, last = (json.loads(line) for line in output.splitlines())
    return first, last["tokens"]


def report(form: str, bench: Path, model: Path, rounds: list[Round]) -> bool:
    def median(values: list[float]) -> float:
        return statistics.median(values)

    facts = mcbin.scan(bench)
    tokens = preflight(bench, read_model(model), binding(), facts=facts).total_tokens
    faster = median([each.perplexity / each.scorer for each in rounds])
    saved = tokens / rounds[0].tokens
    share = median([each.scorer_rate / each.bench_rate for each in rounds])
    least, least_share = TARGETS[form]
    least = least * saved if form == "few-shot" else least
    print(f"{form}: {bench.name}, {facts.tasks} tasks")
    print(f"  llama-perplexity {median([r.perplexity for r in rounds]):8.2f} s  {tokens:8d} tokens decoded")
    print(f"  scorer           {median([r.scorer for r in rounds]):8.2f} s  {rounds[0].tokens:8d} tokens decoded")
    print(f"  times as fast    {faster:8.2f}    (target {least:.2f}; ratio of tokens {saved:.2f})")
    aim = f" (target {least_share:.2f})" if least_share else ""
    print(f"  of llama-bench's rate {share:.2f}{aim}: {median([r.scorer_rate for r in rounds]):.0f} tokens/s")
    return faster >= least and (least_share is None or share >= least_share)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, required=True)
    for form in TARGETS:
        parser.add_argument(f"--{form}", type=Path, action="append", default=[])
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cpu", action="store_true", help="compare CPU time, not wall time")
    parser.add_argument("--batch-tokens", type=int, action="append")
    given = parser.parse_args()
    good = True
    for size in given.batch_tokens or [None]:
        settings = Settings(batch_tokens=size, threads=given.threads)
        for form in TARGETS:
            for bench in vars(given)[form.replace("-", "_")]:
                good &= run(form, bench, given, settings)
    return 0 if good else 1


def run(form: str, bench: Path, given: Any, settings: Settings) -> bool:
    with tempfile.TemporaryDirectory() as name:
        part = first_tasks(bench, given.limit, Path(name))
        rounds = measure(given.model, part, settings, given.rounds, given.cpu, Path(name))
        return report(form, part, given.model, rounds)


if __name__ == "__main__":
    sys.exit(main())
