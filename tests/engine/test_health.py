"""The health check: a model that answers obvious questions passes, one that cannot does not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from scipy.stats import binom

from helpers import Called, Cli, letter_tasks
from llmc import mcbin
from llmc.engine.canary import POSITIONS, canary_tasks
from llmc.engine.health import binomial_tail, constant_position


def test_golds_stand_at_every_position_equally_often() -> None:
    golds = Counter(task.gold for task in canary_tasks())
    assert len(golds) == POSITIONS and len(set(golds.values())) == 1


def test_options_differ_and_none_begins_another() -> None:
    for task in canary_tasks():
        assert len(set(task.options)) == POSITIONS
        assert not [a for a in task.options for b in task.options if a != b and b.startswith(a)]
        assert len({tuple(sorted(option)) for option in task.options}) == 1  # the same letters


@pytest.mark.parametrize(("k", "n", "p"), [(0, 24, 0.25), (6, 24, 0.25), (12, 24, 0.25), (24, 24, 0.25), (3, 7, 0.5)])
def test_binomial_tail_is_scipys(k: int, n: int, p: float) -> None:
    assert binomial_tail(k, n, p) == pytest.approx(binom.sf(k - 1, n, p), rel=1e-12)


def test_constant_position() -> None:
    golds = [0, 1, 2, 3] * 6
    assert constant_position("0100" * 6, golds) == 1
    assert constant_position("0100" * 5 + "0110", golds) is None


def score(cli: Cli, tmp_path: Path, model: Path, *more: str) -> Called:
    bench = tmp_path / "b.bin"
    mcbin.write(bench, letter_tasks(8))
    return cli("run", "-m", model, "-b", bench, "--out", tmp_path / "out", "--json", *more)


@pytest.mark.usefixtures("own_cache", "fake_engine")
@pytest.mark.parametrize(
    ("mode", "healthy"),
    [("right", True), ("share=75", True), ("always=0", False), ("always=3", False), ("wrong", False), ("cut=5", False)],
)
def test_verdicts(
    mode: str, healthy: bool, cli: Cli, tmp_path: Path, known_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", mode)
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "canary")
    called = score(cli, tmp_path, known_model)
    assert called.code == (0 if healthy else 3)
    assert ("model-unhealthy" in called.slugs) is not healthy
    if not healthy:
        assert called.record["counts"]["scored"] == 0  # nothing was scored with such a model
    accepted = score(cli, tmp_path, known_model, "--no-health-check")
    assert accepted.code == 0
    assert accepted.record["health"] == {"checked": False, "reason": "--no-health-check"}


@pytest.mark.usefixtures("own_cache", "fake_engine")
def test_a_model_is_checked_once(cli: Cli, tmp_path: Path, known_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "calls"
    monkeypatch.setenv("FAKE_ENGINE", "right")
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "canary")
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(log))
    for _ in range(2):
        assert score(cli, tmp_path, known_model, "--force").code == 0
    assert sum("canary.bin" in line for line in log.read_text().splitlines()) == 1
    assert score(cli, tmp_path, known_model, "--force", "--", "-t", "1").code == 0
    assert sum("canary.bin" in line for line in log.read_text().splitlines()) == 2
