from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import made_up_rows as made_up
from llmc import __main__, console
from llmc.benchmarks import spec as specs

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(autouse=True)
def human_again() -> Any:
    yield
    console.set_json(False)


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue of the three benchmarks that there are made-up rows of."""
    folder = tmp_path / "configs"
    folder.mkdir()
    for name in made_up.ROWS:
        shutil.copy(specs.catalogue()[name], folder)
    monkeypatch.setattr(specs, "configs_dir", lambda *parts: folder)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A folder with rows of every benchmark, each in a folder of its own."""
    for name, make in made_up.ROWS.items():
        made_up.write(tmp_path / "rows" / name / "validation.jsonl", make(8))
    return tmp_path / "rows"


def llmc(*arguments: object) -> int:
    return __main__.run([str(argument) for argument in arguments])


def data(text: str) -> Any:
    body = json.loads(text)
    assert body["schema"] == "llmc.cli/1"
    return body


def test_build_one(tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmc("build", "boolq", "--source", rows, "--out", tmp_path / "out") == 0
    text = capsys.readouterr().out
    assert "boolq-validation" in text
    assert "62.50 %" in text
    assert "8 tasks, the published split has 3270" in text
    assert (tmp_path / "out" / "boolq-validation.bin").is_file()


@pytest.mark.usefixtures("three")
def test_build_all_with_a_sample_as_json(tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = llmc("build", "--all", "--source", rows, "--limit", 3, "--seed", 5, "--out", tmp_path / "out", "--json")
    assert code == 0
    built = data(capsys.readouterr().out)["data"]["built"]
    assert [entry["name"] for entry in built] == [
        "arc-easy-validation.sample3s5",
        "boolq-validation.sample3s5",
        "commonsense-qa-validation.sample3s5",
    ]
    assert all(entry["tasks"] == 3 for entry in built)


def test_split_and_protocol(tmp_path: Path, rows: Path) -> None:
    made_up.write(rows / "arc-easy" / "test.jsonl", made_up.arc(4))
    out = tmp_path / "out"
    assert llmc("build", "arc-easy", "--split", "test", "--protocol", "llama-mc", "--source", rows, "--out", out) == 0
    assert (out / "arc-easy-test@llama-mc.bin").is_file()


@pytest.mark.usefixtures("three")
def test_one_failure_does_not_stop_the_others(tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (rows / "boolq" / "validation.jsonl").write_text("nonsense")
    assert llmc("build", "--all", "--source", rows, "--out", tmp_path / "out") == 2
    captured = capsys.readouterr()
    assert "1 of 3 could not be built: boolq-validation" in captured.err.replace("\n", " ")
    assert (tmp_path / "out" / "commonsense-qa-validation.bin").is_file()
    assert not (tmp_path / "out" / "boolq-validation.bin").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build"], "nothing to build"),
        (["build", "boolq", "--all"], "exclude each other"),
        (["build", "bolq"], "did you mean boolq?"),
        (["build", "boolq", "--split", "dev"], "no split 'dev'"),
        (["build", "boolq", "--protocol", "helm"], "no protocol 'helm'"),
        (["build", "--all", "--protocol", "helm"], "no benchmark has split"),
        (["build", "--all", "--revision", "main"], "--revision is of one data set"),
        (["build", "boolq", "--shots", "3"], "llama-mc asks boolq without worked examples"),
        (["build", "piqa@olmes", "--shots", "99"], "olmes has 7 worked examples of piqa, not 99"),
        (["build", "piqa@olmes-5shot", "--shots", "3"], "--shots asks for '3'"),
        (["build", "mmlu-anatomie-test"], "did you mean anatomy-test?"),
        (["build", "boolq", "--name", "mine"], "describe a file of your own"),
        (["build", "--from", "nowhere.csv"], "no such file: nowhere.csv"),
        (["build", "boolq", "--from", "nowhere.csv"], "--from and NAME exclude each other"),
        (["build", "nowhere.yaml"], "nowhere.yaml"),
        (["build", "boolq.sample3s1", "--limit", "4"], "names a sample already"),
        (["build", "boolq", "--limit", "0"], "--limit"),
        (["build", "boolq", "--seed", "-1"], "--seed"),
        (["build", "boolq", "--source", "nowhere"], "no such file or folder: nowhere"),
        (["build", "boolq", "arc-easy", "--source", __file__], "one file of rows"),
        (["bench", "show", "bolq"], "did you mean boolq?"),
    ],
)
def test_bad_arguments(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert llmc(*arguments) == 2
    error = capsys.readouterr().err
    assert words in error.replace("\n", " ")
    assert "fix:" in error
    assert "Traceback" not in error
    assert llmc(*arguments, "--json") == 2
    assert words in data(capsys.readouterr().out)["error"]["message"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "folder"], "folder is a folder"),
        (["--from", "/dev/null"], "/dev/null is not a regular file"),
        (["boolq", "--source", "/dev/null"], "/dev/null is not a regular file"),
        (["boolq", "--source", "fifo"], "fifo is not a regular file"),
        (["--from", "fifo"], "fifo is not a regular file"),
        (["--from", "q.csv", "--split", "Test"], "'Test' cannot be the name of a split"),
        (["--from", "q.csv", "--name", "mmlu-anatomy", "--split", "validation"], "is a benchmark of the catalogue"),
        (["--from", "cut.jsonl.gz"], "cut.jsonl.gz ends early"),
        (["boolq", "--source", "cut.jsonl.gz"], "cut.jsonl.gz ends early"),
        (["--from", "changed.jsonl.gz"], "changed.jsonl.gz"),
        (["boolq", "--source", "changed.jsonl.gz"], "changed.jsonl.gz"),
        (["--from", "header.csv"], "holds no rows"),
        (["--from", "twice.csv"], "line 1: column 'A' twice"),
        (["--from", "latin1.csv"], "line 2: not UTF-8"),
    ],
)
def test_files_that_cannot_be_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    os.mkfifo("fifo")
    packed = bytearray(gzip.compress(b'{"question": "' + os.urandom(20_000).hex().encode() + b'"}\n'))
    Path("cut.jsonl.gz").write_bytes(packed[:100])
    packed[1000:1100] = bytes(100)
    Path("changed.jsonl.gz").write_bytes(packed)
    Path("q.csv").write_text("question,A,B,answer\nq,x,y,A\n")
    Path("header.csv").write_text("question,A,B,answer\n")
    Path("twice.csv").write_text("question,A,A,answer\nq,x,y,A\n")
    Path("latin1.csv").write_bytes(b"question,A,B,answer\ncaf\xe9,x,y,A\n")
    assert llmc("build", *words) == 2
    error = capsys.readouterr().err.replace("\n", " ")
    assert message in error
    assert "fix:" in error
    assert not list((tmp_path / "out").glob("*"))


