"""The whole OLMo 3 suite on made-up rows: every metric and every mean by hand, resumed, cached, and honest about holes.

The model's distribution is known, and every letter is one token: an option's sum is the letter's log-probability.
"""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers import Called, Cli
from llmc.engine.known_answer import LETTERS, KnownAnswerModel
from llmc.files import configs_dir
from llmc.runs import suite_tree
from llmc.runs.suite_tree import Leaf
from made_up_rows import write
from suite_rows import write_all

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("real_engine")]
# B is the likeliest letter, then A, then the others in order.
MODEL = KnownAnswerModel(letter_logits=(5.5, 6.0, *(5.0 - 0.5 * i for i in range(24))))
SAMPLED = 9
Rows = dict[str, dict[str, list[dict[str, Any]]]]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return MODEL.write(tmp_path / "known.gguf")


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    """The suite as it ships, but for the size of the samples: the made-up rows are fewer than 10,000."""
    text = (configs_dir("suites") / "olmo3-nonstem-qa-mc.yaml").read_text(encoding="utf-8")
    path = tmp_path / "suite.yaml"
    path.write_text(text.replace("count: 10000", f"count: {SAMPLED}"))
    return path


def run(cli: Cli, suite: str | Path, model: Path, tmp_path: Path, *more: str) -> Called:
    words = ["run", "--suite", suite, "-m", model, "--source", tmp_path / "rows", "--out", tmp_path / "out", "--json"]
    return cli(*words, "--no-health-check", *more)


def gold_of(benchmark: str, row: dict[str, Any]) -> tuple[int, int]:
    """Gold position and number of options, read from the row."""
    if benchmark == "mmlu":
        return row["answer"], 4
    if benchmark == "piqa":
        return row["label"], 2
    if benchmark == "social-iqa":
        return int(row["label"]) - 1, 3
    return row["choices"]["label"].index(row["answerKey"]), len(row["choices"]["label"])


