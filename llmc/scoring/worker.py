"""The scorer's own process: ``python -m llmc.scoring.worker MODEL JOB.json...``.

Started by ``session`` with the llama-cpp-python binding on its path and ``LLAMA_CPP_LIB_PATH`` at the folder of
libllama, because native code may crash and may never be loaded twice into one process.

Standard output carries one JSON object a line, each with a ``kind``: ``announce`` first (how many items, and how they
are computed), an ``item`` for each in order, flushed when its batch is done, ``final`` last. Several jobs are done one
after the other, each from ``announce`` to ``final``, with the model loaded once. ``error`` instead of what is missing
names a finding and what happened, and no job follows it. Everything else, native output included, goes to standard
error. The exit status is 0 after the last ``final``, 2 when a job was refused before anything of it was evaluated, 1
otherwise.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from llmc.errors import LlmcError
from llmc.scoring.evaluate import evaluate, score
from llmc.scoring.job import Job
from llmc.scoring.planning import Batch
from llmc.scoring.results import ScoredItem
from llmc.scoring.survey import Chunk, Chunks, Refused, Survey, named

if TYPE_CHECKING:
    from llmc.scoring.native import Context, Model

REFUSED, FAILED = 2, 1
# By name, because the module that defines them needs the binding.
SLUGS = {"ModelError": "model-unreadable", "MemoryShort": "memory-short", "MemoryError": "memory-short"}

Say = Callable[..., None]


def run(model: Model, job: Job, load_seconds: float, say: Say, flush: Callable[[], None]) -> None:
    """Do a job; ``say`` takes one message, ``flush`` sends what was said. Raises Refused and what libllama raises."""
    from llmc.scoring.native import Context, limits

    began = time.monotonic()
    share = model.shares_prefixes and job.settings.road != "plain"
    if job.settings.road == "shared" and not share:
        raise Refused("no-shared-prefix", "the model keeps a state instead of a cache, which sequences cannot share")
    room = job.settings.context or model.trained_context
    bounds = limits(job.settings, model, share=share)
    chunks = Chunks(job, model, bounds, room, os.cpu_count() or 1)
    survey = chunks.survey()
    with contextlib.closing(Context(model, job.settings, bounds, survey.cells, survey.sequences)) as context:
        say(
            kind="announce",
            **_announcement(survey, context, model),
            longest_allowed=room,
            load_seconds=round(load_seconds, 3),
            prepare_seconds=round(time.monotonic() - began, 3),
        )
        flush()
        _do(chunks, survey.first, context, say, flush)


def _do(chunks: Chunks, first: int, context: Context, say: Say, flush: Callable[[], None]) -> None:
    """Evaluate the batches of a job from item ``first`` on, and say what comes of them."""
    began = time.monotonic()
    items = tokens = 0
    for number, batch, chunk in _batches(chunks, first):
        scored, decoded = _score(number, batch, chunk, context)
        for item in scored:
            say(kind="item", **item.as_dict())
        flush()
        items += len(scored)
        tokens += decoded
    say(kind="final", items=items, tokens=tokens, score_seconds=round(time.monotonic() - began, 3))
    flush()


def _load(path: Path, job: Job) -> Model:
    from llmc.scoring.native import Model

    return Model(path, job.settings.gpu_layers)


def _announcement(survey: Survey, context: Context, model: Model) -> dict[str, Any]:
    return {
        "items": survey.items,
        "first": survey.first,
        "batches": survey.batches,
        "tokens": survey.tokens,
        "truncated": survey.truncated,
        "road": "shared" if context.limits.share else "plain",
        "cells": context.cells,
        "sequences": survey.sequences,
        "batch_tokens": context.limits.tokens,
        "outputs": context.limits.outputs,
        "threads": context.threads,
        "flash_attention": context.flash_attention,
        "vocabulary": model.vocabulary_size,
        "adds_bos": model.adds_bos,
        "adds_eos": model.adds_eos,
    }


def _batches(chunks: Chunks, first: int) -> Iterator[tuple[int, Batch, Chunk]]:
    """Yield the batches from item ``first`` of the job on, numbered through."""
    number = before = 0
    for chunk in chunks:
        for batch in chunk.batches:
            if before >= first:
                yield number, batch, chunk
            before += batch.items
            number += 1


def _score(number: int, batch: Batch, chunk: Chunk, context: Context) -> tuple[list[ScoredItem], int]:
    part = slice(batch.first, batch.first + batch.items)
    values, tokens = evaluate(batch, chunk.tokenized[part], context)
    items = zip(chunk.items[part], chunk.tokenized[part], values, strict=True)
    scored = [score(item, tokenized, found, number) for item, tokenized, found in items]
    for item in scored:
        if not all(option.finite() for option in item.options):
            raise Refused("non-finite", f"{named([item.id])}: a log-probability is not a finite number")
    return scored, tokens


def main() -> int:
    """Run the job that the arguments name; see the module."""
    faulthandler.enable()
    # Native code that prints gets standard error; the messages have a descriptor of their own.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        return _answer(Path(sys.argv[1]), [Path(word) for word in sys.argv[2:]], out)


def _answer(model_path: Path, jobs: list[Path], out: TextIO) -> int:
    announced = False

    def say(**message: Any) -> None:
        nonlocal announced
        announced = True
        out.write(json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n")

    model: Model | None = None
    try:
        for path in jobs:
            job = Job.from_json(path.read_text(encoding="utf-8"))
            began, announced = time.monotonic(), False
            if model is None:
                model = _load(model_path, job)
            run(model, job, time.monotonic() - began, say, out.flush)
        return 0
    except Refused as refused:
        slug, what = refused.slug, refused.what
    except LlmcError as error:
        slug, what = "scorer-failed", error.what
    except Exception as error:
        traceback.print_exc()
        slug, what = SLUGS.get(type(error).__name__, "scorer-failed"), str(error) or type(error).__name__
    status = FAILED if announced else REFUSED
    say(kind="error", slug=slug, what=what)
    return status


if __name__ == "__main__":
    sys.exit(main())
