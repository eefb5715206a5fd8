"""Rows to items: the prompt of a protocol filled in. Pure; the same row gives the same item."""

from __future__ import annotations

from llmc.benchmarks.item import Item
from llmc.benchmarks.rows import Row, RowProblem
from llmc.benchmarks.spec import LETTERS, Benchmark, parse_template

VERSION = 1  # raised when the same spec and rows would render differently; makes built files be built again


class Renderer:
    """Renders the rows of one benchmark under one of its protocols."""

    def __init__(self, spec: Benchmark, protocol: str) -> None:
        chosen = spec.protocols[protocol]
        at = {name: i for i, name in enumerate(spec.fields)}
        pieces = parse_template(chosen.prompt)
        # A %-template fills in faster than anything else; -1 stands for the lettered choices.
        self._prompt = "".join(text.replace("%", "%%") + ("%s" if field else "") for text, field in pieces)
        self._places = [at.get(field, -1) for _, field in pieces if field]
        self._lists_choices = -1 in self._places
        self._is_letter = chosen.form == "letter"
        self._letters = tuple(" " + letter for letter in LETTERS)
        lines = [_around_text(chosen.choice_line, letter) for letter in LETTERS]
        self._before, self._after = [before for before, _ in lines], [after for _, after in lines]

    def item(self, row: Row, index: int) -> Item:
        """Return the item of a row; RowProblem when there are more options than letters."""
        choices, texts, lines = row.choices, row.texts, ""
        count = len(choices)
        if self._lists_choices:
            if count > len(LETTERS):
                raise RowProblem(f"has {count} options; there are {len(LETTERS)} letters")
            parts = zip(self._before, choices, self._after, strict=False)
            lines = "\n".join([before + text + after for before, text, after in parts])
        context = self._prompt % tuple([lines if place == -1 else texts[place] for place in self._places])
        continuations = self._letters[:count] if self._is_letter else tuple([" " + text for text in choices])
        return Item(index, row.id, row.group, context, None, None, continuations, row.gold, row.source_row)


def _around_text(choice_line: str, letter: str) -> tuple[str, str]:
    """Return what stands before and after the option's text in the line of one letter."""
    before, after, seen = "", "", False
    for literal, field in parse_template(choice_line):
        piece = literal + (letter if field == "letter" else "")
        before, after = (before, after + piece) if seen else (before + piece, after)
        seen = seen or field == "text"
    return before, after


def example(spec: Benchmark, protocol: str) -> Item:
    """Return the spec's made-up row, rendered."""
    made_up = spec.example
    texts = tuple(made_up.fields[name] for name in spec.fields)
    row = Row(-1, "example", None, texts, made_up.choices, made_up.gold)
    return Renderer(spec, protocol).item(row, 0)
