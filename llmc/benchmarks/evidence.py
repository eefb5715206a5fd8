"""What a row of the source says, read by the spec's column names alone.

`llmc verify` holds a built file against this. It does not use the reader and the adapters that a build uses:
the same facts are found again in other ways, so that a fault in one of the two shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llmc.benchmarks.scaffold import LETTERS
from llmc.benchmarks.spec import Benchmark


class Unfit(ValueError):
    """Why a row says nothing that a task could be held against; completes "row N ..."."""


@dataclass(slots=True)
class Evidence:
    """One row: its texts by field, its options in the source's order, and the place of the right one."""

    row: int
    id: str
    group: str | None
    fields: dict[str, str]
    options: tuple[str, ...]
    gold: int


class Witness:
    """Turns the values of ``columns`` into evidence."""

    def __init__(self, spec: Benchmark, split: str) -> None:
        choices = spec.choices
        self._split = split
        self._fixed = choices.fixed
        self._answer_column = spec.answer.column
        options = [choices.column] if choices.column else list(choices.columns or ())
        single = [spec.answer.column, choices.labels, spec.id_field, spec.group_field]
        self.columns = list(dict.fromkeys([*spec.fields.values(), *options, *(name for name in single if name)]))
        place = self.columns.index
        self._fields = [(name, place(column)) for name, column in spec.fields.items()]
        self._list = place(choices.column) if choices.column else None
        self._several = [place(column) for column in choices.columns or ()]
        self._labels = place(choices.labels) if choices.labels else None
        self._answer = place(spec.answer.column)
        self._id = place(spec.id_field) if spec.id_field else None
        self._group = place(spec.group_field) if spec.group_field else None
        self._position = _POSITIONS[spec.answer.encoding]

    def read(self, values: Sequence[Any], row: int) -> Evidence:
        """Return the evidence of one row; raises Unfit."""
        fields = {name: values[at] for name, at in self._fields}
        if self._fixed is not None:
            options = self._fixed
        elif self._list is not None:
            options = tuple(values[self._list] or ())
        else:
            options = tuple([values[at] for at in self._several])
        for text in (*fields.values(), *options):
            if type(text) is not str:
                raise Unfit(f"has {text!r} where a text belongs")
        answer = values[self._answer]
        keys = values[self._labels] if self._labels is not None else options
        try:
            gold = self._position(answer, keys)
        except (ValueError, TypeError, AttributeError, KeyError):
            raise Unfit(
                f"has the answer {answer!r} in {self._answer_column}, which names none of its options"
            ) from None
        if not 0 <= gold < len(options):
            raise Unfit(f"has the answer {answer!r} in {self._answer_column} and {len(options)} options")
        return Evidence(row, self._name(values, row), self._group_of(values), fields, options, gold)

    def _name(self, values: Sequence[Any], row: int) -> str:
        own = None if self._id is None else values[self._id]
        return f"{self._split}-{row}" if own is None or own == "" else str(own)

    def _group_of(self, values: Sequence[Any]) -> str | None:
        own = None if self._group is None else values[self._group]
        return None if own is None else str(own)


def _among(answer: Any, keys: Sequence[Any]) -> int:
    """Return where the only key equal to the answer stands."""
    places = [place for place, key in enumerate(keys) if key == answer]
    (place,) = places
    return place


# How an answer points at an option, for each way that a spec can name.
_POSITIONS: dict[str, Callable[[Any, Sequence[Any]], int]] = {
    "label": _among,
    "text": _among,
    "letter": lambda answer, keys: LETTERS.index(answer),
    "index": lambda answer, keys: int(answer),
    "index-from-1": lambda answer, keys: int(answer) - 1,
    "bool": lambda answer, keys: ("false", "true").index(str(answer).lower()),
}
