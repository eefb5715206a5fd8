"""``llmc import`` and ``llmc export``: to and from the files of others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import UsageError, did_you_mean
from llmc.files import readable


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE.bin", help="A benchmark file made by anyone.")],
    name: Annotated[str | None, typer.Option("--name", help="What to call it; its own name otherwise.")] = None,
    out: Out = Path("out"),
    json: Json = False,
) -> None:
    """Take over a .bin made elsewhere: items, a clean NAME.bin, and a record of where it is from."""
    from llmc.benchmarks.importing import import_bin

    entry = import_bin(file, out, name)
    widths = list(entry.options)
    options = f"{widths[0]}" if len(widths) == 1 else f"{widths[0]} to {widths[-1]}"
    console.show_text(
        f"imported {entry.name}: {entry.tasks} tasks, {options} options, {entry.form} form, "
        f"chance {100 * entry.chance:.2f} %, commonest answer {100 * entry.majority.share:.2f} %"
    )
    for warned in entry.warnings:
        console.show_text(f"  {warned.detail or f'{warned.count} tasks with {warned.kind}'}")
    console.show_text(readable(f"written to {entry.bin_path(out)}"))
    console.emit("import", {"out": str(out), "imported": entry.model_dump(mode="json", by_alias=True)})


@app.command()
def export(
    benchmark: Annotated[str, typer.Argument(metavar="NAME|FILE.bin", help="A built benchmark, or any .bin file.")],
    to: Annotated[str, typer.Option("--to", help="jsonl, parquet, or lm-eval (a task folder).")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File (lm-eval: folder) to write.")] = None,
    out: Out = Path("out"),
    json: Json = False,
) -> None:
    """Write the items of a benchmark in a form that other programs read."""
    from llmc.benchmarks import export as exports

    if to not in exports.FORMATS:
        raise UsageError(f"unknown form {to!r}{did_you_mean(to, exports.FORMATS)}", f"use {', '.join(exports.FORMATS)}")
    source = exports.Source(benchmark, out)
    target = output if output is not None else exports.default_output(source.name, to, out)
    count = exports.export(source, to, target)
    console.show_text(readable(f"exported {count} items of {source.name} to {target}{'/' if to == 'lm-eval' else ''}"))
    console.emit("export", {"name": source.name, "form": to, "items": count, "output": str(target)})
