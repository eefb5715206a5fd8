from __future__ import annotations

import errno
import json
import multiprocessing
import random
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

import made_up_rows as made_up
from hub_server import repo, serve
from llmc import mcbin
from llmc.benchmarks import build, manifest, names, subset
from llmc.benchmarks import spec as specs
from llmc.benchmarks.build import ensure_built, write_subset
from llmc.benchmarks.item import items_path, read_items, to_task
from llmc.benchmarks.manifest import entry_for_bin
from llmc.benchmarks.select import seeded_sample
from llmc.errors import FetchError, InputFileError, LlmcError, UsageError

pytestmark = pytest.mark.usefixtures("own_cache")


def rows_file(tmp_path: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:
    return made_up.write(tmp_path / name, rows)


def visible(out: Path) -> list[str]:
    return sorted(p.name for p in out.iterdir()) if out.exists() else []


FILES = ["boolq-validation.bin", "boolq-validation.items.parquet", "boolq-validation.json", "manifest.json"]


@pytest.mark.parametrize("name", sorted(made_up.ROWS))
def test_bin_items_and_entry_agree(tmp_path: Path, small_specs: Path, name: str) -> None:
    rows = made_up.ROWS[name](9)
    out = tmp_path / "out"
    entry = ensure_built(name, out, source=rows_file(tmp_path, rows))
    path = entry.bin_path(out)
    items = list(read_items(items_path(path)))
    facts = mcbin.scan(path)
    assert [to_task(item) for item in items] == mcbin.read(path)
    assert [item.index for item in items] == list(range(9))
    assert (entry.tasks, entry.options, entry.files["bin"].sha256) == (9, facts.widths, facts.sha256)
    assert entry.chance == pytest.approx(facts.chance)
    assert entry.majority.position == facts.majority_position
    assert entry.majority.share == facts.majority_share
    assert entry.form == entry.prompt_mode
    assert entry.shots == 0
    assert entry_for_bin(path) == entry
    data = json.loads((out / "manifest.json").read_text())
    assert data["schema"] == "llmc.manifest/1"
    assert data["benchmarks"][entry.name] == json.loads((out / f"{entry.name}.json").read_text())


def test_content_of_a_letter_file(tmp_path: Path, small_specs: Path) -> None:
    out = tmp_path / "out"
    ensure_built("commonsense-qa", out, source=rows_file(tmp_path, made_up.csqa(7)))
    tasks = mcbin.read(out / "commonsense-qa-validation.bin")
    assert tasks[6] == mcbin.Task(
        "Question: Which of these things is number 6?\n"
        "A. thing 30\nB. thing 31\nC. thing 32\nD. thing 33\nE. thing 34\nAnswer:",
        ("A", "B", "C", "D", "E"),
        1,
    )


def test_a_rebuild_is_byte_identical(tmp_path: Path, small_specs: Path) -> None:
    source = rows_file(tmp_path, made_up.arc(30))
    for out in (tmp_path / "one", tmp_path / "two"):
        ensure_built("arc-easy", out, source=source)
    ensure_built("arc-easy", tmp_path / "two", source=source, force=True)
    for name in visible(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def stamps(out: Path) -> dict[str, int]:
    return {p.name: p.stat().st_ino for p in out.glob("boolq*")}


def test_what_is_there_is_used_and_what_changed_is_built_again(tmp_path: Path, small_specs: Path) -> None:
    out, source = tmp_path / "out", rows_file(tmp_path, made_up.boolq())
    first = ensure_built("boolq", out, source=source)
    before = stamps(out)
    assert ensure_built("boolq", out) == first  # no Hub is asked
    assert ensure_built("boolq", out, source=source) == first
    assert stamps(out) == before
    for name in FILES[:2]:  # a byte of either file
        data = (out / name).read_bytes()
        (out / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert ensure_built("boolq", out, source=source) == first
        assert (out / name).read_bytes() == data
    other = rows_file(tmp_path, made_up.boolq(4), "other.jsonl")
    assert ensure_built("boolq", out, source=other).tasks == 4
    spec = small_specs / "boolq.yaml"
    spec.write_text(spec.read_text().replace("Answer:", "Reply:"))
    specs.load.cache_clear()
    again = ensure_built("boolq", out, source=other)
    assert "Reply:" in mcbin.read(again.bin_path(out))[0].question
    assert ensure_built("boolq", out, source=other, force=True) == again


# Refusals: by kind, and nothing left


def change(row: int, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    def apply(rows: list[dict[str, Any]]) -> None:
        rows[row].update(values)

    return apply


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (change(2, answerKey=""), "line 3 (id row0002) has no answer in answerKey"),
        (change(0, answerKey="F"), "line 1 (id row0000) has the answer 'F'"),
        (change(5, question=""), "line 6 (id row0005) has an empty question"),
        (change(1, question=17), "line 2 (id row0001) has 17 (a number) in question"),
        (change(3, choices={"label": ["A"], "text": ["x"]}), "has 1 options"),
        (change(3, choices={"label": list("ABC"), "text": ["x", "y", ""]}), "has an empty option 2"),
        (change(3, choices={"label": list("ABC"), "text": ["x"] * 3}), "options that are all 'x'"),
        (change(3, choices={"label": list("ABC"), "text": ["x", "y", 3]}), "has 3 (a number) in choices.text"),
        (change(3, choices=None), "has no choices.text"),
        (change(4, question="a \ud800 surrogate"), "line 5 (id row0004)"),
    ],
)
def test_rows_that_cannot_be_scored_are_named(
    tmp_path: Path, small_specs: Path, edit: Callable[[list[dict[str, Any]]], None], words: str
) -> None:
    rows = made_up.csqa()
    edit(rows)
    out = tmp_path / "out"
    with pytest.raises(InputFileError) as caught:
        ensure_built("commonsense-qa", out, source=rows_file(tmp_path, rows))
    assert "1 of 6 rows cannot be scored" in caught.value.what
    assert words in caught.value.what
    assert "--source" in caught.value.remedy
    assert visible(out) == []


def test_many_bad_rows_are_counted_and_the_first_named(tmp_path: Path, small_specs: Path) -> None:
    rows = made_up.csqa(60)
    for row in rows[10:40]:
        row["answerKey"] = ""
    with pytest.raises(InputFileError) as caught:
        ensure_built("commonsense-qa", tmp_path / "out", source=rows_file(tmp_path, rows))
    assert "30 of 60 rows" in caught.value.what
    assert "line 11 (id row0010)" in caught.value.what
    assert "row0029 and more" in caught.value.what


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('{"question": "q", "answer": true}\n', "no column 'passage'"),
        ('{"question": "q", "answr": true, "passage": "p"}\n', "did you mean answr"),
        ('{"question": \n', "line 1: not valid JSON"),
        ("", "is empty"),
    ],
)
def test_broken_sources_leave_nothing(tmp_path: Path, small_specs: Path, data: str, words: str) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text(data)
    with pytest.raises(InputFileError) as caught:
        ensure_built("boolq", tmp_path / "out", source=source)
    assert words in caught.value.what
    assert visible(tmp_path / "out") == []


