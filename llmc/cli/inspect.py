"""``llmc inspect``: what a benchmark file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json
from llmc.errors import ExitCode

if TYPE_CHECKING:
    from llmc.engine.gguf_model import ModelFacts
    from llmc.engine.preflight import Preflight
    from llmc.report.inspection import Inspection


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE.bin", help="The benchmark file.")],
    task: Annotated[int, typer.Option("--task", min=0, help="The task to show in full, from 0.")] = 0,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Count tokens and find hazards for this model."),
    ] = None,
    json: Json = False,
) -> int:
    """Show a benchmark file's structure, statistics and hazards, and one task as the model sees it."""
    from llmc.report import inspection

    with console.progress(f"reading {file.name}") as advance:
        seen = inspection.inspect(file, task, advance)
    facts, checked = _check(model, seen) if model is not None else (None, None)
    _show(seen, facts, checked)
    console.emit("inspect", inspection.data(seen, facts, checked))
    return int(ExitCode.OK)


def _check(ref: str, seen: Inspection) -> tuple[ModelFacts, Preflight]:
    from llmc.engine.binding import find_binding
    from llmc.engine.gguf_model import read_model
    from llmc.engine.preflight import preflight
    from llmc.fetch import fetch_model

    facts = read_model(fetch_model(ref).path)
    binding = find_binding()
    with console.progress(f"tokenizing {seen.path.name}", seen.facts.tasks) as advance:
        return facts, preflight(seen.path, facts, binding, facts=seen.facts, advance=advance)


def _show(seen: Inspection, model: ModelFacts | None, checked: Preflight | None) -> None:
    from llmc.report import inspection
    from llmc.report.verdict import findings_renderable

    rows = [("file", str(seen.path)), *inspection.rows(seen)]
    if model is not None and checked is not None:
        rows += [("", ""), *inspection.model_rows(model, checked, seen.facts)]
    else:
        rows += inspection.hazard_rows(seen)
    console.show_text("\n".join(f"{name:<18}{value}".rstrip() for name, value in rows))
    if checked is not None and (findings := checked.findings()):
        console.show()
        console.show(findings_renderable(findings))
    console.show_text("\n" + _rendered(seen, checked))


def _rendered(seen: Inspection, checked: Preflight | None) -> str:
    from llmc.report.inspection import printable

    task = seen.example
    needs = ""
    if checked is not None and checked.required is not None:
        needs = f" ({checked.required[seen.example_index]} tokens of context)"
    question = "\n".join("    " + line for line in printable(task.question).split("\n"))
    options = "\n".join(f"  {'*' if i == task.gold else ' '} {' ' + option!r}" for i, option in enumerate(task.options))
    return (
        f"Task {seen.example_index} as the model sees it{needs}:\n\n{question}\n\n"
        f"Continuations scored (* is right):\n\n{options}"
    )
