"""A sweep as reports see it: every cell with its run, its difference to the baseline and the gate's verdict."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from llmc.errors import ExitCode, LlmcError
from llmc.judge.answers import Given
from llmc.judge.compare import Options, Pair, baseline_of, compare
from llmc.judge.gate import Case, Verdict, judge
from llmc.judge.inputs import Opened, open_runs
from llmc.judge.pairing import refuse_unless_pairable
from llmc.judge.policy import Policy
from llmc.report.sweep_row import Row
from llmc.report.sweep_suites import SuiteScore, suite_scores
from llmc.runs.sweep_map import SweepMap, load_map

STATUS_CODES = {
    "trusted": ExitCode.OK,
    "untrusted": ExitCode.UNTRUSTED,
    "failed": ExitCode.UNTRUSTED,
    "pending": ExitCode.UNTRUSTED,
    "interrupted": ExitCode.INTERRUPTED,
}


@dataclass(frozen=True)
class View:
    """``gate`` is None when the configuration has none. ``exit_code`` is what the sweep and its report return."""

    folder: Path
    map: SweepMap
    rows: tuple[Row, ...]
    gate: Verdict | None
    suites: tuple[SuiteScore, ...] = ()

    @property
    def name(self) -> str:
        return self.map.name

    @cached_property
    def untrusted(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.trusted)

    @cached_property
    def benchmarks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.cell.benchmark for row in self.rows))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.label for row in self.rows))

    @property
    def has_baseline(self) -> bool:
        return any(row.is_baseline for row in self.rows)

    @property
    def exit_code(self) -> ExitCode:
        """What is printed and what the shell gets come from this one object."""
        codes = [STATUS_CODES[row.status] for row in self.rows]
        if not codes:
            return ExitCode.NOTHING
        return ExitCode.worst([*codes, *([self.gate.exit_code] if self.gate else [])])


def view_sweep(folder: Path, only: Collection[str] | None = None) -> View:
    """Return a sweep as it stands; ``only`` some of its cells (a shard's), which no gate is held against.

    Raises InputFileError for a damaged map or record, UsageError for a gate that asks for nothing or a suite that is
    no longer there.
    """
    sweep = load_map(folder)
    opened = _opened(folder)
    runs = {name: run for name, run in zip(sweep.cells, opened.runs, strict=True) if only is None or name in set(only)}
    targets = {cell.baseline for cell in sweep.cells.values() if cell.baseline}
    # A shard's cells are compared with baselines of other shards, too.
    baselines = [run for name, run in zip(sweep.cells, opened.runs, strict=True) if name in targets]
    candidates = [run for name, run in runs.items() if name not in targets]
    pairs, unpaired = _pairs(candidates, baselines, opened.axis)
    # A gate asks about everything: what other shards are still to bring would be missing.
    whole = len(runs) == len(sweep.cells)
    gate = _gate(sweep.config.get("gate") if whole else None, runs.values(), candidates, baselines, opened, folder)
    rows = []
    for name, run in runs.items():
        cases = tuple(case for case in gate.cases if _is_of(case, run)) if gate else ()
        pair = pairs.get(run.origin)
        rows.append(Row(name, sweep.cells[name], run, name in targets, pair, unpaired.get(run.origin, ""), cases))
    return View(folder, sweep, tuple(rows), gate, suite_scores(rows, folder))


def _opened(folder: Path) -> Opened:
    return open_runs(str(folder), folder.parent.parent)


def _pairs(
    candidates: list[Given], baselines: list[Given], axis: tuple[str, ...]
) -> tuple[dict[str, Pair], dict[str, str]]:
    """Compare what can be compared, all in one family; say of the others why not."""
    fit, unpaired = [], {}
    for run in candidates:
        if run.answers is None or run.against is None:
            continue
        try:
            refuse_unless_pairable(baseline_of(run, baselines).required(), run.answers)
            fit.append(run)
        except LlmcError as error:
            unpaired[run.origin] = error.what
    found = compare(baselines, fit, Options(groups="none", axis=axis, replicates=0))
    return {run.origin: pair for run, pair in zip(fit, found.pairs, strict=True)}, unpaired


def _gate(
    given: dict[str, Any] | None,
    shown: Collection[Given],
    candidates: list[Given],
    baselines: list[Given],
    opened: Opened,
    folder: Path,
) -> Verdict | None:
    if given is None:
        return None
    policy = Policy.model_validate(given)
    policy = policy.model_copy(update={"axis": (*opened.axis, *policy.axis)})
    if policy.baseline is not None:
        # A baseline of its own judges the sweep's baseline cells, too.
        runs = [*candidates, *(run for run in baselines if run in shown)]
        candidates = [replace(run, against=None) for run in runs]
        baselines = list(open_runs(policy.baseline, folder.parent.parent).runs)
    return judge(candidates, baselines, policy)


def _is_of(case: Case, run: Given) -> bool:
    return case.label == run.label and case.benchmark == run.benchmark
