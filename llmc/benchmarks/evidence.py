"""What a row of the source says, read by the spec's column names alone.

`llmc verify` holds a built file against this. It does not use the reader and the adapters that a build uses:
the same facts are found again in other ways, so that a fault in one of the two shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llmc.benchmarks.readings import READINGS
from llmc.benchmarks.scaffold import LETTERS
from llmc.benchmarks.spec import Benchmark
from llmc.errors import InputFileError

MOST_OPTIONS = 100


class Unfit(ValueError):
    """Why a row is no task; completes "row N ...". ``kind`` is what a spec may leave out."""

    def __init__(self, what: str, kind: str = "") -> None:
        super().__init__(what)
        self.kind = kind


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
    """Turns the values of ``columns`` into evidence, for one protocol of a benchmark.

    ``left_out`` holds the kinds of unfit rows that the source itself does not count.
    Raises InputFileError for an adapter that there is no second reading of.
    """

    def __init__(self, spec: Benchmark, split: str, protocol: str) -> None:
        self._spec, self._split = spec, split
        chosen = spec.protocols[protocol]
        equal_ones_stay = spec.equal_options is not None and chosen.form == "letter"
        self.left_out = {*spec.leave_out, *(("equal-options",) if spec.equal_options else ())}
        self._must_differ = "equal-options" in self.left_out and not equal_ones_stay
        name = chosen.adapter or spec.adapter
        if name is not None and name not in READINGS:
            raise InputFileError(f"{spec.name}: adapter {name} cannot be verified", "see llmc/benchmarks/readings.py")
        self._reading = READINGS[name] if name else None
        needs, self._gives = (self._reading.needs, self._reading.gives) if self._reading else ((), ())
        choices, configs = spec.choices, spec.source.configs
        self._fixed, self._is_json = choices.fixed, choices.json_text
        options = [choices.column] if choices.column else list(choices.columns or ())
        groups = [*configs.columns] if configs else [spec.group_field]
        single = [spec.answer.column, choices.labels, spec.id_field, *groups]
        named = [*spec.fields.values(), *options, *(one for one in single if one)]
        self.columns = list(dict.fromkeys([*needs, *(one for one in named if one not in self._gives)]))
        place = [*self.columns, *self._gives].index
        self._needs = [place(one) for one in needs]
        self._fields = [(field, place(column)) for field, column in spec.fields.items()]
        self._list = place(choices.column) if choices.column else None
        self._several = [place(column) for column in choices.columns or ()]
        by_label = spec.answer.encoding == "label"  # labels may stand beside options that answers repeat
        self._labels = place(choices.labels) if choices.labels and by_label else None
        self._answer = place(spec.answer.column)
        self._id = place(spec.id_field) if spec.id_field else None
        self._groups = [place(one) for one in groups if one]
        self._position = _POSITIONS[spec.answer.encoding]

    def read(self, values: Sequence[Any], row: int) -> Evidence:
        """Return the evidence of one row; raises Unfit."""
        if self._reading is not None:
            given = [values[at] for at in self._needs]
            try:
                values = (*values, *self._reading.apply(*given))
            except (ValueError, TypeError, AttributeError, KeyError, IndexError, SyntaxError, RecursionError):
                raise Unfit(f"does not read as expected: {given!r:.80}") from None
        return self._read(values, row)

    def read_document(self, document: dict[str, Any], row: int) -> Evidence:
        """Return the evidence of a document in the source's columns, or in those that an adapter gives."""
        names = self.columns
        if self._gives and all(name in document for name in self._gives):
            return self._read([_at_path(document, name) for name in [*names, *self._gives]], row)
        return self.read([_at_path(document, name) for name in names], row)

    def group(self, values: Sequence[Any]) -> str | None:
        """Return the part of the source, or the group, that a row belongs to."""
        found = [str(values[at]) for at in self._groups if values[at] is not None] if self._groups else ()
        return ("_".join(found).lower() if self._spec.source.configs else found[0]) if found else None

    def _read(self, values: Sequence[Any], row: int) -> Evidence:
        own = None if self._id is None else values[self._id]
        name = f"{self._split}-{row}" if own is None or own == "" else str(own)
        fields = {field: values[at] for field, at in self._fields}
        for field, value in fields.items():
            if type(value) is not str:
                fields[field] = self._filled_in(field, value, name)
        if not fields["question"].strip():
            raise Unfit("has an empty question", "empty-question")
        options = self._options(values)
        answer = values[self._answer]
        if answer is None or answer == "":
            raise Unfit("has no answer", "unlabelled")
        try:
            gold = self._position(answer, options if self._labels is None else values[self._labels])
        except (ValueError, TypeError, AttributeError):
            raise Unfit(f"has the answer {answer!r:.40}, which names none of its options", "wrong-answer") from None
        if self._labels is not None and len(values[self._labels]) != len(options):
            raise Unfit(f"has {len(options)} options and {len(values[self._labels])} labels", "wrong-answer")
        if not 0 <= gold < len(options):
            kind = "unlabelled" if gold == -1 and self._spec.answer.encoding == "index" else "wrong-answer"
            raise Unfit(f"has the answer {answer!r:.40} and {len(options)} options", kind)
        group = self.group(values)
        if not name.isascii() or not (group or "").isascii():
            _require_text(name, group or "")
        return Evidence(row, name, group, fields, options, gold)

    def _filled_in(self, field: str, value: Any, name: str) -> str:
        text = self._spec.fill.get(field, {}).get(name) if value is None else None
        if text is None:
            raise Unfit(f"has {value!r:.40} where the {field} belongs")
        return text

    def _options(self, values: Sequence[Any]) -> tuple[str, ...]:
        if self._fixed is not None:
            return self._fixed
        found: Any = values[self._list] if self._list is not None else _filled([values[at] for at in self._several])
        if self._is_json and type(found) is str:
            try:
                found = json.loads(found)
            except ValueError:
                raise Unfit(f"has {found!r:.40} where a list of options belongs", "options") from None
        if type(found) is not list:
            raise Unfit(f"has {found!r:.40} where a list of options belongs")
        options = tuple(found)
        if {*map(type, options)} != {str} or not all(map(str.strip, options)):
            raise Unfit(f"has {found!r:.80} as its options", "options")
        if not 2 <= len(options) <= MOST_OPTIONS:
            raise Unfit(f"has {len(options)} options", "options")
        if self._must_differ and len(set(options)) == 1:
            raise Unfit("has options that are all the same", "equal-options")
        return options


