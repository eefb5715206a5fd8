"""The launch plan: a function of benchmark, vocabulary and flavour, cut or refused only by the budget."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.engine.gguf_model import ModelFacts
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.plan import MIB, parse_bytes, plan
from llmc.engine.preflight import Preflight
from llmc.engine.probe import ProbeResult
from llmc.errors import RefusedError, UsageError
from llmc.mcbin import BinFacts

PROBE = ProbeResult(
    identity="0" * 64,
    command=("llama-perplexity",),
    usable=True,
    reason="",
    version="test",
    build=1,
    flavour="mainline",
    flags=("-np", "--parallel", "-c", "-b", "-ub", "-fa", "-ctk", "-ctv", "-t", "-ngl", "-dev", "-kvu", "-lv", "-v"),
    base_arguments=("--no-escape", "-lv", "4"),
    context_rule="multiplied",
    needs_kv_unified=False,
    max_sequences=128,
    flash_attention="value",
    devices=(),
    rows_on="stdout",
    final_on="stderr",
)
TOTAL = PROBE.model_copy(update={"context_rule": "total"})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    from llmc.engine.gguf_model import read_model

    return read_model(KnownAnswerModel().write(tmp_path_factory.mktemp("m") / "m.gguf"))


def facts(widest: int = 4, tasks: int = 100) -> BinFacts:
    return BinFacts(tasks, 1, "0" * 64, {4: tasks - 1, widest: 1}, {0: tasks}, 0.25, 0.25, 0, 0, 0)


def tokens(longest: int) -> Preflight:
    return Preflight(
        basis="tokens",
        longest_task=7,
        longest_tokens=longest,
        longest_sequence=longest,
        mean_tokens=60.0,
        total_tokens=6000,
    )


def value(arguments: tuple[str, ...], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


@given(widest=st.integers(2, 100), longest=st.integers(8, 40_000))
def test_every_task_fits_under_either_rule(widest: int, longest: int, model: ModelFacts) -> None:
    for probe in (PROBE, TOTAL):
        made = plan(probe, model, facts(widest), tokens(longest))
        sequences, context = int(value(made.arguments, "-np")), int(value(made.arguments, "-c"))
        total = sequences * context if probe is PROBE else context
        assert sequences >= max(4, widest) and total == made.total_context
        assert total >= max(longest, 2048) and total % 256 == 0
        assert total < max(longest, 2048) + 256 + sequences


def test_the_usual_layout(model: ModelFacts) -> None:
    made = plan(PROBE, model, facts(), tokens(300))
    assert made.arguments == ("-np", "16", "-c", "128", "-fa", "off", "--no-escape", "-lv", "4")
    assert made.memory.logits == 2048 * model.vocab_size * 4


def test_free_memory_does_not_change_the_layout(model: ModelFacts) -> None:
    assert plan(PROBE, model, facts(), tokens(300)) == plan(PROBE, model, facts(), tokens(300), budget=1 << 40)


def test_a_small_budget_cuts_and_says_so(model: ModelFacts) -> None:
    large = dataclasses.replace(model, vocab_size=250_000)
    whole = plan(PROBE, large, facts(), tokens(300))
    cut = plan(PROBE, large, facts(), tokens(300), budget=whole.memory.total // 2)
    assert [f.slug for f in cut.findings] == ["layout-cut-to-memory"]
    assert 300 <= cut.total_context < whole.total_context
    assert cut.memory.total <= whole.memory.total // 2


def test_a_budget_that_cannot_do_is_refused_with_the_number_that_would(model: ModelFacts) -> None:
    large = dataclasses.replace(model, vocab_size=250_000)
    with pytest.raises(RefusedError) as caught:
        plan(PROBE, large, facts(), tokens(3000), budget=100 * MIB)
    assert caught.value.slug == "memory-budget"
    named = caught.value.remedy.split("--memory-budget ")[1].split(",")[0]
    assert plan(PROBE, large, facts(), tokens(3000), budget=parse_bytes(named))


@pytest.mark.parametrize(
    ("probe", "user", "slug", "number"),
    [
        (PROBE, ["-np", "4"], "too-many-options", "-np 5"),
        (PROBE, ["-c", "16", "-np", "8"], "context-too-small", "-c 38"),
        (TOTAL, ["-c", "256", "-np", "8"], "context-too-small", "-c 300"),
        (PROBE.model_copy(update={"max_sequences": 4}), [], "too-many-options", "newer"),
        (PROBE, ["-b", "8"], "context-too-small", "-b 16"),
        (TOTAL, ["-b", "31", "-np", "32"], "context-too-small", "-b 32"),
    ],
)
def test_what_cannot_work_is_refused(
    probe: ProbeResult, user: list[str], slug: str, number: str, model: ModelFacts
) -> None:
    with pytest.raises(RefusedError) as caught:
        plan(probe, model, facts(widest=5), tokens(300), user=user)
    assert caught.value.slug == slug and number in caught.value.remedy


def test_the_users_layout_is_honoured_when_it_suffices(model: ModelFacts) -> None:
    made = plan(PROBE, model, facts(5), tokens(300), user=["-np", "8", "-c", "64"])
    assert (made.sequences, made.context, made.total_context) == (8, 64, 512)
    assert made.arguments[-4:] == ("-np", "8", "-c", "64") and made.arguments.count("-np") == 1


@pytest.mark.parametrize(
    ("changes", "user", "expected"),
    [
        ({}, [], ["-fa", "off"]),
        ({}, ["-ctv", "q8_0"], []),  # a quantized V cache cannot do without flash attention
        ({}, ["-ctv", "f16"], ["-fa", "off"]),
        ({}, ["-fa", "on"], ["-fa", "on"]),
        ({"flash_attention": "switch"}, [], []),  # off by default on those builds
        ({"devices": ("CUDA0: x",)}, [], []),
        ({"devices": ("CUDA0: x",)}, ["-ngl", "0"], ["-fa", "off"]),
    ],
)
def test_flash_attention(changes: dict[str, object], user: list[str], expected: list[str], model: ModelFacts) -> None:
    made = plan(PROBE.model_copy(update=changes), model, facts(), tokens(300), user=user)
    found = list(made.arguments)
    assert (["-fa", found[found.index("-fa") + 1]] if "-fa" in found else []) == expected


def test_kv_unified_only_where_it_is_needed(model: ModelFacts) -> None:
    needs = PROBE.model_copy(update={"needs_kv_unified": True})
    assert "-kvu" in plan(needs, model, facts(), tokens(300)).arguments
    assert "-kvu" not in plan(PROBE, model, facts(), tokens(300)).arguments


def test_the_users_verbosity_replaces_ours(model: ModelFacts) -> None:
    made = plan(PROBE, model, facts(), tokens(300), user=["-lv", "0"])
    assert made.arguments.count("-lv") == 1 and value(made.arguments, "-lv") == "0"


def test_beyond_the_training_context_is_a_warning(model: ModelFacts) -> None:
    short = dataclasses.replace(model, context_length=200)
    assert [f.slug for f in plan(PROBE, short, facts(), tokens(300)).findings] == ["beyond-training-context"]
    assert plan(PROBE, short, facts(), tokens(200)).findings == ()


def test_the_other_layout_differs_in_both_numbers(model: ModelFacts) -> None:
    usual, other = (plan(PROBE, model, facts(), tokens(300), alternative=flag) for flag in (False, True))
    assert usual.sequences != other.sequences and usual.total_context != other.total_context
    with pytest.raises(UsageError, match="--layout-check"):
        plan(PROBE, model, facts(), tokens(300), user=["-np", "8"], alternative=True)


def test_the_command_names_model_and_benchmark(model: ModelFacts) -> None:
    command = plan(PROBE, model, facts(), tokens(300)).command(["e"], Path("m.gguf"), Path("b.bin"))
    assert command[:6] == ["e", "-m", "m.gguf", "--multiple-choice", "-bf", "b.bin"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8G", 8 << 30), ("512M", 512 << 20), ("512MiB", 512 << 20), ("1.5gb", 3 << 29), ("4096", 4096), ("2 k", 2048)],
)
def test_amounts_of_memory(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "x", "-1G", "0", "8Q", "nan", "inf", "1e40"])
def test_amounts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="amount of memory"):
        parse_bytes(text)
