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


def test_descriptions_stripping_and_unconditional_context() -> None:
    spec = spec_with("{passage}|{question}", "text")
    protocol = spec.protocols["llama-mc"].model_copy(
        update={"description": "About {passage}:\n", "strip": ("question",), "lstrip": ("passage",), "uncond": "A:"}
    )
    spec = spec.model_copy(update={"protocols": {"llama-mc": protocol}})
    renderer = Renderer(spec, "llama-mc", lambda row: f"<{row.id}>")
    item = renderer.item(row(passage=" p ", question="\n q "), 0)
    assert (item.context, item.uncond_context) == ("About  p :\n<id3>p |q", "A:")
    assert renderer.worked(row(passage=" p ", question="\n q ")) == "p |q yes"


def test_stripped_options_are_stripped_in_the_prompt() -> None:
    spec = spec_with("{question}\n{choices}\nAnswer:", "letter")
    protocol = spec.protocols["llama-mc"].model_copy(update={"strip_options": True})
    renderer = Renderer(spec.model_copy(update={"protocols": {"llama-mc": protocol}}), "llama-mc")
    assert renderer.item(row((" no", "yes\n")), 0).context == "q\nA. no\nB. yes\nAnswer:"


def test_an_order_for_another_number_of_options() -> None:
    spec = spec_with("{question}", "text")
    protocol = spec.protocols["llama-mc"].model_copy(update={"order": (2, 0, 1)})
    renderer = Renderer(spec.model_copy(update={"protocols": {"llama-mc": protocol}}), "llama-mc")
    assert renderer.item(row(("a", "b", "c")), 0).continuations == (" c", " a", " b")
    with pytest.raises(RowProblem, match="has 2 options; the protocol arranges 3"):
        renderer.item(row(), 0)


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


@given(
    choices=st.lists(TEXT, min_size=2, max_size=26, unique=True),
    gold=st.integers(0, 25),
    seed=st.integers(0, 2**40),
    source_row=st.integers(0, 10**6),
)
def test_whatever_the_order_the_gold_goes_along(choices: list[str], gold: int, seed: int, source_row: int) -> None:
    gold %= len(choices)
    for form in ("text", "letter"):
        spec = spec_with("{question}\n{choices}\nAnswer:", form)
        shuffled = spec.choices.model_copy(update={"shuffle": seed})
        renderer = Renderer(spec.model_copy(update={"choices": shuffled}), "llama-mc")
        source = Row(source_row, "x", None, ("p", "q"), tuple(choices), gold)
        item = renderer.item(source, 0)
        assert item.option_order is not None
        assert sorted(item.option_order) == list(range(len(choices)))
        assert item.option_order[item.gold] == gold
        assert renderer.item(source, 1).option_order == item.option_order
        letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[item.gold]
        assert f"\n{letter}. {choices[gold]}\n" in item.context
        assert item.continuations[item.gold] == (f" {letter}" if form == "letter" else f" {choices[gold]}")


@given(
    template=st.lists(st.sampled_from(["{question}", "{passage}", "%s", "%%", "{{", "}}", "\n", "x"]), max_size=8),
    passage=TEXT,
    question=TEXT,
)
def test_templates_hold_nothing_but_their_placeholders(template: list[str], passage: str, question: str) -> None:
    prompt = "".join([*template, "."])
    item = Renderer(spec_with(prompt, "text"), "llama-mc").item(row(passage=passage, question=question), 0)
    values = {"{question}": question, "{passage}": passage, "{{": "{", "}}": "}"}
    assert item.context == "".join(values.get(piece, piece) for piece in template) + "."
