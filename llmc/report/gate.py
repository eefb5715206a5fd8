"""A gate's verdict for people (table, Markdown) and for programs (plain data): all from the one verdict object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from llmc.judge.gate import Case, Outcome, Verdict
from llmc.judge.noninferiority import NonInferiority
from llmc.report.compare import points
from llmc.report.run_table import percent
from llmc.report.tables import plain_table

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = "llmc.gate/1"
STYLES: dict[Outcome, str] = {
    "pass": "green",
    "fail": "bold red",
    "inconclusive": "yellow",
    "untrusted": "bold magenta",
    "missing": "bold magenta",
    "refused": "bold magenta",
    "skipped": "dim",
}
COLUMNS = ("verdict", "model", "benchmark", "accuracy", "against", "difference", "bounds")


def headline(verdict: Verdict) -> str:
    """Return the verdict in one line, with how many cases went which way."""
    counts = [f"{n} {outcome}" for outcome in STYLES if (n := verdict.count(outcome))]
    return f"gate: {verdict.outcome} ({', '.join(counts) or 'no runs'}; exit code {int(verdict.exit_code)})"


def cells(case: Case) -> tuple[str, ...]:
    """Return the figures of one case in the order of ``COLUMNS``."""
    accuracy = percent(case.answers.accuracy, 2) if case.answers else "-"
    against, difference, bounds = "-", "-", "-"
    if case.floor is not None:
        against = f"floor {100 * case.floor:g} %"
    if case.test is not None:
        low, high = case.test.bounds
        against = (
            f"{case.test.baseline.label} {percent(case.test.baseline.accuracy, 2)}, margin {100 * case.test.margin:g}"
        )
        difference, bounds = points(case.test.pairs.difference), f"{points(low)} to {points(high)}"
    return case.outcome, case.label, case.benchmark, accuracy, against, difference, bounds


def table(verdict: Verdict) -> Table:
    """One row a case. Every verdict is a word, never colour alone."""
    from rich.text import Text

    made = plain_table()
    for name in COLUMNS:
        left = name in COLUMNS[:3] or name == "against"
        made.add_column(name, justify="left" if left else "right", no_wrap=name == "verdict", overflow="fold")
    for case in verdict.cases:
        first, *rest = cells(case)
        made.add_row(Text(first, style=STYLES[case.outcome]), *(Text(each) for each in rest))
    return made


def explanations(verdict: Verdict) -> Iterator[str]:
    """Yield why each case went as it did, the worst first, with what to do."""
    order = list(STYLES)
    rank = {"untrusted": 0, "missing": 0, "refused": 0, "fail": 1, "inconclusive": 2, "pass": 4, "skipped": 3}
    for case in sorted(verdict.cases, key=lambda c: (rank[c.outcome], order.index(c.outcome))):
        yield f"{case.outcome}: {case.name}: {case.reason}"
        if case.remedy:
            yield f"  fix: {case.remedy}"
        yield from (f"  warning: {warning}" for warning in case.warnings)


def markdown(verdict: Verdict) -> str:
    """Return a Markdown document: the verdict, the table, then the reasons."""
    lines = [f"## {escaped(headline(verdict))}", "", f"| {' | '.join(COLUMNS)} |", "|" + " --- |" * len(COLUMNS)]
    lines += [f"| {' | '.join(map(escaped, cells(case)))} |" for case in verdict.cases]
    lines += ["", _method(verdict), ""]
    lines += [
        f"- {escaped(line)}" if not line.startswith(" ") else f"  - {escaped(line.strip())}"
        for line in explanations(verdict)
    ]
    return "\n".join(lines) + "\n"


def _method(verdict: Verdict) -> str:
    tests = sum(case.test is not None for case in verdict.cases)
    if not tests:
        return "Floors are compared with the accuracy on these very questions."
    level = f"{100 * (1 - verdict.policy.alpha):g} %"
    said = f"Differences in points, with one-sided {level} bounds (Tango's score test, questions paired)."
    return said + (f" Verdicts are adjusted for {tests} tests (Holm)." if verdict.policy.holm and tests > 1 else "")


def escaped(text: str) -> str:
    """Return text that Markdown and HTML take literally, within one table cell."""
    text = text.replace("&", "&amp;")  # first: what follows has some of its own
    for char in "\\`*_[]<>|~#":
        text = text.replace(char, {"<": "&lt;", ">": "&gt;"}.get(char, "\\" + char))
    return " ".join(text.split())


def data(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict for JSON: shares from -1 to 1, never NaN."""
    return {
        "schema": SCHEMA,
        "outcome": verdict.outcome,
        "exit_code": int(verdict.exit_code),
        "policy": verdict.policy.model_dump(mode="json"),
        "cases": [_case_data(case) for case in verdict.cases],
    }


def _case_data(case: Case) -> dict[str, Any]:
    return {
        "name": case.name,
        "label": case.label,
        "benchmark": case.benchmark,
        "kind": case.kind,
        "outcome": case.outcome,
        "reason": case.reason,
        "remedy": case.remedy,
        "run": case.answers.describe() if case.answers else None,
        "floor": case.floor,
        "test": figures(case.test) if case.test else None,
        "warnings": list(case.warnings),
    }


def figures(test: NonInferiority) -> dict[str, Any]:
    """Return what a test found, as plain numbers."""
    low, high = test.bounds
    return {
        "baseline": test.baseline.describe(),
        "margin": test.margin,
        "alpha": test.alpha,
        "tasks": test.pairs.n,
        "lost": test.pairs.lost,
        "gained": test.pairs.gained,
        "difference": test.pairs.difference,
        "low": low,
        "high": high,
        "design_effect": test.effect,
        "p_pass": test.p_pass,
        "p_fail": test.p_fail,
        "p_pass_adjusted": test.adjusted_pass,
        "p_fail_adjusted": test.adjusted_fail,
        "questions_needed": test.questions_needed if test.decision == "inconclusive" else None,
        "identical": test.identical,
    }
