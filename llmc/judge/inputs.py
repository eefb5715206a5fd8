"""What people name, as runs: records, their folders, runs of the store, baseline files, the folder of a sweep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmc.errors import InputFileError, LlmcError, UsageError, os_error
from llmc.judge import baseline
from llmc.judge.answers import Given, given_record
from llmc.runs import sweep_map
from llmc.runs.record import load_record
from llmc.runs.store import Store
from llmc.runs.sweep_map import CellState
from llmc.scoring.job import Settings as ScoringSettings

RECORD_FILE = "record.json"
# What an axis sets on purpose: flags, which may change the layout, or how the scorer computes.
_VARIED = ("arguments", "layout", *ScoringSettings().computed())


@dataclass(frozen=True)
class Opened:
    """The runs behind one name. Of a sweep, ``axis`` are the settings that its cells differ in on purpose."""

    runs: tuple[Given, ...]
    sweep: bool = False
    axis: tuple[str, ...] = ()


def open_runs(name: str, out: Path) -> Opened:
    """Return the runs that ``name`` stands for.

    Raises UsageError for a name that stands for nothing, InputFileError for a file that is neither a record nor a
    baseline file.
    """
    path = Path(name)
    if path.is_file() and path.name != RECORD_FILE and _schema(path).startswith("llmc.baseline/"):
        entries = baseline.open_baseline(path)
        return Opened(tuple(replace(each, place=f"{path.resolve()}#{each.required().key}") for each in entries))
    if path.name == sweep_map.FILE and path.is_file():
        return _open_sweep(path.parent)
    if path.is_file():
        return Opened((_given_run(path, name),))
    sweep = next((p for p in (path, out / "sweeps" / name) if (p / sweep_map.FILE).is_file()), None)
    if sweep is not None:
        return _open_sweep(sweep)
    folder = path if path.is_dir() else Store(out).find(name)
    if not (folder / RECORD_FILE).is_file():
        raise UsageError(
            f"{folder} holds neither a run ({RECORD_FILE}) nor a sweep",
            "name a run's folder or its record, the folder of a sweep, or a baseline file; see `llmc runs list`",
        )
    return Opened((_given_run(folder / RECORD_FILE, name),))


def _given_run(file: Path, name: str) -> Given:
    return replace(given_record(load_record(file), file.parent, origin=name), place=str(file.resolve()))


def _open_sweep(folder: Path) -> Opened:
    """Return a run for every cell, with the reason where there is none that can be used."""
    sweep = sweep_map.load_map(folder)
    runs = tuple(_given_cell(name, cell, sweep.name, folder) for name, cell in sweep.cells.items())
    varied = any(cell.axes for cell in sweep.cells.values())
    known = {name for run in runs if run.answers for name in run.answers.should}
    axis = tuple(name for name in _VARIED if name in known)
    return Opened(runs, sweep=True, axis=axis if varied else ())


def _given_cell(name: str, cell: CellState, sweep: str, folder: Path) -> Given:
    label = " ".join([cell.model, *(f"{axis}={value}" for axis, value in cell.axes.items())])
    origin, against = f"{sweep}/{name}", None if cell.baseline is None else f"{sweep}/{cell.baseline}"
    if cell.run is None or cell.status == "pending":
        error = cell.error or {}
        problem = f"the cell is {cell.status}" + (f": {error['message']}" if "message" in error else "")
        remedy = error.get("remedy", "finish the sweep: `llmc sweep` with its configuration")
        return Given(label, origin, cell.benchmark, problem=problem, remedy=remedy, against=against)
    run = sweep_map.runs_folder(folder) / cell.run
    try:
        place = str((run / RECORD_FILE).resolve())
        return replace(given_record(load_record(run), run, label, origin), against=against, place=place, cell=True)
    except LlmcError as error:
        # One cell's record that is gone or damaged does not hide the others.
        return Given(label, origin, cell.benchmark, problem=error.what, remedy=error.remedy, against=against)


def _schema(path: Path) -> str:
    """Return what a JSON file says it is; an empty string where it says nothing or is no JSON."""
    try:
        body: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise os_error(error, "read", "check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputFileError(
            f"{path} is neither a run record nor a baseline file: not valid JSON ({error})",
            "name a run's folder, its record.json, or a file made by `llmc baseline save`",
        ) from None
    return str(body.get("schema", "")) if isinstance(body, dict) else ""


@dataclass(frozen=True)
class Sides:
    """``axis`` are the settings that differ on purpose, since the runs are cells of one sweep."""

    baselines: tuple[Given, ...]
    candidates: tuple[Given, ...]
    axis: tuple[str, ...] = ()


def open_all(names: Sequence[str], out: Path, chosen: str | None = None) -> Sides:
    """Return baselines and candidates of a comparison.

    The baseline is ``chosen`` (one of the runs by label or name, or another name altogether), else the baseline of the
    sweep that comes first, else what the first name stands for. Raises UsageError when none of this says which.
    """
    opened = [open_runs(name, out) for name in names]
    runs = distinct(once([run for each in opened for run in each.runs]))
    axis = tuple(dict.fromkeys(name for each in opened for name in each.axis))
    first = runs[: len(once(opened[0].runs))]
    if chosen is not None:
        baselines = _chosen(chosen, runs) or list(open_runs(chosen, out).runs)
        # A baseline that is named outranks the one that a sweep has.
        runs = [run if run in baselines else replace(run, against=None) for run in runs]
    elif any(run.against for run in first):
        targets = {run.against for run in first}
        baselines = [run for run in first if run.origin in targets]
    elif opened[0].sweep:
        labels = ", ".join(dict.fromkeys(run.label for run in first))
        raise UsageError(f"the sweep {names[0]} has no baseline", f"name one with --baseline: {labels}")
    else:
        baselines = first
    others = [run for run in runs if not any(same_run(run, each) for each in baselines)]
    return Sides(tuple(baselines), tuple(_without_cells(others)), axis)


def open_gated(names: Sequence[str], out: Path, baseline: str | None) -> Sides:
    """Return the sides of a gate: every run that was named is a candidate, unless a sweep holds the baseline too.

    ``baseline`` is a baseline file, a run, or a model of a sweep that was named; None takes the sweep's own, if any.
    """
    opened = [open_runs(name, out) for name in names]
    runs = distinct(_without_cells(once([run for each in opened for run in each.runs])))
    axis = tuple(dict.fromkeys(name for each in opened for name in each.axis))
    if baseline is None:
        targets = {run.against for run in runs if run.against}
        inside = [run for run in runs if run.origin in targets]
    else:
        runs = [replace(run, against=None) for run in runs]
        inside = _chosen(baseline, runs) if any(each.sweep for each in opened) else []
    if inside:
        return Sides(tuple(inside), tuple(run for run in runs if run not in inside), axis)
    return Sides(open_runs(baseline, out).runs if baseline is not None else (), tuple(runs), axis)


def _chosen(name: str, runs: Sequence[Given]) -> list[Given]:
    return [run for run in runs if name in (run.label, run.origin) or (run.folder and run.folder.name == name)]


def same_run(a: Given, b: Given) -> bool:
    """Whether two are one run, however each was named.

    Two cells of a sweep may rest on one run (a model under two names) and are two things all the same.
    """
    if a.cell and b.cell:
        return a.origin == b.origin
    return bool(a.place) and a.place == b.place


def once(runs: Sequence[Given]) -> list[Given]:
    """Return the runs without those that were named before: one named twice would count as two tests."""
    kept: list[Given] = []
    known: set[str] = set()
    for run in runs:
        key = run.origin if run.cell or not run.place else run.place
        if key not in known:
            known.add(key)
            kept.append(run)
    return kept


def _without_cells(runs: Sequence[Given]) -> list[Given]:
    """Leave out runs named by themselves that are cells of a sweep named beside them."""
    cells = {run.place for run in runs if run.cell and run.place}
    return [run for run in runs if run.cell or run.place not in cells]


def distinct(runs: Sequence[Given]) -> list[Given]:
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
