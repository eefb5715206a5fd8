"""`llmc run --scorer logprobs`: exact figures, the same record as ever, and a run that resumes to the byte."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import Called, Cli, expected_correct, letter_tasks, text_tasks
from llmc import mcbin
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.locate import EngineFiles
from llmc.runs.kept import read_items_jsonl

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("real_engine")]
MODEL = KnownAnswerModel()


def score(cli: Cli, out: Path, model: Path, tasks: list[mcbin.Task], *more: str) -> Called:
    bench = out.parent / "bench.bin"
    mcbin.write(bench, tasks)
    words = ["run", "--scorer", "logprobs", "-m", model, "-b", bench, "--out", out, "--json", "--no-health-check"]
    return cli(*words, *more)


def items_of(called: Called) -> bytes:
    return (Path(called.data["runs"][0]["folder"]) / "items.jsonl").read_bytes()


@pytest.mark.parametrize("tasks", [letter_tasks(50, widths=(4, 5, 3)), text_tasks(50)], ids=["letter", "text"])
def test_answers_and_sums_are_those_by_hand(
    tasks: list[mcbin.Task], cli: Cli, tmp_path: Path, known_model: Path
) -> None:
    called = score(cli, tmp_path / "out", known_model, tasks)
    assert called.code == 0, called.out
    record = called.record
    assert record["scorer"] == "logprobs" and record["rule"] == "llama_cpp"
    assert record["correct"] == expected_correct(MODEL, tasks)
    folder = Path(called.data["runs"][0]["folder"])
    for item, task in zip(read_items_jsonl(folder / "items.jsonl"), tasks, strict=True):
        for option, text in zip(item.options, task.options, strict=True):
            tokens = MODEL.tokenize(f"{task.question} {text}")[len(MODEL.tokenize(task.question)) :]
            assert option.tokens == len(tokens)
            assert option.sum_logprob == pytest.approx(sum(MODEL.logprobs[t] for t in tokens), abs=1e-4)
    sums = [[o.sum_logprob for o in item.options] for item in read_items_jsonl(folder / "items.jsonl")]
    raw = sum(each.index(max(each)) == task.gold for each, task in zip(sums, tasks, strict=True)) / len(tasks)
    assert record["metrics"]["acc_raw"] == pytest.approx(raw)


def test_the_rule_decides_the_result(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    tasks = text_tasks(60, seed=9)
    by_sum = score(cli, tmp_path / "out", known_model, tasks, "--rule", "acc_raw").record
    by_mean = score(cli, tmp_path / "out", known_model, tasks).record
    assert by_sum["result"]["accuracy"] == by_sum["metrics"]["acc_raw"] == by_mean["metrics"]["acc_raw"]
    assert by_mean["result"]["accuracy"] == by_mean["metrics"]["llama_cpp"]
    assert by_sum["comparability"]["key"] != by_mean["comparability"]["key"]


@pytest.mark.parametrize(
    "words",
    [
        ["--rule", "acc_rwa"],
        ["--tokenization", "both"],
        ["--bos", "maybe"],
        ["--layout-check"],
        ["--cross-check", "3"],
        ["--resume"],
    ],
)
def test_what_cannot_be_asked_of_the_scorer(words: list[str], cli: Cli, tmp_path: Path, known_model: Path) -> None:
    called = score(cli, tmp_path / "out", known_model, letter_tasks(4), *words)
    assert called.code == 2 and called.error["remedy"]


def test_an_item_too_long_is_refused_by_name_or_cut(cli: Cli, tmp_path: Path) -> None:
    path = KnownAnswerModel(context_length=256).write(tmp_path / "short.gguf")
    tasks = [*letter_tasks(5), mcbin.Task("x" * 600 + "?", ("A", "B"), 0)]
    refused = score(cli, tmp_path / "out", path, tasks)
    assert refused.code == 2 and refused.error["slug"] == "context-too-small" and "5" in refused.error["message"]
    cut = score(cli, tmp_path / "out", path, tasks, "--truncate", "left")
    assert cut.code == 0 and cut.record["correct"] == expected_correct(MODEL, tasks)
    assert "items-truncated" in cut.slugs


def test_nan_weights_are_caught(cli: Cli, tmp_path: Path) -> None:
    path = KnownAnswerModel(nan=True).write(tmp_path / "nan.gguf")
    called = score(cli, tmp_path / "out", path, letter_tasks(8))
    assert called.code == 3 and "non-finite" in called.slugs
    assert called.record["result"] is None and called.record["metrics"] is None
    bench = tmp_path / "bench.bin"
    checked = cli("run", "--scorer", "logprobs", "-m", path, "-b", bench, "--out", tmp_path / "out", "--json")
    assert checked.code == 3 and "model-unhealthy" in checked.slugs


def start(tmp_path: Path, model: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "llmc", "run", "--scorer", "logprobs", "--no-health-check", "-m", str(model)]
    words += ["-b", str(tmp_path / "bench.bin"), "--out", str(tmp_path / "out"), "--json"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_at_random_points_and_resumed_equals_unbroken(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    tasks = [mcbin.Task(f"{'word ' * 60}{n}?", ("A", "b c", "D"), n % 3) for n in range(1200)]
    unbroken = score(cli, tmp_path / "whole/out", known_model, tasks) if (tmp_path / "whole").mkdir() is None else None
    assert unbroken is not None and unbroken.code == 0, unbroken
    mcbin.write(tmp_path / "bench.bin", tasks)
    chance = random.Random(5)
    kept_sizes = []
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        child = start(tmp_path, known_model)
        target = chance.randrange(1, 200_000)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and child.poll() is None:
            sizes = [p.stat().st_size for p in (tmp_path / "out").glob("runs/.scored-*/items.jsonl")]
            if sizes and sizes[0] > target:
                break
            time.sleep(0.01)
        child.send_signal(number)
        child.communicate(timeout=60)
        kept_sizes += [p.stat().st_size for p in (tmp_path / "out").glob("runs/.scored-*/items.jsonl")]
    assert kept_sizes and max(kept_sizes) > 0
    words = ["run", "--scorer", "logprobs", "-m", known_model, "-b", tmp_path / "bench.bin", "--json"]
    resumed = cli(*words, "--out", tmp_path / "out", "--no-health-check", "--resume")
    assert resumed.code == 0, resumed.out
    assert items_of(resumed) == items_of(unbroken)
    assert resumed.record["correct"] == unbroken.record["correct"]
    assert resumed.record["metrics"] == unbroken.record["metrics"]
    assert math.isclose(resumed.record["result"]["accuracy"], unbroken.record["result"]["accuracy"])


def test_resume_is_refused_when_something_that_matters_changed(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    tasks = letter_tasks(6)
    mcbin.write(tmp_path / "bench.bin", tasks)
    folder = tmp_path / "out/runs/.scored-0123"
    folder.mkdir(parents=True)
    dry = score(cli, tmp_path / "out", known_model, tasks)
    assert dry.code == 0
    (folder / "wanted.json").write_text(json.dumps({"benchmark": "bench", "model": "another"}))
    refused = score(cli, tmp_path / "out", known_model, tasks, "--resume", "--force")
    assert refused.code == 2 and "model" in refused.error["message"]


def test_the_engine_in_use_is_recorded(cli: Cli, tmp_path: Path, known_model: Path, real_engine: EngineFiles) -> None:
    called = score(cli, tmp_path / "out", known_model, letter_tasks(4))
    engine = called.record["engine"]
    assert engine["flavour"] == "libllama" and real_engine.installed is not None
    assert real_engine.installed.version in engine["version"]


def test_a_binding_that_pip_installed_is_used_where_it_is_named(
    cli: Cli, tmp_path: Path, known_model: Path, real_engine: EngineFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip leaves libllama inside the package; so does this copy."""
    engine = real_engine.installed
    assert engine is not None and engine.binding is not None
    site = tmp_path / "site"
    shutil.copytree(engine.binding, site, symlinks=True)
    shutil.copytree(engine.lib, site / "llama_cpp" / "lib", symlinks=True, dirs_exist_ok=True)
    expected = score(cli, tmp_path / "out", known_model, letter_tasks(12))
    monkeypatch.setenv("LLMC_BINDING", str(site))
    called = score(cli, tmp_path / "out", known_model, letter_tasks(12))
    assert called.code == 0 and not called.data["runs"][0]["reused"], called.out  # another engine, by its identity
    assert called.record["correct"] == expected.record["correct"]
    assert called.record["engine"]["version"] == expected.record["engine"]["version"]
    assert called.record["engine"]["backend"] == "cpu"
    (site / "llama_cpp" / "__init__.py").write_text('__version__ = "0.3.16"\n')
    refused = score(cli, tmp_path / "out", known_model, letter_tasks(12))
    assert refused.code == 2 and "too old" in refused.out


