"""Tokenize a benchmark file as llama-perplexity would, in a process of its own.

Started by ``preflight`` with the llama-cpp-python binding on its path and ``LLAMA_CPP_LIB_PATH`` at the
folder of libllama, because native code may crash and may never be loaded twice into one process. Arguments:
model, benchmark file, result file. Only the vocabulary is loaded.

The result file holds, for n tasks: n int32 required tokens, n int32 tokens of the longest sequence, n bytes
of flags, in the machine's byte order. Standard output carries one JSON object a line: ``{"done": tasks}`` now
and then, at last ``{"tasks": ..., "vocab": ..., "add_bos": ..., "add_eos": ...}`` or ``{"error": ...}``.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from llmc.mcbin import Reader, Task

OPTION_PREFIX, NO_COMMON_PREFIX = 1, 2  # flags of a task
BATCH_TASKS = 64
BATCHES_AHEAD = 4  # per thread: bounds the memory, whatever the file
SECONDS_BETWEEN_NEWS = 0.2
TOKEN_BYTES = 4  # llama_token is int32

Counts = tuple[int, int, int]  # required tokens, tokens of the longest sequence, flags


class Vocabulary:
    """The vocabulary of a model, through the low-level binding."""

    def __init__(self, model: str) -> None:
        import llama_cpp.llama_cpp as native

        @native.llama_log_callback  # type: ignore[untyped-decorator, unused-ignore]
        def quiet(level: int, text: bytes, data: Any) -> None:
            pass

        self._quiet = quiet  # the library keeps only a pointer to it
        native.llama_log_set(quiet, ctypes.c_void_p(0))
        native.llama_backend_init()
        params = native.llama_model_default_params()
        params.vocab_only = True
        params.n_gpu_layers = 0
        self._model = native.llama_model_load_from_file(os.fsencode(model), params)
        if not self._model:
            raise RuntimeError("libllama could not load the vocabulary of this model")
        self._vocab = native.llama_model_get_vocab(self._model)
        self._tokenize = native.llama_tokenize
        self.size = int(native.llama_vocab_n_tokens(self._vocab))
        self.add_bos = bool(native.llama_vocab_get_add_bos(self._vocab))
        self.add_eos = bool(native.llama_vocab_get_add_eos(self._vocab))

    def tokens(self, text: bytes) -> bytes:
        """Return the token ids of a text as raw int32, with BOS and EOS where the model wants them.

        As common_tokenize of llama.cpp does for multiple choice: special tokens in the text are plain text.
        """
        room = len(text) + 2
        while True:
            buffer = (ctypes.c_int32 * room)()
            count = self._tokenize(self._vocab, text, len(text), buffer, room, True, False)
            if count >= 0:
                return ctypes.string_at(buffer, TOKEN_BYTES * count)
            if -count <= room:
                raise RuntimeError(f"libllama could not tokenize a text of {len(text)} bytes")
            room = -count


def count(vocabulary: Vocabulary, task: Task) -> Counts:
    """Return what llama.cpp's multiple_choice_prepare_one_task computes, and the hazards of the task.

    required = common prefix + the sum over options of the tokens past it.
    """
    stem = task.question.encode() + b" "
    sequences = [vocabulary.tokens(stem + option.encode()) for option in task.options]
    shared = min(_shared_tokens(sequences[0], other) for other in sequences[1:])
    lengths = [len(sequence) // TOKEN_BYTES for sequence in sequences]
    flags = (OPTION_PREFIX if min(lengths) == shared else 0) | (NO_COMMON_PREFIX if shared == 0 else 0)
    return shared + sum(lengths) - shared * len(lengths), max(lengths), flags


def _shared_tokens(a: bytes, b: bytes) -> int:
    """Return how many leading tokens two sequences share: the lowest differing bit, without a loop."""
    length = min(len(a), len(b))
    a, b = a[:length], b[:length]
    if a == b:
        return length // TOKEN_BYTES
    difference = int.from_bytes(a, "little") ^ int.from_bytes(b, "little")
    return ((difference & -difference).bit_length() - 1) // (8 * TOKEN_BYTES)


def count_all(vocabulary: Vocabulary, reader: Reader, threads: int) -> Iterator[list[Counts]]:
    """Yield the counts of all tasks in file order, some tasks at a time.

    libllama's tokenizer only reads the vocabulary, and ctypes lets go of the interpreter meanwhile.
    """

    def batch(tasks: list[Task]) -> list[Counts]:
        return [count(vocabulary, task) for task in tasks]

    waiting: deque[Future[list[Counts]]] = deque()
    tasks = iter(reader)
    with ThreadPoolExecutor(threads) as pool:
        while part := list(itertools.islice(tasks, BATCH_TASKS)):
            waiting.append(pool.submit(batch, part))
            if len(waiting) >= BATCHES_AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def run(model: str, benchmark: str, result: str) -> dict[str, Any]:
    """Tokenize a file and write the result; return the summary."""
    vocabulary = Vocabulary(model)
    required, longest, flags = array("i"), array("i"), bytearray()
    last = time.monotonic()
    for part in count_all(vocabulary, Reader(benchmark), min(4, os.cpu_count() or 1)):
        for tokens, length, flag in part:
            required.append(tokens)
            longest.append(length)
            flags.append(flag)
        if time.monotonic() - last > SECONDS_BETWEEN_NEWS:
            last = time.monotonic()
            say({"done": len(flags)})
    with Path(result).open("wb") as out:
        required.tofile(out)
        longest.tofile(out)
        out.write(flags)
    return {
        "tasks": len(flags),
        "vocab": vocabulary.size,
        "add_bos": vocabulary.add_bos,
        "add_eos": vocabulary.add_eos,
    }


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> int:
    try:
        say(run(*sys.argv[1:4]))
    except Exception as failure:
        say({"error": f"{type(failure).__name__}: {failure}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
