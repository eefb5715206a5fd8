from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers import Cli
from made_runs import SHA, answers, changed, record, write

BASE = answers(600, 400)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "out" / "runs"
    groups = [f"subject {i % 3}" for i in range(600)]
    for key, made in {
        "20260101T000000Z-f16-arc-aaaa": record(BASE, model="f16", groups=groups),
        "20260101T000001Z-q8-arc-bbbb": record(BASE, model="q8", groups=groups),
        "20260101T000002Z-q4-arc-cccc": record(changed(BASE, 40, 10), model="q4", groups=groups),
        "20260101T000003Z-bad-arc-dddd": record(BASE, model="bad", trusted=False),
        "20260101T000004Z-f16-boolq-eeee": record(BASE, model="f16", bench="boolq"),
    }.items():
        write(folder / key, made)
    return tmp_path / "out"


def test_names_folders_and_records(cli: Cli, runs: Path) -> None:
    record_file = next(runs.glob("runs/*q4*/record.json"))
    called = cli("compare", "aaaa", next(runs.glob("runs/*q8*")), record_file, "--out", runs, "--json")
    assert called.code == 0
    assert [p["candidate"]["label"] for p in called.data["pairs"]] == ["q8", "q4"]
    q8, q4 = called.data["pairs"]
    assert q8["interval"]["method"] == "tango" and q4["interval"]["method"] == "miller"
    assert (q4["lost"], q4["gained"], q4["tasks"]) == (40, 10, 600)
    assert len(q4["lost_tasks"]) == 40 and len(q4["groups"]) == 3 and q4["macro"]["mean"] == pytest.approx(-0.05)


def test_the_table_for_people(cli: Cli, runs: Path) -> None:
    called = cli("compare", "aaaa", "cccc", "--out", runs, "--bootstrap", "500")
    assert called.code == 0
    assert "arc, 600 questions; baseline f16: 66.67 %" in called.out
    for words in ("q4", "61.67 %", "-5.00", "subject 2", "5.00 points worse", "bootstrap over questions (500"):
        assert words in called.out


def test_a_baseline_that_is_named(cli: Cli, runs: Path) -> None:
    for name in ("q8", "bbbb", "20260101T000001Z-q8-arc-bbbb"):
        called = cli("compare", "aaaa", "bbbb", "cccc", "--baseline", name, "--out", runs, "--json")
        assert called.code == 0
        assert {p["baseline"]["label"] for p in called.data["pairs"]} == {"q8"}
        assert {p["candidate"]["label"] for p in called.data["pairs"]} == {"f16", "q4"}


def test_a_run_is_the_same_however_it_is_named(cli: Cli, runs: Path) -> None:
    base, good = (next(runs.glob(f"runs/*{key}")) for key in ("aaaa", "cccc"))
    for words in ([f"{base}/", good, "--baseline", base], [base, f"{base}/record.json", good, f"{good}/"]):
        called = cli("compare", *words, "--out", runs, "--json")
        (pair,) = called.data["pairs"]
        assert (pair["baseline"]["label"], pair["candidate"]["label"]) == ("f16", "q4") and pair["p"] == pair["p_holm"]
    called = cli("compare", base, f"{base}/record.json", "--out", runs)
    assert called.code == 2 and "nothing to compare" in called.err


def test_two_runs_of_one_model_are_told_apart(cli: Cli, runs: Path) -> None:
    write(runs / "runs" / "20260101T000005Z-q4-arc-ffff", record(changed(BASE, 3, 3), model="q4"))
    called = cli("compare", "aaaa", "cccc", "ffff", "--out", runs, "--json")
    assert [p["candidate"]["label"] for p in called.data["pairs"]] == ["q4 (cccc)", "q4 (ffff)"]


def test_untrusted_is_exit_3_whichever_side(cli: Cli, runs: Path) -> None:
    called = cli("compare", "aaaa", "dddd", "cccc", "--out", runs, "--json")
    assert called.code == 3 and len(called.data["pairs"]) == 1
    assert called.data["untrusted"][0]["reason"].startswith("scored-fewer")
    called = cli("compare", "dddd", "cccc", "--out", runs, "--json")
    assert called.code == 3 and called.error["kind"] == "untrusted"
    called = cli("compare", "aaaa", "dddd", "--out", runs)
    assert called.code == 3 and "untrusted, not compared: bad" in called.out


def test_other_questions_are_exit_2_with_both_hashes(cli: Cli, runs: Path) -> None:
    called = cli("compare", "aaaa", "eeee", "--out", runs)
    assert called.code == 2 and SHA["arc"] in called.err and SHA["boolq"] in called.err


