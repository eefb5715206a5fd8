"""The environment llama-perplexity runs in: nothing in it changes the result behind the user's back.

llama.cpp reads over 150 ``LLAMA_*`` variables and two configuration files. A run drops the variables (and
records them), and points ``XDG_CONFIG_HOME`` at an empty folder; ``/etc/llama.cpp/config.ini`` cannot be
switched off, so its presence is reported and its checksum recorded.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmc.files import cache_dir, is_file, sha256_file
from llmc.findings import Finding, finding

SYSTEM_CONFIG = Path("/etc/llama.cpp/config.ini")


@dataclass(frozen=True)
class Environment:
    """``variables`` for the child; ``dropped`` what was taken away; ``config_files`` path -> sha256."""

    variables: dict[str, str]
    dropped: dict[str, str]
    config_files: dict[str, str]

    def findings(self) -> list[Finding]:
        parts = []
        if self.dropped:
            parts.append("not passed on: " + ", ".join(f"{k}={v}" for k, v in sorted(self.dropped.items())))
        parts += [f"in force, cannot be switched off: {path}" for path in self.config_files]
        return [finding("environment-scrubbed", "; ".join(parts))] if parts else []


def user_config(variables: Mapping[str, str]) -> Path:
    """Return where llama.cpp looks for the user's config.ini under these variables."""
    home = variables.get("XDG_CONFIG_HOME") or str(Path(variables.get("HOME", "")) / ".config")
    return Path(home) / "llama.cpp" / "config.ini"


def scrubbed(base: Mapping[str, str] | None = None, system_config: Path = SYSTEM_CONFIG) -> Environment:
    """Return the environment of a safe run, made from ``base`` (this process's own when None)."""
    source = dict(os.environ if base is None else base)
    dropped = {name: value for name, value in source.items() if name.startswith("LLAMA_")}
    dropped |= {path: f"sha256:{sha256}" for path, sha256 in config_sums(user_config(source)).items()}
    empty = cache_dir("empty-config")
    empty.mkdir(parents=True, exist_ok=True)
    variables = {name: value for name, value in source.items() if not name.startswith("LLAMA_")}
    variables |= {"LC_ALL": "C", "XDG_CONFIG_HOME": str(empty)}
    return Environment(variables, dropped, config_sums(system_config))


def config_sums(*places: Path) -> dict[str, str]:
    """Return path -> sha256 of the files that are there; one that this user may not read, llama.cpp cannot either."""
    sums = {}
    for path in places:
        with contextlib.suppress(OSError):
            if is_file(path):
                sums[str(path)] = sha256_file(path)
    return sums
