from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import made_up_rows as made_up
from helpers import Cli
from llmc import mcbin
from llmc.benchmarks import names, rowfiles
from llmc.benchmarks.build import build, ensure_built
from llmc.benchmarks.item import read_items
from llmc.benchmarks.manifest import lookup
from llmc.benchmarks.own import Given, spec_of
from llmc.errors import InputFileError, UsageError

pytestmark = pytest.mark.usefixtures("own_cache")

WANTED = [
    mcbin.Task("Question: q0\nA. x0\nB. y0\nC. z0\nAnswer:", ("A", "B", "C"), 0),
    mcbin.Task("Question: q1\nA. x1\nB. y1\nC. z1\nAnswer:", ("A", "B", "C"), 2),
    mcbin.Task("Question: q2\nA. x2\nB. y2\nC. z2\nAnswer:", ("A", "B", "C"), 1),
]
GOLDS = (0, 2, 1)


def texts(i: int) -> list[str]:
    return [f"{name}{i}" for name in "xyz"]


def rows(make: Any) -> list[dict[str, Any]]:
    return [make(i, gold) for i, gold in enumerate(GOLDS)]


def tasks(tmp_path: Path, path: Path, given: Given | None = None) -> list[mcbin.Task]:
    spec = spec_of(path, given or Given(), name="mine")
    entry = build(names.Target(spec, "test", "llama-mc"), tmp_path / "out")
    assert entry.name == "mine-test"
    return mcbin.read(entry.bin_path(tmp_path / "out"))


LAYOUTS: dict[str, Any] = {
    "a list and an index": lambda i, g: {"question": f"q{i}", "choices": texts(i), "answer": g},
    "an index from 1": lambda i, g: {"question": f"q{i}", "options": texts(i), "answer": g + 1},
    "letters": lambda i, g: {"Question": f"q{i}", "choices": texts(i), "answerKey": "ABC"[g]},
    "small letters": lambda i, g: {"query": f"q{i}", "choices": texts(i), "label": "abc"[g]},
    "the text": lambda i, g: {"prompt": f"q{i}", "answers": texts(i), "correct_answer": texts(i)[g]},
    "columns A to C": lambda i, g: {"question": f"q{i}", **dict(zip("ABC", texts(i), strict=True)), "answer": "ABC"[g]},
    "numbered columns": lambda i, g: {
        "question": f"q{i}",
        **{f"option{k + 1}": text for k, text in enumerate(texts(i))},
        "answer": g + 1,
    },
    "columns with a letter": lambda i, g: {
        "question": f"q{i}",
        **{f"choice_{k}": text for k, text in zip("abc", texts(i), strict=True)},
        "target": texts(i)[g],
    },
    "texts with labels": lambda i, g: {
        "question": f"q{i}",
        "choices": {"text": texts(i), "label": ["1", "2", "3"]},
        "answerKey": "123"[g],
    },
    "an object of letters": lambda i, g: {
        "question": f"q{i}",
        "options": dict(zip("ABC", texts(i), strict=True)),
        "answer_idx": "ABC"[g],
    },
}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow", "array.json"])
def test_what_is_found_out_without_being_told(tmp_path: Path, layout: str, suffix: str) -> None:
    path = made_up.write(tmp_path / f"my questions.{suffix}", rows(LAYOUTS[layout]))
    assert tasks(tmp_path, path) == WANTED


FLAT = ["letters", "columns A to C", "numbered columns", "columns with a letter"]


@pytest.mark.parametrize("layout", FLAT)
def test_csv(tmp_path: Path, layout: str) -> None:
    made = rows(LAYOUTS[layout])
    for row in made:
        if "choices" in row:
            row["choices"] = json.dumps(row["choices"])
    assert tasks(tmp_path, made_up.write(tmp_path / "q.csv", made)) == WANTED


