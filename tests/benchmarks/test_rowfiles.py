from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import made_up_rows as made_up
from llmc.benchmarks import rowfiles
from llmc.benchmarks.evidence import _at_path
from llmc.benchmarks.rowfiles import column_names, read_rows, values_of
from llmc.errors import InputFileError

COLUMNS = ["id", "question", "choices.text", "choices.label", "answerKey"]


def values(path: Path, columns: list[str]) -> list[tuple[Any, ...]]:
    batches = list(read_rows(path, columns))
    return list(itertools.chain.from_iterable(zip(*batch.columns, strict=True) for batch in batches))


def expected(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (row["id"], row["question"], row["choices"]["text"], row["choices"]["label"], row["answerKey"]) for row in rows
    ]


@pytest.mark.parametrize(
    "name",
    ["x.parquet", "x.arrow", "x.stream.arrow", "x.jsonl", "x.json", "x.array.json", "x.jsonl.gz", "x.txt", "noname"],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(rowfiles, "ROWS_PER_BATCH", 3)
    rows = made_up.csqa(10)
    path = made_up.write(tmp_path / name, rows)
    assert values(path, COLUMNS) == expected(rows)


def test_choices_as_a_list_of_objects(tmp_path: Path) -> None:
    rows = made_up.csqa(5)
    other = []
    for row in rows:
        pairs = zip(row["choices"]["label"], row["choices"]["text"], strict=True)
        other.append({**row, "choices": [{"label": label, "text": text} for label, text in pairs]})
    for name in ("x.jsonl", "x.parquet"):
        assert values(made_up.write(tmp_path / name, other), COLUMNS) == expected(rows)


def test_csv_has_text_in_every_column(tmp_path: Path) -> None:
    path = made_up.write(tmp_path / "x.csv", made_up.boolq(4))
    assert values(path, ["answer", "question"])[:2] == [
        ("False", "is the kettle number 0 hot"),
        ("True", "is the kettle number 1 hot"),
    ]


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.jsonl", "x.csv"])
def test_an_unknown_column_names_the_near_one_and_all_there_are(tmp_path: Path, name: str) -> None:
    path = made_up.write(tmp_path / name, made_up.boolq())
    with pytest.raises(InputFileError, match="no column 'anwser'; did you mean answer") as caught:
        values(path, ["question", "anwser"])
    assert "answer, passage, question" in caught.value.remedy


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl"])
def test_an_unknown_inner_column(tmp_path: Path, name: str) -> None:
    path = made_up.write(tmp_path / name, made_up.csqa())
    with pytest.raises(InputFileError, match=r"no column 'choices\.texts'; did you mean choices\.text"):
        values(path, ["choices.texts"])


def test_a_value_missing_in_one_row_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1, "b": 2}\n\n{"a": 3}\n')
    (batch,) = read_rows(path, ["a", "b"])
    assert batch.columns == [[1, 3], [2, None]]
    assert [batch.place(i) for i in (0, 1)] == ["line 1", "line 3"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.jsonl", b'{"a": 1}\n{"a": \n', "line 2: not valid JSON"),
        ("x.jsonl", b'{"a": 1}\n[1]\n', "line 2: a row is an object, this is list"),
        ("x.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', "line 2: not valid JSON"),
        ("x.jsonl", b"{" + b'"a":[' * 100_000 + b"\n", "line 1: not valid JSON"),
        ("x.json", b"[1]", "entry 0: a row is an object"),
        ("x.json", b'[{"a": 1}', "not valid JSON"),
        ("x.csv", b"a,b\n1,2,3\n", "line 2: more fields"),
        ("x.csv", b'a,b\n1,"2\n', "line 2"),
        ("x.csv", b"a,b\n\xff,1\n", "line 2: not UTF-8 text (byte 0xff"),
        ("x.csv", b"a,b\n" + b"1,2\n" * 5000 + b"caf\xe9,1\n" + b"1,2\n" * 5000, "line 5002: not UTF-8"),
        ("x.csv", "a,b\n1,2\n".encode("utf-16"), "line 1: not UTF-8"),
        ("x.csv", b"a,b,c,b\n1,2,3,4\n", "line 1: column 'b' twice"),
        ("x.jsonl", b'{"a": 1}\n{"a": 1, "b": {"c": 1, "c": 2}}\n', "line 2: not valid JSON (key 'c' twice"),
        ("x.csv", b"\n\na,a\n1,2\n", "line 3: column 'a' twice"),
        ("x.parquet", b"PAR1" + b"\0" * 50, "damaged Parquet"),
        ("x.arrow", b"ARROW1\0\0" + b"\0" * 50, "damaged Arrow"),
        ("x.arrow", b"\xff\xff\xff\xff\x20\0\0\0" + b"\0" * 8, "x.arrow"),
        ("x.jsonl", b"", "is empty"),
        ("x.jsonl", b" \n", "is empty"),
        ("x.jsonl", b"hello", "none of the known formats"),
        ("x.png", b"\x89PNG\r\n\x1a\n", "none of the known formats"),
        ("x.jsonl.gz", b"\x1f\x8b\x08\0garbage", "x.jsonl.gz"),
    ],
)
def test_damaged_files_say_where(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputFileError) as caught:
        values(path, ["a"])
    assert words in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.csv.gz", "x.json.gz"])
