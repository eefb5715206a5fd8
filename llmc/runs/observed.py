"""What a transcript and a benchmark file say of a run that llmc did not plan: for ``exec`` and ``audit`` alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc.engine.audit import Audit
from llmc.engine.case import selection
from llmc.engine.transcript import Transcript
from llmc.mcbin import BinFacts
from llmc.runs.identity import benchmark_identity, must_match
from llmc.runs.record import BenchmarkIdentity, Comparability, Counts, content_key


@dataclass(frozen=True)
class Observed:
    """``subset`` is the N of ``--multiple-choice-tasks N``; ``facts`` is None for a file not known, or no good."""

    transcript: Transcript
    audit: Audit
    bin_name: str | None
    facts: BinFacts | None
    subset: int | None

    def benchmark(self) -> BenchmarkIdentity | None:
        if self.bin_name is None:
            return None
        if self.facts is None:
            return BenchmarkIdentity(name=stem(self.bin_name), path=self.bin_name)
        return benchmark_identity(stem(self.bin_name), Path(self.bin_name), self.facts, selection=self._selection())

    def layout(self) -> dict[str, Any] | None:
        """Return what the engine itself printed of its layout (at -lv 4, or by older builds)."""
        known = {
            "n_ctx": self.transcript.n_ctx,
            "n_seq_max": self.transcript.n_seq_max,
            "n_batch": self.transcript.n_batch,
            "n_ubatch": self.transcript.n_ubatch,
            "flash_attn": self.transcript.flash_attn,
            "kv_unified": self.transcript.kv_unified,
        }
        return {name: value for name, value in known.items() if value is not None} or None

    def counts(self) -> Counts:
        announced = self.transcript.announced
        return Counts(
            in_file=self.facts.tasks if self.facts else None,
            announced=announced[0] if announced else None,
            expected=self.audit.tasks_expected,
            scored=self.audit.tasks_scored,
        )

    def comparability(self) -> Comparability | None:
        """Return the same key that ``llmc run`` gives the same file, so that the two can be paired."""
        if self.facts is None:
            return None
        must = must_match(self.facts.sha256)
        if (selection := self._selection()) is not None:
            must["selection"] = selection
        should = {"engine_version": self.transcript.build, "layout": self.layout()}
        return Comparability(key=content_key(must), must=must, should=should)

    def _selection(self) -> dict[str, Any] | None:
        chosen = selection(self.subset, self.facts.tasks) if self.facts is not None else None
        if chosen is None or self.facts is None:
            return None
        return {"kind": "--multiple-choice-tasks", "tasks": chosen, "of": self.facts.tasks}


def stem(name: str | None) -> str:
    """Return a file's name without folder and ending, for people."""
    return Path(name).name.removesuffix(".gguf").removesuffix(".bin") if name else "unknown"
