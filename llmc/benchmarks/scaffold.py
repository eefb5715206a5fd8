"""A protocol's prompt as a sequence of named pieces: what must stand where, and where a text departs from it.

This is `llmc verify`'s own reading of a spec's templates. It shares nothing with the renderer, so that a fault
there cannot hide here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Piece = tuple[str, str]  # what it is, and the text that it must be

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CHOICES = "choices"
GAP = "\n\n"  # between worked examples, and before the question
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
        self._template, self._line = parts(template), parts(choice_line)
        self._layouts: dict[int, _Layout] = {}

    def texts(self, fields: dict[str, str], options: Sequence[str]) -> list[str]:
        """Return the texts of the pieces in order."""
        layout = self._layout(len(options))
        texts = layout.texts[:]
        for at, name in layout.fields:
            texts[at] = fields[name]
        for at, number in layout.options:
            texts[at] = options[number]
        return texts

    def names(self, count: int) -> list[str]:
        """Return what the pieces are, for so many options."""
        return self._layout(count).names

    def _layout(self, count: int) -> _Layout:
        known = self._layouts.get(count)
        if known is None:
            known = self._layouts[count] = _Layout(self._template, self._line, count)
        return known


class _Layout:
    """The pieces for a number of options: what they are, the texts that are fixed, and where others go."""

    def __init__(self, template: Sequence[Part], line: Sequence[Part], count: int) -> None:
        self.names: list[str] = []
        self.texts: list[str] = []
        self.fields: list[tuple[int, str]] = []
        self.options: list[tuple[int, int]] = []
        for part in template:
            if part.field is None:
                self._add("the scaffold", part.literal)
            elif part.field == CHOICES:
                self._add_lines(line, min(count, len(LETTERS)))
            else:
                self.fields.append((len(self.texts), part.field))
                self._add(f"the {part.field}", "")

    def _add(self, what: str, text: str) -> None:
        self.names.append(what)
        self.texts.append(text)

    def _add_lines(self, line: Sequence[Part], count: int) -> None:
        for number, letter in enumerate(LETTERS[:count]):
            if number:
                self._add(f"the line of {letter}", "\n")
            for part in line:
                if part.field == "text":
                    self.options.append((len(self.texts), number))
                    self._add(f"option {letter}", "")
                else:
                    self._add(f"the line of {letter}", letter if part.field == "letter" else part.literal)


def departure(pieces: Sequence[Piece], found: str) -> str:
    """Return in words where ``found`` first departs from the pieces: in which, what it should be, what is there."""
    expected = "".join([text for _, text in pieces])
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
