"""Files of others in and out again: nothing may be lost on the way."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import made_up_rows as made_up
from helpers import Cli
from llmc import mcbin
from llmc.benchmarks import export as exports
from llmc.benchmarks import manifest
from llmc.benchmarks.build import ensure_built
from llmc.benchmarks.importing import import_bin
from llmc.benchmarks.item import Item, ItemWriter, items_from_bin, items_path, read_items, to_task
from llmc.errors import FormatError, InputFileError, UsageError
from llmc.files import sha256_file

pytestmark = pytest.mark.usefixtures("own_cache")
RELAXED = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SECONDS = st.lists(st.tuples(TEXTS, st.sampled_from([0, 1])), max_size=5)


@st.composite
def tasks(draw: st.DrawFn) -> list[tuple[mcbin.Task, list[tuple[str, int]]]]:
    """Tasks, each with what its mc2 holds."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        options = tuple(draw(st.lists(TEXTS, min_size=2, max_size=6)))
        task = mcbin.Task(draw(TEXTS), options, draw(st.integers(0, len(options) - 1)))
        found.append((task, draw(SECONDS)))
    return found


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def choices(options: list[tuple[str, int]]) -> bytes:
    labels = struct.pack(f"<{len(options)}i", *(label for _, label in options))
    return struct.pack("<I", len(options)) + b"".join(text(option) for option, _ in options) + labels


def their_file(given: list[tuple[mcbin.Task, list[tuple[str, int]]]]) -> bytes:
    """A file as others write it, with a filled mc2 where there is one; written apart from llmc's own writer."""
    bodies = []
    for task, second in given:
        first = [(option, int(i == task.gold)) for i, option in enumerate(task.options)]
        bodies.append(text(task.question) + choices(first) + choices(second))
    offsets, at = [], 4 + 4 * len(bodies)
    for body in bodies:
        offsets.append(at)
        at += len(body)
    return struct.pack(f"<{1 + len(bodies)}I", len(bodies), *offsets) + b"".join(bodies)


@RELAXED
@given(given=tasks())
def test_importing_loses_nothing(tmp_path: Path, given: list[tuple[mcbin.Task, list[tuple[str, int]]]]) -> None:
    path, out = tmp_path / "theirs.bin", tmp_path / "out"
    path.write_bytes(their_file(given))
    entry = import_bin(path, out)
    mine = entry.bin_path(out)
    assert mcbin.read(mine) == [task for task, _ in given]
    items = list(read_items(items_path(mine)))
    assert [to_task(item) for item in items] == [task for task, _ in given]
    for item, (_, second) in zip(items, given, strict=True):
        kept = json.loads(item.attributes)["mc2"] if item.attributes else {"options": [], "labels": []}
        assert list(zip(kept["options"], kept["labels"], strict=True)) == second
    if not any(second for _, second in given):
        assert mine.read_bytes() == path.read_bytes()
    assert entry.source.files[0].sha256 == sha256_file(path)
    assert manifest.entry_for_bin(mine) == entry
    assert json.loads((out / "manifest.json").read_text())["benchmarks"]["theirs"]["source"]["via"] == "bin"


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (choices([("a", 2)]), "label 0 of mc2 is 2"),
        (choices([("", 1)]), "option 0 of mc2 is empty"),
        (struct.pack("<I", 101), "mc2 holds 101 options"),
        (struct.pack("<I", 3), "claims"),
        (b"", "the size of mc2"),
    ],
)
def test_a_wrong_mc2_is_refused_and_nothing_written(tmp_path: Path, second: bytes, words: str) -> None:
    good = their_file([(mcbin.Task("q", ("a", "b"), 0), [])])
    (tmp_path / "theirs.bin").write_bytes(good[:-4] + second + (b"\xff" * 12 if words == "claims" else b""))
    with pytest.raises(FormatError, match=words) as caught:
        import_bin(tmp_path / "theirs.bin", tmp_path / "out")
    assert caught.value.task == 0
    assert list((tmp_path / "out").iterdir()) == []


