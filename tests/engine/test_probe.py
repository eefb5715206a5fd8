"""The probe: engines are judged by what they do with known questions, and by what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_engine import install
from llmc.engine import probe as module
from llmc.engine.locate import locate
from llmc.engine.probe import known_tasks, parse_devices, parse_flags, parse_version, probe, require_usable
from llmc.engine.process import Limits
from llmc.errors import RefusedError

pytestmark = pytest.mark.usefixtures("own_cache")


def test_a_mainline_engine(fake_engine: Path) -> None:
    found = probe(locate())
    assert found.usable and found.flavour == "mainline"
    assert found.context_rule == "multiplied" and not found.needs_kv_unified and found.max_sequences == 128
    assert (found.rows_on, found.final_on) == ("stdout", "stderr")
    assert found.base_arguments == ("--no-escape", "-lv", "4", "--log-colors", "off")
    assert found.flash_attention == "value" and found.backend == "cpu"


@pytest.mark.parametrize(
    ("mode", "rule", "rows_on", "final_on"),
    [("printf", "total", "stdout", "stdout"), ("old", "total", "stdout", "stderr")],
)
def test_other_flavours(
    mode: str, rule: str, rows_on: str, final_on: str, fake_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", mode)
    found = probe(locate())
    assert found.usable, found.reason
    assert (found.context_rule, found.rows_on, found.final_on) == (rule, rows_on, final_on)


@pytest.mark.parametrize("mode", ["wrong", "always=0", "cut=3", "silent", "exit=1", "signal=11", "final=twice"])
def test_engines_that_fail_known_questions_are_refused(
    mode: str, fake_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", mode)
    found = probe(locate())
    assert not found.usable and found.reason
    with pytest.raises(RefusedError) as caught:
        require_usable(found)
    assert caught.value.slug == "engine-unusable" and "llmc engine install" in caught.value.remedy


def test_an_engine_is_probed_once(fake_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "calls"
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(log))
    first = probe(locate())
    calls = len(log.read_text().splitlines())
    assert probe(locate()) == first and len(log.read_text().splitlines()) == calls
    probe(locate(), force=True)
    assert len(log.read_text().splitlines()) == 2 * calls


def test_another_binary_is_another_engine(tmp_path: Path) -> None:
    one = probe(locate(str(install(tmp_path / "one"))))
    other = install(tmp_path / "two")
    other.write_text(other.read_text() + "# changed\n")
    assert probe(locate(str(other))).identity != one.identity


def test_a_damaged_cache_entry_is_probed_again(fake_engine: Path, own_cache: Path) -> None:
    first = probe(locate())
    (entry,) = (own_cache / "probe").glob("*.json")
    entry.write_text('{"identity": 3}')
    assert probe(locate()) == first


def test_known_questions_have_clear_answers() -> None:
    """No two options of a known question score within 0.05, so that rounding cannot decide."""
    model = module.KnownAnswerModel()
    marks = set()
    for task in known_tasks():
        best, second = sorted(model.option_scores(task.question, task.options), reverse=True)[:2]
        assert best - second > 0.05
        marks.add(model.choice(task.question, task.options) == task.gold)
    assert marks == {True, False}


@pytest.mark.parametrize(
    ("text", "version", "build"),
    [
        ("version: 4391 (9ba399df)\nbuilt with cc", "4391 (9ba399df)", 4391),
        ("version: 0.3.0-dev (build 10706, commit 0190529ec)", "0.3.0-dev (build 10706, commit 0190529ec)", 10706),
        ("version: 0 (unknown)", "0 (unknown)", 0),
        ("llamafile-perplexity v0.8.9", "llamafile-perplexity v0.8.9", None),
        ("nothing of the kind", "", None),
    ],
)
def test_versions(text: str, version: str, build: int | None) -> None:
    assert parse_version(text) == (version, build)


def test_flags_from_help() -> None:
    text = "-np,   --parallel N   sequences (see --batch-size)\n-e,    --escape, --no-escape   x\n"
    text += "         --lora FNAME  y\n"
    assert parse_flags(text) == {"-np", "--parallel", "-e", "--escape", "--no-escape", "--lora"}


def test_devices() -> None:
    text = "Available devices:\n  CUDA0: NVIDIA RTX (24564 MiB, 24000 MiB free)\n  CUDA1: x\n"
    assert parse_devices(text) == ("CUDA0: NVIDIA RTX (24564 MiB, 24000 MiB free)", "CUDA1: x")
    assert parse_devices("Available devices:\n") == () == parse_devices("unknown argument")


@pytest.mark.parametrize(
    ("line", "style"),
    [
        ("-fa,   --flash-attn [on|off|auto]   set Flash Attention use", "value"),
        ("-fa,   --flash-attn FA              set Flash Attention use ('on', 'off', or 'auto')", "value"),
        ("-fa,   --flash-attn                 enable Flash Attention (default: disabled)", "switch"),
        ("-fa, --flash-attn <0|1>             enable", "value"),
        ("-t,    --threads N", "none"),
    ],
)
def test_flash_attention_style(line: str, style: str) -> None:
    assert module.flash_attention_style(line) == style


def test_only_a_usable_engine_is_remembered(
    fake_engine: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "exit=1")  # out of memory, say
    assert not probe(locate()).usable
    monkeypatch.delenv("FAKE_ENGINE")
    assert probe(locate()).usable
    monkeypatch.setenv("FAKE_ENGINE", "exit=1")
    assert probe(locate()).usable
    assert not probe(locate(), force=True).usable
    assert not probe(locate()).usable


def test_an_engine_that_hangs_is_asked_once(fake_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Limits(timeout=1.0, stall=0.5, interrupt_grace=0.1, terminate_grace=0.1)
    monkeypatch.setattr(module, "LIMITS", quick)
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(tmp_path / "calls"))
    monkeypatch.setenv("FAKE_ENGINE", "hang=loading")
    found = probe(locate())
    assert not found.usable and "ended after" in found.reason
    asked = [line for line in (tmp_path / "calls").read_text().splitlines() if "--multiple-choice" in line]
    assert len(asked) == 1