def by_hand(rows: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Every metric of a task, from gold positions and widths."""
    letters = [MODEL.logprobs[MODEL.pieces.index("\u2581" + letter)] for letter in LETTERS]
    golds = [letters[gold] for gold, _ in rows]
    share = sum(gold == 1 for gold, _ in rows) / len(rows)  # B is there in every question
    mean = math.fsum(golds) / len(golds)
    return {
        **dict.fromkeys(("acc_raw", "acc_per_token", "acc_per_char", "acc_per_byte", "acc_norm", "acc_bytes"), share),
        "sum_logits_corr": mean,
        "logits_per_token_corr": mean,
        "logits_per_char_corr": mean / 2,  # " A" has two characters, the space counted
        "bits_per_byte_corr": -1.44269504089 * mean / 2,
    }


def rows_of(leaf: Leaf, rows: Rows) -> list[tuple[int, int]]:
    asked = leaf.questions
    all_rows = [row for split in asked.splits for row in rows[asked.benchmark][split]]
    if asked.sample is not None and asked.sample.draw == "documents":
        all_rows = random.Random(1234).sample(all_rows, SAMPLED)
    mine = [row for row in all_rows if leaf.group is None or row["subject"] == leaf.group]
    return [gold_of(asked.benchmark, row) for row in mine]


def leaves_of(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [leaf for part in tree["parts"] for leaf in leaves_of(part)] if "parts" in tree else [tree]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def test_every_metric_of_every_task_and_every_mean(cli: Cli, tmp_path: Path, model: Path, suite_file: Path) -> None:
    rows = write_all(tmp_path / "rows")
    called = run(cli, suite_file, model, tmp_path)
    assert called.code == 0, called.out
    suite = called.data["suite"]
    tree = suite_tree.find(str(suite_file)).tree
    expected = {leaf.path: by_hand(rows_of(leaf, rows)) for leaf in tree.leaves()}
    found = {leaf["path"]: leaf for leaf in leaves_of(suite["tree"])}
    assert list(found) == list(expected) and len(found) == 47
    for path, metrics in expected.items():
        for name, value in metrics.items():
            assert found[path]["metrics"][name] == pytest.approx(value, abs=1e-4), (path, name)
        assert "acc_uncond" not in found[path]["metrics"]
    for name in expected["coqa"]:
        parts = []
        for part in suite["tree"]["parts"]:
            below = [leaf["path"] for leaf in leaves_of(part)]
            parts.append(mean([expected[path][name] for path in below]))
            assert part["metrics"][name] == pytest.approx(parts[-1], abs=1e-4)
        assert len(parts) == 11
        assert suite["metrics"][name] == pytest.approx(mean(parts), abs=1e-4)
    assert suite["score"] == suite["metrics"]["acc_raw"] and suite["status"] == "trusted"
    assert suite["scoring"]["bos"] == "never" and suite["differs"] == []
    assert json.loads(Path(called.data["file"]).read_text()) == suite
    # MMLU's 39 subjects are groups of one cell.
    assert len(called.data["runs"]) == 9
    mmlu = called.data["runs"][0]["record"]
    assert len(mmlu["groups"]) == 39 and "abstract_algebra" not in mmlu["groups"]
    # One worker loaded the model once, and each cell has what was said about it.
    loads = 0
    for each in called.data["runs"]:
        first, *lines, last = map(json.loads, (Path(each["folder"]) / "scorer-stdout.log").read_text().splitlines())
        assert first["kind"] == "announce" and last["kind"] == "final"
        assert [line["kind"] for line in lines] == ["item"] * each["record"]["result"]["tasks"]
        loads += first["load_seconds"] > 0
    assert loads == 1
    again = run(cli, suite_file, model, tmp_path)
    assert all(each["reused"] for each in again.data["runs"])
    assert again.data["suite"]["tree"] == suite["tree"]


SMALL = """
name: small
scoring: {bos: never}
aggregate: mean-of-means
protocol: olmes
shots: 0
splits: [validation]
parts:
  - {name: exams, aggregate: mean, benchmark: mmlu, groups: [virology, sociology], shots: 1}
  - {name: piqa, benchmark: piqa, shots: 2, splits: [validation, train]}
  - {name: coqa, benchmark: coqa}
  - {name: drop, benchmark: drop, metric: acc_per_char}
variants:
  mini: {all: {sample: {count: 5, seed: 1, draw: even}}}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def test_a_sample_takes_as_much_of_each_group(cli: Cli, tmp_path: Path, model: Path, small: Path) -> None:
    write_all(tmp_path / "rows")
    called = run(cli, f"{small}:mini", model, tmp_path)
    assert called.code == 0, called.out
    assert [leaf["tasks"] for leaf in leaves_of(called.data["suite"]["tree"])] == [3, 2, 5, 5, 5]
    assert called.data["suite"]["metric"] is None  # not all by the same


def test_missing_parts_are_named_and_the_others_scored(cli: Cli, tmp_path: Path, model: Path, small: Path) -> None:
    write_all(tmp_path / "rows", leave_out=("drop", "coqa"))
    called = run(cli, small, model, tmp_path)
    assert called.code == 3
    suite = called.data["suite"]
    assert suite["score"] is None and suite["status"] == "incomplete" and suite["metrics"] == {}
    absent = {leaf["path"]: leaf["absent"] for leaf in leaves_of(suite["tree"]) if leaf["absent"]}
    assert sorted(absent) == ["coqa", "drop"]
    assert all(each["kind"] == "missing" and each["what"] and each["remedy"] for each in absent.values())
    scores = {part["name"]: part["score"] for part in suite["tree"]["parts"]}
    assert scores["piqa"] is not None and scores["exams"] is not None
    words = ["run", "--suite", small, "-m", model, "--source", tmp_path / "rows", "--out", tmp_path / "out"]
    shown = cli(*words, "--no-health-check")
    assert shown.code == 3 and "missing: coqa" in shown.out and "missing: drop" in shown.out
    assert "no score, since 2 of 5 tasks have none" in shown.out


def test_a_group_without_questions_is_missing(cli: Cli, tmp_path: Path, model: Path, small: Path) -> None:
    rows = write_all(tmp_path / "rows")
    write(tmp_path / "rows" / "mmlu" / "validation.jsonl", [
        row for row in rows["mmlu"]["validation"] if row["subject"] != "virology"
    ])  # fmt: skip
    called = run(cli, small, model, tmp_path)
    absent = {leaf["path"]: leaf["absent"] for leaf in leaves_of(called.data["suite"]["tree"]) if leaf["absent"]}
    assert called.code == 3 and list(absent) == ["exams/virology"] and "virology" in absent["exams/virology"]["what"]


def test_a_part_that_does_not_fit_is_refused_and_the_others_scored(cli: Cli, tmp_path: Path, small: Path) -> None:
    write_all(tmp_path / "rows")
    short = KnownAnswerModel(context_length=256).write(tmp_path / "short.gguf")
    called = run(cli, small, short, tmp_path)
    assert called.code == 3, called.out
    absent = {leaf["path"]: leaf["absent"] for leaf in leaves_of(called.data["suite"]["tree"]) if leaf["absent"]}
    assert {each["kind"] for each in absent.values()} == {"refused"}
    assert list(absent) == ["exams/virology", "exams/sociology", "piqa"]
    assert all("--truncate left" in each["remedy"] for each in absent.values())
    scored = [part["name"] for part in called.data["suite"]["tree"]["parts"] if part["score"] is not None]
    assert scored == ["coqa", "drop"]
    cut = run(cli, small, short, tmp_path, "--truncate", "left")
    assert cut.code == 0 and cut.data["suite"]["differs"] == ["truncate left instead of never"]


def test_a_model_gone_wrong_gives_no_score(cli: Cli, tmp_path: Path, small: Path) -> None:
    write_all(tmp_path / "rows")
    broken = KnownAnswerModel(nan=True).write(tmp_path / "nan.gguf")
    called = run(cli, small, broken, tmp_path)
    assert called.code == 3
    assert {leaf["absent"]["kind"] for leaf in leaves_of(called.data["suite"]["tree"])} == {"untrusted"}
    assert [each["record"]["status"] for each in called.data["runs"]] == ["untrusted"] * 4


def test_interrupted_at_random_and_resumed(tmp_path: Path, model: Path, small: Path, cli: Cli) -> None:
    """Killed wherever it was, a suite goes on with what is scored, and ends with the same figures."""
    write_all(tmp_path / "rows")
    whole = run(cli, small, model, tmp_path, "--out", str(tmp_path / "whole"))
    words = ["--suite", small, "-m", model, "--source", tmp_path / "rows", "--out", tmp_path / "out", "--json"]
    command = [sys.executable, "-m", "llmc", "run", *map(str, words), "--no-health-check"]
    chance = random.Random(5)
    for wait in (0.0, chance.random(), 2 * chance.random()):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            until = time.monotonic() + 60
            while not list((tmp_path / "out" / "runs").glob("2*")) and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(wait)
            child.send_signal(signal.SIGKILL)
    again = run(cli, small, model, tmp_path)
    assert again.code == 0, again.out
    assert again.data["suite"]["tree"] == whole.data["suite"]["tree"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-b", "piqa"], "benchmarks"),
        (["--limit", "3"], "--limit"),
        (["--rule", "acc_norm"], "--rule"),
        (["--scorer", "perplexity"], "--scorer"),
        (["--resume"], "resumes by itself"),
    ],
)
def test_what_a_suite_has_no_use_for(words: list[str], said: str, cli: Cli, tmp_path: Path, model: Path) -> None:
    called = run(cli, "olmo3-nonstem-qa-mc", model, tmp_path, *words)
    assert called.code == 2 and said in called.error["message"] + called.error["remedy"]


