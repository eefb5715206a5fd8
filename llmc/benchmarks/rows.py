"""One row of a source, read strictly: its texts, its options, and which of them is right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from llmc.benchmarks.adapters import ADAPTERS, RowProblem
from llmc.benchmarks.rowfiles import values_of
from llmc.benchmarks.spec import LETTERS, Benchmark
from llmc.mcbin import MAX_OPTIONS

__all__ = ["Row", "RowProblem", "RowReader"]

_PLACES = {letter: place for place, letter in enumerate(LETTERS)}
_GROUPS_KEPT = 4096
_NUMBER = re.compile(r"\s*-?\d{1,9}\s*")
_ONLY_TEXT = {str}
_TYPES = {
    str: "text",
    bool: "true/false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes several times as long to make
class Row:
    """Not to be changed. ``texts`` follows the order of the spec's ``fields``; ``gold`` indexes ``choices``."""

    source_row: int
    id: str
    group: str | None
    texts: tuple[str, ...]
    choices: tuple[str, ...]
    gold: int


class RowReader:
    """Turn the values of ``columns`` into rows, as the spec says for one of its protocols (default: its own)."""

    def __init__(self, spec: Benchmark, split: str, protocol: str | None = None) -> None:
        self._spec, self._split = spec, split
        choices, configs = spec.choices, spec.source.configs
        chosen = spec.protocols[protocol or spec.default_protocol]
        self._may_be_equal = spec.equal_options is not None and chosen.form == "letter"
        name = chosen.adapter or spec.adapter
        self._adapter = ADAPTERS[name] if name else None
        self._text_columns = list(spec.fields.values())
        self._question = list(spec.fields).index("question")
        self._fixed, self._one_list = choices.fixed, choices.column is not None
        self._choice_columns = [choices.column] if choices.column else list(choices.columns or ())
        groups = configs.columns if configs else (spec.group_field,)
        extra = [spec.answer.column, choices.labels, spec.id_field, *groups]
        wanted = [*self._text_columns, *self._choice_columns, *(name for name in extra if name)]
        needs, gives = (self._adapter.needs, self._adapter.gives) if self._adapter else ((), ())
        self.columns = list(dict.fromkeys([*needs, *(name for name in wanted if name not in gives)]))
        place = {name: at for at, name in enumerate([*self.columns, *gives])}
        self._needs = _picker([place[name] for name in needs])
        self._texts = [(name, place[name]) for name in self._text_columns]
        self._options = _picker([place[name] for name in self._choice_columns])
        self._answer = place[spec.answer.column]
        self._labels = place[choices.labels] if choices.labels else None
        self._id = place[spec.id_field] if spec.id_field else None
        grouped = [place[name] for name in groups if name]
        self._groups = _picker(grouped) if grouped else None
        self._known_groups: dict[tuple[Any, ...], str | None] = {}
        self._is_letter = spec.answer.encoding == "letter"
        self._filled = {
            at: spec.fill[field] for field, (_, at) in zip(spec.fields, self._texts, strict=True) if field in spec.fill
        }

    def row(self, values: tuple[Any, ...], source_row: int) -> Row:
        """Return one row; ``values`` stand in the order of ``columns``. Raises RowProblem."""
        if self._adapter is not None:
            values = (*values, *self._adapter.apply(*self._needs(values)))
        return self._row(values, source_row)

    def document(self, document: dict[str, Any], source_row: int) -> Row:
        """Return the row that a document says, in the source's columns or already in those an adapter gives.

        Raises RowProblem.
        """
        if self._adapter is None or any(name not in document for name in self._adapter.gives):
            return self.row(values_of(document, self.columns), source_row)
        return self._row(values_of(document, [*self.columns, *self._adapter.gives]), source_row)

    def _row(self, values: tuple[Any, ...], source_row: int) -> Row:
        texts = []
        for name, at in self._texts:
            value = values[at]
            if type(value) is not str:
                value = self._fill(name, at, values, source_row)
            texts.append(value)
        if not texts[self._question].strip():
            raise RowProblem(f"has an empty {self._text_columns[self._question]}", "empty-question")
        choices = self._read_choices(values)
        gold = self._read_gold(values, choices)
        own_id, group = self.row_id(values, source_row), self.group(values)
        if not own_id.isascii():
            _require_unicode(own_id, self._spec.id_field)
        if group is not None and not group.isascii():
            _require_unicode(group, self._spec.group_field)
        return Row(source_row, own_id, group, tuple(texts), choices, gold)

    def _fill(self, name: str, at: int, values: tuple[Any, ...], source_row: int) -> str:
        if values[at] is None and at in self._filled:
            text = self._filled[at].get(self.row_id(values, source_row))
            if text is not None:
                return text
        raise _wrong_type(name, values[at])

    def row_id(self, values: tuple[Any, ...], source_row: int) -> str:
        """Return the source's own id of a row, else ``<split>-<row>``."""
        value = values[self._id] if self._id is not None else None
        return f"{self._split}-{source_row}" if value in (None, "") else str(value)

    def group(self, values: tuple[Any, ...]) -> str | None:
        """Return the config of a row where the source has several, else what its group column says."""
        if self._groups is None:
            return None
        key = self._groups(values)
        try:
            return self._known_groups[key]
        except (KeyError, TypeError):
            found = [str(value) for value in key if value is not None]
        named = None if not found else config_of(found) if self._spec.source.configs else found[0]
        if len(self._known_groups) < _GROUPS_KEPT and all(type(value) is str for value in key):
            self._known_groups[key] = named
        return named

    def _read_choices(self, values: tuple[Any, ...]) -> tuple[str, ...]:
        if self._fixed is not None:
            return self._fixed
        choices = self._options(values)
        if self._one_list:
            choices = self._listed(choices[0])
        if {*map(type, choices)} != _ONLY_TEXT or not all(map(str.strip, choices)):
            choices = choices if self._one_list else _without_missing(choices)
            self._explain_choices(choices)
        if not 2 <= len(choices) <= MAX_OPTIONS:
            raise RowProblem(f"has {len(choices)} options; llama.cpp scores 2 to {MAX_OPTIONS}", "options")
        if choices.count(choices[0]) == len(choices) and not self._may_be_equal:
            raise RowProblem(f"has options that are all {choices[0]!r}", "equal-options")
        return choices

    def _listed(self, found: Any) -> tuple[Any, ...]:
        column = self._choice_columns[0]
        if self._spec.choices.json_text:
            found = _parsed(column, found)
        if type(found) is not list:
            raise _wrong_type(column, found, "a list")
        return tuple(found)

    def _explain_choices(self, choices: tuple[Any, ...]) -> None:
        for i, choice in enumerate(choices):
            column = self._spec.choices.column or self._choice_columns[i]
            if type(choice) is not str:
                problem = _wrong_type(column, choice)
                raise RowProblem(str(problem), "options")
            if not choice.strip():
                raise RowProblem(f"has an empty option {i} in {column}", "options")

    def _read_gold(self, values: tuple[Any, ...], choices: tuple[str, ...]) -> int:
        answer = values[self._answer]
        if self._is_letter and type(answer) is str and _PLACES.get(answer, len(choices)) < len(choices):
            return _PLACES[answer]
        column, encoding = self._spec.answer.column, self._spec.answer.encoding
        if answer is None or answer == "":
            raise RowProblem(f"has no answer in {column}", "unlabelled")
        if encoding == "label":
            assert self._labels is not None
            labels = values[self._labels]
            if type(labels) is not list or len(labels) != len(choices):
                raise RowProblem(f"has {len(choices)} options and other labels: {labels!r}", "wrong-answer")
            return _only(labels, answer, column, (str, int))
        if encoding == "text":
            return _only(list(choices), answer, column, (str,))
        gold = _one_hot(answer, column) if encoding == "one-hot" else _position(encoding, answer, column)
        if not 0 <= gold < len(choices):
            kind = "unlabelled" if gold == -1 and encoding == "index" else "wrong-answer"
            raise RowProblem(f"has the answer {_shown(answer)} in {column}, outside its {len(choices)} options", kind)
        return gold


