"""Every log-probability equals the one computed without llama.cpp, on real vocabularies, however items are batched."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conftest import USERS_CACHE
from llmc.benchmarks.item import Item
from llmc.engine.binding import Binding
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.locate import EngineFiles
from llmc.scoring.job import Settings
from llmc.scoring.results import ScoredOption
from scorer_helpers import Scorer, item
from tiny_models import TinyModel, fetch_vocabularies

pytestmark = pytest.mark.real
VOCABULARIES = ("llama-spm", "gpt-2", "llama-bpe", "qwen2")
# An F16 cache alone moves values by 1e-3; threads that wait for each other take longer than these models.
EXACT = {"kv_type": "f32", "threads": 1}


@pytest.fixture(scope="session")
def binding(real_engine: EngineFiles) -> Binding:
    engine = real_engine.installed
    if engine is None or engine.binding is None:
        pytest.skip("the installed engine has no binding")
    return Binding(engine.binding, engine.lib)


@pytest.fixture
def scorer(binding: Binding, tmp_path: Path) -> Scorer:
    return Scorer(binding, tmp_path)


@dataclass(frozen=True)
class Made:
    path: Path
    model: TinyModel


@pytest.fixture(scope="module", params=VOCABULARIES)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    vocabulary = fetch_vocabularies(USERS_CACHE) / f"ggml-vocab-{request.param}.gguf"
    model = TinyModel(vocabulary, seed=len(request.param))
    path = model.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    yield Made(path, model)
    path.unlink()


CASES = [
    item(0, "Question: What is the capital of France?\nAnswer:", " Paris", " London", " the city of Rome"),
    item(1, "The price is", " $125", " $150", " $225", gold=2),
    item(2, "Numbers", " 10", " 100", " 1000", " 1"),
    item(3, "It says <s> </s> <|endoftext|> <|im_start|>:", " <s>", " </s>", " <|endoftext|> no"),
    item(4, "Un caf\u00e9 \u00e0 Orl\u00e9ans \u6c34\n", " \u00e1", " \u00e9", " \u6c34\u706b", "\nnext line"),
    item(5, "Ends in spaces  ", " no", " yes", " perhaps not"),
    item(6, "Ends in a line\n", " no", " yes"),
    item(7, "Cut", " it", " it with a knife", gold=1),
    item(8, "Same options", " twin", " twin", " other"),
    item(9, "Trailing whitespace", " a ", " a", "  a"),
    item(10, "X", " A", " B", " C", " D", uncond="Answer:"),
    item(11, "Why?", " because it rains", " because", uncond=""),
    item(12, "Same as its own unconditioned text", " a b", " a c", uncond="Same as its own unconditioned text"),
    item(13, "", " from nothing", " from nowhere", gold=1),
]


@dataclass(frozen=True)
class Expected:
    tokens: int
    total: float
    llama_tokens: int | None
    llama_mean: float | None


def expected(scorer: Scorer, made: Made, items: list[Item], chosen: Settings) -> list[list[Expected]]:
    """Every option's figures by the definitions, each sequence evaluated whole and alone."""
    special = chosen.bos == "model"
    texts = []
    for each in items:
        for text in each.continuations:
            texts += [(each.context + text, special), (each.context.rstrip(), special)]
            texts += [(each.context, special), (text, False)]
    tokens, (bos, eos, adds_eos) = scorer.tokenize(made.path, texts)
    assert not adds_eos
    head = (bos,) if chosen.bos == "always" else ()
    found, place = [], iter(tokens)
    for each in items:
        sequences = []
        for _ in each.continuations:
            whole, bare, context, tail = (next(place) for _ in range(4))
            if chosen.tokenization == "joint":
                sequences.append((head + whole, len(head + bare)))
            else:
                sequences.append((head + context + tail, len(head + context)))
        shared = min(len(whole) for whole, _ in sequences) - 1
        while len({whole[:shared] for whole, _ in sequences}) > 1:
            shared -= 1
        options = []
        for whole, split in sequences:
            offset = 0
            if min(split, shared) == 0 and split == 0:
                whole, offset = ((bos if bos >= 0 else eos), *whole), 1
            values = made.model.log_probabilities(whole, 1)
            past = values[shared + offset - 1 :] if shared > 0 and chosen.tokenization == "joint" else None
            total = math.fsum(values[split + offset - 1 :])
            mean = None if past is None else math.fsum(past) / len(past)
            options.append(Expected(len(whole) - split - offset, total, None if past is None else len(past), mean))
        found.append(options)
    return found