def test_an_empty_split(tmp_path: Path, small_specs: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(made_up.boolq()).slice(0, 0)
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(InputFileError, match="there are no rows"):
        ensure_built("boolq", tmp_path / "out", source=tmp_path / "rows.parquet")
    assert visible(tmp_path / "out") == []


def test_a_failed_build_keeps_what_was_there(tmp_path: Path, small_specs: Path) -> None:
    out = tmp_path / "out"
    ensure_built("boolq", out, source=rows_file(tmp_path, made_up.boolq()))
    before = {name: (out / name).read_bytes() for name in visible(out)}
    bad = made_up.boolq()
    bad[-1]["answer"] = None
    with pytest.raises(InputFileError):
        ensure_built("boolq", out, source=rows_file(tmp_path, bad, "bad.jsonl"))
    assert {name: (out / name).read_bytes() for name in visible(out)} == before


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("stage", ["row", "items", "publish"])
def test_stopped_anywhere_nothing_is_half_written(
    tmp_path: Path, small_specs: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, stage: str
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise failure

    places: dict[str, tuple[object, str]] = {
        "row": (mcbin.Writer, "add"),
        "items": (build.ItemWriter, "_flush"),
        "publish": (manifest, "write_sidecar"),
    }
    monkeypatch.setattr(*places[stage], fail)
    out, source = tmp_path / "out", rows_file(tmp_path, made_up.boolq())
    with pytest.raises(KeyboardInterrupt if isinstance(failure, KeyboardInterrupt) else LlmcError) as caught:
        ensure_built("boolq", out, source=source)
    if isinstance(caught.value, LlmcError):
        assert "No space left" in caught.value.what
        assert "--out" in caught.value.remedy
    assert visible(out) == []


def test_a_full_disk_for_real(tmp_path: Path, small_specs: Path) -> None:
    """/dev/full refuses every byte: the items file is made to point there."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    path = tmp_path / "x.items.parquet"
    path.symlink_to("/dev/full")
    with pytest.raises(InputFileError, match="No space left"):
        subset.write_items(tmp_path / "x.bin", read_items_of(tmp_path))


def read_items_of(tmp_path: Path) -> Any:
    mcbin.write(tmp_path / "s.bin", [mcbin.Task("q", ("a", "b"), 0)])
    return subset.items_from_bin(tmp_path / "s.bin")


def test_a_file_where_the_folder_should_be(tmp_path: Path, small_specs: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputFileError, match="file") as caught:
        ensure_built("boolq", tmp_path / "file", source=rows_file(tmp_path, made_up.boolq()))
    assert "--out" in caught.value.remedy


def test_a_folder_that_may_not_be_written(
    small_specs: Path, monkeypatch: pytest.MonkeyPatch, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    # pytest's own folders are closed to others, so this one lies elsewhere.
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        monkeypatch.setenv("LLMC_CACHE", str(home / "cache"))
        target, source = names.parse("boolq"), rows_file(home, made_up.boolq())
        build.build(target, home / "free", source=source)
        for folder in (home, *(p for p in home.rglob("*") if p.is_dir())):
            folder.chmod(0o777)
        (home / "out").mkdir(mode=0o555)
        with as_nobody(), pytest.raises(InputFileError, match="Permission denied") as caught:
            build.build(target, home / "out", source=source)
        assert "--out" in caught.value.remedy
        assert visible(home / "out") == []


# Published counts


def test_published_counts_are_held_against_the_hub(hub_settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = specs.find("boolq")
    files = {"data/validation-00000-of-00001.parquet": made_up.parquet(made_up.boolq())}
    with serve({"datasets/google/boolq": repo(files, spec.source.revision)}) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(FetchError, match="6 tasks, the published split has 3270"):
            ensure_built("boolq", tmp_path / "out")
    assert visible(tmp_path / "out") == []


def test_ones_own_rows_are_built_and_the_difference_is_recorded(tmp_path: Path) -> None:
    entry = ensure_built("boolq", tmp_path / "out", source=rows_file(tmp_path, made_up.boolq()))
    (warned,) = [w for w in entry.warnings if w.kind == "not-as-published"]
    assert warned.detail == "6 tasks, the published split has 3270"


def test_from_the_hub_with_its_commit_in_the_manifest(
    hub_settings: pytest.MonkeyPatch, tmp_path: Path, small_specs: Path
) -> None:
    spec = specs.find("boolq")
    files = {"data/validation-00000-of-00001.parquet": made_up.parquet(made_up.boolq())}
    with serve({"datasets/google/boolq": repo(files, spec.source.revision)}) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        entry = ensure_built("boolq", tmp_path / "out")
    assert (entry.source.via, entry.source.revision) == ("hub", spec.source.revision)
    assert entry.licence == spec.licence


# Warnings


def test_odd_items_are_kept_and_named(tmp_path: Path, small_specs: Path) -> None:
    rows = made_up.arc(8)
    for row in rows:
        row["choices"] = {"text": ["one", "two", "three"], "label": list("ABC")}
        row["answerKey"] = "A"
    rows[1]["choices"]["text"] = ["same", "same", "other"]
    rows[2]["choices"]["text"] = ["same", "same", "other"]
    rows[2]["answerKey"] = "B"
    rows[3]["choices"]["text"] = ["cut it", "cut it up", "cut it down"]
    rows[4]["choices"]["text"] = [" one", "two", "three"]
    rows[5]["question"] = "Padded? "
    rows[6]["question"] = rows[0]["question"]
    rows[7]["id"] = rows[0]["id"]
    entry = ensure_built("arc-easy", tmp_path / "out", source=rows_file(tmp_path, rows))
    assert entry.tasks == 8
    assert {w.kind: w.ids for w in entry.warnings} == {
        "duplicate-options": ("Made_1", "Made_2"),
        "gold-behind-twin": ("Made_2",),
        "option-prefix": ("Made_3",),
        "whitespace": ("Made_4", "Made_5"),
        "repeated-question": ("Made_6",),
        "repeated-id": ("Made_0",),
    }
    texts = mcbin.read(entry.bin_path(tmp_path / "out"))
    assert texts[4].options[0] == " one"
    assert texts[5].question == "Question: Padded? \nAnswer:"


def test_questions_of_another_split_are_named(tmp_path: Path, small_specs: Path) -> None:
    out = tmp_path / "out"
    ensure_built("boolq-train", out, source=rows_file(tmp_path, made_up.boolq(5)))
    other = made_up.boolq(9)[3:]
    other[0]["answer"] = not other[0]["answer"]  # the question is what counts
    entry = ensure_built("boolq-validation@lm-eval", out, source=rows_file(tmp_path, other, "other.jsonl"))
    assert [(w.kind, w.count, w.detail) for w in entry.warnings] == [
        ("shared-with-train", 2, "2 questions are also asked in boolq-train")
    ]
    own = ensure_built("boolq-train@lm-eval", out, source=rows_file(tmp_path, made_up.boolq(5)))
    assert [w.kind for w in own.warnings] == ["shared-with-validation"]
    alone = ensure_built("boolq-validation", tmp_path / "elsewhere", source=tmp_path / "other.jsonl")
    assert alone.warnings == ()


def test_a_letter_file_has_no_prefix_hazard(tmp_path: Path, small_specs: Path) -> None:
    rows = made_up.csqa(1)
    rows[0]["choices"]["text"] = ["a", "ab", "ac", "ad", "ae"]
    assert ensure_built("commonsense-qa", tmp_path / "out", source=rows_file(tmp_path, rows)).warnings == ()


# Rows that a spec leaves out, keeps or fills in


def changed(folder: Path, name: str, **values: Any) -> None:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values, sort_keys=False))
    specs.load.cache_clear()


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        ("unlabelled", change(2, answerKey="")),
        ("unlabelled", change(2, answerKey=None)),
        ("wrong-answer", change(2, answerKey="Z")),
        ("empty-question", change(2, question=" ")),
        ("options", change(2, choices={"label": ["A"], "text": ["x"]})),
        ("equal-options", change(2, choices={"label": list("ABC"), "text": ["x"] * 3})),
    ],
)
def test_rows_are_left_out_only_with_a_reason(
    tmp_path: Path, small_specs: Path, kind: str, edit: Callable[[list[dict[str, Any]]], None]
) -> None:
    rows = made_up.csqa(5)
    edit(rows)
    source = rows_file(tmp_path, rows)
    changed(small_specs, "commonsense-qa", leave_out={"empty-question" if kind != "empty-question" else "options": "x"})
    with pytest.raises(InputFileError, match="row0002"):
        ensure_built("commonsense-qa", tmp_path / "out", source=source)
    changed(small_specs, "commonsense-qa", leave_out={kind: "the authors do not count it"})
    entry = ensure_built("commonsense-qa", tmp_path / "out", source=source)
    assert entry.tasks == 4
    (warned,) = entry.warnings
    assert (warned.kind, warned.ids) == (f"left-out-{kind}", ("row0002",))
    assert warned.detail == "1 rows are left out: the authors do not count it"
    items = list(read_items(items_path(entry.bin_path(tmp_path / "out"))))
    assert [(item.index, item.source_row) for item in items] == [(0, 0), (1, 1), (2, 3), (3, 4)]


def test_all_rows_left_out_is_an_error(tmp_path: Path, small_specs: Path) -> None:
    rows = made_up.csqa(3)
    for row in rows:
        row["answerKey"] = ""
    changed(small_specs, "commonsense-qa", leave_out={"unlabelled": "no answers"})
    with pytest.raises(InputFileError, match="all 3 rows are left out"):
        ensure_built("commonsense-qa", tmp_path / "out", source=rows_file(tmp_path, rows))
    assert visible(tmp_path / "out") == []


def test_equal_options_stay_in_letter_form_where_the_spec_says_so(tmp_path: Path, small_specs: Path) -> None:
    rows = made_up.csqa(3)
    rows[1]["choices"]["text"] = ["same"] * 5
    source = rows_file(tmp_path, rows)
    changed(small_specs, "commonsense-qa", equal_options="published figures count it")
    letter = ensure_built("commonsense-qa", tmp_path / "out", source=source)
    assert letter.tasks == 3
    assert {w.kind: w.ids for w in letter.warnings}["equal-options"] == ("row0001",)
    text = ensure_built("commonsense-qa@olmes-rc", tmp_path / "out", source=source)
    assert text.tasks == 2
    assert {w.kind: w.ids for w in text.warnings} == {"left-out-equal-options": ("row0001",)}


def test_a_missing_question_is_filled_in(tmp_path: Path) -> None:
    known = specs.find("careqa-en").fill["question"]
    (row_id,) = known
    rows = [
        {
            "unique_id": name,
            "category": "Biology",
            "question": text,
            "op1": "a",
            "op2": "b",
            "op3": "c",
            "op4": "d",
            "cop": 4,
        }
        for name, text in (("x", "Q?"), (row_id, None), ("y", None))
    ]
    entry = ensure_built("careqa-en", tmp_path / "out", source=rows_file(tmp_path, rows[:2]))
    task = mcbin.read(entry.bin_path(tmp_path / "out"))[1]
    assert task.question == f"Question: {known[row_id]}\nA. a\nB. b\nC. c\nD. d\nAnswer:"
    with pytest.raises(InputFileError, match=r"\(id y\) has no question"):
        ensure_built("careqa-en", tmp_path / "other", source=rows_file(tmp_path, rows, "all.jsonl"))


# Options in another order


def test_shuffled_options(tmp_path: Path, small_specs: Path) -> None:
    rows = [
        {"question": f"q{i}", "mc1_targets": {"choices": [f"{k}{i}" for k in "abcdef"], "labels": [1, 0, 0, 0, 0, 0]}}
        for i in range(40)
    ]
    out = tmp_path / "out"
    entry = ensure_built("truthfulqa-mc1", out, source=rows_file(tmp_path, rows))
    items = list(read_items(items_path(entry.bin_path(out))))
    for i, item in enumerate(items):
        order = list(range(6))
        random.Random(i).shuffle(order)
        assert item.option_order == tuple(order)
        assert item.continuations == tuple(f" {'abcdef'[place]}{i}" for place in order)
        assert item.continuations[item.gold] == f" a{i}"
    assert len({item.gold for item in items}) == 6
    assert entry.majority.share < 0.5


def test_a_protocol_s_own_order(tmp_path: Path, small_specs: Path) -> None:
    out = tmp_path / "out"
    entry = ensure_built("boolq@olmes", out, source=rows_file(tmp_path, made_up.boolq(6)))
    tasks = mcbin.read(entry.bin_path(out))
    assert tasks[0].question.endswith("\n A. yes\n B. no\nAnswer:")
    assert [task.gold for task in tasks] == [0 if row["answer"] else 1 for row in made_up.boolq(6)]


# Samples and subsets


def test_a_sample_is_seeded_stable_and_nested(tmp_path: Path, small_specs: Path) -> None:
    out, source = tmp_path / "out", rows_file(tmp_path, made_up.boolq(40))
    entry = ensure_built("boolq.sample10s3", out, source=source)
    ids = [item.id for item in read_items(items_path(entry.bin_path(out)))]
    assert ids == [f"validation-{i}" for i in seeded_sample(40, 10, 3)]
    assert entry.selection is not None
    assert (entry.selection["tasks"], entry.selection["of"], entry.selection["seed"]) == (10, 40, 3)
    assert set(seeded_sample(40, 5, 3)) < set(seeded_sample(40, 10, 3))
    assert seeded_sample(40, 10, 3) != seeded_sample(40, 10, 4)
    assert ensure_built("boolq.sample40s3", out, source=source).name == "boolq-validation"


def test_subset_keeps_ids_order_and_origin(tmp_path: Path, small_specs: Path) -> None:
    out = tmp_path / "out"
    whole = ensure_built("commonsense-qa", out, source=rows_file(tmp_path, made_up.csqa(9)))
    for given in (whole.bin_path(out), out / f"{whole.name}.json"):
        part = write_subset(given, [7, 0, 3], "part", out, {"kind": "mine"})
        items = list(read_items(items_path(part.bin_path(out))))
        assert [item.id for item in items] == ["row0007", "row0000", "row0003"]
        assert [item.index for item in items] == [0, 1, 2]
        assert [item.source_row for item in items] == [7, 0, 3]
        tasks = mcbin.read(whole.bin_path(out))
        assert mcbin.read(part.bin_path(out)) == [tasks[7], tasks[0], tasks[3]]
        assert (part.benchmark, part.form, part.licence) == (whole.benchmark, whole.form, whole.licence)
        assert (part.tasks, part.selection) == (3, {"kind": "mine"})
        assert entry_for_bin(part.bin_path(out)) == part


def test_an_equal_subset_is_not_written_twice(tmp_path: Path, small_specs: Path) -> None:
    out = tmp_path / "out"
    whole = ensure_built("boolq", out, source=rows_file(tmp_path, made_up.boolq()))
    path = whole.bin_path(out)
    part = write_subset(path, [1, 2], "part", out, {})
    inode = part.bin_path(out).stat().st_ino
    assert write_subset(path, [1, 2], "part", out, {}) == part
    assert part.bin_path(out).stat().st_ino == inode
    assert write_subset(path, [2, 1], "part", out, {}).files != part.files


def test_subset_of_a_bare_file(tmp_path: Path) -> None:
    tasks = [mcbin.Task(f"q{i}", ("a", "b", " c"), i % 3) for i in range(5)]
    mcbin.write(tmp_path / "foreign.bin", tasks)
    entry = write_subset(tmp_path / "foreign.bin", [4, 1], "foreign.sample2s0", tmp_path / "out", {"seed": 0})
    assert mcbin.read(entry.bin_path(tmp_path / "out")) == [tasks[4], tasks[1]]
    assert [i.id for i in read_items(items_path(entry.bin_path(tmp_path / "out")))] == ["4", "1"]
    assert (entry.benchmark, entry.source.via) == (None, "bin")


def test_subset_warnings_name_its_own_items_only(tmp_path: Path, small_specs: Path) -> None:
    rows = made_up.boolq(4)
    rows[1]["question"] += " "
    rows[3]["question"] += " "
    out = tmp_path / "out"
    whole = ensure_built("boolq", out, source=rows_file(tmp_path, rows))
    part = write_subset(whole.bin_path(out), [0, 3], "part", out, {})
    assert [(w.kind, w.ids) for w in part.warnings] == [("whitespace", ("validation-3",))]


@pytest.mark.parametrize("indices", [[], [0, 0], [-1], [6], [0, 99]])
def test_impossible_subsets(tmp_path: Path, small_specs: Path, indices: list[int]) -> None:
    out = tmp_path / "out"
    whole = ensure_built("boolq", out, source=rows_file(tmp_path, made_up.boolq()))
    with pytest.raises(UsageError):
        write_subset(whole.bin_path(out), indices, "part", out, {})
    assert not (out / "part.bin").exists()


def test_subset_of_files_that_do_not_belong_together(tmp_path: Path, small_specs: Path) -> None:
    out = tmp_path / "out"
    whole = ensure_built("boolq", out, source=rows_file(tmp_path, made_up.boolq()))
    path = whole.bin_path(out)
    mcbin.write(path, [mcbin.Task("other", ("a", "b"), 0)] * 6)
    with pytest.raises(InputFileError, match="is not the file that"):
        write_subset(path, [0], "part", out, {})
    (out / "boolq-validation.json").unlink()
    with pytest.raises(InputFileError, match="is not the task in"):
        write_subset(path, [0], "part", out, {})
    items_path(path).unlink()
    assert write_subset(path, [0], "part", out, {}).tasks == 1


def _build_in_process(arguments: tuple[Path, Path, Path]) -> str:
    folder, out, source = arguments
    specs.configs_dir = lambda *parts: folder  # type: ignore[assignment]
    return ensure_built("boolq", out, source=source, force=True).files["bin"].sha256


def test_builders_at_once_leave_one_whole_result(tmp_path: Path, small_specs: Path) -> None:
    out, source = tmp_path / "out", rows_file(tmp_path, made_up.boolq(200))
    with multiprocessing.get_context("fork").Pool(3) as pool:
        digests = pool.map(_build_in_process, [(small_specs, out, source)] * 6)
    assert len(set(digests)) == 1
    assert visible(out) == FILES
    assert manifest.mismatch(manifest.lookup(out, "boolq-validation"), out) == ""
