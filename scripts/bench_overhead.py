#!/usr/bin/env python3
"""What `llmc run` adds to the bare command: both, interleaved, in one go, with everything cached.

    python scripts/bench_overhead.py -m MODEL -b FILE.bin [--rounds 5] [--rows 1000000]

Prints the wall time of the bare llama-perplexity with the planned arguments, that of `llmc run --force`, and the
difference, which should stay below 0.5 s + 1 % of the bare command; the time of `llmc --version`; and how long
reading and auditing a transcript of a million rows takes, with its peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LLMC = [sys.executable, "-m", "llmc"]


def timed(command: list[str]) -> float:
    """Run a command, discard its output, and return its wall time in seconds."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def planned_command(model: str, bench: str, out: Path) -> list[str]:
    command = [*LLMC, "run", "-m", model, "-b", bench, "--out", str(out), "--dry-run", "--json"]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [str(word) for word in answer["data"]["cells"][0]["command"]]


def measure_overhead(model: str, bench: str, rounds: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        bare = planned_command(model, bench, out)
        whole = [*LLMC, "run", "-m", model, "-b", bench, "--out", str(out), "--force", "--no-health-check"]
        timed(whole)  # fills every cache
        pairs = [(timed(bare), timed(whole)) for _ in range(rounds)]
    alone = statistics.median(pair[0] for pair in pairs)
    added = statistics.median(pair[1] - pair[0] for pair in pairs)
    allowed = 0.5 + 0.01 * alone
    print(f"bare llama-perplexity   median {alone:8.3f} s of {rounds}")
    print(f"llmc run, cached        median {statistics.median(p[1] for p in pairs):8.3f} s")
    print(f"added                   median {added:8.3f} s (allowed {allowed:.3f} s)")
    return added <= allowed


def measure_version(rounds: int) -> bool:
    seconds = statistics.median(timed([*LLMC, "--version"]) for _ in range(rounds))
    print(f"llmc --version          median {seconds:8.3f} s (allowed 0.300 s)")
    return seconds <= 0.3


def measure_transcript(rows: int) -> bool:
    from llmc.engine.audit import audit
    from llmc.engine.process import Outcome
    from llmc.engine.transcript import TranscriptParser
    from llmc.mcbin import BinFacts

    right = rows // 3
    lines = "".join(f"{n}\t{100 * min(n, right) / n:.8f}\n" for n in range(1, rows + 1)).encode()
    head = f"multiple_choice_score: there are {rows} tasks in prompt\n".encode()
    final = f"Final result: {100 * right / rows:.4f} +/- 0.0000\nRandom chance: 25.0000 +/- 0.0000\n".encode()
    facts = BinFacts(rows, 0, "", {4: rows}, {0: rows}, 0.25, 0.25, 0, 0, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    parser = TranscriptParser()
    parser.feed("stderr", head)
    for at in range(0, len(lines), 1 << 16):
        parser.feed("stdout", lines[at : at + (1 << 16)])
    parser.feed("stderr", final)
    transcript = parser.close()
    read = time.perf_counter() - start
    verdict = audit(transcript, facts=facts, outcome=Outcome(0, None, "itself", 0, 1.0, None))
    seconds = time.perf_counter() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{rows} rows: read in {read:.2f} s, audited in {seconds - read:.2f} s, {grown:.0f} MiB more memory")
    return verdict.trusted and seconds <= 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-b", "--bench", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    good = measure_version(arguments.rounds)
    good &= measure_transcript(arguments.rows)
    good &= measure_overhead(arguments.model, arguments.bench, arguments.rounds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
