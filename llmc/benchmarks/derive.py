"""What a task must be, derived from the row's evidence; and in words, where a task is something else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llmc import mcbin
from llmc.benchmarks.evidence import Evidence, Unfit
from llmc.benchmarks.scaffold import GAP, LETTERS, Piece, Prompt, departure
from llmc.benchmarks.spec import Benchmark

# By number of options.
_BARE = [tuple(LETTERS[:count]) for count in range(len(LETTERS) + 1)]
_SPACED = [tuple([" " + letter for letter in letters]) for letters in _BARE]
# The values of an item in their order; what they are called in messages.
ITEM_NAMES = (
    "index",
    "id",
    "group",
    "context",
    "uncond_context",
    "option_order",
    "continuations",
    "gold",
    "source_row",
    "attributes",
)
Before = tuple[Sequence[Piece], str]  # pieces, and their text
_NOTHING: Before = ((), "")


@dataclass(slots=True)
class Wanted:
    """A task as its row says: its prompt, the options in the order shown, the right one's place.

    ``before`` holds the description and the worked examples, ``query`` the texts of the pieces after them.
    """

    evidence: Evidence
    before: Before
    query: list[str]
    question: str
    shown: tuple[str, ...]
    options: tuple[str, ...]
    gold: int
    item: tuple[Any, ...]


class Derivation:
    """Derives tasks of one benchmark under one protocol.

    ``worked`` gives the rows of the worked examples that belong before a row's question, in order.
    """

    def __init__(
        self, spec: Benchmark, protocol: str, worked: Callable[[Evidence], Sequence[Evidence]] | None = None
    ) -> None:
        chosen = spec.protocols[protocol]
        self._prompt = Prompt(chosen.prompt, chosen.choice_line)
        self._description = Prompt(chosen.description, chosen.choice_line) if chosen.description else None
        self._is_letter, self._uncond = chosen.form == "letter", chosen.uncond
        self._trimmed = [(field, str.strip) for field in chosen.strip] + [(f, str.lstrip) for f in chosen.lstrip]
        self._rearranges = chosen.order is not None or spec.choices.shuffle is not None
        self._trims_options = chosen.strip_options
        self._order, self._seed, self._listed_in = chosen.order, spec.choices.shuffle, chosen.listed_in
        self._worked = worked
        self._known: dict[tuple[int, ...], Before] = {}

    def wanted(self, index: int, evidence: Evidence) -> Wanted:
        """Return the task of a row; raises Unfit where the protocol cannot ask it."""
        order, shown, gold = None, evidence.options, evidence.gold
        if self._rearranges:
            order = self._arrangement(evidence)
            shown, gold = tuple([shown[place] for place in order]), order.index(gold)
        if self._trims_options:
            shown = tuple([option.strip() for option in shown])
        options, continuations = self._scored(shown)
        query = self._query(evidence, shown)
        before = self._before(evidence) if self._worked or self._description else _NOTHING
        question = before[1] + "".join(query)
        row = evidence.row
        item = (index, evidence.id, evidence.group, question, self._uncond, order, continuations, gold, row, None)
        return Wanted(evidence, before, query, question, shown, options, gold, item)

    def pieces(self, wanted: Wanted) -> list[Piece]:
        """Return the whole prompt in pieces, for messages."""
        names = self._prompt.names(len(wanted.shown))
        return [*wanted.before[0], *zip(names, wanted.query, strict=True)]

    def _arrangement(self, evidence: Evidence) -> tuple[int, ...]:
        """Return the source's places of the options in the order shown: the protocol's, or one drawn per row."""
        order = list(range(len(evidence.options)) if self._order is None else self._order)
        if len(order) != len(evidence.options):
            raise Unfit(f"has {len(evidence.options)} options, the protocol arranges {len(order)}", "options")
        if self._seed is not None:
            random.Random(self._seed + evidence.row).shuffle(order)
        return tuple(order)

    def _scored(self, shown: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if not self._is_letter:
            return shown, tuple([" " + text for text in shown])
        if len(shown) > len(LETTERS):
            raise Unfit(f"has {len(shown)} options, more than there are letters", "options")
        return _BARE[len(shown)], _SPACED[len(shown)]

    def _query(self, evidence: Evidence, shown: tuple[str, ...]) -> list[str]:
        fields = evidence.fields
        if self._trimmed:
            fields = {**fields, **{field: trim(fields[field]) for field, trim in self._trimmed}}
        if self._listed_in is not None:
            self._require_lines(fields[self._listed_in], shown)
        return self._prompt.texts(fields, shown)

    def _require_lines(self, text: str, shown: tuple[str, ...]) -> None:
        """Require that a text of the source shows the options by their letters, one after the other."""
        at = 0
        for letter, option in zip(LETTERS, shown, strict=False):
            line = f"\n{letter}. {option}"
            at = text.find(line, at)
            if at < 0:
                raise Unfit(f"shows no line {line.strip()!r:.60} in its {self._listed_in}")
            at += len(line)

    def _before(self, evidence: Evidence) -> Before:
        found = _NOTHING
        if self._worked is not None:
            rows = self._worked(evidence)
            # Rows of one split are told apart by their place in it.
            key = tuple([row.row for row in rows])
            if key not in self._known:
                examples = [piece for number, row in enumerate(rows, 1) for piece in self._example(number, row)]
                self._known[key] = examples, "".join([text for _, text in examples])
            found = self._known[key]
        if self._description is None:
            return found
        described = "".join(self._description.texts(evidence.fields, ()))
        return [("the description", described), *found[0]], described + found[1]

    def _example(self, number: int, row: Evidence) -> Iterator[Piece]:
        alone = self._alone()
        wanted = alone.wanted(0, row)
        for what, text in alone.pieces(wanted):
            yield f"worked example {number}, {what}", text
        yield f"worked example {number}, its answer", " " + wanted.options[wanted.gold]
        yield f"worked example {number}, its end", GAP

    def _alone(self) -> Derivation:
        """Return a derivation of questions alone, as worked examples hold them."""
        bare = object.__new__(Derivation)
        bare.__dict__ = {**self.__dict__, "_worked": None, "_description": None}
        return bare

    # In words

    def differences(self, wanted: Wanted, task: mcbin.Task | None, item: tuple[Any, ...] | None) -> Iterator[str]:
        """Yield what is wrong with a task and its item, each with what was expected."""
        if task is not None:
            if task.question != wanted.question:
                yield f"the prompt is wrong at {departure(self.pieces(wanted), task.question)}"
            yield from _in_options(wanted.options, task.options, "option")
            yield from _in_gold(wanted, task.gold)
        if item is None or item == wanted.item:
            return
        for name, right, found in zip(ITEM_NAMES, wanted.item, item, strict=True):
            if right == found:
                continue
            if name == "context":
                yield f"the item's context is wrong at {departure(self.pieces(wanted), found)}"
            elif name == "continuations":
                yield from _in_options(right, tuple(found or ()), "the item's continuation")
            else:
                yield f"the item's {name} is {found!r}, expected {right!r}"


def _in_options(right: tuple[str, ...], found: tuple[str, ...], whose: str) -> Iterator[str]:
    if found == right:
        return
    if len(found) != len(right):
        yield f"there are {len(found)} {whose}s, expected {len(right)}"
    elif sorted(found) == sorted(right):
        yield f"the {whose}s are in another order: {_listed(found)}, expected {_listed(right)}"
    else:
        for place, (one, other) in enumerate(zip(right, found, strict=True)):
            if one != other:
                yield f"{whose} {place} is {_short(other)}, expected {_short(one)}"


def _in_gold(wanted: Wanted, found: int) -> Iterator[str]:
    if found == wanted.gold:
        return
    marked = _short(wanted.shown[found]) if found < len(wanted.shown) else "no option"
    right = _short(wanted.shown[wanted.gold])
    yield f"option {found} ({marked}) is marked correct, expected option {wanted.gold} ({right})"


def _short(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def _listed(texts: tuple[str, ...]) -> str:
    return ", ".join(_short(text, 30) for text in texts)
