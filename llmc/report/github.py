"""What a gate says in GitHub Actions: a summary of the step, and annotations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from llmc.judge.gate import Case, Outcome, Verdict
from llmc.report.gate import headline, markdown

SUMMARY_BYTES = 1 << 20  # GitHub refuses a step's summary beyond 1 MiB
MOST_ANNOTATIONS = 10  # of a kind and step; GitHub drops the rest
_CUT = "\n\n_The rest does not fit into a step summary; see the gate's other reports._\n"
_LEVELS: dict[Outcome, str] = {
    "fail": "error",
    "untrusted": "error",
    "missing": "error",
    "refused": "error",
    "inconclusive": "warning",
    "skipped": "notice",
}


def active(environment: Mapping[str, str]) -> bool:
    """Whether this is a step of GitHub Actions."""
    return environment.get("GITHUB_ACTIONS") == "true"


def annotation_lines(verdict: Verdict) -> Iterator[str]:
    """Yield the workflow commands that annotate the step, at most ten of a kind, the last telling of the others."""
    for level in ("error", "warning", "notice"):
        cases = [case for case in verdict.cases if _LEVELS.get(case.outcome) == level]
        fits = len(cases) <= MOST_ANNOTATIONS
        for case in cases if fits else cases[: MOST_ANNOTATIONS - 1]:
            yield _command(level, f"llmc gate: {case.outcome}", _sentence(case))
        if not fits:
            rest = len(cases) - MOST_ANNOTATIONS + 1
            yield _command(level, "llmc gate", f"and {rest} more; see the step's summary. {headline(verdict)}")


def _sentence(case: Case) -> str:
    return f"{case.name}: {case.reason}" + (f"\n{case.remedy}" if case.remedy else "")


def _command(level: str, title: str, message: str) -> str:
    return f"::{level} title={escape_property(title)}::{escape(message)}"


def escape(text: str) -> str:
    """Return a workflow command's message in one line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    return escape(text).replace(":", "%3A").replace(",", "%2C")


def append_summary(verdict: Verdict, path: Path) -> None:
    """Append the verdict to the step's summary, table first, cut where it would become too long. May raise OSError."""
    with path.open("ab") as file:
        file.write(fitted(markdown(verdict), SUMMARY_BYTES - file.tell()))


def fitted(text: str, room: int) -> bytes:
    """Return text as UTF-8 of at most ``room`` bytes, whole lines, saying so where it was cut."""
    whole = text.encode("utf-8", "replace")
    if len(whole) <= room:
        return whole
    note = _CUT.encode()
    head = whole[: max(0, room - len(note))]
    return head[: head.rfind(b"\n") + 1].rstrip(b"\n") + note if len(head) else b""
