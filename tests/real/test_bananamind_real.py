"""BananaMind Base Bench end to end, on records made up for it, with a model whose every log-probability is known."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hub_server
from bananamind_rows import as_bytes, records
from helpers import Called, Cli
from llmc import console
from llmc.benchmarks import bananamind
from llmc.engine.known_answer import KnownAnswerModel
from llmc.judge.elo import Game, elo

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("real_engine")]
MODEL = KnownAnswerModel(add_bos=False)
KEY = f"datasets/{bananamind.REPO}"
TOKEN = "hf_of-an-account-that-accepted"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODEL.write(tmp_path_factory.mktemp("model") / "known.gguf")


@pytest.fixture
def local(tmp_path: Path) -> Path:
    path = tmp_path / "local" / "data" / "test.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(as_bytes(records()))
    return tmp_path / "local"


def run(cli: Cli, model: Path, folder: Path, *more: str | Path) -> Called:
    return cli("bananamind", "-m", model, "--out-dir", folder, "--no-health-check", "--json", *more)


def means(row: dict[str, Any]) -> list[float]:
    """Mean log-probability of each continuation, tokenized by itself."""
    tokens = [MODEL.tokenize(text) for text in row["continuations"]]
    return [math.fsum(MODEL.logprobs[token] for token in each) / len(each) for each in tokens]


def check(report: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Hold a report against what follows from the rows by hand."""
    right = []
    for example, row in zip(report["examples"], rows, strict=True):
        expected = means(row)
        assert [each["mean_logprob"] for each in example["choices"]] == pytest.approx(expected, abs=1e-4)
        assert [each["tokens"] for each in example["choices"]] == [len(MODEL.tokenize(t)) for t in row["continuations"]]
        assert (example["id"], example["label"]) == (row["id"], row["label"])
        assert example["prediction"] == expected.index(max(expected))
        right.append(expected.index(max(expected)) == row["label"])

    def rated(chosen: list[bool]) -> tuple[float, float, float]:
        played = [
            (Game(row["category_weight"] * row["difficulty_weight"], row["item_elo"], good), good)
            for row, good, take in zip(rows, right, chosen, strict=True)
            if take
        ]
        found = elo(game for game, _ in played)
        return found.rating, sum(good for _, good in played) / len(played), found.weighted_accuracy

    def figures(part: dict[str, Any]) -> tuple[float, float, float]:
        return part["elo"], part["accuracy"], part["weighted_accuracy"]

    assert figures(report["overall"]) == pytest.approx(rated([True] * len(rows)))
    categories = dict.fromkeys(row["category"] for row in rows)
    assert list(report["categories"]) == list(categories)
    for name in categories:
        assert figures(report["categories"][name]) == pytest.approx(rated([row["category"] == name for row in rows]))


