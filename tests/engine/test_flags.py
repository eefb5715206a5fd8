"""The user's flags: refused by name, checked against the engine's own, read for what they set."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmc.engine.flags import ALIASES, REFUSED, adapter_files, adapter_sums, changing_the_model, parse
from llmc.errors import UsageError

KNOWN = {"-t", "--threads", "-np", "--parallel", "-c", "-ngl", "-fa", "-s", *REFUSED, *ALIASES}


@pytest.mark.parametrize("flag", sorted(REFUSED))
def test_refused_flags_say_why(flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse([flag, "x"], KNOWN)
    assert flag in caught.value.what and caught.value.remedy


@pytest.mark.parametrize("alias", sorted(a for a, name in ALIASES.items() if name in REFUSED))
def test_long_names_are_refused_too(alias: str) -> None:
    with pytest.raises(UsageError):
        parse([alias], KNOWN)


def test_values_by_canonical_name() -> None:
    flags = parse(["--parallel", "8", "-s", "-1", "-fa"], KNOWN)
    assert flags.number("-np") == 8
    assert flags.values["-s"] == "-1"  # a negative number is a value
    assert flags.has("-fa") and flags.values["-fa"] is None
    assert flags.number("-c") is None
    assert flags.given == ("--parallel", "8", "-s", "-1", "-fa")


@pytest.mark.parametrize("text", ["0", "-4", "x", "1.5", ""])
def test_numbers_must_be_whole_and_positive(text: str) -> None:
    with pytest.raises(UsageError, match="-np"):
        parse(["-np", text], KNOWN).number("-np")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["extra"], "belongs to no flag"),
        (["--thraeds", "4"], "did you mean --threads"),
        (["-t=4"], "does not read '-t=4'"),
    ],
)
def test_mistakes_are_explained(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(words, KNOWN)


def test_without_the_engines_help_any_name_passes() -> None:
    assert parse(["--anything", "1"]).values == {"--anything": "1"}


@pytest.mark.parametrize("value", ["tokenizer.ggml.add_bos_token=bool:false", "a.b=int:1,tokenizer.ggml.pre=str:x"])
def test_a_tokenizer_of_another_kind_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="would tokenize otherwise"):
        parse(["--override-kv", value])
    assert parse(["--override-kv", "llama.expert_used_count=int:2"]).has("--override-kv")


def test_flags_that_make_another_model() -> None:
    given = ["-t", "4", "--lora", "x", "--rope-freq-base", "1e6", "-gan", "2", "--yarn-orig-ctx", "9", "-ctk", "f16"]
    assert changing_the_model(given) == ["--lora", "--rope-freq-base", "-gan", "--yarn-orig-ctx"]
    assert changing_the_model(["-t", "4", "-ngl", "99", "-fa", "off"]) == []


def test_files_that_are_added_to_the_model(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a.gguf", "b:1.gguf", "c"))
    for path in (a, b, c):
        path.write_text(path.name)
    assert adapter_files(["--lora", str(a), "-t", "4"]) == [a]
    assert adapter_files(["--lora", f"{a},{b}"]) == [a, b]
    assert adapter_files(["--lora-scaled", f"{a}:0.5,{b}:2", "--control-vector", str(c)]) == [a, b, c]
    assert adapter_files(["--lora-scaled", str(a), "0.5"]) == [a]
    assert adapter_files(["-t", str(a), "--lora", "not-there"]) == []
    before = adapter_sums(["--lora", str(a)])
    a.write_text("another")
    assert adapter_sums(["--lora", str(a)]) != before
