"""A suite for people: one table for each level of its tree, and a line for every part that has no score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmc.judge.suite import Judged
from llmc.report.run_table import percent
from llmc.report.tables import plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

# Heads of the columns, in the order shown; the other rules are in the records.
ACCURACIES = {
    "acc_raw": "acc\nraw",
    "acc_per_token": "acc\n/token",
    "acc_per_char": "acc\n/char",
    "acc_per_byte": "acc\n/byte",
    "acc_uncond": "acc\nuncond",
}
GOLD_VALUES = {
    "sum_logits_corr": "gold\nsum",
    "logits_per_token_corr": "gold\n/token",
    "logits_per_char_corr": "gold\n/char",
    "bits_per_byte_corr": "gold\nbits/byte",
}
AGGREGATES = {
    "mean": "mean",
    "macro-mean": "mean of all tasks",
    "mean-of-means": "mean of parts",
    "micro": "mean of all questions",
}


def level_table(node: Judged) -> Table:
    """One row for each part of a node, the last for the node itself; accuracies in percent, gold values as they are."""
    table = plain_table("part")
    for name in ("questions", "score"):
        table.add_column(name, justify="right")
    shown = [name for name in (*ACCURACIES, *GOLD_VALUES) if any(name in part.metrics for part in node.parts)]
    for name in shown:
        table.add_column((ACCURACIES | GOLD_VALUES)[name], justify="right")
    for part in node.parts:
        table.add_row(part.name, *_figures(part, shown))
    table.add_section()
    table.add_row(AGGREGATES[node.aggregate or "mean"], *_figures(node, shown), style="bold")
    return table


def _figures(judged: Judged, shown: Sequence[str]) -> list[str]:
    figures = [_figure(name, judged.metrics.get(name)) for name in shown]
    return [str(judged.tasks), score_text(judged), *figures]


def score_text(judged: Judged) -> str:
    """Return the score in percent, or a word for why there is none."""
    if judged.score is None:
        return judged.absent.kind if judged.absent else "none"
    return _figure(judged.metric or "acc_raw", judged.score)


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if name in GOLD_VALUES else percent(value, 2).removesuffix(" %")


def absent_lines(judged: Judged) -> list[str]:
    """One line for each reason why parts have no score, with the parts it is about."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for leaf in judged.missing():
        assert leaf.absent is not None
        key = (leaf.absent.kind, leaf.absent.what, leaf.absent.remedy)
        found.setdefault(key, []).append(leaf.path)
    lines = []
    for (kind, what, remedy), paths in found.items():
        lines.append(f"{kind}: {_named(paths)}: {what}" + (f"; fix: {remedy}" if remedy else ""))
    return lines


def _named(paths: list[str]) -> str:
    """Groups of one part are named by that part."""
    names = dict.fromkeys(path.partition("/")[0] for path in paths)
    return ", ".join(names)


def verdict_line(name: str, judged: Judged) -> str:
    """The suite's score, or why it has none."""
    if judged.score is not None:
        how = AGGREGATES[judged.aggregate or "mean"]
        return f"{name}: {score_text(judged)} % ({how}, {len(judged.parts)} parts, {judged.tasks} questions)"
    without = judged.missing()
    tasks = len(list(judged.leaves()))
    return f"{name}: no score, since {len(without)} of {tasks} tasks have none"
