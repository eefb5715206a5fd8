"""A benchmark from a file of one's own: which columns hold what, and how the answers point at the options."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc.benchmarks import spec as specs
from llmc.benchmarks.rowfiles import column_names, read_rows
from llmc.errors import InputFileError, UsageError, did_you_mean

PROTOCOL = "llama-mc"
ENCODINGS = ("index", "index-from-1", "letter", "small-letter", "text", "label")
_QUESTIONS = ("question", "query", "prompt", "question_stem", "stem", "input", "problem", "goal", "sentence")
_LISTS = ("choices", "options", "answers", "endings", "candidates", "alternatives")
_ANSWERS = (
    *("answer", "answerkey", "answer_key", "answer_idx", "answer_index", "answer_id", "correct", "correct_answer"),
    *("correct_option", "correct_index", "gold", "label", "target", "solution", "cop"),
)
_IDS = ("id", "unique_id", "question_id")
_SEQUENCES = ("abcdefghijklmnopqrstuvwxyz", "0123456789", "123456789")
_PROMPTS = {"letter": "Question: {question}\n{choices}\nAnswer:", "text": 'Question: "{question}" Answer:'}


@dataclass(frozen=True)
class Given:
    """What the user says of a file; what is None is found out."""

    question: str | None = None
    choices: tuple[str, ...] = ()
    answer: str | None = None
    answer_as: str | None = None
    id: str | None = None
    group: str | None = None
    form: str = "letter"


@dataclass(frozen=True)
class _Options:
    """Where the options are: one column (of JSON text, perhaps), or several; and the labels beside them."""

    columns: tuple[str, ...]
    labels: str | None = None
    one_list: bool = False
    json_text: bool = False

    @property
    def choices(self) -> dict[str, Any]:
        if not self.one_list:
            return {"columns": self.columns}
        more = {"labels": self.labels} if self.labels else {}
        return {"column": self.columns[0], "json_text": self.json_text, **more}


def spec_of(path: Path, given: Given, *, name: str | None = None, split: str = "test") -> specs.Benchmark:
    """Return the spec of a file of questions. Nothing but its columns and the kind of its answers is looked at.

    Raises UsageError when the file leaves something open (with the columns there are, and the option that says it)
    and what reading it raises.
    """
    if not path.is_file():
        raise InputFileError(f"no such file: {path}", "check the path given with --from")
    names = column_names(path)
    question = _column(path, names, given.question, _QUESTIONS, "question")
    answer = _column(path, names, given.answer, _ANSWERS, "answer")
    options = _options(path, names, given, {question, answer})
    encoding = given.answer_as or _encoding(path, options, answer)
    if encoding not in ENCODINGS:
        raise UsageError(f"--answer-as is one of {', '.join(ENCODINGS)}, not {encoding!r}", "choose one of them")
    if encoding == "label" and options.labels is None:
        raise UsageError(f"{path} has no labels beside its options", "say another --answer-as")
    data = {
        "name": name or _name_of(path),
        "title": path.name,
        "source": {"files": {split: str(path.absolute())}},
        "splits": (split,),
        "default_split": split,
        "default_protocol": PROTOCOL,
        "fields": {"question": question},
        "choices": options.choices,
        "answer": {"column": answer, "encoding": encoding},
        "id_field": _optional(path, names, given.id) or next((n for n in names if n.lower() in _IDS), None),
        "group_field": _optional(path, names, given.group),
        "protocols": {PROTOCOL: {"form": given.form, "prompt": _prompt(given.form)}},
    }
    return _validated(data)


def _prompt(form: str) -> str:
    if form not in _PROMPTS:
        raise UsageError(f"--form is {' or '.join(_PROMPTS)}, not {form!r}", "choose one of them")
    return _PROMPTS[form]


def _validated(data: dict[str, Any]) -> specs.Benchmark:
    from pydantic import ValidationError

    if data["name"] in specs.catalogue():
        raise UsageError(f"{data['name']} is a benchmark of the catalogue", "choose another name with --name")
    try:
        return specs.Benchmark.model_validate(data)
    except ValidationError as error:
        where = ", ".join(".".join(map(str, detail["loc"])) for detail in error.errors())
        raise UsageError(
            f"{data['name']!r} ({where}) cannot be a name", "use small letters, digits and single hyphens with --name"
        ) from error


def _name_of(path: Path) -> str:
    stem = path.name.split(".")[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-") or "own"


def _column(path: Path, names: list[str], given: str | None, usual: Sequence[str], what: str) -> str:
    if given is not None:
        return _optional(path, names, given) or given
    by_lower = {name.lower(): name for name in reversed(names)}
    for name in usual:
        if name in by_lower:
            return by_lower[name]
    raise UsageError(
        f"{path} has no column that is evidently the {what} (it has {', '.join(names) or 'none'})",
        f"name it with --{what}-column",
    )


def _optional(path: Path, names: list[str], given: str | None) -> str | None:
    if given is not None and given not in names:
        raise UsageError(f"{path} has no column {given!r}{did_you_mean(given, names)}", f"it has {', '.join(names)}")
    return given


def _options(path: Path, names: list[str], given: Given, taken: set[str]) -> _Options:
    for name in given.choices:
        _optional(path, names, name)
    if len(given.choices) > 1:
        return _Options(given.choices)
    by_lower = {name.lower(): name for name in reversed(names) if name not in taken}
    for name in given.choices or [by_lower[usual] for usual in _LISTS if usual in by_lower]:
        if found := _inside(path, names, name):
            return found
    if given.choices:
        raise UsageError(f"{given.choices[0]!r} of {path} is no list of options", "name one column for each option")
    families = _families([name for name in names if "." not in name and name not in taken])
    if len(families) == 1:
        return _Options(families[0])
    told = "; ".join(", ".join(family) for family in families) or ", ".join(names) or "none"
    raise UsageError(
        f"{path} has no columns that are evidently the options ({'either of ' if families else 'it has '}{told})",
        "name the list, or each option's column, with --choices-column",
    )


def _inside(path: Path, names: list[str], column: str) -> _Options | None:
    """Return the options that a column holds: a list, a list as JSON, or an object of texts; None for others."""
    texts, labels = f"{column}.text", f"{column}.label"
    if texts in names:
        return _Options((texts,), labels if labels in names else None, one_list=True)
    parts = [name for name in names if name.startswith(f"{column}.")]
    if families := _families([name.removeprefix(f"{column}.") for name in parts]):
        return _Options(tuple(f"{column}.{part}" for part in families[0]))
    value = next((v for (v,) in _values(path, [column]) if v is not None), None)
    if isinstance(value, list):
        return _Options((column,), one_list=True)
    if isinstance(value, str) and _is_json_list(value):
        return _Options((column,), one_list=True, json_text=True)
    return None


def _is_json_list(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _families(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return runs of columns such as A to D, option1 to option4 or choice_a to choice_e, at least two each."""
    found: list[tuple[str, ...]] = []
    for sequence in (*_SEQUENCES, _SEQUENCES[0].upper()):
        for first in [name for name in names if name.endswith(sequence[0])]:
            run = [first[:-1] + mark for mark in sequence]
            run = run[: next((i for i, name in enumerate(run) if name not in names), len(run))]
            if len(run) >= 2 and not any(set(run) <= set(other) for other in found):
                found.append(tuple(run))
    return found


