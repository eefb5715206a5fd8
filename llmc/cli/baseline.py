"""``llmc baseline``: the small file that a repository commits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import ExitCode

baseline_app = typer.Typer(help="Baseline files: what a gate compares with.", no_args_is_help=True)
app.add_typer(baseline_app, name="baseline")


@baseline_app.command("save")
def save(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Trusted runs, one for each benchmark.")],
    file: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")],
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Write the answers of trusted runs, and what made them, to a small file."""
    from llmc.judge.baseline import make_baseline, save_baseline
    from llmc.judge.inputs import open_runs

    made = make_baseline([run for name in runs for run in open_runs(name, out).runs])
    save_baseline(made, file)
    size = file.stat().st_size
    console.show_text(f"{file}: {len(made.entries)} benchmark{'s' * (len(made.entries) > 1)}, {size:,} bytes")
    entries = [
        {"benchmark": e.benchmark, "label": e.label, "tasks": e.tasks, "correct": e.correct} for e in made.entries
    ]
    console.emit("baseline save", {"file": str(file), "bytes": size, "entries": entries})
    return int(ExitCode.OK)


@baseline_app.command("show")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A baseline file.")],
    json: Json = False,
) -> int:
    """Show what a baseline file holds."""
    from llmc.judge.baseline import open_baseline
    from llmc.report.run_table import interval, percent
    from llmc.report.tables import plain_table

    entries = [run.required() for run in open_baseline(file)]
    table = plain_table()
    for name in ("benchmark", "model"):
        table.add_column(name, overflow="fold")
    for name in ("tasks", "accuracy", "95 % CI"):
        table.add_column(name, justify="right")
    for each in entries:
        share, bounds = percent(each.accuracy, 2), interval(*each.interval)
        table.add_row(each.benchmark, each.label, str(each.n), share, bounds)
    console.show(table)
    console.show()
    for each in entries:
        engine = each.engine
        made_by = f"{engine.flavour or 'unknown engine'} {engine.version or ''}".strip() if engine else "unknown engine"
        console.show_text(f"{each.benchmark}: file {each.benchmark_sha256}, scored by {made_by}")
    console.emit("baseline show", {"file": str(file), "entries": [each.describe() for each in entries]})
    return int(ExitCode.OK)
