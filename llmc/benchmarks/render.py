"""Rows to items: the prompt of a protocol filled in. Pure; the same row gives the same item."""

from __future__ import annotations

import random
from collections.abc import Callable

from llmc.benchmarks.item import Item
from llmc.benchmarks.rows import Row, RowProblem, RowReader
from llmc.benchmarks.spec import LETTERS, Benchmark, parse_template, placeholders

VERSION = 2  # raised when the same spec and rows would render differently; makes built files be built again
CHOICES = "choices"
BETWEEN = "\n\n"  # stands between worked examples, and before the question


class Renderer:
    """Renders the rows of one benchmark under one of its protocols.

    ``examples`` returns the worked examples of a row, one text; without it there are none.
    """

    def __init__(self, spec: Benchmark, protocol: str, examples: Callable[[Row], str] | None = None) -> None:
        chosen = spec.protocols[protocol]
        at = {name: i for i, name in enumerate(spec.fields)}
        used = placeholders(chosen.prompt)
        self._prompt, self._choice_line = chosen.prompt, chosen.choice_line
        self._templates: dict[int, str] = {}  # by number of options
        self._lists_choices = CHOICES in used
        before = used[: used.index(CHOICES)] if self._lists_choices else used
        self._head, self._tail = [at[name] for name in before], [at[name] for name in used[len(before) + 1 :]]
        self._one = self._head[0] if self._lists_choices and len(used) == 2 and self._head else None
        self._description, names = _percent(chosen.description)
        self._described = [at[name] for name in names]
        self._examples = examples
        self._is_letter = chosen.form == "letter"
        self._uncond = chosen.uncond
        self._stripped = {at[name]: str.lstrip for name in chosen.lstrip} | {
            at[name]: str.strip for name in chosen.strip
        }
        self._strips_options = chosen.strip_options
        self._order, self._shuffle = chosen.order, spec.choices.shuffle
        self._rearranges = self._order is not None or self._shuffle is not None
        self._letters = [tuple([" " + letter for letter in LETTERS[:count]]) for count in range(len(LETTERS) + 1)]
        #: positions of the texts that the prompt of a question shows
        self.shown = sorted({*self._head, *self._tail})

    def item(self, row: Row, index: int) -> Item:
        """Return the item of a row; RowProblem when there are more options than letters."""
        context, continuations, gold, order = self._bare(row)
        if self._examples is not None:
            context = self._examples(row) + context
        if self._description:
            context = self._description % tuple([row.texts[place] for place in self._described]) + context
        return Item(index, row.id, row.group, context, self._uncond, order, continuations, gold, row.source_row)

    def worked(self, row: Row) -> str:
        """Return a row as a worked example: its question and the right answer, without description."""
        context, continuations, gold, _ = self._bare(row)
        return context + continuations[gold]

    def _bare(self, row: Row) -> tuple[str, tuple[str, ...], int, tuple[int, ...] | None]:
        choices, gold, order = row.choices, row.gold, None
        if self._rearranges:
            order = self._arranged(row)
            choices, gold = tuple([choices[place] for place in order]), order.index(gold)
        return *self._query(row.texts, choices), gold, order

    def _arranged(self, row: Row) -> tuple[int, ...]:
        """Return the source's positions of the options in the order shown."""
        count = len(row.choices)
        order = list(self._order or range(count))
        if len(order) != count:
            raise RowProblem(f"has {count} options; the protocol arranges {len(order)}", "options")
        if self._shuffle is not None:
            random.Random(self._shuffle + row.source_row).shuffle(order)
        return tuple(order)

    def _query(self, texts: tuple[str, ...], choices: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        count = len(choices)
        if self._strips_options:
            choices = tuple([choice.strip() for choice in choices])
        if self._stripped:
            texts = tuple([self._stripped[i](t) if i in self._stripped else t for i, t in enumerate(texts)])
        template = self._templates.get(count) or self._template(count)
        if self._one is not None:
            context = template % (texts[self._one], *choices)
        elif self._lists_choices:
            context = template % (*[texts[i] for i in self._head], *choices, *[texts[i] for i in self._tail])
        else:
            context = template % tuple([texts[i] for i in self._head])
        return context, self._letters[count] if self._is_letter else tuple([" " + text for text in choices])

    def _template(self, count: int) -> str:
        """Return the prompt as a %-template for so many options; RowProblem when there are not enough letters."""
        if count > len(LETTERS) and (self._lists_choices or self._is_letter):
            raise RowProblem(f"has {count} options; there are {len(LETTERS)} letters", "options")
        lines = "\n".join(_choice_line(self._choice_line, letter) for letter in LETTERS[:count])
        template = "".join(
            literal.replace("%", "%%") + (lines if field == CHOICES else "%s" if field else "")
            for literal, field in parse_template(self._prompt)
        )
        return self._templates.setdefault(count, template)


def _percent(template: str) -> tuple[str, list[str]]:
    """Return a %-template, which fills in faster than anything else, and the fields it takes in order."""
    pieces = parse_template(template)
    text = "".join(literal.replace("%", "%%") + ("%s" if field else "") for literal, field in pieces)
    return text, [field for _, field in pieces if field]


def _choice_line(choice_line: str, letter: str) -> str:
    """Return the line of one letter as a %-template of the option's text."""
    parts = {"letter": letter, "text": "%s", None: ""}
    return "".join(literal.replace("%", "%%") + parts[field] for literal, field in parse_template(choice_line))


def example(spec: Benchmark, protocol: str) -> Item | None:
    """Return the spec's made-up row, rendered without worked examples; None when it has none."""
    if spec.example is None:
        return None
    row = RowReader(spec, "example", protocol).document(spec.example, 0)
    return Renderer(spec, protocol).item(row, 0)
