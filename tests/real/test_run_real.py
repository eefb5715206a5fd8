"""`llmc run` with the real llama-perplexity: exact numbers, planning, and what the real engine gets wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import Called, Cli, expected_correct, letter_tasks, text_tasks
from llmc import mcbin
from llmc.benchmarks.item import ItemWriter, items_from_bin, items_path
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.locate import EngineFiles

pytestmark = pytest.mark.real
MODEL = KnownAnswerModel()


@pytest.fixture(autouse=True)
def engine_in_use(real_engine: EngineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_ENGINE", str(real_engine.binary))


def score(cli: Cli, tmp_path: Path, model: Path, tasks: list[mcbin.Task], *more: str) -> Called:
    bench = tmp_path / "bench.bin"
    mcbin.write(bench, tasks)
    words = ["run", "-m", model, "-b", bench, "--out", tmp_path / "out", "--json", "--no-health-check"]
    at = more.index("--") if "--" in more else len(more)
    # One thread: the model is too small to gain from more, and waiting threads cost on a busy machine.
    return cli(*words, *more[:at], "--", "-t", "1", *more[at + 1 :])


@pytest.mark.parametrize("flags", [[], ["-np", "8", "-c", "64"], ["-np", "32", "-c", "32"], ["-np", "100", "-c", "16"]])
@pytest.mark.parametrize("form", ["letter", "text"])
def test_every_answer_is_the_one_computed_by_hand(
    form: str, flags: list[str], cli: Cli, tmp_path: Path, known_model: Path
) -> None:
    tasks = letter_tasks(120, widths=(4, 5, 3, 2), golds=(0, 1, 2, 0)) if form == "letter" else text_tasks(120)
    expected = expected_correct(MODEL, tasks)
    called = score(cli, tmp_path, known_model, tasks, *(["--", *flags] if flags else []))
    assert called.code == 0, called.out
    assert called.record["correct"] == expected and 0 < expected.count("1") < len(expected)
    assert called.record["result"]["accuracy"] == expected.count("1") / len(expected)


@pytest.mark.parametrize(
    ("tasks", "share"),
    [
        (letter_tasks(1), 1.0),
        (letter_tasks(1, golds=(1,)), 0.0),
        (letter_tasks(30, golds=(0,)), 1.0),
        (letter_tasks(30, golds=(3,)), 0.0),
        (letter_tasks(600, golds=(0, 1)), 0.5),
        ([mcbin.Task("Pick?", tuple(f"{i:03d}!" for i in range(100)), 7)], None),
    ],
    ids=["one right", "one wrong", "all right", "all wrong", "over 500", "100 options"],
)
def test_extreme_files_are_trusted(
    tasks: list[mcbin.Task], share: float | None, cli: Cli, tmp_path: Path, known_model: Path
) -> None:
    called = score(cli, tmp_path, known_model, tasks)
    assert called.code == 0, called.out
    assert called.record["correct"] == expected_correct(MODEL, tasks)
    if share is not None:
        assert called.record["result"]["accuracy"] == share


@pytest.mark.parametrize(
    "tasks",
    [
        letter_tasks(6, widths=(13, 4)),
        [*letter_tasks(6), mcbin.Task("long " * 600 + "?", ("A", "B", "C"), 0), *letter_tasks(3)],
    ],
    ids=["13 options", "3,000 tokens"],
)
def test_wide_and_long_tasks_need_no_flags(
    tasks: list[mcbin.Task], cli: Cli, tmp_path: Path, known_model: Path
) -> None:
    called = score(cli, tmp_path, known_model, tasks)
    assert called.code == 0, called.out
    assert called.record["correct"] == expected_correct(MODEL, tasks)


def test_a_vocabulary_of_250000_within_the_budget_or_refused(cli: Cli, tmp_path: Path) -> None:
    model = KnownAnswerModel(padding=250_000)
    path = model.write(tmp_path / "large.gguf")
    tasks = letter_tasks(12, golds=(0, 1))
    called = score(cli, tmp_path, path, tasks)
    assert called.code == 0, called.out
    assert called.record["correct"] == expected_correct(model, tasks)
    dry = score(cli, tmp_path, path, tasks, "--dry-run")
    (planned,) = dry.data["cells"]
    assert called.record["peak_rss"] <= planned["memory_bytes"]["total"]
    small = score(cli, tmp_path, path, tasks, "--force", "--memory-budget", "1200M")
    assert small.code == 0 and "layout-cut-to-memory" in small.slugs
    assert small.record["peak_rss"] <= 1200 << 20
    refused = score(cli, tmp_path, path, tasks, "--force", "--memory-budget", "200M")
    assert refused.code == 2 and refused.error["slug"] == "memory-budget" and "MiB" in refused.error["remedy"]


def test_nan_weights_are_caught_before_anything_is_scored(cli: Cli, tmp_path: Path) -> None:
    path = KnownAnswerModel(nan=True).write(tmp_path / "nan.gguf")
    bench = tmp_path / "bench.bin"
    mcbin.write(bench, letter_tasks(40))
    called = cli("run", "-m", path, "-b", bench, "--out", tmp_path / "out", "--json")
    assert called.code == 3 and called.slugs[0] == "model-unhealthy"
    assert called.record["result"] is None and called.record["counts"]["scored"] == 0
    accepted = cli("run", "-m", path, "-b", bench, "--out", tmp_path / "out", "--json", "--no-health-check")
    assert accepted.code == 0 and "always-one-position" in accepted.slugs


HOSTILE = {
    "LLAMA_ARG_N_PARALLEL": "4",
    "LLAMA_ARG_CTX_SIZE": "16",
    "LLAMA_ARG_LOG_VERBOSITY": "0",
    "LLAMA_ARG_LOG_JSONL": "1",
    "LLAMA_ARG_LOG_COLORS": "on",
    "LLAMA_ARG_MODEL": "/nowhere.gguf",
}


def test_hostile_settings_are_neutralised(
    cli: Cli, tmp_path: Path, known_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config/llama.cpp/config.ini"
    config.parent.mkdir(parents=True)
    config.write_text("escape = on\nverbosity = 0\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    tasks = [mcbin.Task(rf"Back\slash \n \t {n}?", ("A", "B", "C", "D", "E"), n % 5) for n in range(20)]
    called = score(cli, tmp_path, known_model, tasks)
    assert called.code == 0, called.out
    assert called.record["correct"] == expected_correct(MODEL, tasks)
    assert "environment-scrubbed" in called.slugs
    assert set(HOSTILE) <= set(called.record["environment_dropped"])


def test_the_same_command_twice_gives_the_same_record(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    first = score(cli, tmp_path, known_model, text_tasks(50))
    reused = score(cli, tmp_path, known_model, text_tasks(50))
    again = score(cli, tmp_path, known_model, text_tasks(50), "--force")
    assert reused.data["runs"][0]["reused"] and reused.record == first.record
    assert not again.data["runs"][0]["reused"]
    volatile = ("started", "finished", "timings", "peak_rss", "parts")
    one, other = ({k: v for k, v in r.record.items() if k not in volatile} for r in (first, again))
    assert one == other


@pytest.mark.parametrize("count", [1, 5, 29])
def test_like_llama_takes_the_engines_own_selection(
    count: int, cli: Cli, tmp_path: Path, known_model: Path, real_engine: EngineFiles
) -> None:
    tasks = text_tasks(30, seed=7)
    called = score(cli, tmp_path, known_model, tasks, "--like-llama", str(count))
    assert called.code == 0 and called.record["benchmark"]["name"] == f"bench.llama{count}"
    own = [*real_engine.command, "-m", str(known_model), "-c", "128", "-np", "8", "--multiple-choice"]
    own += ["-bf", str(tmp_path / "bench.bin"), "--multiple-choice-tasks", str(count)]
    rows: list[str] = []
    for _ in range(20):  # a short run may lose its last lines at exit
        out = subprocess.run(own, capture_output=True, text=True, check=True).stdout
        rows = [line for line in out.splitlines() if line[:1].isdigit()]
        if len(rows) == count:
            break
    right = [round(float(row.split("\t")[1]) * (i + 1) / 100) for i, row in enumerate(rows)]
    marks = "".join(str(k - (right[i - 1] if i else 0)) for i, k in enumerate(right))
    assert called.record["correct"] == marks


def test_a_run_in_parts_equals_a_run_in_one(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    tasks = text_tasks(55, seed=3)
    parts = score(cli, tmp_path, known_model, tasks, "--part-size", "10")
    assert parts.code == 0, parts.out
    assert [part["tasks"] for part in parts.record["parts"]] == [10, 10, 10, 10, 10, 5]
    assert parts.record["correct"] == expected_correct(MODEL, tasks)
    assert not [path for path in (tmp_path / "out/runs").glob(".parts-*") if path.is_dir()]


HAZARD = mcbin.Task("Is it so?", ("Yes", "Yes and no", "Yes, maybe"), 0)


def test_hazards_are_refused_left_out_or_taken_over(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    good = text_tasks(10, seed=5)
    tasks = [*good[:4], HAZARD, *good[4:]]
    refused = score(cli, tmp_path, known_model, tasks, "--on-hazard", "fail")
    assert refused.code == 2 and refused.error["slug"] == "option-prefix" and "4" in refused.error["message"]
    assert not list((tmp_path / "out").glob("runs/*/record.json"))
    without = score(cli, tmp_path, known_model, tasks, "--on-hazard", "exclude")
    assert without.code == 0 and without.record["excluded"] == ["4"] and "items-excluded" in without.slugs
    assert without.record["correct"] == expected_correct(MODEL, good)
    whole = score(cli, tmp_path, known_model, tasks)
    assert whole.code == 0 and whole.record["rescored"] == ["4"] and "items-rescored" in whole.slugs
    scores = MODEL.option_scores(HAZARD.question, HAZARD.options, capped=True)
    mark = "1" if scores.index(max(scores)) == HAZARD.gold else "0"
    others = expected_correct(MODEL, good)
    assert whole.record["correct"] == others[:4] + mark + others[4:]
    assert whole.record["counts"]["scored"] == 11 and whole.record["result"]["tasks"] == 11
    assert whole.record["comparability"]["key"] != without.record["comparability"]["key"]


@pytest.mark.parametrize("flag", ["--lora", "--control-vector", "--rope-freq-base"])
def test_hazards_are_not_taken_over_where_the_scorer_would_run_another_model(
    cli: Cli, tmp_path: Path, known_model: Path, flag: str
) -> None:
    tasks = [*text_tasks(10, seed=5), HAZARD]
    value = "10000" if flag.startswith("--rope") else str(known_model)
    refused = score(cli, tmp_path, known_model, tasks, "--", flag, value)
    assert refused.code == 2 and flag in refused.error["message"] and "exclude" in refused.error["remedy"]
    crossed = score(cli, tmp_path, known_model, tasks[:-1], "--cross-check", "5", "--", flag, value)
    assert crossed.code == 2 and flag in crossed.error["message"]


@pytest.mark.parametrize("content", ["another question", "no items at all"])
def test_an_item_file_of_unknown_origin_is_left_alone(
    cli: Cli, tmp_path: Path, known_model: Path, content: str
) -> None:
    """It lies beside the benchmark file by its name, and nothing vouches for it."""
    good = text_tasks(10, seed=5)
    bench = tmp_path / "bench.bin"
    mcbin.write(bench, [*good, HAZARD])
    items = items_path(bench)
    if content == "another question":
        with ItemWriter(items) as writer:
            for item in items_from_bin(bench):
                writer.add(replace(item, context="Other", continuations=(" A", " B", " C"), gold=1))
    else:
        items.write_bytes(content.encode())
    words = ["run", "-m", known_model, "-b", bench, "--out", tmp_path / "out", "--no-health-check", "--json"]
    whole = cli(*words)
    assert whole.code == 0, whole.out
    scores = MODEL.option_scores(HAZARD.question, HAZARD.options, capped=True)
    mark = "1" if scores.index(max(scores)) == HAZARD.gold else "0"
    assert whole.record["correct"] == expected_correct(MODEL, good) + mark
    scored = cli(*words, "--scorer", "logprobs")
    assert scored.record["correct"] == whole.record["correct"]


def test_cross_check_agrees_with_the_engine(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    called = score(cli, tmp_path, known_model, [*text_tasks(40, seed=5), HAZARD], "--cross-check", "30")
    assert called.code == 0, called.out
    check = called.record["cross_check"]
    assert check["tasks"] == check["agreed"] == 30 and check["disagreements"] == []


def test_tasks_that_share_no_token_are_refused_by_id(cli: Cli, tmp_path: Path) -> None:
    """Without BOS, " " + " A" is a space piece and a letter piece; "Q" + " A" shares nothing with "" only."""
    model = KnownAnswerModel(add_bos=False, padding=20_000)
    path = model.write(tmp_path / "no-bos.gguf")
    good = letter_tasks(8)
    nothing = mcbin.Task("\u00e9", ("A", "b"), 0)
    assert model.tokenize("\u00e9 A")[0] == model.tokenize("\u00e9 b")[0]  # a question always gives shared tokens
    called = score(cli, tmp_path, path, [*good, nothing])
    assert called.code == 0 and called.record["correct"] == expected_correct(model, [*good, nothing])


def test_layout_check_on_exact_weights_finds_no_noise(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    called = score(cli, tmp_path, known_model, text_tasks(60), "--layout-check")
    assert called.code == 0 and called.record["layout_check"]["flipped"] == 0
    assert called.record["layout_check"]["layout"] != called.record["layout"]


def test_layout_check_leaves_out_what_the_engine_did_not_score(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    tasks = text_tasks(40, seed=5)
    called = score(cli, tmp_path, known_model, [*tasks[:3], HAZARD, *tasks[3:]], "--layout-check")
    assert called.code == 0 and called.record["rescored"] == ["3"]
    assert called.record["layout_check"]["tasks"] == 40 and called.record["layout_check"]["flipped"] == 0


def started(tmp_path: Path, model: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a long run of the real engine as a process of its own, and wait until it scores."""
    bench = tmp_path / "long.bin"
    mcbin.write(bench, [mcbin.Task(f"{'word ' * 300}{n}?", ("A", "B", "C", "D"), 0) for n in range(2500)])
    words = [sys.executable, "-m", "llmc", "run", "-m", str(model), "-b", str(bench), "--no-health-check"]
    child = subprocess.Popen(
        [*words, "--out", str(tmp_path / "out")], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and child.poll() is None:
        if any(log.stat().st_size > 200 for log in (tmp_path / "out").glob("runs/*/stdout.log")):
            return child
        time.sleep(0.05)
    child.kill()
    raise AssertionError(f"the engine never began to score: {child.communicate()}")


def engines_running(bench: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(bench).encode() in words and words[0].endswith(b"llama-perplexity"):
            found.append(int(entry.parent.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_stops_and_leaves_nothing_running(number: signal.Signals, tmp_path: Path, known_model: Path) -> None:
    child = started(tmp_path, known_model, dict(os.environ))
    assert engines_running(tmp_path / "long.bin")
    begin = time.monotonic()
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert time.monotonic() - begin < 5
    while engines_running(tmp_path / "long.bin") and time.monotonic() - begin < 5:
        time.sleep(0.05)
    assert not engines_running(tmp_path / "long.bin")
    if number == signal.SIGKILL:
        return
    assert child.returncode == 130, err
    (record,) = (tmp_path / "out").glob("runs/*/record.json")
    body = json.loads(record.read_text())
    assert body["status"] == "interrupted" and body["result"] is None and body["correct"] is None
    assert (record.parent / "stdout.log").stat().st_size > 0
    assert b"interrupted" in out
