"""The header of one GGUF file, read strictly and without building the vocabulary.

A GGUF file is ``GGUF``, a uint32 version, int64 counts of tensors and of key-value pairs, the pairs, the
tensor descriptions (name, shape, type, offset), and the aligned tensor data. Strings and arrays carry uint64
lengths. The three arrays that make a header long (tokens, merges, scores: 10 MB for a vocabulary of 250,000)
are walked over, so that reading one takes a fraction of a second; what is kept of them is their length.

Every length is checked against what is left of the file before anything is read, and the file is read through
a window, so no input makes the reader take more than a few MB beyond the values it keeps.
"""

from __future__ import annotations

import os
import stat
import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from llmc.errors import InputFileError, os_error
from llmc.files import looks_like

Scalar = int | float | bool | str
Value = Scalar | tuple[int | float | bool, ...]

WINDOW = 1 << 20
MAX_KEY = 1 << 16  # the specification's limit on keys
MAX_STRING = 1 << 20  # longer strings (a precompiled map, a long chat template) are passed over
MAX_ARRAY = 1 << 12  # numeric arrays up to this length are kept: one value per layer
MAX_PAIRS = 100_000  # real files have under 100
MAX_TENSORS = 10_000_000
MAX_DIMS = 4
INT64_MAX = (1 << 63) - 1

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip

# ggml.h and ggml.c of llama.cpp build 11434: id -> (name, weights per block, bytes per block).
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8),
    28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18), 42: ("Q2_0", 64, 18),
}  # fmt: skip

# Types of ik_llama.cpp, for the name only: some store a scale per row, so blocks do not tell their bytes.
FORK_TYPES: dict[int, str] = {
    133: "Q6_0", 134: "IQ1_BN", 135: "IQ2_BN", 137: "IQ2_K", 138: "IQ3_K", 139: "IQ4_K", 140: "IQ5_K",
    141: "IQ6_K", 144: "IQ4_KS", 145: "IQ2_KS", 146: "IQ4_KSS", 152: "IQ5_KS", 153: "IQ2_KT", 154: "IQ3_KT",
    155: "IQ4_KT", 156: "IQ3_KS", 157: "IQ2_KL", 158: "IQ1_KT",
}  # fmt: skip


def type_name(kind: int) -> str:
    """Return the name of a tensor type; ``type N`` for one that is unknown here."""
    known = TENSOR_TYPES.get(kind)
    return known[0] if known else FORK_TYPES.get(kind, f"type {kind}")


@dataclass
class Header:
    """What the header of one file says.

    ``values`` holds scalars, strings up to 1 MiB and numeric arrays up to 4,096 values; ``lengths`` the
    number of elements of every array. ``spans`` gives the byte range of every pair, for hashing.
    ``weights`` counts tensor elements by type name, ``shapes`` keeps those of the two tensors as wide as the
    vocabulary.
    ``data_end`` is where the last tensor's data ends, as far as the types are known.
    """

    path: Path
    size: int
    version: int = 0
    values: dict[str, Value] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    tensors: int = 0
    weights: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    data_end: int = 0


def read_header(path: Path) -> Header:
    """Read the header of one GGUF file.

    Raises InputFileError when the file cannot be read, is something else (and says what it looks like),
    breaks the format (with the byte offset), or is shorter than the tensors it describes.
    """
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise InputFileError(f"{path} is a directory", "name a .gguf file")
        if not stat.S_ISREG(kind):  # a pipe would be waited for, for ever
            raise InputFileError(f"{path} is not a regular file", "write the model to a file first")
        with path.open("rb") as stream:
            header = _Parser(path, stream, os.fstat(stream.fileno()).st_size).parse()
    except OSError as error:
        raise os_error(error, "read", "check the path and its permissions") from error
    if header.data_end > header.size:
        raise InputFileError(
            f"{path}: truncated model: {header.data_end - header.size} bytes are missing "
            f"(the file has {header.size}, its tensors end at {header.data_end})",
            "fetch the file again and compare its size and sha256 with the publisher's",
        )
    return header