def test_a_dry_run_names_cells_and_holes(cli: Cli, tmp_path: Path, model: Path, small: Path) -> None:
    write_all(tmp_path / "rows", leave_out=("coqa",))
    called = run(cli, small, model, tmp_path, "--dry-run")
    assert called.code == 0 and len(called.data["cells"]) == 3 and list(called.data["missing"]) == ["coqa"]
    assert not (tmp_path / "out" / "runs").exists()


FOR_REAL = """
name: for-real
scoring: {tokenization: joint, bos: never, truncate: never}
aggregate: mean-of-means
protocol: olmes
shots: 5
splits: [validation]
sample: {count: 3, seed: 1234, draw: even}
parts:
  - {name: exams, aggregate: mean, benchmark: mmlu, groups: [global_facts, marketing, virology]}
  - {name: commonsense-qa, benchmark: commonsense-qa}
  - {name: piqa, benchmark: piqa}
  - {name: social-iqa, benchmark: social-iqa}
  - {name: coqa, benchmark: coqa, shots: 0}
  - {name: drop, benchmark: drop}
  - {name: jeopardy, benchmark: jeopardy, splits: [test]}
  - {name: naturalqs, benchmark: naturalqs}
  - {name: squad, benchmark: squad}
"""


@pytest.mark.slow
def test_real_rows_and_a_real_model(
    cli: Cli, tmp_path: Path, real_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts that a mirror has are scored where there is no Hub, and the others are named."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "suite.yaml").write_text(FOR_REAL)
    called = cli("run", "--suite", tmp_path / "suite.yaml", "-m", real_model, "--out", tmp_path / "out", "--json")
    assert called.code == 3, called.out
    leaves = {leaf["path"]: leaf for leaf in leaves_of(called.data["suite"]["tree"])}
    absent = {path for path, leaf in leaves.items() if leaf["absent"]}
    assert absent == {"coqa", "drop", "jeopardy", "naturalqs", "squad"}
    assert all("no mirror" in leaves[path]["absent"]["what"] for path in absent)
    assert all(0 <= leaf["score"] <= 1 for path, leaf in leaves.items() if path not in absent)
    assert [leaf["tasks"] for path, leaf in leaves.items() if path not in absent] == [1, 1, 1, 3, 3, 3]
    # Every option is one letter, one token, and its accuracies are equal, as olmes says.
    for path in set(leaves) - absent:
        metrics = leaves[path]["metrics"]
        assert metrics["acc_raw"] == metrics["acc_per_token"] == metrics["acc_per_char"] == metrics["acc_per_byte"]
        assert metrics["sum_logits_corr"] == metrics["logits_per_token_corr"] < 0
