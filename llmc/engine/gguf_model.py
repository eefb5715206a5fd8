"""What a GGUF model is: the facts that planning, caching and reporting need, in a fraction of a second.

``read_model`` looks at headers only (see gguf_header) and takes split models as one; ``model_sha256`` reads
the whole file once and remembers. Nothing here loads weights or needs llama.cpp.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmc.engine.gguf_header import Header, Value, read_header
from llmc.errors import InputFileError
from llmc.files import CHUNK, sha256_cached

# general.file_type -> label. llama.h of build 11434; from 135 on, ik_llama.cpp.
_FILE_TYPES: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
    26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0",
    37: "TQ2_0", 38: "MXFP4", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
    135: "Q6_0", 136: "IQ1_BN", 137: "IQ2_BN", 138: "IQ2_K", 139: "IQ3_K", 140: "IQ4_K", 141: "IQ5_K",
    142: "IQ6_K", 145: "IQ4_KS", 146: "IQ3_KL", 147: "IQ2_KS", 148: "IQ4_KSS", 150: "IQ5_KS", 151: "IQ2_KT",
    152: "IQ3_KT", 153: "IQ4_KT", 154: "IQ3_KS", 155: "IQ2_KL", 156: "IQ1_KT",
}  # fmt: skip
_GUESSED = 1024  # flag in general.file_type: the writer did not know and guessed

# llm_arch_is_recurrent and llm_arch_is_hybrid of build 11434; recurrent ones cannot run multiple choice.
_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_HYBRID = frozenset({
    "jamba", "falcon-h1", "plamo2", "granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe",
    "qwen3next", "kimi-linear", "bailingmoe3", "kimi-k3", "glm5-next", "qwen35", "qwen35moe",
    "qwen4exp", "deepseek4", "minimax-01",
})  # fmt: skip
_STATE_KEYS = ("ssm.conv_kernel", "ssm.state_size", "wkv.head_size", "shortconv.l_cache")

_SPLIT = re.compile(r"^(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf$", re.DOTALL)

Memory = Literal["attention", "hybrid", "recurrent"]


@dataclass(frozen=True)
class ModelFacts:
    """What the headers of a model say; a split model is one model, named by its first part.

    ``size`` is the bytes of all parts, ``parameters`` the elements of all tensors. ``quantization`` is the
    label of general.file_type or, where that is absent or unknown, of the type with most weights;
    ``tensor_types`` counts weights by type. ``vocab_size`` is the length of the token list, which is the
    width of the logits.
    ``add_bos`` and ``add_eos`` are None where the file does not say (llama.cpp then decides by tokenizer).
    ``heads_kv`` has one value per layer. ``memory`` is how the model remembers: "recurrent" models cannot run
    multiple choice in llama.cpp. ``tokenizer_sha256`` is equal for two files that tokenize alike, such as two
    quantizations of one model.
    """

    parts: tuple[Path, ...]
    size: int
    architecture: str
    name: str
    parameters: int
    quantization: str
    tensor_types: dict[str, int]
    vocab_size: int
    context_length: int | None
    block_count: int
    embedding_length: int
    heads: int
    heads_kv: tuple[int, ...]
    key_length: int
    value_length: int
    tokenizer_model: str
    tokenizer_pre: str
    add_bos: bool | None
    add_eos: bool | None
    memory: Memory
    tokenizer_sha256: str

    @property
    def path(self) -> Path:
        """The file to hand to llama.cpp."""
        return self.parts[0]

    @property
    def has_recurrent_memory(self) -> bool:
        return self.memory != "attention"

    @property
    def is_vocab_only(self) -> bool:
        return self.parameters == 0

    @property
    def bits_per_weight(self) -> float | None:
        """File bytes * 8 / parameters, as llama.cpp counts it (metadata included); None without weights."""
        return self.size * 8 / self.parameters if self.parameters else None


def read_model(path: Path) -> ModelFacts:
    """Return the facts of a model, of all its parts when it is split.

    Raises InputFileError for what is not a whole, little-endian GGUF model: see ``read_header``; also for a
    split model with a part that is missing or is not of this model.
    """
    headers = _parts(path)
    first = headers[0]
    weights: Counter[str] = Counter()
    for header in headers:
        weights.update(header.weights)
    fields = _Fields(first)
    blocks = fields.integer("block_count")
    embedding, heads = fields.integer("embedding_length"), fields.per_layer("attention.head_count", blocks)
    # llama.cpp's defaults: as many KV heads as heads, and the embedding shared out among the heads.
    heads_kv = fields.per_layer("attention.head_count_kv", blocks) or heads
    most_heads = max(heads, default=0)
    head_length = embedding // most_heads if most_heads else 0
    return ModelFacts(
        parts=tuple(header.path for header in headers),
        size=sum(header.size for header in headers),
        architecture=fields.architecture,
        name=fields.text("general.name"),
        parameters=sum(weights.values()),
        quantization=_label(first.values.get("general.file_type"), weights),
        tensor_types=dict(weights.most_common()),
        vocab_size=_vocab_size(first, headers, fields),
        context_length=fields.integer("context_length") or None,
        block_count=blocks,
        embedding_length=embedding,
        heads=most_heads,
        heads_kv=heads_kv,
        key_length=fields.integer("attention.key_length") or head_length,
        value_length=fields.integer("attention.value_length") or head_length,
        tokenizer_model=fields.text("tokenizer.ggml.model"),
        tokenizer_pre=fields.text("tokenizer.ggml.pre"),
        add_bos=fields.flag("tokenizer.ggml.add_bos_token"),
        add_eos=fields.flag("tokenizer.ggml.add_eos_token"),
        memory=_memory(fields),
        tokenizer_sha256=_tokenizer_sha256(first),
    )


def model_sha256(facts: ModelFacts) -> str:
    """Return the model's SHA-256, cached by path, size, mtime and inode.

    For a split model: the SHA-256 over the lines ``<sha256 of the part>\\n`` in order.
    """
    hashes = [sha256_cached(part) for part in facts.parts]
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("".join(f"{digest}\n" for digest in hashes).encode()).hexdigest()


def kv_bytes_per_token(facts: ModelFacts, type_bytes: float = 2.0) -> int:
    """Return the bytes of KV cache that one token takes, over all layers.

    ``type_bytes`` is the mean size of a cached value (2 for F16, llama.cpp's default). An upper estimate:
    sliding windows, and layers of hybrid models that keep no cache without saying so, are counted in full.
    """
    return round(sum(facts.heads_kv) * (facts.key_length + facts.value_length) * type_bytes)


class _Fields:
    """Typed access to metadata; keys of the architecture are given without its prefix."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.architecture = self.text("general.architecture")
        if not self.architecture:
            raise InputFileError(
                f"{header.path}: the metadata names no architecture (general.architecture)",
                "name the model itself: adapters, control vectors and imatrix files are GGUF files too",
            )

    def get(self, key: str) -> Value | None:
        return self.header.values.get(f"{self.architecture}.{key}")

    def text(self, key: str) -> str:
        value = self.header.values.get(key, "")
        return value if isinstance(value, str) else ""

    def flag(self, key: str) -> bool | None:
        value = self.header.values.get(key)
        return value if isinstance(value, bool) else None

    def integer(self, key: str) -> int:
        value = self.get(key)
        return value if isinstance(value, int) and value > 0 else 0

    def per_layer(self, key: str, layers: int) -> tuple[int, ...]:
        """Return one integer per layer of a key that is a number or an array; empty when it is absent."""
        value = self.get(key)
        if isinstance(value, tuple):
            return tuple(max(0, int(each)) for each in value)
        # A hostile block_count must not become a tuple of that length.
        return (max(0, value),) * min(layers, 1 << 16) if isinstance(value, int) else ()


def _parts(path: Path) -> list[Header]:
    """Return the headers of all parts of the model that ``path`` is, or is a part of."""
    header = read_header(path)
    count = header.values.get("split.count")
    if not isinstance(count, int) or count <= 1:
        return [header]
    match = _SPLIT.match(path.name)
    number = header.values.get("split.no")
    if match is None or int(match["parts"]) != count or number != int(match["part"]) - 1:
        raise InputFileError(
            f"{path} is one of {count} parts of a split model (split.no {number}), but its name does not say "
            "so; llama.cpp finds the parts by their names",
            f"give the parts their names back: NAME-00001-of-{count:05}.gguf and so on",
        )
    names = [path.with_name(f"{match['stem']}-{i + 1:05}-of-{count:05}.gguf") for i in range(count)]
    if missing := [name for name in names if not name.exists()]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputFileError(
            f"{missing[0]} is missing{more}: the model is split into {count} files",
            f"fetch all {count} parts into one folder",
        )
    headers = [header if name == path else read_header(name) for name in names]
    for i, part in enumerate(headers):
        if part.values.get("split.no") != i or part.values.get("split.count") != count:
            raise InputFileError(
                f"{part.path} is not part {i + 1} of {count} of this model",
                "fetch the parts of one model again",
            )
    total = header.values.get("split.tensors.count")
    found = sum(part.tensors for part in headers)
    if isinstance(total, int) and total != found:
        raise InputFileError(
            f"{path}: the parts hold {found} tensors, {total} are announced",
            "fetch the parts of one model again",
        )
    return headers


def _label(file_type: Value | None, weights: Counter[str]) -> str:
    if isinstance(file_type, int) and (label := _FILE_TYPES.get(file_type & ~_GUESSED)):
        return label
    return weights.most_common(1)[0][0] if weights else ""


def _vocab_size(first: Header, headers: Iterable[Header], fields: _Fields) -> int:
    if tokens := first.lengths.get("tokenizer.ggml.tokens", 0):
        return tokens
    if stated := fields.integer("vocab_size"):
        return stated
    shapes = [shape for header in headers for shape in header.shapes.values() if len(shape) == 2]
    return shapes[0][1] if shapes else 0


def _memory(fields: _Fields) -> Memory:
    if fields.architecture in _RECURRENT:
        return "recurrent"
    # State-space keys give away hybrids that are newer than the list.
    stateful = any(fields.get(key) is not None for key in _STATE_KEYS)
    return "hybrid" if fields.architecture in _HYBRID or stateful else "attention"


def _tokenizer_sha256(header: Header) -> str:
    """Hash the raw bytes of all that decides how text becomes tokens.

    llama.cpp also looks at the architecture and the model's name (some names switch on the stripping of
    whitespace around special tokens), so they belong to it.
    """
    digest = hashlib.sha256()
    keys = [key for key in header.spans if key.startswith("tokenizer.ggml.")]
    keys += ["general.architecture", "general.name"]
    with header.path.open("rb") as stream:
        for key in sorted(keys):
            start, end = header.spans.get(key, (0, 0))
            stream.seek(start)
            while start < end and (data := stream.read(min(CHUNK, end - start))):
                digest.update(data)
                start += len(data)
    return digest.hexdigest()
