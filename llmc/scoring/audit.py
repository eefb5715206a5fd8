"""Judge the scorer by what it said: announced = answered, in order, every figure possible, and the process ended well.

The same rules as for the engine: evidence that contradicts is an error, and an answer that follows one is not taken.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

from llmc.benchmarks.item import Item
from llmc.engine.process import Limits, Outcome
from llmc.finding_pages import PAGES
from llmc.findings import Finding, finding
from llmc.scoring.results import ScoredItem, ScoredOption, lengths

OnResult = Callable[[ScoredItem], None]
LONGEST_LINE = 1 << 24  # bytes: over a hundred options take a thousandth of it
NO_MEMORY = ("std::bad_alloc", "failed to allocate")
LAST_WORDS = (*NO_MEMORY, "GGML_ASSERT", "terminate called", "CUDA error")
ROUNDING = 1e-6  # what a log-probability may be above zero


class Auditor:
    """Reads the worker's messages as they come; answers that stand go to ``on_result``.

    ``items`` yields what the job should score, from its beginning. ``first`` is the place in the job of the first
    answer, ``answered`` how many stand.
    """

    def __init__(
        self, items: Iterator[Item], on_result: OnResult, on_announce: Callable[[dict[str, Any]], None]
    ) -> None:
        self.announcement: dict[str, Any] | None = None
        self.final: dict[str, Any] | None = None
        self.error: tuple[str, str] | None = None
        self.answered = 0
        self.first = 0
        self.wrong: Finding | None = None
        self._items, self._on_result, self._on_announce = items, on_result, on_announce
        self._partial = b""

    @property
    def finished(self) -> bool:
        """Whether the worker has nothing more to say, or nothing that would be taken."""
        return self.final is not None or self.error is not None or self.wrong is not None

    def feed(self, data: bytes) -> None:
        """Take in a piece of the worker's standard output."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._partial) > LONGEST_LINE:
            self._partial = b""
            self._wrong("scorer-garbled", "a line does not end")

    def _line(self, line: bytes) -> None:
        if self.wrong is not None:
            return
        try:
            message = json.loads(line)
            kind = message.pop("kind")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._wrong("scorer-garbled", f"not a message: {line[:80].decode(errors='replace')!r}")
            return
        begun = self.announcement is not None
        if (
            not isinstance(kind, str)
            or kind not in _READERS
            or self.finished
            or ((kind == "announce") == begun and kind != "error")
        ):
            self._wrong("scorer-garbled", f"an unexpected message of the kind {kind!r}")
            return
        try:
            taken = _READERS[kind](message)
        except (ValueError, KeyError, TypeError) as error:
            self._wrong("scorer-garbled", f"a message of the kind {kind!r} is not whole: {error}")
            return
        self._take(kind, taken)

    def _take(self, kind: str, taken: Any) -> None:
        if kind == "item":
            self._item(taken)
        elif kind == "announce":
            self._announce(taken)
        elif kind == "final":
            self.final = taken
            if taken["items"] != self.answered:
                self._wrong("final-mismatch", f"{taken['items']} items at the end, {self.answered} answers before")
        else:
            self.error = taken

    def _announce(self, message: dict[str, Any]) -> None:
        self.announcement, self.first = message, message["first"]
        for _ in range(self.first):
            next(self._items, None)
        self._on_announce(message)

    def _item(self, scored: ScoredItem) -> None:
        expected = next(self._items, None)
        if expected is None:
            self._wrong("scored-more", f"the job ends before item {scored.index}")
        elif (expected.index, expected.id, expected.gold) != (scored.index, scored.id, scored.gold):
            self._wrong("row-gap", f"item {scored.id!r} ({scored.index}) came in place of {expected.id!r}")
        elif (why := _impossible(scored, expected)) is not None:
            self._wrong(*why)
        else:
            self.answered += 1
            self._on_result(scored)

    def _wrong(self, slug: str, detail: str) -> None:
        self.wrong = finding(slug, detail)

    def findings(self, outcome: Outcome, limits: Limits, said: str = "") -> list[Finding]:
        """Return what is to be said of the whole run, causes first; ``said`` is the end of its standard error."""
        found = list(self._ending(outcome, limits, said))
        if self.wrong is not None:
            found.append(self.wrong)
        if self.announcement is None:
            if not found:
                found.append(finding("no-output", "the scorer announced nothing"))
            return found
        announced = int(self.announcement["items"])
        if self.wrong is None and self.final is not None and next(self._items, None) is not None:
            found.append(finding("announced-mismatch", f"{announced} items were announced, the file holds more"))
        if self.first + self.answered < announced:
            found.append(finding("scored-fewer", f"{self.first + self.answered} of {announced} items scored"))
        elif self.final is None and not found:
            found.append(
                finding("final-missing", "every item is answered, and the scorer's last line is missing", "error")
            )
        if self.announcement.get("road") == "plain":
            found.append(finding("one-at-a-time", "no tokens were shared between options"))
        if cut := self.announcement.get("truncated"):
            found.append(finding("items-truncated", f"{cut} of {announced} items"))
        return found

    def _ending(self, outcome: Outcome, limits: Limits, said: str) -> Iterator[Finding]:
        if outcome.ended_by == "did-not-exit" and self.wrong is not None:
            return  # ended because of what it said
        if outcome.ended_by != "itself":
            allowed = {"timeout": limits.timeout, "stalled": limits.stall, "did-not-exit": limits.exit_grace}
            limit = allowed.get(outcome.ended_by)
            bound = f"; the limit was {limit:g} s" if limit is not None else ""
            yield finding(outcome.ended_by, f"ended after {outcome.seconds:.1f} s{bound}")
        elif outcome.signal is not None:
            if any(words in said for words in NO_MEMORY):
                yield finding("memory-short", "an allocation in native code failed")
            yield finding("killed-by-signal", f"the scorer was killed by {_name(outcome.signal)}{_telling(said)}")
        elif outcome.exit_code is None:
            yield finding("exit-unknown", "the scorer did not die, not even by SIGKILL", "error")
        elif self.error is not None:
            yield finding(*self.error)
        elif outcome.exit_code != 0:
            yield finding("exit-status", f"the scorer ended with exit status {outcome.exit_code}")
        if outcome.left_children:
            yield finding("left-children", f"{outcome.left_children} had to be ended")


