from __future__ import annotations

import pytest

from llmc.benchmarks import names
from llmc.benchmarks import spec as specs
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
    ("given", "config", "split", "protocol", "shots"),
    [
        ("mmlu-test", None, "test", "llama-mc", 0),
        ("mmlu-anatomy", "anatomy", "validation", "llama-mc", 0),
        ("mmlu-anatomy-test", "anatomy", "test", "llama-mc", 0),
        ("mmlu-high-school-us-history-test@olmes-5shot", "high_school_us_history", "test", "olmes", 5),
        ("medconceptsqa-icd10cm-easy-test@lm-eval-4shot", "icd10cm_easy", "test", "lm-eval", 4),
        ("medconceptsqa-icd9proc-hard-dev", "icd9proc_hard", "dev", "llama-mc", 0),
        ("mmlu-pro-test", None, "test", "lm-eval", 0),
        ("mmlu-professional-law-test", "professional_law", "test", "llama-mc", 0),
        ("arc-easy-test-3shot", None, "test", "lm-eval", 3),
        ("arc-easy-test@olmes-rc-5shot", None, "test", "olmes-rc", 5),
        ("arc-easy-test@olmes-rc-0shot", None, "test", "olmes-rc", 0),
        ("race-high-2shot", None, "test", "lm-eval", 2),
    ],
)
def test_parts_protocols_and_shots_in_names(
    given: str, config: str | None, split: str, protocol: str, shots: int
) -> None:
    target = names.parse(given)
    assert (target.config, target.split, target.protocol, target.shots) == (config, split, protocol, shots)
    assert names.parse(target.name) == target
    sample = names.parse(f"{target.name}.sample7s1")
    assert (sample.sample, sample.full_name) == ((7, 1), target.name)


ALL = [
    f"{name}-{split}@{protocol}"
    for name in specs.catalogue()
    for split in specs.find(name).splits
    for protocol in specs.find(name).protocols
]


def test_every_name_is_read_back_and_no_two_are_the_same() -> None:
    targets = [names.parse(name) for name in ALL]
    targets += [names.parse(f"{b}-{names.config_name(c)}") for b in ("mmlu", "medconceptsqa") for c in configs(b)]
    assert [names.parse(target.name) for target in targets] == targets
    assert len({target.name for target in targets}) == len(targets)


def configs(benchmark: str) -> tuple[str, ...]:
    found = specs.find(benchmark).source.configs
    assert found is not None
    return found.names


def test_another_revision() -> None:
    pinned = specs.find("boolq")
    commit = "a" * 40
    other = names.parse("boolq", revision=commit).spec
    assert (other.source.revision, other.source.pinned, other.expect) == (commit, True, {})
    branch = names.parse("boolq", revision="main").spec
    assert (branch.source.revision, branch.source.pinned) == ("main", False)
    assert names.parse("boolq", revision=pinned.source.revision).spec == pinned
    # rows that do not say from which commit they are cannot stand in for another one
    assert specs.find("mmlu").source.mirrors
    assert not names.parse("mmlu", revision="main").spec.source.mirrors


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("mmlu-anatomie-test", "did you mean anatomy-test?"),
        ("mmlu-tset", "did you mean test?"),
        ("mmlu-anatomy-tset", "did you mean test?"),
        ("medconceptsqa-icd10cm-test", "no part or split 'icd10cm-test'"),
        ("hellaswag-test", "published without answers"),
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
