"""What the worker is told to do: which items, and every setting that can change a figure."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from llmc.errors import UsageError

Tokenization = Literal["joint", "separate"]
Bos = Literal["model", "never", "always"]
Truncate = Literal["never", "left"]
Road = Literal["auto", "shared", "plain"]
Attention = Literal["auto", "on", "off"]
CacheType = Literal["f16", "f32"]

CHOICES: dict[str, tuple[str, ...]] = {
    "tokenization": ("joint", "separate"),
    "bos": ("model", "never", "always"),
    "truncate": ("never", "left"),
    "road": ("auto", "shared", "plain"),
    "flash_attention": ("auto", "on", "off"),
    "kv_type": ("f16", "f32"),
}
MOST_SEQUENCES = 256  # LLAMA_MAX_SEQ of llama.cpp


@dataclass(frozen=True)
class Settings:
    """How items are scored.

    ``tokenization``, ``bos``, ``truncate`` and ``context`` say what is evaluated (see ``tokens``): ``context`` is the
    most tokens a sequence may have, None the number the model was trained on. ``uncond`` asks for each option's
    log-probability without the question, where an item has an ``uncond_context``.

    The rest says how it is computed, and moves figures by rounding only. ``batch_tokens`` are the tokens beyond a
    kept stem that one filling of the cache aims at, and the most that one call decodes; None is what is fastest where
    it runs (see ``native.limits``). ``road`` "plain" evaluates one sequence at a time with the cache cleared; "auto"
    does so for models that cannot share a prefix. ``flash_attention`` "auto" is off where everything runs on the CPU:
    there it makes quantized weights give other answers when only the batches change. ``threads`` None is one for each
    physical core, ``gpu_layers`` None what libllama does by itself.
    """

    tokenization: Tokenization = "joint"
    bos: Bos = "model"
    truncate: Truncate = "never"
    context: int | None = None
    uncond: bool = False
    road: Road = "auto"
    batch_tokens: int | None = None
    max_sequences: int = 128
    kv_type: CacheType = "f16"
    flash_attention: Attention = "auto"
    threads: int | None = None
    gpu_layers: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UsageError(
                    f"the scorer's {name} cannot be {getattr(self, name)!r}", f"choose one of {', '.join(allowed)}"
                )
        bounds = {
            "context": (2, 1 << 30),
            "batch_tokens": (1, 1 << 16),
            "max_sequences": (2, MOST_SEQUENCES),
            "threads": (1, 1 << 10),
            "gpu_layers": (0, 1 << 20),
        }
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UsageError(f"the scorer's {name} cannot be {value}", f"choose a number from {least} to {most}")

    def evaluated(self) -> dict[str, Any]:
        """What must be equal before two runs are compared: it says which tokens are evaluated given which."""
        return {name: getattr(self, name) for name in ("tokenization", "bos", "truncate", "context")}

    def computed(self) -> dict[str, Any]:
        """What should be equal: it moves figures by rounding only."""
        apart = {*self.evaluated(), "uncond"}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}


@dataclass(frozen=True)
class Job:
    """Score the items of a file: an item file (.parquet) or a benchmark file (.bin).

    ``indices`` are the items to score, ascending; None is all. ``done`` of them are scored already: the worker begins
    with the batch that holds the next one, so that its results may start a little earlier. Batches depend on the
    items and the settings alone, so a job that goes on gives what an unbroken one gives, to the bit.
    """

    items: Path
    settings: Settings = field(default_factory=Settings)
    indices: tuple[int, ...] | None = None
    done: int = 0

    def __post_init__(self) -> None:
        chosen = self.indices
        if chosen is not None and (not chosen or chosen[0] < 0 or any(b <= a for a, b in itertools.pairwise(chosen))):
            raise UsageError("the items to score must be indices in ascending order, at least one", "sort them")
        if self.done < 0:
            raise UsageError(f"{self.done} items cannot be done already", "give 0 or more")

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "items": str(self.items)})

    @classmethod
    def from_json(cls, text: str) -> Job:
        data = json.loads(text)
        indices = data["indices"]
        return cls(
            items=Path(data["items"]),
            settings=Settings(**data["settings"]),
            indices=None if indices is None else tuple(indices),
            done=data["done"],
        )
