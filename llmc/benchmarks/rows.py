"""One row of a source, read strictly: its texts, its options, and which of them is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmc.benchmarks.spec import LETTERS, Benchmark
from llmc.mcbin import MAX_OPTIONS

_TYPES = {
    str: "text",
    bool: "true/false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


class RowProblem(ValueError):
    """Why a row cannot be scored; the message completes "row N ..."."""


@dataclass(frozen=True, slots=True)
class Row:
    """``texts`` follows the order of the spec's ``fields``; ``gold`` indexes ``choices``."""

    source_row: int
    id: str
    group: str | None
    texts: tuple[str, ...]
    choices: tuple[str, ...]
    gold: int


class RowReader:
    """Turn the values of ``columns`` into rows, as the spec says."""

    def __init__(self, spec: Benchmark, split: str) -> None:
        self._spec, self._split = spec, split
        choices = spec.choices
        self._text_columns = list(spec.fields.values())
        self._question = list(spec.fields).index("question")
        self._choice_columns = [choices.column] if choices.column else list(choices.columns or ())
        extra = [spec.answer.column, choices.labels, spec.id_field, spec.group_field]
        wanted = [*self._text_columns, *self._choice_columns, *(name for name in extra if name)]
        self.columns = list(dict.fromkeys(wanted))
        place = {name: at for at, name in enumerate(self.columns)}
        self._texts = [(name, place[name]) for name in self._text_columns]
        self._options = [(name, place[name]) for name in self._choice_columns]
        self._answer = place[spec.answer.column]
        self._labels = place[choices.labels] if choices.labels else None
        self._id = place[spec.id_field] if spec.id_field else None
        self._group = place[spec.group_field] if spec.group_field else None

    def row(self, values: tuple[Any, ...], source_row: int) -> Row:
        """Return one row; ``values`` stand in the order of ``columns``. Raises RowProblem."""
        texts = []
        for name, at in self._texts:
            value = values[at]
            if type(value) is not str:
                raise _wrong_type(name, value)
            texts.append(value)
        if not texts[self._question].strip():
            raise RowProblem(f"has an empty {self._text_columns[self._question]}")
        choices = self._read_choices(values)
        gold = self._read_gold(values, choices)
        return Row(source_row, self.row_id(values, source_row), self._read_group(values), tuple(texts), choices, gold)

    def row_id(self, values: tuple[Any, ...], source_row: int) -> str:
        """Return the source's own id of a row, else ``<split>-<row>``."""
        value = values[self._id] if self._id is not None else None
        return f"{self._split}-{source_row}" if value in (None, "") else str(value)

    def _read_group(self, values: tuple[Any, ...]) -> str | None:
        value = values[self._group] if self._group is not None else None
        return None if value is None else str(value)

    def _read_choices(self, values: tuple[Any, ...]) -> tuple[str, ...]:
        spec = self._spec.choices
        if spec.fixed is not None:
            return spec.fixed
        if spec.column is not None:
            found = values[self._options[0][1]]
            if type(found) is not list:
                raise _wrong_type(spec.column, found, "a list")
            choices = tuple(found)
        else:
            choices = tuple(values[at] for _, at in self._options)
        if set(map(type, choices)) != {str} or not all(map(str.strip, choices)):
            self._explain_choices(choices)
        if not 2 <= len(choices) <= MAX_OPTIONS:
            raise RowProblem(f"has {len(choices)} options; llama.cpp scores 2 to {MAX_OPTIONS}")
        if choices.count(choices[0]) == len(choices):
            raise RowProblem(f"has options that are all {choices[0]!r}")
        return choices

    def _explain_choices(self, choices: tuple[Any, ...]) -> None:
        for i, choice in enumerate(choices):
            if type(choice) is not str:
                raise _wrong_type(self._spec.choices.column or self._options[i][0], choice)
            if not choice.strip():
                raise RowProblem(f"has an empty option {i}")

    def _read_gold(self, values: tuple[Any, ...], choices: tuple[str, ...]) -> int:
        column, encoding = self._spec.answer.column, self._spec.answer.encoding
        answer = values[self._answer]
        if answer is None or answer == "":
            raise RowProblem(f"has no answer in {column}")
        if encoding == "label":
            assert self._labels is not None
            labels = values[self._labels]
            if type(labels) is not list or len(labels) != len(choices):
                raise RowProblem(f"has {len(choices)} options and other labels: {labels!r}")
            return _only(labels, answer, column)
        if encoding == "text":
            return _only(list(choices), answer, column)
        gold = _position(encoding, answer, column)
        if not 0 <= gold < len(choices):
            raise RowProblem(f"has the answer {answer!r} in {column}, outside its {len(choices)} options")
        return gold


def _only(among: list[Any], answer: Any, column: str) -> int:
    if type(answer) is not str:
        raise _wrong_type(column, answer)
    count = among.count(answer)
    if count != 1:
        which = "none" if count == 0 else str(count)
        raise RowProblem(f"has the answer {answer!r} in {column}, which is {which} of {', '.join(map(str, among))}")
    return among.index(answer)


def _position(encoding: str, answer: Any, column: str) -> int:
    if encoding == "bool":
        if type(answer) is bool:
            return int(answer)
        words = {"false": 0, "true": 1}
        if type(answer) is str and answer.lower() in words:
            return words[answer.lower()]
        raise _wrong_type(column, answer, "true or false")
    if encoding == "letter":
        if type(answer) is not str or len(answer) != 1 or answer not in LETTERS:
            raise _wrong_type(column, answer, "a capital letter")
        return LETTERS.index(answer)
    if type(answer) is str and answer.strip().isdecimal():
        answer = int(answer)
    if type(answer) is not int:
        raise _wrong_type(column, answer, "a whole number")
    return answer - (encoding == "index-from-1")


def _wrong_type(column: str, value: Any, wanted: str = "text") -> RowProblem:
    if value is None:
        return RowProblem(f"has no {column}")
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return RowProblem(
        f"has {shown} ({_TYPES.get(type(value), type(value).__name__)}) in {column}; {wanted} is expected"
    )
