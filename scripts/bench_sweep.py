#!/usr/bin/env python3
"""What `llmc sweep` adds to every cell: many cells with a stand-in engine, time and memory side by side.

    python scripts/bench_sweep.py [--cells 500] [--jobs 1]

Prints, for a sweep of that many cells: wall time a cell, the engine's own part of it (the processes' wall time, as
the records have it), the difference, which should stay below 50 ms; the memory of the sweep's process after a tenth of
the cells and at its end, which should be the same; and the time of a second call, in which every run is reused.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MOST_SECONDS, MOST_GROWTH = 0.05, 16 << 20
BENCHES = 10


def prepare(folder: Path, cells: int) -> Path:
    sys.path.insert(0, str(ROOT / "tests"))
    from fake_engine import install  # type: ignore[import-not-found]
    from helpers import letter_tasks  # type: ignore[import-not-found]
    from llmc import mcbin
    from llmc.engine.known_answer import KnownAnswerModel

    engine = install(folder / "engine")
    for number in range(BENCHES):
        mcbin.write(folder / f"b{number}.bin", letter_tasks(40 + number))
    for number in range(-(-cells // BENCHES)):
        KnownAnswerModel(padding=number).write(folder / f"m{number:03}.gguf")
    config = folder / "sweep.yaml"
    keys = {"name": "bench", "models": ["*.gguf"], "benchmarks": ["*.bin"], "health_check": False}
    config.write_text(json.dumps({**keys, "engine": str(engine), "baseline": "m000"}))
    return config


def sweep(config: Path, jobs: int) -> dict[str, Any]:
    """Run the sweep in this process and return what it took: seconds in all, and bytes early and late."""
    from llmc.sweep.config import load_config
    from llmc.sweep.matrix import expand
    from llmc.sweep.run import Request, run_sweep

    loaded, file = load_config(config)
    request = Request(loaded, file, expand(loaded, file), config.parent / "out", jobs=jobs)
    memory: list[int] = []
    begin = time.perf_counter()
    run_sweep(request, lambda event: memory.append(resident()), lambda *step: None)
    seconds = time.perf_counter() - begin
    early, late = memory[len(memory) // 10], memory[-1]
    return {"seconds": seconds, "cpu": time.process_time(), "cells": len(memory), "early": early, "late": late}


def resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no /proc: the peak stands for it
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_the_engine(out: Path) -> float:
    records = [json.loads(path.read_text()) for path in out.glob("runs/*/record.json")]
    return float(sum(record["timings"]["engine"] for record in records))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--in-folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.in_folder is not None:
        print(json.dumps(sweep(given.in_folder / "sweep.yaml", given.jobs)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, given.cells)
        # A cache of its own: nothing is known beforehand. A process of its own: its memory is the sweep's alone.
        environment = {**os.environ, "LLMC_CACHE": str(folder / "cache"), "LLMC_PROGRESS": "off"}
        command = [sys.executable, __file__, "--in-folder", name, "--jobs", str(given.jobs)]
        first, again = (
            json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
            for _ in range(2)
        )
        engine = in_the_engine(folder / "out") / given.jobs
    cells = first["cells"]
    added = (first["seconds"] - engine) / cells
    growth = first["late"] - first["early"]
    print(f"{cells} cells, {given.jobs} at a time: {1000 * first['seconds'] / cells:.1f} ms a cell")
    print(f"  in the engine        {1000 * engine / cells:8.1f} ms")
    print(f"  added by llmc        {1000 * added:8.1f} ms   (at most {1000 * MOST_SECONDS:.0f})")
    print(f"  of that, computing   {1000 * first['cpu'] / cells:8.1f} ms   (llmc's start included)")
    print(f"  memory, early, late  {first['early'] / 2**20:8.1f} MiB {first['late'] / 2**20:.1f} MiB")
    print(f"  once more, reused    {1000 * again['seconds'] / cells:8.1f} ms a cell")
    return 0 if added <= MOST_SECONDS and growth <= MOST_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
