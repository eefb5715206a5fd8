"""How little batches matter, on a real model: what is stated in the documentation is measured here."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmc.benchmarks.item import Item
from llmc.engine.binding import Binding
from llmc.engine.locate import EngineFiles
from llmc.scoring.job import Settings
from llmc.scoring.metrics import choose
from llmc.scoring.results import ScoredItem
from scorer_helpers import Scorer, item

pytestmark = [pytest.mark.real, pytest.mark.slow]

QUESTIONS = (
    ("Which planet do people live on?", ("the planet Earth", "the planet Mars", "a moon of Saturn", "the Sun")),
    ("What do bees make?", ("honey", "milk and butter", "iron", "a kind of cheese")),
    ("What falls from clouds?", ("rain", "sand", "warm bread", "small stones")),
    ("How many legs does a spider have?", ("eight legs", "two legs", "six legs", "a hundred legs")),
    ("What is ice made of?", ("frozen water", "glass", "salt from the sea", "white stone")),
    ("Where do fish live?", ("in water", "in trees", "under the desert", "on the moon")),
    ("What does a thermometer measure?", ("temperature", "time", "the weight of things", "distance")),
    ("Which of these is a metal?", ("copper", "paper", "oak wood", "cotton cloth")),
    ("What do plants need to grow?", ("sunlight and water", "darkness", "plastic", "loud music")),
    ("Which animal gives wool?", ("the sheep", "the snake", "a goldfish", "the eagle")),
    ("What is the opposite of hot?", ("cold", "tall", "a kind of blue", "yesterday")),
    ("What is used to write on paper?", ("a pencil", "a spoon", "a shoe", "a window")),
)
SCAFFOLDS = ("Question: {}\nAnswer:", "Q: {}\nA:", "Here is a question for school children.\n{}\nThe answer is")


def items(scaffolds: Sequence[str] = SCAFFOLDS) -> list[Item]:
    """Questions written for this test, each with several scaffolds around it."""
    texts = [(scaffold.format(question), options) for scaffold in scaffolds for question, options in QUESTIONS]
    return [item(i, text, *(f" {each}" for each in options)) for i, (text, options) in enumerate(texts)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("batching")


@pytest.fixture(scope="module")
def scorer(real_engine: EngineFiles, folder: Path) -> Scorer:
    engine = real_engine.installed
    if engine is None or engine.binding is None:
        pytest.skip("the installed engine has no binding")
    return Scorer(Binding(engine.binding, engine.lib), folder)


@pytest.fixture(scope="module")
def f32_model(real_engine: EngineFiles, real_model: Path, folder: Path) -> Path:
    """The real model with its weights dequantized: what rounding is left comes from activations and cache."""
    program = real_engine.binary.with_name("llama-quantize")
    target = folder / "f32.gguf"
    command = [str(program), "--allow-requantize", str(real_model), str(target), "F32"]
    subprocess.run(command, check=True, capture_output=True)
    return target


def means(found: Sequence[ScoredItem]) -> list[float]:
    return [option.llama_mean for each in found for option in each.options if option.llama_mean is not None]


def furthest(a: Sequence[ScoredItem], b: Sequence[ScoredItem]) -> float:
    return max(abs(x - y) for x, y in zip(means(a), means(b), strict=True))


def flips(a: Sequence[ScoredItem], b: Sequence[ScoredItem], rule: str = "llama_cpp") -> int:
    chosen = [[choice.chosen for each in found if (choice := choose(each, rule)) is not None] for found in (a, b)]
    assert len(chosen[0]) == len(chosen[1]) == len(a)
    return sum(x != y for x, y in zip(*chosen, strict=True))


def test_on_f32_weights_batches_move_nothing_that_matters(scorer: Scorer, f32_model: Path) -> None:
    some = items(SCAFFOLDS[:1])
    alone = scorer.answers(f32_model, some, Settings(road="plain", kv_type="f32"))
    exact = scorer.answers(f32_model, some, Settings(kv_type="f32"))
    usual = scorer.answers(f32_model, some)
    print(
        f"furthest from one at a time: {furthest(alone, exact):.2e}, with the usual cache {furthest(alone, usual):.2e}"
    )
    assert furthest(alone, exact) < 1e-3
    assert furthest(alone, usual) < 0.05
    assert flips(alone, exact) == flips(alone, usual) == 0


def test_on_quantized_weights_few_answers_flip(scorer: Scorer, real_model: Path) -> None:
    """Batches of one question, of about eight, and full ones."""
    some = items()
    one, eight, full = (scorer.answers(real_model, some, Settings(batch_tokens=n)) for n in (32, 256, 1024))
    counts = {"1 and 8": flips(one, eight), "1 and full": flips(one, full), "8 and full": flips(eight, full)}
    print(f"answers of {len(some)} that flip between batches of {counts}")
    assert max(counts.values()) <= max(1, 0.01 * len(some))


def test_threads_change_nothing_at_all(scorer: Scorer, real_model: Path) -> None:
    some = items(SCAFFOLDS[:1])[:6]
    one, two = (scorer.answers(real_model, some, Settings(threads=n)) for n in (1, 2))
    assert [each.to_json() for each in one] == [each.to_json() for each in two]


def test_an_option_that_begins_the_others(scorer: Scorer, real_model: Path) -> None:
    """llama-perplexity reads past the end of "cut it"; the capped rule leaves each option its last shared token."""
    context = "Question: How do you divide a piece of string?\nAnswer:"
    plain = Settings(road="plain")
    (each,) = scorer.answers(real_model, [item(0, context, " cut it", " cut it with a knife")], plain)
    short, long = each.options
    assert short.llama_tokens == 1 and long.llama_tokens == 4
    (cut,) = scorer.answers(real_model, [item(0, context + " cut", " it", " it with a knife")], plain)
    for option, tail in zip(each.options, cut.options, strict=True):
        assert option.llama_mean == pytest.approx(tail.sum_logprob / tail.tokens, abs=1e-6)
