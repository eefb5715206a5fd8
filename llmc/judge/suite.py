"""From the scores of tasks to the score of a suite. Pure: a tree and results in, the same tree with scores out.

A node's score is made of the scores of the tasks below it, each by its own metric; every other metric that all of them
have is put together in the same way. A suite with a part that is missing or untrusted has no score, and neither has any
node above that part: a mean over what happens to be there would be another suite's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import fsum
from typing import Any

from llmc.runs.suite_results import Absent, Result
from llmc.runs.suite_tree import Leaf, Node


@dataclass(frozen=True)
class Judged:
    """A node or leaf of the tree with its score.

    ``score`` is in the unit of ``metric`` (accuracies from 0 to 1), None where something below is absent; ``metric`` is
    None where the tasks below are scored by different ones. ``metrics`` are those that all tasks below have, empty
    without a score. ``tasks`` are the questions scored. ``absent`` is set on leaves alone.
    """

    path: str
    name: str
    aggregate: str | None
    metric: str | None
    score: float | None
    metrics: Mapping[str, float]
    tasks: int
    parts: tuple[Judged, ...] = ()
    absent: Absent | None = None

    def leaves(self) -> Iterator[Judged]:
        """Yield the tasks below in order, or the task itself."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def nodes(self) -> Iterator[Judged]:
        """Yield every node that has parts, level by level from the top."""
        level = [self]
        while level:
            here = [each for each in level if each.parts]
            yield from here
            level = [part for each in here for part in each.parts]

    def missing(self) -> list[Judged]:
        return [leaf for leaf in self.leaves() if leaf.absent is not None]

    def data(self) -> dict[str, Any]:
        """Return the tree as JSON takes it."""
        found: dict[str, Any] = {
            "path": self.path,
            "name": self.name,
            "metric": self.metric,
            "score": self.score,
            "tasks": self.tasks,
            "metrics": dict(self.metrics),
        }
        if self.parts:
            return {**found, "aggregate": self.aggregate, "parts": [part.data() for part in self.parts]}
        absent = self.absent
        lack = None if absent is None else {"kind": absent.kind, "what": absent.what, "remedy": absent.remedy}
        return {**found, "absent": lack}


def judge(tree: Node | Leaf, results: Mapping[str, Result]) -> Judged:
    """Return the tree with scores; ``results`` are those of the tasks by their path, and one that lacks was not run.

    A task without the very metric that is its score has none: it was scored for another definition of the suite.
    """
    if isinstance(tree, Leaf):
        return _leaf(tree, results.get(tree.path, Absent("not-run", "not run")))
    parts = tuple(judge(part, results) for part in tree.parts)
    below = [leaf for part in parts for leaf in part.leaves()]
    metrics = {leaf.metric for leaf in below}
    whole = all(leaf.absent is None for leaf in below)
    shared = [name for name in below[0].metrics if all(name in leaf.metrics for leaf in below)] if whole else []
    return Judged(
        path=tree.path,
        name=tree.name,
        aggregate=tree.aggregate,
        metric=metrics.pop() if len(metrics) == 1 else None,
        score=_value(parts, tree.aggregate, None) if whole else None,
        metrics={name: _value(parts, tree.aggregate, name) for name in shared},
        tasks=sum(leaf.tasks for leaf in below),
        parts=parts,
    )


def _leaf(leaf: Leaf, result: Result) -> Judged:
    if isinstance(result, Absent):
        return Judged(leaf.path, leaf.name, None, leaf.metric, None, {}, 0, absent=result)
    if leaf.metric not in result.metrics:
        lack = Absent("missing", f"its run has no {leaf.metric}", "score the suite again as it is now defined")
        return Judged(leaf.path, leaf.name, None, leaf.metric, None, {}, 0, absent=lack)
    score = result.metrics[leaf.metric]
    return Judged(leaf.path, leaf.name, None, leaf.metric, score, dict(result.metrics), result.tasks)


def _value(parts: tuple[Judged, ...], aggregate: str, metric: str | None) -> float:
    """Return a node's value of a metric, or of the score (None), from parts that all have one."""
    leaves = [leaf for part in parts for leaf in part.leaves()]
    if aggregate == "micro":
        return fsum(_own(leaf, metric) * leaf.tasks for leaf in leaves) / sum(leaf.tasks for leaf in leaves)
    counted = leaves if aggregate == "macro-mean" else parts
    return fsum(_own(each, metric) for each in counted) / len(counted)


def _own(judged: Judged, metric: str | None) -> float:
    value = judged.score if metric is None else judged.metrics[metric]
    assert value is not None  # asked of whole parts only
    return value
