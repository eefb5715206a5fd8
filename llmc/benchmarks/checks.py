"""What is counted while items go by: the figures of the manifest, and what is odd about single items."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from llmc.benchmarks.item import Item
from llmc.benchmarks.manifest import Majority, Warned
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

    def unexpected(self, expect: Expect | None) -> str:
        """Return how the counts differ from the published ones, or an empty string."""
        if expect is None:
            return ""
        if self.tasks != expect.tasks:
            return f"{self.tasks} tasks, the published split has {expect.tasks}"
        share = 100 * self.majority.share
        if expect.majority is not None and abs(share - expect.majority) > 0.00501:
            return f"the commonest answer position holds {share:.2f} %, published is {expect.majority:.2f} %"
        return ""


class Oddities:
    """Collects what llama.cpp scores oddly, or what makes a question doubtful, without changing anything.

    ``duplicate-options``: two options are equal; ``gold-behind-twin``: the right one equals an earlier one,
    and the first of equals wins; ``option-prefix``: one option's text begins all others (text form only);
    ``whitespace``: a text has whitespace around it; ``repeated-question`` and ``repeated-id``: seen before.
    """

    def __init__(self, form: Form) -> None:
        self._scores_texts = form == "text"
        self._counts: Counter[str] = Counter()
        self._ids: dict[str, list[str]] = {}
        # Hashes instead of texts: eight bytes a question, and a false match is beyond chance.
        self._questions: set[int] = set()
        self._row_ids: set[int] = set()

    def add(self, row: Row) -> None:
        choices = row.choices
        if len(set(choices)) != len(choices):
            self._note("duplicate-options", row.id)
            if choices.index(choices[row.gold]) < row.gold:
                self._note("gold-behind-twin", row.id)
        if self._scores_texts:
            shortest = min(choices, key=len)
            if all(choice.startswith(shortest) for choice in choices):
                self._note("option-prefix", row.id)
        for text in (*row.texts, *choices):
            if text and (text[0].isspace() or text[-1].isspace()):
                self._note("whitespace", row.id)
                break
        self._once("repeated-question", self._questions, hash(row.texts), row.id)
        self._once("repeated-id", self._row_ids, hash(row.id), row.id)

    def _once(self, kind: str, seen: set[int], key: int, row_id: str) -> None:
        before = len(seen)
        seen.add(key)
        if len(seen) == before:
            self._note(kind, row_id)

    def _note(self, kind: str, row_id: str) -> None:
        self._counts[kind] += 1
        ids = self._ids.setdefault(kind, [])
        if len(ids) < NAMED_IDS:
            ids.append(row_id)

    def warnings(self) -> tuple[Warned, ...]:
        return tuple(
            Warned(kind=kind, count=self._counts[kind], ids=tuple(self._ids[kind]))
            for kind in sorted(self._counts)
        )


class Refusals:
    """Rows that cannot be scored: how many, and the first ones in words."""

    SHOWN = 5

    def __init__(self) -> None:
        self.count = 0
        self.ids: list[str] = []
        self.shown: list[str] = []

    def add(self, place: str, row_id: str, problem: str) -> None:
        self.count += 1
        if len(self.ids) < 20:
            self.ids.append(row_id)
        if len(self.shown) < self.SHOWN:
            self.shown.append(f"{place} (id {row_id}) {problem}")

    def sentence(self, rows: int) -> str:
        text = f"{self.count} of {rows} rows cannot be scored: {'; '.join(self.shown)}"
        if self.count > len(self.shown):
            more = ", ".join(self.ids[len(self.shown) :])
            text += f"; also {more}" + (" and more" if self.count > len(self.ids) else "")
        return text
