"""Run records: strict, versioned, and unable to hold a score that is not trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from llmc.errors import ExitCode, InputFileError
from llmc.findings import finding
from llmc.runs.record import GroupScore, Result, RunRecord, content_key, load_record
from llmc.runs.store import Store, finish

RESULT = Result(accuracy=0.5, correct=1, tasks=2, wilson_low=0.1, wilson_high=0.9)


def record(**changes: Any) -> RunRecord:
    base: dict[str, Any] = {
        "llmc_version": "0",
        "kind": "run",
        "status": "trusted",
        "started": "2026-01-02T03:04:05Z",
        "finished": "2026-01-02T03:04:06Z",
        "correct": "10",
        "result": RESULT,
    }
    return RunRecord(**{**base, **changes})


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    made = record(findings=(finding("below-majority", "x"),), groups={"a": GroupScore(tasks=2, correct=1)})
    path = finish(tmp_path, made)
    assert load_record(tmp_path) == load_record(path) == made
    assert json.loads(path.read_text())["schema"] == "llmc.run/1"


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "untrusted"},
        {"status": "interrupted"},
        {"status": "untrusted", "result": None},
        {"status": "untrusted", "result": None, "correct": None, "groups": {"a": GroupScore(tasks=1, correct=1)}},
        {"result": None},
        {"findings": (finding("scored-fewer", "x"),)},
        {"unknown": 1},
        {"schema": "llmc.run/2"},
    ],
)
def test_what_a_record_cannot_hold(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        record(**changes)


@pytest.mark.parametrize(
    ("status", "code"),
    [("trusted", ExitCode.OK), ("untrusted", ExitCode.UNTRUSTED), ("interrupted", ExitCode.INTERRUPTED)],
)
def test_the_verdict_is_the_exit_code(status: str, code: ExitCode) -> None:
    changes = {} if status == "trusted" else {"result": None, "correct": None}
    assert record(status=status, **changes).exit_code is code


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "llmc.run/9"}', "\x00\xff"])
def test_other_files_are_no_records(text: str, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(InputFileError, match="not a run record"):
        load_record(tmp_path)


def test_a_missing_record_says_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        load_record(tmp_path)
    assert "llmc runs list" in caught.value.remedy


def test_content_keys_depend_on_content_only() -> None:
    assert content_key({"a": 1, "b": [1, 2]}) == content_key({"b": [1, 2], "a": 1})
    assert content_key({"a": 1}) != content_key({"a": 2})


def test_folders_are_never_shared_and_only_complete_ones_are_listed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made = [store.new_folder("2026-01-02T03:04:05Z", "m", "b", "k" * 64) for _ in range(3)]
    assert len(set(made)) == 3 and store.folders() == []
    finish(made[1], record(reuse_key="k" * 64))
    assert store.folders() == [made[1]]
    found = store.find_trusted("k" * 64)
    assert found is not None and found[0] == made[1]
    assert store.find_trusted("k" * 63 + "x") is None


def test_untrusted_and_damaged_runs_are_not_reused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key = "a" * 64
    finish(
        store.new_folder("2026-01-02T03:04:05Z", "m", "b", key),
        record(status="untrusted", result=None, correct=None, reuse_key=key),
    )
    damaged = store.new_folder("2026-01-02T03:04:06Z", "m", "b", key)
    (damaged / "record.json").write_text("{")
    assert store.find_trusted(key) is None
    assert len(list(store.records())) == 2


@pytest.mark.parametrize("name", ["../../etc", "a/b", "m\n", "  ", "x" * 300, "..."])
def test_names_of_any_kind_make_folders_inside_the_store(name: str, tmp_path: Path) -> None:
    folder = Store(tmp_path).new_folder("2026-01-02T03:04:05Z", name, name, "k" * 64)
    assert folder.parent == tmp_path / "runs" and len(folder.name) < 200
