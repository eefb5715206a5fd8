#!/usr/bin/env python3
"""How many tokens a suite decodes, beside what it would take if every header were decoded once.

    python scripts/bench_suite.py -m MODEL.gguf [--suite olmo3-nonstem-qa-mc:mini] [--source ROWS] [--out DIR] [--run]

For every cell of the suite: the tokens its batches decode, as planned from the model's own tokenizer, and the sum of
each header once (what all questions of one group begin with) and every question's own tokens. Target: at most 1.02
times that over the whole suite; the exit status is 1 above it. With --run the suite is run too, and the tokens it
really decoded are held against the plan. Parts that cannot be had are named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from scorer_parts import binding, llmc_json, worker_environment

TARGET = 1.02
INSIDE = "LLMC_BENCH_SUITE_INSIDE"  # set in the process that has libllama


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--suite", default="olmo3-nonstem-qa-mc:mini")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--run", action="store_true")
    given = parser.parse_args()
    if INSIDE in os.environ:
        return inside(json.loads(os.environ[INSIDE]), given.model)
    cells = planned_cells(given)
    if not cells:
        print("no part of the suite can be had")
        return 1
    env = {**worker_environment(binding()), INSIDE: json.dumps(cells)}
    done = subprocess.run([sys.executable, *sys.argv], check=False, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    counts = json.loads(done.stdout)
    good = show(counts)
    return int(not (good and (not given.run or as_planned(given, counts))))


def planned_cells(given: Any) -> list[dict[str, Any]]:
    """Build what the suite asks and return its cells: item file, and the scorer's settings."""
    from llmc.benchmarks.item import items_path
    from llmc.runs import suite_tree
    from llmc.runs.settings import Settings
    from llmc.runs.suite_plan import plan_suite
    from llmc.scoring.job import Job
    from llmc.scoring.job import Settings as ScoringSettings

    suite = suite_tree.find(given.suite)
    settings = Settings(out=given.out, source=given.source, scoring=ScoringSettings(**suite.scoring))  # type: ignore[arg-type]
    plan = plan_suite(suite, settings)
    for path, absent in plan.absent.items():
        print(f"left out: {path}: {absent.what}")
    return [
        {"name": cell.bench.name, "job": Job(items_path(cell.bench.path), cell.settings(settings).scoring).to_json()}
        for cell in plan.cells
    ]


def inside(cells: list[dict[str, Any]], path: Path) -> int:
    """Count, in a process with libllama, what each cell decodes; the result is JSON on standard output."""
    from llmc.scoring.job import Job
    from llmc.scoring.native import Model, limits
    from llmc.scoring.survey import Chunks

    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        model = Model(path, 0)
        counts = []
        for cell in cells:
            job = Job.from_json(cell["job"])
            chunks = Chunks(job, model, limits(job.settings, model, share=True), model.trained_context, 1)
            decoded = chunks.survey().tokens
            counts.append({"name": cell["name"], "decoded": decoded, "least": least(chunks)})
        json.dump(counts, out)
    return 0


def least(chunks: Any) -> int:
    """Return the tokens of each header once and of every question's own: all that its options do not share with it."""
    from llmc.scoring.evaluate import branches
    from llmc.scoring.tree import WIDTH, Leaves, common

    headers: dict[str | None, bytes] = {}
    nodes: list[tuple[str | None, int]] = []
    for chunk in chunks:
        for item, tokenized in zip(chunk.items, chunk.tokenized, strict=True):
            tree = branches(tokenized)
            first = tree.main[0]
            key = first.tokens[: WIDTH * (first.start - 1)]  # the token before the first to score is the question's
            known = headers.get(item.group, key)
            headers[item.group] = key[: WIDTH * common(known, key)]
            nodes.append((item.group, Leaves.of(tree.branches()).nodes()))
    lengths = {group: len(header) // WIDTH for group, header in headers.items()}
    return sum(lengths.values()) + sum(count - lengths[group] for group, count in nodes)


def show(counts: list[dict[str, Any]]) -> bool:
    for each in counts:
        print(f"{each['name']}: {each['decoded']} tokens decoded, {each['least']} at least")
    decoded, least_of_all = (sum(each[name] for each in counts) for name in ("decoded", "least"))
    ratio: float = decoded / least_of_all
    print(f"the suite: {decoded} tokens decoded, {least_of_all} with each header once")
    print(f"ratio {ratio:.4f} (target at most {TARGET})")
    return ratio <= TARGET


def as_planned(given: Any, counts: list[dict[str, Any]]) -> bool:
    """Run the suite and hold the tokens that it decoded against the plan."""
    more = ["--source", given.source] if given.source else []
    words = ["run", "--suite", given.suite, "-m", given.model, "--out", given.out, "--json", "--force", *more]
    ran = {each["record"]["benchmark"]["name"]: each["record"] for each in llmc_json(*words)["runs"]}
    good = True
    for each in counts:
        timings = ran[each["name"]]["timings"] if each["name"] in ran else None
        tokens = timings["tokens"] if timings else None
        print(f"{each['name']}: {tokens} tokens decoded, {each['decoded']} planned")
        good &= tokens == each["decoded"]
    return good


if __name__ == "__main__":
    sys.exit(main())