def test_only_mc2_is_read_leniently(tmp_path: Path) -> None:
    data = their_file([(mcbin.Task("q", ("a", "b"), 0), [("c", 1)])])
    (tmp_path / "theirs.bin").write_bytes(data + b"x")
    with pytest.raises(FormatError, match="1 bytes follow"):
        import_bin(tmp_path / "theirs.bin", tmp_path / "out")
    (tmp_path / "theirs.bin").write_bytes(data)
    with pytest.raises(FormatError, match="mc2 holds 1 options; it must be empty"):
        mcbin.read(tmp_path / "theirs.bin")


@pytest.mark.parametrize(
    ("options", "form"),
    [(("A", "B"), "letter"), (("A", "B", "C", "D"), "letter"), (("B", "A"), "text"), (("A", "C"), "text")],
)
def test_the_form_is_recognised(tmp_path: Path, options: tuple[str, ...], form: str) -> None:
    mcbin.write(tmp_path / "theirs.bin", [mcbin.Task("q", ("A", "B"), 0), mcbin.Task("q2", options, 1)])
    entry = import_bin(tmp_path / "theirs.bin", tmp_path / "out")
    assert (entry.form, entry.prompt_mode) == (form, form)


# Names


def test_names_of_the_catalogue_are_left_to_it(tmp_path: Path, small_specs: Path) -> None:
    mcbin.write(tmp_path / "boolq-validation.bin", [mcbin.Task("q", ("no", "yes"), 0)])
    entry = import_bin(tmp_path / "boolq-validation.bin", tmp_path / "out")
    assert entry.name == "boolq-validation.imported"
    for name in ("boolq-validation", "boolq"):
        with pytest.raises(UsageError, match="of the catalogue"):
            import_bin(tmp_path / "boolq-validation.bin", tmp_path / "out", name)


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "manifest", "a b"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    mcbin.write(tmp_path / "theirs.bin", [mcbin.Task("q", ("a", "b"), 0)])
    with pytest.raises(UsageError, match="cannot name a benchmark"):
        import_bin(tmp_path / "theirs.bin", tmp_path / "out", name)


