"""Every way a scoring run can fail, with the real libllama: a clear finding, and nothing lost of what was flushed."""

from __future__ import annotations

import os
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import USERS_CACHE
from llmc.engine.binding import Binding
from llmc.engine.gguf_model import read_model
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.locate import EngineFiles
from llmc.engine.process import Limits
from llmc.errors import InputFileError, LlmcError, RefusedError
from llmc.scoring.job import Job, Settings
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import STDERR_LOG, Scored, score_items
from scorer_helpers import Scorer, item, write_items
from tiny_models import TinyModel, fetch_vocabularies, write_bert, write_mamba

pytestmark = pytest.mark.real
ITEMS = [item(i, f"Question number {i}?", " A", " B", " the rest", gold=i % 3) for i in range(60)]


@pytest.fixture
def scorer(real_engine: EngineFiles, tmp_path: Path) -> Scorer:
    engine = real_engine.installed
    if engine is None or engine.binding is None:
        pytest.skip("the installed engine has no binding")
    return Scorer(Binding(engine.binding, engine.lib), tmp_path)


@pytest.fixture(scope="session")
def vocabulary() -> Path:
    return fetch_vocabularies(USERS_CACHE) / "ggml-vocab-llama-spm.gguf"


def slugs(scored: Scored) -> list[str]:
    return [finding.slug for finding in scored.findings]


def test_a_model_of_nan_is_found_out(scorer: Scorer, tmp_path: Path) -> None:
    model = KnownAnswerModel(nan=True).write(tmp_path / "nan.gguf")
    scored, found = scorer.run(model, ITEMS)
    assert slugs(scored) == ["non-finite", "scored-fewer"] and not found and not scored.trusted
    assert "q0" in scored.findings[0].detail


@pytest.mark.parametrize("after", [1, 7, 30])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_worker_killed_at_any_moment(
    number: signal.Signals, after: int, scorer: Scorer, known_model: Path, tmp_path: Path
) -> None:
    path = write_items(tmp_path / "x.items.parquet", ITEMS)
    found: list[ScoredItem] = []

    def take(scored: ScoredItem) -> None:
        found.append(scored)
        if len(found) == after:
            os.kill(worker_in(tmp_path), number)

    job = Job(path, Settings(batch_tokens=64))
    scored = score_items(job, read_model(known_model), scorer.binding, tmp_path, on_result=take)
    assert slugs(scored)[0] == "killed-by-signal" and number.name in scored.findings[0].detail
    assert len(found) >= after and [each.index for each in found] == list(range(len(found)))
    if len(found) < len(ITEMS):
        assert "scored-fewer" in slugs(scored)
    assert found == scorer.answers(known_model, path, job.settings)[: len(found)]


def worker_in(folder: Path) -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"llmc.scoring.worker" in words and any(str(folder).encode() in word for word in words):
                return int(entry.name)
    raise AssertionError("no worker is at work")


def test_a_crash_in_native_code_leaves_its_trace(scorer: Scorer, known_model: Path, tmp_path: Path) -> None:
    def crash(scored: ScoredItem) -> None:
        if scored.index == 0:
            os.kill(worker_in(tmp_path), signal.SIGSEGV)

    path = write_items(tmp_path / "x.items.parquet", ITEMS)
    score_items(Job(path), read_model(known_model), scorer.binding, tmp_path, on_result=crash)
    assert "Segmentation fault" in (tmp_path / STDERR_LOG).read_text()


def test_a_worker_that_takes_too_long(scorer: Scorer, known_model: Path) -> None:
    scored, found = scorer.run(known_model, ITEMS, limits=Limits(timeout=0.05))
    # Whether it had announced anything by then is a matter of luck.
    assert slugs(scored)[0] == "timeout" and set(slugs(scored)) <= {"timeout", "scored-fewer"} and not found


