"""A sweep in tables: for the terminal, Markdown, CSV and JSON. A score appears for trusted cells only."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from llmc import console
from llmc.report import gate as gate_report
from llmc.report.compare import p_value, points
from llmc.report.gate import escaped
from llmc.report.run_table import duration, interval, percent
from llmc.report.sweep_row import Row
from llmc.report.sweep_suites import by_suite, part_names, reasons, suite_table
from llmc.report.sweep_suites import cells as suite_cells
from llmc.report.sweep_suites import data as suite_data
from llmc.report.sweep_view import View

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = "llmc.report/1"
COLUMNS = (
    "model",
    "benchmark",
    "verdict",
    "size",
    "bits/weight",
    "accuracy",
    "95 % CI",
    "difference",
    "its 95 % CI",
    "flips",
    "p (Holm)",
    "time",
)
STYLES = {
    "trusted": "green",
    "pass": "green",
    "inconclusive": "yellow",
    "fail": "bold red",
    "pending": "yellow",
    "interrupted": "yellow",
}
WIDE = 140  # columns of a terminal that has room for all figures
SECONDARY = ("size", "its 95 % CI", "bits/weight")
LISTED = 20  # cells without a score named on the terminal; a report names all


def size(count: int | None) -> str:
    """Bytes as ``98 MB`` or ``4.92 GB``; a dash when unknown."""
    if count is None:
        return "-"
    return (
        f"{count / 1e9:.2f} GB"
        if count >= 1e9
        else f"{count / 1e6:.0f} MB"
        if count >= 1e6
        else f"{count / 1e3:.0f} kB"
    )


def cells(row: Row) -> tuple[str, ...]:
    """Return a row in the order of ``COLUMNS``."""
    model = row.record.model if row.record else None
    bits = model.bits_per_weight if model else None
    result, pair = row.result, row.pair
    difference = "baseline" if row.is_baseline and result else points(pair.pairs.difference) if pair else "-"
    return (
        row.label,
        row.cell.benchmark,
        row.verdict,
        size(model.size if model else None),
        "-" if bits is None else f"{bits:.2f}",
        percent(result.accuracy, 2) if result else "-",
        interval(result.wilson_low, result.wilson_high) if result else "-",
        difference,
        "{} to {}".format(*map(points, pair.interval)) if pair else "-",
        percent(pair.pairs.flip_rate) if pair else "-",
        p_value(pair.p_holm) if pair else "-",
        duration(row.cell.seconds),
    )


def results_table(view: View, width: int = 120) -> Table:
    """One row a cell; columns that say nothing in this sweep are left out."""
    from rich.table import Table
    from rich.text import Text

    rows = [cells(row) for row in view.rows]
    narrow = width < WIDE
    left_out = SECONDARY if narrow else ()
    shown = [i for i, name in enumerate(COLUMNS) if name not in left_out and (i < 3 or any(r[i] != "-" for r in rows))]
    table = Table(box=None, pad_edge=False, padding=(0, 1 if narrow else 2, 0, 0), header_style="bold")
    for i in shown:
        name = COLUMNS[i]
        justify: Literal["left", "right"] = "left" if i < 3 else "right"
        table.add_column(name, justify=justify, overflow="fold", no_wrap=i >= 2)
    for row in rows:
        style = STYLES.get(row[COLUMNS.index("verdict")], "bold red")
        table.add_row(*(Text(row[i], style=style if COLUMNS[i] == "verdict" else "") for i in shown))
    return table


def show_sweep(view: View) -> None:
    """Print a sweep: first what has no score and why, then the table, the gate, and where it all lies."""
    without = problems(view)
    for rows in without[:LISTED]:
        console.show_text(f"{rows[0].status}: {', '.join(row.id for row in rows)}: {rows[0].problem}")
        if rows[0].remedy:
            console.show_text(f"  fix: {rows[0].remedy}")
    if len(without) > LISTED:
        console.show_text(f"... and more without a score, for {len(without) - LISTED} other reasons")
    if view.untrusted:
        console.show()
    for line in alerts(view):
        console.show_text(line)
    console.show(results_table(view, console.width()))
    console.show()
    for name, scores in by_suite(view.suites).items():
        console.show_text(f"{name}:")
        console.show(suite_table(scores, console.width()))
        if not view.whole:  # else it stands at the top
            for line in (line for each in scores for line in reasons(each)):
                console.show_text(line)
        console.show()
    for row in view.rows:
        if row.unpaired:
            console.show_text(f"not compared: {row.unpaired}")
    if view.gate is not None:
        told = list(gate_report.explanations(view.gate))
        for line in told[: 2 * LISTED]:
            console.show_text(line)
        if len(told) > 2 * LISTED:
            console.show_text("... and more: see the report")
        console.show_text(gate_report.headline(view.gate))
    console.show_text(f"{headline(view)}; report: `llmc report {view.folder}`")


def problems(view: View) -> list[list[Row]]:
    """Return the cells without a score, together those that have none for the same reason."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in view.untrusted:
        found.setdefault((row.status, row.problem), []).append(row)
    return list(found.values())


def alerts(view: View) -> list[str]:
    """Return what has no score or verdict although it has cells: suites, and a gate that cannot be held."""
    found = [f"no score: {each.suite}: {line}" for each in view.suites_without for line in reasons(each)]
    if (problem := view.gate_problem) is not None:
        found.append(f"no verdict: the gate: {problem.what}" + (f"; fix: {problem.remedy}" if problem.remedy else ""))
    return found


def headline(view: View) -> str:
    """Return how many cells have a trusted run, in one line."""
    good = len(view.rows) - len(view.untrusted)
    return f"sweep {view.name}: {good} of {len(view.rows)} cells trusted"


