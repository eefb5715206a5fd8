"""Every rule against tables worked out by hand, and what holds whatever the figures."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.scoring.metrics import GOLD_VALUES, RULES, Tally, choices, choose, gold_values, metrics, normalized, scores
from llmc.scoring.results import ScoredItem, ScoredOption, lengths


def option(
    total: float, tokens: int, text: str, mean: float | None = None, uncond: float | None = None
) -> ScoredOption:
    return ScoredOption(
        sum_logprob=total,
        tokens=tokens,
        **lengths(text),
        llama_mean=mean,
        llama_tokens=None if mean is None else 1,
        uncond_sum_logprob=uncond,
    )


def scored(*options: ScoredOption, gold: int = 0) -> ScoredItem:
    return ScoredItem(0, "q", gold, 0, options)


# sums -4, -6, -9 over 1, 2, 4 tokens; 3, 6, 12 characters with the space; 3, 7, 12 bytes.
ITEM = scored(
    option(-4.0, 1, " ab", -4.0, -2.0),
    option(-6.0, 2, " caf\u00e9s", -2.0, -6.5),
    option(-9.0, 4, " abcdefghijk", -2.25, -9.0),
    gold=1,
)


@pytest.mark.parametrize(
    ("rule", "wanted", "chosen"),
    [
        ("acc_raw", (-4, -6, -9), 0),
        ("acc_per_token", (-4, -3, -2.25), 2),
        ("acc_per_char", (-4 / 3, -1, -0.75), 2),
        ("acc_per_byte", tuple(1.44269504089 * x for x in (-4 / 3, -6 / 7, -0.75)), 2),
        ("acc_uncond", (-2, 0.5, 0), 1),
        ("acc_norm", (-2, -1.2, -9 / 11), 2),
        ("acc_bytes", (-2, -1, -9 / 11), 2),
        ("llama_cpp", (-4, -2, -2.25), 1),
    ],
)
def test_rules(rule: str, wanted: tuple[float, ...], chosen: int) -> None:
    assert scores(ITEM, rule) == pytest.approx(wanted)
    choice = choose(ITEM, rule)
    assert choice is not None and (choice.chosen, choice.correct) == (chosen, chosen == ITEM.gold)
    second = sorted(wanted)[-2]
    assert choice.margin == pytest.approx(max(wanted) - second)


def test_gold_values() -> None:
    assert gold_values(ITEM) == pytest.approx(
        {
            "sum_logits_corr": -6,
            "logits_per_token_corr": -3,
            "logits_per_char_corr": -1,
            "bits_per_byte_corr": 1.44269504089 * 6 / 7,
        }
    )


def test_the_first_of_equals_wins() -> None:
    twins = scored(
        option(-2.0, 1, " a", -2.0, -1.0), option(-2.0, 1, " b", -2.0, -1.0), option(-3.0, 1, " c", -3.0, -1.0)
    )
    assert {rule: choice.chosen for rule, choice in choices(twins).items()} == dict.fromkeys(RULES, 0)
    assert all(choice.margin == 0 for choice in choices(twins).values())


def test_letters_are_judged_alike_by_all_rules() -> None:
    letters = scored(*(option(x, 1, f" {name}", x) for name, x in zip("ABCD", (-3.0, -1.0, -2.0, -9.0), strict=True)))
    assert {choice.chosen for choice in choices(letters).values()} == {1}
    assert "acc_uncond" not in choices(letters)


def test_means_over_a_task() -> None:
    first, second = ITEM, scored(option(-1.0, 1, " x", -1.0), option(-2.0, 2, " yz", -0.5), gold=0)
    found = metrics([first, second])
    assert found["acc_raw"] == 0.5 and found["llama_cpp"] == 0.5 and found["acc_per_token"] == 0.5
    assert found["sum_logits_corr"] == -3.5
    assert found["bits_per_byte_corr"] == pytest.approx(1.44269504089 * (6 / 7 + 1 / 2) / 2)
    assert "acc_uncond" not in found  # one item has it, the other not
    assert Tally().means() == {}


FIGURE = st.floats(-1e3, 0)
OPTIONS = st.lists(
    st.builds(option, FIGURE, st.integers(1, 20), st.text(min_size=1, max_size=9), FIGURE, FIGURE), min_size=2
)


@given(OPTIONS, st.data())
def test_what_holds_of_every_choice(options: list[ScoredOption], data: st.DataObject) -> None:
    each = scored(*options, gold=data.draw(st.integers(0, len(options) - 1)))
    for rule, choice in choices(each).items():
        assert choice.scores[choice.chosen] == max(choice.scores)
        assert choice.chosen == choice.scores.index(max(choice.scores))
        assert choice.margin >= 0 and choice.correct == (choice.chosen == each.gold)
        assert math.fsum(choice.probabilities) == pytest.approx(1)
        assert choice.probabilities[choice.chosen] == max(choice.probabilities)
        assert metrics([each])[rule] == float(choice.correct)
    assert set(metrics([each])) == {*RULES, *GOLD_VALUES}


def test_normalized_weights_far_apart() -> None:
    assert normalized([-1000.0, -1000.0]) == (0.5, 0.5)
    assert normalized([0.0, -2000.0]) == (1.0, 0.0)