@pytest.mark.parametrize("damage", ["cut", "cut early", "changed", "checksum"])
@pytest.mark.parametrize("read", [lambda path: values(path, ["a"]), column_names])
def test_packed_files_that_are_damaged(tmp_path: Path, name: str, damage: str, read: Callable[[Path], Any]) -> None:
    import random

    chance = random.Random(3)
    lines = [chance.randbytes(30).hex() for _ in range(20_000)]
    text = "a\n" + "\n".join(lines) if ".csv" in name else "".join(f'{{"a": "{line}"}}\n' for line in lines)
    packed = bytearray(gzip.compress(text.encode()))
    if damage == "changed":
        packed[2000:2100] = bytes(100)
    elif damage == "checksum":
        packed[-6] ^= 255
    path = tmp_path / name
    path.write_bytes(packed[: {"cut": len(packed) // 2, "cut early": 60}.get(damage, len(packed))])
    try:
        read(path)
    except InputFileError as error:
        assert str(path) in error.what
        assert error.remedy
    else:
        assert read is column_names and damage != "cut early"  # the first rows are whole


@pytest.mark.parametrize("name", ["X.CSV", "x.Tsv", "x.CSV.GZ"])
def test_suffixes_in_any_case(tmp_path: Path, name: str) -> None:
    between = "\t" if "tsv" in name.lower() else ","
    data = f"a{between}b\n1{between}2\n".encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("GZ") else data)
    assert values(tmp_path / name, ["b", "a"]) == [("2", "1")]
    assert column_names(tmp_path / name) == ["a", "b"]


def test_blank_lines_and_long_records_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'\xef\xbb\xbf\r\n\r\na,b,,\r\n1,"two\nlines",,\r\n\r\n3\r\n')
    (batch,) = read_rows(path, ["a", "b"])
    assert batch.columns == [["1", "3"], ["two\nlines", None]]
    assert [batch.place(i) for i in (0, 1)] == ["line 4", "line 7"]


DOTTED = [{"a.b": 1, "a": {"b": 2, "c": 3}, "d.e.f": 4, "g": {"h.i": 5}, "j.": 6}]


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.stream.arrow", "x.jsonl", "x.array.json"])
def test_a_column_of_that_very_name_goes_before_one_inside(tmp_path: Path, name: str) -> None:
    path = made_up.write(tmp_path / name, DOTTED)
    assert values(path, ["a.b", "a.c", "d.e.f", "g.h.i", "j."]) == [(1, 3, 4, 5, 6)]
    assert {"a.b", "a.c", "d.e.f", "g.h.i", "j."} <= set(column_names(path))
    assert values_of(DOTTED[0], ["a.b", "a.c", "d.e.f", "g.h.i", "k.l"]) == (1, 3, 4, 5, None)
    assert [_at_path(DOTTED[0], name) for name in ("a.b", "a.c", "d.e.f", "g.h.i", "k.l")] == [1, 3, 4, 5, None]


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl"])
def test_null_entries_in_lists_of_objects(tmp_path: Path, name: str) -> None:
    path = made_up.write(tmp_path / name, [{"a": [None, {"b": 1}]}, {"a": None}, {"a": [{"b": 2}]}])
    assert values(path, ["a.b"]) == [([None, 1],), (None,), ([2],)]


def test_a_column_that_first_appears_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowfiles, "ROWS_PER_BATCH", 3)
    path = made_up.write(tmp_path / "x.jsonl", [{"a": i, **({"late": i} if i > 7 else {})} for i in range(10)])
    assert values(path, ["late"])[-3:] == [(None,), (8,), (9,)]
    assert column_names(path) == ["a"]
    assert column_names(path, whole=True) == ["a", "late"]
    with pytest.raises(InputFileError, match="did you mean late"):
        values(path, ["lata"])


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_a_binary_column_twice(tmp_path: Path, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table([[1], [2], [3]], names=["a", "b", "a"])
    if name.endswith(".parquet"):
        pq.write_table(table, tmp_path / name)
    else:
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(InputFileError, match="column 'a' twice"):
        values(tmp_path / name, ["a"])


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "stream.arrow", "jsonl", "csv"])
def test_file_names_that_are_no_text(tmp_path: Path, suffix: str) -> None:
    made = made_up.write(tmp_path / f"x.{suffix}", [{"a": "1"}, {"a": "2"}])
    path = made.rename(tmp_path / os.fsdecode(b"caf\xe9." + suffix.encode()))
    assert values(path, ["a"]) == [("1",), ("2",)]
    assert column_names(path) == ["a"]


def test_truncated_copies_of_every_binary_format(tmp_path: Path) -> None:
    """A file cut anywhere is an error, or (a stream cut between batches) fewer rows; never anything else."""
    for name in ("x.parquet", "x.arrow", "x.stream.arrow", "x.jsonl.gz"):
        path = made_up.write(tmp_path / name, made_up.csqa(12))
        whole = path.read_bytes()
        for cut in range(0, len(whole), max(1, len(whole) // 23)):
            path.write_bytes(whole[:cut])
            try:
                assert values(path, COLUMNS) == expected(made_up.csqa(12))[: len(values(path, COLUMNS))]
            except InputFileError as error:
                assert str(path) in error.what


def test_missing_directory_and_unreadable(
    tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    with pytest.raises(InputFileError, match="No such file"):
        values(tmp_path / "none.jsonl", ["a"])
    with pytest.raises(InputFileError, match="directory"):
        values(tmp_path, ["a"])
    path = made_up.write(tmp_path / "x.jsonl", made_up.boolq())
    path.chmod(0)
    with as_nobody(), pytest.raises(InputFileError, match="Permission denied"):
        values(path, ["answer"])


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowfiles, "MAX_LINE", 1000)
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "' + "x" * 5000)
    with pytest.raises(InputFileError, match="line 1: longer than 1000 bytes"):
        values(path, ["a"])
