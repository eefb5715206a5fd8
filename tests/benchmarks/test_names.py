from __future__ import annotations

import pytest

from llmc.benchmarks import names
from llmc.errors import UsageError


@pytest.mark.parametrize(
    ("given", "split", "protocol", "sample"),
    [
        ("arc-easy", "validation", "lm-eval", None),
        ("arc-easy-test", "test", "lm-eval", None),
        ("arc-easy-validation@llama-mc", "validation", "llama-mc", None),
        ("arc-easy@llama-mc", "validation", "llama-mc", None),
        ("commonsense-qa-train", "train", "llama-mc", None),
        ("boolq.sample20s7", "validation", "llama-mc", (20, 7)),
        ("arc-easy-test@llama-mc.sample5s0", "test", "llama-mc", (5, 0)),
    ],
)
def test_names_are_read(given: str, split: str, protocol: str, sample: tuple[int, int] | None) -> None:
    target = names.parse(given)
    assert (target.split, target.protocol, target.sample) == (split, protocol, sample)
    assert names.parse(target.name) == target


def test_the_default_protocol_is_not_written() -> None:
    assert names.parse("arc-easy").name == "arc-easy-validation"
    assert names.parse("arc-easy@lm-eval").name == "arc-easy-validation"
    assert names.parse("arc-easy", split="test", protocol="llama-mc").name == "arc-easy-test@llama-mc"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("bolq", "did you mean boolq?"),
        ("", "unknown benchmark"),
        ("arceasy-validation", "did you mean arc-easy-validation?"),
        ("arc-easy-tset", "did you mean test?"),
        ("arc-easy@lm_eval", "did you mean lm-eval?"),
        ("arc-easy@", "no protocol ''"),
        ("arc-easy-", "no split ''"),
        ("commonsense-qa-test", "published without answers"),
        ("boolq-validation.llama200", "made by a run"),
        ("boolq.sample0s1", "unknown benchmark"),
    ],
)
def test_unknown_names_get_the_nearest(given: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        names.parse(given)
    assert words in caught.value.what
    assert caught.value.remedy


def test_an_option_may_not_contradict_the_name() -> None:
    with pytest.raises(UsageError, match="--split asks for 'train'"):
        names.parse("boolq-validation", split="train")
    with pytest.raises(UsageError, match="--protocol asks for 'llama-mc'"):
        names.parse("arc-easy@lm-eval", protocol="llama-mc")
    assert names.parse("boolq-validation", split="validation").split == "validation"
