"""The store of runs: ``out/runs/<started>-<model>-<benchmark>-<key>/``, complete when record.json is in it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from llmc.errors import LlmcError, UsageError, did_you_mean
from llmc.files import write_json
from llmc.runs.kept import count_lines
from llmc.runs.record import RunRecord, load_record

KEY_LENGTH = 10


def now() -> str:
    """The time in UTC, ISO 8601, whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def slug(text: str) -> str:
    """A name that is safe in a path on every file system."""
    return re.sub(r"[^A-Za-z0-9._@-]+", "-", text).strip("-.")[:60] or "x"


class Store:
    """Runs below ``out/runs``."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.root = out / "runs"

    def new_folder(self, started: str, model: str, benchmark: str, key: str) -> Path:
        """Create and return an empty folder for one run; two processes never share one."""
        stamp = started.replace("-", "").replace(":", "")
        name = f"{stamp}-{slug(model)}-{slug(benchmark)}-{key[:KEY_LENGTH]}"
        for number in range(1, 1000):
            folder = self.root / (name if number == 1 else f"{name}.{number}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
        raise UsageError(f"cannot make a folder for the run under {self.root}", "clear it, or choose another --out")

    def partial_folder(self, key: str) -> Path:
        """Where a run in several parts keeps the finished ones, by content, until all are done."""
        return self.root / f".parts-{key[:32]}"

    def folders(self) -> list[Path]:
        """Return the folders of complete runs, oldest first."""
        if not self.root.is_dir():
            if self.out.exists() and not self.out.is_dir():
                raise UsageError(f"--out {self.out} is not a folder", "name the folder that runs were written to")
            return []
        return sorted(p.parent for p in self.root.glob("[!.]*/record.json"))

    def records(self) -> Iterator[tuple[Path, RunRecord | LlmcError]]:
        """Yield every complete run, with its record or the reason why it cannot be read."""
        for folder in self.folders():
            try:
                yield folder, load_record(folder)
            except LlmcError as error:
                yield folder, error

    def find_trusted(self, reuse_key: str) -> tuple[Path, RunRecord] | None:
        """Return the first trusted run with this very key, if there is one that still has its answers."""
        if not self.root.is_dir():
            return None
        for folder in sorted(self.root.glob(f"[!.]*-{reuse_key[:KEY_LENGTH]}*")):
            try:
                record = load_record(folder)
            except LlmcError:
                continue
            if record.reuse_key == reuse_key and record.status == "trusted" and _has_answers(folder, record):
                return folder, record
        return None

    def find(self, name: str) -> Path:
        """Return a run's folder from its path, its folder's name, or the end of that name (the key)."""
        direct = Path(name)
        if direct.is_dir() or direct.name == "record.json":
            return direct
        folders = self.folders()
        matches = [f for f in folders if f.name == name or f.name.endswith(name) or f.name.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            listed = ", ".join(f.name for f in matches[:5])
            raise UsageError(f"{name!r} names {len(matches)} runs: {listed}", "give the folder's whole name")
        hint = did_you_mean(name, [f.name for f in folders])
        raise UsageError(f"there is no run called {name!r} in {self.root}{hint}", "see `llmc runs list`")


def _has_answers(folder: Path, record: RunRecord) -> bool:
    """Whether the file of answers that a record names is there and whole: without it the run must be made again."""
    return record.items_file is None or count_lines(folder / record.items_file) == len(record.correct or "")


def finish(folder: Path, record: RunRecord) -> Path:
    """Write record.json, last and atomically, and return its path."""
    path = folder / "record.json"
    write_json(path, record.dump())
    return path


def discard(folder: Path) -> None:
    """Remove a run's folder that never got a record."""
    if not (folder / "record.json").exists():
        shutil.rmtree(folder, ignore_errors=True)


def require_writable(out: Path) -> None:
    """Raise UsageError when nothing can be written below ``out``: better known before a long run than after it."""
    there = next((path for path in (out, *out.parents) if os.path.lexists(path)), out)
    if not there.is_dir():
        raise UsageError(f"--out {out}: {there} is not a folder", "name a folder, or one that can be made")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(
            f"--out {out}: {there} may not be written to", "correct its permissions, or name another folder"
        )
