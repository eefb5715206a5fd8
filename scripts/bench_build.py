#!/usr/bin/env python3
"""How fast `llmc build` and `llmc verify` are on the largest benchmark, and how much memory they take.

    python scripts/bench_build.py [--tasks N] [--keep FOLDER]

Writes made-up rows in MedConceptsQA's own columns and configs (Parquet, as on the Hub) into a temporary folder,
builds and verifies them through the real commands, and prints tasks/s by CPU and by wall time with the peak
memory of each. The yardstick, measured in the same run, is a bare read of the same rows into Python objects.
Exits 1 when a target is missed: 60,000 tasks per CPU second, 400 MB.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TASKS_PER_SECOND = 60_000
MEGABYTES = 400
NAME = "medconceptsqa-test"
ROWS_PER_GROUP = 20_000
YARDSTICK = """
import sys
from pathlib import Path
import pyarrow.parquet as pq
rows = 0
for path in sorted(Path(sys.argv[1]).rglob("test-*.parquet")):
    for batch in pq.ParquetFile(path).iter_batches(4096, columns=sys.argv[2].split(",")):
        rows += len(list(zip(*[column.to_pylist() for column in batch.columns])))
print(rows)
"""
COLUMNS = ("question", "option1", "option2", "option3", "option4", "answer_id", "answer")


@dataclass(frozen=True)
class Cost:
    """What one command took: seconds of wall and CPU time, and its peak resident memory in MB."""

    wall: float
    cpu: float
    megabytes: float


def configs() -> dict[str, int]:
    """Return the rows of each config of the real test split."""
    from llmc.benchmarks.spec import find

    return find("medconceptsqa").expect_configs["test"]


def scaled(sizes: dict[str, int], tasks: int) -> Iterator[tuple[str, int]]:
    """Yield config and rows so that there are ``tasks`` in all, in the real proportions."""
    total = sum(sizes.values())
    done = covered = 0
    for config, rows in sizes.items():
        covered += rows
        until = round(tasks * covered / total)
        yield config, until - done
        done = until


def write_rows(folder: Path, tasks: int) -> None:
    """Write the made-up rows, one Parquet file a config, with texts about as long as the real ones."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = random.Random(7)
    sites = [f"{side} {bone}" for side in ("left", "right") for bone in ("heel", "jaw", "wrist", "knee", "rib", "hip")]
    kinds = ["Old wound of", "Swelling of", "Removal of a foreign body from", "Late effect of an injury of", "Itch of"]
    ends = ["initial encounter", "subsequent encounter", "unspecified", "with delayed healing", "open approach"]
    concepts = [
        f"{kind} {site}, {end}, type {n}" for kind in kinds for site in sites for end in ends for n in range(400)
    ]
    for config, rows in scaled(configs(), tasks):
        vocabulary, level = config.split("_")
        path = folder / config / "test-00000-of-00001.parquet"
        path.parent.mkdir(parents=True)
        writer = None
        for start in range(0, rows, ROWS_PER_GROUP):
            batch = [
                _row(number, vocabulary.upper(), level, chance, concepts)
                for number in range(start, min(rows, start + ROWS_PER_GROUP))
            ]
            table = pa.Table.from_pylist(batch)
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
        if writer:
            writer.close()


def _row(number: int, vocabulary: str, level: str, chance: random.Random, concepts: list[str]) -> dict[str, object]:
    options = chance.sample(concepts, 4)
    gold = chance.randrange(4)
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip("ABCD", options, strict=True))
    return {
        "question_id": number,
        "answer": options[gold],
        "answer_id": "ABCD"[gold],
        **{f"option{i}": option for i, option in enumerate(options, 1)},
        "question": f"What is the description of the medical code X{number:06d} in {vocabulary}?\n{lines}",
        "vocab": vocabulary,
        "level": level,
    }


def run(command: list[str], cache: Path) -> Cost:
    """Run a command that must succeed and return what it took."""
    environment = {**os.environ, "LLMC_CACHE": str(cache), "LLMC_PROGRESS": "off"}
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)  # this child's usage alone
    child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    scale = 1e6 if sys.platform == "darwin" else 1e3
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / scale)


def line(what: str, tasks: int, cost: Cost) -> str:
    return (
        f"{what:<22}{tasks / cost.cpu:>12,.0f}{tasks / cost.wall:>12,.0f}"
        f"{cost.cpu:>9.1f} s{cost.wall:>9.1f} s{cost.megabytes:>9.0f} MB"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", type=int, default=sum(configs().values()))
    parser.add_argument("--keep", type=Path, help="work in this folder, use the rows in it, and leave everything there")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="llmc-bench-"))
    try:
        return measure(folder, arguments.tasks)
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder)


def measure(folder: Path, tasks: int) -> int:
    rows, out, cache = folder / "rows", folder / "out", folder / "cache"
    if not rows.is_dir():
        write_rows(rows, tasks)
    llmc = [sys.executable, "-m", "llmc"]
    own = ["--source", str(rows), "--out", str(out)]
    yardstick = run([sys.executable, "-c", YARDSTICK, str(rows), ",".join(COLUMNS)], cache)
    built = run([*llmc, "build", NAME, "--force", *own], cache)
    verified = run([*llmc, "verify", NAME, *own], cache)
    print(f"{tasks:,} tasks{'':<12}per CPU s  per wall s        CPU       wall     peak")
    print(line("rows read, no more", tasks, yardstick))
    print(line("llmc build", tasks, built))
    print(line("llmc verify", tasks, verified))
    print(f"build takes {built.cpu / yardstick.cpu:.1f} and verify {verified.cpu / yardstick.cpu:.1f} times the read")
    missed = [
        f"{name}: {what}"
        for name, cost in (("build", built), ("verify", verified))
        for what, good in (
            (f"{tasks / cost.cpu:,.0f} tasks/s, wanted {TASKS_PER_SECOND:,}", tasks / cost.cpu >= TASKS_PER_SECOND),
            (f"{cost.megabytes:.0f} MB, allowed {MEGABYTES}", cost.megabytes <= MEGABYTES),
        )
        if not good
    ]
    for miss in missed:
        print(f"MISSED {miss}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
