from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import made_up_rows as made_up
from helpers import Cli
from llmc import mcbin
from llmc.benchmarks import evidence, manifest, names, schema
from llmc.benchmarks.adapters import ADAPTERS, RowProblem
from llmc.benchmarks.build import ensure_built, write_subset
from llmc.benchmarks.item import Item, ItemWriter, items_path, read_items, to_task
from llmc.benchmarks.readings import READINGS
from llmc.benchmarks.select import like_llama
from llmc.benchmarks.verify import Verification, verify_built, verify_file
from llmc.benchmarks.worked import worked_examples
from llmc.errors import InputFileError, UsageError
from llmc.files import sha256_file

pytestmark = pytest.mark.usefixtures("own_cache")


def built(folder: Path, name: str, rows: list[dict[str, Any]] | None = None, suffix: str = "jsonl") -> Path:
    """Build made-up rows of a benchmark and return the .bin."""
    source = made_up.write(folder / f"rows.{suffix}", made_up.ROWS[name](9) if rows is None else rows)
    return ensure_built(name, folder / "out", source=source).bin_path(folder / "out")


def verify(path: Path) -> Verification:
    return verify_built(path.name.removesuffix(".bin"), path.parent)


def rewrite(path: Path, items: list[Item]) -> None:
    """Write other items as if they had been built: .bin, items and sidecar agree, so only the source tells."""
    with mcbin.Writer(path) as binary, ItemWriter(items_path(path)) as writer:
        for item in items:
            binary.add(to_task(item))
            writer.add(item)
    sidecar = path.with_suffix(".json")
    data = json.loads(sidecar.read_text())
    facts = mcbin.scan(path)
    for record in data["files"].values():
        record["sha256"] = sha256_file(path.parent / record["name"])
        record["bytes"] = (path.parent / record["name"]).stat().st_size
    data |= {"tasks": facts.tasks, "options": facts.widths, "chance": facts.chance}
    data["majority"] = {"position": facts.majority_position, "share": facts.majority_share}
    sidecar.write_text(json.dumps(data))
    manifest.regenerate(path.parent)


@pytest.mark.parametrize("name", sorted(made_up.ROWS))
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_what_was_built_is_verified(tmp_path: Path, small_specs: Path, name: str, suffix: str) -> None:
    result = verify(built(tmp_path, name, suffix=suffix))
    assert (result.problems, result.tasks, result.right) == ([], 9, True)
    assert result.against == str(tmp_path / f"rows.{suffix}")


def test_odd_rows_are_verified_as_published(tmp_path: Path, small_specs: Path) -> None:
    rows = made_up.csqa()
    rows[0]["question"] = "  {braces} %s and \u2028 odd\nlines  "
    rows[1]["choices"]["text"] = ["same", "same", "A. ", "Answer:", "\u00e9"]
    result = verify(built(tmp_path, "commonsense-qa", rows))
    assert result.problems == []


# One change at a time, in everything that was built: only the source can tell


def swap_tasks(items: list[Item]) -> list[Item]:
    return [items[0], replace(items[3], index=1), items[2], replace(items[1], index=3), *items[4:]]


def edit(index: int, **values: Any) -> Callable[[list[Item]], list[Item]]:
    return lambda items: [replace(item, **values) if item.index == index else item for item in items]


def in_context(index: int, old: str, new: str) -> Callable[[list[Item]], list[Item]]:
    def apply(items: list[Item]) -> list[Item]:
        assert old in items[index].context
        return edit(index, context=items[index].context.replace(old, new))(items)

    return apply


