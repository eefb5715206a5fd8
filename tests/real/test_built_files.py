"""Every benchmark's built file in the real llama-perplexity: it loads, all of it is scored, and the accuracy is
the one that the known-answer model's own answers imply.

Rows are real ones where a folder of them is at hand; where there are none, the spec's example and the documents
that it carries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import made_up_rows as made_up
from helpers import Cli
from llmc import mcbin
from llmc.benchmarks import fixed_shots, names
from llmc.benchmarks import spec as specs
from llmc.benchmarks.build import build, write_subset
from llmc.benchmarks.item import items_path, read_items
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.locate import EngineFiles

pytestmark = pytest.mark.real
MODEL = KnownAnswerModel()
WHOLE, ENDS = 5000, 500  # a file of more tasks is scored at both of its ends

REAL = [
    *("aqua-rat-test", "aqua-rat-validation", "boolq-validation", "careqa-en-test", "commonsense-qa-validation"),
    *("medqa-test", "mmlu-validation", "mmlu-test", "arc-easy-validation", "arc-easy-test", "arc-challenge-test"),
    *("hellaswag-validation", "truthfulqa-mc1-validation", "openbookqa-test", "medmcqa-validation", "piqa-validation"),
    *("social-iqa-validation", "winogrande-validation", "mmlu-anatomy-test", "hellaswag-validation@olmes"),
    *("piqa-validation@olmes-rc", "medmcqa-validation@olmes-rc"),
]
# Long prompts: the first tasks only.
SHOTS = [
    "boolq-validation@olmes",
    "mmlu-validation@lm-eval-5shot",
    "mmlu-test@olmes-5shot",
    "piqa@olmes-5shot",
    "commonsense-qa@olmes-rc-5shot",
]


@pytest.fixture(autouse=True)
def engine_in_use(real_engine: EngineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_ENGINE", str(real_engine.binary))


TIE = 1e-5  # options whose scores differ by less: the engine's single precision decides


def verdicts(task: mcbin.Task) -> str:
    """Return "1" for a task that is answered right, "0" for wrong, "01" where the best options tie.

    Empty where an option lies wholly in what all options share, and llama.cpp's score is undefined.
    """
    try:
        scores = MODEL.option_scores(task.question, task.options)
    except ValueError:
        return ""
    best = [i for i, score in enumerate(scores) if score > max(scores) - TIE]
    if len(best) == 1 or len({task.options[i] for i in best}) == 1:  # of equal texts the first wins, exactly
        assert best[0] == MODEL.choice(task.question, task.options)
        return "1" if best[0] == task.gold else "0"
    return "01" if task.gold in best else "0"


def score_and_check(cli: Cli, path: Path, model: Path, out: Path) -> None:
    tasks = mcbin.read(path)
    expected = [verdict for verdict in map(verdicts, tasks) if verdict]
    flags = ["--no-health-check", "--on-hazard", "exclude"]
    # One thread: the model is too small to gain from more, and waiting threads cost on a busy machine.
    called = cli("run", "-m", model, "-b", path, "--out", out, "--json", *flags, "--", "-t", "1")
    assert called.code == 0, called.out
    record = called.record
    assert len(record["excluded"]) == len(tasks) - len(expected)
    assert (record["counts"]["announced"], record["counts"]["scored"]) == (len(expected), len(expected))
    assert [i for i, (one, may) in enumerate(zip(record["correct"], expected, strict=True)) if one not in may] == []
    assert sum(len(may) > 1 for may in expected) <= 1 + len(expected) // 20
    assert record["result"]["accuracy"] == record["correct"].count("1") / len(expected)


def ends_of(path: Path, tasks: int, out: Path, most: int) -> Path:
    if tasks <= most:
        return path
    first, last = range(ENDS), range(tasks - ENDS, tasks)
    indices = [*first, *last] if most == WHOLE else list(range(most))
    name = f"{path.name.removesuffix('.bin')}.ends"
    return write_subset(path, indices, name, out, {"kind": "ends"}).bin_path(out)


@pytest.mark.parametrize("name", REAL)
def test_real_rows(name: str, shared: Path, cli: Cli, tmp_path: Path, known_model: Path) -> None:
    entry = build(names.parse(name), tmp_path, source=shared / "data")
    path = ends_of(entry.bin_path(tmp_path), entry.tasks, tmp_path, WHOLE)
    score_and_check(cli, path, known_model, tmp_path)


@pytest.mark.parametrize("name", SHOTS)
def test_worked_examples(name: str, shared: Path, cli: Cli, tmp_path: Path, known_model: Path) -> None:
    entry = build(names.parse(name), tmp_path, source=shared / "data")
    path = ends_of(entry.bin_path(tmp_path), entry.tasks, tmp_path, 20)
    score_and_check(cli, path, known_model, tmp_path)


def stand_ins(spec: specs.Benchmark) -> list[dict[str, Any]]:
    """Return rows in a benchmark's columns: its example, and the documents of its protocols."""
    rows = [dict(spec.example or {})]
    for protocol in spec.protocols.values():
        if protocol.shots is not None and protocol.shots.documents is not None and protocol.adapter is None:
            rows += fixed_shots.documents(protocol.shots.documents).documents
    return rows


@pytest.mark.parametrize("name", sorted(specs.catalogue()))
def test_every_benchmark_under_every_protocol(name: str, cli: Cli, tmp_path: Path, known_model: Path) -> None:
    spec = specs.find(name)
    source = made_up.write(tmp_path / "rows.jsonl", stand_ins(spec))
    for protocol in spec.protocols:
        target = names.Target(spec, spec.default_split, protocol)
        path = build(target, tmp_path / "out", source=source).bin_path(tmp_path / "out")
        assert len(list(read_items(items_path(path)))) == len(mcbin.read(path))
        score_and_check(cli, path, known_model, tmp_path / "out")
