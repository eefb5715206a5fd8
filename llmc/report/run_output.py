"""What `llmc run` prints: results with their findings, or the plans of a dry run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llmc import console
from llmc.report.run_table import duration, groups_table, metrics_table, results_table
from llmc.report.verdict import findings_renderable

if TYPE_CHECKING:
    from llmc.runs.planned import Finished


def show_finished(finished: Sequence[Finished]) -> None:
    """Print the table of results; under it, run by run, what is to be said about each; then where the records are."""
    console.show(results_table([(f.folder, f.record, f.reused) for f in finished], console.width()))
    for each in finished:
        _show_details(each)
    console.show()
    for each in finished:
        console.show_text(f"record: {each.folder / 'record.json'}")
    _note_first_time(finished)


def _show_details(finished: Finished) -> None:
    record = finished.record
    name = record.benchmark.name if record.benchmark else ""
    if record.metrics:
        console.show()
        console.show_text(f"{name}, by every rule (the result is {record.rule}):")
        console.show(metrics_table(record))
    if record.groups:
        console.show()
        console.show(groups_table(record))
    if record.findings:
        console.show()
        console.show_text(f"{name}:")
        console.show(findings_renderable(record.findings))
    _show_checks(finished)


def _show_checks(finished: Finished) -> None:
    layout, cross = finished.record.layout_check, finished.record.cross_check
    if layout is not None:
        share = 100 * layout.flipped / layout.tasks
        console.show_text(
            f"layout check: {layout.flipped} of {layout.tasks} answers ({share:.1f} %) differ at "
            f"-np {layout.layout['np']} -c {layout.layout['c']}"
        )
    if cross is not None:
        console.show_text(f"cross-check: {cross.agreed} of {cross.tasks} tasks agree with the scorer")
        for each in cross.disagreements:
            console.show_text(f"  {each['id']}: margin {each['margin']:.3f} nats per token")


def _note_first_time(finished: Sequence[Finished]) -> None:
    """Say what only a first run pays for, when it took noticeable time."""
    timings = [f.record.timings for f in finished if f.record.timings and not f.reused]
    spent = [(name, s) for t in timings for name, s in t.first_time.items() if s >= 0.2]
    if spent:
        console.note("first-time work, cached from now on: " + ", ".join(f"{name} {s:.1f} s" for name, s in spent))


def show_plans(plans: Sequence[dict[str, Any]]) -> None:
    """Print what a dry run found out: the command, the layout, the memory and the time of each cell."""
    for each in plans:
        if each["scorer"] == "logprobs":
            _show_scored_plan(each)
        else:
            _show_plan(each)
        console.show()


def _show_plan(each: dict[str, Any]) -> None:
    layout, memory = each["layout"], each["memory_bytes"]
    console.show_text(each["command_line"])
    console.show_text(
        f"  {each['tasks']} tasks, longest {each['longest_tokens']} tokens, {each['total_tokens']} in all "
        f"({each['basis']})"
    )
    console.show_text(
        f"  layout: -np {layout['np']} -c {layout['c']}: {layout['total_context']} tokens in one context, "
        f"flash attention {layout['fa']}"
    )
    parts = ", ".join(f"{name} {size / 2**20:.0f}" for name, size in memory.items() if name != "total")
    console.show_text(f"  memory: about {memory['total'] / 2**20:.0f} MiB ({parts})")
    expected = each["expected_seconds"]
    known = f"about {duration(expected)}" if expected is not None else "not known before the first run"
    console.show_text(f"  time: {known}")


def _show_scored_plan(each: dict[str, Any]) -> None:
    console.show_text(f"{each['benchmark']}: {each['tasks']} items by the scorer, result by {each['rule']}")
    settings = ", ".join(f"{name} {value}" for name, value in each["settings"].items() if value is not None)
    console.show_text(f"  {settings}")
