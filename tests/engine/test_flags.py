"""The user's flags: refused by name, checked against the engine's own, read for what they set."""

from __future__ import annotations

import pytest

from llmc.engine.flags import ALIASES, REFUSED, parse
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
