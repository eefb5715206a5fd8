"""Judge one run: what the engine said against its exit status and the file it was given.

Evidence that contradicts is an error and makes the run untrusted; evidence that is absent is a warning,
unless nothing is left to compare with. An untrusted run has no accuracy, and no finding's detail holds one.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmc.engine.case import Case, counted, lost_its_tail, number, selection
from llmc.engine.error_findings import error_findings
from llmc.engine.rows import read_rows, summary_tolerance
from llmc.findings import Finding, finding, has_error

if TYPE_CHECKING:
    from llmc.engine.process import Limits, Outcome
    from llmc.engine.transcript import Transcript
    from llmc.mcbin import BinFacts

# Causes before effects: what a reader should see first. Slugs not listed come after, in the order found.
ORDER = (
    "not-multiple-choice",
    "interrupted",
    "timeout",
    "stalled",
    "did-not-exit",
    "killed-by-signal",
    "bad-binary",
    "benchmark-changed",
    "model-changed",
    "bytes-read-mismatch",
    "too-many-options",
    "context-too-small",
    "error-line",
    "exit-status",
    "announced-mismatch",
    "no-output",
    "scored-fewer",
    "scored-more",
    "row-gap",
    "impossible-accuracy",
    "several-finals",
    "final-mismatch",
    "baseline-mismatch",
)


@dataclass(frozen=True)
class Audit:
    """The verdict on one run, and what it rests on.

    ``correct`` has one character per scored task, 1 where it was right, in the order of scoring (file order
    but for a selection); None where the rows do not say. ``accuracy`` is a share (0 to 1), ``engine_se`` the
    standard error as the engine printed it, in percent; both None unless ``trusted``.
    """

    findings: tuple[Finding, ...]
    tasks_expected: int | None
    tasks_scored: int
    correct: str | None
    accuracy: float | None
    engine_se: float | None
    trusted: bool


def audit(
    transcript: Transcript,
    *,
    facts: BinFacts | None,
    outcome: Outcome | None,
    subset: int | None = None,
    golds: Sequence[int] | None = None,
    extra: Sequence[Finding] = (),
    limits: Limits | None = None,
) -> Audit:
    """Return the verdict on a run.

    ``facts`` is None when the benchmark file is not known or broken; in the second case ``extra`` names it.
    ``outcome`` is None when nobody saw the process end. ``subset`` is the number given to
    ``--multiple-choice-tasks`` (0 or less, or not below the file's tasks, is all of them, as llama.cpp
    has it). ``golds`` are the gold indices in the order of scoring; without them the always-one-position
    signature is not looked for. ``extra`` findings count as if made here. ``limits`` puts figures into
    the detail of a run that was ended.
    """
    subset = selection(subset, facts.tasks if facts is not None else None)
    findings = list(extra)
    broken = any(f.slug == "bad-binary" for f in findings)
    case = Case(transcript, facts, outcome, subset, limits, read_rows(transcript), broken)
    for check in CHECKS:
        findings += check(case)
    if facts is None and not broken:
        findings.append(finding("benchmark-unknown", _without_file(case)))
    trusted = not has_error(findings)
    if trusted and case.rows.correct is not None:
        findings += score_findings(case.rows.correct, golds, facts if subset is None else None)
    final = transcript.finals[0] if trusted and transcript.finals else (None, None)
    return Audit(
        findings=tuple(_sorted(findings)),
        tasks_expected=case.expected,
        tasks_scored=transcript.rows_total,
        correct=case.rows.correct,
        accuracy=case.rows.right / case.rows.count if trusted else None,
        engine_se=final[1],
        trusted=trusted,
    )


def _sorted(findings: list[Finding]) -> list[Finding]:
    rank = {slug: place for place, slug in enumerate(ORDER)}
    unique = list(dict.fromkeys(findings))
    return sorted(unique, key=lambda f: (f.severity != "error", rank.get(f.slug, len(ORDER))))


def _ending(case: Case) -> Iterator[Finding]:
    """How the process ended."""
    outcome = case.outcome
    if outcome is None:
        yield finding("exit-unknown", "nobody saw the process end")
        return
    if outcome.ended_by != "itself":
        yield finding(outcome.ended_by, _ended(case, outcome))
    elif outcome.signal is not None:
        yield finding("killed-by-signal", f"killed by {_signal_name(outcome.signal)}")
    elif outcome.exit_code is None:
        yield finding("exit-unknown", "the process did not die, not even by SIGKILL", "error")
    elif 128 < outcome.exit_code <= 128 + 64:
        name = _signal_name(outcome.exit_code - 128)
        yield finding("killed-by-signal", f"exit status {outcome.exit_code}, which stands for {name}")
    elif outcome.exit_code != 0:
        yield finding("exit-status", f"exit status {outcome.exit_code}")
    if outcome.left_children:
        yield finding("left-children", f"{counted(outcome.left_children, 'process', 'processes')} had to be ended")


def _ended(case: Case, outcome: Outcome) -> str:
    limits = case.limits
    allowed = {
        "timeout": limits.timeout if limits else None,
        "stalled": limits.stall if limits else None,
        "did-not-exit": limits.exit_grace if limits else None,
    }.get(outcome.ended_by)
    limit = f"; the limit was {allowed:g} s" if allowed is not None else ""
    return f"ended after {outcome.seconds:.1f} s{limit}; {case.progress}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _bytes(case: Case) -> Iterator[Finding]:
    if case.facts is None:
        return
    wrong = [size for size in case.transcript.bytes_read if size != case.facts.size]
    if wrong:
        read = number(wrong[0])
        yield finding("bytes-read-mismatch", f"{read} bytes were read, the file has {number(case.facts.size)}")


def _announcements(case: Case) -> Iterator[Finding]:
    """What the engine said that it would do."""
    said, facts = case.transcript, case.facts
    if not said.announced:
        if said.rows_total:
            unknown = case.expected is None
            detail = "nothing says how many tasks there should be" if unknown else "the announcement is missing"
            yield finding("not-announced", detail, "error" if unknown else None)
        return
    if len(said.announced) > 1:
        several = ", ".join(map(number, said.announced[:5]))
        yield finding("announced-mismatch", f"{len(said.announced)} announcements in one log: {several} tasks")
    elif facts is not None and said.announced[0] != facts.tasks:
        found, held = number(said.announced[0]), number(facts.tasks)
        yield finding("announced-mismatch", f"{found} tasks were announced, the file holds {held}")
    yield from _selection(case)


def _selection(case: Case) -> Iterator[Finding]:
    said, asked = case.transcript, case.subset
    if not said.selected:
        if asked is not None:
            yield finding("announced-mismatch", f"a selection of {number(asked)} tasks was asked for, none made")
        return
    chosen, available = said.selected[-1]
    picked = f"{number(chosen)} of {number(available)} tasks were selected"
    if len(said.selected) > 1:
        yield finding("announced-mismatch", f"{len(said.selected)} selections in one log")
    elif asked is None and case.facts is not None:
        yield finding("announced-mismatch", f"{picked}, all of them should have been scored")
    elif asked is not None and chosen != asked:
        yield finding("announced-mismatch", f"{picked}, {number(asked)} were asked for")
    elif available != said.announced[-1]:
        yield finding("announced-mismatch", f"{picked}, {number(said.announced[-1])} were announced")


def _counts(case: Case) -> Iterator[Finding]:
    """As many rows as tasks, numbered 1, 2, 3, ..."""
    said, expected = case.transcript, case.expected
    if said.rows_total == 0 and not said.announced and not said.error_lines and not said.finals:
        size = said.stdout_bytes + said.stderr_bytes + said.combined_bytes
        yield finding("no-output", f"no task line in {counted(size, 'byte')} of output")
        return
    if said.rows_total == 0 and not expected and not said.error_lines:
        elsewhere = ": they are in the other stream (stdout)" if said.finals else ""
        yield finding("no-output", f"no task lines{elsewhere}")
        return
    if expected is not None and said.rows_total < expected and (said.rows_total or said.announced or said.finals):
        why = ""
        if said.finals and not said.rows_total:
            why = " (the task lines are in the other stream, stdout)"
        elif lost_its_tail(said, case.outcome, expected):
            why = "; nothing else went wrong: llama.cpp loses its last lines at exit on a busy machine, so run it again"
        yield finding("scored-fewer", f"{case.progress}{why}")
    if expected is not None and said.rows_total > expected:
        yield finding("scored-more", case.progress)
    if case.rows.gap:
        yield finding("row-gap", case.rows.gap)
    if case.rows.impossible:
        yield finding("impossible-accuracy", case.rows.impossible)


def _finals(case: Case) -> Iterator[Finding]:
    said, rows = case.transcript, case.rows
    if len(said.finals) > 1:
        yield finding("several-finals", f"{len(said.finals)} final lines")
    elif not said.finals:
        if case.complete:
            yield finding("final-missing", "all rows are there, no final line")
    elif rows.sound and rows.count:
        printed = said.finals[0][0]
        own = 100 * rows.right / rows.count
        if printed is None:
            yield finding("final-mismatch", "the final line holds no number")
        elif abs(printed - own) > summary_tolerance(own):
            yield finding(
                "final-mismatch", f"the final line and the last row are {abs(printed - own):.4f} points apart"
            )


def _baseline(case: Case) -> Iterator[Finding]:
    """``Random chance`` is tasks / options: exactly the file's, or within its widths for a selection."""
    facts = case.facts
    if facts is None:
        return
    exact = 100 * facts.engine_chance
    low, high = (exact, exact) if case.subset is None else (100 / facts.widest, 100 / min(facts.widths))
    for printed, _ in case.transcript.chances:
        if printed is None:
            yield finding("baseline-mismatch", "the random chance printed is no number")
        elif not low - summary_tolerance(low) <= printed <= high + summary_tolerance(high):
            away = max(low - printed, printed - high)
            yield finding("baseline-mismatch", f"the chance printed is {away:.4f} points from the file's")


CHECKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _ending,
    _bytes,
    _announcements,
    error_findings,
    _counts,
    _finals,
    _baseline,
)


def score_findings(correct: str, golds: Sequence[int] | None, facts: BinFacts | None) -> list[Finding]:
    """Return what a reader of a sound score should know about it.

    ``correct`` has a 0 or 1 per task, ``golds`` the gold indices in the same order (bytes will do), or None
    when they are not known. ``facts`` is None when ``correct`` does not cover the whole file.
    """
    findings = []
    if golds is not None and len(golds) == len(correct):
        position = _one_position(correct, golds)
        if position is not None:
            detail = f"right exactly where the gold is option {position}, counted from 0"
            findings.append(finding("always-one-position", detail))
    right = correct.count("1")
    if facts is not None and right < (most := facts.gold_positions[facts.majority_position]):
        share = f"{number(most)} of {counted(facts.tasks, 'task')}"
        detail = f"{number(right)} right; the gold is option {facts.majority_position} in {share}"
        findings.append(finding("below-majority", detail))
    return findings


def _one_position(correct: str, golds: Sequence[int]) -> int | None:
    """Return the position that a model which always picks it would have chosen, where that says anything."""
    chosen = {gold for gold, mark in zip(golds, correct, strict=True) if mark == "1"}
    if len(chosen) != 1 or len(set(golds)) == 1:
        return None
    (position,) = chosen
    return position if bytes(golds).count(position) == correct.count("1") else None


def _without_file(case: Case) -> str:
    if case.expected is None:
        return "without the file nothing could be compared with it"
    return "compared with the engine's own announcement only: the file's size, tasks and random chance were not checked"
