"""Pairing: what is refused by name, what is warned about, and the figures of a pair."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from llmc.errors import ExitCode, InputFileError, UntrustedError, UsageError
from llmc.judge.answers import Given, given_record
from llmc.judge.compare import Comparison, Options, compare
from llmc.judge.stats import clustered, differences, score_statistic, stratified, upper_tail
from llmc.report.compare import data, remarks
from llmc.runs.record import TaskGroups
from made_runs import SHA, answers, changed, record

BASE = answers(1000, 600)
QUICK = Options(replicates=200)


def run(correct: str, name: str = "base", **more: Any) -> Given:
    return given_record(record(correct, model=name, **more), Path(name))


def compared(*candidates: Given, base: Given | None = None, options: Options = QUICK) -> Comparison:
    return compare([base or run(BASE)], candidates, options)


def test_a_pair() -> None:
    (pair,) = compared(run(changed(BASE, 40, 15), "q4")).pairs
    assert (pair.pairs.lost, pair.pairs.gained, pair.pairs.n) == (40, 15, 1000)
    assert pair.difference.mean == pytest.approx(-0.025) and pair.p == pair.p_holm < 0.01
    assert [BASE[i] for i in pair.lost] == ["1"] * 40 and [BASE[i] for i in pair.gained] == ["0"] * 15
    assert pair.interval == (pair.difference.low, pair.difference.high) and not pair.few_flips
    assert pair.bootstrap is not None and pair.bootstrap.se == pytest.approx(pair.difference.se, rel=0.2)
    assert pair.difference.se is not None and pair.unpaired_se > 2 * pair.difference.se


def test_few_flips_get_the_interval_that_holds_for_few() -> None:
    (pair,) = compared(run(BASE, "q8")).pairs
    assert pair.few_flips and pair.interval == (pair.score_low, pair.score_high) and pair.score_high > 0
    assert pair.detectable is None and pair.p == 1


@pytest.mark.parametrize(
    ("must", "said"),
    [
        ({"benchmark_sha256": "dd" * 32}, f"benchmark file differs: {SHA['arc']} (baseline) and {'dd' * 32}"),
        ({"excluded": [3, 700]}, "excluded tasks differ: 2 in the other only (task 3, 700)"),
        ({"scorer": "logprobs"}, "scorer differs: perplexity (baseline) and logprobs"),
        ({"rule": "acc_norm"}, "rule differs"),
        ({"tokenization": "separate"}, "tokenization differs: joint (baseline) and separate"),
        ({"bos": "never"}, "BOS token differs"),
        ({"truncation": "left"}, "truncation differs"),
        ({"selection": {"kind": "like-llama"}}, "selection differs: not stated (baseline)"),
        ({"rescored": [5]}, "rescored tasks differ"),
    ],
)
def test_what_must_be_equal_is_refused_by_name(must: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        compared(run(BASE, "q4", must=must))
    assert said in caught.value.what and caught.value.remedy and caught.value.exit_code == ExitCode.USAGE


def test_every_part_that_differs_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        compared(run(BASE, "q4", must={"bos": "never", "rule": "acc_norm", "benchmark_sha256": "dd" * 32}))
    assert [caught.value.what.index(word) for word in ("benchmark file", "rule", "BOS")] == sorted(
        caught.value.what.index(word) for word in ("benchmark file", "rule", "BOS")
    )


@pytest.mark.parametrize(
    ("should", "said", "axis"),
    [
        ({"engine_flavour": "ik_llama.cpp"}, "engine flavour differs: mainline and ik_llama.cpp", "engine_flavour"),
        ({"engine_version": "9999"}, "engine version differs: 11434 and 9999", "engine_version"),
        ({"backend": "cuda"}, "backend differs: cpu and cuda", "backend"),
        ({"layout": {"np": 16, "c": 256, "fa": "off"}}, "layout.c differs: 128 and 256", "layout"),
        ({"layout": {"np": 16, "c": 256, "fa": "off"}}, "layout.c differs: 128 and 256", "layout.c"),
        (
            {"arguments": ["-np", "16", "-c", "128", "-fa", "off", "--no-escape", "-ctk", "q8_0"]},
            "arguments.-ctk differs: none and q8_0",
            "arguments.-ctk",
        ),
        ({"arguments": ["-np", "16", "-c", "128", "-fa", "off"]}, "arguments.--no-escape differs: given", "arguments"),
    ],
)
def test_what_should_be_equal_is_warned_about_unless_it_is_the_axis(
    should: dict[str, Any], said: str, axis: str
) -> None:
    other = run(BASE, "q4", should=should)
    (pair,) = compared(other).pairs
    assert len(pair.warnings) == 1 and said in pair.warnings[0]
    (pair,) = compared(other, options=Options(axis=(axis,), replicates=0)).pairs
    assert pair.warnings == ()


def test_what_one_run_does_not_know_is_not_said_to_differ() -> None:
    made = record(BASE, model="q4")
    assert made.comparability is not None
    thin = made.comparability.model_copy(update={"should": {"layout": {"np": 16, "c": 128, "fa": "off"}}})
    (pair,) = compared(given_record(made.model_copy(update={"comparability": thin}), Path("q4"))).pairs
    assert pair.warnings == ()


def test_an_axis_that_no_run_has() -> None:
    with pytest.raises(UsageError, match="did you mean layout"):
        compared(run(BASE, "q4"), options=Options(axis=("layuot",)))


def test_untrusted_runs_are_shown_and_never_compared() -> None:
    bad = run(BASE, "broken", trusted=False)
    result = compared(bad, run(changed(BASE, 30, 5), "q4"))
    assert [p.candidate.label for p in result.pairs] == ["q4"] and result.untrusted == (bad,)
    assert result.exit_code == ExitCode.UNTRUSTED and bad.problem.startswith("scored-fewer: 3 of 1000")
    with pytest.raises(UntrustedError, match="scored-fewer"):
        compared(run(BASE, "q4"), base=bad)
    assert compare([run(BASE)], [], QUICK).exit_code == ExitCode.NOTHING


def test_holm_over_all_pairs_of_the_call() -> None:
    result = compared(run(changed(BASE, 25, 10), "q5"), *[run(changed(BASE, 12, 9), f"m{i}") for i in range(9)])
    first, *others = result.pairs
    assert first.p < 0.05 and first.p_holm == pytest.approx(10 * first.p)
    assert all(pair.p_holm == 1 for pair in others)


def test_strata_and_clusters() -> None:
    groups = [f"subject {i % 4}" for i in range(1000)]
    other = changed(BASE, 40, 15)
    candidate = run(other, "q4", groups=groups)
    (pair,) = compared(candidate).pairs
    assert [g.name for g in pair.groups] == [f"subject {i}" for i in range(4)]
    assert sum(g.pairs.lost for g in pair.groups) == 40 and sum(g.pairs.n for g in pair.groups) == 1000
    assert pair.macro == stratified([(g.difference.mean, g.difference.se) for g in pair.groups])
    (pair,) = compared(candidate, options=Options(groups="clusters", replicates=200)).pairs
    assert pair.difference == clustered(differences(BASE, other), groups) and pair.macro is None
    assert pair.bootstrap is not None and pair.bootstrap.over == "clusters"
    (pair,) = compared(candidate, options=Options(groups="none", replicates=0)).pairs
    assert pair.groups == () and pair.bootstrap is None


def test_tasks_are_named_by_their_place_in_the_file() -> None:
    out = {"excluded": [0, 2, 5]}
    base, other = run("1111", must=out), run("0110", "q4", must=out)
    (pair,) = compare([base], [other], QUICK).pairs
    assert pair.lost == (1, 6)  # the scored tasks are 1, 3, 4 and 6


def test_two_baselines_that_fit() -> None:
    with pytest.raises(UsageError, match="2 baselines fit"):
        compare([run(BASE), run(BASE, "other")], [run(BASE, "q4")], QUICK)


def test_a_sweeps_own_baseline_is_taken_whatever_else_fits() -> None:
    from dataclasses import replace

    one, two = run(BASE, "one"), run(changed(BASE, 5, 0), "two")
    cell = replace(run(changed(BASE, 5, 0), "q4"), against="two")
    (pair,) = compare([one, two], [cell], QUICK).pairs
    assert pair.baseline.label == "two" and pair.pairs.discordant == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"correct": "10" * 499}, "499 right of 998 answers"),
        ({"correct": "0" * 1000}, "0 right of 1000"),
        ({"correct": "2" * 1000}, "not all 0 or 1"),
        ({"correct": None}, "holds no answers"),
        ({"task_groups": TaskGroups(names=("a",), runs="0x12")}, "groups are those of 12 tasks"),
        ({"task_groups": TaskGroups(names=("a",), runs="7x1000")}, "no run of groups"),
        ({"task_groups": TaskGroups(names=("a",), runs="0x999999999 0x999999999")}, "groups are those of"),
    ],
)
def test_a_record_that_contradicts_itself(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputFileError, match="contradicts itself") as caught:
        given_record(record(BASE).model_copy(update=changes), Path("x"))
    assert said in caught.value.what


def test_other_figures_that_contradict_the_answers() -> None:
    made = record(BASE)
    assert made.result is not None and made.comparability is not None
    for update in (
        {"result": made.result.model_copy(update={"accuracy": float("nan")})},
        {"result": made.result.model_copy(update={"accuracy": 0.7})},
        {"comparability": made.comparability.model_copy(update={"key": "0" * 64})},
    ):
        with pytest.raises(InputFileError, match="contradicts itself"):
            given_record(made.model_copy(update=update), Path("x"))


def test_a_record_that_does_not_say_what_was_scored() -> None:
    with pytest.raises(UsageError, match="does not say which benchmark"):
        given_record(record(BASE, comparability=None), Path("x"))


def test_the_data_is_json() -> None:
    from llmc.report.compare import data

    groups = ["a"] * 999 + ["b"]
    result = compared(run(changed(BASE, 40, 15), "q4", groups=groups), run(BASE, "broken", trusted=False))
    body = json.loads(json.dumps(data(result), allow_nan=False))
    assert body["schema"] == "llmc.compare/1" and body["pairs"][0]["interval"]["method"] == "miller"
    assert body["pairs"][0]["macro"]["se"] is None and body["untrusted"][0]["label"] == "broken"


def test_no_difference_shown_is_never_called_none() -> None:
    from llmc.report.compare import remarks

    words = " ".join(
        remarks(compared(run(changed(BASE, 12, 10), "q5"), run(BASE, "q8"), run(changed(BASE, 50, 5), "q2")))
    )
    assert "which is not the same as none" in words and "80 % power" in words
    assert "would fit that too" in words and "4.50 points worse" in words
    assert "equal" not in words and "identical" not in words


CLUSTERED = Options(groups="clusters", replicates=0)


@pytest.mark.parametrize("size", [2, 3, 4, 6, 8, 12, 16, 24])
@pytest.mark.parametrize("lost", [1, 2])
def test_clusters_that_all_changed_alike(size: int, lost: int) -> None:
    """48 questions, as many lost in each cluster: sure of a loss by the number of clusters, at any size of them."""
    one = "1" * 48
    other = "".join("0" if i % size < lost else "1" for i in range(48))
    groups = [f"passage {i // size}" for i in range(48)]
    (pair,) = compared(run(other, "q", groups=groups), base=run(one, groups=groups), options=CLUSTERED).pairs
    assert pair.difference.se == 0 and pair.by_score
    low, high = pair.interval
    assert low < pair.difference.mean < high or (low == pair.difference.mean == -1 < high)
    statistic = score_statistic(48 * lost / size, 0, 48, 0) / sqrt(size)
    assert pair.p == pytest.approx(2 * upper_tail(abs(statistic)), rel=1e-6)
    assert (pair.p < 0.05) == (48 * lost / size / size >= 3.85)


def test_all_answers_lost_without_groups_is_no_interval_of_no_width() -> None:
    (pair,) = compared(run("0" * 48, "q"), base=run("1" * 48)).pairs
    low, high = pair.interval
    assert low == -1 and high > -1 and pair.by_score and not pair.few_flips


def test_clusters_asked_of_questions_without_groups_are_missed() -> None:
    groups = [f"g{i // 5}" for i in range(1000)]
    told = "has no groups for --groups clusters"
    (bare,) = compared(run(changed(BASE, 20, 5), "q"), options=CLUSTERED).pairs
    assert [told in each for each in bare.warnings] == [True]
    (one,) = compared(run(changed(BASE, 20, 5), "q", groups=["all"] * 1000), options=CLUSTERED).pairs
    assert len(one.warnings) == 1
    (grouped,) = compared(run(changed(BASE, 20, 5), "q", groups=groups), options=CLUSTERED).pairs
    (strata,) = compared(run(changed(BASE, 20, 5), "q"), options=QUICK).pairs
    assert grouped.warnings == strata.warnings == ()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_so_few_questions_find_nothing(n: int) -> None:
    result = compared(run("0" * n, "q"), base=run("1" * n))
    (pair,) = result.pairs
    assert pair.detectable is None and data(result)["pairs"][0]["detectable_80"] is None
    said = " ".join(remarks(result))
    assert "too few to find any" in said and "no answer differs" not in said
    same = compared(run("1" * n, "q"), base=run("1" * n))
    assert "no answer differs" in " ".join(remarks(same))
