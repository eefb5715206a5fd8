"""A sweep in a folder of its own, for tests: configurations, models, benchmarks, and what came of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import Called, Cli, letter_tasks
from llmc import mcbin
from llmc.engine.known_answer import KnownAnswerModel
from llmc.runs.sweep_map import SweepMap, load_map


@dataclass
class Sweeping:
    """Writes configurations and calls ``llmc sweep`` on them, in this process or in one of its own."""

    folder: Path
    cli: Cli

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def model(self, name: str, **fields: Any) -> Path:
        return KnownAnswerModel(**{"padding": sum(name.encode()), **fields}).write(self.folder / f"{name}.gguf")

    def bench(self, name: str, tasks: int) -> Path:
        path = self.folder / f"{name}.bin"
        mcbin.write(path, letter_tasks(tasks))
        return path

    def config(self, **keys: Any) -> Path:
        """Write a configuration (JSON is YAML) with what these tests always need."""
        body = {"name": "small", "benchmarks": ["*.bin"], "health_check": False, **keys}
        path = self.folder / "sweep.yaml"
        path.write_text(json.dumps(body))
        return path

    def run(self, config: Path, *more: str | Path) -> Called:
        return self.cli("sweep", config, "--out", self.out, *more)

    def start(self, config: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "llmc", "sweep", str(config), "--out", str(self.out), *more],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def map(self, name: str = "small") -> SweepMap:
        return load_map(self.out / "sweeps" / name)

    def statuses(self) -> dict[str, str]:
        return {name: cell.status for name, cell in self.map().cells.items()}

    def records(self) -> list[Path]:
        return sorted(self.out.glob("runs/[!.]*/record.json"))
