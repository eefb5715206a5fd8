"""A protocol's prompt as a sequence of named pieces: what must stand where, and where a text departs from it.

This is `llmc verify`'s own reading of a spec's templates. It shares nothing with the renderer, so that a fault
there cannot hide here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Piece = tuple[str, str]  # what it is, and the text that it must be

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CHOICES = "choices"
_MARK = re.compile(r"\{\{|\}\}|\{(\w+)\}")


@dataclass(frozen=True)
class Part:
    """A stretch of a template: literal text, or the name of what is filled in."""

    literal: str
    field: str | None


def parts(template: str) -> tuple[Part, ...]:
    """Return a template's literal stretches and placeholders in order; doubled braces are single ones."""
    found: list[Part] = []
    literal, at = "", 0
    for mark in _MARK.finditer(template):
        literal += template[at : mark.start()]
        at = mark.end()
        if mark[1] is None:
            literal += mark[0][0]
            continue
        if literal:
            found.append(Part(literal, None))
        found.append(Part("", mark[1]))
        literal = ""
    literal += template[at:]
    if literal:
        found.append(Part(literal, None))
    return tuple(found)


class Prompt:
    """The pieces of one template, given a row's fields and the options in the order shown."""

    def __init__(self, template: str, choice_line: str) -> None:
        line = parts(choice_line)
        self._steps: list[Callable[[dict[str, str], Sequence[str]], list[Piece]]] = []
        for part in parts(template):
            if part.field is None:
                self._steps.append(_literal(part.literal))
            elif part.field == CHOICES:
                self._steps.append(_lines(line))
            else:
                self._steps.append(_field(part.field))

    def pieces(self, fields: dict[str, str], options: Sequence[str]) -> list[Piece]:
        found: list[Piece] = []
        for step in self._steps:
            found += step(fields, options)
        return found


def _literal(text: str) -> Callable[[dict[str, str], Sequence[str]], list[Piece]]:
    fixed = [("the scaffold", text)]
    return lambda fields, options: fixed


def _field(name: str) -> Callable[[dict[str, str], Sequence[str]], list[Piece]]:
    what = f"the {name}"
    return lambda fields, options: [(what, fields[name])]


def _lines(line: tuple[Part, ...]) -> Callable[[dict[str, str], Sequence[str]], list[Piece]]:
    named = [(f"the line of {letter}", f"option {letter}", letter) for letter in LETTERS]
    around: list[tuple[Piece, str, Piece]] = []
    for number, (line_name, option_name, letter) in enumerate(named):
        texts = [letter if part.field == "letter" else part.literal for part in line]
        middle = next(i for i, part in enumerate(line) if part.field == "text")
        lead = ("\n" if number else "") + "".join(texts[:middle])
        around.append(((line_name, lead), option_name, (line_name, "".join(texts[middle + 1 :]))))

    def step(fields: dict[str, str], options: Sequence[str]) -> list[Piece]:
        found: list[Piece] = []
        for (before, name, after), option in zip(around, options, strict=False):
            found += (before, (name, option), after)
        return found

    return step


def join(pieces: Sequence[Piece]) -> str:
    return "".join([text for _, text in pieces])


def departure(pieces: Sequence[Piece], found: str) -> str:
    """Return in words where ``found`` first departs from the pieces: in which, what it should be, what is there."""
    expected = join(pieces)
    at = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    at = min(len(expected), len(found)) if at is None else at
    if at == len(expected):
        return f"its end, character {at}: nothing more is expected, found {_around(found, at)}"
    there = _around(found, at) if at < len(found) else "the end of the text"
    return f"{_piece_at(pieces, at)}, character {at}: expected {_around(expected, at)}, found {there}"


def _piece_at(pieces: Sequence[Piece], at: int) -> str:
    stop = 0
    for what, text in pieces:
        stop += len(text)
        if at < stop:
            return what
    raise ValueError(f"{at} is past the last piece")


def _around(text: str, at: int, before: int = 20, after: int = 20) -> str:
    start, stop = max(0, at - before), min(len(text), at + after)
    head = "..." if start else ""
    tail = "..." if stop < len(text) else ""
    return repr(head + text[start:stop] + tail)
