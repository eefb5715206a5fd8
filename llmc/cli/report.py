"""``llmc report``: what people read of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out


@app.command()
def report(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="A sweep's name, or its folder under out/sweeps.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Where to write. Default: report/ in the sweep's folder.")
    ] = None,
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Write a sweep's report: index.html, report.md, cells.csv and cells.json. Exits as the sweep itself did."""
    from llmc.report.sweep_folder import WITHOUT, write_report
    from llmc.report.sweep_table import alerts, headline, sweep_data
    from llmc.report.sweep_view import view_sweep
    from llmc.runs.sweep_map import find_sweep

    folder = find_sweep(sweep, out)
    view = view_sweep(folder)
    written = write_report(view, to or folder / "report")
    for row in view.untrusted:
        console.show_text(f"{row.status}: {row.id}: {row.problem}")
    for line in alerts(view):
        console.show_text(line)
    console.show_text(headline(view))
    for path in written:
        console.show_text(str(path))
    if not any(path.suffix == ".svg" for path in written) and len(view.untrusted) < len(view.rows):
        console.note(WITHOUT)
    data = {**sweep_data(view), "files": [str(path) for path in written]}
    console.emit("report", data, view.exit_code)
    return int(view.exit_code)
