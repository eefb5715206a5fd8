"""The scrubbed environment: what goes, what stays, what is said about it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from llmc.engine.environment import scrubbed, user_config

pytestmark = pytest.mark.usefixtures("own_cache")


def test_llama_variables_go_and_others_stay(tmp_path: Path) -> None:
    base = {"LLAMA_ARG_N_PARALLEL": "2", "LLAMA_LOG_VERBOSITY": "0", "PATH": "/bin", "HOME": str(tmp_path)}
    found = scrubbed(base, tmp_path / "none.ini")
    assert found.dropped == {"LLAMA_ARG_N_PARALLEL": "2", "LLAMA_LOG_VERBOSITY": "0"}
    assert not [name for name in found.variables if name.startswith("LLAMA_")]
    assert found.variables["PATH"] == "/bin" and found.variables["LC_ALL"] == "C"
    (warning,) = found.findings()
    assert warning.slug == "environment-scrubbed" and "LLAMA_ARG_N_PARALLEL=2" in warning.detail


def test_the_users_config_file_is_out_of_reach(tmp_path: Path) -> None:
    config = tmp_path / ".config/llama.cpp/config.ini"
    config.parent.mkdir(parents=True)
    config.write_text("escape = on\n")
    found = scrubbed({"HOME": str(tmp_path)}, tmp_path / "none.ini")
    assert found.dropped == {str(config): f"sha256:{hashlib.sha256(config.read_bytes()).hexdigest()}"}
    assert list(Path(found.variables["XDG_CONFIG_HOME"]).iterdir()) == []


def test_the_system_config_file_is_named_and_hashed(tmp_path: Path) -> None:
    system = tmp_path / "config.ini"
    system.write_text("verbosity = 0\n")
    found = scrubbed({"HOME": str(tmp_path)}, system)
    assert found.config_files == {str(system): hashlib.sha256(system.read_bytes()).hexdigest()}
    assert str(system) in found.findings()[0].detail


def test_nothing_to_say_about_a_clean_environment(tmp_path: Path) -> None:
    assert scrubbed({"HOME": str(tmp_path)}, tmp_path / "none.ini").findings() == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HOME": "/home/x"}, "/home/x/.config/llama.cpp/config.ini"),
        ({"HOME": "/home/x", "XDG_CONFIG_HOME": "/c"}, "/c/llama.cpp/config.ini"),
        ({"HOME": "/home/x", "XDG_CONFIG_HOME": ""}, "/home/x/.config/llama.cpp/config.ini"),
    ],
)
def test_where_the_user_config_lies(variables: dict[str, str], expected: str) -> None:
    assert user_config(variables) == Path(expected)
