"""What is concluded from the worker's messages: each finding provoked, and none on a good run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from llmc.engine.process import Limits, Outcome
from llmc.findings import Finding, has_error
from llmc.scoring.audit import Auditor
from llmc.scoring.results import ScoredItem, ScoredOption, lengths
from scorer_helpers import item

ITEMS = [item(i, f"Q{i}", " yes", " no way", gold=i % 2) for i in range(5)]
ENDED = Outcome(exit_code=0, signal=None, ended_by="itself", left_children=0, seconds=1.0, peak_rss=None)


def answer(place: int, **changes: Any) -> dict[str, Any]:
    each = ITEMS[place]
    options = tuple(
        ScoredOption(-2.0, 1, **lengths(text), llama_mean=-2.0, llama_tokens=1) for text in each.continuations
    )
    return {"kind": "item", **ScoredItem(each.index, each.id, each.gold, place, options).as_dict(), **changes}


def messages() -> list[dict[str, Any]]:
    announce = {"kind": "announce", "items": 5, "first": 0, "road": "shared", "truncated": 0}
    return [announce, *(answer(i) for i in range(5)), {"kind": "final", "items": 5, "tokens": 9}]


def lines(said: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in said)


def judged(data: bytes, outcome: Outcome = ENDED, piece: int = 9999) -> tuple[list[Finding], list[int]]:
    taken: list[int] = []
    auditor = Auditor(iter(ITEMS), lambda each: taken.append(each.index), lambda message: None)
    for at in range(0, len(data), piece):
        auditor.feed(data[at : at + piece])
    return auditor.findings(outcome, Limits()), taken


@pytest.mark.parametrize("piece", [1, 7, 9999])
def test_a_good_run_has_no_findings(piece: int) -> None:
    assert judged(lines(messages()), piece=piece) == ([], [0, 1, 2, 3, 4])


def test_a_run_that_goes_on_is_judged_from_where_it_began() -> None:
    said = messages()
    said[0]["first"] = 3
    said[-1]["items"] = 2
    assert judged(lines([said[0], *said[4:]])) == ([], [3, 4])


def options_of(place: int, **changes: Any) -> dict[str, Any]:
    whole = answer(place)
    whole["options"][1].update(changes)
    return whole


Change = Callable[[list[dict[str, Any]]], None]


def put(place: int, message: dict[str, Any]) -> Change:
    def change(said: list[dict[str, Any]]) -> None:
        said[place] = message

    return change


def drop(begin: int, end: int) -> Change:
    def change(said: list[dict[str, Any]]) -> None:
        del said[begin:end]

    return change


def insert(place: int, message: dict[str, Any]) -> Change:
    return lambda said: said.insert(place, message)


@pytest.mark.parametrize(
    ("change", "slugs", "taken"),
    [
        (drop(0, 7), ["no-output"], 0),
        (drop(0, 1), ["scorer-garbled"], 0),
        (drop(6, 7), ["final-missing"], 5),
        (drop(4, 7), ["scored-fewer"], 3),
        (drop(5, 6), ["final-mismatch", "scored-fewer"], 4),
        (drop(3, 4), ["row-gap", "scored-fewer"], 2),
        (put(3, answer(2, index=7)), ["row-gap", "scored-fewer"], 2),
        (put(3, answer(2, id="other")), ["row-gap", "scored-fewer"], 2),
        (put(3, answer(2, gold=1)), ["row-gap", "scored-fewer"], 2),
        (put(3, answer(2, options=answer(2)["options"][:1])), ["impossible-figure", "scored-fewer"], 2),
        (put(3, options_of(2, sum_logprob=math.nan)), ["non-finite", "scored-fewer"], 2),
        (put(3, options_of(2, sum_logprob=-math.inf)), ["non-finite", "scored-fewer"], 2),
        (put(3, options_of(2, sum_logprob=0.5)), ["impossible-figure", "scored-fewer"], 2),
        (put(3, options_of(2, llama_mean=0.5)), ["impossible-figure", "scored-fewer"], 2),
        (put(3, options_of(2, llama_mean=None)), ["impossible-figure", "scored-fewer"], 2),
        (put(3, options_of(2, tokens=0)), ["impossible-figure", "scored-fewer"], 2),
        (put(3, options_of(2, bytes=4)), ["impossible-figure", "scored-fewer"], 2),
        (put(3, {"kind": "item"}), ["scorer-garbled", "scored-fewer"], 2),
        (put(3, {"kind": "poem"}), ["scorer-garbled", "scored-fewer"], 2),
        (put(3, {"what": 1}), ["scorer-garbled", "scored-fewer"], 2),
        (put(0, {"kind": "announce", "items": "5", "first": 0}), ["scorer-garbled"], 0),
        (insert(3, messages()[0]), ["scorer-garbled", "scored-fewer"], 2),
        (insert(6, answer(4)), ["scored-more"], 5),
        (insert(7, answer(4)), ["scorer-garbled"], 5),
        (put(6, {"kind": "final", "items": 4}), ["final-mismatch"], 5),
        (put(0, {**messages()[0], "items": 9}), ["scored-fewer"], 5),
        (put(0, {**messages()[0], "road": "plain"}), ["one-at-a-time"], 5),
        (put(0, {**messages()[0], "truncated": 2}), ["items-truncated"], 5),
        (put(6, {"kind": "error", "slug": "non-finite", "what": "item q4"}), ["non-finite"], 5),
        (put(6, {"kind": "error", "slug": "unheard-of", "what": ""}), ["scorer-garbled"], 5),
        (put(0, {"kind": "error", "slug": "memory-short", "what": ""}), ["memory-short", "scorer-garbled"], 0),
    ],
)  # fmt: skip
def test_every_fault_is_found(change: Change, slugs: list[str], taken: int) -> None:
    said = messages()
    change(said)
    findings, answers = judged(lines(said))
    assert [f.slug for f in findings] == slugs
    assert answers == list(range(taken))
    assert has_error(findings) == (slugs not in (["one-at-a-time"], ["items-truncated"]))


def test_fewer_announced_than_the_file_holds() -> None:
    said = messages()
    said[0]["items"] = said[-1]["items"] = 4
    findings, taken = judged(lines([*said[:5], said[-1]]))
    assert [f.slug for f in findings] == ["announced-mismatch"] and taken == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "slugs"),
    [
        ({"exit_code": None, "signal": 9}, ["killed-by-signal"]),
        ({"exit_code": None, "signal": 11}, ["killed-by-signal"]),
        ({"exit_code": 1}, ["exit-status"]),
        ({"exit_code": None}, ["exit-unknown"]),
        ({"ended_by": "timeout"}, ["timeout"]),
        ({"ended_by": "stalled"}, ["stalled"]),
        ({"ended_by": "did-not-exit"}, ["did-not-exit"]),
        ({"ended_by": "interrupted"}, ["interrupted"]),
        ({"left_children": 1}, ["left-children"]),
    ],
)
def test_how_the_process_ended(changes: dict[str, Any], slugs: list[str]) -> None:
    outcome = Outcome(**{**ENDED.__dict__, **changes})
    findings, _ = judged(lines(messages()), outcome)
    assert [f.slug for f in findings] == slugs and has_error(findings)


@pytest.mark.parametrize(
    ("said", "slugs"),
    [
        ("a\nterminate called after throwing an instance of 'std::bad_alloc'\n", ["memory-short", "killed-by-signal"]),
        ("ggml.c:1: GGML_ASSERT(x) failed\n#0 in main\n", ["killed-by-signal"]),
        ("all was well\n", ["killed-by-signal"]),
    ],
)
def test_what_native_code_said_at_its_end(said: str, slugs: list[str]) -> None:
    auditor = Auditor(iter(ITEMS), lambda each: None, lambda message: None)
    findings = auditor.findings(Outcome(None, 6, "itself", 0, 1.0, None), Limits(), said)
    assert [f.slug for f in findings] == slugs
    assert ("GGML_ASSERT(x)" in findings[-1].detail) == ("GGML_ASSERT" in said)


def test_a_signal_is_named() -> None:
    findings, _ = judged(b"", Outcome(None, 11, "itself", 0, 1.0, None))
    assert [f.slug for f in findings] == ["killed-by-signal"] and "SIGSEGV" in findings[0].detail


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe\n", b"null\n", b"[]\n", b"7\n", b'{"kind": []}\n', b"[" * 200_000 + b"\n", b"\n"],
)
def test_any_bytes_are_an_answer_of_a_kind(data: bytes) -> None:
    findings, taken = judged(data)
    assert [f.slug for f in findings] == ["scorer-garbled"] and not taken


def test_a_line_without_end_takes_no_memory() -> None:
    auditor = Auditor(iter(ITEMS), lambda each: None, lambda message: None)
    for _ in range(20):
        auditor.feed(b"x" * (1 << 20))
    assert auditor.wrong is not None and auditor.wrong.slug == "scorer-garbled" and auditor.finished


def test_a_torn_last_line_is_no_answer() -> None:
    data = lines(messages()[:4])
    findings, taken = judged(data[:-20], Outcome(None, 9, "itself", 0, 1.0, None))
    assert taken == [0, 1] and [f.slug for f in findings] == ["killed-by-signal", "scored-fewer"]


def test_an_error_of_the_caller_is_the_callers() -> None:
    def refuse(each: ScoredItem) -> None:
        raise ValueError("disk full")

    auditor = Auditor(iter(ITEMS), refuse, lambda message: None)
    with pytest.raises(ValueError, match="disk full"):
        auditor.feed(lines(messages()))
