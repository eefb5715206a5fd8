from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmc.benchmarks import spec as specs
from llmc.benchmarks.evidence import Unfit, Witness
from llmc.benchmarks.rows import Row, RowProblem, RowReader


def benchmark(encoding: str, choices: dict[str, Any] | None = None) -> specs.Benchmark:
    """Return BoolQ's spec with other choices and another encoding of the answer."""
    base = specs.find("boolq").model_dump(mode="json")
    base["fields"] = {"question": "q"}
    base["protocols"] = {"llama-mc": {"form": "text", "prompt": "{question}"}}
    base["choices"] = choices or {"column": "c", "labels": "l"}
    base["answer"] = {"column": "a", "encoding": encoding}
    return specs.Benchmark.model_validate(base)


def read(spec: specs.Benchmark, **values: Any) -> Row:
    reader = RowReader(spec, "validation")
    row = {"q": "Why?", "c": ["p", "q", "r"], "l": ["A", "B", "C"], **values}
    return reader.row(tuple(row[name] for name in reader.columns), 7)


@pytest.mark.parametrize(
    ("encoding", "answer", "gold"),
    [
        ("label", "B", 1),
        ("letter", "C", 2),
        ("index", 0, 0),
        ("index", "2", 2),
        ("index-from-1", 1, 0),
        ("index-from-1", "3\n", 2),
        ("bool", False, 0),
        ("bool", True, 1),
        ("bool", "True", 1),
        ("text", "r", 2),
        ("letter", "B ", 1),
        ("letter", "\tA\n", 0),
        ("index", 1.0, 1),
        ("index-from-1", 3.0, 2),
        ("small-letter", "b", 1),
        ("small-letter", "c\n", 2),
        ("one-hot", [0, 0, 1], 2),
    ],
)
def test_every_encoding_of_the_answer(encoding: str, answer: object, gold: int) -> None:
    assert read(benchmark(encoding), a=answer).gold == gold


def test_labels_may_be_numbers() -> None:
    assert read(benchmark("label"), l=[1, 2, 3], a=3).gold == 2


def test_labels_may_be_digits() -> None:
    assert read(benchmark("label"), l=["1", "2", "3"], a="3").gold == 2


