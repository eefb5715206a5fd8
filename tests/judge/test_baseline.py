from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.errors import InputFileError, UntrustedError, UsageError
from llmc.judge.answers import given_record
from llmc.judge.baseline import load_baseline, make_baseline, open_baseline, pack, save_baseline, unpack
from llmc.runs.record import ModelIdentity
from made_runs import answers, record

GROUPS = ["law"] * 60 + [None] * 17 + ["art"] * 23


def saved(path: Path, **more: Any) -> Path:
    runs = [
        given_record(record(answers(100, 40), bench="arc", groups=GROUPS, **more), Path("x")),
        given_record(record(answers(33, 20), bench="boolq", **more), Path("y")),
    ]
    save_baseline(make_baseline(runs), path)
    return path


@given(st.text("01", min_size=1, max_size=70))
def test_answers_survive_packing(correct: str) -> None:
    packed = pack(correct)
    assert unpack(packed, len(correct)) == correct
    assert len(packed) <= len(correct) / 6 + 4


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    arc, boolq = (run.required() for run in open_baseline(saved(tmp_path / "b.json")))
    assert (arc.benchmark, boolq.benchmark) == ("arc", "boolq")
    assert arc.correct == answers(100, 40) and arc.groups == tuple(GROUPS) and boolq.groups is None
    original = given_record(record(answers(100, 40), bench="arc"), Path("x")).required()
    assert (arc.key, arc.must, arc.should) == (original.key, original.must, original.should)
    assert arc.model is not None and arc.model.sha256 == original.model.sha256  # type: ignore[union-attr]


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    one = saved(tmp_path / "one.json").read_bytes()
    later = saved(tmp_path / "two.json", started="2030-01-01T00:00:00Z", llmc_version="9").read_bytes()
    assert one == later
    for path in (b"/models", b"/opt", b"/data"):
        assert path not in one
    runs = [given_record(record(answers(9, 4), bench=name), Path(name)) for name in ("boolq", "arc")]
    save_baseline(make_baseline(runs), tmp_path / "three.json")
    save_baseline(make_baseline(runs[::-1]), tmp_path / "four.json")
    assert (tmp_path / "three.json").read_bytes() == (tmp_path / "four.json").read_bytes()


def test_it_is_small() -> None:
    runs = [given_record(record(answers(14_042, 6000), groups=[f"s{i // 250}" for i in range(14_042)]), Path("x"))]
    assert len(make_baseline(runs).model_dump_json()) < 5000


def test_one_run_a_benchmark(tmp_path: Path) -> None:
    runs = [given_record(record(answers(9, 4), model=name), Path(name)) for name in ("a", "b")]
    with pytest.raises(UsageError, match="a and b are both runs on arc"):
        make_baseline(runs)
    with pytest.raises(UntrustedError, match="not trusted"):
        make_baseline([given_record(record("101", trusted=False), Path("x"))])


def entry(change: Any) -> Any:
    def apply(body: dict[str, Any]) -> Any:
        change(body["entries"][0])
        return body

    return apply


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: {**body, "schema": "llmc.baseline/2"}, "its schema is 'llmc.baseline/2'"),
        (lambda body: {**body, "schema": "llmc.run/1"}, "its schema is 'llmc.run/1'"),
        (lambda body: {}, "it has no schema"),
        (lambda body: [body], "it has no schema"),
        (lambda body: {**body, "entries": []}, "no run at all"),
        (lambda body: {**body, "extra": 1}, "extra"),
        (entry(lambda e: e.update(tasks=0)), "tasks"),
        (entry(lambda e: e.update(tasks=99)), "says 40 right|beyond its 99"),
        (entry(lambda e: e.update(tasks=500)), "answers for"),
        (entry(lambda e: e.update(correct=41)), "says 41 right and holds 40"),
        (entry(lambda e: e.update(correct=float("nan"))), "correct"),
        (entry(lambda e: e.update(answers="!!")), "not base64"),
        (entry(lambda e: e.update(answers="AA")), "not base64"),
        (entry(lambda e: e.pop("must")), "must"),
        (entry(lambda e: e["must"].update(bos="never")), "comparability key"),
        (entry(lambda e: e.update(key="00")), "comparability key"),
        (entry(lambda e: e["groups"].update(runs="0x3")), "groups are those of 3"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, change: Any, said: str) -> None:
    path = saved(tmp_path / "b.json")
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(InputFileError, match=said) as caught:
        open_baseline(path)
    assert str(path) in caught.value.what and "llmc baseline save" in caught.value.remedy


@pytest.mark.parametrize("cut", [0, 1, 100, -3])
def test_truncated_files_are_refused(tmp_path: Path, cut: int) -> None:
    path = saved(tmp_path / "b.json")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputFileError, match="not a whole JSON file"):
        load_baseline(path)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="cannot read the baseline"):
        load_baseline(tmp_path / "none.json")
    (tmp_path / "text").write_text("")
    with pytest.raises(InputFileError, match="cannot write"):
        saved(tmp_path / "text" / "b.json")
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    with pytest.raises(InputFileError, match="not a whole JSON file"):
        load_baseline(tmp_path / "bytes")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("place", ["bits_per_weight", "should"])
def test_numbers_that_are_none_are_refused(tmp_path: Path, number: str, place: str) -> None:
    made = record("1011", should={"layout": 4.25} if place == "should" else {})
    if place == "bits_per_weight":
        made = made.model_copy(update={"model": ModelIdentity(ref="m", bits_per_weight=4.25)})
    path = tmp_path / "b.json"
    save_baseline(make_baseline([given_record(made, Path("x"))]), path)
    open_baseline(path)
    path.write_text(path.read_text().replace("4.25", number))
    with pytest.raises(InputFileError) as caught:
        open_baseline(path)
    assert str(path) in caught.value.what and caught.value.remedy