def test_the_capped_rule_by_hand_on_piqa_s_three_hazards(
    cli: Cli, tmp_path: Path, known_model: Path, shared: Path
) -> None:
    """In rows 178, 987 and 1028 one solution begins the other: llama.cpp would score it from memory past the end."""
    lines = (shared / "data" / "piqa" / "validation.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(lines[i]) for i in (178, 987, 1028)]
    tasks = [mcbin.Task(f"Question: {r['goal']}\nAnswer:", (r["sol1"], r["sol2"]), r["label"]) for r in rows]
    called = score(cli, tmp_path / "out", known_model, tasks)
    assert called.code == 0, called.out
    marks = ""
    folder = Path(called.data["runs"][0]["folder"])
    for item, task in zip(read_items_jsonl(folder / "items.jsonl"), tasks, strict=True):
        whole = [MODEL.tokenize(f"{task.question} {text}") for text in task.options]
        shortest = min(map(len, whole))
        assert whole[0][:shortest] == whole[1][:shortest]  # the hazard
        means = []
        for option, tokens in zip(item.options, whole, strict=True):
            scored = [MODEL.logprobs[token] for token in tokens[shortest - 1 :]]
            means.append(math.fsum(scored) / len(scored))
            assert (option.llama_tokens, option.llama_mean) == (len(scored), pytest.approx(means[-1], abs=1e-4))
        marks += "01"[means.index(max(means)) == task.gold]
    assert called.record["correct"] == marks
    # An ordinary run leaves these three to the scorer, and says so.
    others = letter_tasks(6)
    mcbin.write(tmp_path / "mixed.bin", [*tasks, *others])
    words = ["run", "-m", known_model, "-b", tmp_path / "mixed.bin", "--out", tmp_path / "plain"]
    mixed = cli(*words, "--no-health-check", "--json", "--", "-t", "1")
    assert mixed.record["rescored"] == ["0", "1", "2"]
    assert mixed.record["correct"] == marks + expected_correct(MODEL, others)