def agree(option: ScoredOption, wanted: Expected) -> bool:
    means = (option.llama_mean, wanted.llama_mean)
    return (
        (option.tokens, option.llama_tokens) == (wanted.tokens, wanted.llama_tokens)
        and abs(option.sum_logprob - wanted.total) < 1e-4
        and (means[0] == means[1] or abs((means[0] or 0.0) - (means[1] or 0.0)) < 1e-4)
    )


@pytest.mark.parametrize("bos", ["model", "never", "always"])
@pytest.mark.parametrize("tokenization", ["joint", "separate"])
def test_every_option_by_every_rule(tokenization: str, bos: str, tiny: Made, scorer: Scorer) -> None:
    chosen = Settings(tokenization=tokenization, bos=bos, uncond=True, **EXACT)  # type: ignore[arg-type]
    found = scorer.answers(tiny.path, CASES, chosen)
    for each, scored, options in zip(CASES, found, expected(scorer, tiny, CASES, chosen), strict=True):
        assert len(scored.options) == len(options) == len(each.continuations)
        for option, wanted in zip(scored.options, options, strict=True):
            assert agree(option, wanted), (each, option, wanted)
    bare = [Item(**{**vars_of(each), "context": each.uncond_context}) for each in CASES if each.uncond_context]
    for scored, options in zip(
        (s for s, each in zip(found, CASES, strict=True) if each.uncond_context),
        expected(scorer, tiny, bare, chosen),
        strict=True,
    ):
        for option, wanted in zip(scored.options, options, strict=True):
            assert option.uncond_sum_logprob == pytest.approx(wanted.total, abs=1e-4)
    assert all(option.uncond_sum_logprob is not None for option in found[11].options)
    assert all(option.uncond_sum_logprob is None for option in found[0].options)


def vars_of(each: Item) -> dict[str, object]:
    return {name: getattr(each, name) for name in Item.__slots__}


WORDS = [
    "the",
    "of",
    "river",
    "12",
    "375",
    "blue?",
    "caf\u00e9",
    "A.",
    "B.",
    "is",
    "Answer:",
    "no\n",
    "yes",
    "(so)",
    "\u6c34",
]


def made_up(seed: int, count: int) -> list[Item]:
    """Items of random words; many begin with the same header, some with the same passage."""
    chance = random.Random(seed)

    def words(least: int, most: int) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(chance.randint(least, most)))

    headers = ["", words(20, 40) + "\n\n", words(20, 60) + "\n\n"]
    passages = ["", words(20, 40) + "\n"]
    header = chance.choice(headers)
    items = []
    for index in range(count):
        if chance.random() < 0.2:
            header = chance.choice(headers)
        context = header + chance.choice(passages) + words(1, 8) + "?"
        options = [" " + words(1, 5) for _ in range(chance.randint(2, 4))]
        items.append(item(index, context, *options, uncond=chance.choice([None, "Answer:"])))
    return items


LAYOUTS = st.builds(
    Settings,
    uncond=st.booleans(),
    road=st.sampled_from(["auto", "auto", "plain"]),
    batch_tokens=st.sampled_from([3, 17, 64, 128, 512]),
    max_sequences=st.sampled_from([2, 5, 128]),
    threads=st.sampled_from([1, 1, 1, 2]),
    kv_type=st.just("f32"),
)


