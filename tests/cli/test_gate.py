"""`llmc gate` as CI calls it: a process of its own, whose exit code and every report say the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import junitparser
import pytest

from helpers import Cli
from llmc.files import configs_dir
from made_runs import SHA, answers, changed, record, write

BASE = answers(3000, 1800)
WAYS = {
    "pass": (changed(BASE, 20, 25), 0),
    "fail": (changed(BASE, 150, 30), 1),
    "inconclusive": (changed(BASE, 60, 45), 4),
    "untrusted": (BASE, 3),
}


@pytest.fixture
def repository(tmp_path: Path, cli: Cli) -> Path:
    """A committed baseline file and one run for each way a gate may go."""
    base = write(tmp_path / "base", record(BASE, model="f16"))
    assert cli("baseline", "save", base, "-o", tmp_path / "baseline.json").code == 0
    for name, (correct, _) in WAYS.items():
        write(tmp_path / name, record(correct, model=name, trusted=name != "untrusted"))
    write(tmp_path / "foreign", record(BASE, model="foreign", must={"benchmark_sha256": "dd" * 32}))
    return tmp_path


def process(*words: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    return subprocess.run(
        [sys.executable, "-m", "llmc", "gate", *map(str, words)],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(("outcome", "code"), [(name, code) for name, (_, code) in WAYS.items()])
def test_every_report_says_what_the_exit_code_says(repository: Path, outcome: str, code: int) -> None:
    reports = ["--junit", "r/gate.xml", "--json-file", "r/gate.json", "--markdown", "r/gate.md"]
    done = process(outcome, "--baseline", "baseline.json", "--margin", "1.0", "--json", *reports, cwd=repository)
    assert done.returncode == code, done.stderr
    envelope = json.loads(done.stdout)
    written = json.loads((repository / "r/gate.json").read_text())
    assert envelope["data"] == written and envelope["exit_code"] == written["exit_code"] == code
    assert written["outcome"] == outcome and [c["outcome"] for c in written["cases"]] == [outcome]
    assert (repository / "r/gate.md").read_text().startswith(f"## gate: {outcome} (1 {outcome}; exit code {code})")
    (suite,) = junitparser.JUnitXml.fromfile(str(repository / "r/gate.xml"))
    (case,) = suite
    kinds = {"fail": junitparser.Failure, "inconclusive": junitparser.Skipped, "untrusted": junitparser.Error}
    assert [type(result) for result in case.result] == ([kinds[outcome]] if outcome in kinds else [])
    assert (suite.failures, suite.skipped, suite.errors) == (code == 1, code == 4, code == 3)
    if outcome == "inconclusive":
        needed = written["cases"][0]["test"]["questions_needed"]
        assert needed > 3000 and f"about {needed} questions would decide" in written["cases"][0]["remedy"]


def test_a_gate_for_people_in_github_actions(repository: Path) -> None:
    summary = repository / "summary.md"
    summary.write_text("earlier\n")
    actions = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    done = process("fail", "untrusted", "--baseline", "baseline.json", cwd=repository, **actions)
    assert done.returncode == 3 and done.stdout.splitlines()[0].startswith("verdict")
    annotations = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert len(annotations) == 2 and all(line.startswith("::error title=llmc gate%3A ") for line in annotations)
    text = summary.read_text()
    assert text.startswith("earlier\n## gate: untrusted (1 fail, 1 untrusted; exit code 3)\n\n| verdict |")
    done = process("fail", "--baseline", "baseline.json", "--json", cwd=repository, **actions)
    assert json.loads(done.stdout)["exit_code"] == 1 and "::error" in done.stderr
    actions["GITHUB_STEP_SUMMARY"] = str(repository / "no" / "folder")
    done = process("pass", "--baseline", "baseline.json", cwd=repository, **actions)
    assert done.returncode == 0 and "step summary cannot be written" in done.stderr


def test_outside_of_actions_nothing_is_annotated(cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repository / "summary.md"))
    called = cli("gate", repository / "fail", "--baseline", repository / "baseline.json")
    assert called.code == 1 and "::" not in called.out and not (repository / "summary.md").exists()


def test_a_baseline_of_another_file_is_exit_2_with_both_hashes(cli: Cli, repository: Path) -> None:
    called = cli("gate", repository / "foreign", "--baseline", repository / "baseline.json")
    assert called.code == 2 and SHA["arc"] in called.out and "dd" * 32 in called.out
    called = cli("gate", repository / "foreign", repository / "untrusted", "--baseline", repository / "baseline.json")
    assert called.code == 3


def test_a_run_as_baseline_and_a_run_against_its_own_baseline(cli: Cli, repository: Path) -> None:
    called = cli("gate", repository / "fail", "--baseline", repository / "base")
    assert called.code == 1
    called = cli("gate", repository / "base", "--baseline", repository / "baseline.json")
    assert called.code == 0 and "the same model file" in called.out


CONFIG = """
baseline: baseline.json
runs: [pass]
margin: 2
benchmarks:
  arc: {min_accuracy: 50}
