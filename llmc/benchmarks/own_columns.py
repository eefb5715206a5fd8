"""Which columns of a file of one's own hold the question, the answer and the options."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc.benchmarks.rowfiles import column_names, read_rows
from llmc.errors import UsageError, did_you_mean

QUESTIONS = ("question", "query", "prompt", "question_stem", "stem", "input", "problem", "goal", "sentence")
LISTS = ("choices", "options", "answers", "endings", "candidates", "alternatives")
ANSWERS = (
    *("answer", "answerkey", "answer_key", "answer_idx", "answer_index", "answer_id", "correct", "correct_answer"),
    *("correct_option", "correct_index", "gold", "label", "target", "solution", "cop"),
)
IDS = ("id", "unique_id", "question_id")
_WORDS = {*QUESTIONS, *LISTS, *ANSWERS, *IDS}
_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)
_LETTERED = re.compile(r"(.*)([A-Za-z])", re.DOTALL)


@dataclass(frozen=True)
class Options:
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

    def texts(self, values: list[Any]) -> list[Any]:
        """Return the options that the values of ``columns`` hold; empty where they hold none."""
        if not self.one_list:
            count = len(values)
            while count > 2 and values[count - 1] in (None, ""):
                count -= 1
            return values[:count]
        value = values[0]
        if self.json_text and isinstance(value, str):
            value = json.loads(value) if _is_json_list(value) else None
        return value if isinstance(value, list) else []


def column(path: Path, names: list[str], given: str | None, usual: Sequence[str], what: str) -> str:
    """Return the column that the user names, else the one that has a usual name; UsageError where none has."""
    if given is not None:
        return named(path, names, given)
    by_lower = {name.lower(): name for name in reversed(names)}
    for name in usual:
        if name in by_lower:
            return by_lower[name]
    raise UsageError(
        f"{path} has no column that is evidently the {what} (it has {', '.join(names) or 'none'})",
        f"name it with --{what}-column",
    )


def named(path: Path, names: list[str], given: str) -> str:
    """Return a column that the user names; UsageError with the nearest when no row of the file has it."""
    if given not in names and given not in (every := column_names(path, whole=True)):
        raise UsageError(f"{path} has no column {given!r}{did_you_mean(given, every)}", f"it has {', '.join(every)}")
    return given


def options(path: Path, names: list[str], given: tuple[str, ...], taken: set[str]) -> Options:
    """Return where the options are; ``given`` are the columns that the user names. Raises UsageError."""
    for name in given:
        if not any(other.startswith(f"{name}.") for other in names):
            named(path, names, name)
    if len(given) > 1:
        return Options(given)
    # Of a flattened object there are the dotted columns only.
    outer = dict.fromkeys(part for name in names for part in (name, name.partition(".")[0]))
    by_lower = {name.lower(): name for name in reversed(outer) if name not in taken}
    for name in given or [by_lower[usual] for usual in LISTS if usual in by_lower]:
        if found := _inside(path, names, name):
            return found
    if given:
        raise UsageError(f"{given[0]!r} of {path} is no list of options", "name one column for each option")
    flat = [name for name in names if name not in taken and not _is_inside(name, names)]
    found_families = families(path, flat)
    if len(found_families) == 1:
        return Options(found_families[0])
    told = "; ".join(", ".join(family) for family in found_families) or ", ".join(names) or "none"
    raise UsageError(
        f"{path} has no columns that are evidently the options ({'either of ' if found_families else 'it has '}{told})",
        "name the list, or each option's column, with --choices-column",
    )


def _is_inside(name: str, names: Sequence[str]) -> bool:
    """Say whether a dotted column is a part of another one, or only has a dot in its name."""
    return any(name[:at] in names for at, character in enumerate(name) if character == ".")


def _inside(path: Path, names: list[str], name: str) -> Options | None:
    """Return the options that a column holds: a list, a list as JSON, or an object of texts; None for others."""
    texts, labels = f"{name}.text", f"{name}.label"
    if texts in names:
        is_json = isinstance(_first(path, texts), str)
        return Options((texts,), labels if labels in names and not is_json else None, one_list=True, json_text=is_json)
    parts = [other.removeprefix(f"{name}.") for other in names if other.startswith(f"{name}.")]
    if found := families(path, parts, f"{name}."):
        return Options(tuple(f"{name}.{part}" for part in found[0]))
    value = _first(path, name) if name in names else None
    if isinstance(value, list):
        return Options((name,), one_list=True)
    if isinstance(value, str) and _is_json_list(value):
        return Options((name,), one_list=True, json_text=True)
    return None


def _first(path: Path, name: str) -> Any:
    return next((value for (value,), _ in rows(path, [name]) if value is not None), None)


def _is_json_list(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def rows(path: Path, columns: list[str]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the values of each row, and where it stands."""
    for batch in read_rows(path, columns):
        for offset, values in enumerate(zip(*batch.columns, strict=True)):
            yield values, batch.place(offset)


def families(path: Path, names: Sequence[str], outer: str = "") -> list[tuple[str, ...]]:
    """Return runs of columns such as A to D, option1 to option10 or choice_a to choice_e, at least two each.

    Raises UsageError where a run has a gap and goes on after it: one of its options may be misspelt, or no option.
    """
    series: dict[tuple[str, str], dict[int, list[str]]] = {}
    for name in names:
        if number := _NUMBERED.fullmatch(name):
            key, place = (number[1], "numbers"), int(number[2][:9])
        elif (letter := _LETTERED.fullmatch(name)) and name.lower() not in _WORDS:
            key, place = (letter[1], "letters"), ord(letter[2].lower()) - ord("a")
        else:
            continue
        series.setdefault(key, {}).setdefault(place, []).append(name)
    return [run for (_, kind), marks in series.items() for run in _runs(path, outer, kind, marks)]


def _runs(path: Path, outer: str, kind: str, marks: dict[int, list[str]]) -> Iterator[tuple[str, ...]]:
    """Yield the runs of one series; of letters there may be one of capital and one of small letters."""
    first = 0 if kind == "letters" or 0 in marks else 1
    cases = sorted({name[-1].isupper() for name in marks.get(first, ())}) if kind == "letters" else [None]
    runs = [run for case in cases if len(run := _run(marks, first, case)) >= 2]
    used = {name for run in runs for name in run}
    beside = [name for at in sorted(marks) for name in marks[at] if at >= first and name not in used]
    if runs and beside:
        shown = ", ".join(outer + name for name in beside)
        raise UsageError(
            f"{path} has the columns {outer}{runs[0][0]} to {outer}{runs[0][-1]}, and beside them {shown}, "
            "which do not follow on",
            "name each option's column with --choices-column, or correct the names of the columns",
        )
    yield from runs


def _run(marks: dict[int, list[str]], first: int, is_capital: bool | None) -> tuple[str, ...]:
    run: list[str] = []
    while True:
        found = [name for name in marks.get(first + len(run), ()) if is_capital in (None, name[-1].isupper())]
        if not found:
            return tuple(run)
        run.append(found[0])
