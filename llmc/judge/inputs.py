"""What people name, as runs: records, their folders, runs of the store, baseline files, the folder of a sweep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmc.errors import InputFileError, UsageError, os_error
from llmc.judge import baseline
from llmc.judge.answers import Given, given_record
from llmc.runs.record import load_record
from llmc.runs.store import Store

RECORD_FILE = "record.json"


@dataclass(frozen=True)
class Opened:
    """The runs behind one name; ``baseline`` is the label that a sweep calls its baseline."""

    runs: tuple[Given, ...]
    baseline: str | None = None


def open_runs(name: str, out: Path) -> Opened:
    """Return the runs that ``name`` stands for.

    Raises UsageError for a name that stands for nothing, InputFileError for a file that is neither a record nor a
    baseline file.
    """
    path = Path(name)
    if path.is_file() and path.name != RECORD_FILE and _schema(path).startswith("llmc.baseline/"):
        return Opened(baseline.open_baseline(path))
    if path.is_file():
        return Opened((given_record(load_record(path), path.parent, origin=name),))
    folder = path if path.is_dir() else Store(out).find(name)
    if not (folder / RECORD_FILE).is_file():
        raise UsageError(
            f"{folder} holds neither a run ({RECORD_FILE}) nor a sweep",
            "name a run's folder or its record, the folder of a sweep, or a baseline file; see `llmc runs list`",
        )
    return Opened((given_record(load_record(folder), folder, origin=name),))


def _schema(path: Path) -> str:
    """Return what a JSON file says it is; an empty string where it says nothing or is no JSON."""
    try:
        body: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise os_error(error, "read", "check the path") from error
    except ValueError as error:
        raise InputFileError(
            f"{path} is neither a run record nor a baseline file: not valid JSON ({error})",
            "name a run's folder, its record.json, or a file made by `llmc baseline save`",
        ) from None
    return str(body.get("schema", "")) if isinstance(body, dict) else ""


def open_all(names: Sequence[str], out: Path, chosen: str | None = None) -> tuple[list[Given], list[Given]]:
    """Return baselines and candidates for a comparison.

    The baseline is ``chosen`` (one of the runs by label or name, or another name altogether), else the baseline of the
    sweep that comes first, else the first run.
    """
    opened = [open_runs(name, out) for name in names]
    runs = _distinct([run for each in opened for run in each.runs])
    if chosen is not None:
        baselines = _chosen(chosen, runs)
        if not baselines:
            baselines = list(open_runs(chosen, out).runs)
    elif opened[0].baseline is not None:
        baselines = [run for run in runs[: len(opened[0].runs)] if run.label == opened[0].baseline]
    elif len(opened[0].runs) == 1 or Path(names[0]).is_file():
        baselines = runs[: len(opened[0].runs)]
    else:
        known = ", ".join(dict.fromkeys(run.label for run in runs))
        raise UsageError(
            f"{names[0]} holds several runs and says of none that it is the baseline", f"--baseline {known}"
        )
    rest = [run for run in runs if not any(run is b or run.origin == b.origin for b in baselines)]
    return baselines, rest


def _chosen(name: str, runs: Sequence[Given]) -> list[Given]:
    return [run for run in runs if name in (run.label, run.origin) or (run.folder and run.folder.name == name)]


def _distinct(runs: Sequence[Given]) -> list[Given]:
    """Tell apart runs of one model on one benchmark by the end of their folders' names."""
    seen = Counter((run.label, run.benchmark) for run in runs)
    told = []
    for run in runs:
        if seen[run.label, run.benchmark] > 1 and run.folder is not None:
            label = f"{run.label} ({run.folder.name.rsplit('-', 1)[-1]})"
            answers = replace(run.answers, label=label) if run.answers else None
            run = replace(run, label=label, answers=answers)
        told.append(run)
    return told
