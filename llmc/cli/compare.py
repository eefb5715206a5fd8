"""``llmc compare``: paired statistics of runs against a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from llmc.judge.compare import Comparison, Groups

MOST_REPLICATES = 1_000_000
MANY_GROUPS = 20


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Records, run folders, runs of the store, a sweep, a baseline file."),
    ],
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="The run to compare with, by model or name. Default: the first."),
    ] = None,
    groups: Annotated[
        str,
        typer.Option("--groups", help="What the tasks' groups are: strata (subjects), clusters (passages), none."),
    ] = "strata",
    axis: Annotated[
        list[str] | None,
        typer.Option("--axis", help="A setting that differs on purpose, as arguments.-ctk; not warned about."),
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="Level of the intervals.")] = 0.95,
    replicates: Annotated[
        int, typer.Option("--bootstrap", min=0, help="Bootstrap replicates; 0 leaves it out.")
    ] = 10_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the bootstrap.")] = 0,
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Compare runs question by question with a baseline: is the difference real, and how large may it be?"""
    from llmc.judge.compare import Options
    from llmc.judge.compare import compare as judge
    from llmc.judge.inputs import open_all
    from llmc.report.compare import data

    if not 0.5 <= confidence < 1:
        raise UsageError(f"--confidence lies from 0.5 to below 1, not {confidence:g}", "the usual one is 0.95")
    if replicates == 1 or replicates > MOST_REPLICATES:
        raise UsageError(f"--bootstrap takes 0, or 2 to {MOST_REPLICATES:,}", "10000 is the default")
    opened = open_all(runs, out, baseline)
    if not opened.candidates:
        raise UsageError("there is nothing to compare the baseline with", "name two runs or more, or a sweep")
    options = Options(_groups(groups), (*opened.axis, *(axis or ())), confidence, replicates, seed)
    result = judge(opened.baselines, opened.candidates, options)
    _show(result)
    console.emit("compare", data(result), result.exit_code)
    return int(result.exit_code)


def _groups(name: str) -> Groups:
    from llmc.judge.compare import GROUPS

    for known in GROUPS:
        if name == known:
            return known
    raise UsageError(f"--groups is one of {', '.join(GROUPS)}, not {name!r}{did_you_mean(name, GROUPS)}", "")


def _show(result: Comparison) -> None:
    from llmc.report.compare import groups_table, remarks, tables

    for run in result.untrusted:
        console.show_text(f"untrusted, not compared: {run.label} on {run.benchmark} ({run.origin}): {run.problem}")
    for heading, table in tables(result):
        console.show_text(heading)
        console.show(table)
        console.show()
    for pair in result.pairs:
        if pair.groups and (len(result.pairs) == 1 or len(pair.groups) <= MANY_GROUPS):
            console.show_text(f"{pair.candidate.label} on {pair.candidate.benchmark}, by group:")
            console.show(groups_table(pair))
            console.show()
    for line in remarks(result):
        console.show_text(line)
