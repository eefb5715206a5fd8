"""Everything people and programs read of a sweep, in one folder."""

from __future__ import annotations

from pathlib import Path

from llmc.files import atomic_write, write_json
from llmc.report import html, html_plots
from llmc.report.sweep_table import csv_text, markdown, sweep_data
from llmc.report.sweep_view import View

WITHOUT = "The plots need matplotlib: pip install 'llmc-gguf[plots]', then run `llmc report` again."


def write_report(view: View, folder: Path) -> list[Path]:
    """Write report.md, cells.csv, cells.json, index.html and plots/*.svg; return their paths."""
    drawn = html_plots.plots(view) if html_plots.available() else []
    pictures = [(plot.title, f"plots/{plot.slug}.svg") for plot in drawn]
    texts = {
        "report.md": markdown(view, pictures),
        "cells.csv": csv_text(view),
        "index.html": html.page(view, drawn, "" if html_plots.available() else WITHOUT),
        **{path: plot.file for (_, path), plot in zip(pictures, drawn, strict=True)},
    }
    written = []
    for name, text in texts.items():
        with atomic_write(folder / name, "w") as file:
            file.write(text)
        written.append(folder / name)
    write_json(folder / "cells.json", sweep_data(view))
    return [*written, folder / "cells.json"]
