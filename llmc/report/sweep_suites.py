"""What the suites of a sweep score: for every model, from the runs of the suite's parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmc.errors import LlmcError
from llmc.judge.suite import Judged, judge
from llmc.report.suite_table import absent_lines, score_text
from llmc.report.tables import plain_table
from llmc.runs.suite_plan import asked_together
from llmc.runs.suite_results import Absent, Result, Why, results_of
from llmc.runs.suite_tree import Leaf, Suite, find
from llmc.runs.sweep_suites import PartKey, read_places

if TYPE_CHECKING:
    from rich.table import Table

    from llmc.report.sweep_row import Row

_KINDS: dict[str, Why] = {"untrusted": "untrusted", "interrupted": "interrupted", "pending": "not-run"}


@dataclass(frozen=True)
class SuiteScore:
    """One model (and axis values) on one suite. ``judged`` has no score when a part has none.

    ``ref`` is how the sweep's configuration names the suite.
    """

    label: str
    suite: str
    judged: Judged
    ref: str


def suite_scores(rows: Sequence[Row], sweep: Path) -> tuple[SuiteScore, ...]:
    """Return the score of every model on every suite that has cells among ``rows``, in their order.

    A suite that is no longer what it was when the sweep was made has no score, and its parts say why.
    """
    together: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.cell.suite is not None:
            together.setdefault((row.label, row.cell.suite), []).append(row)
    suites = {ref: _as_it_was(ref, own) for (_, ref), own in together.items()}
    return tuple(_score(label, ref, suites[ref], own, sweep) for (label, ref), own in together.items())


def _as_it_was(ref: str, rows: Sequence[Row]) -> Suite | Absent:
    """Return the suite that the rows were scored for, or why there is none any more."""
    try:
        suite = find(ref)
    except LlmcError as error:
        return Absent("missing", error.what, f"restore the suite's file; {error.remedy}" if error.remedy else "")
    if any(row.cell.suite_definition != suite.definition for row in rows):
        changed = f"the suite {ref} is no longer what it was when this sweep was run"
        return Absent("missing", changed, "run `llmc sweep` again, or restore the suite's file")
    return suite


def _score(label: str, ref: str, suite: Suite | Absent, rows: Sequence[Row], sweep: Path) -> SuiteScore:
    if isinstance(suite, Absent):
        leaves = tuple(
            Judged(name, name, None, None, None, {}, 0, absent=suite)
            for name in dict.fromkeys(row.cell.benchmark for row in rows)
        )
        return SuiteScore(label, ref, Judged("", ref, "mean", None, None, {}, 0, leaves), ref)
    results: dict[str, Result] = {}
    parts = asked_together(suite)
    for row in rows:
        number = row.cell.suite_part
        if number is not None and number < len(parts):
            results |= _results(row, parts[number], sweep)
    return SuiteScore(label, suite.name, judge(suite.tree, results), ref)


def _results(row: Row, leaves: Sequence[Leaf], sweep: Path) -> dict[str, Result]:
    paths = [leaf.path for leaf in leaves]
    if not row.trusted or row.record is None or row.run.folder is None:
        return dict.fromkeys(paths, Absent(_KINDS.get(row.status, "missing"), row.problem, row.remedy))
    sha256 = row.record.benchmark.sha256 if row.record.benchmark else None
    key = PartKey(f"{row.cell.suite}#{row.cell.suite_part}", str(row.cell.suite_definition), str(sha256))
    try:
        places, absent = read_places(sweep, key)
        return {**absent, **results_of(row.run.folder, row.record, places)}
    except LlmcError as error:
        return dict.fromkeys(paths, Absent("missing", error.what, error.remedy))


def without_score(scores: Sequence[SuiteScore]) -> list[SuiteScore]:
    """Return the suites that have no score, and why is in their parts."""
    return [each for each in scores if each.judged.score is None]


def part_names(scores: Sequence[SuiteScore]) -> list[str]:
    return list(dict.fromkeys(part.name for each in scores for part in each.judged.parts))


def by_suite(scores: Sequence[SuiteScore]) -> dict[str, list[SuiteScore]]:
    found: dict[str, list[SuiteScore]] = {}
    for each in scores:
        found.setdefault(each.suite, []).append(each)
    return found


def cells(score: SuiteScore, parts: Sequence[str]) -> list[str]:
    """Return a row: the model, the suite's score, and those of its parts; a word where there is none."""
    own = {part.name: part for part in score.judged.parts}
    return [score.label, score_text(score.judged), *(score_text(own[name]) if name in own else "-" for name in parts)]


def suite_table(scores: Sequence[SuiteScore], width: int) -> Table:
    """One suite in percent: a row a model with its score and, where ``width`` has room, those of the topmost parts."""
    parts = part_names(scores)
    needed = max(len(each.label) for each in scores) + sum(max(len(name), 6) + 2 for name in ("score", *parts))
    shown = parts if needed <= width else []
    table = plain_table("model")
    for name in ("score", *shown):
        table.add_column(name, justify="right", no_wrap=True)
    for each in scores:
        table.add_row(*cells(each, shown))
    return table


def reasons(score: SuiteScore) -> list[str]:
    """Return why a suite has no score, a line for each cause."""
    return [f"{score.label}: {line}" for line in absent_lines(score.judged)]


def data(score: SuiteScore) -> dict[str, Any]:
    """Return a suite's score for JSON: shares from 0 to 1, None where there is none."""
    judged = score.judged
    return {"label": score.label, "suite": score.suite, "score": judged.score, "tree": judged.data()}
