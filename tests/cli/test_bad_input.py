"""Input that cannot be used: exit code 2, one error with its remedy, nothing written, in JSON as for people."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers import Called, Cli, letter_tasks
from llmc import mcbin


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, known_model: Path) -> Iterator[Path]:
    """A folder with files of every wrong kind, a good model and a good benchmark."""
    folder = tmp_path_factory.mktemp("inputs")
    model, bench = folder / "model.gguf", folder / "bench.bin"
    model.write_bytes(known_model.read_bytes())
    mcbin.write(bench, letter_tasks(8))
    contents = {
        "empty": b"",
        "html": b"<!doctype html><html><body>404</body></html>",
        "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
        "zip": b"PK\x03\x04" + bytes(60),
        "safetensors": (72).to_bytes(8, "little") + b'{"__metadata__":{}}' + bytes(60),
        "zeros": bytes(200),
        "text": b"Once upon a time there was a benchmark.\n" * 10,
        "cut-model": model.read_bytes()[:5000],
        "cut-weights": model.read_bytes()[:-1],
        "cut-header": model.read_bytes()[:13],
        "cut-bench": bench.read_bytes()[:-1],
        "cut-table": bench.read_bytes()[:17],
        "long-bench": bench.read_bytes() + b"\0",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    (folder / "null").symlink_to("/dev/null")
    (folder / "zero").symlink_to("/dev/zero")
    before = Path.cwd()
    os.chdir(folder)  # the path of a socket has to be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        os.chdir(before)
        yield folder


@pytest.fixture
def at(inputs: Path, fake_engine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(inputs)
    return inputs


def refused(cli: Cli, *words: str | Path) -> dict[str, object]:
    """Call llmc twice, for people and for a program; return the error, which has to be one that helps."""
    before = _seen()
    human = cli(*words)
    assert human.code == 2, human.out + human.err
    assert human.err.count("error:") == 1 and not human.out
    assert "fix:" in human.err
    _no_confusion(human)
    machine = cli(*_with_json(words))
    assert machine.code == 2 and not machine.err
    envelope = json.loads(machine.out)
    assert envelope["schema"] == "llmc.cli/1" and envelope["exit_code"] == 2 and "data" not in envelope
    assert envelope["error"]["message"] and envelope["error"]["remedy"]
    assert _seen() == before, "something was left behind"
    return envelope["error"]  # type: ignore[no-any-return]


def _with_json(words: tuple[str | Path, ...]) -> list[str | Path]:
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], "--json", *words[at:]]


def _no_confusion(called: Called) -> None:
    for word in ("Traceback", "internal error", "Errno", "object at 0x", "PosixPath"):
        assert word not in called.out + called.err


def _seen() -> set[str]:
    return {str(path) for path in Path.cwd().rglob("*")}


WRONG_MODELS = [
    "empty", "html", "lfs", "zip", "safetensors", "zeros", "text", "cut-model", "cut-weights", "cut-header",
    "bench.bin", "folder", "dangling", "loop", "missing", "missing.gguf", "",
    ".", "fifo", "socket", "null", "zero", "~nobody-of-that-name/x",
]  # fmt: skip
WRONG_BENCHES = [
    "./empty", "./html", "./lfs", "./zip", "./safetensors", "./zeros", "./text", "cut-bench", "cut-table", "long-bench",
    "model.gguf", "./folder", "./dangling", "./loop", "missing.bin", "./missing", "arc-eezy", "", ".",
    "./fifo", "./socket", "./null", "./zero",
]  # fmt: skip


@pytest.mark.parametrize("model", WRONG_MODELS)
def test_a_model_that_is_none(model: str, cli: Cli, at: Path) -> None:
    refused(cli, "run", "-m", model, "-b", "bench.bin")
    refused(cli, "inspect", "bench.bin", "-m", model)


@pytest.mark.parametrize("bench", WRONG_BENCHES)
def test_a_benchmark_that_is_none(bench: str, cli: Cli, at: Path) -> None:
    refused(cli, "run", "-m", "model.gguf", "-b", bench)


@pytest.mark.parametrize("bench", [name for name in WRONG_BENCHES if name not in ("", "arc-eezy")])
def test_inspecting_what_is_no_benchmark(bench: str, cli: Cli, at: Path) -> None:
    refused(cli, "inspect", bench)


@pytest.mark.parametrize("log", ["missing", "folder", "bench.bin", "model.gguf", "zeros", "", "dangling", "socket"])
def test_a_log_that_is_none(log: str, cli: Cli, at: Path) -> None:
    refused(cli, "audit", log, "--bin", "bench.bin")


def test_binary_data_beside_a_good_log(cli: Cli, at: Path) -> None:
    assert "bench.bin is binary data" in str(
        refused(cli, "audit", "text", "bench.bin", "--bin", "bench.bin")["message"]
    )


OPTIONS = [
    ("--limit", "0"), ("--limit", "-1"), ("--limit", "x"), ("--limit", "1.5"), ("--like-llama", "0"),
    ("--part-size", "0"), ("--timeout", "0"), ("--timeout", "nan"), ("--timeout", "-1"), ("--stall-timeout", "nan"),
    ("--memory-budget", "x"), ("--memory-budget", ""), ("--memory-budget", "0"), ("--memory-budget", "nan"),
    ("--memory-budget", "1K"), ("--on-hazard", "shrug"), ("--seed", "x"), ("--bogus",),
    ("--limit", "3", "--like-llama", "3"), ("--engine", "nowhere"), ("--engine", "folder"), ("--engine", "model.gguf"),
    ("--engine", "~no-such-user/x"), ("--engine", "null"), ("--engine", "fifo"), ("--out", "bench.bin"),
    ("--out", "bench.bin/below"), ("--out", "/dev/null"),
    ("--", "stray"), ("--", "-np", "abc"), ("--", "-np", "0"), ("--", "-np", "9" * 5000), ("--", "-np", "999"),
    ("--", "-np", "-4"), ("--", "-c"), ("--", "-c=512"), ("--", "--bogus"), ("--", "-bf", "x.bin"),
    ("--layout-check", "--", "-np", "8"), ("--layout-check", "--", "-ub", "64"),
]  # fmt: skip


@pytest.mark.parametrize("words", OPTIONS, ids=lambda words: " ".join(words)[:40])
def test_options_that_cannot_be(words: tuple[str, ...], cli: Cli, at: Path) -> None:
    refused(cli, "run", "-m", "model.gguf", "-b", "bench.bin", *words)


def test_flags_are_looked_at_before_the_model_and_the_benchmark(cli: Cli, at: Path) -> None:
    assert "--bogus" in str(refused(cli, "run", "-m", "missing", "-b", "missing.bin", "--", "--bogus")["message"])


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",), ("--nonsense",), ("run",), ("run", "-m", "model.gguf"), ("run", "-b", "bench.bin"),
        ("explain", "nonsense"), ("explain", ""), ("explain", "a", "b"), ("runs", "nonsense"), ("runs", "show"),
        ("runs", "show", "nonsense"), ("runs", "show", "folder"), ("runs", "show", "bench.bin"),
        ("runs", "list", "--out", "bench.bin"), ("engine", "nonsense"), ("engine", "probe", "missing"),
        ("engine", "install", "--jobs", "0"), ("engine", "install", "--backend", ""), ("bench", "show", "nonsense"),
        ("inspect", "bench.bin", "--task", "8"), ("inspect", "bench.bin", "--task", "-1"), ("audit",),
        ("audit", "text", "--bin", "missing.bin"), ("audit", "text", "text", "--bin", "bench.bin"),
        ("audit", "a", "b", "c"), ("audit", "text", "--subset", "0"), ("audit", "text", "--exit-status", "999"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_commands_that_cannot_be(words: tuple[str, ...], cli: Cli, at: Path) -> None:
    refused(cli, *words)


@pytest.mark.parametrize(
    "words",
    [
        (), ("--",), ("--", "no-such-program"), ("--", "./folder"), ("--", "./text"),
        ("--timeout", "nan", "--", "true"), ("--record", "folder", "--", "true"),
        ("--record", "bench.bin/x", "--", "true"), ("--out", "bench.bin", "--", "true"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_exec_says_it_on_stderr(words: tuple[str, ...], cli: Cli, at: Path) -> None:
    before = _seen()
    called = cli("exec", *words)
    assert called.code == 2 and not called.out and called.err.count("error:") == 1 and "fix:" in called.err
    machine = cli("exec", "--json", *words)
    assert machine.code == 2 and not machine.out and json.loads(machine.err)["error"]["remedy"]
    assert {path for path in _seen() - before if Path(path).is_file()} == set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
@pytest.mark.parametrize("what", ["model.gguf", "bench.bin"])
def test_files_that_may_not_be_read(what: str, cli: Cli, at: Path) -> None:
    (at / what).chmod(0)
    try:
        assert "Permission denied" in str(refused(cli, "run", "-m", "model.gguf", "-b", "bench.bin")["message"])
    finally:
        (at / what).chmod(0o644)


def test_items_of_unknown_origin_beside_a_benchmark_are_not_read(
    cli: Cli, fake_engine: Path, known_model: Path, tmp_path: Path
) -> None:
    bench = tmp_path / "own.bin"
    mcbin.write(bench, letter_tasks(8))
    (tmp_path / "own.items.parquet").write_bytes(b"not for this file")
    called = cli("run", "-m", known_model, "-b", bench, "--out", tmp_path / "out", "--no-health-check")
    assert called.code == 0, called.err


def test_a_benchmark_named_twice_is_scored_once(cli: Cli, fake_engine: Path, known_model: Path, tmp_path: Path) -> None:
    bench = tmp_path / "own.bin"
    mcbin.write(bench, letter_tasks(8))
    (tmp_path / "copy.bin").write_bytes(bench.read_bytes())
    words = ["run", "-m", known_model, "--out", tmp_path / "out", "--no-health-check"]
    called = cli(*words, "-b", bench, "-b", tmp_path / "copy.bin", bench)
    assert called.code == 0 and called.err.count("they are scored once") == 2
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1


@pytest.mark.parametrize("name", [b"caf\xc3\xa9 [red].x", b"not\xffutf8.x", b"two\nlines.x", b"-dash.x", b"a b'\"$.x"])
@pytest.mark.parametrize("output", [(), ("--json",)])
def test_names_of_every_kind(
    name: bytes, output: tuple[str, ...], cli: Cli, fake_engine: Path, known_model: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    text = os.fsdecode(name)
    model, bench = text.replace(".x", ".gguf"), text.replace(".x", ".bin")
    Path(model).write_bytes(known_model.read_bytes())
    mcbin.write(Path(bench), letter_tasks(8))
    called = cli("run", f"--model={model}", f"--bench={bench}", "--no-health-check", *output)
    assert called.code == 0, called.err
    (record,) = Path("out/runs").glob("*/record.json")
    known = json.loads(record.read_text(encoding="utf-8"))
    assert known["model"]["ref"].encode() == name.replace(b".x", b".gguf").replace(b"\xff", b"\\udcff")
    assert cli("runs", "show", record.parent.name).code == 0


def test_what_is_done_is_shown_when_a_later_run_cannot_be(
    cli: Cli, fake_engine: Path, known_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llmc.runs import cell

    for name, tasks in (("first", 8), ("second", 9)):
        mcbin.write(tmp_path / f"{name}.bin", letter_tasks(tasks))
    run_cell: Callable[[cell.Cell], cell.Finished] = cell.run_cell

    def full_disk(each: cell.Cell) -> cell.Finished:
        if each.bench.name == "second":
            raise OSError(28, "No space left on device", "out")
        return run_cell(each)

    monkeypatch.setattr(cell, "run_cell", full_disk)
    words = ["run", "-m", known_model, "--out", tmp_path / "out", "--no-health-check"]
    called = cli(*words, "-b", tmp_path / "first.bin", "-b", tmp_path / "second.bin")
    assert called.code == 2 and "No space left" in called.err
    assert "first" in called.out and "record: " in called.out
