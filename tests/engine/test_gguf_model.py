"""Model facts from GGUF headers: right for what is whole, a clear refusal for what is not."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmc.engine import gguf_header
from llmc.engine.gguf_header import TENSOR_TYPES
from llmc.engine.gguf_model import kv_bytes_per_token, model_sha256, read_model
from llmc.errors import InputFileError
from made_gguf import LLAMA, TENSORS, gguf_bytes, size_of, text, u32, u64, value_bytes


def write(folder: Path, data: bytes, name: str = "m.gguf") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_the_facts_of_a_model(tmp_path: Path, version: int) -> None:
    data = gguf_bytes(LLAMA, TENSORS, version=version)
    facts = read_model(write(tmp_path, data))
    assert dataclasses.asdict(facts) | {"tokenizer_sha256": ""} == {
        "parts": (tmp_path / "m.gguf",),
        "size": len(data),
        "architecture": "llama",
        "name": "Tiny",
        "parameters": 64 * 5 + 256 * 3 + 3 + 256 * 5,
        "quantization": "Q4_K_M",
        "tensor_types": {"Q6_K": 1280, "Q4_K": 768, "F32": 323},
        "vocab_size": 5,
        "context_length": 2048,
        "block_count": 3,
        "embedding_length": 64,
        "heads": 8,
        "heads_kv": (2, 2, 2),
        "key_length": 8,
        "value_length": 8,
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "smollm",
        "add_bos": False,
        "add_eos": None,
        "memory": "attention",
        "tokenizer_sha256": "",
    }
    assert facts.bits_per_weight == pytest.approx(len(data) * 8 / facts.parameters)
    # 3 layers x 2 KV heads x (8 + 8) values x 2 bytes
    assert kv_bytes_per_token(facts) == 192
    assert kv_bytes_per_token(facts, 4.0) == 384
    assert not facts.is_vocab_only and not facts.has_recurrent_memory
    assert facts.path == tmp_path / "m.gguf"


def test_it_reads_what_the_gguf_package_writes(tmp_path: Path) -> None:
    gguf, numpy = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_name("written")
    writer.add_context_length(99)
    writer.add_block_count(2)
    writer.add_embedding_length(32)
    writer.add_head_count(4)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<s>", b"</s>", b"\xff\xfe"])
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.add_tensor("token_embd.weight", numpy.zeros((3, 32), numpy.float16))
    writer.add_tensor("odd", numpy.zeros((7, 5), numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    facts = read_model(tmp_path / "m.gguf")
    assert (facts.name, facts.context_length, facts.quantization, facts.vocab_size) == (
        "written",
        99,
        "Q8_0",
        3,
    )
    assert (facts.add_bos, facts.add_eos, facts.parameters) == (True, True, 3 * 32 + 35)
    assert facts.heads_kv == (4, 4)


def test_the_type_table_is_that_of_the_gguf_package() -> None:
    gguf = pytest.importorskip("gguf")
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        if kind.name != "Q8_1":  # 40 there; ggml.c has 36, and no file holds this type
            assert TENSOR_TYPES[int(kind)] == (kind.name, block, size)


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"general.file_type": 1 << 20}, "quantization", "Q6_K"),  # unknown: the type with most weights
        ({"general.file_type": None}, "quantization", "Q6_K"),
        ({"general.file_type": 1024 + 7}, "quantization", "Q8_0"),
        ({"general.file_type": 140}, "quantization", "IQ4_K"),
        ({"general.file_type": 0}, "quantization", "F32"),
        ({"llama.context_length": None}, "context_length", None),
        ({"llama.attention.head_count_kv": None}, "heads_kv", (8, 8, 8)),
        ({"llama.attention.head_count_kv": [4, 0, 2]}, "heads_kv", (4, 0, 2)),
        ({"llama.attention.head_count": [8, 4, 4]}, "heads", 8),
        ({"llama.attention.key_length": 128}, "key_length", 128),
        ({"llama.attention.value_length": 96}, "value_length", 96),
        ({"llama.block_count": 0xFFFFFFFF}, "block_count", 0xFFFFFFFF),
        ({"llama.embedding_length": "big"}, "embedding_length", 0),
        ({"tokenizer.ggml.tokens": None}, "vocab_size", 5),  # the embedding's width
        ({"tokenizer.ggml.tokens": None, "llama.vocab_size": 77}, "vocab_size", 77),
        ({"tokenizer.ggml.add_bos_token": True}, "add_bos", True),
        ({"tokenizer.ggml.add_bos_token": None}, "add_bos", None),
        ({"tokenizer.ggml.add_eos_token": True}, "add_eos", True),
        ({"tokenizer.ggml.pre": None}, "tokenizer_pre", ""),
        ({"llama.ssm.state_size": 16}, "memory", "hybrid"),
    ],
)
def test_absent_odd_and_per_layer_values(tmp_path: Path, changes: dict[str, Any], field: str, expected: Any) -> None:
    pairs = {key: value for key, value in (LLAMA | changes).items() if value is not None}
    assert getattr(read_model(write(tmp_path, gguf_bytes(pairs, TENSORS))), field) == expected


@pytest.mark.parametrize(
    ("architecture", "memory"),
    [("llama", "attention"), ("mamba", "recurrent"), ("rwkv7", "recurrent"), ("qwen35", "hybrid")],
)
def test_how_a_model_remembers(tmp_path: Path, architecture: str, memory: str) -> None:
    facts = read_model(write(tmp_path, gguf_bytes({"general.architecture": architecture}, TENSORS)))
    assert (facts.memory, facts.has_recurrent_memory) == (memory, memory != "attention")


def test_a_vocabulary_only_file(tmp_path: Path) -> None:
    facts = read_model(write(tmp_path, gguf_bytes(LLAMA)))
    assert facts.is_vocab_only and facts.parameters == 0 and facts.bits_per_weight is None
    assert facts.vocab_size == 5


@pytest.mark.parametrize("align", [1, 8, 64])
def test_other_alignments(tmp_path: Path, align: int) -> None:
    data = gguf_bytes({"general.alignment": align} | LLAMA, TENSORS, align=align)
    assert read_model(write(tmp_path, data)).parameters == 2371


def test_long_strings_and_arrays_are_passed_over(tmp_path: Path) -> None:
    template = "x" * (gguf_header.MAX_STRING + 1)
    pairs = {"tokenizer.chat_template": template, "big": [1.5] * 5000, "empty": [], **LLAMA}
    header = gguf_header.read_header(write(tmp_path, gguf_bytes(pairs, TENSORS)))
    assert "tokenizer.chat_template" not in header.values and "big" not in header.values
    assert header.lengths["big"] == 5000 and header.values["empty"] == ()
    assert header.values["general.name"] == "Tiny"


def test_types_of_forks_are_named_and_their_size_is_not_guessed(tmp_path: Path) -> None:
    tensors = [("a", 139, (256, 4)), ("b", 999, (16,))]
    facts = read_model(write(tmp_path, gguf_bytes({"general.architecture": "llama"}, tensors)))
    assert facts.tensor_types == {"IQ4_K": 1024, "type 999": 16}
    assert facts.quantization == "IQ4_K"


def test_a_fork_that_reuses_a_type_number_is_not_called_truncated(tmp_path: Path) -> None:
    """Two tensors of a type that takes 2 bytes a block here, 18 by the table: the offsets show it."""
    head = b"GGUF" + u32(3) + u64(3) + u64(1) + text("general.architecture") + value_bytes("llama")
    for i in range(3):
        head += text(f"t{i}") + u32(1) + u64(64 * 64) + u32(42) + u64(128 * i)
    path = write(tmp_path, head + bytes(-len(head) % 32) + bytes(3 * 128))
    assert read_model(path).parameters == 3 * 4096


# Splits


def split(folder: Path, count: int = 3, stem: str = "big") -> list[Path]:
    paths = []
    for i in range(count):
        pairs: dict[str, Any] = {"split.no": i, "split.count": count, "split.tensors.count": count}
        pairs |= LLAMA if i == 0 else {}
        data = gguf_bytes(pairs, [(f"blk.{i}.w", 0, (10 + i,))])
        paths.append(write(folder, data, f"{stem}-{i + 1:05}-of-{count:05}.gguf"))
    return paths


@pytest.mark.parametrize("named", [0, 1, 2])
def test_any_part_names_the_whole_model(tmp_path: Path, named: int) -> None:
    paths = split(tmp_path)
    facts = read_model(paths[named])
    assert facts.parts == tuple(paths) and facts.path == paths[0]
    assert facts.parameters == 10 + 11 + 12
    assert facts.size == sum(path.stat().st_size for path in paths)
    assert facts.architecture == "llama"


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[1].unlink()
    with pytest.raises(InputFileError, match=r"big-00002-of-00003\.gguf is missing") as caught:
        read_model(paths[0])
    assert "3 parts" in caught.value.remedy
    paths[2].unlink()
    with pytest.raises(InputFileError, match="and 1 more"):
        read_model(paths[0])


def test_a_truncated_part_is_refused(tmp_path: Path) -> None:
    paths = split(tmp_path)
    # The last 32-byte row holds 16 bytes of data and 16 of padding.
    os.truncate(paths[2], paths[2].stat().st_size - 17)
    with pytest.raises(InputFileError, match=r"00003-of-00003.*truncated model: 1 bytes are missing"):
        read_model(paths[0])


def test_a_renamed_part_is_explained(tmp_path: Path) -> None:
    paths = split(tmp_path)
    for name in ("model.gguf", "big-00002-of-00003.gguf", "big-00001-of-00004.gguf"):
        path = write(tmp_path, paths[0].read_bytes(), name)
        with pytest.raises(InputFileError, match="by their names"):
            read_model(path)


def test_parts_of_two_models_are_told_apart(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[1].write_bytes(paths[2].read_bytes())
    with pytest.raises(InputFileError, match="not part 2 of 3"):
        read_model(paths[0])
    data = gguf_bytes({"split.no": 1, "split.count": 3}, [("a", 0, (1,)), ("b", 0, (1,))])
    paths[1].write_bytes(data)
    with pytest.raises(InputFileError, match="hold 4 tensors, 3 are announced"):
        read_model(paths[0])


# Checksums


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("cache")
def test_the_hash_of_one_file_and_of_parts(tmp_path: Path) -> None:
    path = write(tmp_path, gguf_bytes(LLAMA, TENSORS))
    assert model_sha256(read_model(path)) == hashlib.sha256(path.read_bytes()).hexdigest()
    paths = split(tmp_path)
    lines = "".join(hashlib.sha256(part.read_bytes()).hexdigest() + "\n" for part in paths)
    assert model_sha256(read_model(paths[0])) == hashlib.sha256(lines.encode()).hexdigest()


@pytest.mark.parametrize(
    ("changes", "equal"),
    [
        ({"general.file_type": 7, "llama.context_length": 1}, True),
        ({"tokenizer.chat_template": "{{ x }}"}, True),
        ({"tokenizer.ggml.tokens": ["a", "b", "c", "🦙", "x"]}, False),
        ({"tokenizer.ggml.scores": [0.0, 1.0, 2.0, 3.0, 5.0]}, False),
        ({"tokenizer.ggml.pre": "qwen2"}, False),
        ({"tokenizer.ggml.add_bos_token": True}, False),
        ({"general.name": "phi-3"}, False),
    ],
)
def test_the_tokenizers_hash(tmp_path: Path, changes: dict[str, Any], equal: bool) -> None:
    one = read_model(write(tmp_path, gguf_bytes(LLAMA, TENSORS)))
    other = read_model(write(tmp_path, gguf_bytes(dict(reversed((LLAMA | changes).items())), TENSORS[:1])))
    assert (one.tokenizer_sha256 == other.tokenizer_sha256) is equal


# What is not a whole model


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"GG", "text"),
        (b"<!DOCTYPE html><html>" * 50, "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS"),
        (b"PK\3\4" + bytes(100), "zip"),
        (b'\x40\0\0\0\0\0\0\0{"a":1}' + bytes(100), "safetensors"),
        (b"lmgg" + bytes(100), "older than GGUF"),
        (bytes(5000), "zero bytes"),
        (b"\x93" * 100, "something else"),
    ],
)
def test_what_is_no_gguf_is_called_by_its_name(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(InputFileError, match=words) as caught:
        read_model(write(tmp_path, data))
    assert str(tmp_path / "m.gguf") in caught.value.what and caught.value.remedy


GOOD = gguf_bytes(LLAMA, TENSORS)
ARCHITECTURE = text("general.architecture") + value_bytes("llama")


def patched(at: int, data: bytes) -> bytes:
    return GOOD[:at] + data + GOOD[at + len(data) :]


def raw(pairs: bytes, count: int = 1) -> bytes:
    return gguf_bytes({}, raw_pairs=pairs, raw_count=count)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (GOOD[:4] + b"\0\0\0\3" + GOOD[8:], "big-endian"),
        (patched(4, u32(1)), "version 1"),
        (patched(4, u32(4)), "version 4"),
        (patched(4, u32(0)), "version 0"),
        (patched(8, u64(1 << 63)), "tensors are announced"),
        (patched(16, u64(1 << 40)), "pairs are announced"),
        (patched(24, u64(1 << 62)), "at most 65536"),
        (patched(24, u64(0)), "empty"),
        (raw(ARCHITECTURE * 2, 2), "there twice"),
        (raw(text("k") + u32(13)), "unknown type 13"),
        (raw(text("k") + u32(9) + u32(9) + u64(1)), "unsupported type 9"),
        (raw(text("k") + u32(8) + u64((1 << 64) - 1)), "claims 18446744073709551615 bytes"),
        (raw(text("k") + u32(8) + u64(1000)), "needs 1000 bytes"),
        (raw(text("k") + u32(9) + u32(8) + u64(1 << 61)), "strings"),
        (raw(text("k") + u32(9) + u32(8) + u64(2) + text("a") + u64(1 << 63)), "a string of k ends at"),
        (raw(text("k") + u32(9) + u32(12) + u64(1 << 61)), "claims"),
        (raw(text("k") + u32(9) + u32(12) + u64(100)), "needs 800 bytes"),
        (raw(text("k") + u32(10) + bytes(7)), "needs 8 bytes"),
        (gguf_bytes({"general.alignment": 3}, TENSORS), "power of two"),
        (gguf_bytes({"general.alignment": 0}, TENSORS), "power of two"),
        (gguf_bytes({"general.alignment": "x"}, TENSORS), "power of two"),
        (gguf_bytes({}, [("t", 0, (1, 1, 1, 1, 1))]), "5 dimensions"),
        (gguf_bytes({"general.type": "imatrix"}, TENSORS), "no architecture"),
    ],
)
def test_broken_headers_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(InputFileError, match=words) as caught:
        read_model(write(tmp_path, data))
    assert "m.gguf" in caught.value.what and caught.value.remedy


def test_an_impossible_shape_is_refused(tmp_path: Path) -> None:
    shape = u32(2) + u64(1 << 40) + u64(1 << 40)
    head = b"GGUF" + u32(3) + u64(1) + u64(1) + ARCHITECTURE + text("t") + shape + u32(0) + u64(0)
    with pytest.raises(InputFileError, match="impossible shape"):
        read_model(write(tmp_path, head))


def test_missing_tensor_data_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    padding = -size_of(*TENSORS[-1][1:]) % 32
    os.truncate(path, len(GOOD) - padding)  # llama.cpp does not need the last padding
    read_model(path)
    for missing in (1, 100, 1000):
        os.truncate(path, len(GOOD) - padding - missing)
        with pytest.raises(InputFileError, match=f"truncated model: {missing} bytes are missing"):
            read_model(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for length in range(0, len(GOOD) - 32, 41):
        path.write_bytes(GOOD[:length])
        with pytest.raises(InputFileError):
            read_model(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(0, len(GOOD) - 1), value=st.binary(min_size=1, max_size=8))
def test_any_damage_is_read_or_refused(tmp_path: Path, at: int, value: bytes) -> None:
    with contextlib.suppress(InputFileError):
        read_model(write(tmp_path, patched(at, value)[: len(GOOD)]))


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: None], ids=["directory", "missing"])
def test_what_cannot_be_opened(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "m.gguf")
    with pytest.raises(InputFileError) as caught:
        read_model(tmp_path / "m.gguf")
    assert caught.value.remedy


# Cost


@contextlib.contextmanager
def peak_memory(below: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < below


@pytest.mark.parametrize(
    "head",
    [
        raw(text("k") + u32(8) + u64(250 << 20)),
        raw(text("k") + u32(9) + u32(6) + u64(60 << 20)),
        raw(text("k") + u32(9) + u32(8) + u64(1) + u64(250 << 20)),
        patched(24, u64(250 << 20)),
    ],
    ids=["string", "array", "string in an array", "key"],
)
def test_no_length_takes_more_than_a_constant_of_memory(tmp_path: Path, head: bytes) -> None:
    path = write(tmp_path, head)
    os.truncate(path, 256 << 20)
    with pytest.raises(InputFileError), peak_memory(below=8 << 20):
        read_model(path)


def large_vocabulary(count: int) -> bytes:
    tokens = b"".join(text(f"token{i}") for i in range(count))
    merges = b"".join(text(f"tok en{i}") for i in range(count))
    raw_pairs = text("tokenizer.ggml.tokens") + u32(9) + u32(8) + u64(count) + tokens
    raw_pairs += text("tokenizer.ggml.merges") + u32(9) + u32(8) + u64(count) + merges
    raw_pairs += text("tokenizer.ggml.token_type") + u32(9) + u32(5) + u64(count) + bytes(4 * count)
    pairs = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2"}
    return gguf_bytes(pairs, TENSORS, raw_pairs=raw_pairs, raw_count=3)


def test_a_vocabulary_of_256000_takes_half_a_second_at_most(tmp_path: Path) -> None:
    path = write(tmp_path, large_vocabulary(256_000))
    times = []
    for _ in range(3):
        start = time.process_time()
        facts = read_model(path)
        times.append(time.process_time() - start)
    assert facts.vocab_size == 256_000
    assert min(times) < 0.5
    with peak_memory(below=8 << 20):
        read_model(path)