def test_names_that_are_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = os.fsdecode(b"caf\xe9")
    rows = [{"question": f"q{i}", "choices": ["a", "b"], "answer": "AB"[i % 2]} for i in range(4)]
    made_up.write(tmp_path / "q.jsonl", rows).rename(odd + ".jsonl")
    boolq = made_up.write(tmp_path / "b.parquet", made_up.boolq(8)).rename(odd + ".parquet")
    assert llmc("build", "--from", odd + ".jsonl", "--out", odd) == 0
    assert llmc("build", "--from", odd + ".jsonl", "--out", odd, "--json") == 0  # unchanged
    assert llmc("build", "boolq", "--source", boolq.name, "--out", odd) == 0
    capsys.readouterr()
    assert llmc("verify", "--all", "--out", odd) == 0
    assert "verified   caf-test: 4 tasks" in capsys.readouterr().out
    assert llmc("export", "caf-test", "--to", "jsonl", "--out", odd) == 0
    assert llmc("bench", "show", "boolq", "--out", odd) == 0


def test_bench_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert llmc("bench", "list") == 0
    assert "commonsense-qa" in capsys.readouterr().out
    assert llmc("bench", "list", "--json") == 0
    names = [one["name"] for one in data(capsys.readouterr().out)["data"]["benchmarks"]]
    assert {"arc-easy", "boolq", "commonsense-qa"} <= set(names)


def test_bench_show_a_made_up_and_a_real_question(
    tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert llmc("bench", "show", "boolq", "--out", out) == 0
    text = capsys.readouterr().out
    assert "A made-up question" in text
    assert "* ' yes'" in text
    llmc("build", "boolq", "--source", rows, "--out", out)
    capsys.readouterr()
    assert llmc("bench", "show", "boolq", "--out", out) == 0
    assert '    Question: "is the kettle number 0 hot?" Answer:' in capsys.readouterr().out
    assert llmc("bench", "show", "arc-easy@llama-mc", "--out", out, "--json") == 0
    shown = data(capsys.readouterr().out)["data"]
    assert (shown["protocol"], shown["example"]["real"]) == ("llama-mc", False)


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    source, out = tmp_path / "rows.jsonl", tmp_path / "out"
    made_up.write(source, made_up.csqa(20_000))
    command = [sys.executable, "-m", "llmc", "build", "commonsense-qa", "--source", str(source), "--out", str(out)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ})
    deadline = time.monotonic() + 30
    while not list(out.glob(".*.building/*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=30)
    assert child.returncode == 130
    assert b"Traceback" not in error
    assert list(out.iterdir()) == []
