"""``llmc runs``: what is in the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import ExitCode, LlmcError, UsageError

runs_app = typer.Typer(help="Runs in the store.", no_args_is_help=True)
app.add_typer(runs_app, name="runs")


@runs_app.command("list")
def list_runs(out: Out = Path("out"), json: Json = False) -> int:
    """List the runs in the store, oldest first."""
    from llmc.report.run_table import results_table
    from llmc.runs.store import Store

    good, bad = [], []
    for folder, record in Store(out).records():
        if isinstance(record, LlmcError):
            bad.append((folder, record))
        else:
            good.append((folder, record, False))
    data = [{"folder": str(folder), "record": record.dump()} for folder, record, _ in good]
    if good:
        console.show(results_table(good, console.width()))
        console.show()
        for folder, _, _ in good:
            console.show_text(str(folder))
    else:
        console.show_text(f"no runs in {Store(out).root}; make one with `llmc run -m MODEL -b BENCH`")
    for folder, failure in bad:
        console.note(f"unreadable: {folder}: {failure.what}")
    console.emit("runs list", {"runs": data, "unreadable": [str(folder) for folder, _ in bad]})
    return int(ExitCode.OK)


@runs_app.command("show")
def show_run(
    name: Annotated[str, typer.Argument(help="A run's folder, its name, or the end of it (the key).")],
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Show one run: verdict, identity, per-group table, findings. Exits with the run's own verdict."""
    from llmc.report.run_table import groups_table, results_table
    from llmc.report.verdict import findings_renderable
    from llmc.runs.record import load_record
    from llmc.runs.store import Store

    folder = Store(out).find(name)
    record = load_record(folder)
    console.show(results_table([(folder, record, False)], console.width()))
    console.show()
    for label, value in _facts(record.dump()):
        console.show_text(f"{label:<12} {value}")
    if record.groups:
        console.show()
        console.show(groups_table(record))
    if record.findings:
        console.show()
        console.show(findings_renderable(record.findings))
    console.emit("runs show", {"folder": str(folder), "record": record.dump()}, record.exit_code)
    return int(record.exit_code)


@runs_app.command("export")
def export(
    name: Annotated[str, typer.Argument(help="A run's folder, its name, or the end of it (the key).")],
    to: Annotated[str, typer.Option("--to", help="Format: lm-eval (results and samples files).")] = "lm-eval",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write into.")] = Path("out/lm-eval"),
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Write a run by the scorer in the shape that lm-evaluation-harness writes its own."""
    from llmc.report.lm_eval import export_run
    from llmc.runs.store import Store

    if to != "lm-eval":
        raise UsageError(f"a run cannot be exported to {to!r}", "the format is lm-eval")
    written = export_run(Store(out).find(name), output)
    for path in (written.results, written.samples):
        console.show_text(str(path))
    console.emit("runs export", {"results": str(written.results), "samples": str(written.samples)})
    return int(ExitCode.OK)


def _facts(record: dict[str, object]) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [("started", record["started"])]
    for part, keys in (
        ("model", ("ref", "quantization", "bits_per_weight", "sha256")),
        ("benchmark", ("path", "sha256")),
        ("engine", ("flavour", "version", "identity")),
    ):
        known = record.get(part)
        if isinstance(known, dict):
            facts += [(f"{part} {key}".replace("_", " ")[:24], known[key]) for key in keys if known.get(key)]
    facts.append(("layout", record.get("layout")))
    facts.append(("command", " ".join(str(word) for word in record["argv"])))  # type: ignore[attr-defined]
    return facts