@pytest.fixture
def gated(hub_settings: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """The official file (for this test) behind a gate."""
    content = as_bytes(records())
    hub_settings.setattr(bananamind, "SHA256", hashlib.sha256(content).hexdigest())
    repo = hub_server.repo({bananamind.FILE: content}, bananamind.REVISION, gated=True, token=TOKEN)
    with hub_server.serve({KEY: repo}) as hub:
        hub_settings.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def keep_engines(own_cache: Path, real_engine: Any) -> None:
    """The engine for tests with an empty cache."""
    own_cache.mkdir(exist_ok=True)
    (own_cache / "engines").symlink_to(real_engine.binary.parents[2])


@pytest.mark.usefixtures("keep_engines")
def test_end_to_end_from_a_gated_hub(
    cli: Cli, tmp_path: Path, model: Path, gated: hub_server.Hub, hub_settings: pytest.MonkeyPatch
) -> None:
    hub_settings.setenv("HF_TOKEN", TOKEN)
    called = run(cli, model, tmp_path / "run")
    assert called.code == 0, called.out + called.err
    folder = tmp_path / "run"
    report = json.loads((folder / "report.json").read_text())
    check(report, records())
    assert report["overall"]["total"] == 350 and report["dataset"]["via"] == "hub"
    # By the card's own words GGUF scoring is never official, and nothing else stands against this run.
    assert report["official"] is False and len(report["non_official_because"]) == 1
    assert "llama.cpp" in report["non_official_because"][0]
    partial = [json.loads(line) for line in (folder / "partial_results.jsonl").read_text().splitlines()]
    assert len(partial) == 350 and all(line["official"] is False for line in partial)
    text = (folder / "predictions.md").read_text()
    assert "not an official result" in text and text.count("\n### ") == 350
    config = json.loads((folder / "run_config.json").read_text())
    assert config["official"] is False and config["signature"]["bos"] == "never"
    assert config["signature"]["tokenization"] == "separate"
    # The texts stand in the folder of the run, which says what they may be used for, and nowhere else.
    assert "never for training" in (folder / "TERMS.txt").read_text() and "never for training" in text
    assert not list(folder.glob("*.bin")) and (folder / "items.parquet").is_file()
    assert b"Shelf 17 holds" not in b"".join(
        path.read_bytes()
        for path in (tmp_path / "llmc-cache").rglob("*")
        if path.is_file() and "engines" not in path.parts
    )
    assert "Shelf 17 holds" not in called.out and "Shelf" not in (folder / "report.json").read_text()


@pytest.mark.usefixtures("keep_engines")
@pytest.mark.parametrize(
    ("env", "saved", "typed", "opens"),
    [
        (None, None, None, False),
        ("hf_wrong", None, None, False),
        (None, TOKEN, None, True),
        ("hf_wrong", TOKEN, None, True),
        (None, None, TOKEN, True),
        ("hf_wrong", "hf_old", TOKEN, True),
        (None, None, "hf_wrong", False),
    ],
)
def test_tokens_are_tried_in_order_and_one_is_asked_for(
    cli: Cli,
    tmp_path: Path,
    model: Path,
    gated: hub_server.Hub,
    hub_settings: pytest.MonkeyPatch,
    env: str | None,
    saved: str | None,
    typed: str | None,
    opens: bool,
) -> None:
    if env:
        hub_settings.setenv("HF_TOKEN", env)
    else:
        hub_settings.delenv("HF_TOKEN", raising=False)
    if saved:
        (tmp_path / "no-token").write_text(saved)
    asked: list[str] = []

    def ask(question: str) -> str | None:
        asked.append(question)
        return typed

    hub_settings.setattr(console, "ask_secret", ask)
    called = run(cli, model, tmp_path / "run", "--limit", "4")
    os.environ.pop("HF_TOKEN", None)
    if opens:
        assert called.code == 0, called.out
        assert bool(asked) == (typed == TOKEN)
        return
    assert called.code == 2 and called.error["kind"] == "hub-refused" and "HF_TOKEN" in called.error["remedy"]
    assert not (tmp_path / "run" / "report.json").exists()


def test_nobody_is_asked_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getpass", lambda question: pytest.fail("asked without a terminal"))
    assert console.ask_secret("token: ") is None


@pytest.mark.usefixtures("keep_engines")
def test_another_file_from_the_hub_is_refused(
    cli: Cli, tmp_path: Path, model: Path, hub_settings: pytest.MonkeyPatch
) -> None:
    repo = hub_server.repo({bananamind.FILE: as_bytes(records())}, bananamind.REVISION)
    with hub_server.serve({KEY: repo}) as hub:
        hub_settings.setenv("HF_ENDPOINT", hub.url)
        called = run(cli, model, tmp_path / "run")
    assert called.code == 2 and bananamind.SHA256 in called.error["message"]
    assert not (tmp_path / "run").exists()


def test_a_limited_run_on_data_of_ones_own_says_what_it_is(cli: Cli, tmp_path: Path, model: Path, local: Path) -> None:
    path = local / "data" / "test.jsonl"
    rows = records()[40:]
    path.write_bytes(as_bytes(rows))
    called = run(cli, model, tmp_path / "run", "--local-data", local, "--limit", "60", "--add-bos")
    assert called.code == 0, called.out
    reasons = "\n".join(called.data["report"]["non_official_because"])
    for words in ("llama.cpp", "first 60 of 310", "310 records instead of 350", "SHA-256", "categories", "BOS"):
        assert words in reasons
    for name in ("report.json", "predictions.md", "run_config.json"):
        assert "first 60 of 310" in (tmp_path / "run" / name).read_text()
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    check(report, rows[:60])
    shown = cli(
        "bananamind", "-m", model, "--out-dir", tmp_path / "again", "--no-health-check", "--local-data", path,
        "--limit", "60",
    )  # fmt: skip
    assert shown.code == 0 and "not an official result" in shown.out and "first 60 of 310" in shown.out


def test_another_tokenization_is_another_figure_and_says_so(cli: Cli, tmp_path: Path, model: Path, local: Path) -> None:
    called = run(cli, model, tmp_path / "run", "--local-data", local, "--limit", "30", "--tokenization", "joint")
    assert called.code == 0 and any("one text" in why for why in called.data["report"]["non_official_because"])


def test_a_continuation_is_scored_as_it_is_written(cli: Cli, tmp_path: Path, model: Path, local: Path) -> None:
    """A newline, two spaces, a tab: each has tokens of its own, and joint tokenization of this model has the same."""
    rows = records()[:14]
    starts = {row["continuations"][0][: -len(row["continuations"][0].lstrip())] for row in rows}
    assert {"\n", "  ", " ", "\t"} <= starts
    (local / "data" / "test.jsonl").write_bytes(as_bytes(rows))
    called = run(cli, model, tmp_path / "run", "--local-data", local, "--batch-size", "1", "--threads", "1")
    assert called.code == 0, called.out
    check(json.loads((tmp_path / "run" / "report.json").read_text()), rows)


FILES = ("report.json", "predictions.md", "partial_results.jsonl", "run_config.json")


def test_interrupted_at_random_and_resumed(cli: Cli, tmp_path: Path, model: Path, local: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = ["--local-data", local, "--batch-size", "2", "--limit", "150"]
    assert run(cli, model, whole, *words).code == 0
    command = [
        sys.executable, "-m", "llmc", "bananamind", "-m", model, "--out-dir", broken, "--no-health-check", *words,
    ]  # fmt: skip
    chance = random.Random(3)
    partial = broken / "partial_results.jsonl"
    for attempt in range(3):
        more = ["--resume"] if (broken / "run_config.json").exists() else []
        before = partial.stat().st_size if partial.exists() else 0
        goal = before + chance.randint(1, 20_000)
        with subprocess.Popen(
            [*map(str, command), *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as child:
            until = time.monotonic() + 60
            while time.monotonic() < until and child.poll() is None:
                if partial.exists() and partial.stat().st_size >= goal:
                    break
                time.sleep(0.01)
            child.send_signal(signal.SIGKILL if attempt % 2 == 0 else signal.SIGINT)
    assert run(cli, model, broken, *words, "--resume").code == 0
    for name in FILES:
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_torn_last_line_is_scored_again(cli: Cli, tmp_path: Path, model: Path, local: Path) -> None:
    folder = tmp_path / "run"
    words = ("--local-data", local, "--limit", "40", "--batch-size", "3")
    assert run(cli, model, folder, *words).code == 0
    whole = {name: (folder / name).read_bytes() for name in FILES}
    chance = random.Random(8)
    for _ in range(4):
        partial = folder / "partial_results.jsonl"
        partial.write_bytes(whole["partial_results.jsonl"][: chance.randrange(len(whole["partial_results.jsonl"]))])
        assert run(cli, model, folder, *words, "--resume").code == 0
        assert {name: (folder / name).read_bytes() for name in FILES} == whole


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--limit", "21"], "examples (was 20, is 21)"),
        (["--add-bos"], "bos"),
        (["--tokenization", "joint"], "tokenization"),
        (["--batch-size", "3"], "max_sequences"),
    ],
)
def test_another_run_is_not_resumed(
    cli: Cli, tmp_path: Path, model: Path, local: Path, words: list[str], said: str
) -> None:
    folder = tmp_path / "run"
    assert run(cli, model, folder, "--local-data", local, "--limit", "20").code == 0
    limit = [] if "--limit" in words else ["--limit", "20"]
    called = run(cli, model, folder, "--local-data", local, *limit, *words, "--resume")
    assert called.code == 2 and said in called.error["message"]


def test_folders_that_cannot_be_used(cli: Cli, tmp_path: Path, model: Path, local: Path) -> None:
    folder = tmp_path / "run"
    words = ("--local-data", local, "--limit", "8")
    assert "no run to resume" in run(cli, model, folder, *words, "--resume").error["message"]
    assert run(cli, model, folder, *words).code == 0
    assert "--resume" in run(cli, model, folder, *words).error["remedy"]
    (folder / "run_config.json").unlink()
    assert "partial_results.jsonl" in run(cli, model, folder, *words).error["message"]


def test_a_model_gone_wrong_has_no_rating(cli: Cli, tmp_path: Path, local: Path) -> None:
    broken = KnownAnswerModel(nan=True).write(tmp_path / "nan.gguf")
    called = run(cli, broken, tmp_path / "run", "--local-data", local)
    assert called.code == 3 and "report" not in called.data
    assert [each["slug"] for each in called.data["findings"]][:1] == ["non-finite"]
    assert not (tmp_path / "run" / "report.json").exists()


def test_a_record_that_does_not_fit_is_named(cli: Cli, tmp_path: Path, local: Path) -> None:
    short = KnownAnswerModel(context_length=48).write(tmp_path / "short.gguf")
    called = run(cli, short, tmp_path / "run", "--local-data", local)
    assert called.code == 2 and called.error["slug"] == "context-too-small"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "gpux"], "--device"),
        (["--device", "cuda"], "built for"),
        (["--tokenization", "both"], "--tokenization"),
        (["--batch-size", "64"], "63"),
        (["--local-data", "absent"], "absent"),
    ],
)
def test_what_cannot_be_asked(cli: Cli, tmp_path: Path, model: Path, words: list[str], said: str) -> None:
    called = run(cli, model, tmp_path / "run", *words)
    assert called.code == 2 and said in called.error["message"]


def test_it_is_no_suite_of_built_files(cli: Cli, model: Path) -> None:
    called = cli("run", "--suite", "bananamind-base-bench-1.1", "-m", model, "--json")
    assert called.code == 2 and "llmc bananamind" in called.error["remedy"]