def cells(**changes: Any) -> dict[str, Any]:
    def cell(model: str, run: str | None, baseline: str | None, **more: Any) -> dict[str, Any]:
        status = "trusted" if run else "failed"
        made = {
            "model": model,
            "benchmark": "arc",
            "definition": "0",
            "baseline": baseline,
            "status": status,
            "run": run,
        }
        return {**{k: v for k, v in made.items() if v is not None}, **more}

    return {
        "schema": "llmc.sweep/1",
        "name": "ladder",
        "updated": "2026-01-02T03:04:05Z",
        "config": {},
        "cells": {
            "f16/arc": cell("f16", "20260101T000000Z-f16-arc-aaaa", None),
            "q8/arc": cell("q8", "20260101T000001Z-q8-arc-bbbb", "f16/arc"),
            "q4/arc": cell("q4", "20260101T000002Z-q4-arc-cccc", "f16/arc"),
            **changes,
        },
    }


def sweep(runs: Path, body: dict[str, Any]) -> Path:
    folder = runs / "sweeps" / "ladder"
    folder.mkdir(parents=True)
    (folder / "cells.json").write_text(json.dumps(body))
    return folder


FAILED = {
    "model": "q2",
    "benchmark": "arc",
    "definition": "0",
    "baseline": "f16/arc",
    "status": "failed",
    "error": {"kind": "fetch", "message": "no such file: q2.gguf", "remedy": "check the path"},
}


def test_a_sweep_by_name_and_folder(cli: Cli, runs: Path) -> None:
    folder = sweep(runs, cells())
    for name in ("ladder", str(folder), str(folder / "cells.json")):
        called = cli("compare", name, "--out", runs, "--json")
        assert called.code == 0, called.out
        assert [p["candidate"]["label"] for p in called.data["pairs"]] == ["q8", "q4"]
    called = cli("compare", "ladder", "--baseline", "q8", "--out", runs, "--json")
    assert {p["baseline"]["label"] for p in called.data["pairs"]} == {"q8"} and len(called.data["pairs"]) == 2


def test_a_run_beside_the_sweep_that_holds_it(cli: Cli, runs: Path) -> None:
    sweep(runs, cells())
    called = cli("compare", "ladder", "cccc", "--out", runs, "--json")
    assert [p["candidate"]["label"] for p in called.data["pairs"]] == ["q8", "q4 (cccc)"]
    called = cli("compare", "aaaa", "ladder", "--out", runs, "--json")
    assert [p["candidate"]["label"] for p in called.data["pairs"]] == ["q8", "q4"]


def test_a_sweep_of_scored_runs_may_have_axes(cli: Cli, runs: Path) -> None:
    """They know nothing of llama-perplexity's arguments, which is no setting that is misspelt."""
    should = {"engine_flavour": "libllama", "kv_type": "f16"}
    for name, kv in (("one", "f16"), ("two", "f32")):
        made = record(BASE, model="m")
        assert made.comparability is not None
        thin = made.comparability.model_copy(update={"should": {**should, "kv_type": kv}})
        write(runs / "runs" / name, made.model_copy(update={"comparability": thin}))
    base = {**cells()["cells"]["f16/arc"], "model": "m", "run": "one", "axes": {"kv": "f16"}}
    other = {**base, "axes": {"kv": "f32"}, "run": "two", "baseline": "m/arc/kv=f16"}
    sweep(runs, {**cells(), "cells": {"m/arc/kv=f16": base, "m/arc/kv=f32": other}})
    called = cli("compare", "ladder", "--out", runs, "--json")
    assert called.code == 0 and [pair["warnings"] for pair in called.data["pairs"]] == [[]]


def test_a_sweep_with_a_failed_cell(cli: Cli, runs: Path) -> None:
    sweep(runs, cells(**{"q2/arc": FAILED}))
    called = cli("compare", "ladder", "--out", runs, "--json")
    assert called.code == 3 and len(called.data["pairs"]) == 2
    assert called.data["untrusted"][0]["reason"] == "the cell is failed: no such file: q2.gguf"


def test_a_sweep_without_a_baseline(cli: Cli, runs: Path) -> None:
    body = cells()
    for cell in body["cells"].values():
        cell.pop("baseline", None)
    sweep(runs, body)
    called = cli("compare", "ladder", "--out", runs)
    assert called.code == 2 and "--baseline: f16, q8, q4" in called.err
    called = cli("compare", "ladder", "--baseline", "f16", "--out", runs, "--json")
    assert called.code == 0 and len(called.data["pairs"]) == 2