def _filled(found: list[Any]) -> list[Any]:
    """Return the values up to the last one there is, at least two: a row may have fewer options than columns."""
    if found[-1] is not None and found[-1] != "":
        return found
    there = [at for at, value in enumerate(found) if value is not None and value != ""]
    return found[: max(2, there[-1] + 1 if there else 0)]


def _require_text(*texts: str) -> None:
    for text in texts:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise Unfit(f"has {text!r:.60}, which is no text, as its id or group")


def _at_path(document: Any, path: str) -> Any:
    """Return the value of a column of a document: of the key ``a.b``, else of ``b`` inside ``a``."""
    while isinstance(document, dict):
        if path in document:
            return document[path]
        heads = [path[:at] for at, character in enumerate(path) if character == "." and path[:at] in document]
        if not heads:
            break
        document, path = document[heads[0]], path[len(heads[0]) + 1 :]
    return None


def _among(answer: Any, keys: Sequence[Any]) -> int:
    """Return where the only key equal to the answer, and of its kind, stands."""
    if type(answer) not in (str, int):
        raise ValueError
    (place,) = [place for place, key in enumerate(keys) if key == answer]
    if type(keys[place]) is not type(answer):
        raise ValueError
    return place


def _letter(answer: str) -> int:
    if len(answer) != 1:
        (answer,) = answer.split()
        if len(answer) != 1:
            raise ValueError
    return LETTERS.index(answer)


def _small_letter(answer: str) -> int:
    if not answer.islower():
        raise ValueError
    return _letter(answer.upper())


def _whole(answer: Any) -> int:
    """Return a whole number: as such, as digits, or as the float that a table with gaps makes of it."""
    if type(answer) is int:
        return answer
    if type(answer) is float and answer.is_integer():
        return int(answer)
    digits = answer.strip().lstrip("-")
    if not digits.isdigit() or len(digits) > 99:
        raise ValueError
    return int(answer)


# How an answer points at an option, for each way that a spec can name.
_POSITIONS: dict[str, Callable[[Any, Sequence[Any]], int]] = {
    "label": _among,
    "text": _among,
    "letter": lambda answer, keys: _letter(answer),
    "small-letter": lambda answer, keys: _small_letter(answer),
    "index": lambda answer, keys: _whole(answer),
    "index-from-1": lambda answer, keys: _whole(answer) - 1,
    "bool": lambda answer, keys: ("false", "true").index(str(answer).lower()),
    "one-hot": lambda answer, keys: _among(1, answer),
}
