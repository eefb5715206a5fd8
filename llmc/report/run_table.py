"""Tables over run records. A score appears for trusted runs only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmc.report.tables import plain_table
from llmc.runs.record import RunRecord
from llmc.stats import wilson

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 100
_STYLES = {"trusted": "green", "untrusted": "bold red", "interrupted": "yellow"}


def percent(share: float | None, digits: int = 1) -> str:
    """``0.4567`` -> ``45.7 %``; a dash when there is nothing to show."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """Seconds as ``0.4 s``, ``12 s``, ``3 min 05 s`` or ``2 h 07 min``."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def interval(low: float, high: float) -> str:
    return f"{100 * low:.1f}-{100 * high:.1f}"


def _verdict(record: RunRecord) -> str:
    return f"[{_STYLES[record.status]}]{record.status}[/]"


def results_table(runs: Sequence[tuple[Path, RunRecord, bool]], width: int = 120) -> Table:
    """One row a run: tasks, accuracy with its Wilson interval, chance, majority baseline, verdict, time.

    On a terminal narrower than ``WIDE`` columns a sample's name goes on two lines.
    """
    narrow = width < WIDE
    table = plain_table(gap=1 if narrow else 2)
    models = {record.model.ref if record.model else "" for _, record, _ in runs}
    if len(models) > 1:
        table.add_column("model", overflow="fold")
    table.add_column("benchmark", overflow="fold")
    for name in ("tasks", "accuracy", "95 % CI", "chance", "majority"):
        table.add_column(name, justify="right")
    table.add_column("verdict", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for _, record, reused in runs:
        model = [Path(record.model.path or record.model.ref).stem if record.model else "-"] if len(models) > 1 else []
        name, *figures = _cells(record)
        shown = name.replace(".", "\n.", 1) if narrow else name
        time = "reused" if reused else duration(record.timings.total if record.timings else None)
        table.add_row(*model, shown, *figures, _verdict(record), time)
    return table


def _cells(record: RunRecord) -> list[str]:
    bench, counts, result = record.benchmark, record.counts, record.result
    tasks = str(counts.scored) if result else f"{counts.scored} of {counts.expected or '?'}"
    return [
        bench.name if bench else "-",
        tasks,
        percent(result.accuracy) if result else "-",
        interval(result.wilson_low, result.wilson_high) if result else "-",
        percent(bench.chance if bench else None),
        percent(bench.majority_share if bench else None),
    ]


def metrics_table(record: RunRecord) -> Table:
    """Every metric of a run by the scorer: accuracies in percent, gold values in their own units."""
    table = plain_table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in (record.metrics or {}).items():
        accuracy = name.startswith("acc") or name == record.rule
        table.add_row(name, percent(value, 2) if accuracy else f"{value:.4f}")
    return table


def groups_table(record: RunRecord) -> Table:
    """Accuracy by group, with its interval; the last row is the mean over groups (macro average)."""
    table = plain_table()
    table.add_column("group", overflow="fold")
    for name in ("tasks", "accuracy", "95 % CI"):
        table.add_column(name, justify="right")
    for name, group in record.groups.items():
        low, high = wilson(group.correct, group.tasks)
        table.add_row(name, str(group.tasks), percent(group.correct / group.tasks), interval(low, high))
    mean = sum(g.correct / g.tasks for g in record.groups.values()) / len(record.groups)
    table.add_row("mean over groups", str(len(record.groups)), percent(mean), "")
    return table