def test_a_sweeps_axis_is_no_warning(cli: Cli, runs: Path) -> None:
    arguments = ["-np", "16", "-c", "128", "-fa", "on", "--no-escape", "-ctk", "q8_0"]
    should = {"arguments": arguments, "layout": {"np": 16, "c": 128, "fa": "on"}, "backend": "cuda"}
    write(runs / "runs" / "kv", record(changed(BASE, 2, 1), model="f16", should=should))
    base = {**cells()["cells"]["f16/arc"], "axes": {"kv": "f16"}}
    kv = {**base, "axes": {"kv": "q8"}, "run": "kv", "baseline": "f16/arc/kv=f16"}
    body = {**cells(), "cells": {"f16/arc/kv=f16": base, "f16/arc/kv=q8": kv}}
    sweep(runs, body)
    called = cli("compare", "ladder", "--out", runs, "--json")
    (pair,) = called.data["pairs"]
    assert pair["candidate"]["label"] == "f16 kv=q8" and pair["warnings"] == ["backend differs: cpu and cuda"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["aaaa"], "nothing to compare"),
        (["aaaa", "aaaa"], "nothing to compare"),
        (["aaaa", "zzzz"], "no run called 'zzzz'"),
        (["aaaa", "cccc", "--baseline", "zzzz"], "no run called 'zzzz'"),
        (["aaaa", "cccc", "--groups", "stratta"], "did you mean strata"),
        (["aaaa", "cccc", "--confidence", "1"], "--confidence"),
        (["aaaa", "cccc", "--confidence", "nan"], "--confidence"),
        (["aaaa", "cccc", "--confidence", "0.2"], "--confidence"),
        (["aaaa", "cccc", "--bootstrap", "1"], "--bootstrap"),
        (["aaaa", "cccc", "--bootstrap", "99999999"], "--bootstrap"),
        (["aaaa", "cccc", "--axis", "backened"], "did you mean backend"),
    ],
)
def test_words_that_cannot_work(cli: Cli, runs: Path, words: list[str], said: str) -> None:
    called = cli("compare", *words, "--out", runs)
    assert called.code == 2 and said in called.err and "internal" not in called.err
    assert not called.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not valid JSON"),
        (b'{"schema": "llmc.run/1", "status"', "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b"\xff\xfe\x00", "neither a run record nor a baseline"),
        (b"[]", "not a run record"),
        (b"null", "not a run record"),
        (b'{"schema": "llmc.run/2"}', "not a run record"),
        (b'{"schema": "llmc.baseline/9", "entries": []}', "is not a baseline file"),
        (b'{"schema": "llmc.baseline/1", "entries": []}', "no run at all"),
    ],
)
def test_files_that_are_no_runs(cli: Cli, runs: Path, tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content)
    called = cli("compare", "aaaa", file, "--out", runs, "--json")
    assert called.code == 2 and said in called.error["message"] and called.error["remedy"]


def test_folders_that_are_no_runs(cli: Cli, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    called = cli("compare", "aaaa", tmp_path / "empty", "--out", runs)
    assert called.code == 2 and "neither a run (record.json) nor a sweep" in called.err
    called = cli("compare", "aaaa", tmp_path / "none" / "record.json", "--out", runs)
    assert called.code == 2 and "internal" not in called.err
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "record.json").write_text('{"schema": "llmc.run/1",')
    assert cli("compare", "aaaa", tmp_path / "cut", "--out", runs).code == 2
    folder = sweep(runs, cells())
    (folder / "cells.json").write_text("{")
    called = cli("compare", "ladder", "--out", runs)
    assert called.code == 2 and "not a sweep" in called.err


def test_a_sweep_whose_run_is_gone(cli: Cli, runs: Path) -> None:
    sweep(runs, cells(**{"x/arc": {**cells()["cells"]["q4/arc"], "run": "gone"}}))
    called = cli("compare", "ladder", "--out", runs)
    assert called.code == 3 and "untrusted, not compared: q4" in called.out and "q8 on arc" in called.out


def test_option_figures_of_two_scored_runs(cli: Cli, tmp_path: Path) -> None:
    for name, shift in (("a", 0.0), ("b", 1.1)):
        folder = tmp_path / name
        lines, marks = [], []
        for index in range(40):
            gold, figures = index % 2, [-1.0 - index % 3, -2.0 + shift * (index % 5 == 0)]
            marks.append("1" if figures.index(max(figures)) == gold else "0")
            options = [
                {"sum_logprob": f, "tokens": 1, "chars": 2, "bytes": 2, "chars_bare": 1, "bytes_bare": 1}
                for f in figures
            ]
            lines.append(json.dumps({"index": index, "id": str(index), "gold": gold, "batch": 0, "options": options}))
        must = {"scorer": "logprobs", "rule": "acc_raw"}
        write(folder, record("".join(marks), model=name, must=must))
        (folder / "items.jsonl").write_text("\n".join(lines) + "\n")
    called = cli("compare", tmp_path / "a", tmp_path / "b", "--json")
    options = called.data["pairs"][0]["options"]
    assert called.code == 0 and options["rule"] == "acc_raw" and options["kl"]["mean"] > 0
    called = cli("compare", tmp_path / "a", tmp_path / "b")
    for words in ("KL divergence between option distributions", "wrong to another wrong", "right option's probability"):
        assert words in called.out