def test_everything_may_be_named(tmp_path: Path) -> None:
    path = made_up.write(
        tmp_path / "q.jsonl",
        [
            {
                "frage": f"q{i}",
                "eins": texts(i)[0],
                "zwei": texts(i)[1],
                "drei": texts(i)[2],
                "wahl": g + 1,
                "fach": "F",
            }
            for i, g in enumerate(GOLDS)
        ],
    )
    given = Given("frage", ("eins", "zwei", "drei"), "wahl", "index-from-1", group="fach")
    assert tasks(tmp_path, path, given) == WANTED
    with pytest.raises(UsageError, match="no column that is evidently the question"):
        spec_of(path, Given())


def test_the_text_form(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "q.jsonl", rows(LAYOUTS["letters"]))
    assert tasks(tmp_path, path, Given(form="text"))[1] == mcbin.Task('Question: "q1" Answer:', ("x1", "y1", "z1"), 2)


ROW = {"question": "q", "choices": ["1", "2", "3"], "answer": "2"}


@pytest.mark.parametrize(
    ("made", "given", "words", "remedy"),
    [
        ([{"q": "x", "a": 1}], Given(), "no column that is evidently the question (it has q, a)", "--question-column"),
        ([{"question": "x", "b": 1}], Given(), "no column that is evidently the answer", "--answer-column"),
        ([{"question": "x", "answer": 1}], Given(), "evidently the options (it has question, answer)", "--choices-"),
        ([ROW], Given(question="qestion"), "no column 'qestion'; did you mean question?", "it has question"),
        ([ROW], Given(choices=("choice",)), "no column 'choice'; did you mean choices?", "it has question"),
        ([ROW | {"w": 1}], Given(choices=("w",)), "'w' of", "one column for each option"),
        ([ROW], Given(), "may be index or index-from-1 or text", "--answer-as index or index-from-1 or text"),
        ([ROW | {"answer": 1}], Given(), "may be index or index-from-1", "--answer-as"),
        ([ROW | {"answer": "huh"}], Given(), "point at no option in any one way", "--answer-as"),
        ([ROW | {"answer": None}], Given(), "no row of", "--answer-column"),
        ([ROW], Given(answer_as="number"), "--answer-as is one of", "choose"),
        ([ROW], Given(answer_as="label"), "no labels beside its options", "--answer-as"),
        ([ROW], Given(answer_as="text", form="verse"), "--form is letter or text", "choose"),
        (
            [{"question": "x", "a1": "p", "a2": "q", "b1": "p", "b2": "q", "answer": "p"}],
            Given(),
            "either of a1, a2; b1, b2",
            "--choices-column",
        ),
    ],
)
def test_what_a_file_leaves_open_is_asked_for(
    tmp_path: Path, made: list[dict[str, Any]], given: Given, words: str, remedy: str
) -> None:
    path = made_up.write(tmp_path / "q.jsonl", made)
    with pytest.raises(UsageError) as caught:
        spec_of(path, given)
    assert words in caught.value.what
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("name", ["boolq", "Two Words", "", "-", "a--b"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    path = made_up.write(tmp_path / "q.jsonl", rows(LAYOUTS["letters"]))
    if name == "":
        assert spec_of(path, Given(), name=name).name == "q"  # as the file
        return
    with pytest.raises(UsageError):
        spec_of(path, Given(), name=name)


@pytest.mark.parametrize(("stem", "name"), [("My Exam (2024)", "my-exam-2024"), ("über", "ber"), ("???", "own")])
def test_the_name_is_the_file_s(tmp_path: Path, stem: str, name: str) -> None:
    path = made_up.write(tmp_path / f"{stem}.jsonl", rows(LAYOUTS["letters"]))
    assert spec_of(path, Given()).name == name


def test_a_wrong_row_is_named_by_file_line_and_column(tmp_path: Path) -> None:
    made = rows(LAYOUTS["columns A to C"])
    made[1]["B"] = ""
    path = made_up.write(tmp_path / "exam.csv", made)
    with pytest.raises(InputFileError) as caught:
        tasks(tmp_path, path)
    assert "exam.csv line 3" in caught.value.what
    assert "has an empty option 1 in B" in caught.value.what
    assert "--source" not in caught.value.remedy
    assert not list((tmp_path / "out").glob("*"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="no such file"):
        spec_of(tmp_path / "none.csv", Given())
    for content, words in ((b"", "is empty"), (b"\x00\x01\x02", "none of the known formats"), (b"{", "not valid JSON")):
        (tmp_path / "q.jsonl").write_bytes(content)
        with pytest.raises(InputFileError, match=words):
            spec_of(tmp_path / "q.jsonl", Given())


def test_a_file_is_read_whatever_its_name_matches(tmp_path: Path) -> None:
    made_up.write(tmp_path / "q1.jsonl", rows(LAYOUTS["letters"])[:1])
    path = made_up.write(tmp_path / "q[1].jsonl", rows(LAYOUTS["letters"]))
    assert tasks(tmp_path, path) == WANTED
    spec = spec_of(path, Given(), name="mine")
    path.unlink()
    with pytest.raises(InputFileError, match=r"q\[1\]\.jsonl: No such file"):
        build(names.Target(spec, "test", "llama-mc"), tmp_path / "other")


SERIES: dict[str, list[str]] = {
    "option1 to option10": [f"option{k}" for k in range(1, 11)],
    "option01 to option10": [f"option{k:02}" for k in range(1, 11)],
    "option0 to option11": [f"option{k}" for k in range(12)],
    "A to J": list("ABCDEFGHIJ"),
    "choice_a to choice_z": [f"choice_{k}" for k in "abcdefghijklmnopqrstuvwxyz"],
}


@pytest.mark.parametrize("series", sorted(SERIES))
@pytest.mark.parametrize("outer", ["", "options."])
def test_every_column_of_a_series_is_an_option(tmp_path: Path, series: str, outer: str) -> None:
    columns = [outer + name for name in SERIES[series]]
    count = len(columns)
    row = {"question": "q", **{name: f"text {k}" for k, name in enumerate(columns)}, "answer": f"text {count - 1}"}
    for suffix in ("csv", "parquet", "jsonl"):
        (task,) = tasks(tmp_path / suffix, made_up.write(tmp_path / f"q.{suffix}", [row]), Given(form="text"))
        assert (len(task.options), task.gold) == (count, count - 1)


@pytest.mark.parametrize(
    ("columns", "beside"),
    [
        (["A", "B", "C", "E"], "E"),
        (["A", "B", "C", "d"], "d"),
        (["choice_a", "choice_b", "choice_d", "choice_e"], "choice_d, choice_e"),
        (["option1", "option2", "option4"], "option4"),
        (["option1", "option2", "option02"], "option02"),
        (["options.A", "options.B", "options.D"], "options.D"),
    ],
)
def test_a_series_with_a_gap_is_refused(tmp_path: Path, columns: list[str], beside: str) -> None:
    path = made_up.write(tmp_path / "q.csv", [{"question": "q", **dict.fromkeys(columns, "x"), "answer": "1"}])
    with pytest.raises(UsageError) as caught:
        spec_of(path, Given())
    assert f"beside them {beside}, which do not follow on" in caught.value.what
    assert "--choices-column" in caught.value.remedy
    given = Given(choices=tuple(columns), answer_as="index")
    assert spec_of(path, given).choices.columns == tuple(columns)


def test_options_in_an_object_with_a_gap_are_refused(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "q.jsonl", [{"question": "q", "options": dict.fromkeys("ABD", "x"), "answer": "A"}])
    with pytest.raises(UsageError, match=r"beside them options\.D"):
        spec_of(path, Given())


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_column_may_have_a_dot_in_its_name(tmp_path: Path, suffix: str) -> None:
    made = [{"No.": f"n{i}", **row} for i, row in enumerate(rows(LAYOUTS["columns A to C"]))]
    path = made_up.write(tmp_path / f"q.{suffix}", made)
    spec = spec_of(path, Given(id="No."), name="mine")
    build(names.Target(spec, "test", "llama-mc"), tmp_path / "out")
    items = list(read_items(tmp_path / "out" / "mine-test.items.parquet"))
    assert [item.id for item in items] == ["n0", "n1", "n2"]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_flattened_object_with_labels(tmp_path: Path, suffix: str) -> None:
    made = [
        {"question": f"q{i}", "choices.text": texts(i), "choices.label": ["1", "2", "3"], "answerKey": "123"[g]}
        for i, g in enumerate(GOLDS)
    ]
    assert tasks(tmp_path, made_up.write(tmp_path / f"q.{suffix}", made)) == WANTED


def test_a_column_that_comes_late_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowfiles, "ROWS_PER_BATCH", 2)
    made = rows(LAYOUTS["letters"])
    made[2]["subject"] = "late"
    path = made_up.write(tmp_path / "q.jsonl", made)
    assert tasks(tmp_path, path, Given(group="subject")) == WANTED
    with pytest.raises(UsageError, match="did you mean subject"):
        spec_of(path, Given(group="subjekt"))


def forty(change: Any) -> list[dict[str, Any]]:
    made = [{"question": f"q{i}", "choices": ["w", "x", "y", "z"], "answer": "ABCD"[i % 4]} for i in range(40)]
    return [row | change if at == 23 else row for at, row in enumerate(made)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answer": "E"}, "39 of 40 answers are letters; line 24 has 'E' in answer, outside its 4 options"),
        ({"answer": "b"}, "39 of 40 answers are letters; line 24 has 'b' in answer, outside its 4 options"),
        ({"answer": True}, "line 24 has True in answer, which is none of its 4 options"),
        ({"answer": ["A"]}, "line 24 has ['A'] in answer, which is none of its 4 options"),
        ({"answer": 0.5}, "line 24 has 0.5 in answer, which is none of its 4 options"),
        ({"answer": "7" * 5000}, "line 24 has '7777"),
        ({"choices": None}, "line 24 has no options in choices"),
        ({"choices": []}, "line 24 has no options in choices"),
        ({"choices": ["w"]}, "line 24 has 1 option in choices"),
    ],
)
def test_one_wrong_answer_is_named(tmp_path: Path, change: Any, words: str) -> None:
    path = made_up.write(tmp_path / "q.jsonl", forty(change))
    with pytest.raises(UsageError) as caught:
        spec_of(path, Given())
    assert words in caught.value.what
    assert "--answer-as letter " in caught.value.remedy
    assert len(caught.value.what) < 400
    with pytest.raises(InputFileError, match="line 24"):  # as the remedy says
        tasks(tmp_path, path, Given(answer_as="letter"))


def test_labels_are_offered_where_there_are_any(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "q.jsonl", [ROW | {"answer": "huh"}])
    with pytest.raises(UsageError) as caught:
        spec_of(path, Given())
    assert "label" not in caught.value.remedy
    path = made_up.write(tmp_path / "q.jsonl", [ROW | {"choices": {"text": ["a", "b"], "label": ["1", "2"]}}])
    assert spec_of(path, Given()).answer.encoding == "label"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("q.csv", b"question,A,B,answer\n"),
        ("q.array.json", b"[]"),
        ("q.jsonl", b"{}\n"),
        ("q.parquet", made_up.parquet([{"question": "q", "A": "x", "B": "y", "answer": "A"}])),
    ],
)
def test_a_file_without_rows(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(InputFileError, match="holds no rows"):
        spec_of(path, Given())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": "a\ud800"}, "in id, which no file can hold as text"),
        ({"subject": "a\ud800"}, "in subject, which no file can hold as text"),
        ({"question": "a\ud800"}, "line 2"),
        ({"A": "a\ud800"}, "line 2"),
    ],
)
def test_texts_that_are_no_unicode_are_refused_by_row(tmp_path: Path, row: dict[str, str], words: str) -> None:
    made = [{"question": "q", "A": "x", "B": "y", "answer": "A", "id": f"r{i}", "subject": "s"} for i in range(3)]
    path = made_up.write(tmp_path / "q.jsonl", [made[0], made[1] | row, made[2]])
    with pytest.raises(InputFileError) as caught:
        tasks(tmp_path, path, Given(group="subject"))
    assert words in caught.value.what
    assert "1 of 3 rows" in caught.value.what


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ([{"text": "x", "label": "A"}, None, {"text": "z", "label": "C"}], "row 0"),
        ([None, None], "row 0"),
    ],
)
def test_options_that_are_null_in_a_list_of_objects(tmp_path: Path, choices: list[Any], words: str) -> None:
    whole = [{"text": "x", "label": "A"}, {"text": "y", "label": "B"}]
    made = [{"question": "q", "choices": choices, "answer": "A"}, {"question": "r", "choices": whole, "answer": "B"}]
    path = made_up.write(tmp_path / "q.parquet", made)
    with pytest.raises(UsageError, match=words):
        tasks(tmp_path, path, Given(answer_as="letter"))


