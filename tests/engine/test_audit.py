"""The verdict: every finding is provoked once and silent once, and an untrusted run never has a score."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_output import LAYOUTS, TALKATIVE, Output, render, row_lines, summary_lines
from llmc.engine.audit import ORDER, Audit, audit
from llmc.engine.process import Limits, Outcome
from llmc.engine.rows import read_rows, summary_tolerance
from llmc.engine.transcript import Transcript, parse
from llmc.finding_pages import PAGES
from llmc.findings import finding
from llmc.mcbin import BinFacts

CORRECT = "110100"
GOOD = Outcome(exit_code=0, signal=None, ended_by="itself", left_children=0, seconds=2.0, peak_rss=1 << 20)


def facts_for(correct: str, size: int = 1687, widths: dict[int, int] | None = None) -> BinFacts:
    tasks = len(correct)
    widths = widths or {4: tasks}
    options = sum(width * n for width, n in widths.items())
    return BinFacts(
        tasks=tasks, size=size, sha256="0" * 64, widths=widths, gold_positions={0: tasks // 2, 1: tasks - tasks // 2},
        chance=sum(n / width for width, n in widths.items()) / tasks, engine_chance=tasks / options,
        longest_task=0, longest_bytes=100, text_bytes=1000,
    )  # fmt: skip


FACTS = facts_for(CORRECT)


def transcript_of(output: Output) -> Transcript:
    return parse(stdout=output.stdout, stderr=output.stderr)


def verdict(output: Output, **changes: object) -> Audit:
    arguments: dict[str, object] = {"facts": FACTS, "outcome": GOOD, **changes}
    return audit(transcript_of(output), **arguments)  # type: ignore[arg-type]


def slugs(result: Audit, severity: str | None = None) -> list[str]:
    return [f.slug for f in result.findings if severity in (None, f.severity)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("correct", ["1", "0", CORRECT, "0" * 9, "1" * 9, "10" * 300])
def test_complete_runs_are_trusted(layout: str, correct: str) -> None:
    result = verdict(render(layout, correct), facts=replace(facts_for(correct), gold_positions={0: len(correct)}))
    assert result.trusted
    assert slugs(result, "error") == []
    assert result.correct == correct
    assert result.accuracy == correct.count("1") / len(correct)
    assert result.tasks_expected == result.tasks_scored == len(correct)
    absent = ["not-announced", "final-missing"] if layout == "quiet" else []
    assert [s for s in slugs(result) if s != "below-majority"] == absent
    if layout != "quiet" and len(correct) > 1:
        share = result.accuracy
        assert result.engine_se == pytest.approx(100 * (share * (1 - share) / (len(correct) - 1)) ** 0.5, abs=1e-4)
    else:
        assert result.engine_se is None


Change = Callable[[Output], Output]


def stdout(change: Callable[[bytes], bytes]) -> Change:
    return lambda output: replace(output, stdout=change(output.stdout))


def stderr(change: Callable[[bytes], bytes]) -> Change:
    return lambda output: replace(output, stderr=change(output.stderr))


def without(pattern: bytes) -> Callable[[bytes], bytes]:
    def cut(data: bytes) -> bytes:
        changed, times = re.subn(pattern, b"", data)
        assert times
        return changed

    return cut


def exchanged(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new)

    return change


TOO_FEW = b"0.01.010.699 E multiple_choice_score : task 3 requires a higher -np|--parallel value (at least 8)\n"
TOO_LONG = b"0.01.010.699 E multiple_choice_score : task 3 does not fit in the context window (requires 2305 tokens)\n"
PARTIAL = without(rb"4\t(?s:.*)")
NO_SUMMARY = without(rb"(?m)^.*(?:Final result|Random chance).*\n")


def failing(line: bytes) -> Change:
    return lambda o: replace(o, stdout=PARTIAL(o.stdout), stderr=NO_SUMMARY(o.stderr) + line)


# The findings that evidence in the output provokes: the change, and the errors that it must give, in order.
CONTRADICTIONS: list[tuple[str, Change, list[str]]] = [
    ("options", failing(TOO_FEW), ["too-many-options", "error-line", "scored-fewer"]),
    ("context", failing(TOO_LONG), ["context-too-small", "error-line", "scored-fewer"]),
    ("decode", failing(b"multiple_choice_score: llama_decode() failed\n"), ["error-line", "scored-fewer"]),
    ("other bytes", failing(b"multiple_choice_score: failed to read task 1 of 6\n"), ["error-line", "scored-fewer"]),
    ("late error", stderr(lambda b: b + b"CUDA error: an illegal memory access was encountered\n"), ["error-line"]),
    ("cut", stdout(PARTIAL), ["scored-fewer", "final-mismatch"]),
    ("cut in both", lambda o: replace(o, stdout=PARTIAL(o.stdout), stderr=NO_SUMMARY(o.stderr)), ["scored-fewer"]),
    ("last row lost", stdout(without(rb"6\t.*\n")), ["scored-fewer", "final-mismatch"]),
    ("no rows", stdout(lambda b: b""), ["scored-fewer"]),
    ("row lost", stdout(without(rb"3\t.*\n")), ["scored-fewer", "row-gap"]),
    ("first row lost", stdout(without(rb"1\t.*\n")), ["scored-fewer", "row-gap"]),
    ("rows exchanged", stdout(lambda b: re.sub(rb"(2\t.*\n)(3\t.*\n)", rb"\2\1", b)), ["row-gap"]),
    ("row doubled", stdout(lambda b: re.sub(rb"(2\t.*\n)", rb"\1\1", b)), ["scored-more", "row-gap"]),
    ("row too many", stdout(lambda b: b.rstrip() + b"\n7\t42.85714286\n"), ["scored-more", "final-mismatch"]),
    ("rows doubled", stdout(lambda b: b + b), ["scored-more", "row-gap"]),
    ("all doubled", lambda o: Output(o.stdout * 2, o.stderr * 2),
     ["announced-mismatch", "scored-more", "row-gap", "several-finals"]),
    ("row altered", stdout(exchanged(b"4\t75.0", b"4\t76.0")), ["impossible-accuracy"]),
    ("row altered in its last digit", stdout(exchanged(b"66.66666667", b"66.66666668")), ["impossible-accuracy"]),
    ("two at once", stdout(exchanged(b"3\t66.66666667", b"3\t33.33333333")), ["impossible-accuracy"]),
    ("a step back", stdout(exchanged(b"2\t100.0", b"2\t0.0")), ["impossible-accuracy"]),
    ("beyond all", stdout(exchanged(b"1\t100.0", b"1\t200.0")), ["impossible-accuracy"]),
    ("final altered", stderr(exchanged(b"result: 50.0", b"result: 51.0")), ["final-mismatch"]),
    ("final altered a little", stderr(exchanged(b"result: 50.0000", b"result: 50.0001")), ["final-mismatch"]),
    ("final no number", stderr(exchanged(b"result: 50.0000", b"result: nan")), ["final-mismatch"]),
    ("final doubled", stderr(lambda b: b + b"Final result: 50.0000 +/- 22.3607\n"), ["several-finals"]),
    ("other chance", stderr(exchanged(b"chance: 25.0", b"chance: 20.0")), ["baseline-mismatch"]),
    ("chance no number", stderr(exchanged(b"chance: 25.0000", b"chance: nan")), ["baseline-mismatch"]),
    ("other file announced", stderr(exchanged(b"are 6 tasks", b"are 7 tasks")), ["announced-mismatch"]),
    ("two announcements", stderr(lambda b: b + b"multiple_choice_score: there are 6 tasks in prompt\n"),
     ["announced-mismatch"]),
    ("other bytes read", stderr(exchanged(b"Read 1687", b"Read 1688")), ["bytes-read-mismatch"]),
    ("directory", stderr(exchanged(b"Read 1687", b"Read 0")), ["bytes-read-mismatch"]),
    ("silence", lambda o: Output(b"", b""), ["no-output"]),
    ("log disabled", lambda o: Output(b"", b"Read 1687 bytes from binary file some.bin\n"), ["no-output"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "expected"), CONTRADICTIONS, ids=[c[0] for c in CONTRADICTIONS])
def test_evidence_that_contradicts(name: str, change: Change, expected: list[str]) -> None:
    output = render("mainline", CORRECT)
    result = verdict(change(output))
    assert slugs(result, "error") == expected
    assert not result.trusted
    assert result.accuracy is None
    assert result.engine_se is None
    for each in result.findings:
        assert not re.search(r"\d\.\d+ ?%|\d+\.\d{4}(?! points)", each.detail), "this looks like a score"
    assert verdict(output).findings == ()


def test_figures_are_in_the_details() -> None:
    [first, second, third] = verdict(failing(TOO_LONG)(render("mainline", CORRECT))).findings
    assert first.detail == "3 of 6 tasks scored; stopped at task 3, counted from 0, which needs 2,305 tokens"
    assert "requires 2305 tokens" in second.detail
    assert third.detail == "3 of 6 tasks scored"
    [first, *_] = verdict(failing(TOO_FEW)(render("mainline", CORRECT))).findings
    assert first.detail == "3 of 6 tasks scored; stopped at task 3, counted from 0, which needs 8 sequences (-np 8)"
    old = b"multiple_choice_score : task 3 does not fit in the context window\n"
    [first, *_] = verdict(failing(old)(render("verbose", CORRECT))).findings
    assert "the context holds 512" in first.detail and "-np" in first.detail
    result = verdict(stdout(without(rb"3\t.*\n"))(render("mainline", CORRECT)))
    assert "after row 2 comes row 4" in [f.detail for f in result.findings]


@pytest.mark.parametrize(
    ("outcome", "slug", "word"),
    [
        (None, "exit-unknown", "nobody"),
        (replace(GOOD, exit_code=1), "exit-status", "1"),
        (replace(GOOD, exit_code=200), "exit-status", "200"),
        (replace(GOOD, exit_code=139), "killed-by-signal", "SIGSEGV"),
        (replace(GOOD, exit_code=134), "killed-by-signal", "SIGABRT"),
        (replace(GOOD, exit_code=None, signal=9), "killed-by-signal", "SIGKILL"),
        (replace(GOOD, exit_code=None, signal=63), "killed-by-signal", "63"),
        (replace(GOOD, ended_by="timeout"), "timeout", "the limit was 60 s"),
        (replace(GOOD, ended_by="stalled", exit_code=None, signal=15), "stalled", "the limit was 300 s"),
        (replace(GOOD, ended_by="did-not-exit"), "did-not-exit", "the limit was 30 s"),
        (replace(GOOD, ended_by="interrupted", exit_code=None, signal=2), "interrupted", "6 of 6 tasks"),
        (replace(GOOD, exit_code=None), "exit-unknown", "SIGKILL"),
        (replace(GOOD, left_children=2), "left-children", "2 processes"),
    ],
)
def test_how_the_process_ended(outcome: Outcome | None, slug: str, word: str) -> None:
    result = verdict(render("mainline", CORRECT), outcome=outcome, limits=Limits(timeout=60.0))
    assert slugs(result) == [slug]
    assert word in result.findings[0].detail
    assert result.trusted == (outcome is None)


def test_absent_evidence_only_warns() -> None:
    output = stderr(lambda b: b"")(render("mainline", CORRECT))
    result = verdict(output, outcome=None)
    assert slugs(result, "warning") == ["exit-unknown", "not-announced", "final-missing"]
    assert result.trusted and result.correct == CORRECT


def test_nothing_to_compare_with_is_an_error() -> None:
    output = stderr(lambda b: b"")(render("mainline", CORRECT))
    result = verdict(output, facts=None)
    assert slugs(result, "error") == ["not-announced"]
    assert result.tasks_expected is None
    silent = verdict(Output(b"", b""), facts=None, outcome=None)
    assert slugs(silent) == ["no-output", "exit-unknown", "benchmark-unknown"]
    final_only = verdict(Output(b"", b"Final result: 50.0000 +/- 1.0000\n"), facts=None)
    assert slugs(final_only, "error") == ["no-output"]
    none = verdict(Output(b"", b"multiple_choice_score: there are 0 tasks in prompt\n"), facts=None)
    assert slugs(none, "error") == ["no-output"]


def test_without_the_file_the_announcement_counts() -> None:
    result = verdict(render("mainline", CORRECT), facts=None)
    assert result.trusted
    assert slugs(result) == ["benchmark-unknown"]
    cut = verdict(stdout(without(rb"6\t.*\n"))(render("mainline", CORRECT)), facts=None)
    assert "scored-fewer" in slugs(cut)


def test_a_broken_file_is_named_once() -> None:
    broken = finding("bad-binary", "task 7, byte 913: too short")
    output = failing(b"multiple_choice_score: failed to read task 4 of 6\n")(render("mainline", CORRECT))
    result = verdict(output, facts=None, extra=[broken])
    assert slugs(result) == ["bad-binary", "error-line", "scored-fewer"]
    unknown = verdict(output, facts=None)
    assert slugs(unknown) == ["bad-binary", "error-line", "scored-fewer", "benchmark-unknown"]


def test_extra_findings_count() -> None:
    result = verdict(
        render("mainline", CORRECT), extra=[finding("model-changed", "size"), finding("layout-noise", "x")]
    )
    assert slugs(result) == ["model-changed", "layout-noise"]
    assert not result.trusted and result.correct == CORRECT


@pytest.mark.parametrize("layout", TALKATIVE)
def test_a_selection_that_was_asked_for(layout: str) -> None:
    output = render(layout, "10011", tasks=12)
    result = verdict(output, facts=facts_for("0" * 12), subset=5)
    assert result.trusted and result.correct == "10011"
    assert result.tasks_expected == 5
    assert slugs(result) == []
    assert slugs(verdict(output, facts=None, subset=5)) == ["benchmark-unknown"]


@pytest.mark.parametrize(
    ("change", "subset", "expected"),
    [
        (lambda o: o, None, ["announced-mismatch", "scored-fewer"]),
        (lambda o: o, 12, ["announced-mismatch", "scored-fewer"]),
        (lambda o: o, -1, ["announced-mismatch", "scored-fewer"]),
        (lambda o: o, 4, ["announced-mismatch", "scored-more"]),
        (stderr(exchanged(b"from 12 tasks", b"from 13 tasks")), 5, ["announced-mismatch"]),
        (stderr(without(rb"multiple_choice_score: selecting.*")), 5, ["announced-mismatch"]),
        (stderr(lambda b: b + b"multiple_choice_score: selecting 5 random tasks from 12 tasks available\n"), 5,
         ["announced-mismatch"]),
        (stderr(exchanged(b"chance: 25.0", b"chance: 33.0")), 5, ["baseline-mismatch"]),
        (stderr(exchanged(b"chance: 25.0", b"chance: 10.0")), 5, ["baseline-mismatch"]),
    ],
)  # fmt: skip
def test_a_selection_that_was_not(change: Change, subset: int | None, expected: list[str]) -> None:
    output = change(render("mainline", "10011", tasks=12))
    assert slugs(verdict(output, facts=facts_for("0" * 12), subset=subset), "error") == expected


def test_chance_of_a_selection_lies_within_the_widths() -> None:
    facts = facts_for("0" * 12, widths={3: 6, 5: 6})
    for chance, trusted in ((1 / 3, True), (0.2, True), (0.25, True), (0.34, False), (0.19, False)):
        output = render("mainline", "10011", tasks=12, chance=chance)
        assert verdict(output, facts=facts, subset=5).trusted == trusted


def test_a_whole_file_asked_for_as_a_selection() -> None:
    assert verdict(render("mainline", CORRECT), subset=6).trusted
    assert verdict(render("mainline", CORRECT), subset=100).trusted


@pytest.mark.parametrize(
    ("correct", "golds", "position"),
    [
        ("100100", [0, 1, 2, 0, 1, 2], 0),
        ("001001", [0, 1, 2, 0, 1, 2], 2),
        ("10", [1, 0], 1),
        ("100000", [0, 1, 2, 0, 1, 2], None),
        ("101100", [0, 1, 2, 0, 1, 2], None),
        ("000000", [0, 1, 2, 0, 1, 2], None),
        ("111111", [2, 2, 2, 2, 2, 2], None),  # all right where the gold never moves says nothing
        ("000000", [2, 2, 2, 2, 2, 2], None),
        ("1", [0], None),
        ("100100", [0, 1, 2, 0, 1], None),  # not this file's golds
        ("100100", None, None),
    ],
)
@pytest.mark.parametrize("kind", [bytes, list])
def test_always_one_position(
    correct: str, golds: list[int] | None, position: int | None, kind: Callable[[list[int]], bytes | list[int]]
) -> None:
    facts = facts_for(correct)
    result = verdict(render("mainline", correct), facts=facts, golds=None if golds is None else kind(golds))
    assert result.trusted
    found = [f.detail for f in result.findings if f.slug == "always-one-position"]
    assert len(found) == (position is not None)
    assert all(f"option {position}," in detail for detail in found)


def test_below_majority() -> None:
    facts = replace(FACTS, gold_positions={0: 2, 2: 4})
    result = verdict(render("mainline", CORRECT), facts=facts)
    assert result.trusted
    assert slugs(result) == ["below-majority"]
    assert "option 2 in 4 of 6 tasks" in result.findings[0].detail
    assert slugs(verdict(render("mainline", "111100"), facts=facts)) == []


def test_rows_that_were_not_kept_are_no_evidence() -> None:
    whole = transcript_of(render("mainline", CORRECT))
    part = replace(whole, row_numbers=whole.row_numbers[:4], accuracies=whole.accuracies[:4])
    result = audit(part, facts=FACTS, outcome=GOOD)
    assert slugs(result, "error") == ["row-gap"]
    assert result.correct is None


@settings(max_examples=200)
@given(st.text("01", min_size=1, max_size=300))
def test_right_and_wrong_come_back_exactly(correct: str) -> None:
    transcript = parse(stdout="".join(f"{line}\n" for line in row_lines(correct)).encode())
    assert read_rows(transcript).correct == correct


@settings(max_examples=200)
@given(st.text("01", min_size=2, max_size=30), st.integers(0, 10**6), st.sampled_from(LAYOUTS), st.data())
def test_no_altered_byte_gives_another_score(correct: str, seed: int, layout: str, data: st.DataObject) -> None:
    """Whatever single byte of the output is lost, doubled or changed: a trusted run has the true answers."""
    facts = replace(facts_for(correct), gold_positions={0: len(correct)})
    output = render(layout, correct)
    rng = random.Random(seed)
    name = data.draw(st.sampled_from(["stdout", "stderr"]))
    stream = getattr(output, name)
    at = rng.randrange(len(stream))
    kind = rng.choice(["lose", "double", "change", "cut"])
    changed = {
        "lose": stream[:at] + stream[at + 1 :],
        "double": stream[: at + 1] + stream[at:],
        "change": stream[:at] + bytes([rng.randrange(256)]) + stream[at + 1 :],
        "cut": stream[:at],
    }[kind]
    result = verdict(replace(output, **{name: changed}), facts=facts)
    if result.trusted:
        assert result.correct == correct


@given(st.text("01", min_size=2, max_size=30), st.integers(1, 29), st.sampled_from(LAYOUTS))
def test_fewer_rows_are_never_trusted(correct: str, kept: int, layout: str) -> None:
    if kept >= len(correct):
        return
    assert not verdict(render(layout, correct[:kept]), facts=facts_for(correct)).trusted


@pytest.mark.parametrize(("right", "done"), [(1, 3), (2, 3), (1, 7), (999_999, 1_000_000), (16_777_215, 99_999_999)])
def test_the_tolerance_covers_float32(right: int, done: int) -> None:
    import numpy as np

    share = np.float32(right) / np.float32(done)
    printed = float(f"{np.float32(100) * share:.4f}")
    own = 100 * right / done
    assert abs(printed - own) <= summary_tolerance(own) < 0.0001


def test_float32_summaries_of_many_sizes_are_accepted() -> None:
    import numpy as np

    rng = np.random.default_rng(7)
    done = rng.integers(1, 10**8, 20_000)
    right = (done * rng.random(20_000)).astype(np.int64)
    share = right.astype(np.float32) / done.astype(np.float32)
    printed = np.array([float(f"{value:.4f}") for value in np.float32(100) * share])
    own = 100 * right / done
    assert all(abs(p - o) <= summary_tolerance(o) for p, o in zip(printed, own, strict=True))


def test_every_ordered_slug_has_a_page() -> None:
    assert set(ORDER) <= set(PAGES)
    assert all(PAGES[slug].severity == "error" for slug in ORDER)


def test_a_million_rows_in_time() -> None:
    rng = random.Random(1)
    correct = "".join(rng.choices("01", k=1_000_000))
    right = 0
    lines = []
    for done, mark in enumerate(correct, 1):
        right += mark == "1"
        lines.append(b"%d\t%.8f\n" % (done, 100.0 * right / done))
    final, chance = summary_lines(correct)
    started = time.process_time()
    transcript = parse(stdout=b"".join(lines), stderr=f"{final}\n{chance}\n".encode())
    read = time.process_time()
    result = audit(transcript, facts=facts_for(correct), outcome=GOOD, golds=bytes(len(correct)))
    judged = time.process_time()
    assert result.trusted and result.correct == correct
    assert read - started < 3.0
    assert judged - read < 1.5
