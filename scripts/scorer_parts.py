"""What the measurement scripts of the scorer share: the engine's command, the worker's, and a file of fewer tasks."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from llmc import mcbin
from llmc.engine.binding import Binding, require_binding
from llmc.errors import LlmcError

LLMC = [sys.executable, "-m", "llmc"]


def binding() -> Binding:
    """Return the binding that llmc would use, or end the script with what to do."""
    try:
        return require_binding()
    except LlmcError as error:
        sys.exit(f"{error.what}: {error.remedy}")


def first_tasks(source: Path, count: int | None, folder: Path) -> Path:
    """Return a file with the first ``count`` tasks of ``source``, or ``source`` when that is all of them."""
    if count is None:
        return source
    target = folder / f"{source.stem}.first{count}.bin"
    try:
        mcbin.write(target, itertools.islice(mcbin.Reader(source), count))
    except LlmcError as error:
        sys.exit(f"{error.what}; {error.remedy}")
    return target


def planned_command(model: Path, bench: Path, out: Path, *flags: str) -> list[str]:
    """Return the llama-perplexity command that `llmc run` plans for a file."""
    answer = llmc_json("run", "-m", model, "-b", bench, "--out", out, "--dry-run", "--json", "--", *flags)
    return [str(word) for word in answer["cells"][0]["command"]]


def llmc_json(*words: str | Path) -> dict[str, Any]:
    """Run an llmc command with --json and return its data; end the script when there is none."""
    command = [*LLMC, *(str(word) for word in words)]
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    try:
        data: dict[str, Any] = json.loads(done.stdout)["data"]
    except (ValueError, KeyError):
        sys.exit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return data


def worker_environment(found: Binding) -> dict[str, str]:
    """Return the environment in which the scorer's worker runs as a program of its own."""
    root = Path(__file__).resolve().parents[1]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(found.site), str(root))),
        "LLAMA_CPP_LIB_PATH": str(found.lib),
        "OPENBLAS_NUM_THREADS": "1",
    }
