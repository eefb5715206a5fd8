"""What the scorer says of an item: figures of every option, as one line of JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ScoredOption:
    """The figures of one option.

    ``sum_logprob`` in nats, over ``tokens`` tokens; ``chars`` and ``bytes`` (UTF-8) count the continuation as it
    stands, the bare ones without the one space it begins with. ``llama_mean`` is llama.cpp's score: the mean over the
    ``llama_tokens`` tokens past the common prefix of all options (None where that rule is not defined).
    ``uncond_sum_logprob`` is the sum without the question. ``dropped`` tokens were cut off on the left.
    """

    sum_logprob: float
    tokens: int
    chars: int
    bytes: int
    chars_bare: int
    bytes_bare: int
    llama_mean: float | None = None
    llama_tokens: int | None = None
    uncond_sum_logprob: float | None = None
    dropped: int = 0

    def finite(self) -> bool:
        figures = (self.sum_logprob, self.llama_mean, self.uncond_sum_logprob)
        return all(math.isfinite(figure) for figure in figures if figure is not None)


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """``index`` is the item's place in its file, ``batch`` the one that evaluated it."""

    index: int
    id: str
    gold: int
    batch: int
    options: tuple[ScoredOption, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the item as JSON takes it; fields that do not apply are left out."""
        options = [
            {name: value for name in ScoredOption.__slots__ if _applies(name, value := getattr(option, name))}
            for option in self.options
        ]
        return {"index": self.index, "id": self.id, "gold": self.gold, "batch": self.batch, "options": options}

    def to_json(self) -> str:
        """Return the item as one line: the same item gives the same bytes."""
        return json.dumps(self.as_dict(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ScoredItem:
        """Read what ``to_json`` wrote; ValueError when it is something else."""
        try:
            options = tuple(ScoredOption(**option) for option in data["options"])
            item = cls(data["index"], data["id"], data["gold"], data["batch"], options)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a scored item: {error}") from None
        whole = (item.index, item.gold, item.batch, *(n for o in options for n in (o.tokens, o.chars, o.bytes)))
        if not isinstance(item.id, str) or not all(type(n) is int for n in whole):
            raise ValueError("not a scored item: a field has the wrong type")
        if not all(isinstance(o.sum_logprob, float) for o in options):
            raise ValueError("not a scored item: a log-probability is no number")
        return item


def _applies(name: str, value: Any) -> bool:
    return value is not None and not (name == "dropped" and value == 0)


def lengths(continuation: str) -> dict[str, int]:
    """Return the four lengths of a continuation, as ScoredOption names them."""
    bare = continuation[1:] if continuation.startswith(" ") else continuation
    return {
        "chars": len(continuation),
        "bytes": len(continuation.encode()),
        "chars_bare": len(bare),
        "bytes_bare": len(bare.encode()),
    }
