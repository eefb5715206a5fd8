from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.benchmarks import spec as specs
from llmc.benchmarks.item import to_task
from llmc.benchmarks.render import Renderer
from llmc.benchmarks.rows import Row, RowProblem


def spec_with(prompt: str, form: str, choice_line: str = "{letter}. {text}") -> specs.Benchmark:
    base = specs.find("boolq").model_dump(mode="json")
    base["protocols"] = {"llama-mc": {"form": form, "prompt": prompt, "choice_line": choice_line}}
    return specs.Benchmark.model_validate(base)


def row(choices: tuple[str, ...] = ("no", "yes"), passage: str = "P.", question: str = "q") -> Row:
    return Row(3, "id3", None, (passage, question), choices, 1)


@pytest.mark.parametrize(
    ("name", "texts", "choices", "context", "continuations"),
    [
        (
            "boolq@llama-mc",
            ("A passage.", "is it so"),
            ("no", "yes"),
            'A passage.\nQuestion: "is it so?" Answer:',
            (" no", " yes"),
        ),
        (
            "commonsense-qa@llama-mc",
            ("Where is it?",),
            ("a b", "c"),
            "Question: Where is it?\nA. a b\nB. c\nAnswer:",
            (" A", " B"),
        ),
        ("arc-easy@lm-eval", ("Why?",), ("x", "y", "z"), "Question: Why?\nAnswer:", (" x", " y", " z")),
        ("arc-easy@llama-mc", ("Why?",), ("x", "y"), 'Question: "Why?" Answer:', (" x", " y")),
    ],
)
def test_prompts_of_the_catalogue(
    name: str, texts: tuple[str, ...], choices: tuple[str, ...], context: str, continuations: tuple[str, ...]
) -> None:
    benchmark, _, protocol = name.partition("@")
    item = Renderer(specs.find(benchmark), protocol).item(Row(5, "r", "g", texts, choices, 1), 2)
    assert (item.context, item.continuations) == (context, continuations)
    assert (item.index, item.id, item.group, item.gold, item.source_row) == (2, "r", "g", 1, 5)


def test_choice_lines_and_braces() -> None:
    spec = spec_with("{{{question}}}\n{choices}\nAnswer:", "letter", " {letter}) {{{text}}}")
    assert Renderer(spec, "llama-mc").item(row(), 0).context == "{q}\n A) {no}\n B) {yes}\nAnswer:"


def test_options_may_be_listed_and_scored_as_text() -> None:
    item = Renderer(spec_with("{question}\n{choices}\nAnswer:", "text"), "llama-mc").item(row(), 0)
    assert item.context == "q\nA. no\nB. yes\nAnswer:"
    assert item.continuations == (" no", " yes")


def test_more_options_than_letters() -> None:
    many = tuple(f"o{i}" for i in range(27))
    renderer = Renderer(spec_with("{question}\n{choices}", "letter"), "llama-mc")
    assert renderer.item(row(many[:26]), 0).continuations[-1] == " Z"
    with pytest.raises(RowProblem, match="27 options"):
        renderer.item(row(many), 0)


TEXT = st.text(min_size=1, max_size=30)


@given(passage=st.text(max_size=30), question=TEXT, choices=st.lists(TEXT, min_size=2, max_size=26))
def test_texts_go_through_unaltered(passage: str, question: str, choices: list[str]) -> None:
    """Whatever a text holds (braces, newlines, placeholders' names), it stands in the prompt as it is."""
    source = row(tuple(choices), passage, question)
    text = Renderer(spec_with("<{passage}|{question}>", "text"), "llama-mc").item(source, 0)
    assert text.context == f"<{passage}|{question}>"
    assert to_task(text).options == tuple(choices)
    letter = Renderer(spec_with("{question}\n{choices}\nAnswer:", "letter"), "llama-mc").item(source, 0)
    lines = "\n".join(f"{'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[i]}. {text}" for i, text in enumerate(choices))
    assert letter.context == f"{question}\n{lines}\nAnswer:"
