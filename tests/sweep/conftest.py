"""A folder to sweep in: a stand-in engine with its quantizer, and two small benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

import fake_quantize
from helpers import Cli
from sweeping import Sweeping


@pytest.fixture
def sweeping(tmp_path: Path, fake_engine: Path, own_cache: Path, cli: Cli) -> Sweeping:
    fake_quantize.install(fake_engine.parent)
    made = Sweeping(tmp_path, cli)
    made.bench("alpha", 12)
    made.bench("beta", 8)
    return made
