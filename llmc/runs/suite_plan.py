"""From a suite's tree to the cells that score it: parts that are asked in the same way are asked together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llmc.benchmarks import names
from llmc.benchmarks.build import ensure_built
from llmc.benchmarks.combine import write_combined
from llmc.benchmarks.item import read_groups
from llmc.benchmarks.manifest import ManifestEntry
from llmc.benchmarks.select import document_sample, even_sample
from llmc.errors import FetchError, InputFileError
from llmc.runs.bench import Bench, open_bench
from llmc.runs.settings import Settings
from llmc.runs.suite_results import Absent
from llmc.runs.suite_tree import Leaf, Questions, Suite


@dataclass(frozen=True)
class SuiteCell:
    """One file to score, and where in it the questions of each task are. ``metric`` is the one of its first task."""

    bench: Bench
    places: dict[str, tuple[int, ...]]
    metric: str
    uncond: bool

    def settings(self, common: Settings) -> Settings:
        """Return how this cell is scored, for settings that all cells of the suite share."""
        scoring = replace(common.scoring, uncond=self.uncond)
        return replace(common, scorer="logprobs", rule=self.metric, scoring=scoring, limit=None, like_llama=None)


@dataclass(frozen=True)
class SuitePlan:
    """The cells, in the order of the suite, and the tasks that have none, with the reason, by path."""

    suite: Suite
    cells: tuple[SuiteCell, ...]
    absent: dict[str, Absent]


def plan_suite(suite: Suite, settings: Settings) -> SuitePlan:
    """Build what the suite asks, where it is missing.

    A part whose questions cannot be had does not stop the others. Raises UsageError for what the suite itself has
    wrong: a benchmark, split or protocol that there is not.
    """
    cells: list[SuiteCell] = []
    absent: dict[str, Absent] = {}
    for leaves in asked_together(suite):
        try:
            cell, lacking = plan_part(suite, leaves, settings)
        except (FetchError, InputFileError) as error:
            absent |= {leaf.path: Absent("missing", error.what, error.remedy) for leaf in leaves}
            continue
        absent |= lacking
        if cell is not None:
            cells.append(cell)
    return SuitePlan(suite, tuple(cells), absent)


def asked_together(suite: Suite) -> list[list[Leaf]]:
    """Return the tasks of a suite by the file that asks them: each list is one cell."""
    together: dict[Any, list[Leaf]] = {}
    for leaf in suite.tree.leaves():
        together.setdefault(leaf.questions.asked, []).append(leaf)
    return list(together.values())


def plan_part(suite: Suite, leaves: Sequence[Leaf], settings: Settings) -> tuple[SuiteCell | None, dict[str, Absent]]:
    """Return the cell of tasks that are asked together, None without questions; and the tasks that have none.

    Builds what is missing. Raises FetchError or InputFileError when the questions cannot be had.
    """
    built = _built(leaves[0].questions, settings)
    places, order = _places(leaves, built, settings)
    absent = _without_questions(leaves, places, built)
    return (_cell(suite, leaves, built, places, order, settings) if order else None), absent


def asked_name(asked: Questions) -> str:
    """Return what the questions are called before any are drawn: benchmark, splits, protocol, shots."""
    return replace(_target(asked, asked.splits[0]), split="+".join(asked.splits)).full_name


def check_names(suite: Suite) -> None:
    """Raise UsageError for a benchmark, split or protocol that a suite names and there is not."""
    for asked in dict.fromkeys(leaf.questions.asked for leaf in suite.tree.leaves()):
        benchmark, protocol, shots, splits = asked
        for split in splits:
            names.parse(f"{benchmark}-{split}", protocol=protocol, shots=shots)


def rule_of(leaves: Sequence[Leaf]) -> tuple[str, bool]:
    """Return the rule of a cell's own score, and whether any task needs the options' unconditioned figures."""
    return leaves[0].metric, any(leaf.metric == "acc_uncond" for leaf in leaves)


def _target(asked: Questions, split: str) -> names.Target:
    return names.parse(f"{asked.benchmark}-{split}", protocol=asked.protocol, shots=asked.shots)


def _built(asked: Questions, settings: Settings) -> list[ManifestEntry]:
    targets = [_target(asked, split).full_name for split in asked.splits]
    return [ensure_built(name, settings.out, source=settings.source) for name in targets]


def _places(
    leaves: Sequence[Leaf], built: Sequence[ManifestEntry], settings: Settings
) -> tuple[dict[str, list[int]], list[int]]:
    """Return where each task's questions are in all those built, one behind the other; and all of them, in order."""
    total = sum(entry.tasks for entry in built)
    groups: list[str | None] = [None] * total
    if any(leaf.group is not None for leaf in leaves):
        paths = [entry.bin_path(settings.out).with_name(entry.files["items"].name) for entry in built]
        groups = [group for path in paths for group in read_groups(path)]
    places: dict[str, list[int]] = {}
    order: dict[int, None] = {}
    drawn: dict[Questions, list[int]] = {}
    for leaf in leaves:
        if leaf.questions not in drawn:
            drawn[leaf.questions] = _drawn(leaf.questions, groups)
            order |= dict.fromkeys(drawn[leaf.questions])
        places[leaf.path] = [i for i in drawn[leaf.questions] if leaf.group is None or groups[i] == leaf.group]
    return places, list(order)


def _drawn(asked: Questions, groups: Sequence[str | None]) -> list[int]:
    """Return the questions that a part takes, in the order it takes them."""
    wanted = set(asked.groups)
    among = [i for i, group in enumerate(groups) if not wanted or group in wanted]
    sample = asked.sample
    if sample is None:
        return among
    if sample.draw == "documents":
        return [among[i] for i in document_sample(len(among), sample.count, sample.seed)]
    return [among[i] for i in even_sample([groups[i] for i in among], sample.count, sample.seed)]


def _without_questions(
    leaves: Sequence[Leaf], places: dict[str, list[int]], built: Sequence[ManifestEntry]
) -> dict[str, Absent]:
    where = " and ".join(entry.name for entry in built)
    return {
        leaf.path: Absent("missing", f"{where}: no questions of {leaf.group}", "name a source that has them")
        for leaf in leaves
        if not places[leaf.path]
    }


def _cell(
    suite: Suite,
    leaves: Sequence[Leaf],
    built: Sequence[ManifestEntry],
    places: dict[str, list[int]],
    order: list[int],
    settings: Settings,
) -> SuiteCell:
    entry = built[0]
    if len(built) > 1 or order != list(range(entry.tasks)):
        name = asked_name(leaves[0].questions)
        selection = {"kind": "suite", "suite": suite.name, "parts": _described(leaves)}
        entry = write_combined(built, order, f"{name}.{suite.file_name}", settings.out, selection)
    at = {index: place for place, index in enumerate(order)}
    metric, uncond = rule_of(leaves)
    return SuiteCell(
        bench=open_bench(str(entry.bin_path(settings.out)), replace(settings, limit=None, like_llama=None)),
        places={path: tuple(at[i] for i in own) for path, own in places.items() if own},
        metric=metric,
        uncond=settings.scoring.uncond or uncond,
    )


def _described(leaves: Sequence[Leaf]) -> list[dict[str, Any]]:
    return [
        {
            "splits": list(asked.splits),
            "groups": list(asked.groups),
            "sample": asked.sample.model_dump() if asked.sample else None,
        }
        for asked in dict.fromkeys(leaf.questions for leaf in leaves)
    ]
