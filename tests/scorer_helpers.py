"""What tests of the real scorer share: running it, and tokenizing without llmc's own code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llmc.benchmarks.item import Item, ItemWriter
from llmc.engine.binding import Binding
from llmc.engine.gguf_model import read_model
from llmc.engine.process import Limits
from llmc.scoring.job import Job, Settings
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import DEFAULT_LIMITS, Scored, score_items

_TOKENIZE = """
import ctypes, json, sys
import llama_cpp.llama_cpp as native
native.llama_backend_init()
params = native.llama_model_default_params()
params.vocab_only = True
model = native.llama_model_load_from_file(sys.argv[1].encode(), params)
vocab = native.llama_model_get_vocab(model)
found = []
for text, special in json.load(sys.stdin):
    data = text.encode()
    room = (ctypes.c_int32 * (len(data) + 8))()
    found.append(room[: native.llama_tokenize(vocab, data, len(data), room, len(room), special, False)])
facts = [native.llama_vocab_bos(vocab), native.llama_vocab_eos(vocab), native.llama_vocab_get_add_eos(vocab)]
json.dump([found, facts], sys.stdout)
"""


def item(index: int, context: str, *continuations: str, gold: int = 0, uncond: str | None = None) -> Item:
    return Item(index, f"q{index}", None, context, uncond, None, continuations, gold, index)


def write_items(path: Path, items: Sequence[Item]) -> Path:
    with ItemWriter(path) as writer:
        for each in items:
            writer.add(each)
    return path


@dataclass(frozen=True)
class Scorer:
    """Runs the real scorer on a model, in a folder."""

    binding: Binding
    folder: Path

    def run(
        self,
        model: Path,
        items: Sequence[Item] | Path,
        settings: Settings | None = None,
        *,
        indices: tuple[int, ...] | None = None,
        done: int = 0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> tuple[Scored, list[ScoredItem]]:
        path = items if isinstance(items, Path) else write_items(self.folder / "test.items.parquet", items)
        found: list[ScoredItem] = []
        job = Job(path, settings or Settings(), indices, done)
        scored = score_items(job, read_model(model), self.binding, self.folder, on_result=found.append, limits=limits)
        return scored, found

    def answers(self, model: Path, items: Sequence[Item] | Path, settings: Settings | None = None) -> list[ScoredItem]:
        """Return the answers of a run in which nothing may be amiss; by one thread unless the settings say how many.

        Threads of two tests at once would wait for each other, and no figure depends on their number.
        """
        settings = settings or Settings()
        scored, found = self.run(model, items, replace(settings, threads=settings.threads or 1))
        assert scored.trusted, (scored.findings, (self.folder / "scorer-stderr.log").read_text()[-2000:])
        assert scored.final is not None and scored.answered == len(found)
        return found

    def tokenize(self, model: Path, texts: Sequence[tuple[str, bool]]) -> tuple[list[tuple[int, ...]], list[int]]:
        """Return the tokens of each (text, with special tokens), and BOS, EOS and whether EOS is added."""
        env = {**os.environ, "PYTHONPATH": str(self.binding.site), "LLAMA_CPP_LIB_PATH": str(self.binding.lib)}
        command = [sys.executable, "-c", _TOKENIZE, str(model)]
        done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, env=env, check=True)
        tokens, facts = json.loads(done.stdout)
        return [tuple(each) for each in tokens], facts
