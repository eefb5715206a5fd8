"""libllama through the low-level API of llama-cpp-python: the few calls that scoring takes.

Only the worker imports this: native code may crash, and may never be loaded twice into one process.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llmc.scoring.job import Settings
from llmc.scoring.planning import Batch, Held
from llmc.scoring.tree import Limits, Wave, spans

if TYPE_CHECKING:
    from llmc.scoring.tokens import Tokens

TOKEN_BYTES = 4  # llama_token is int32
PAD = 256  # llama.cpp rounds a unified context up to this
CPU_TOKENS, GPU_TOKENS = 256, 2048
OUTPUT_BYTES = 128 << 20  # logits of one call, at most: libllama holds them twice
LAST_LINES = 40
NO_PREDICTION = "the model is an encoder: it predicts no next token"
WARNING, CONTINUED = 3, 5  # log levels of ggml; the second goes on with the line before
FLASH = {"off": 0, "on": 1, "auto": -1}
CACHE_TYPES = {"f32": 0, "f16": 1}


class NativeError(Exception):
    """libllama refused something; the message says what, in its own last words where it had any."""


class ModelError(NativeError):
    """The model cannot be loaded, or is none that predicts a next token."""


class MemoryShort(NativeError):
    """libllama could not get the memory that it asked for."""


class Log:
    """What libllama says: passed to stderr from warnings up, the last lines kept for error messages."""

    def __init__(self, native: Any) -> None:
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self._level = 0

        @native.llama_log_callback  # type: ignore[untyped-decorator, unused-ignore]
        def hear(level: int, text: bytes, data: Any) -> None:
            self._level = level if level != CONTINUED else self._level
            if self._level >= WARNING:
                os.write(2, text)
                self.lines.append(text.decode(errors="replace").strip())

        self._hear = hear  # the library keeps only a pointer to it
        native.llama_log_set(hear, ctypes.c_void_p(0))

    def last_words(self) -> str:
        said = [line for line in self.lines if line]
        return f": {said[-1]}" if said else ""

    def tells_of_memory(self) -> bool:
        words = ("failed to allocate", "out of memory", "unable to allocate", "alloc_buffer", "bad_alloc")
        return any(word in line for line in self.lines for word in words)


class Model:
    """A loaded model and its vocabulary (a ``tokens.Tokenizer``)."""

    def __init__(self, path: Path, gpu_layers: int | None) -> None:
        import llama_cpp.llama_cpp as native

        for needed in ("llama_get_memory", "llama_model_load_from_file", "llama_memory_seq_cp"):
            if not hasattr(native, needed):
                raise NativeError(f"this llama-cpp-python is too old: it has no {needed}")
        known = {name for name, _ in native.llama_context_params._fields_}
        if lacking := {"flash_attn_type", "kv_unified"} - known:
            # ctypes would take the value for an attribute of its own, and libllama never see it.
            raise NativeError(f"this llama-cpp-python is too old: its contexts have no {', '.join(sorted(lacking))}")
        self.native = native
        self.log = Log(native)
        native.llama_backend_init()
        params = native.llama_model_default_params()
        if gpu_layers is not None:
            params.n_gpu_layers = gpu_layers
        self.handle = native.llama_model_load_from_file(os.fsencode(path), params)
        if not self.handle:
            kind = MemoryShort if self.log.tells_of_memory() else ModelError
            raise kind(f"libllama could not load the model{self.log.last_words()}")
        if native.llama_model_has_encoder(self.handle) or not native.llama_model_has_decoder(self.handle):
            raise ModelError(NO_PREDICTION)
        self._vocab = native.llama_model_get_vocab(self.handle)
        self.vocabulary_size = int(native.llama_vocab_n_tokens(self._vocab))
        self.trained_context = int(native.llama_model_n_ctx_train(self.handle))
        self.bos = self._token(native.llama_vocab_bos)
        self.eos = self._token(native.llama_vocab_eos)
        self.adds_bos = bool(native.llama_vocab_get_add_bos(self._vocab))
        self.adds_eos = bool(native.llama_vocab_get_add_eos(self._vocab))
        self.on_gpu = bool(native.llama_supports_gpu_offload()) and gpu_layers != 0

    @property
    def shares_prefixes(self) -> bool:
        """Whether sequences can be cut and copied: recurrent and hybrid models keep a state instead."""
        asked = (getattr(self.native, name, None) for name in ("llama_model_is_recurrent", "llama_model_is_hybrid"))
        return not any(ask(self.handle) for ask in asked if ask is not None)

    def _token(self, ask: Any) -> int | None:
        token = int(ask(self._vocab))
        return token if token >= 0 else None

    def encode(self, text: str, *, special: bool) -> Tokens:
        """Return the token ids of a text; ``special`` adds BOS and EOS where the model asks for them."""
        data = text.encode()
        room = len(data) + 3
        while True:
            buffer = (ctypes.c_int32 * room)()
            count = self.native.llama_tokenize(self._vocab, data, len(data), buffer, room, special, False)
            if count >= 0:
                return array("i", ctypes.string_at(buffer, TOKEN_BYTES * count))
            if -count <= room:
                raise NativeError(f"libllama could not tokenize a text of {len(data)} bytes")
            room = -count


class Context:
    """A model with a cache, in which batches are evaluated."""

    def __init__(self, model: Model, settings: Settings, limits: Limits, cells: int, sequences: int) -> None:
        native = model.native
        self.model, self.native, self.limits = model, native, limits
        flash = settings.flash_attention
        self.flash_attention = ("auto" if model.on_gpu else "off") if flash == "auto" else flash
        self.threads = settings.threads or physical_cores()
        self.cells = -(-cells // PAD) * PAD
        # Sequence 0 holds the stem; a plain road needs no other.
        self._base = 1 if limits.share else 0
        params = native.llama_context_default_params()
        params.n_ctx = self.cells
        params.n_batch = params.n_ubatch = limits.tokens
        params.n_seq_max = sequences + self._base
        params.n_threads = params.n_threads_batch = self.threads
        params.type_k = params.type_v = CACHE_TYPES[settings.kv_type]
        params.flash_attn_type = FLASH[self.flash_attention]
        params.kv_unified = True
        params.no_perf = True
        # llama.cpp wants room for one row of logits per sequence at least.
        rows = max(min(limits.tokens, limits.outputs), params.n_seq_max)
        for name, value in (("swa_full", True), ("n_outputs_max", rows)):
            if hasattr(params, name):  # not in every version
                setattr(params, name, value)
        self._handle = native.llama_init_from_model(model.handle, params)
        if not self._handle:
            kind = MemoryShort if model.log.tells_of_memory() else NativeError
            raise kind(f"libllama could not make a context of {self.cells} tokens{model.log.last_words()}")
        self._memory = native.llama_get_memory(self._handle)
        if not self._memory:  # BERT and its kin, which llama.cpp counts among the decoders
            raise ModelError(NO_PREDICTION)
        self._held = Held()
        self._call = _Call(native, limits.tokens, params.n_seq_max)

    def close(self) -> None:
        """Give back the cache and the buffers; the model stays."""
        self.native.llama_free(self._handle)

    def enter(self, batch: Batch) -> int:
        """Bring the stems of a batch into the cache; return how many tokens were decoded for that."""
        self._drop_leaves()
        ranges = self._held.change(batch)
        if not batch.stems:
            self.native.llama_memory_clear(self._memory, False)
            return 0
        if not self.native.llama_memory_seq_rm(self._memory, 0, ranges[0][0] if ranges else batch.stems[-1], -1):
            raise NativeError("libllama cannot cut a sequence in this model's cache; score with --road plain")
        tokens = np.frombuffer(batch.stem, ">i4").astype(np.int32)
        for begin, end in ranges:
            for a, b in spans(end - begin, -(-(end - begin) // self.limits.tokens)):
                positions = np.arange(begin + a, begin + b, dtype=np.int32)
                self._decode(tokens[begin + a : begin + b], positions, 0, 1, 0)
        return sum(end - begin for begin, end in ranges)

    def wave(self, wave: Wave) -> None:
        """Prepare the cache for a wave of the batch entered; its calls are then made one by one."""
        self._drop_leaves()
        for sequence, depth in enumerate(wave.shared, self._base):
            if depth:
                self.native.llama_memory_seq_cp(self._memory, 0, sequence, 0, depth)

    def call(self, wave: Wave, begin: int, end: int) -> Any:
        """Decode tokens ``begin`` to ``end - 1`` of a wave; return the logits wanted among them (rows x vocabulary).

        The matrix is libllama's own: it is valid until the next call.
        """
        piece = slice(begin, end)
        output = wave.output[piece]
        self._decode(wave.token[piece], wave.position[piece], wave.leaf[piece] + self._base, wave.width[piece], output)
        rows = int(output.sum())
        if not rows:
            return np.empty((0, self.model.vocabulary_size), np.float32)
        pointer = self.native.llama_get_logits(self._handle)
        if not pointer:
            raise NativeError("libllama returned no logits")
        return np.ctypeslib.as_array(pointer, (rows, self.model.vocabulary_size))

    def _drop_leaves(self) -> None:
        if not self._held.stems:
            self.native.llama_memory_clear(self._memory, False)
            return
        for sequence in range(self._base, self._call.sequences):
            self.native.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def _decode(self, token: Any, position: Any, leaf: Any, width: Any, output: Any) -> None:
        status = self.native.llama_decode(self._handle, self._call.fill(token, position, leaf, width, output))
        if status == 0:
            return
        why = {1: "no room in its cache", -2: "memory could not be allocated"}.get(
            status, "an error in its computation"
        )
        kind = MemoryShort if status == -2 else NativeError
        raise kind(f"libllama could not decode {len(token)} tokens ({why}){self.model.log.last_words()}")


class _Call:
    """A llama_batch over numpy arrays: filled by whole columns, without a loop over tokens."""

    def __init__(self, native: Any, tokens: int, sequences: int) -> None:
        self.sequences = sequences
        self._token = np.zeros(tokens, np.int32)
        self._position = np.zeros(tokens, np.int32)
        self._count = np.zeros(tokens, np.int32)
        self._output = np.zeros(tokens, np.int8)
        # A token's sequences are consecutive, so their list is a piece of this one.
        self._numbers = np.arange(sequences, dtype=np.int32)
        self._pointers = np.zeros(tokens, np.uintp)
        self.batch = native.llama_batch()
        columns = {
            "token": self._token,
            "pos": self._position,
            "n_seq_id": self._count,
            "seq_id": self._pointers,
            "logits": self._output,
        }
        kinds = dict(native.llama_batch._fields_)
        for name, column in columns.items():
            setattr(self.batch, name, ctypes.cast(column.ctypes.data, kinds[name]))
        self._first = self._numbers.ctypes.data

    def fill(self, token: Any, position: Any, leaf: Any, width: Any, output: Any) -> Any:
        count = len(token)
        self._token[:count] = token
        self._position[:count] = position
        self._count[:count] = width
        self._output[:count] = output
        self._pointers[:count] = self._first + np.asarray(leaf, np.uintp) * self._numbers.itemsize
        self.batch.n_tokens = count
        return self.batch


def limits(settings: Settings, model: Model, *, share: bool) -> Limits:
    """Return what a batch may take: a function of settings, vocabulary and backend, never of the memory that is free.

    On the CPU 256 tokens are as fast as more, token by token, and attention looks at every cell of the cache, of which
    llama.cpp counts 256 at least: measured, 512 cost 7 % more and 1,024 cost 18 % (SmolLM2-135M). A GPU wants more.
    """
    return Limits(
        tokens=settings.batch_tokens or (GPU_TOKENS if model.on_gpu else CPU_TOKENS),
        outputs=max(1, OUTPUT_BYTES // (4 * model.vocabulary_size)),
        sequences=settings.max_sequences,
        share=share,
    )


def physical_cores() -> int:
    """Return the number of cores that this process may use, counting hyper-threads of one core once."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
    cores = set()
    for number in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text())
        except OSError:
            cores.add(str(number))
    return max(1, len(cores))
