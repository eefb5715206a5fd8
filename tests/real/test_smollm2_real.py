"""A real model on a real benchmark: repeatable, and as free of layout noise as the planned flags make it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import Cli
from llmc.engine.locate import EngineFiles

pytestmark = [pytest.mark.real, pytest.mark.slow]
QUESTIONS = 200


def test_arc_easy_twice_and_at_another_layout(
    cli: Cli, tmp_path: Path, real_engine: EngineFiles, real_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMC_ENGINE", str(real_engine.binary))
    words = ["run", "-m", real_model, "-b", "arc-easy-validation", "--out", tmp_path / "out"]
    words += ["--limit", str(QUESTIONS), "--json"]
    # Threads of two engines at once would wait for each other, and the answers do not depend on their number.
    one_thread = ("--", "-t", "1")
    first = cli(*words, "--layout-check", *one_thread)
    assert first.code == 0, first.out
    record = first.record
    assert record["counts"]["scored"] == QUESTIONS and record["health"]["checked"]
    assert record["result"]["accuracy"] > record["benchmark"]["chance"] + 0.1
    assert record["peak_rss"] <= 1 << 30
    # llama.cpp's own defaults flip 4 to 7 answers between two layouts.
    assert record["layout_check"]["tasks"] == QUESTIONS and record["layout_check"]["flipped"] <= 2
    again = cli(*words, "--force", *one_thread)
    assert again.record["correct"] == record["correct"]