def test_a_truncated_model(scorer: Scorer, known_model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(known_model.read_bytes()[:-1000])
    with pytest.raises(InputFileError, match="truncated"):
        scorer.run(cut, ITEMS)
    whole = read_model(known_model)
    path = write_items(tmp_path / "x.items.parquet", ITEMS)
    # Cut after llmc looked at it: libllama finds out.
    scored = score_items(Job(path), replace(whole, parts=(cut,)), scorer.binding, tmp_path, on_result=print)
    assert slugs(scored) == ["model-unreadable"] and "libllama" in scored.findings[0].detail


def test_a_vocabulary_only_file(scorer: Scorer, vocabulary: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no weights") as caught:
        scorer.run(vocabulary, ITEMS)
    assert caught.value.slug == "model-unreadable"
    path = write_items(tmp_path / "x.items.parquet", ITEMS)
    facts = replace(read_model(vocabulary), parameters=1)
    scored = score_items(Job(path), facts, scorer.binding, tmp_path, on_result=print)
    assert slugs(scored) == ["model-unreadable"] and not scored.answered


@pytest.mark.parametrize(
    ("settings", "slug", "words"),
    [
        (Settings(context=12), "context-too-small", "q0, q1"),
        (Settings(context=3, truncate="left"), "context-too-small", "q0, q1"),
    ],
)
def test_items_that_do_not_fit_are_refused_by_name(
    settings: Settings, slug: str, words: str, scorer: Scorer, known_model: Path
) -> None:
    with pytest.raises(RefusedError, match=words) as caught:
        scorer.run(known_model, ITEMS, settings)
    assert caught.value.slug == slug and caught.value.remedy


def test_an_item_longer_than_the_model_was_trained_on(scorer: Scorer, tmp_path: Path) -> None:
    model = KnownAnswerModel(context_length=100).write(tmp_path / "short.gguf")
    items = [*ITEMS[:5], item(5, "long " * 60, " A", " B")]
    with pytest.raises(RefusedError, match="item q5: up to 3"):
        scorer.run(model, items)
    assert len(scorer.answers(model, items, Settings(context=1000))) == 6
    scored, found = scorer.run(model, items, Settings(truncate="left"))
    assert scored.trusted and slugs(scored) == ["items-truncated"] and len(found) == 6
    assert [any(o.dropped for o in each.options) for each in found] == [False] * 5 + [True]


def test_an_option_without_tokens(scorer: Scorer, known_model: Path) -> None:
    with pytest.raises(RefusedError, match="item q1: an option has no tokens") as caught:
        scorer.run(known_model, [ITEMS[0], item(1, "Q", "", " a")], Settings(tokenization="separate"))
    assert caught.value.slug == "cannot-score"


def test_a_recurrent_model_takes_the_plain_road(scorer: Scorer, vocabulary: Path, tmp_path: Path) -> None:
    model = write_mamba(vocabulary, tmp_path / "mamba.gguf")
    items = ITEMS[:8]
    scored, found = scorer.run(model, items)
    assert scored.trusted and slugs(scored) == ["one-at-a-time"] and len(found) == 8
    for other in (Settings(batch_tokens=3), Settings(batch_tokens=7, threads=1)):
        for mine, theirs in zip(found, scorer.run(model, items, other)[1], strict=True):
            sums: list[Any] = [[option.sum_logprob for option in each.options] for each in (mine, theirs)]
            assert sums[0] == pytest.approx(sums[1], abs=1e-4)
    turned = [item(i, each.context, *reversed(each.continuations)) for i, each in enumerate(reversed(items))]
    for mine, theirs in zip(found, reversed(scorer.run(model, turned)[1]), strict=True):
        sums = [[o.sum_logprob for o in mine.options], [o.sum_logprob for o in reversed(theirs.options)]]
        assert sums[0] == pytest.approx(sums[1], abs=1e-4)
    with pytest.raises(RefusedError) as caught:
        scorer.run(model, items, Settings(road="shared"))
    assert caught.value.slug == "no-shared-prefix"


def test_a_model_that_predicts_nothing(scorer: Scorer, tmp_path: Path) -> None:
    model = write_bert(fetch_vocabularies(USERS_CACHE) / "ggml-vocab-bert-bge.gguf", tmp_path / "bert.gguf")
    scored, found = scorer.run(model, ITEMS)
    assert slugs(scored) == ["model-unreadable"] and not found
    assert "predicts no next token" in scored.findings[0].detail


def test_memory_is_bounded_whatever_the_context(scorer: Scorer, tmp_path: Path) -> None:
    """A context of thousands of tokens by a vocabulary of 152 thousand would be gigabytes of logits."""
    model = TinyModel(fetch_vocabularies(USERS_CACHE) / "ggml-vocab-qwen2.gguf").write(tmp_path / "tiny.gguf")
    long = [item(0, "word " * 3000, *(f" {name}" + " more" * 300 for name in "ABCD"))]
    scored, found = scorer.run(model, long)
    assert scored.trusted and found[0].options[0].tokens > 300
    assert scored.announcement is not None and scored.announcement["cells"] > 3000
    assert scored.outcome.peak_rss is not None and scored.outcome.peak_rss < 800 << 20


def test_without_a_binding(scorer: Scorer, known_model: Path, tmp_path: Path) -> None:
    nothing = Scorer(Binding(tmp_path, tmp_path), tmp_path)
    scored, _ = nothing.run(known_model, ITEMS)
    assert slugs(scored) == ["scorer-failed"] and "llama_cpp" in scored.findings[0].detail


def test_memory_short(scorer: Scorer, vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of 16 GB: libllama is refused it, and says so."""
    wide = TinyModel(vocabulary, width=128, heads=2, heads_kv=2, layers=8, context=1 << 30)
    model = wide.write(tmp_path / "wide.gguf")
    items = write_items(tmp_path / "long.items.parquet", [item(0, "word " * 4_000_000, " A", " B")])
    # The limit holds for this process too, which has grown with the tests before this one.
    grown = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (max(3 << 30, grown + (1 << 30)), hard))
    try:
        scored, found = scorer.run(model, items)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert not found and not scored.trusted
    assert slugs(scored)[0] == "memory-short", scored.findings


def test_items_that_cannot_be_read(scorer: Scorer, known_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="not a file"):
        scorer.run(known_model, tmp_path / "absent.items.parquet")
    broken = tmp_path / "broken.items.parquet"
    broken.write_bytes(b"PAR1 not at all")
    with pytest.raises(LlmcError):
        scored, _ = scorer.run(known_model, broken)
        raise RefusedError(scored.findings[0].slug, scored.findings[0].detail)