def markdown(view: View, plots: Sequence[tuple[str, str]] = ()) -> str:
    """Return the report as Markdown. ``plots`` are (title, path) of pictures beside it."""
    lines = [f"# {escaped(view.name)}", "", f"{headline(view)}; {view.map.updated}, llmc {view.map.llmc_version}.", ""]
    if view.untrusted:
        lines += ["## Without a score", "", "These cells are in no comparison and no plot.", ""]
        for rows in problems(view):
            fix = f" Fix: {escaped(rows[0].remedy)}" if rows[0].remedy else ""
            names = escaped(", ".join(row.id for row in rows))
            lines.append(f"- **{rows[0].status}** {names}: {escaped(rows[0].problem)}{fix}")
        lines.append("")
    if told := alerts(view):
        lines += ["## Without a verdict", "", *(f"- {escaped(line)}" for line in told), ""]
    if view.gate is not None:
        lines += [gate_report.markdown(view.gate)]
    lines += [
        "## Results",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"| {' | '.join(_rule(i) for i in range(len(COLUMNS)))} |",
    ]
    lines += [f"| {' | '.join(map(escaped, cells(row)))} |" for row in view.rows]
    lines += ["", method(view), ""]
    for name, scores in by_suite(view.suites).items():
        parts = part_names(scores)
        head = ("model", "score", *parts)
        lines += [f"## {escaped(name)}", "", f"| {' | '.join(map(escaped, head))} |"]
        lines.append(f"| {' | '.join('---:' if i else '---' for i in range(len(head)))} |")
        lines += [f"| {' | '.join(map(escaped, suite_cells(each, parts)))} |" for each in scores]
        lines += ["", *(f"- {escaped(line)}" for each in scores for line in reasons(each)), ""]
    for title, path in plots:
        lines += [f"## {escaped(title)}", "", f"![{escaped(title)}]({path})", ""]
    return "\n".join(lines)


def method(view: View) -> str:
    """Return how the figures are to be read."""
    text = "Accuracy with its Wilson 95 % interval."
    if view.has_baseline:
        text += (
            " Differences to the baseline are paired, question by question, in percentage points; flips are the share"
            " of answers that changed between right and wrong; p is McNemar's mid-p, adjusted for all comparisons of"
            " the sweep (Holm)."
        )
    return text


def _rule(column: int) -> str:
    return "---" if column < 3 else "---:"


def row_data(row: Row) -> dict[str, Any]:
    """Return a cell for programs: shares from 0 to 1, sizes in bytes, times in seconds, None for what is not known."""
    record, result, pair = row.record, row.result, row.pair
    model = record.model if record else None
    timings = record.timings if record and row.trusted else None
    low, high = pair.interval if pair else (None, None)
    return {
        "cell": row.id,
        "model": row.cell.model,
        "benchmark": row.cell.benchmark,
        **{f"axis_{name}": value for name, value in row.cell.axes.items()},
        "status": row.status,
        "verdict": row.verdict,
        "problem": row.problem or None,
        "run": row.cell.run,
        "quantization": model.quantization if model else None,
        "size": model.size if model else None,
        "bits_per_weight": model.bits_per_weight if model else None,
        "tasks": result.tasks if result else None,
        "correct": result.correct if result else None,
        "accuracy": result.accuracy if result else None,
        "wilson_low": result.wilson_low if result else None,
        "wilson_high": result.wilson_high if result else None,
        "chance": record.benchmark.chance if record and record.benchmark else None,
        "baseline": row.cell.baseline,
        "difference": pair.pairs.difference if pair else None,
        "difference_low": low,
        "difference_high": high,
        "lost": pair.pairs.lost if pair else None,
        "gained": pair.pairs.gained if pair else None,
        "flip_rate": pair.pairs.flip_rate if pair else None,
        "p": pair.p if pair else None,
        "p_holm": pair.p_holm if pair else None,
        "seconds": row.cell.seconds,
        "engine_seconds": timings.engine if timings else None,
        "tokens_per_second": timings.tokens_per_second if timings else None,
        "peak_rss": record.peak_rss if record and row.trusted else None,
    }


def sweep_data(view: View) -> dict[str, Any]:
    """Return a sweep for JSON: its cells, and the gate's verdict where it has one."""
    return {
        "schema": SCHEMA,
        "name": view.name,
        "folder": str(view.folder),
        "updated": view.map.updated,
        "exit_code": int(view.exit_code),
        "trusted": len(view.rows) - len(view.untrusted),
        "cells": [row_data(row) for row in view.rows],
        "suites": [suite_data(each) for each in view.suites],
        "gate": gate_report.data(view.gate) if view.gate else None,
        "problems": alerts(view),
    }


def csv_text(view: View) -> str:
    """Return the cells as CSV with a header line."""
    rows = [row_data(row) for row in view.rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def preview_table(found: Sequence[dict[str, Any]], width: int = 120) -> Table:
    """One row a cell of ``llmc sweep --dry-run``."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("cell", overflow="fold")
    table.add_column("state")
    for name in ("tasks", "disk", "memory", "time"):
        table.add_column(name, justify="right")
    for cell in found:
        state = "would fail" if cell["error"] else "done" if cell["cached"] else "to run"
        table.add_row(
            Text(cell["cell"]),
            state,
            "-" if cell["tasks"] is None else str(cell["tasks"]),
            size(cell["disk_bytes"]) if cell["disk_bytes"] else "-",
            size(cell["memory_bytes"]),
            duration(cell["expected_seconds"]),
        )
    return table
