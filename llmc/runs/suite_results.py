"""What came of a suite's tasks: every metric of those that a trusted run scored, and why the others have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmc.errors import InputFileError
from llmc.runs.kept import AGAIN, ITEMS, read_items_jsonl
from llmc.runs.record import RunRecord
from llmc.scoring.metrics import Tally

Why = Literal["missing", "refused", "untrusted", "interrupted", "not-run"]


@dataclass(frozen=True)
class TaskScore:
    """What a trusted run says of a task: every metric (see ``scoring.metrics``), and over how many questions."""

    metrics: Mapping[str, float]
    tasks: int


@dataclass(frozen=True)
class Absent:
    """Why a task has no score: ``kind`` in a word, ``what`` happened, ``remedy`` how to mend it."""

    kind: Why
    what: str
    remedy: str = ""


Result = TaskScore | Absent


def results_of(folder: Path, record: RunRecord, places: Mapping[str, Sequence[int]]) -> dict[str, Result]:
    """Return what a finished run says of the tasks in it, by name; ``places`` are their questions' places in the file.

    Raises InputFileError when the run's figures are not those of its record.
    """
    if record.status != "trusted":
        absent = _why(record)
        return dict.fromkeys(places, absent)
    tallies = {name: Tally() for name in places}
    owners: dict[int, list[Tally]] = {}
    for name, own in places.items():
        for place in own:
            owners.setdefault(place, []).append(tallies[name])
    seen = 0
    for item in read_items_jsonl(folder / ITEMS):
        for tally in owners.get(item.index, ()):
            tally.add(item)
        seen += 1
    if record.correct is None or seen != len(record.correct):
        raise InputFileError(f"{folder / ITEMS} does not hold the run's items", AGAIN)
    return {name: TaskScore(tally.means(), tally.items) for name, tally in tallies.items()}


def _why(record: RunRecord) -> Absent:
    errors = [each for each in record.findings if each.severity == "error"]
    kind: Why = "interrupted" if record.status == "interrupted" else "untrusted"
    what = "; ".join(f"{each.slug}: {each.detail}" for each in errors)
    return Absent(kind, what, errors[0].remedy if errors else "")
