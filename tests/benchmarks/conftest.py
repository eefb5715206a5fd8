"""Fixtures of the benchmark tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmc.benchmarks import spec as specs


@pytest.fixture
def small_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real catalogue without its published counts, so that made-up rows pass as the published ones.

    Returns the folder, where a test may change or add specs.
    """
    import yaml

    folder = tmp_path / "configs" / "benchmarks"
    folder.mkdir(parents=True)
    for name, path in specs.catalogue().items():
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        data["expect"] = {}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    monkeypatch.setattr(specs, "configs_dir", lambda *parts: folder)
    return folder
