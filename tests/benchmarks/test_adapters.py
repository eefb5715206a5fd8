from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.benchmarks.adapters import ADAPTERS, RowProblem


def adapt(name: str, *values: Any) -> tuple[Any, ...]:
    adapter = ADAPTERS[name]
    assert len(values) == len(adapter.needs)
    given = adapter.apply(*values)
    assert len(given) == len(adapter.gives)
    return given


@pytest.mark.parametrize(
    ("name", "values", "given"),
    [
        ("lettered-options", (["A)21", "B) 21.5 ", "C)C)"],), (["21", " 21.5 ", "C)"],)),
        ("subject-in-words", ("high_school_us_history",), ("high school us history",)),
        ("options-in-question", ("What?\nA. x\nB. y\nC. z\nD. x", "x", "y", "z", "x"), ("What?",)),
        ("options-in-question", ("A. x\nA. x\nB. \nC. y\nz\nD. w", "x", "", "y\nz", "w"), ("A. x",)),
        ("blank", ("The _ is old.",), ("The ___ is old.",)),
        ("jeopardy", ("WORD: PLAY: a clue: here",), ("WORD", "PLAY: a clue: here")),
        ("jeopardy", ("no category",), ("", "no category")),
        ("coqa", ("P\n\nQuestion: a?\nAnswer: b\n\nQuestion: c?\nAnswer:",), ("P\n\nQuestion: a?\nAnswer: b\n\n",)),
        # lm-eval leaves two full stops where the text before a title has one already; olmes does not
        ("hellaswag", ("Act", "[header] How to [title] Go.", "", ["a. [title] B"]), ("Act: How to. Go.", ["a.. B"])),
        ("hellaswag-olmes", ("Act", "How to. [title] Go.", "", ["a. [title] B"]), ("Act: How to. Go. ", ["a. B"])),
        ("hellaswag-olmes-rc", ("Act", "How to. [title] Go.", "", ["a. [title] B"]), ("Act: How to. Go.", ["a. B"])),
        ("hellaswag", ("A", "He ran.", "the MAN", [" x", "y  z"]), ("A: He ran. The man", ["x", "y z"])),
        (
            "race",
            ("[{'question': 'Who?', 'answer': 'D', 'options': ['a', 'b', 'c', 'd']},"
             " {'question': 'It is  _  .', 'answer': 'A', 'options': ['x', 'y', 'z', 'w']},"
             " {'question': 'Last  _  .', 'answer': 'C', 'options': ['1', '2', '3', '4']}]",),
            ("Question: Who?\nAnswer: d\nIt is x\n", "Last  _  .", ["1", "2", "3", "4"], 2),
        ),
    ],
)  # fmt: skip
def test_what_adapters_give(name: str, values: tuple[Any, ...], given: tuple[Any, ...]) -> None:
    assert adapt(name, *values) == given


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("lettered-options", (["A)1", "2"],), "'2' where one with the label B) is expected"),
        ("lettered-options", (["A)1", None],), "not a list of texts"),
        ("lettered-options", (None,), "not a list of texts"),
        ("subject-in-words", (None,), "has no text in subject"),
        ("subject-in-words", (7,), "has 7 in subject, not text"),
        ("options-in-question", ("What?\nA. x\nB. y\nC. w\nD. z", "x", "y", "z", "w"), "its own options"),
        ("options-in-question", ("What?", "x", "y", "z", "w"), "its own options"),
        ("options-in-question", ("What?", "x", None, "z", "w"), "has no text in option2"),
        ("blank", ("No blank.",), "without a blank"),
        ("coqa", ("No such word",), "no 'Question:' in query_original"),
        ("hellaswag", ("A", "B", None, []), "has no text in ctx_b"),
        ("race", ("not a list",), "problems that cannot be read"),
        ("race", ("[]",), "problems that cannot be read"),
        ("race", ("[{'question': 'q', 'answer': 'E', 'options': []}]",), "problems that cannot be read"),
        ("race", ("[{'question': 'q', 'answer': 'A'}]",), "problems that cannot be read"),
        ("race", ("__import__('os').getcwd()",), "problems that cannot be read"),
        ("race", ("(" * 5000,), "problems that cannot be read"),
    ],
)
def test_what_adapters_refuse(name: str, values: tuple[Any, ...], words: str) -> None:
    with pytest.raises(RowProblem) as caught:
        adapt(name, *values)
    assert words in str(caught.value)


@given(question=st.text(max_size=40), options=st.lists(st.text(max_size=10), min_size=4, max_size=4))
def test_options_are_taken_out_of_a_question_exactly(question: str, options: list[str]) -> None:
    shown = question + "".join(f"\n{letter}. {text}" for letter, text in zip("ABCD", options, strict=True))
    assert adapt("options-in-question", shown, *options) == (question,)


@given(options=st.lists(st.text(max_size=10), min_size=2, max_size=26))
def test_labels_come_off_and_nothing_else(options: list[str]) -> None:
    labelled = [f"{letter}){text}" for letter, text in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", options, strict=False)]
    assert adapt("lettered-options", labelled) == (options,)


@given(values=st.tuples(st.text(), st.text(), st.text(), st.lists(st.text(), max_size=4)))
def test_hellaswag_never_fails_on_text(values: tuple[Any, ...]) -> None:
    for name in ("hellaswag", "hellaswag-olmes", "hellaswag-olmes-rc"):
        start, endings = adapt(name, *values)
        assert len(endings) == len(values[3])
        assert " [title]" not in start
