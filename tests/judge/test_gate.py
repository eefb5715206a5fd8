"""The gate's cases and its one verdict; every report says what the exit code says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import junitparser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from llmc.errors import ExitCode, UsageError
from llmc.judge.answers import Given, given_record
from llmc.judge.gate import VERDICTS, Case, Verdict, judge
from llmc.judge.policy import Policy
from llmc.report import gate as report
from llmc.report import github
from llmc.report.junit import junit
from made_runs import SHA, answers, changed, record

BASE = answers(3000, 1800)


def run(correct: str = BASE, name: str = "base", **more: Any) -> Given:
    return given_record(record(correct, model=name, **more), Path(name))


GOOD = run(changed(BASE, 20, 25), "good")
WORSE = run(changed(BASE, 150, 30), "worse")
SHORT = run(changed(BASE, 60, 45), "short")
BROKEN = run(BASE, "broken", trusted=False)
FOREIGN = run(BASE, "foreign", must={"benchmark_sha256": "dd" * 32})
OUTCOMES = [
    (GOOD, "pass", 0),
    (WORSE, "fail", 1),
    (FOREIGN, "refused", 2),
    (BROKEN, "untrusted", 3),
    (SHORT, "inconclusive", 4),
]


def gate(*candidates: Given, baselines: tuple[Given, ...] | None = None, **policy: Any) -> Verdict:
    return judge(candidates, (run(),) if baselines is None else baselines, Policy(**policy))


@pytest.mark.parametrize(("candidate", "outcome", "code"), OUTCOMES)
def test_each_outcome_alone(candidate: Given, outcome: str, code: int) -> None:
    verdict = gate(candidate)
    (case,) = verdict.cases
    assert (case.outcome, verdict.outcome, int(verdict.exit_code)) == (outcome, outcome, code)
    assert case.reason and (case.remedy or outcome in ("pass", "fail"))


@pytest.mark.parametrize("worst", OUTCOMES, ids=lambda o: o[1])
def test_the_worst_decides_in_the_order_of_the_exit_codes(worst: tuple[Given, str, int]) -> None:
    rank = {3: 0, 2: 1, 1: 2, 4: 3, 0: 4}
    others = [g for g, _, code in OUTCOMES if rank[code] >= rank[worst[2]]]
    verdict = gate(*others, holm=False)
    assert int(verdict.exit_code) == worst[2] and verdict.outcome == worst[1]


def test_a_baseline_of_another_file_names_both() -> None:
    (case,) = gate(FOREIGN).cases
    assert SHA["arc"] in case.reason and "dd" * 32 in case.reason
    (case,) = gate(run(bench="boolq", name="other")).cases
    assert case.outcome == "refused" and SHA["arc"] in case.reason and SHA["boolq"] in case.reason


def test_inconclusive_says_how_many_questions_would_decide() -> None:
    (case,) = gate(SHORT).cases
    assert case.test is not None and case.test.questions_needed is not None and case.test.questions_needed > 3000
    assert f"about {case.test.questions_needed} questions would decide" in case.remedy


def test_nothing_to_evaluate() -> None:
    assert gate(baselines=(), min_accuracy=40).exit_code == ExitCode.NOTHING
    skipped = gate(GOOD, benchmarks={"arc": {"skip": "too slow"}})
    assert skipped.exit_code == ExitCode.NOTHING and skipped.cases[0].reason == "skipped on purpose: too slow"
    assert gate(GOOD, baselines=(), benchmarks={"boolq": {"min_accuracy": 4}}).count("skipped") == 1


def test_a_gate_that_asks_for_nothing() -> None:
    with pytest.raises(UsageError, match="asks for nothing"):
        gate(GOOD, baselines=())


@pytest.mark.parametrize(("floor", "code"), [(59.9, 0), (60, 0), (60.1, 1)])
def test_a_floor_is_met_or_not(floor: float, code: int) -> None:
    verdict = gate(run(), baselines=(), min_accuracy=floor)
    assert int(verdict.exit_code) == code and verdict.cases[0].kind == "floor"


def test_floors_and_margins_of_single_benchmarks() -> None:
    both = (run(), run(bench="boolq"))
    wide = gate(WORSE, run(bench="boolq", name="x"), baselines=both, benchmarks={"arc": {"margin": 10}}, holm=False)
    assert [c.outcome for c in wide.cases] == ["pass", "pass"]
    floors = gate(GOOD, min_accuracy=10, benchmarks={"arc": {"min_accuracy": 90}})
    assert [(c.kind, c.outcome) for c in floors.cases] == [("floor", "fail"), ("non-inferiority", "pass")]
    assert floors.exit_code == ExitCode.GATE_FAILED


def test_what_is_asked_about_and_was_not_run_is_missing() -> None:
    verdict = gate(GOOD, baselines=(run(), run(bench="boolq")))
    assert [(c.benchmark, c.outcome) for c in verdict.cases] == [("arc", "pass"), ("boolq", "missing")]
    assert verdict.exit_code == ExitCode.UNTRUSTED
    verdict = gate(GOOD, benchmarks={"acr": {"min_accuracy": 40}})
    assert verdict.cases[-1].outcome == "missing" and "did you mean arc" in verdict.cases[-1].reason
    verdict = gate(GOOD, baselines=(run(), run(bench="boolq")), benchmarks={"boolq": {"skip": "slow"}})
    assert verdict.exit_code == ExitCode.OK and verdict.cases[-1].outcome == "skipped"


def test_a_benchmark_the_baseline_does_not_hold_is_left_out_and_said() -> None:
    verdict = gate(GOOD, run(bench="boolq", name="x"))
    assert [c.outcome for c in verdict.cases] == ["pass", "skipped"] and verdict.exit_code == ExitCode.OK
    assert "does not hold this benchmark" in verdict.cases[1].reason


def test_an_untrusted_baseline() -> None:
    verdict = gate(GOOD, baselines=(BROKEN,))
    assert verdict.exit_code == ExitCode.UNTRUSTED and "scored-fewer" in verdict.cases[0].reason


def test_many_tests_are_adjusted_unless_told_otherwise() -> None:
    near = run(changed(BASE, 30, 18), "near")
    poor = [replace(WORSE, origin=f"w{i}") for i in range(9)]
    assert gate(near).exit_code == ExitCode.OK
    assert gate(near, *poor, holm=False).cases[0].outcome == "pass"
    held = gate(near, *poor).cases[0]
    assert held.outcome == "inconclusive" and "not among all tests" in held.reason


def test_warnings_are_carried() -> None:
    other = run(changed(BASE, 20, 25), "cuda", should={"backend": "cuda"})
    assert gate(other).cases[0].warnings == ("backend differs: cpu and cuda",)
    assert gate(other, axis=("backend",)).cases[0].warnings == ()


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"margin": 0}, "margin"),
        ({"margin": -1}, "margin"),
        ({"margin": 100}, "margin"),
        ({"margin": float("nan")}, "margin"),
        ({"margin": float("inf")}, "margin"),
        ({"margin": "much"}, "margin"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": 0.5}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"min_accuracy": 0.45}, "45 means 45 %"),
        ({"min_accuracy": 101}, "min_accuracy"),
        ({"min_accuracy": float("nan")}, "min_accuracy"),
        ({"benchmarks": {"arc": {"skip": ""}}}, "skip"),
        ({"benchmarks": {"arc": {"skip": "x", "margin": 2}}}, "skip"),
        ({"benchmarks": {"arc": {"margn": 2}}}, "margn"),
        ({"groups": "strata"}, "groups"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_impossible_policies(policy: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)):
        Policy(**policy)


# What the reports say


def full() -> Verdict:
    odd = replace(
        WORSE, label="we|ird <b>*m*</b>\x00 ]]>", answers=replace(WORSE.required(), label="we|ird <b>*m*</b>\x00 ]]>")
    )
    return gate(GOOD, odd, SHORT, BROKEN, FOREIGN, run(bench="boolq", name="x"), min_accuracy=30)


def test_junit_says_what_the_verdict_says(tmp_path: Path) -> None:
    verdict = full()
    path = tmp_path / "gate.xml"
    path.write_bytes(junit(verdict))
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    kinds = {"fail": junitparser.Failure, "inconclusive": junitparser.Skipped, "skipped": junitparser.Skipped}
    kinds |= dict.fromkeys(("untrusted", "missing", "refused"), junitparser.Error)
    for case, read in zip(verdict.cases, suite, strict=True):
        assert read.classname == case.benchmark
        if case.outcome == "pass":
            assert read.is_passed
        else:
            (result,) = read.result
            assert isinstance(result, kinds[case.outcome]) and result.type == case.outcome
            assert result.message.replace("\ufffd", "\x00") == case.reason
    assert (suite.tests, suite.failures) == (len(verdict.cases), verdict.count("fail"))
    assert (suite.errors, suite.skipped) == (
        verdict.count("untrusted", "missing", "refused"),
        verdict.count("inconclusive", "skipped"),
    )
    assert suite.time == pytest.approx(12.5 * sum(c.answers is not None and c.kind != "floor" for c in verdict.cases))
    assert {p.name: p.value for p in suite.properties()} == {"verdict": "untrusted", "exit_code": "3"}


@given(st.text())
def test_no_text_breaks_the_xml_or_the_markdown_table(text: str) -> None:
    verdict = Verdict((Case(text, text, "run", "untrusted", text, text, warnings=(text,)),), Policy())
    ElementTree.fromstring(junit(verdict))
    lines = report.markdown(verdict).split("\n")
    row = lines[4]
    assert (
        row.startswith("| untrusted |")
        and len(re.findall(r"(?<!\\)\|", row.replace("\\\\", ""))) == len(report.COLUMNS) + 1
    )
    for line in github.annotation_lines(verdict):
        assert "\n" not in line and "\r" not in line


def test_markdown_begins_with_verdict_and_table() -> None:
    verdict = full()
    lines = report.markdown(verdict).splitlines()
    assert lines[0].startswith("## gate: untrusted") and "exit code 3" in lines[0]
    assert [line.split(" | ")[0].strip("| ") for line in lines[4 : 4 + len(verdict.cases)]] == [
        case.outcome for case in verdict.cases
    ]
    assert "<b>" not in "\n".join(lines)


def test_json_says_what_the_verdict_says() -> None:
    verdict = full()
    body = json.loads(json.dumps(report.data(verdict), allow_nan=False))
    assert (body["schema"], body["outcome"], body["exit_code"]) == ("llmc.gate/1", "untrusted", 3)
    assert [case["outcome"] for case in body["cases"]] == [case.outcome for case in verdict.cases]
    tests = [case["test"] for case in body["cases"] if case["test"]]
    assert tests and all(t["low"] <= t["difference"] <= t["high"] for t in tests)


def test_every_exit_code_of_a_gate_has_a_name() -> None:
    assert set(VERDICTS) == set(ExitCode) - {ExitCode.INTERRUPTED}


def test_annotations_are_escaped_and_at_most_ten_of_a_kind() -> None:
    cases = [Case(f"m{i}", "arc", "run", "untrusted", "100 % lost\r\nof, it: all") for i in range(25)]
    cases += [Case(f"m{i}", "arc", "run", "inconclusive", "x") for i in range(10)]
    lines = list(github.annotation_lines(Verdict(tuple(cases), Policy())))
    errors = [line for line in lines if line.startswith("::error ")]
    assert len(errors) == 10 and len(lines) == 20
    assert errors[0] == "::error title=llmc gate%3A untrusted::m0 on arc: run: 100 %25 lost%0D%0Aof, it: all"
    assert "and 16 more" in errors[-1]


def test_a_summary_keeps_within_githubs_limit(tmp_path: Path) -> None:
    cases = tuple(Case(f"m{i}", "arc", "run", "untrusted", "ü" * 1000) for i in range(2000))
    verdict, path = Verdict(cases, Policy()), tmp_path / "summary.md"
    path.write_text("## an earlier step's words\n" * 100)
    before = path.stat().st_size
    github.append_summary(verdict, path)
    text = path.read_text()
    assert before < path.stat().st_size <= github.SUMMARY_BYTES
    assert text.index("## gate: untrusted") < text.index("| verdict |") < text.index("- untrusted")
    assert text.count("| untrusted |") == 2000 and "does not fit" in text[-100:]
    github.append_summary(verdict, path)
    assert path.stat().st_size <= github.SUMMARY_BYTES


@given(st.text(), st.integers(-10, 300))
def test_a_cut_is_within_bounds_and_whole_text(text: str, room: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    cut = github.fitted(text, room)
    assert len(cut) <= max(room, 0) and cut.decode() is not None
    if len(text.encode()) <= room:
        assert cut.decode() == text


@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_a_loss_of_everything_fails_at_every_size_of_cluster(size: int) -> None:
    groups = [f"passage {i // size}" for i in range(48)]
    base, other = run("1" * 48, groups=groups), run("0" * 48, "q", groups=groups)
    verdict = gate(other, baselines=(base,), groups="clusters")
    assert verdict.outcome == "fail" and verdict.cases[0].warnings == ()
    bare = gate(run("0" * 48, "q"), baselines=(run("1" * 48),), groups="clusters")
    assert len(bare.cases[0].warnings) == 1 and "no groups" in bare.cases[0].warnings[0]


def test_words_of_users_are_text_in_markdown() -> None:
    text = report.markdown(gate(run(GOOD.required().correct, "&lt;b&gt; <i> AT&T")))
    assert "&amp;lt;b&amp;gt; &lt;i&gt; AT&amp;T" in text