# Names


@pytest.mark.parametrize(
    ("name", "split"),
    [("mmlu-anatomy", "validation"), ("careqa", "en-test"), ("mmlu", "anatomy-test"), ("arc-easy", "test")],
)
def test_names_of_the_catalogue_s_files_are_taken(tmp_path: Path, name: str, split: str) -> None:
    path = made_up.write(tmp_path / "q.jsonl", rows(LAYOUTS["letters"]))
    with pytest.raises(UsageError, match="is a benchmark of the catalogue") as caught:
        spec_of(path, Given(), name=name, split=split)
    assert "--name" in caught.value.remedy
    assert spec_of(path, Given(), name=name + "-mine", split="own").name == name + "-mine"


def test_the_name_of_a_yaml_may_not_be_a_part_of_the_catalogue(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(YAML.replace("name: mine", "name: mmlu-virology"))
    with pytest.raises(InputFileError, match=r"mmlu-virology-(test|dev) is a benchmark of the catalogue"):
        names.parse(str(tmp_path / "mine.yaml"))


def test_nothing_else_of_that_name_is_overwritten(tmp_path: Path, cli: Cli) -> None:
    path = made_up.write(tmp_path / "q.jsonl", rows(LAYOUTS["letters"]))
    out = tmp_path / "out"
    assert cli("build", "--from", path, "--name", "one", "--split", "two-three", "--out", out).code == 0
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    for more in ((), ("--force",)):
        called = cli("build", "--from", path, "--name", "one-two", "--split", "three", "--out", out, *more)
        assert (called.code, "is built in" in called.err) == (2, True), called.err
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


@pytest.mark.parametrize("folder", ["my.llama", "a@b", "x-5shot", "s.sample3s1"])
def test_a_yaml_may_lie_in_any_folder(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir()
    (place / "mine.yaml").write_text(YAML)
    assert names.parse(str(place / "mine.yaml")).name == "mine-test"
    whole = names.parse(f"{place / 'mine.yaml'}@plain-1shot.sample3s2")
    assert (whole.shots, whole.sample) == (1, (3, 2))


@pytest.mark.parametrize("split", ["Test", "my test", "-"])
def test_splits_that_cannot_be(tmp_path: Path, split: str) -> None:
    path = made_up.write(tmp_path / "q.jsonl", rows(LAYOUTS["letters"]))
    with pytest.raises(UsageError, match="cannot be the name of a split") as caught:
        spec_of(path, Given(), split=split)
    assert "--split" in caught.value.remedy


# Through the command, and what comes after


def test_build_from_and_use_by_name(tmp_path: Path, cli: Cli) -> None:
    path = made_up.write(tmp_path / "Exam 1.jsonl", rows(LAYOUTS["letters"]))
    out = tmp_path / "out"
    called = cli("build", "--from", path, "--out", out, "--json")
    assert called.code == 0
    (entry,) = called.data["built"]
    assert (entry["name"], entry["tasks"], entry["source"]["path"]) == ("exam-1-test", 3, str(path))
    assert mcbin.read(out / "exam-1-test.bin") == WANTED
    assert ensure_built("exam-1-test", out).name == "exam-1-test"
    target = names.built(lookup(out, "exam-1-test"))
    assert target is not None
    assert build(target, out).files == lookup(out, "exam-1-test").files
    (out / "exam-1-test.bin").write_bytes(b"changed")
    with pytest.raises(InputFileError, match="has changed since it was built"):
        ensure_built("exam-1-test", out)
    with pytest.raises(UsageError, match="unknown benchmark"):
        ensure_built("exam-2-test", out)


def test_columns_and_sample_through_the_command(tmp_path: Path, cli: Cli) -> None:
    path = made_up.write(tmp_path / "exam.csv", rows(LAYOUTS["numbered columns"]))
    words = ["build", "--from", path, "--out", tmp_path, "--answer-column", "answer", "--answer-as", "index-from-1"]
    words += ["--choices-column", "option1", "--choices-column", "option2", "--choices-column", "option3"]
    assert cli(*words, "--name", "other", "--split", "dev", "--limit", "2").code == 0
    assert len(mcbin.read(tmp_path / "other-dev.sample2s0.bin")) == 2
    assert mcbin.read(tmp_path / "other-dev.bin") == WANTED


YAML = """
name: mine
source: {files: {test: "*.jsonl", dev: more.csv}}
splits: [test, dev]
default_split: test
default_protocol: plain
fields: {question: q}
choices: {columns: [x, y], shuffle: 3}
answer: {column: gold, encoding: index}
leave_out: {unlabelled: not answered yet}
protocols:
  plain:
    form: text
    prompt: "{question}"
    shots: {split: dev}
"""


def test_a_yaml_of_one_s_own(tmp_path: Path, cli: Cli) -> None:
    spec = tmp_path / "bench" / "mine.yaml"
    made_up.write(tmp_path / "bench" / "more.csv", [{"q": "d", "x": "dx", "y": "dy", "gold": 0}])
    row = {"x": "ja", "y": "nein"}
    made = [row | {"q": "one", "gold": 1}, row | {"q": "two", "gold": -1}, row | {"q": "three", "gold": 0}]
    made_up.write(tmp_path / "bench" / "rows.jsonl", made)
    spec.write_text(YAML)
    out = tmp_path / "out"
    called = cli("build", spec, "--shots", "1", "--out", out, "--json")
    assert called.code == 0, called.err
    (entry,) = called.data["built"]
    assert (entry["name"], entry["tasks"], entry["option_seed"]) == ("mine-test-1shot", 2, 3)
    (left,) = [w for w in entry["warnings"] if w["kind"] == "left-out-unlabelled"]
    assert (left["count"], left["ids"], left["detail"]) == (1, ["test-1"], "1 rows are left out: not answered yet")
    tasks = mcbin.read(out / "mine-test-1shot.bin")
    assert [task.question for task in tasks] == ["d dx\n\none", "d dx\n\nthree"]
    assert [task.options[task.gold] for task in tasks] == ["nein", "ja"]
    assert cli("bench", "show", spec).code == 0
    assert cli("build", f"{spec}@plain-1shot", "--out", out).code == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: mine", "name: boolq", "boolq is a benchmark of the catalogue"),
        ("name: mine", "nam: mine", "unknown key nam; did you mean name?"),
        ('source: {files: {test: "*.jsonl", dev: more.csv}}', "source: {}", "name the dataset on the Hub"),
        ('"*.jsonl"', "none.jsonl", "No such file"),
        ("column: gold", "column: god", "no column 'god'"),
        ("encoding: index", "encoding: letter", "a capital letter is expected"),
    ],
)
def test_faults_of_a_yaml(tmp_path: Path, cli: Cli, old: str, new: str, words: str) -> None:
    made_up.write(tmp_path / "rows.jsonl", [{"q": "a", "x": "b", "y": "c", "gold": 0}])
    (tmp_path / "mine.yaml").write_text(YAML.replace(old, new))
    called = cli("build", tmp_path / "mine.yaml", "--out", tmp_path / "out")
    assert called.code == 2
    assert words in called.err.replace("\n", " ")
    assert "fix:" in called.err
    assert not list((tmp_path / "out").glob("*"))


def test_revisions_are_of_the_hub(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(YAML)
    with pytest.raises(UsageError, match="made from files of your own"):
        names.parse(str(tmp_path / "mine.yaml"), revision="main")
