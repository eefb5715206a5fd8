"""GGUF files made by hand, byte by byte, whole or not."""

from __future__ import annotations

import struct
from typing import Any

from llmc.engine.gguf_header import TENSOR_TYPES


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return u64(len(data)) + data


def value_bytes(value: Any) -> bytes:
    """A typed value: bool, int (uint32), float (float32), str, or a list of one of them."""
    if isinstance(value, list):
        return (
            u32(9)
            + value_bytes(value[0] if value else 0)[:4]
            + u64(len(value))
            + b"".join(value_bytes(each)[4:] for each in value)
        )
    if isinstance(value, bool):
        return u32(7) + struct.pack("<?", value)
    if isinstance(value, int):
        return u32(4) + u32(value)
    if isinstance(value, float):
        return u32(6) + struct.pack("<f", value)
    return u32(8) + text(value)


Tensor = tuple[str, int, tuple[int, ...]]  # name, type, shape


def size_of(kind: int, shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    _, block, size = TENSOR_TYPES.get(kind, ("", 1, 1))
    return count // block * size


def gguf_bytes(
    pairs: dict[str, Any],
    tensors: list[Tensor] | tuple[Tensor, ...] = (),
    *,
    version: int = 3,
    align: int = 32,
    raw_pairs: bytes = b"",
    raw_count: int = 0,
) -> bytes:
    """A whole GGUF file; tensor data is zero, laid out as llama.cpp lays it out."""
    head = b"GGUF" + u32(version) + u64(len(tensors)) + u64(len(pairs) + raw_count) + raw_pairs
    head += b"".join(text(key) + value_bytes(value) for key, value in pairs.items())
    offset = 0
    for name, kind, shape in tensors:
        head += text(name) + u32(len(shape)) + b"".join(map(u64, shape)) + u32(kind) + u64(offset)
        offset += size_of(kind, shape)
        offset += -offset % align
    if not tensors:
        return head
    return head + bytes(-len(head) % align) + bytes(offset)


LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "general.file_type": 15,
    "llama.context_length": 2048,
    "llama.embedding_length": 64,
    "llama.block_count": 3,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["a", "b", "c", "🦙", ""],
    "tokenizer.ggml.scores": [0.0, 1.0, 2.0, 3.0, 4.0],
    "tokenizer.ggml.add_bos_token": False,
}
TENSORS: list[Tensor] = [
    ("token_embd.weight", 0, (64, 5)),
    ("blk.0.attn_q.weight", 12, (256, 3)),
    ("blk.0.attn_norm.weight", 0, (3,)),
    ("output.weight", 14, (256, 5)),
]