@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.generate],  # every example starts a process: shrinking would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 10_000), layout=LAYOUTS)
def test_no_batching_changes_a_value(seed: int, layout: Settings, tiny: Made, scorer: Scorer) -> None:
    items = made_up(seed, 14)
    found = scorer.answers(tiny.path, items, layout)
    for scored, options in zip(found, expected(scorer, tiny, items, layout), strict=True):
        for option, wanted in zip(scored.options, options, strict=True):
            assert agree(option, wanted), (layout, scored, option, wanted)


def test_order_and_selection_change_nothing(tiny: Made, scorer: Scorer) -> None:
    items = made_up(7, 20)
    chosen = Settings(batch_tokens=64, **EXACT)  # type: ignore[arg-type]
    straight = {each.id: each for each in scorer.answers(tiny.path, items, chosen)}
    turned = [Item(**{**vars_of(each), "index": i}) for i, each in enumerate(reversed(items))]
    for each in scorer.answers(tiny.path, turned, chosen):
        assert figures(each.options) == pytest.approx(figures(straight[each.id].options), abs=1e-4)
    scored, found = scorer.run(tiny.path, items, chosen, indices=(2, 3, 11, 19))
    assert scored.trusted and [each.index for each in found] == [2, 3, 11, 19]
    for each in found:
        assert figures(each.options) == pytest.approx(figures(straight[each.id].options), abs=1e-4)


def figures(options: tuple[ScoredOption, ...]) -> list[float]:
    return [option.sum_logprob for option in options]


def test_a_job_that_goes_on_gives_the_same_bytes(tiny: Made, scorer: Scorer) -> None:
    """With the default cache, where every regrouping would show."""
    items = made_up(3, 40)
    chosen = Settings(batch_tokens=64, uncond=True, threads=1)
    whole = [each.to_json() for each in scorer.answers(tiny.path, items, chosen)]
    for done in (1, 20, 33):
        scored, found = scorer.run(tiny.path, items, chosen, done=done)
        assert scored.trusted and scored.first <= done and scored.first + scored.answered == len(items)
        assert [each.to_json() for each in found] == whole[scored.first :]
    scored, found = scorer.run(tiny.path, items, chosen, done=40)
    assert scored.trusted and not found


@pytest.mark.parametrize("share", ["shared", "plain"])
def test_the_known_answer_model(share: str, scorer: Scorer, known_model: Path) -> None:
    model = KnownAnswerModel()
    items = [item(i, f"Question {i} caf\u00e9?", " A", " Bc", " the end", " the enD") for i in range(30)]
    settings_ = Settings(road=share)  # type: ignore[arg-type]
    for each, scored in zip(items, scorer.answers(known_model, items, settings_), strict=True):
        before = len(model.tokenize(each.context))
        means = model.option_scores(each.context, [text[1:] for text in each.continuations])
        for text, option, mean in zip(each.continuations, scored.options, means, strict=True):
            tail = model.tokenize(each.context + text)[before:]
            assert option.sum_logprob == pytest.approx(math.fsum(model.logprobs[t] for t in tail), abs=1e-4)
            assert option.tokens == len(tail) and option.llama_mean == pytest.approx(mean, abs=1e-4)


def test_a_cut_question_is_evaluated_from_where_it_was_cut(tiny: Made, scorer: Scorer) -> None:
    long = "word " * 60
    items = [item(0, long + "end", " one two", " three"), item(1, "short", " one", " two")]
    chosen = Settings(context=24, truncate="left", bos="never", **EXACT)  # type: ignore[arg-type]
    scored, found = scorer.run(tiny.path, items, chosen)
    assert scored.trusted and [f.slug for f in scored.findings] == ["items-truncated"]
    assert all(option.dropped for option in found[0].options) and not any(o.dropped for o in found[1].options)
    texts = [(long + "end" + text, False) for text in items[0].continuations]
    tokens, _ = scorer.tokenize(tiny.path, texts)
    for option, whole in zip(found[0].options, tokens, strict=True):
        assert option.dropped == len(whole) - 25
        values = tiny.model.log_probabilities(whole[-25:], 1)
        assert option.sum_logprob == pytest.approx(math.fsum(values[-option.tokens :]), abs=1e-4)