@pytest.mark.parametrize(
    ("name", "change", "task", "words"),
    [
        ("commonsense-qa", edit(4, gold=0), 4, "option 0 ('thing 20') is marked correct, expected option 4"),
        ("commonsense-qa", edit(2, continuations=(" A", " C", " B", " D", " E")), 2, "options are in another order"),
        ("commonsense-qa", edit(2, continuations=(" A", " B", " C", " D", " e")), 2, "option 4 is 'e', expected 'E'"),
        ("commonsense-qa", edit(2, continuations=(" A", " B", " C", " D")), 2, "there are 4 options, expected 5"),
        ("commonsense-qa", in_context(5, "D. ", "E. "), 5, "wrong at the line of D, character"),
        ("commonsense-qa", in_context(5, "thing 27", "thing 28"), 5, "wrong at option C, character"),
        ("commonsense-qa", in_context(5, "number 5", "number 6"), 5, "wrong at the question, character"),
        ("commonsense-qa", in_context(5, "Question:", "question:"), 5, "wrong at the scaffold, character 0"),
        ("commonsense-qa", in_context(5, "Answer:", "Answer: "), 5, "wrong at its end"),
        ("commonsense-qa", in_context(5, "\nAnswer:", "\nAnswer"), 5, "found the end of the text"),
        ("commonsense-qa", swap_tasks, 1, "wrong at the question"),
        ("commonsense-qa", lambda items: items[:-1], 8, "the .bin ends before this task"),
        ("commonsense-qa", lambda items: [*items, replace(items[0], index=9)], None, "1 tasks too many"),
        ("commonsense-qa", edit(3, id="other"), 3, "the item's id is 'other', expected 'row0003'"),
        ("commonsense-qa", edit(3, source_row=7), 3, "the item's source_row is 7, expected 3"),
        ("commonsense-qa", edit(3, group="x"), 3, "the item's group is 'x', expected None"),
        ("arc-easy", edit(1, continuations=(" iron 1", " light 1", " music 1", " salt 1")), 1, "in another order"),
        ("arc-easy", edit(1, continuations=(" light 1", " iron 1", " musik 1", " salt 1")), 1, "option 2 is 'musik 1'"),
        ("arc-easy", edit(1, option_order=(1, 0, 2, 3)), 1, "option_order is (1, 0, 2, 3), expected None"),
        ("boolq", edit(2, gold=0), 2, "option 0 ('no') is marked correct, expected option 1 ('yes')"),
        ("boolq", in_context(2, "Kettle 2 was", "Kettle 2  was"), 2, "wrong at the passage"),
    ],
)
def test_a_single_change_is_found_and_named(
    tmp_path: Path,
    small_specs: Path,
    name: str,
    change: Callable[[list[Item]], list[Item]],
    task: int | None,
    words: str,
) -> None:
    path = built(tmp_path, name)
    rewrite(path, change(list(read_items(items_path(path)))))
    result = verify(path)
    assert not result.right
    first = result.problems[0]
    assert (first.task, words in first.sentence) == (task, True), first.sentence
    assert {problem.task for problem in result.problems} <= {task, 3 if change is swap_tasks else task, None}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever byte of the .bin is another one, also where the sidecar has the new checksum."""
    original, path = _example(tmp_path_factory)
    changed = bytearray(original)
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(changed))
    sidecar = path.with_suffix(".json")
    before = sidecar.read_text()
    try:
        assert not verify(path).right
        record = json.loads(before)
        record["files"]["bin"]["sha256"] = sha256_file(path)
        sidecar.write_text(json.dumps(record))
        manifest.regenerate(path.parent)
        result = verify(path)
        assert not result.right
        assert all("SHA-256" not in problem.what for problem in result.problems)
    finally:
        sidecar.write_text(before)
        path.write_bytes(original)
        manifest.regenerate(path.parent)


_made: list[tuple[bytes, Path]] = []


def _example(factory: pytest.TempPathFactory) -> tuple[bytes, Path]:
    if not _made:
        path = built(factory.mktemp("example"), "arc-easy", made_up.arc(12))
        _made.append((path.read_bytes(), path))
    return _made[0]


# Samples, sources, and files that cannot be held against a source


def test_samples_and_llamas_own_selection_are_verified(tmp_path: Path, small_specs: Path) -> None:
    path = built(tmp_path, "boolq", made_up.boolq(40))
    out, source = path.parent, tmp_path / "rows.jsonl"
    ensure_built("boolq.sample10s3", out, source=source)
    picked = like_llama(40, 7)
    write_subset(path, picked, "boolq-validation.llama7", out, {"kind": "like-llama", "tasks": 7, "of": 40})
    for name, tasks in (("boolq-validation.sample10s3", 10), ("boolq-validation.llama7", 7)):
        result = verify_built(name, out, source)
        assert (result.problems, result.tasks) == ([], tasks)
    part = out / "boolq-validation.llama7.bin"
    assert verify_built("boolq-validation.llama7", out, source).fix.startswith(f"rm {part} ")
    rewrite(part, swap_tasks(list(read_items(items_path(part)))))
    assert [problem.task for problem in verify_built("boolq-validation.llama7", out, source).problems][::3] == [1, 1, 3]
    write_subset(path, [1, 2], "boolq-validation.sample2s9", out, {"kind": "my own"})
    with pytest.raises(UsageError, match="a selection of its own"):
        verify_built("boolq-validation.sample2s9", out, source)


def test_a_file_of_other_rows_is_wrong_from_there_on(tmp_path: Path, small_specs: Path) -> None:
    path = built(tmp_path, "boolq", made_up.boolq(50))
    rows = made_up.boolq(50)
    other = made_up.write(tmp_path / "other.jsonl", [rows[0], *rows[2:]])
    result = verify_built("boolq-validation", path.parent, other)
    assert result.problems[0].task == 1
    assert len(result.problems) == 20
    assert result.count > 49
    assert "the source's files are not those" in result.notes[0]
    assert (
        "the .bin goes on after the source's last row"
        in verify_built("boolq-validation", path.parent, made_up.write(tmp_path / "short.jsonl", rows[:-1]))
        .problems[-2]
        .what
    )


@pytest.mark.parametrize("answer", ["Z", "", None, 3, "AB"])
def test_a_source_that_says_nothing_is_not_held_against_the_file(
    tmp_path: Path, small_specs: Path, answer: object
) -> None:
    path = built(tmp_path, "commonsense-qa")
    rows = made_up.csqa(9)
    rows[4]["answerKey"] = answer  # type: ignore[assignment]
    other = made_up.write(tmp_path / "other.jsonl", rows)
    with pytest.raises(InputFileError, match=r"other\.jsonl line 5 has (the|no) answer"):
        verify_built("commonsense-qa-validation", path.parent, other)


def test_not_built_and_not_known(tmp_path: Path, small_specs: Path) -> None:
    with pytest.raises(UsageError, match="boolq-validation is not built"):
        verify_built("boolq", tmp_path)
    with pytest.raises(UsageError, match="did you mean boolq"):
        verify_built("bolq", tmp_path)
    path = built(tmp_path, "boolq")
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(InputFileError, match="no such file"):
        verify(path)


# The files themselves


def test_a_damaged_file_is_wrong_not_a_usage_error(tmp_path: Path, small_specs: Path) -> None:
    path = built(tmp_path, "boolq")
    path.write_bytes(path.read_bytes()[:-3])
    result = verify(path)
    assert "task 8" in result.problems[0].what or result.problems[0].task == 8
    assert any("SHA-256" in problem.what for problem in result.problems)
    path.unlink()
    assert any("cannot read" in problem.what for problem in verify(path).problems)


@pytest.mark.parametrize("damage", ["missing", "garbage", "other columns"])
def test_a_damaged_items_file_is_wrong(tmp_path: Path, small_specs: Path, damage: str) -> None:
    path = built(tmp_path, "boolq")
    items = items_path(path)
    if damage == "missing":
        items.unlink()
    elif damage == "garbage":
        items.write_bytes(items.read_bytes()[:200])
    else:
        items.write_bytes(made_up.parquet(made_up.boolq()))
    result = verify(path)
    assert not result.right
    assert any(items.name in problem.what for problem in result.problems)


def test_counts_of_the_sidecar_are_checked(tmp_path: Path, small_specs: Path) -> None:
    path = built(tmp_path, "boolq")
    sidecar = path.with_suffix(".json")
    sidecar.write_text(sidecar.read_text().replace('"tasks": 9', '"tasks": 8'))
    manifest.regenerate(path.parent)
    assert [p.what for p in verify(path).problems] == ["boolq-validation.json records tasks as 8, the file holds 9"]


def test_a_file_by_its_path(tmp_path: Path, small_specs: Path) -> None:
    path = built(tmp_path, "boolq")
    assert verify_file(path).right
    data = bytearray(path.read_bytes())
    data[-12] ^= 1
    path.write_bytes(bytes(data))
    result = verify_file(path)
    assert [bool(p.what) for p in result.problems] == [True, True]
    assert "marked correct" in result.problems[0].what
    assert "SHA-256" in result.problems[1].what


@pytest.mark.parametrize(
    "shape",
    [
        lambda name, digest: {"files": [{"file": name, "sha256": digest}]},
        lambda name, digest: {name: {"sha256": digest.upper(), "tasks": 3}},
        lambda name, digest: {"benchmarks": {name.removesuffix(".bin"): {"sha256": digest}}},
        lambda name, digest: [{"path": f"out/{name}", "sha256": digest}, {"path": "x.bin", "sha256": "0" * 64}],
        lambda name, digest: {"sha256": {name: digest}},
    ],
)
def test_a_file_against_a_manifest_of_others(tmp_path: Path, shape: Callable[[str, str], Any]) -> None:
    path = tmp_path / "theirs-test.bin"
    mcbin.write(path, [mcbin.Task("q", ("a", "b"), 0)] * 3)
    (tmp_path / "manifest.json").write_text(json.dumps(shape(path.name, sha256_file(path))))
    assert verify_file(path).right
    mcbin.write(path, [mcbin.Task("q", ("a", "b"), 1)] * 3)
    assert ["SHA-256" in problem.what for problem in verify_file(path).problems] == [True]


@pytest.mark.parametrize("text", ["", "[1", "{}", '{"theirs.bin": {"sha256": "short"}}', "[" * 100_000])
def test_a_file_that_nothing_describes(tmp_path: Path, text: str) -> None:
    path = tmp_path / "theirs.bin"
    mcbin.write(path, [mcbin.Task("q", ("a", "b"), 0)])
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputFileError, match="nothing beside"):
        verify_file(path)


def in_sidecar(path: Path, name: str, where: str, value: object, *, also_listed: bool) -> None:
    """Change one value of a record, as ``files.bin.bytes`` names it, and of the list of all where that is asked."""
    sidecar = path.parent / f"{name}.json"
    data = json.loads(sidecar.read_text())
    *outer, last = where.split(".")
    here = data
    for key in outer:
        here = here[key]
    assert here[last] != value
    here[last] = value
    sidecar.write_text(json.dumps(data))
    if also_listed:
        listed = path.parent / "manifest.json"
        whole = json.loads(listed.read_text())
        whole["benchmarks"][name] = data
        listed.write_text(json.dumps(whole))


@pytest.mark.parametrize("also_listed", [True, False])
@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ("name", "arc-easy-test", "the name arc-easy-test"),
        ("benchmark", "arc-challenge", "what is called arc-challenge-validation"),
        ("split", "test", "what is called arc-easy-test"),
        ("protocol", "llama-mc", "what is called arc-easy-validation@llama-mc"),
        ("form", "letter", "form as 'letter', expected 'text'"),
        ("prompt_mode", "letter", "prompt_mode as 'letter', expected 'text'"),
        ("option_seed", 7, "option_seed as 7, expected None"),
        ("licence", "none", "licence as 'none'"),
        ("tasks", 8, "tasks as 8"),
        ("chance", 0.5, "chance as 0.5"),
        ("files.bin.bytes", 1, "as 1 bytes"),
        ("files.items.bytes", 1, "as 1 bytes"),
        ("files.bin.sha256", "0" * 64, "expected 0000"),
        ("files.bin.name", "other.bin", "records the file other.bin"),
    ],
)
def test_a_changed_record_is_found(
    tmp_path: Path, small_specs: Path, where: str, value: object, words: str, also_listed: bool
) -> None:
    path = built(tmp_path, "arc-easy")
    in_sidecar(path, "arc-easy-validation", where, value, also_listed=also_listed)
    result = verify(path)
    assert not result.right
    told = " ".join(problem.sentence for problem in result.problems)
    assert words in told, told
    if not also_listed:
        assert f"disagree on {where}" in told, told


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda listed: listed["boolq-validation"]["files"]["bin"].update(sha256="0" * 64), "on files.bin.sha256"),
        (lambda listed: listed["boolq-validation"].update(tasks=8), "disagree on tasks"),
        (lambda listed: listed.pop("boolq-validation"), "does not list boolq-validation"),
    ],
)
def test_the_list_of_all_is_held_against_the_record(
    tmp_path: Path, small_specs: Path, change: Callable[[Any], Any], words: str
) -> None:
    path = built(tmp_path, "boolq")
    listed = path.parent / "manifest.json"
    data = json.loads(listed.read_text())
    change(data["benchmarks"])
    listed.write_text(json.dumps(data))
    for result in (verify(path), verify_file(path)):
        assert [words in problem.what for problem in result.problems] == [True]
    listed.write_text("{")
    assert ["is damaged" in problem.what for problem in verify(path).problems] == [True]


def test_warnings_are_held_against_the_list_of_all(tmp_path: Path, small_specs: Path) -> None:
    path = built(tmp_path, "boolq")
    made_up_one = [{"kind": "made-up", "count": 3, "ids": [], "detail": ""}]
    in_sidecar(path, "boolq-validation", "warnings", made_up_one, also_listed=False)
    assert ["disagree on warnings" in problem.what for problem in verify(path).problems] == [True]


def test_more_worked_examples_than_there_are(tmp_path: Path, small_specs: Path) -> None:
    source = made_up.write(tmp_path / "rows.jsonl", made_up.csqa(4))
    path = ensure_built(FEW_SHOT, tmp_path / "out", source=source).bin_path(tmp_path / "out")
    in_sidecar(path, path.name[:-4], "shots", 6, also_listed=True)
    (problem,) = verify(path).problems
    assert "what is called commonsense-qa-validation@olmes-6shot" in problem.what
    target = replace(names.parse(FEW_SHOT), shots=99)
    with pytest.raises(InputFileError, match="needs") as caught:
        worked_examples(target, None)
    assert "--shots" in caught.value.remedy


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "llmc.manifest-entry/1"}', "[" * 100_000])
def test_a_damaged_sidecar_is_named(tmp_path: Path, small_specs: Path, cli: Cli, text: str) -> None:
    path = built(tmp_path, "boolq")
    path.with_suffix(".json").write_text(text)
    for words in (["--all"], ["boolq"], ["boolq-validation"], [str(path)]):
        called = cli("verify", *words, "--out", path.parent)
        assert called.code == 2, (words, called.out)
        assert "boolq-validation.json is damaged" in called.out + called.err


def test_what_is_not_whole_is_not_passed_over(tmp_path: Path, small_specs: Path, cli: Cli) -> None:
    path = built(tmp_path, "boolq")
    out = path.parent
    sidecar = path.with_suffix(".json")
    saved = sidecar.read_text()
    sidecar.unlink()
    called = cli("verify", "--all", "--out", out)
    assert (called.code, "boolq-validation.json, the record of" in called.out + called.err) == (2, True)
    path.rename(tmp_path / "kept.bin")
    called = cli("verify", "--all", "--out", out)
    assert (called.code, "lists boolq-validation, but there are no files" in called.out + called.err) == (2, True)
    (tmp_path / "kept.bin").rename(path)
    sidecar.write_text(saved)
    (out / "stray.bin").write_bytes(path.read_bytes())
    called = cli("verify", "--all", "--out", out)
    assert (called.code, "stray" in called.out, "verified   boolq-validation" in called.out) == (2, True, True)


# The command


def test_the_command_says_what_is_wrong_and_exits_3(tmp_path: Path, small_specs: Path, cli: Cli) -> None:
    path = built(tmp_path, "commonsense-qa")
    out = path.parent
    called = cli("verify", "commonsense-qa", "--out", out)
    assert (called.code, called.out.startswith("verified   commonsense-qa-validation: 9 tasks")) == (0, True)
    rewrite(path, edit(4, gold=0)(list(read_items(items_path(path)))))
    called = cli("verify", "commonsense-qa", "--out", out)
    assert called.code == 3
    assert "task 4 (id row0004): option 0" in called.out
    assert f"llmc build commonsense-qa-validation --force --out {out}" in called.out
    called = cli("verify", "commonsense-qa", "--out", out, "--json")
    (result,) = called.data["results"]
    assert (called.code, result["verified"], result["tasks"], result["problems"][0]["task"]) == (3, False, 9, 4)


def test_all_that_is_built(tmp_path: Path, small_specs: Path, cli: Cli) -> None:
    for name in made_up.ROWS:
        path = built(tmp_path / name, name)
        for file in path.parent.iterdir():
            (tmp_path / "out").mkdir(exist_ok=True)
            if file.name != "manifest.json":
                file.rename(tmp_path / "out" / file.name)
    called = cli("verify", "--all", "--out", tmp_path / "out", "--json")
    assert (called.code, [r["verified"] for r in called.data["results"]]) == (0, [True] * len(made_up.ROWS))
    (tmp_path / "boolq" / "rows.jsonl").unlink()
    called = cli("verify", "--all", "--out", tmp_path / "out", "--json")
    assert (called.code, len(called.data["results"])) == (2, len(made_up.ROWS) - 1)
    assert "no such file" in called.data["unverified"][0]["error"]
    (tmp_path / "out" / "arc-easy-validation.bin").write_bytes(b"")
    assert cli("verify", "--all", "--out", tmp_path / "out").code == 3


def test_a_file_by_the_command(tmp_path: Path, small_specs: Path, cli: Cli) -> None:
    path = built(tmp_path, "boolq")
    called = cli("verify", path)
    assert (called.code, "checksum and structure" in called.out) == (0, True)
    path.write_bytes(path.read_bytes() + b"x")
    called = cli("verify", path)
    assert (called.code, "1 bytes follow the last task" in called.out) == (3, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to verify"),
        (["--all", "boolq"], "exclude each other"),
        (["--all"], "nothing is built"),
        (["none.bin"], "no such file"),
        (["none.bin", "--source", "x"], "--source goes with a benchmark's name"),
        (["boolq", "arc-easy", "--source", "FILE"], "one file of rows"),
    ],
)
def test_words_that_cannot_be(tmp_path: Path, small_specs: Path, cli: Cli, words: list[str], message: str) -> None:
    file = made_up.write(tmp_path / "rows.jsonl", made_up.boolq())
    called = cli("verify", *(str(file) if word == "FILE" else word for word in words), "--out", tmp_path / "out")
    assert (called.code, message in called.err) == (2, True), called.err


# Everything that a spec can say


def test_every_key_that_shapes_a_task_is_known_to_verify() -> None:
    """A key that is added to the specs must be taught to evidence.py and derive.py, and then to this list."""
    assert set(schema.Protocol.model_fields) == {
        *("form", "description", "prompt", "choice_line", "strip", "lstrip", "strip_options", "order", "listed_in"),
        *("adapter", "uncond", "shots", "note"),
    }
    assert set(schema.Choices.model_fields) == {"column", "columns", "fixed", "labels", "json_text", "shuffle"}
    assert set(schema.Shots.model_fields) == {"split", "documents", "usual"}
    assert set(get_args(schema.Encoding)) == set(evidence._POSITIONS)
    assert set(READINGS) == set(ADAPTERS)
    shaping = {"adapter", "fields", "choices", "answer", "id_field", "group_field", "fill", "leave_out"}
    beside = {"name", "title", "description", "splits", "unlabelled", "default_split", "default_protocol", "licence"}
    beside |= {"citation", "homepage", "expect", "expect_configs", "example"}
    assert set(schema.Benchmark.model_fields) == shaping | beside | {"source", "protocols", "equal_options"}


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_a_reading_needs_and_gives_what_the_adapter_does(name: str) -> None:
    assert (READINGS[name].needs, READINGS[name].gives) == (ADAPTERS[name].needs, ADAPTERS[name].gives)


MARKS = ("[title]", " [title]", ". [title]", "[step]", *"[]._:\n x\u00c9", "  ", "Question:", "A)")
NOISE = st.lists(st.sampled_from([*MARKS, "  _  .", "word", "\u2028"]), max_size=9).map("".join)
ROW_OF: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "blank": st.tuples(NOISE),
    "coqa": st.tuples(NOISE),
    "hellaswag": st.tuples(NOISE, NOISE, NOISE, st.lists(NOISE, max_size=4)),
    "jeopardy": st.tuples(NOISE),
    "lettered-options": st.tuples(
        st.lists(NOISE, max_size=5).map(lambda texts: [f"{'ABCDE'[i]}){text}" for i, text in enumerate(texts)])
        | st.lists(NOISE, max_size=3)
    ),
    "options-in-question": st.tuples(NOISE, NOISE, NOISE, NOISE, NOISE).map(
        lambda t: (t[0] + "".join(f"\n{letter}. {text}" for letter, text in zip("ABCD", t[1:], strict=True)), *t[1:])
    )
    | st.tuples(NOISE, NOISE, NOISE, NOISE, NOISE),
    "race": st.tuples(
        st.lists(
            st.fixed_dictionaries(
                {
                    "question": NOISE | NOISE.map(lambda text: text + "  _  ."),
                    "options": st.lists(NOISE, min_size=4, max_size=4),
                    "answer": st.sampled_from("ABCD"),
                }
            ),
            max_size=3,
        ).map(repr)
        | NOISE
    ),
    "subject-in-words": st.tuples(NOISE),
}


@settings(max_examples=400, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(ADAPTERS)))
def test_adapters_and_readings_find_the_same(data: st.DataObject, name: str) -> None:
    row = data.draw(ROW_OF[next(kind for kind in sorted(ROW_OF, reverse=True) if name.startswith(kind))])
    try:
        adapted = ADAPTERS[name].apply(*row)
    except RowProblem:
        with pytest.raises((ValueError, TypeError, AttributeError, KeyError, IndexError, SyntaxError)):
            READINGS[name].apply(*row)
    else:
        assert tuple(READINGS[name].apply(*row)) == tuple(adapted)


def test_rows_of_ones_own_are_verified_by_the_spec_in_the_sidecar(tmp_path: Path, cli: Cli) -> None:
    rows = [{"question": f"q{i}", "choices": ["a", "b", f"c{i}"], "answer": "ABC"[i % 3]} for i in range(7)]
    source = made_up.write(tmp_path / "mine.jsonl", rows)
    out = tmp_path / "out"
    assert cli("build", "--from", source, "--out", out).code == 0
    for words in (["--all"], ["mine-test"]):
        called = cli("verify", *words, "--out", out, "--json")
        assert (called.code, [r["tasks"] for r in called.data["results"]]) == (0, [7])
    rows[2]["answer"] = "A"
    made_up.write(source, rows)
    called = cli("verify", "mine-test", "--out", out)
    assert (called.code, "task 2 (id test-2): option 2 ('c2') is marked correct" in called.out) == (3, True)
    sidecar = out / "mine-test.json"
    data = json.loads(sidecar.read_text())
    data["spec"]["answer"] = {}
    sidecar.write_text(json.dumps(data))
    called = cli("verify", "mine-test", "--out", out)
    assert (called.code, "holds no usable spec" in called.err) == (2, True)


FEW_SHOT = "commonsense-qa-validation@olmes-5shot"


def test_worked_examples_are_verified_too(tmp_path: Path, small_specs: Path) -> None:
    source = made_up.write(tmp_path / "rows.jsonl", made_up.csqa(4))
    path = ensure_built(FEW_SHOT, tmp_path / "out", source=source).bin_path(tmp_path / "out")
    assert verify(path).problems == []
    original = list(read_items(items_path(path)))
    blocks = original[2].context.split("\n\n")
    assert len(blocks) == 6
    for changed, words in (
        ("\n\n".join([blocks[1], blocks[0], *blocks[2:]]), "worked example 1"),
        ("\n\n".join(blocks[1:]), "worked example 1"),
        (original[2].context.replace("\n\n", "\n", 1), "worked example 1, its end"),
        (blocks[0][:-1] + ("A" if blocks[0][-1] != "A" else "B") + original[2].context[len(blocks[0]) :], "its answer"),
    ):
        rewrite(path, edit(2, context=changed)(original))
        (problem,) = [one for one in verify(path).problems if one.what.startswith("the prompt")]
        assert (problem.task, words in problem.what) == (2, True), problem.what


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_single_edit_of_any_item_is_found(tmp_path: Path, small_specs: Path, data: st.DataObject) -> None:
    """.bin, items and sidecar are all made to agree with the edit: only the source tells, and only of that task."""
    name, rows = data.draw(
        st.sampled_from([(FEW_SHOT, "commonsense-qa"), ("arc-easy", "arc-easy"), ("boolq", "boolq")])
    )
    out = tmp_path / "out"
    source = made_up.write(tmp_path / f"{rows}.jsonl", made_up.ROWS[rows](5))
    path = ensure_built(name, out, source=source, force=True).bin_path(out)
    items = list(read_items(items_path(path)))
    item = data.draw(st.sampled_from(items))
    kind = data.draw(st.sampled_from(["character", "option", "order", "gold", "id", "attributes"]))
    if kind == "character":
        at = data.draw(st.integers(0, len(item.context)))
        new = data.draw(st.characters(exclude_categories=["Cs"]) | st.just(""))
        context = item.context[:at] + new + item.context[at + data.draw(st.integers(0, 1)) :]
        changed = replace(item, context=context or "x")
    elif kind == "option":
        place = data.draw(st.integers(0, len(item.continuations) - 1))
        texts = list(item.continuations)
        texts[place] = data.draw(st.sampled_from([texts[place] + " ", " " + texts[place], " Z", texts[place - 1]]))
        changed = replace(item, continuations=tuple(texts))
    elif kind == "order":
        changed = replace(item, continuations=tuple(data.draw(st.permutations(item.continuations))))
    elif kind == "gold":
        changed = replace(item, gold=data.draw(st.integers(0, len(item.continuations) - 1)))
    elif kind == "id":
        changed = replace(item, id=item.id + "x")
    else:
        changed = replace(item, attributes="{}")
    rewrite(path, [changed if one.index == item.index else one for one in items])
    result = verify_built(path.name.removesuffix(".bin"), out)
    assert result.right == (changed == item)
    assert {problem.task for problem in result.problems} <= {item.index}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [{**row, "answer": None} for row in rows], "line 1 has no answer"),
        (lambda rows: [{"q": row["question"]} for row in rows], "has no column 'passage'"),
        (lambda rows: [*rows[:3], {**rows[3], "passage": 7}, *rows[4:]], "line 4 has 7 where the passage belongs"),
        (lambda rows: [*rows[:3], {**rows[3], "question": " "}, *rows[4:]], "line 4 has an empty question"),
        (lambda rows: [*rows[:3], {**rows[3], "answer": "maybe"}, *rows[4:]], "line 4 has the answer 'maybe'"),
    ],
)
def test_a_source_that_is_at_fault_is_no_verdict_on_the_file(
    tmp_path: Path, small_specs: Path, cli: Cli, change: Callable[[list[dict[str, Any]]], Any], words: str
) -> None:
    path = built(tmp_path, "boolq")
    other = made_up.write(tmp_path / "other.jsonl", change(made_up.boolq(9)))
    called = cli("verify", "boolq", "--source", other, "--out", path.parent)
    assert (called.code, words in called.err) == (2, True), called.err
    assert called.err.count("fix:") == 1


def test_an_empty_source_is_no_verdict_on_the_file(tmp_path: Path, small_specs: Path, cli: Cli) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = built(tmp_path, "boolq")
    pq.write_table(pa.Table.from_pylist(made_up.boolq()).slice(0, 0), tmp_path / "empty.parquet")
    called = cli("verify", "boolq", "--source", tmp_path / "empty.parquet", "--out", path.parent)
    assert (called.code, "there are no rows in" in called.err) == (2, True), called.err


def test_no_network_is_no_verdict_on_the_file(
    tmp_path: Path, small_specs: Path, cli: Cli, hub_settings: pytest.MonkeyPatch
) -> None:
    path = built(tmp_path, "boolq")
    sidecar = path.with_suffix(".json")
    data = json.loads(sidecar.read_text())
    data["source"] |= {"via": "hub", "revision": "a" * 40, "path": None}
    sidecar.write_text(json.dumps(data))
    called = cli("verify", "boolq", "--out", path.parent)
    assert (called.code, "cannot be reached" in called.err) == (2, True), called.err
    assert "--source" in called.err


# Rows of one's own, in every layout that both roads have to read alike

TEXTS = {"text": ["a0", "b0", "c0"], "label": ["A", "B", "C"]}
PAIRS = [{"text": text, "label": label} for text, label in zip(*TEXTS.values(), strict=True)]
NUMBERED = {"text": ["a0", "b0", "c0"], "label": [1, 2, 3]}
WIDE = {"A": "a0", "B": "b0", "C": "c0"}
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    "labels beside, answered by text": [{"choices": TEXTS, "answer": "a0"}, {"choices": TEXTS, "answer": "c0"}],
    "pairs, answered by text": [{"choices": PAIRS, "answer": "a0"}, {"choices": PAIRS, "answer": "b0"}],
    "numbers as labels": [{"choices": NUMBERED, "answer": 2}, {"choices": NUMBERED, "answer": 3}],
    "letters with spaces": [{"choices": ["x", "y"], "answer": "B "}, {"choices": ["x", "y"], "answer": " A"}],
    "small letters with spaces": [{"choices": ["x", "y"], "answer": "b "}, {"choices": ["x", "y"], "answer": " a"}],
    "floats": [{"choices": ["x", "y"], "answer": 1.0}, {"choices": ["x", "y"], "answer": 0.0}],
    "fewer columns in some rows": [{**WIDE, "answer": "B"}, {**WIDE, "D": "d1", "E": "e1", "answer": "E"}],
    "empty columns in some rows": [
        {**WIDE, "D": "", "E": None, "answer": "B"},
        {**WIDE, "D": "d1", "E": "e1", "answer": "E"},
    ],
    "fewer keys in some rows": [{"options": WIDE, "answer": "B"}, {"options": {**WIDE, "D": "d"}, "answer": "D"}],
    "columns with a dot": [{**{f"options.{k}": v for k, v in WIDE.items()}, "answer": "C"}],
}


FLAT = ["columns with a dot", "empty columns in some rows", "fewer columns in some rows"]


@pytest.mark.parametrize(
    ("layout", "suffix"),
    [*((layout, suffix) for layout in sorted(LAYOUTS) for suffix in ("jsonl", "parquet")), *((f, "csv") for f in FLAT)],
)
def test_what_is_built_of_ones_own_is_verified(tmp_path: Path, cli: Cli, layout: str, suffix: str) -> None:
    rows = [{"question": f"q{i}", **row} for i, row in enumerate(LAYOUTS[layout])]
    if suffix != "jsonl":
        rows = sorted(rows, key=len, reverse=True)  # the first row gives the columns
    path = made_up.write(tmp_path / f"mine.{suffix}", rows)
    called = cli("build", "--from", path, "--out", tmp_path / "out")
    assert called.code == 0, called.err
    called = cli("verify", "mine-test", "--out", tmp_path / "out", "--json")
    assert (called.code, called.data["results"][0]["tasks"]) == (0, len(rows)), called.data


def test_the_remedy_builds_ones_own_again(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    monkeypatch.chdir(tmp_path)
    rows = [{"No.": f"n{i}", "frage": f"q{i}", "choices": TEXTS, "gut": "ABC"[i % 3], "fach": "F"} for i in range(7)]
    made_up.write(tmp_path / "my rows[1].jsonl", rows)
    made_up.write(tmp_path / "my rows1.jsonl", rows[:2])
    words = ["--question-column", "frage", "--answer-column", "gut", "--id-column", "No.", "--group-column", "fach"]
    assert cli("build", "--from", "my rows[1].jsonl", "--name", "mine", *words, "--form", "text").code == 0
    path = Path("out/mine-test.bin")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    called = cli("verify", "mine-test")
    assert called.code == 3
    (fix,) = [line.removeprefix("  fix: ") for line in called.out.splitlines() if line.startswith("  fix: ")]
    program, *words = shlex.split(fix)
    assert program == "llmc"
    assert cli(*words).code == 0
    assert path.read_bytes() == whole
    assert cli("verify", "mine-test").code == 0
    (tmp_path / "my rows[1].jsonl").rename(tmp_path / "elsewhere.jsonl")
    called = cli("verify", "mine-test")
    assert (called.code, "--source" in called.err, "YAML" in called.err) == (2, True, False), called.err
    assert cli("verify", "mine-test", "--source", "elsewhere.jsonl").code == 0


def test_rows_are_found_again_from_another_folder(
    tmp_path: Path, small_specs: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("one", "two"):
        made_up.write(tmp_path / place / "rows.jsonl", made_up.boolq(9))
    out = tmp_path / "out"
    monkeypatch.chdir(tmp_path / "one")
    assert cli("build", "boolq", "--source", "rows.jsonl", "--out", out).code == 0
    first = (out / "boolq-validation.bin").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert cli("verify", "boolq", "--out", out).code == 0
    assert cli("build", "boolq", "--source", "two/rows.jsonl", "--out", out).code == 0
    assert manifest.lookup(out, "boolq-validation").source.path == str(tmp_path / "two" / "rows.jsonl")
    assert (out / "boolq-validation.bin").read_bytes() == first
    (tmp_path / "one" / "rows.jsonl").unlink()
    assert cli("verify", "--all", "--out", out).code == 0


@pytest.mark.parametrize("words", [("verify", "mine-tets"), ("export", "mine-tets", "--to", "jsonl")])
def test_an_unknown_name_is_compared_with_what_is_built(tmp_path: Path, cli: Cli, words: tuple[str, ...]) -> None:
    path = made_up.write(tmp_path / "mine.jsonl", [{"question": "q", "choices": ["a", "b"], "answer": "B"}])
    assert cli("build", "--from", path, "--out", tmp_path).code == 0
    called = cli(*words, "--out", tmp_path)
    assert (called.code, "did you mean mine-test?" in called.err.replace("\n", " ")) == (2, True), called.err