def _counts(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def read(message: dict[str, Any]) -> dict[str, Any]:
        for name in names:
            if type(message[name]) is not int or message[name] < 0:
                raise ValueError(f"{name} is {message[name]!r}")
        return message

    return read


def _known(slug: Any) -> str:
    if slug not in PAGES:
        raise ValueError(f"there is no finding {slug!r}")
    return str(slug)


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "announce": _counts("items", "first"),
    "item": ScoredItem.from_dict,
    "final": _counts("items"),
    "error": lambda message: (_known(message["slug"]), str(message["what"])),
}


def _impossible(scored: ScoredItem, item: Item) -> tuple[str, str] | None:
    """Return the slug and detail of what cannot be, or None."""
    if len(scored.options) != len(item.continuations):
        return "impossible-figure", f"item {item.id!r}: {len(scored.options)} of {len(item.continuations)} options"
    for number, (option, text) in enumerate(zip(scored.options, item.continuations, strict=True)):
        if not option.finite():
            return "non-finite", f"item {item.id!r}, option {number}"
        if not _possible(option, text):
            return "impossible-figure", f"item {item.id!r}, option {number}: {option}"
    return None


def _possible(option: ScoredOption, text: str) -> bool:
    figures = (option.sum_logprob, option.llama_mean, option.uncond_sum_logprob)
    counts = (option.tokens, option.llama_tokens)
    return (
        all(figure <= ROUNDING * max(1, option.tokens) for figure in figures if figure is not None)
        and all(count >= 1 for count in counts if count is not None)
        and (option.llama_mean is None) == (option.llama_tokens is None)
        and all(getattr(option, name) == length for name, length in lengths(text).items())
    )


def _telling(said: str) -> str:
    """Return the line in which native code says why it gave up, with a colon before it; empty where there is none."""
    lines = (line.strip() for line in said.splitlines())
    return next((f": {line}" for line in lines if any(words in line for words in LAST_WORDS)), "")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