"""


def test_a_configuration_beside_its_files(cli: Cli, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = repository / "gate.yaml"
    file.write_text(CONFIG)
    called = cli("gate", "--config", file, "--json")
    assert called.code == 0, called.out
    assert [c["kind"] for c in called.data["cases"]] == ["floor", "non-inferiority"]
    assert called.data["cases"][1]["test"]["margin"] == 0.02
    # What stands on the command line takes the file's place.
    called = cli(
        "gate", "--config", file, repository / "inconclusive", "--margin", "0.9", "--min-accuracy", "arc=70", "--json"
    )
    assert called.code == 1 and called.data["policy"]["margin"] == 0.9
    assert [c["outcome"] for c in called.data["cases"]] == ["fail", "inconclusive"]


def test_the_shipped_example(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "gates"
    folder.mkdir()
    example = configs_dir("gates", "quantized-model.yaml")
    (folder / example.name).write_text(example.read_text())
    names = ("arc-easy-validation", "boolq-validation", "commonsense-qa-validation")
    for model in ("f16", "q4"):
        for name in names:
            correct = changed(BASE, 20, 25) if model == "q4" else BASE
            made = record(correct, model=model, bench=name, must={"benchmark_sha256": name[0] * 64})
            write(tmp_path / model / name, made)
    base = [tmp_path / "f16" / name for name in names]
    assert cli("baseline", "save", *base, "-o", folder / "baseline.json").code == 0
    called = cli("gate", "--config", folder / example.name, *[tmp_path / "q4" / name for name in names], "--json")
    assert called.code == 0, called.out
    assert [(c["benchmark"], c["outcome"]) for c in called.data["cases"]] == [
        *[(name, "pass") for name in names[:2] for _ in range(2)],
        (names[2], "skipped"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("margn: 2\n", "unknown key margn; did you mean margin?"),
        ("benchmarks: {arc: {min_acuracy: 5}}\n", "did you mean min_accuracy?"),
        ("margin: .nan\n", "margin"),
        ("margin: 0\n", "above 0 and below 100"),
        ("alpha: 0.6\n", "alpha"),
        ("min_accuracy: 0.45\n", "45 means 45 %"),
        ("holm: maybe\n", "holm"),
        ("groups: strata\n", "groups"),
        ("margin: 1\nmargin: 2\n", "stands twice"),
        ("margin: [\n", "not valid YAML"),
        ("margin: 2024-13-45\n", "gate.yaml:1: 2024-13-45 is no timestamp"),
        ("benchmarks: &a\n  x: *a\n", "gate.yaml:1: too much is nested"),
        ("- 1\n", "no keys and values"),
        ("", "no keys and values"),
    ],
)
def test_faulty_configurations(cli: Cli, repository: Path, text: str, said: str) -> None:
    file = repository / "gate.yaml"
    file.write_text(text)
    called = cli("gate", repository / "pass", "--config", file)
    assert called.code == 2 and said in called.err and str(file) in called.err and not called.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no run was named"),
        (["RUN"], "asks for nothing"),
        (["RUN", "--baseline", "none.json"], "no run called"),
        (["RUN", "--baseline", "BASE", "--margin", "0"], "--margin: a margin"),
        (["RUN", "--baseline", "BASE", "--margin", "nan"], "--margin"),
        (["RUN", "--baseline", "BASE", "--margin", "100"], "--margin"),
        (["RUN", "--baseline", "BASE", "--alpha", "0.5"], "--alpha"),
        (["RUN", "--baseline", "BASE", "--alpha", "inf"], "--alpha"),
        (["RUN", "--min-accuracy", "x"], "--min-accuracy takes a percentage"),
        (["RUN", "--min-accuracy", "0.4"], "45 means 45 %"),
        (["RUN", "--min-accuracy", "=45"], "--min-accuracy takes a percentage"),
        (["RUN", "--min-accuracy", " =45"], "--min-accuracy takes a percentage"),
        (["RUN", "--min-accuracy", "arc=nan"], "--min-accuracy: "),
        (["RUN", "--min-accuracy", "arc=101"], "101"),
        (["RUN", "--baseline", "BASE", "--groups", "passages"], "--groups"),
        (["RUN", "--baseline", "BASE", "--axis", "bakend"], "did you mean backend"),
        (["RUN", "--baseline", "BASE", "--junit", "BASE/x/gate.xml"], "cannot write"),
        (["nowhere", "--baseline", "BASE"], "no run called 'nowhere'"),
    ],
)
def test_words_that_cannot_work(cli: Cli, repository: Path, words: list[str], said: str) -> None:
    places = {"RUN": str(repository / "pass"), "BASE": str(repository / "baseline.json")}
    filled = [places.get(word, word.replace("BASE/", places["BASE"] + "/")) for word in words]
    called = cli("gate", *filled, "--out", repository / "out")
    assert called.code == 2 and said in called.err and "internal" not in called.err and not called.out


def test_damaged_input(cli: Cli, repository: Path) -> None:
    base = repository / "baseline.json"
    whole = base.read_bytes()
    for content in (
        b"",
        whole[: len(whole) // 2],
        b'{"schema": "llmc.baseline/1", "entries": []}',
        b"{}",
        b"[" * 200_000,
    ):
        base.write_bytes(content)
        called = cli("gate", repository / "pass", "--baseline", base, "--json")
        assert called.code == 2 and called.error["remedy"], content
    record_file = repository / "pass" / "record.json"
    whole_record = record_file.read_text()
    for number in ("NaN", "Infinity", "1e999"):
        record_file.write_text(whole_record.replace('"bits_per_weight": null', f'"bits_per_weight": {number}'))
        assert record_file.read_text() != whole_record
        called = cli("gate", repository / "pass", "--min-accuracy", "5", "--json")
        assert called.code == 2 and "finite" in called.error["message"], called.out
    record_file.write_text("{")
    assert cli("gate", repository / "pass", "--min-accuracy", "5").code == 2


def test_floors_need_no_baseline(cli: Cli, repository: Path) -> None:
    called = cli("gate", repository / "pass", "--min-accuracy", "50%", "--min-accuracy", "arc=60")
    assert called.code == 0 and "at least the floor of 60 %" in called.out
    called = cli("gate", repository / "pass", "--min-accuracy", "boolq=50")
    assert called.code == 3 and "no run of it was named" in called.out


def test_nothing_to_evaluate(cli: Cli, repository: Path) -> None:
    (repository / "gate.yaml").write_text("baseline: baseline.json\nbenchmarks: {arc: {skip: not today}}\n")
    called = cli("gate", repository / "pass", "--config", repository / "gate.yaml")
    assert called.code == 5 and "gate: nothing to evaluate (1 skipped; exit code 5)" in called.out


def test_a_sweep_against_its_own_baseline_and_a_committed_one(cli: Cli, repository: Path) -> None:
    out = repository / "out"
    cells: dict[str, Any] = {}
    for name, correct in (("f16", BASE), ("q8", WAYS["pass"][0]), ("q2", WAYS["fail"][0])):
        write(out / "runs" / name, record(correct, model=name))
        cells[f"{name}/arc"] = {"model": name, "benchmark": "arc", "definition": "0", "status": "trusted", "run": name}
        if name != "f16":
            cells[f"{name}/arc"]["baseline"] = "f16/arc"
    body = {"schema": "llmc.sweep/1", "name": "ladder", "updated": "now", "config": {}, "cells": cells}
    (out / "sweeps" / "ladder").mkdir(parents=True)
    (out / "sweeps" / "ladder" / "cells.json").write_text(json.dumps(body))
    called = cli("gate", "ladder", "--out", out, "--json")
    assert called.code == 1
    assert [(c["label"], c["outcome"]) for c in called.data["cases"]] == [("q8", "pass"), ("q2", "fail")]
    called = cli("gate", "ladder", "--baseline", repository / "baseline.json", "--out", out, "--json")
    assert [c["label"] for c in called.data["cases"]] == ["f16", "q8", "q2"] and called.code == 1
    called = cli("gate", "ladder", "--baseline", "f16", "--out", out, "--json")
    assert [(c["label"], c["outcome"]) for c in called.data["cases"]] == [("q8", "pass"), ("q2", "fail")]
    cells["q1/arc"] = {**cells["q2/arc"], "status": "failed", "run": None, "error": {"message": "no such file"}}
    (out / "sweeps" / "ladder" / "cells.json").write_text(json.dumps(body))
    called = cli("gate", "ladder", "--out", out, "--json")
    assert called.code == 3 and called.data["cases"][-1]["reason"] == "the cell is failed: no such file"


def test_a_run_named_twice_is_one_test(cli: Cli, repository: Path) -> None:
    """Two of the same would each have to be twice as sure."""
    run = repository / "pass"
    spelt = [run, f"{run}/", run / "record.json", run.parent / "fail" / ".." / "pass"]
    called = cli("gate", *spelt, "--baseline", repository / "baseline.json", "--json")
    (case,) = called.data["cases"]
    assert case["test"]["p_pass"] == case["test"]["p_pass_adjusted"]
    # Copies of a record side by side are two things.
    for name in ("a.json", "b.json"):
        (repository / name).write_bytes((run / "record.json").read_bytes())
    called = cli(
        "gate", repository / "a.json", repository / "b.json", "--baseline", repository / "baseline.json", "--json"
    )
    assert len(called.data["cases"]) == 2
