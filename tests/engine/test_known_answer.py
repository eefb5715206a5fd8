"""The known-answer model: its distribution, its tokenizer's rules, its file."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.engine.gguf_model import read_model
from llmc.engine.known_answer import KnownAnswerModel

MODEL = KnownAnswerModel()


def test_the_distribution_sums_to_one() -> None:
    assert math.fsum(math.exp(x) for x in MODEL.logprobs) == pytest.approx(1, abs=1e-12)


@given(st.text(max_size=40), st.booleans())
def test_every_byte_is_one_token_but_spaces_before_capitals(text: str, bos: bool) -> None:
    merged = sum(1 for a, b in itertools.pairwise(text) if a == " " and "A" <= b <= "Z")
    assert len(KnownAnswerModel(add_bos=bos).tokenize(text)) == len(text.encode()) - merged + bos


def test_scores_by_hand() -> None:
    """Letters are one token each; texts are means over the bytes past the shared ones."""
    norm = math.log(math.fsum(math.exp(x) for x in MODEL.logits))
    assert MODEL.option_scores("Q?", ["A", "C"]) == pytest.approx([6.0 - norm, 5.0 - norm])
    at = {c: (ord(c) * 37 % 101) / 25 - 2 for c in "xyz"}
    expected = [(at["x"] + at["y"]) / 2 - norm, at["z"] - norm]
    assert MODEL.option_scores("Q?", ["txy", "tz"]) == pytest.approx(expected)
    assert MODEL.choice("Q?", ["B", "A"]) == 1


def test_an_option_inside_the_common_prefix_has_no_score() -> None:
    with pytest.raises(ValueError, match="common prefix"):
        MODEL.option_scores("Q?", ["yes", "yes, it is"])


@pytest.mark.parametrize("model", [MODEL, KnownAnswerModel(add_bos=False), KnownAnswerModel(padding=1000)])
def test_the_file_says_what_the_object_says(model: KnownAnswerModel, tmp_path: Path) -> None:
    facts = read_model(model.write(tmp_path / "model.gguf"))
    assert facts.architecture == "llama"
    assert facts.vocab_size == len(model.pieces)
    assert facts.add_bos is model.add_bos
    assert facts.context_length == model.context_length