def _picker(places: list[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return what takes the values at some places out of a row, faster than a loop over the places does."""
    if len(places) == 1:
        (place,) = places
        return lambda values: (values[place],)
    return itemgetter(*places) if places else lambda values: ()


def config_of(values: list[str]) -> str:
    """Return the config that the values of its columns stand for."""
    return "_".join(values).lower()


def _parsed(column: str, value: Any) -> Any:
    if type(value) is not str:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowProblem(f"has {value!r:.60} in {column}; a JSON list is expected", "options") from error


def _without_missing(choices: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the options of several columns without the last ones, which a row with fewer options leaves empty."""
    count = len(choices)
    while count > 2 and (choices[count - 1] is None or choices[count - 1] == ""):
        count -= 1
    return choices[:count]


def _require_unicode(text: str, column: str | None) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RowProblem(f"has {text!r:.60} in {column or 'its part'}, which no file can hold as text") from None


def _only(among: list[Any], answer: Any, column: str, types: tuple[type, ...]) -> int:
    if type(answer) not in types:
        raise _wrong_type(column, answer)
    count = among.count(answer)
    if count != 1 or type(among[among.index(answer)]) is not type(answer):
        which = "none" if count == 0 else "not of the kind" if count == 1 else str(count)
        told = ", ".join(map(str, among))
        raise RowProblem(f"has the answer {_shown(answer)} in {column}, which is {which} of {told}", "wrong-answer")
    return among.index(answer)


def _one_hot(answer: Any, column: str) -> int:
    if type(answer) is not list or any(type(entry) is not int or entry not in (0, 1) for entry in answer):
        raise _wrong_type(column, answer, "a list of 0 and 1")
    if answer.count(1) != 1:
        raise RowProblem(f"has {answer.count(1)} right answers in {column}", "wrong-answer")
    return answer.index(1)


def _position(encoding: str, answer: Any, column: str) -> int:
    if encoding == "bool":
        if type(answer) is bool:
            return int(answer)
        words = {"false": 0, "true": 1}
        if type(answer) is str and answer.lower() in words:
            return words[answer.lower()]
        raise _wrong_type(column, answer, "true or false")
    if encoding in ("letter", "small-letter"):
        letters = LETTERS if encoding == "letter" else LETTERS.lower()
        if type(answer) is str:
            answer = answer.strip()
        if type(answer) is not str or len(answer) != 1 or answer not in letters:
            raise _wrong_type(column, answer, "a capital letter" if encoding == "letter" else "a small letter")
        return letters.index(answer)
    if (type(answer) is str and _NUMBER.fullmatch(answer)) or (type(answer) is float and answer.is_integer()):
        answer = int(answer)
    if type(answer) is not int:
        raise _wrong_type(column, answer, "a whole number")
    return answer - (encoding == "index-from-1")


def _wrong_type(column: str, value: Any, wanted: str = "text") -> RowProblem:
    if value is None:
        return RowProblem(f"has no {column}")
    return RowProblem(
        f"has {_shown(value)} ({_TYPES.get(type(value), type(value).__name__)}) in {column}; {wanted} is expected"
    )


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
