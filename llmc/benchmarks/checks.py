"""What is counted while items go by: the figures of the manifest, and what is odd about single items."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import islice

from llmc.benchmarks.item import Item
from llmc.benchmarks.manifest import Majority, Warned
from llmc.benchmarks.questions import Asked, digest
from llmc.benchmarks.rows import Row
from llmc.benchmarks.spec import Expect, Form

NAMED_IDS = 1000  # of each kind of warning; the count goes on


class Counts:
    """Tasks by number of options and by gold position."""

    def __init__(self) -> None:
        self.widths: Counter[int] = Counter()
        self.golds: Counter[int] = Counter()

    def add(self, item: Item) -> None:
        self.widths[len(item.continuations)] += 1
        self.golds[item.gold] += 1

    @property
    def tasks(self) -> int:
        return sum(self.golds.values())

    @property
    def chance(self) -> float:
        """Mean of 1/options."""
        return float(sum(Fraction(n, width) for width, n in self.widths.items()) / self.tasks)

    @property
    def majority(self) -> Majority:
        position = min(self.golds, key=lambda i: (-self.golds[i], i))
        return Majority(position=position, share=self.golds[position] / self.tasks)

    def unexpected(self, expect: Expect | None, left_out: int = 0) -> str:
        """Return how the counts differ from the published ones, or an empty string; published are all rows."""
        if expect is None:
            return ""
        if self.tasks + left_out != expect.tasks:
            return f"{self.tasks + left_out} tasks, the published split has {expect.tasks}"
        share = 100 * self.majority.share
        if left_out:
            return ""
        if expect.majority is not None and abs(share - expect.majority) > 0.00501:
            return f"the commonest answer position holds {share:.2f} %, published is {expect.majority:.2f} %"
        return ""


class Oddities:
    """Collects what llama.cpp scores oddly, or what makes a question doubtful, without changing anything.

    ``duplicate-options``: two options are equal (``equal-options``: all of them); ``gold-behind-twin``: the right
    one equals an earlier one, and the first of equals wins; ``option-prefix``: one option's text begins all others
    (text form only); ``whitespace``: a text has whitespace around it; ``repeated-question`` and ``repeated-id``:
    seen before.
    """

    def __init__(self, form: Form, shown: list[int], *, own_ids: bool = True) -> None:
        """``shown`` are the places of the texts that ask; ``own_ids`` says that the source gives the ids."""
        self._scores_texts, self._own_ids = form == "text", own_ids
        self._shown = shown
        self._only = shown[0] if len(shown) == 1 else None
        self._counts: Counter[str] = Counter()
        self._ids: dict[str, list[str]] = {}
        # Digests instead of texts: eight bytes a row, and a false match is beyond chance.
        self.asked: Asked[int] = array("q")
        self._row_ids = array("q")

    def add(self, row: Row, order: tuple[int, ...] | None = None) -> None:
        """Take in a row; ``order`` are the positions of its options in the order shown."""
        choices, texts = row.choices, row.texts
        if len(set(choices)) != len(choices):
            self._note("duplicate-options", row.id)
            if len(set(choices)) == 1:
                self._note("equal-options", row.id)
            shown = choices if order is None else [choices[place] for place in order]
            gold = row.gold if order is None else order.index(row.gold)
            if shown.index(shown[gold]) < gold:
                self._note("gold-behind-twin", row.id)
        if self._scores_texts:
            shortest = min(choices, key=len)
            if all(choice.startswith(shortest) for choice in choices):
                self._note("option-prefix", row.id)
        if (*map(str.strip, choices), *map(str.strip, texts)) != choices + texts:
            self._note("whitespace", row.id)
        asked = texts[self._only] if self._only is not None else "\x1f".join([texts[place] for place in self._shown])
        self.asked.frombytes(digest(asked))
        if self._own_ids:
            self._row_ids.append(hash(row.id))

    def _note(self, kind: str, row_id: str) -> None:
        self._counts[kind] += 1
        ids = self._ids.setdefault(kind, [])
        if len(ids) < NAMED_IDS:
            ids.append(row_id)

    def warnings(self, ids: Callable[[], Iterable[str]]) -> tuple[Warned, ...]:
        """Return what was found; ``ids`` gives the ids of all rows again, asked for only where some repeat."""
        for kind, hashes in (("repeated-question", self.asked), ("repeated-id", self._row_ids)):
            if again := _repeats(hashes):
                named = (row_id for at, row_id in enumerate(ids()) if at in again)
                self._counts[kind] = len(again)
                self._ids[kind] = list(islice(named, NAMED_IDS))
        return tuple(
            Warned(kind=kind, count=self._counts[kind], ids=tuple(self._ids[kind])) for kind in sorted(self._counts)
        )


def _repeats(hashes: array[int]) -> set[int]:
    """Return the positions whose value stands at an earlier position too."""
    import numpy as np

    if not hashes:
        return set()
    values = np.frombuffer(hashes, dtype=np.int64)
    _, first = np.unique(values, return_index=True)
    again = np.ones(len(values), dtype=bool)
    again[first] = False
    return set(np.flatnonzero(again).tolist())


class Refusals:
    """Rows that cannot be scored: how many, and the first ones in words."""

    SHOWN = 5

    def __init__(self) -> None:
        self.count = 0
        self.kinds: Counter[str] = Counter()
        self.ids: list[str] = []
        self.shown: list[str] = []
        self._of_kind: dict[str, list[str]] = {}

    def add(self, place: str, row_id: str, problem: str, kind: str = "") -> None:
        """Take in a row: where it stands, its id, what is wrong, and of which kind (see ``RowProblem``) that is."""
        self.count += 1
        self.kinds[kind] += 1
        named = self._of_kind.setdefault(kind, [])
        if len(named) < NAMED_IDS:
            named.append(row_id)
        if len(self.ids) < 20:
            self.ids.append(row_id)
        if len(self.shown) < self.SHOWN:
            self.shown.append(f"{place} (id {row_id}) {problem}")

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Return the ids of the first rows of a kind."""
        return tuple(self._of_kind.get(kind, ()))

    def sentence(self, rows: int) -> str:
        text = f"{self.count} of {rows} rows cannot be scored: {'; '.join(self.shown)}"
        if self.count > len(self.shown):
            more = ", ".join(self.ids[len(self.shown) :])
            text += f"; also {more}" + (" and more" if self.count > len(self.ids) else "")
        return text