def _values(path: Path, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    for batch in read_rows(path, columns):
        yield from zip(*batch.columns, strict=True)


def _encoding(path: Path, options: _Options, answer: str) -> str:
    """Return the one way in which every answer points at an option; UsageError where there is none, or several."""
    columns = [answer, *options.columns, *([options.labels] if options.labels else [])]
    possible = {name: True for name in _FITS if name != "label" or options.labels}
    seen = 0
    for value, *rest in _values(path, columns):
        if value is None or value == "":
            continue  # refused by name when the file is built
        labels = rest.pop() if options.labels else None
        texts = _texts(options, rest)
        seen += 1
        for name in [name for name, fits in possible.items() if fits]:
            possible[name] = _FITS[name](value, texts, labels or [])
    fitting = [name for name, fits in possible.items() if fits] if seen else []
    if "label" in fitting:
        return "label"
    if len(fitting) == 1:
        return fitting[0]
    said = f"may be {' or '.join(fitting)}" if fitting else "point at no option in any one way"
    raise UsageError(
        f"the answers in {answer} of {path} {said}", f"say --answer-as {' or '.join(fitting or ENCODINGS)}"
    )


def _texts(options: _Options, values: list[Any]) -> list[Any]:
    if not options.one_list:
        return values
    value = values[0]
    if options.json_text and isinstance(value, str):
        value = json.loads(value) if _is_json_list(value) else None
    return value if isinstance(value, list) else []


def _number(value: Any) -> int | None:
    if type(value) is int:
        return value
    return int(value) if type(value) is str and value.strip().isdecimal() else None


def _within(value: Any, first: int, count: int) -> bool:
    number = _number(value)
    return number is not None and first <= number < first + count


def _lettered(value: Any, letters: str, count: int) -> bool:
    return type(value) is str and len(value.strip()) == 1 and value.strip() in letters[:count]


_FITS: dict[str, Any] = {
    "index": lambda value, texts, labels: _within(value, 0, len(texts)),
    "index-from-1": lambda value, texts, labels: _within(value, 1, len(texts)),
    "letter": lambda value, texts, labels: _lettered(value, specs.LETTERS, len(texts)),
    "small-letter": lambda value, texts, labels: _lettered(value, specs.LETTERS.lower(), len(texts)),
    "text": lambda value, texts, labels: value in texts,
    "label": lambda value, texts, labels: value in labels,
}
