"""Rows to items: the prompt of a protocol filled in. Pure; the same row gives the same item."""

from __future__ import annotations

from llmc.benchmarks.item import Item
from llmc.benchmarks.rows import Row, RowProblem
from llmc.benchmarks.spec import LETTERS, Benchmark, parse_template

VERSION = 1  # raised when the same spec and rows would render differently; makes built files be built again


class Renderer:
    """Renders the rows of one benchmark under one of its protocols."""

    def __init__(self, spec: Benchmark, protocol: str) -> None:
        self._protocol = spec.protocols[protocol]
        at = {name: i for i, name in enumerate(spec.fields)}
        # Per piece: literal text, then the index of a field, -1 for the lettered choices, None for nothing.
        self._prompt = [
            (literal, None if field is None else at.get(field, -1))
            for literal, field in parse_template(self._protocol.prompt)
        ]
        self._line = parse_template(self._protocol.choice_line)
        self._lists_choices = any(place == -1 for _, place in self._prompt)
        self._is_letter = self._protocol.form == "letter"
        self._letters = tuple(" " + letter for letter in LETTERS)

    def item(self, row: Row, index: int) -> Item:
        """Return the item of a row; RowProblem when there are more options than letters."""
        count = len(row.choices)
        lines = ""
        if self._lists_choices:
            if count > len(LETTERS):
                raise RowProblem(f"has {count} options; there are {len(LETTERS)} letters")
            lines = "\n".join([self._choice(LETTERS[i], text) for i, text in enumerate(row.choices)])
        parts = []
        for literal, place in self._prompt:
            parts.append(literal)
            if place is not None:
                parts.append(lines if place == -1 else row.texts[place])
        if self._is_letter:
            continuations = self._letters[:count]
        else:
            continuations = tuple([" " + text for text in row.choices])
        return Item(
            index, row.id, row.group, "".join(parts), None, None, continuations, row.gold, row.source_row
        )

    def _choice(self, letter: str, text: str) -> str:
        out = ""
        for literal, field in self._line:
            out += literal
            if field is not None:
                out += letter if field == "letter" else text
        return out


def example(spec: Benchmark, protocol: str) -> Item:
    """Return the spec's made-up row, rendered."""
    made_up = spec.example
    texts = tuple(made_up.fields[name] for name in spec.fields)
    row = Row(-1, "example", None, texts, made_up.choices, made_up.gold)
    return Renderer(spec, protocol).item(row, 0)
