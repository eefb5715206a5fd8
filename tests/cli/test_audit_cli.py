"""``llmc audit`` as a user types it."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine_output import LAYOUTS, Output, render
from llmc import mcbin
from llmc.__main__ import run
from llmc.runs.record import load_record

CORRECT = "11010010"
GOLDS = [0, 1, 2, 3, 0, 1, 2, 3]


@dataclass
class Case:
    folder: Path
    bin: Path
    size: int

    def write(self, output: Output) -> tuple[str, str]:
        out, err = self.folder / "out.log", self.folder / "err.log"
        out.write_bytes(output.stdout)
        err.write_bytes(output.stderr)
        return str(out), str(err)

    def render(self, layout: str = "mainline", correct: str = CORRECT, **more: Any) -> Output:
        return render(layout, correct, size=self.size, **more)


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.chdir(tmp_path)  # the record goes to out/
    path = tmp_path / "some.bin"
    tasks = [mcbin.Task(f"Question {i}?", tuple(f"answer {i}{j}" for j in range(4)), g) for i, g in enumerate(GOLDS)]
    facts = mcbin.write(path, tasks)
    return Case(tmp_path, path, facts.size)


def audit(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = run(["audit", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def envelope(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code, out, _ = audit(*words, "--json", capsys=capsys)
    body = json.loads(out)
    assert body["exit_code"] == code
    assert body["command"] == "audit"
    return code, body


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_streams_in_any_order_or_one_log(layout: str, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    output = case.render(layout)
    out, err = case.write(output)
    both = case.folder / "both.log"
    answers = []
    for logs in ([out, err], [err, out]):
        code, body = envelope(*logs, "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
        assert code == 0
        answers.append({key: value for key, value in body["data"].items() if key not in ("logs", "folder", "record")})
    assert answers[0] == answers[1]
    for data in (output.stdout + output.stderr, output.stderr + output.stdout):
        both.write_bytes(data)
        code, body = envelope(str(both), "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
        assert code == 0
        assert body["data"]["score"] == answers[0]["score"]
        assert body["data"]["findings"] == answers[0]["findings"]
    assert answers[0]["score"]["correct"] == CORRECT
    assert answers[0]["score"]["accuracy"] == 0.5


def test_what_a_person_reads(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = audit(*case.write(case.render()), "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    assert (code, err) == (0, "")
    *shown, last = out.splitlines()
    assert last.startswith("record: out/runs/") and last.endswith("/record.json")
    assert shown == [
        "tasks         8 scored of 8",
        "accuracy      50.00 % (4 right)",
        "95 % interval 21.52 to 78.48 % (Wilson)",
        "chance        25.00 %",
        "majority      25.00 % (always option 0, counted from 0)",
        "verdict       trusted",
        "",
    ]


def test_an_untrusted_run_shows_no_score(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    output = case.render()
    cut = Output(output.stdout[: output.stdout.index(b"6\t")], output.stderr)
    code, out, _ = audit(*case.write(cut), "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    assert code == 3
    assert "untrusted" in out
    assert "5 scored of 8" in out
    assert "scored-fewer" in out and "fix:" in out
    assert not re.search(r"accuracy|\d ?%|\d\.\d", out.replace("10.0000 points apart", ""))
    code, body = envelope(*case.write(cut), "--bin", str(case.bin), capsys=capsys)
    assert (code, body["status"], body["data"]["score"]) == (3, "untrusted", None)


def test_standard_input(case: Case, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    output = case.render("verbose")

    class Input:
        buffer = io.BytesIO(output.stderr + output.stdout)

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdin", Input())
    code, body = envelope("-", "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    assert code == 0
    assert body["data"]["score"]["right"] == 4
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = audit("-", capsys=capsys)
    assert code == 2 and "standard input is closed" in err


def test_without_the_exit_status(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = audit(*case.write(case.render()), "--bin", str(case.bin), capsys=capsys)
    assert code == 0
    assert "exit-unknown" in out and "--exit-status" in out


@pytest.mark.parametrize(
    ("status", "slug"),
    [("1", "exit-status"), ("139", "killed-by-signal"), ("-9", "killed-by-signal"), ("134", "killed-by-signal")],
)
def test_a_bad_exit_status(status: str, slug: str, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    logs = case.write(case.render())
    code, body = envelope(*logs, "--bin", str(case.bin), "--exit-status", status, capsys=capsys)
    assert code == 3
    assert [f["slug"] for f in body["data"]["findings"]] == [slug]


def test_without_the_file(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = audit(*case.write(case.render()), "--exit-status", "0", capsys=capsys)
    assert code == 0
    assert "benchmark-unknown" in out and "--bin FILE.bin" in out
    assert "majority" not in out
    quiet = case.write(case.render("quiet"))
    code, out, _ = audit(*quiet, "--exit-status", "0", capsys=capsys)
    assert code == 3
    assert "8 scored of an unknown number" in out


def test_a_broken_file_is_a_finding(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    logs = case.write(case.render())
    case.bin.write_bytes(case.bin.read_bytes()[:-2])
    code, body = envelope(*logs, "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    assert code == 3
    [found] = body["data"]["findings"]
    assert found["slug"] == "bad-binary"
    assert "task 7" in found["detail"] and "byte" in found["detail"]


def test_another_file(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    other = case.folder / "other.bin"
    mcbin.write(other, [mcbin.Task("Question?", ("yes", "no", "maybe"), 0)] * 8)
    code, body = envelope(*case.write(case.render()), "--bin", str(other), "--exit-status", "0", capsys=capsys)
    assert code == 3
    assert [f["slug"] for f in body["data"]["findings"]] == ["bytes-read-mismatch", "baseline-mismatch"]


@pytest.mark.parametrize(
    ("option", "code", "slugs"),
    [
        ([], 0, ["selection-scored"]),
        (["--subset", "5"], 0, []),
        (["--subset", "4"], 3, ["announced-mismatch", "scored-more"]),
    ],
)
def test_a_selection(
    option: list[str], code: int, slugs: list[str], case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = case.write(case.render(correct="10011", tasks=8))
    got, body = envelope(*logs, "--bin", str(case.bin), "--exit-status", "0", *option, capsys=capsys)
    assert got == code
    assert [f["slug"] for f in body["data"]["findings"]] == slugs
    if code == 0:
        assert body["data"]["score"]["correct"] == "10011"
        assert body["data"]["score"]["majority_share"] is None


def test_two_runs_in_the_logs(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    output = case.render()
    first, second = case.folder / "first.log", case.folder / "second.log"
    for log in (first, second):
        log.write_bytes(output.stderr + output.stdout)
    code, body = envelope(str(first), str(second), "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    assert code == 3
    assert {"announced-mismatch", "scored-more", "row-gap", "several-finals"} <= {
        f["slug"] for f in body["data"]["findings"]
    }


def test_always_one_position_is_named(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    logs = case.write(case.render(correct="10001000"))
    _, body = envelope(*logs, "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    assert [f["slug"] for f in body["data"]["findings"]] == ["always-one-position"]


def test_an_empty_log_is_no_output(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    logs = case.write(Output(b"", b""))
    code, body = envelope(*logs, "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    assert code == 3
    assert [f["slug"] for f in body["data"]["findings"]] == ["no-output"]


def test_input_that_cannot_be_audited(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = case.write(case.render())
    junk = case.folder / "junk.log"
    junk.write_bytes(bytes(range(256)) * 100)
    missing, folder = str(case.folder / "missing.log"), str(case.folder)
    for words, what in (
        ([missing], "missing.log"),
        ([folder], "is a directory"),
        ([str(junk)], "is binary data"),
        ([str(case.bin)], "is binary data"),
        ([out, out], "named twice"),
        ([out, str(case.folder / "." / "out.log")], "named twice"),
        (["-", "-"], "named twice"),
        ([out, err, missing], "3 logs were named"),
        ([out, "--bin", missing], "missing.log"),
        ([out, "--bin", folder], "is a directory"),
        ([out, "--exit-status", "256"], "--exit-status"),
        ([out, "--subset", "0"], "--subset"),
        ([out, "--nope"], "--nope"),
        (["bad\0name"], "cannot read the log"),
        ([], "LOG"),
    ):
        code, shown, message = audit(*words, capsys=capsys)
        assert (code, shown) == (2, ""), words
        assert what in message and "fix:" in message, words
        assert "Traceback" not in message
        code, shown, _ = audit(*words, "--json", capsys=capsys)
        assert code == 2 and json.loads(shown)["error"]["remedy"], words


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = case.write(case.render())
    Path(out).chmod(0)
    code, _, message = audit(out, capsys=capsys)
    assert code == 2 and "Permission denied" in message


def test_a_pipe_can_be_a_log(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    output = case.render()
    reader, writer = os.pipe()
    os.write(writer, output.stderr + output.stdout)
    os.close(writer)
    try:
        if not Path(f"/dev/fd/{reader}").exists():
            pytest.skip("this system has no /dev/fd")
        code, _, _ = audit(f"/dev/fd/{reader}", "--bin", str(case.bin), capsys=capsys)
    finally:
        os.close(reader)
    assert code == 0


def test_the_verdict_is_kept_as_a_record(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = case.write(case.render())
    code, body = envelope(out, err, "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    record = load_record(Path(body["data"]["folder"]))
    assert (code, record.kind, record.status, record.correct) == (0, "audit", "trusted", CORRECT)
    assert record.dump() == body["data"]["record"]
    assert record.benchmark is not None and record.benchmark.sha256 == mcbin.scan(case.bin).sha256
    assert (record.parts[0].stdout, record.parts[0].stderr) == (out, err)
    # It pairs with any other run of the same questions, and the store shows it.
    assert run(["compare", body["data"]["folder"], body["data"]["folder"]]) != 0  # a run and itself
    assert run(["runs", "list"]) == 0 and "some" in capsys.readouterr().out


def test_an_untrusted_one_holds_no_score(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = case.write(case.render(correct=CORRECT[:-1]))
    code, body = envelope(out, err, "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    record = load_record(Path(body["data"]["folder"]))
    assert (code, record.status, record.result, record.correct) == (3, "untrusted", None, None)
    assert [f.slug for f in record.findings if f.severity == "error"]


def test_where_nothing_can_be_written_the_verdict_stands(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = case.write(case.render())
    (case.folder / "file").touch()
    code, shown, said = audit(out, err, "--bin", str(case.bin), "--out", str(case.folder / "file"), capsys=capsys)
    assert code == 0 and "50.00 %" in shown and "no record was written" in said
    code, body = envelope(out, "--bin", str(case.bin), "--out", str(case.folder / "other"), capsys=capsys)
    assert Path(body["data"]["folder"]).is_relative_to(case.folder / "other")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_logs_as_powershell_writes_them(case: Case, encoding: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = []
    for name, data in zip(("out", "err"), (case.render().stdout, case.render().stderr), strict=True):
        path = case.folder / f"{name}.log"
        path.write_bytes(f"\ufeff{data.decode()}".encode(encoding))
        names.append(str(path))
    code, body = envelope(*names, "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    assert code == 0 and body["data"]["score"]["correct"] == CORRECT


@pytest.mark.parametrize("subset", [None, len(GOLDS), len(GOLDS) + 5])
def test_a_subset_that_is_all_of_them_is_none(
    case: Case, subset: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    always_first = "".join("1" if gold == 0 else "0" for gold in GOLDS)
    words = [] if subset is None else ["--subset", str(subset)]
    logs = case.write(case.render(correct=always_first))
    code, body = envelope(*logs, "--bin", str(case.bin), "--exit-status", "0", *words, capsys=capsys)
    assert code == 0
    assert "always-one-position" in [found["slug"] for found in body["data"]["findings"]]


def test_tasks_that_llama_cpp_may_get_wrong_are_named(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    hazard = mcbin.Task("Is it?", ("Yes", "Yes, it is", "Yes, maybe", "Yes and no"), GOLDS[-1])
    *tasks, _ = mcbin.Reader(case.bin)
    size = mcbin.write(case.bin, [*tasks, hazard]).size
    logs = case.write(render("mainline", CORRECT, size=size))
    code, body = envelope(*logs, "--bin", str(case.bin), "--exit-status", "0", capsys=capsys)
    found = {each["slug"]: each["severity"] for each in body["data"]["findings"]}
    assert code == 0 and found["option-prefix"] == "warning"