def test_what_is_there_is_not_overwritten_with_less(tmp_path: Path, small_specs: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    theirs = out / "theirs.bin"
    theirs.write_bytes(their_file([(mcbin.Task("q", ("a", "b"), 0), [("c", 1)])]))
    with pytest.raises(UsageError, match="would be overwritten"):
        import_bin(theirs, out)
    assert mcbin.LenientReader(theirs).path.stat().st_size > 40
    mcbin.write(theirs, [mcbin.Task("q", ("a", "b"), 0)])
    before = theirs.read_bytes()
    assert import_bin(theirs, out).bin_path(out).read_bytes() == before
    assert import_bin(theirs, out).name == "theirs"
    ensure_built("boolq.sample3s0", out, source=made_up.write(tmp_path / "rows.jsonl", made_up.boolq()))
    with pytest.raises(UsageError):
        import_bin(theirs, out, "boolq-validation.sample3s0")


# Out again


@st.composite
def made_items(draw: st.DrawFn) -> list[Item]:
    found = []
    for index in range(draw(st.integers(1, 4))):
        continuations = tuple(draw(st.lists(TEXTS.map(lambda t: " " + t), min_size=2, max_size=4)))
        order = draw(st.none() | st.permutations(range(len(continuations))).map(tuple))
        found.append(
            Item(
                index,
                draw(TEXTS),
                draw(st.none() | TEXTS),
                draw(TEXTS),
                draw(st.none() | TEXTS),
                order,
                continuations,
                draw(st.integers(0, len(continuations) - 1)),
                draw(st.integers(-1, 9)),
                draw(st.none() | st.just('{"difficulty": "hard"}')),
            )
        )
    return found


class Made:
    """Stands in for a built benchmark."""

    def __init__(self, items: list[Item]) -> None:
        self.name, self.entry, self._items = "made-up.x", None, items

    def items(self) -> Any:
        return iter(self._items)


@RELAXED
@given(items=made_items())
def test_exports_hold_every_item(tmp_path: Path, items: list[Item]) -> None:
    source: Any = Made(items)
    assert exports.export(source, "jsonl", tmp_path / "x.jsonl") == len(items)
    assert exports.export(source, "parquet", tmp_path / "x.parquet") == len(items)
    assert list(read_items(tmp_path / "x.parquet")) == items
    with (tmp_path / "x.jsonl").open(encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    for row in rows:
        row["continuations"] = tuple(row["continuations"])
        row["option_order"] = None if row["option_order"] is None else tuple(row["option_order"])
        row["attributes"] = None if row["attributes"] is None else json.dumps(row["attributes"])
    assert [Item(**row) for row in rows] == items


@RELAXED
@given(items=made_items(), odd=st.booleans())
def test_an_lm_eval_task_asks_exactly_the_same(tmp_path: Path, items: list[Item], odd: bool) -> None:
    if odd:
        items[0].continuations = ("no space", *items[0].continuations[1:])
    source: Any = Made(items)
    assert exports.export(source, "lm-eval", tmp_path / "task") == len(items)
    task = yaml.safe_load((tmp_path / "task" / "made-up.x.yaml").read_text(encoding="utf-8"))
    # As the harness reads it: a column's name stands for the column, requests are (context, delimiter + choice).
    assert (task["task"], task["dataset_path"], task["output_type"]) == ("llmc_made_up_x", "json", "multiple_choice")
    assert (task["num_fewshot"], task["target_delimiter"]) == (0, "" if odd else " ")
    with Path(task["dataset_kwargs"]["data_files"][task["test_split"]]).open(encoding="utf-8") as stream:
        docs = [json.loads(line) for line in stream]
    requests = [
        (
            doc[task["doc_to_text"]],
            tuple(task["target_delimiter"] + choice for choice in doc[task["doc_to_choice"]]),
            doc[task["doc_to_target"]],
        )
        for doc in docs
    ]
    assert requests == [(item.context, item.continuations, item.gold) for item in items]


def test_json_lines_can_be_loaded_by_datasets(tmp_path: Path, small_specs: Path) -> None:
    """The loader that the harness uses reads the folder's data with the columns that the task names."""
    datasets = pytest.importorskip("datasets")
    out = tmp_path / "out"
    entry = ensure_built("arc-easy", out, source=made_up.write(tmp_path / "rows.jsonl", made_up.arc()))
    source = exports.Source("arc-easy", out)
    exports.export(source, "lm-eval", tmp_path / "task")
    task = yaml.safe_load((tmp_path / "task" / f"{entry.name}.yaml").read_text(encoding="utf-8"))
    loaded = datasets.load_dataset(
        task["dataset_path"], **task["dataset_kwargs"], cache_dir=str(tmp_path / "cache"), split=task["test_split"]
    )
    found = [mcbin.Task(doc["context"], tuple(doc["choices"]), doc["gold"]) for doc in loaded]
    assert found == mcbin.read(entry.bin_path(out))
    assert task["metadata"]["bin_sha256"] == entry.files["bin"].sha256


# The commands


def test_in_and_out_by_the_commands(tmp_path: Path, small_specs: Path, cli: Cli) -> None:
    path, out = tmp_path / "theirs.bin", tmp_path / "out"
    path.write_bytes(their_file([(mcbin.Task("q", ("a", "b"), 1), [("c", 1)])] * 3))
    called = cli("import", path, "--name", "ours", "--out", out)
    assert (called.code, "imported ours: 3 tasks" in called.out) == (0, True)
    assert "3 tasks carried a second set of options (mc2)" in called.out
    assert cli("verify", "--all", "--out", out).code == 0
    assert cli("inspect", out / "ours.bin").code == 0
    for form, name in (("jsonl", "ours.jsonl"), ("parquet", "ours.parquet"), ("lm-eval", "ours/ours.yaml")):
        called = cli("export", "ours", "--to", form, "--out", out, "--json")
        assert (called.code, called.data["items"]) == (0, 3)
        assert (out / "export" / name).is_file()
    called = cli("export", path, "--to", "jsonl", "--output", tmp_path / "x.jsonl")
    assert (called.code, "mc2 holds 1 options" in called.err) == (2, True)
    assert not (tmp_path / "x.jsonl").exists()
    bare = tmp_path / "bare.bin"
    mcbin.write(bare, [mcbin.Task("q", ("a", "b"), 1)])
    assert cli("export", bare, "--to", "parquet", "-o", tmp_path / "deep" / "x.parquet").code == 0
    assert list(read_items(tmp_path / "deep" / "x.parquet")) == list(items_from_bin(bare))


def test_a_changed_file_is_not_exported(tmp_path: Path, small_specs: Path) -> None:
    out = tmp_path / "out"
    entry = ensure_built("boolq", out, source=made_up.write(tmp_path / "rows.jsonl", made_up.boolq()))
    items_path(entry.bin_path(out)).write_bytes(b"changed")
    for name in ("boolq", str(entry.bin_path(out))):
        with pytest.raises(InputFileError, match="has changed since it was built"):
            exports.Source(name, out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "boolq", "--to", "jsonl"], "boolq-validation is not built"),
        (["export", "bolq", "--to", "jsonl"], "did you mean boolq"),
        (["export", "none.bin", "--to", "jsonl"], "no such file"),
        (["export", "boolq", "--to", "josnl"], "did you mean jsonl"),
        (["export", "FILE", "--to", "lm-eval", "-o", "FILE"], "an lm-eval task is a folder"),
        (["export", "FILE", "--to", "jsonl", "-o", "FOLDER"], "is a folder"),
        (["export", "FILE", "--to", "jsonl", "-o", "FILE/below"], "cannot write"),
        (["export", "FILE", "--to", "parquet", "-o", "/dev/full/x"], "cannot write"),
        (["import", "none.bin"], "No such file"),
        (["import", "FOLDER"], "is a directory"),
    ],
)
def test_what_cannot_be(tmp_path: Path, small_specs: Path, cli: Cli, words: list[str], message: str) -> None:
    file = tmp_path / "theirs.bin"
    mcbin.write(file, [mcbin.Task("q", ("a", "b"), 0)])
    named = [word.replace("FILE", str(file)).replace("FOLDER", str(tmp_path)) for word in words]
    called = cli(*named, "--out", tmp_path / "out")
    assert (called.code, message in called.err) == (2, True), called.err
    assert called.err.count("fix:") == 1


def test_a_full_disk_leaves_no_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ItemWriter, "_flush", full)
    monkeypatch.setattr(exports.json, "dumps", full)
    file = tmp_path / "theirs.bin"
    mcbin.write(file, [mcbin.Task("q", ("a", "b"), 0)])
    for form in exports.FORMATS:
        target = tmp_path / "to" / f"x.{form}"
        with pytest.raises(InputFileError, match="No space left") as caught:
            exports.export(exports.Source(str(file), tmp_path), form, target)
        assert "--output" in caught.value.remedy or "--out" in caught.value.remedy
        assert not [p for p in (tmp_path / "to").rglob("*") if p.is_file()]


def test_a_folder_that_may_not_be_written(
    tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        home.chmod(0o755)
        mcbin.write(home / "theirs.bin", [mcbin.Task("q", ("a", "b"), 0)])
        source = exports.Source(str(home / "theirs.bin"), home)
        (home / "closed").mkdir(mode=0o555)
        for form in exports.FORMATS:
            with as_nobody(), pytest.raises(InputFileError, match="Permission denied"):
                exports.export(source, form, home / "closed" / "x")
