"""The gate: floors and non-inferiority over the runs of a change, and one verdict that is printed and obeyed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llmc.errors import ExitCode, LlmcError, UsageError, did_you_mean
from llmc.judge import pairing
from llmc.judge.answers import Answers, Given
from llmc.judge.compare import baseline_of
from llmc.judge.noninferiority import NonInferiority, adjust, non_inferiority
from llmc.judge.policy import Policy

Outcome = Literal["pass", "fail", "inconclusive", "untrusted", "missing", "refused", "skipped"]
Kind = Literal["non-inferiority", "floor", "run"]

# A skipped case decides nothing; when there are no others, nothing was evaluated.
_CODES: dict[Outcome, ExitCode] = {
    "pass": ExitCode.OK,
    "fail": ExitCode.GATE_FAILED,
    "inconclusive": ExitCode.INCONCLUSIVE,
    "untrusted": ExitCode.UNTRUSTED,
    "missing": ExitCode.UNTRUSTED,
    "refused": ExitCode.USAGE,
}
VERDICTS: dict[ExitCode, str] = {
    ExitCode.OK: "pass",
    ExitCode.GATE_FAILED: "fail",
    ExitCode.USAGE: "refused",
    ExitCode.UNTRUSTED: "untrusted",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.NOTHING: "nothing to evaluate",
}
_MISSING = "score it with `llmc run` and name the run, or skip the benchmark in the gate's configuration"


@dataclass(frozen=True)
class Case:
    """One demand on one run, and how it went. ``reason`` is a sentence; ``remedy`` what to do where that is known."""

    label: str
    benchmark: str
    kind: Kind
    outcome: Outcome
    reason: str
    remedy: str = ""
    answers: Answers | None = None
    test: NonInferiority | None = None
    floor: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.label} on {self.benchmark}: {self.kind}"


@dataclass(frozen=True)
class Verdict:
    """All cases. What is printed, written to every report, and returned to the shell comes from here."""

    cases: tuple[Case, ...]
    policy: Policy

    @property
    def exit_code(self) -> ExitCode:
        codes = [_CODES[case.outcome] for case in self.cases if case.outcome in _CODES]
        return ExitCode.worst(codes) if codes else ExitCode.NOTHING

    @property
    def outcome(self) -> str:
        return VERDICTS[self.exit_code]

    def count(self, *outcomes: Outcome) -> int:
        return sum(case.outcome in outcomes for case in self.cases)


def judge(candidates: Sequence[Given], baselines: Sequence[Given], policy: Policy) -> Verdict:
    """Hold every candidate against the policy.

    Raises UsageError for a policy that asks for nothing, or names a setting that no run has.
    """
    if not baselines and not policy.has_floors:
        raise UsageError(
            "the gate asks for nothing: it has neither a baseline nor a floor",
            "give --baseline FILE, --min-accuracy PERCENT, or both",
        )
    pairing.check_axis(policy.axis, [run.answers for run in (*candidates, *baselines) if run.answers])
    cases: list[Case] = []
    for given in candidates:
        reason = policy.skip_reason(given.benchmark)
        if reason is not None:
            cases.append(Case(given.label, given.benchmark, "run", "skipped", f"skipped on purpose: {reason}"))
        elif given.answers is None:
            remedy = given.remedy or "see the run's logs, mend the cause and run it again"
            cases.append(Case(given.label, given.benchmark, "run", "untrusted", given.problem, remedy))
        else:
            cases += _cases(given, baselines, policy, related=_related(candidates, baselines))
    cases = _adjusted(cases, policy)
    return Verdict((*cases, *_missing(candidates, baselines, policy)), policy)


def _related(candidates: Sequence[Given], baselines: Sequence[Given]) -> bool:
    """Whether any candidate and any baseline are of one benchmark, by what was asked or at least by name."""
    keys = {run.answers.key for run in baselines if run.answers}
    names = {run.benchmark for run in baselines}
    return any(run.benchmark in names or (run.answers is not None and run.answers.key in keys) for run in candidates)


def _cases(given: Given, baselines: Sequence[Given], policy: Policy, *, related: bool) -> list[Case]:
    """Return the cases of a trusted candidate: its floor, its comparison, or the reason why there is neither."""
    answers = given.required()
    cases = []
    floor = policy.floor_of(given.benchmark)
    if floor is not None:
        cases.append(_floor_case(answers, floor))
    if baselines:
        case = _paired_case(answers, given, baselines, policy, related=related)
        if case.outcome != "skipped" or not cases:
            cases.append(case)
    elif not cases:
        cases.append(Case(answers.label, answers.benchmark, "run", "skipped", "no floor is set for this benchmark"))
    return cases


def _floor_case(answers: Answers, floor: float) -> Case:
    """A floor asks for a score on these very questions: nothing is inferred, so it is met or not."""
    met = answers.accuracy >= floor - 1e-12
    score = f"{100 * answers.accuracy:.2f} % ({answers.right} of {answers.n})"
    said = f"{score} is {'at least' if met else 'below'} the floor of {100 * floor:g} %"
    outcome: Outcome = "pass" if met else "fail"
    return Case(answers.label, answers.benchmark, "floor", outcome, said, answers=answers, floor=floor)


def _paired_case(answers: Answers, given: Given, baselines: Sequence[Given], policy: Policy, *, related: bool) -> Case:
    def case(outcome: Outcome, reason: str, remedy: str = "") -> Case:
        return Case(answers.label, answers.benchmark, "non-inferiority", outcome, reason, remedy, answers)

    same = [b for b in baselines if b.benchmark == answers.benchmark or (b.answers and b.answers.key == answers.key)]
    if related and not same:
        return case("skipped", "the baseline does not hold this benchmark")
    try:
        a = baseline_of(given, baselines).required()
        pairing.refuse_unless_pairable(a, answers)
    except LlmcError as error:
        outcome: Outcome = "untrusted" if error.exit_code == ExitCode.UNTRUSTED else "refused"
        return case(outcome, error.what, error.remedy)
    test = non_inferiority(
        a, answers, policy.margin_of(answers.benchmark), policy.alpha, by_cluster=policy.groups == "clusters"
    )
    return Case(
        answers.label,
        answers.benchmark,
        "non-inferiority",
        test.decision,
        "",
        answers=answers,
        test=test,
        warnings=(
            *pairing.warnings(a, answers, policy.axis),
            *pairing.without_clusters(a, answers, policy.groups),
        ),
    )


def _adjusted(cases: Sequence[Case], policy: Policy) -> list[Case]:
    """Return the cases with their tests adjusted for each other, where the policy asks for it, and put in words."""
    tests = [case.test for case in cases if case.test]
    if policy.holm:
        tests = adjust(tests)
    left = iter(tests)
    final = []
    for case in cases:
        if case.test:
            test = next(left)
            case = replace(case, test=test, outcome=test.decision, reason=in_words(test), remedy=_remedy(test))
        final.append(case)
    return final


def in_words(test: NonInferiority) -> str:
    """Return one sentence that says what the test found and why that decides, or does not."""
    margin = f"{100 * test.margin:g} point" + ("" if test.margin == 0.01 else "s")
    if test.identical:
        return "the same model file, run in the same way, gave the same answers"
    low, high = (f"{100 * bound:+.2f}" for bound in test.bounds)
    moved = f"{100 * test.pairs.difference:+.2f} points ({test.pairs.lost} lost, {test.pairs.gained} gained of "
    moved += f"{test.pairs.n})"
    if test.decision == "pass":
        return f"{moved}: with {_sure(test)} the loss is below {margin} (bound {low})"
    if test.decision == "fail":
        return f"{moved}: with {_sure(test)} the loss exceeds {margin} (bound {high})"
    if min(test.p_pass, test.p_fail) < test.alpha:
        which, p = ("pass", test.adjusted_pass) if test.p_pass < test.alpha else ("fail", test.adjusted_fail)
        return f"{moved}: a {which} by itself, but not among all tests of this gate (adjusted p {p:.3g})"
    return f"{moved}: the true difference may lie from {low} to {high}, on either side of -{margin}"


def _sure(test: NonInferiority) -> str:
    return f"{100 * (1 - test.alpha):g} % confidence"


def _remedy(test: NonInferiority) -> str:
    if test.decision != "inconclusive":
        return ""
    needed = test.questions_needed
    if needed is None:
        return "no realistic number of questions would decide at the observed difference; choose another margin"
    return f"about {needed} questions would decide, at the observed difference and discordance; a wider margin fewer"


def _missing(candidates: Sequence[Given], baselines: Sequence[Given], policy: Policy) -> list[Case]:
    """Return a case for each benchmark that the gate asks about and no run was named for."""
    if baselines and not _related(candidates, baselines):
        baselines = ()
    names = {run.benchmark for run in candidates}
    keys = {run.answers.key for run in candidates if run.answers}
    asked = {
        run.benchmark: "the baseline holds it" for run in baselines if not run.answers or run.answers.key not in keys
    }
    asked |= dict.fromkeys(policy.benchmarks, "the gate's configuration names it")
    cases = []
    for name, why in sorted(asked.items()):
        if name in names:
            continue
        if (reason := policy.skip_reason(name)) is not None:
            cases.append(Case("(no run)", name, "run", "skipped", f"skipped on purpose: {reason}"))
        else:
            hint = did_you_mean(name, names)
            cases.append(Case("(no run)", name, "run", "missing", f"{why}, and no run of it was named{hint}", _MISSING))
    return cases
