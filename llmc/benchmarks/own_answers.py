"""How the answers of a file of one's own point at the options, found out from all of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc.benchmarks.own_columns import Options, rows
from llmc.benchmarks.schema import LETTERS
from llmc.errors import InputFileError, UsageError

ENCODINGS = ("index", "index-from-1", "letter", "small-letter", "text", "label")
_NAMES = {
    "index": "positions from 0",
    "index-from-1": "positions from 1",
    "letter": "letters",
    "small-letter": "small letters",
    "text": "the text of an option",
    "label": "labels",
}
MOST_DIGITS = 9


def encoding(path: Path, options: Options, answer: str) -> str:
    """Return the one way in which every answer points at an option; UsageError where there is none, or several.

    Raises InputFileError for a file without rows, or without any answer.
    """
    columns = [answer, *options.columns, *([options.labels] if options.labels else [])]
    possible = [name for name in ENCODINGS if name != "label" or options.labels]
    fitting, count, answered = list(possible), 0, 0
    for (value, *rest), _ in rows(path, columns):
        count += 1
        if value is None or value == "":
            continue  # refused by name when the file is built
        answered += 1
        if fitting:
            labels = rest.pop() if options.labels else None
            texts = options.texts(rest)
            fitting = [name for name in fitting if _FITS[name](value, texts, labels)]
    if not count:
        raise InputFileError(f"{path} holds no rows", "name a file that holds questions")
    if not answered:
        raise InputFileError(
            f"no row of {path} has an answer in {answer}", "fill it in, or name another with --answer-column"
        )
    if "label" in fitting:
        return "label"
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        choice = " or ".join(fitting)
        raise UsageError(f"the answers in {answer} of {path} may be {choice}", f"say --answer-as {choice}")
    raise _no_way(path, options, answer, possible)


@dataclass
class _Tally:
    """How many answers point at an option in one way, and the first one that does not."""

    fits: int = 0
    misfit: str = ""


def _no_way(path: Path, options: Options, answer: str, possible: list[str]) -> UsageError:
    """Return the error that tells the way in which most answers fit, and the first that does not. Reads again."""
    columns = [answer, *options.columns, *([options.labels] if options.labels else [])]
    tallies = {name: _Tally() for name in possible}
    answered = 0
    for (value, *rest), place in rows(path, columns):
        if value is None or value == "":
            continue
        answered += 1
        labels = rest.pop() if options.labels else None
        texts = options.texts(rest)
        for name, tally in tallies.items():
            if _FITS[name](value, texts, labels):
                tally.fits += 1
            elif not tally.misfit:
                tally.misfit = f"{place} has {_problem(name, value, texts, answer, options)}"
    most = max(tally.fits for tally in tallies.values())
    best = [name for name, tally in tallies.items() if tally.fits == most]
    misfit = tallies[best[0]].misfit
    if not most:
        return UsageError(
            f"the answers in {answer} of {path} point at no option in any one way: {misfit}",
            f"correct them, or say --answer-as {' or '.join(possible)}",
        )
    ways = " or ".join(_NAMES[name] for name in best)
    return UsageError(
        f"{path}: {most} of {answered} answers are {ways}; {misfit}",
        f"correct that row, or say --answer-as {' or '.join(best)} to see all such rows",
    )


def _problem(name: str, value: Any, texts: Sequence[Any], answer: str, options: Options) -> str:
    if len(texts) < 2:
        count = {0: "no options", 1: "1 option"}[len(texts)]
        return f"{count} in {', '.join(options.columns)}"
    outside = name not in ("text", "label") and (_number(value) is not None or _is_letter(value))
    what = f"outside its {len(texts)} options" if outside else f"which is none of its {len(texts)} options"
    return f"{shown(value)} in {answer}, {what}"


def shown(value: Any, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def _number(value: Any) -> int | None:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is str and (text := value.strip()).isdecimal() and len(text) <= MOST_DIGITS:
        return int(text)
    return None


def _within(value: Any, first: int, count: int) -> bool:
    number = _number(value)
    return number is not None and first <= number < first + count


def _is_letter(value: Any) -> bool:
    return type(value) is str and len(value.strip()) == 1 and value.strip().upper() in LETTERS


def _lettered(value: Any, letters: str, count: int) -> bool:
    return _is_letter(value) and value.strip() in letters[:count]


def _labelled(value: Any, labels: Any) -> bool:
    if type(value) not in (str, int) or type(labels) is not list:
        return False
    return any(type(label) is type(value) and label == value for label in labels)


_FITS: dict[str, Callable[[Any, Sequence[Any], Any], bool]] = {
    "index": lambda value, texts, labels: _within(value, 0, len(texts)),
    "index-from-1": lambda value, texts, labels: _within(value, 1, len(texts)),
    "letter": lambda value, texts, labels: _lettered(value, LETTERS, len(texts)),
    "small-letter": lambda value, texts, labels: _lettered(value, LETTERS.lower(), len(texts)),
    "text": lambda value, texts, labels: type(value) is str and value in texts,
    "label": lambda value, texts, labels: _labelled(value, labels),
}