@pytest.mark.parametrize(
    ("encoding", "values", "words"),
    [
        ("label", {"a": ""}, "no answer in a"),
        ("label", {"a": None}, "no answer in a"),
        ("label", {"a": "D"}, "'D' in a, which is none of A, B, C"),
        ("label", {"a": 1}, "answer 1 in a, which is none of A, B, C"),
        ("label", {"a": True}, "True (true/false) in a; text is expected"),
        ("label", {"a": 1, "l": [True, 2, 3]}, "which is not of the kind of"),
        ("label", {"a": 1, "l": [1, True, 3]}, "which is 2 of"),
        ("label", {"a": "A", "l": ["A", "A", "C"]}, "which is 2 of"),
        ("label", {"a": "A", "l": ["A", "B"]}, "3 options and other labels"),
        ("label", {"a": "A", "l": None}, "3 options and other labels"),
        ("letter", {"a": "b"}, "a capital letter is expected"),
        ("letter", {"a": "AB"}, "a capital letter is expected"),
        ("letter", {"a": "D"}, "outside its 3 options"),
        ("index", {"a": -1}, "outside its 3 options"),
        ("index", {"a": "-1"}, "outside its 3 options"),
        ("small-letter", {"a": "B"}, "a small letter is expected"),
        ("small-letter", {"a": "d"}, "outside its 3 options"),
        ("one-hot", {"a": [0, 0, 0]}, "has 0 right answers in a"),
        ("one-hot", {"a": [1, 1, 0]}, "has 2 right answers in a"),
        ("one-hot", {"a": [0, 2, 0]}, "a list of 0 and 1 is expected"),
        ("one-hot", {"a": 1}, "a list of 0 and 1 is expected"),
        ("one-hot", {"a": [0, 0, 0, 1]}, "outside its 3 options"),
        ("index", {"a": 3}, "outside its 3 options"),
        ("index", {"a": True}, "a whole number is expected"),
        ("index", {"a": 1.5}, "a whole number is expected"),
        ("index", {"a": float("nan")}, "a whole number is expected"),
        ("index", {"a": float("inf")}, "a whole number is expected"),
        ("index", {"a": 3.0}, "outside its 3 options"),
        ("index", {"a": "7" * 5000}, "7777... (text) in a; a whole number is expected"),
        ("index", {"a": "one"}, "a whole number is expected"),
        ("index-from-1", {"a": 0}, "outside its 3 options"),
        ("bool", {"a": 1}, "true or false is expected"),
        ("bool", {"a": "yes"}, "true or false is expected"),
        ("text", {"a": "z"}, "none of p, q, r"),
        ("text", {"a": "p", "c": ["p", "p", "r"]}, "which is 2 of"),
        ("index", {"a": 0, "q": ""}, "empty q"),
        ("index", {"a": 0, "q": " \n"}, "empty q"),
        ("index", {"a": 0, "q": None}, "has no q"),
        ("index", {"a": 0, "q": 5}, "5 (a number) in q; text is expected"),
        ("index", {"a": 0, "c": "pqr"}, "'pqr' (text) in c; a list is expected"),
        ("index", {"a": 0, "c": ["p", None]}, "has no c"),
        ("index", {"a": 0, "c": ["p", 2]}, "2 (a number) in c"),
        ("index", {"a": 0, "c": ["p", ""]}, "empty option 1"),
        ("index", {"a": 0, "c": ["p", "  "]}, "empty option 1"),
        ("index", {"a": 0, "c": ["p"]}, "1 options"),
        ("index", {"a": 0, "c": []}, "0 options"),
        ("index", {"a": 0, "c": [f"o{i}" for i in range(101)]}, "101 options"),
        ("index", {"a": 0, "c": ["p", "p", "p"]}, "all 'p'"),
    ],
)
def test_rows_that_cannot_be_scored(encoding: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(RowProblem) as caught:
        read(benchmark(encoding), **values)
    assert words in str(caught.value)


def test_options_in_columns_of_their_own() -> None:
    spec = benchmark("index-from-1", {"columns": ["op1", "op2"]})
    assert read(spec, op1="x", op2="y", a="2") == Row(7, "validation-7", None, ("Why?",), ("x", "y"), 1)
    with pytest.raises(RowProblem, match="has no op2"):
        read(spec, op1="x", op2=None, a=1)


COLUMNS = ["op1", "op2", "op3", "op4"]


@pytest.mark.parametrize("nothing", [None, ""])
@pytest.mark.parametrize(("filled", "count"), [("1111", 4), ("1110", 3), ("1100", 2), ("1000", 0), ("0000", 0),
                                               ("1011", 0), ("0111", 0), ("1010", 0)])  # fmt: skip
def test_the_last_columns_may_be_empty(filled: str, count: int, nothing: str | None) -> None:
    spec = benchmark("index", {"columns": COLUMNS})
    values = {name: f"text {name}" if mark == "1" else nothing for name, mark in zip(COLUMNS, filled, strict=True)}
    witness = Witness(spec, "validation", "llama-mc")
    row = [{"q": "Why?", "a": 0, **values}[name] for name in witness.columns]
    if count:
        choices = tuple(f"text {name}" for name in COLUMNS[:count])
        assert read(spec, a=count - 1, **values).choices == choices
        assert witness.read(row, 7).options == choices
        with pytest.raises(RowProblem, match=f"outside its {count} options"):
            read(spec, a=count, **values)
    else:
        with pytest.raises(RowProblem):
            read(spec, a=0, **values)
        with pytest.raises(Unfit):
            witness.read(row, 7)


ANSWERS: st.SearchStrategy[Any] = (
    st.sampled_from([None, "", True, False, 0, 1, 2, 3, -1, 0.0, 1.0, 1.5, float("nan"), float("inf"), 1e300, [], [1]])
    | st.sampled_from(
        ["A", "B ", " c", "a", "AB", "A B", "true", "False", "1", " 2\n", "-1", "--1", "+1", "1_0", "1.0"]
    )
    | st.sampled_from(["\u0662", "\u00b2", "7" * 5000, "0001", "p", "p ", "\u00e9", [0, 1, 0], [True, 0, 0], [1, 1, 0]])
    | st.text(max_size=3)
)
LABELS = st.sampled_from(
    [["A", "B", "C"], ["1", "2", "3"], [1, 2, 3], [1, True, 3], [True, 2, 3], ["A", "A", "B"], None]
)


@settings(max_examples=500, deadline=None)
@given(encoding=st.sampled_from(get_args(specs.Encoding)), answer=ANSWERS, labels=LABELS)
def test_both_roads_read_an_answer_alike(encoding: str, answer: object, labels: Any) -> None:
    spec = benchmark(encoding)
    witness = Witness(spec, "validation", "llama-mc")
    row = {"q": "Why?", "c": ["p", "q", "r"], "l": labels, "a": answer}
    try:
        gold = read(spec, **row).gold
    except RowProblem:
        with pytest.raises(Unfit):
            witness.read([row[name] for name in witness.columns], 7)
    else:
        assert witness.read([row[name] for name in witness.columns], 7).gold == gold


def test_ids_and_groups() -> None:
    base = benchmark("index").model_dump(mode="json") | {"id_field": "i", "group_field": "g"}
    spec = specs.Benchmark.model_validate(base)
    assert read(spec, a=0, i="x9", g="law").id == "x9"
    assert read(spec, a=0, i=12, g="law").id == "12"
    assert read(spec, a=0, i=None, g=None).id == "validation-7"
    assert read(spec, a=0, i="", g=3).group == "3"


def test_a_list_in_json_text() -> None:
    spec = benchmark("index", {"column": "c", "json_text": True})
    assert read(spec, c='["p", "q"]', a=1).choices == ("p", "q")
    assert read(spec, c=["p", "q"], a=1).choices == ("p", "q")
    for text in ("p, q", '{"p": 1}', "", "[" * 9000):
        with pytest.raises(RowProblem):
            read(spec, c=text, a=1)


def test_the_config_is_the_group() -> None:
    reader = RowReader(specs.find("medconceptsqa"), "test")
    row = dict(specs.find("medconceptsqa").example or {}) | {"vocab": "ICD10CM", "level": "hard"}
    assert reader.document(row, 5).group == "icd10cm_hard"
    assert reader.document(row, 5).id == "test-5"
