"""The file of BananaMind Base Bench: what is refused by name, and what only makes it another file than the official."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bananamind_rows import as_bytes, records
from llmc.benchmarks import bananamind
from llmc.errors import InputFileError

Record = dict[str, Any]


def read(tmp_path: Path, rows: list[Record] | bytes) -> bananamind.Data:
    path = tmp_path / "test.jsonl"
    path.write_bytes(rows if isinstance(rows, bytes) else as_bytes(rows))
    return bananamind.read(path)


@pytest.fixture
def rows() -> list[Record]:
    return records()


def test_counts_of_the_generator_are_those_of_the_card(rows: list[Record]) -> None:
    assert set(Counter(row["category"] for row in rows).values()) == {50} and len(rows) == 350
    assert Counter(row["difficulty"] for row in rows) == {"easy": 117, "medium": 117, "hard": 116}
    assert [Counter(row["label"] for row in rows)[i] for i in range(4)] == [88, 88, 87, 87]
    assert sum(row["category_weight"] * row["difficulty_weight"] for row in rows) == pytest.approx(668.1875)


def test_the_official_file_has_nothing_to_say(
    tmp_path: Path, rows: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bananamind, "SHA256", hashlib.sha256(as_bytes(rows)).hexdigest())
    data = read(tmp_path, rows)
    assert data.deviations == () and data.warnings == () and len(data.examples) == 350
    one, row = data.examples[17], rows[17]
    assert (one.id, one.continuations, one.label) == (row["id"], tuple(row["continuations"]), row["label"])
    assert one.weight == row["category_weight"] * row["difficulty_weight"] and one.item(17).context == row["context"]


WRONG: list[tuple[str, Any, str]] = [
    ("id", "", "id is ''"),
    ("id", 7, "id is 7"),
    ("version", "1.0", "version is '1.0'"),
    ("category", "history", "category is 'history'"),
    ("category", None, "category is None"),
    ("difficulty", "harder", "difficulty is 'harder'"),
    ("difficulty", ["easy"], "difficulty is"),
    ("category_weight", 0, "category_weight is 0"),
    ("category_weight", "1.0", "category_weight is '1.0'"),
    ("difficulty_weight", -1.5, "difficulty_weight is -1.5"),
    ("difficulty_weight", True, "difficulty_weight is True"),
    ("item_elo", None, "item_elo is None"),
    ("context", 3, "context is 3"),
    ("context", "half a \ud800", "context is"),
    ("continuations", [" a", " b", " c"], "continuations is a list of 3"),
    ("continuations", [" a", " b", " c", ""], "continuations is a list of 4"),
    ("continuations", [" a", " b", "c", " d"], "continuation 2 does not begin with whitespace"),
    ("continuations", " a b c d", "continuations is"),
    ("label", 4, "label is 4"),
    ("label", -1, "label is -1"),
    ("label", "1", "label is '1'"),
    ("label", True, "label is True"),
    ("score_mode", "sum_logprob", "score_mode is 'sum_logprob'"),
    ("tags", "x", "tags is 'x'"),
    ("tags", [1], "tags is a list of 1"),
]


@pytest.mark.parametrize(("field", "value", "said"), WRONG)
def test_wrong_fields_are_refused_by_name(
    tmp_path: Path, rows: list[Record], field: str, value: Any, said: str
) -> None:
    name = rows[5]["id"]
    rows[5][field] = value
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    with pytest.raises(InputFileError) as caught:
        read(tmp_path, content)
    assert "line 6" in caught.value.what and said in caught.value.what
    assert field == "id" or name in caught.value.what


@pytest.mark.parametrize("field", list(records()[0]))
def test_missing_fields(tmp_path: Path, rows: list[Record], field: str) -> None:
    del rows[9][field]
    with pytest.raises(InputFileError, match=f"{field} is missing"):
        read(tmp_path, rows)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[3].update(answer=1), "unknown field answer"),
        (lambda rows: rows[3].update(id=rows[8]["id"]), "is given to 2 records"),
        (lambda rows: rows.clear(), "no records"),
    ],
)
def test_wrong_files(tmp_path: Path, rows: list[Record], change: Any, said: str) -> None:
    change(rows)
    with pytest.raises(InputFileError, match=said):
        read(tmp_path, rows)


@pytest.mark.parametrize("content", [b"not json\n", b"[1]\n", b'{"id": NaN}\n', b"\xff\xfe\n", b"{" * 5000])
def test_lines_that_are_no_records(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputFileError, match="line 1"):
        read(tmp_path, content)


def test_every_fault_is_counted(tmp_path: Path, rows: list[Record]) -> None:
    for row in rows[:30]:
        row["label"] = 9
    with pytest.raises(InputFileError, match=r"line 10 .*and 20 more"):
        read(tmp_path, rows)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.pop(), ["349 records", "categories", "117/117/115", "88/87/87/87", "SHA-256"]),
        (lambda rows: rows[0].update(label=1), ["answer positions 87/89/87/87", "SHA-256"]),
        (lambda rows: rows[0].update(difficulty="hard"), ["difficulties 116/117/117", "SHA-256"]),
        (lambda rows: rows[0].update(context="Another text"), ["SHA-256"]),
        (lambda rows: rows[0].update(category="commonsense"), ["commonsense 51", "SHA-256"]),
    ],
)
def test_what_differs_is_said_and_read(tmp_path: Path, rows: list[Record], change: Any, said: list[str]) -> None:
    change(rows)
    data = read(tmp_path, rows)
    assert len(data.deviations) == len(said) and len(data.examples) == len(rows)
    assert all(any(words in deviation for deviation in data.deviations) for words in said)


def test_weights_of_the_record_count_and_are_remarked_upon(tmp_path: Path, rows: list[Record]) -> None:
    changed = copy.deepcopy(rows)
    changed[2]["item_elo"] = 801
    data = read(tmp_path, changed)
    assert data.examples[2].item_elo == 801
    (warning,) = data.warnings
    assert changed[2]["id"] in warning


def test_of_the_official_file_only_what_is_certain_is_asked(
    tmp_path: Path, rows: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How it spells its categories is not public."""
    for row in rows:
        row["category"] = row["category"].replace("quantitative", "numbers")
    monkeypatch.setattr(bananamind, "SHA256", hashlib.sha256(as_bytes(rows)).hexdigest())
    assert read(tmp_path, rows).deviations == ()
