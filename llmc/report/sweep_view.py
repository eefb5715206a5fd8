"""A sweep as reports see it: every cell with its run, its difference to the baseline and the gate's verdict."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from llmc.errors import ExitCode, InputFileError, LlmcError
from llmc.judge.answers import Given
from llmc.judge.compare import Options, Pair, adjusted, baseline_of, pair
from llmc.judge.gate import Case, Verdict, judge
from llmc.judge.inputs import Opened, open_runs
from llmc.judge.policy import Policy
from llmc.report.sweep_row import Row
from llmc.report.sweep_suites import SuiteScore, suite_scores, without_score
from llmc.runs.sweep_map import FILE, SweepMap, load_map

AGAIN = "run `llmc sweep` again"
STATUS_CODES = {
    "trusted": ExitCode.OK,
    "untrusted": ExitCode.UNTRUSTED,
    "failed": ExitCode.UNTRUSTED,
    "pending": ExitCode.UNTRUSTED,
    "interrupted": ExitCode.INTERRUPTED,
}


@dataclass(frozen=True)
class View:
    """``gate`` is None when the configuration has none, or cannot be held against the runs: ``gate_problem`` says why.

    ``whole`` is False for a shard, whose suites may still lack what the others bring. ``exit_code`` is what the sweep
    and its report return.
    """

    folder: Path
    map: SweepMap
    rows: tuple[Row, ...]
    gate: Verdict | None
    suites: tuple[SuiteScore, ...] = ()
    gate_problem: LlmcError | None = None
    whole: bool = True

    @property
    def name(self) -> str:
        return self.map.name

    @cached_property
    def untrusted(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.trusted)

    @cached_property
    def suites_without(self) -> tuple[SuiteScore, ...]:
        """The suites without a score, though every cell had its turn."""
        return tuple(without_score(self.suites)) if self.whole else ()

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
        if self.suites_without:
            codes.append(ExitCode.UNTRUSTED)
        if self.gate_problem is not None:
            codes.append(self.gate_problem.exit_code)
        return ExitCode.worst([*codes, *([self.gate.exit_code] if self.gate else [])])


def view_sweep(folder: Path, only: Collection[str] | None = None) -> View:
    """Return a sweep as it stands; ``only`` some of its cells (a shard's), which no gate is held against.

    Raises InputFileError for a damaged map. What is wrong with one cell, one suite or the gate hides nothing else.
    """
    sweep = load_map(folder)
    opened = _opened(folder)
    runs = dict(zip(sweep.cells, opened.runs, strict=True))
    targets = {cell.baseline for cell in sweep.cells.values() if cell.baseline}
    shown = {name: run for name, run in runs.items() if only is None or name in set(only)}
    # A shard's cells are compared with baselines of other shards, too.
    baselines = [run for name, run in runs.items() if name in targets]
    candidates = [run for name, run in shown.items() if name not in targets]
    pairs, unpaired = _pairs(candidates, baselines, opened.axis)
    # A gate asks about everything: what other shards are still to bring would be missing.
    whole = len(shown) == len(runs)
    gate, problem = None, None
    try:
        gate = _gate(sweep.config.get("gate") if whole else None, shown.values(), candidates, baselines, opened, folder)
    except LlmcError as error:
        problem = error
    cases = gate.cases if gate else ()
    rows = [
        Row(
            name,
            sweep.cells[name],
            run,
            name in targets,
            pairs.get(run.origin),
            unpaired.get(run.origin, ""),
            tuple(case for case in cases if _is_of(case, run)),
        )
        for name, run in runs.items()
    ]
    # A suite is scored from all its parts, whichever shard ran them.
    suites = suite_scores(rows, folder)
    mine = tuple(row for row in rows if row.id in shown)
    asked = {(row.label, row.cell.suite) for row in mine}
    return View(folder, sweep, mine, gate, tuple(s for s in suites if (s.label, s.ref) in asked), problem, whole)


def _opened(folder: Path) -> Opened:
    return open_runs(str(folder), folder.parent.parent)


def _pairs(
    candidates: list[Given], baselines: list[Given], axis: tuple[str, ...]
) -> tuple[dict[str, Pair], dict[str, str]]:
    """Compare what can be compared, all in one family; say of the others why not."""
    options = Options(groups="none", axis=axis, replicates=0, option_figures=False)
    found: dict[str, Pair] = {}
    unpaired: dict[str, str] = {}
    for run in candidates:
        if run.answers is None or run.against is None:
            continue
        try:
            found[run.origin] = pair(baseline_of(run, baselines).required(), run.answers, options)
        except LlmcError as error:
            unpaired[run.origin] = error.what
    return dict(zip(found, adjusted(list(found.values())), strict=True)), unpaired


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
    try:
        policy = Policy.model_validate(given)
    except ValidationError as error:
        raise InputFileError(f"{folder / FILE}: the gate is damaged: {error.errors()[0]['msg']}", AGAIN) from error
    policy = policy.model_copy(update={"axis": (*opened.axis, *policy.axis)})
    if policy.baseline is not None:
        # A baseline of its own judges the sweep's baseline cells, too.
        runs = [*candidates, *(run for run in baselines if run in shown)]
        candidates = [replace(run, against=None) for run in runs]
        baselines = list(open_runs(policy.baseline, folder.parent.parent).runs)
    return judge(candidates, baselines, policy)


def _is_of(case: Case, run: Given) -> bool:
    return case.label == run.label and case.benchmark == run.benchmark
