"""What a task must be, derived from the row's evidence; and in words, where a task is something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llmc import mcbin
from llmc.benchmarks.evidence import Evidence, Unfit
from llmc.benchmarks.scaffold import LETTERS, Piece, Prompt, departure, join
from llmc.benchmarks.spec import Benchmark

_SPACED = tuple(" " + letter for letter in LETTERS)
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
_ORDER = ITEM_NAMES.index("option_order")


@dataclass(slots=True)
class Wanted:
    """A task as its row says: the pieces of the prompt, the options in the order shown, the right one's place."""

    evidence: Evidence
    pieces: list[Piece]
    question: str
    shown: tuple[str, ...]
    options: tuple[str, ...]
    gold: int
    item: tuple[Any, ...]


class Derivation:
    """Derives tasks of one benchmark under one protocol."""

    def __init__(self, spec: Benchmark, protocol: str) -> None:
        chosen = spec.protocols[protocol]
        self._prompt = Prompt(chosen.prompt, chosen.choice_line)
        self._is_letter = chosen.form == "letter"

    def wanted(self, index: int, evidence: Evidence, order: tuple[int, ...] | None) -> Wanted:
        """Return the task of a row, with its options in the order that the item records; raises Unfit."""
        shown, gold, width = evidence.options, evidence.gold, len(evidence.options)
        if order is not None:
            if sorted(order) != list(range(width)):
                raise Unfit(f"has {width} options, and the recorded order of them is {list(order)}")
            shown, gold = tuple([shown[place] for place in order]), order.index(gold)
        pieces = self._prompt.pieces(evidence.fields, shown)
        if self._is_letter:
            if width > len(LETTERS):
                raise Unfit(f"has {width} options, more than there are letters")
            options: tuple[str, ...] = tuple(LETTERS[:width])
            continuations = _SPACED[:width]
        else:
            options = shown
            continuations = tuple([" " + text for text in shown])
        question = join(pieces)
        item = (index, evidence.id, evidence.group, question, None, order, continuations, gold, evidence.row, None)
        return Wanted(evidence, pieces, question, shown, options, gold, item)

    def differences(self, wanted: Wanted, task: mcbin.Task | None, item: tuple[Any, ...] | None) -> Iterator[str]:
        """Yield what is wrong with a task and its item, each with what was expected."""
        if task is not None:
            if task.question != wanted.question:
                yield f"the prompt is wrong at {departure(wanted.pieces, task.question)}"
            yield from self._in_options(wanted, task.options, "")
            yield from self._in_gold(wanted, task.gold)
        if item is None or item == wanted.item:
            return
        for name, right, found in zip(ITEM_NAMES, wanted.item, item, strict=True):
            if right == found:
                continue
            if name == "context":
                yield f"the item's context is wrong at {departure(wanted.pieces, found)}"
            elif name == "continuations":
                yield from self._in_options(wanted, tuple(found or ()), " ")
            else:
                yield f"the item's {name} is {found!r}, expected {right!r}"

    def _in_options(self, wanted: Wanted, found: tuple[str, ...], lead: str) -> Iterator[str]:
        right = tuple(lead + option for option in wanted.options)
        whose = "the item's continuation" if lead else "option"
        if len(found) != len(right):
            yield f"there are {len(found)} {whose}s, expected {len(right)}"
        elif sorted(found) == sorted(right) and found != right:
            yield f"the {whose}s are in another order: {_listed(found)}, expected {_listed(right)}"
        else:
            for place, (one, other) in enumerate(zip(right, found, strict=True)):
                if one != other:
                    yield f"{whose} {place} is {_short(other)}, expected {_short(one)}"

    def _in_gold(self, wanted: Wanted, found: int) -> Iterator[str]:
        if found == wanted.gold:
            return
        marked = _short(wanted.shown[found]) if found < len(wanted.shown) else "no option"
        right = _short(wanted.shown[wanted.gold])
        yield f"option {found} ({marked}) is marked correct, expected option {wanted.gold} ({right})"


def recorded_order(item: tuple[Any, ...] | None) -> tuple[int, ...] | None:
    """Return the option order that an item records, or None."""
    return None if item is None or item[_ORDER] is None else tuple(item[_ORDER])


def _short(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def _listed(texts: tuple[str, ...]) -> str:
    return ", ".join(_short(text, 30) for text in texts)
