"""What is compared: the right and wrong answers of one run, with what made them, from a record or a baseline file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmc.errors import InputFileError, UntrustedError, UsageError
from llmc.runs.record import EngineIdentity, ModelIdentity, RunRecord, content_key
from llmc.stats import wilson

ITEMS_FILE = "items.jsonl"
_DAMAGED = "make the run again with `llmc run`; a record is not meant to be edited"


@dataclass(frozen=True)
class Answers:
    """``correct`` is a 0 or 1 for each scored task in file order, ``groups`` the tasks' groups, None when without.

    ``items`` is the file of per-option figures, None when there is none; ``seconds`` is what the run took.
    """

    label: str
    origin: str
    benchmark: str
    correct: str
    must: Mapping[str, Any]
    should: Mapping[str, Any]
    model: ModelIdentity | None = None
    engine: EngineIdentity | None = None
    groups: tuple[str | None, ...] | None = None
    items: Path | None = field(default=None, compare=False)
    seconds: float | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        return content_key(dict(self.must))

    @property
    def benchmark_sha256(self) -> str:
        return str(self.must.get("benchmark_sha256", ""))

    @property
    def n(self) -> int:
        return len(self.correct)

    @property
    def right(self) -> int:
        return self.correct.count("1")

    @property
    def accuracy(self) -> float:
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.right, self.n)

    @property
    def has_groups(self) -> bool:
        """Whether every task has a group, and there are at least two of them."""
        return self.groups is not None and None not in self.groups and len(set(self.groups)) > 1

    def task_index(self, place: int) -> int:
        """Return the index in the benchmark file of the task at ``place`` among the scored ones."""
        for excluded in sorted(self.must.get("excluded") or ()):
            place += excluded <= place
        return place

    def describe(self) -> dict[str, Any]:
        """Return identity and score for JSON output."""
        low, high = self.interval
        return {
            "label": self.label,
            "origin": self.origin,
            "benchmark": self.benchmark,
            "benchmark_sha256": self.benchmark_sha256,
            "tasks": self.n,
            "correct": self.right,
            "accuracy": self.accuracy,
            "wilson_low": low,
            "wilson_high": high,
            "model": self.model.model_dump(mode="json", exclude_none=True) if self.model else None,
            "comparability_key": self.key,
        }


@dataclass(frozen=True)
class Given:
    """A run that was named: its answers or, where there are none to use, the ``problem`` and its ``remedy``.

    ``against`` is the origin of the run that a sweep compares it with; ``cell`` says that it is a sweep's. ``place`` is
    where its record lies, the same however it was named.
    """

    label: str
    origin: str
    benchmark: str
    record: RunRecord | None = None
    folder: Path | None = None
    answers: Answers | None = None
    problem: str = ""
    remedy: str = ""
    against: str | None = None
    cell: bool = False
    place: str = ""

    @property
    def trusted(self) -> bool:
        return self.answers is not None

    def required(self) -> Answers:
        """Return the answers; UntrustedError with the reason when they cannot be trusted."""
        if self.answers is None:
            raise UntrustedError(
                f"{self.label} ({self.origin}) is not trusted, and nothing is compared with it: {self.problem}",
                self.remedy or "mend the cause and run it again; `llmc explain` tells of every finding",
            )
        return self.answers


def given_record(record: RunRecord, folder: Path, label: str | None = None, origin: str | None = None) -> Given:
    """Return a record as something to compare.

    Raises InputFileError when its parts contradict each other, and UsageError when it does not say what was scored.
    """
    label = label or model_label(record)
    origin = origin or str(folder)
    benchmark = record.benchmark.name if record.benchmark else "unknown benchmark"
    if record.status != "trusted":
        remedies = [f.remedy for f in record.findings if f.severity == "error"]
        remedy = remedies[0] if remedies else ""
        return Given(label, origin, benchmark, record, folder, problem=why_untrusted(record), remedy=remedy)
    _check_consistent(record, folder)
    if record.comparability is None:
        raise UsageError(
            f"the record in {folder} does not say which benchmark file was scored, so nothing can be paired with it",
            "score it again with `llmc run`, or with `llmc exec` while the benchmark file is there",
        )
    correct = record.correct or ""
    groups = None
    if record.task_groups is not None:
        try:
            groups = record.task_groups.expand(len(correct))
        except ValueError as error:
            raise InputFileError(f"the record in {folder} contradicts itself: {error}", _DAMAGED) from None
    items = folder / ITEMS_FILE
    answers = Answers(
        label=label,
        origin=origin,
        benchmark=benchmark,
        correct=correct,
        must=record.comparability.must,
        should=record.comparability.should,
        model=record.model,
        engine=record.engine,
        groups=groups,
        items=items if items.is_file() else None,
        seconds=record.timings.total if record.timings else None,
    )
    return Given(label, origin, benchmark, record, folder, answers)


def model_label(record: RunRecord) -> str:
    """Return what to call the model of a record: its file's name without the ending."""
    if record.model is None:
        return "unknown model"
    return Path(record.model.path or record.model.ref).stem


def why_untrusted(record: RunRecord) -> str:
    errors = [f for f in record.findings if f.severity == "error"]
    if not errors:
        return f"the run was {record.status}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{errors[0].slug}: {errors[0].detail}{more}"


def _check_consistent(record: RunRecord, folder: Path) -> None:
    """A record that was edited or cut must not be taken for an answer."""
    correct, result = record.correct, record.result
    problem = ""
    if not correct or result is None:
        problem = "it is trusted and holds no answers"
    elif set(correct) - {"0", "1"}:
        problem = "its answers are not all 0 or 1"
    elif (len(correct), correct.count("1")) != (result.tasks, result.correct):
        problem = (
            f"it holds {correct.count('1')} right of {len(correct)} answers and says {result.correct} of {result.tasks}"
        )
    elif not abs(result.accuracy - result.correct / result.tasks) < 1e-9:
        problem = f"its accuracy is {result.accuracy}, its answers give {result.correct / result.tasks:.6f}"
    elif record.comparability and content_key(record.comparability.must) != record.comparability.key:
        problem = "its comparability key is not that of its own parts"
    if problem:
        raise InputFileError(f"the record in {folder} contradicts itself: {problem}", _DAMAGED)