class _Parser:
    def __init__(self, path: Path, stream: IO[bytes], size: int) -> None:
        self.stream = stream
        self.header = Header(path, size)
        self.window = b""
        self.base = 0  # file offset of the window's first byte
        self.at = 0  # file offset of the next byte to parse

    def fail(self, what: str, at: int | None = None) -> InputFileError:
        return InputFileError(
            f"{self.header.path}: byte {self.at if at is None else at}: {what}",
            "the model file is damaged or incomplete: fetch it again and compare its sha256",
        )

    def need(self, length: int, what: str) -> int:
        """Make ``length`` bytes from ``at`` available; return their position in the window."""
        if length > self.header.size - self.at:
            left = self.header.size - self.at
            raise self.fail(f"truncated model: {what} needs {length} bytes, {left} are left in the file")
        position = self.at - self.base
        if not 0 <= position <= len(self.window) - length:
            self.stream.seek(self.at)
            self.window, self.base, position = self.stream.read(max(WINDOW, length)), self.at, 0
            if len(self.window) < length:
                raise self.fail(f"{what}: the file ended early (it changed while it was read)")
        return position

    def skip(self, length: int, what: str) -> None:
        if length > self.header.size - self.at:
            left = self.header.size - self.at
            raise self.fail(f"truncated model: {what} claims {length} bytes, {left} are left in the file")
        self.at += length

    def u32(self, what: str) -> int:
        position = self.need(4, what)
        self.at += 4
        return int(_U32.unpack_from(self.window, position)[0])

    def u64(self, what: str) -> int:
        position = self.need(8, what)
        self.at += 8
        return int(_U64.unpack_from(self.window, position)[0])

    def text(self, what: str, limit: int) -> str:
        start = self.at
        length = self.u64(f"the length of {what}")
        if length > limit:
            raise self.fail(f"{what} claims {length} bytes; at most {limit} are allowed", start)
        position = self.need(length, what)
        self.at += length
        return self.window[position : position + length].decode("utf-8", errors="replace")

    def parse(self) -> Header:
        self._magic()
        tensors, pairs = self.u64("the number of tensors"), self.u64("the number of metadata pairs")
        # The shortest pair takes 13 bytes, the shortest tensor description 24.
        if pairs > MAX_PAIRS or 13 * pairs > self.header.size:
            raise self.fail(f"{pairs} metadata pairs are announced, more than the file can hold", 16)
        if tensors > MAX_TENSORS or 24 * tensors > self.header.size:
            raise self.fail(f"{tensors} tensors are announced, more than the file can hold", 8)
        for _ in range(pairs):
            self._pair()
        self._tensors(tensors)
        return self.header

    def _magic(self) -> None:
        size = self.header.size
        position = self.need(min(size, 512), "the start of the file")
        head = self.window[position : position + 512]
        if head[:4] != b"GGUF":
            kind = looks_like(head) or "something else"
            raise InputFileError(
                f"{self.header.path} is not a GGUF model: it is {kind}",
                "name a .gguf file, or fetch it again",
            )
        self.at += 4
        version = self.u32("the format version")
        if version & 0xFFFF == 0 and version:
            raise InputFileError(
                f"{self.header.path} is a big-endian GGUF file, which only big-endian machines can run",
                "fetch or convert the little-endian file of this model",
            )
        if version not in (2, 3):
            raise InputFileError(
                f"{self.header.path}: GGUF version {version}; versions 2 and 3 are supported",
                "convert the model again with a current llama.cpp",
            )
        self.header.version = version

    def _pair(self) -> None:
        start = self.at
        key = self.text("a metadata key", MAX_KEY)
        if not key or key in self.header.spans:
            raise self.fail(f"metadata key {key!r} is {'there twice' if key else 'empty'}", start)
        kind = self.u32(f"the type of {key}")
        if kind == _ARRAY:
            self._array(key)
        elif kind == _STRING:
            self._string(key)
        elif kind in _NUMBERS:
            (self.header.values[key],) = self._numbers(_NUMBERS[kind], 1, key)
        else:
            raise self.fail(f"{key} has the unknown type {kind}", self.at - 4)
        self.header.spans[key] = (start, self.at)

    def _string(self, key: str) -> None:
        length = self.u64(f"the length of {key}")
        if length > MAX_STRING:
            self.skip(length, key)
            return
        position = self.need(length, key)
        self.at += length
        self.header.values[key] = self.window[position : position + length].decode("utf-8", errors="replace")

    def _numbers(self, code: str, count: int, key: str) -> tuple[int | float | bool, ...]:
        layout = struct.Struct(f"<{count}{code}")
        position = self.need(layout.size, key)
        self.at += layout.size
        return layout.unpack_from(self.window, position)

    def _array(self, key: str) -> None:
        kind = self.u32(f"the element type of {key}")
        count = self.u64(f"the length of {key}")
        self.header.lengths[key] = count
        if kind == _STRING:
            self._pass_strings(count, key)
        elif kind in _NUMBERS and count <= MAX_ARRAY:
            self.header.values[key] = self._numbers(_NUMBERS[kind], count, key)
        elif kind in _NUMBERS:
            self.skip(count * struct.calcsize(f"<{_NUMBERS[kind]}"), f"the array {key}")
        else:
            raise self.fail(f"{key} is an array of the unsupported type {kind}", self.at - 12)

    def _pass_strings(self, count: int, key: str) -> None:
        """Walk over an array of strings: the inner loop is what a large vocabulary costs."""
        if 8 * count > self.header.size - self.at:
            left = self.header.size - self.at
            raise self.fail(f"truncated model: {key} claims {count} strings, {left} bytes are left in the file")
        unpack = _U64.unpack_from
        while count:
            position = self.need(8, key)
            window, last = self.window, len(self.window) - 8
            while count and position <= last:
                position += 8 + unpack(window, position)[0]
                count -= 1
            self.at = self.base + position
            if self.at > self.header.size:
                raise self.fail(f"truncated model: a string of {key} ends at {self.at}, the file at {self.header.size}")

    def _tensors(self, count: int) -> None:
        header = self.header
        header.tensors = count
        misfits: set[int] = set()  # types whose tensors do not take the bytes that the table says
        align = header.values.get("general.alignment", 32)
        if not isinstance(align, int) or align < 1 or align & (align - 1):
            raise self.fail(f"general.alignment is {align!r}; it must be a power of two")
        end, last_kind = 0, -1
        for index in range(count):
            kind, elements, offset = self._tensor(index)
            if last_kind in TENSOR_TYPES and offset != end + -end % align:
                misfits.add(last_kind)
            header.weights[type_name(kind)] += elements
            _, block, size = TENSOR_TYPES.get(kind, ("", 1, 0))
            end, last_kind = offset + elements // block * size, kind
        if last_kind in misfits:
            end = 0
        data = self.at + -self.at % align
        header.data_end = data + end if count else self.at

    def _tensor(self, index: int) -> tuple[int, int, int]:
        name = self.text(f"the name of tensor {index}", MAX_KEY)
        dims = self.u32(f"the number of dimensions of {name}")
        if dims > MAX_DIMS:
            raise self.fail(f"tensor {name} has {dims} dimensions; at most {MAX_DIMS} are allowed", self.at - 4)
        shape = tuple(self.u64(f"the shape of {name}") for _ in range(dims))
        elements = 1
        for length in shape:
            elements *= length
        if elements > INT64_MAX:
            raise self.fail(f"tensor {name} has the impossible shape {shape}")
        kind, offset = self.u32(f"the type of {name}"), self.u64(f"the offset of {name}")
        if name in ("token_embd.weight", "output.weight"):
            self.header.shapes[name] = shape
        return kind, elements, offset
