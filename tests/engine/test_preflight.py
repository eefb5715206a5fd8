"""Preflight with a stand-in for the binding: counts, hazards, cache, and every way the worker can end."""

from __future__ import annotations

import os
import textwrap
import time
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_binding import FAKE_BINDING, make_binding
from llmc import mcbin
from llmc.engine import preflight as module
from llmc.engine import tokenizer_worker as worker
from llmc.engine.binding import Binding
from llmc.engine.gguf_model import ModelFacts
from llmc.engine.preflight import Preflight, preflight, text_hazards
from llmc.mcbin import Task


@pytest.fixture(autouse=True)
def cache(own_cache: Path) -> Path:
    return own_cache


FACTS = ModelFacts(
    parts=(Path("m.gguf"),),
    size=1,
    architecture="llama",
    name="",
    parameters=1,
    quantization="F32",
    tensor_types={},
    vocab_size=1000,
    context_length=512,
    block_count=1,
    embedding_length=1,
    heads=1,
    heads_kv=(1,),
    key_length=1,
    value_length=1,
    tokenizer_model="gpt2",
    tokenizer_pre="",
    add_bos=True,
    add_eos=None,
    memory="attention",
    tokenizer_sha256="one",
)

TASKS = [
    Task("What is it?", ("a cat", "a dog", "an owl"), 0),
    Task("Yes or no?", ("Yes", "Yes and no"), 1),
    Task("Which?", ("x", "y"), 0),
]


@pytest.fixture
def binding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Binding:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    return make_binding(tmp_path)


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    mcbin.write(tmp_path / "x.bin", TASKS)
    return tmp_path / "x.bin"


def run(bench: Path, binding: Binding | None, model: ModelFacts = FACTS, **more: Any) -> Preflight:
    return preflight(bench, model, binding, facts=mcbin.scan(bench), **more)


def test_counts_by_hand(bench: Path, binding: Binding) -> None:
    """BOS + "What is it?" (4) + "a", then cat | dog; "an owl" parts after the question.

    Task 0: common 5, each option 2 more: 5 + 6. Task 1: BOS Yes or no ? + Yes = 6, nothing and 2 more.
    Task 2: BOS Which ? = 3, and one each.
    """
    result = run(bench, binding)
    assert result.basis == "tokens" and not result.cached and result.reason == ""
    assert result.required == array("i", [11, 8, 5])
    assert (result.longest_tokens, result.longest_task, result.longest_sequence) == (11, 0, 8)
    assert (result.total_tokens, result.mean_tokens) == (24, 8.0)
    assert result.hazards == {"option-prefix": [1]}
    assert (result.add_bos, result.add_eos) == (True, False)
    (found,) = result.findings()
    assert (found.slug, found.severity, found.detail) == ("option-prefix", "error", "1 task: 1")


def test_no_common_prefix_needs_a_model_without_bos(tmp_path: Path, bench: Path) -> None:
    one_token_a_text = """
        def llama_tokenize(vocab, text, length, out, room, add_special, parse_special):
            ids = [1] * llama_vocab_get_add_bos(vocab) + [hash(text) % 2**30]
            out[:len(ids)] = ids
            return len(ids)
    """
    binding = make_binding(tmp_path, one_token_a_text)
    without = replace(FACTS, parts=(Path("nobos.gguf"),), tokenizer_sha256="other")
    assert run(bench, binding, without).hazards == {"no-common-prefix": [0, 1, 2]}
    assert run(bench, binding, without).add_bos is False
    assert run(bench, binding).hazards == {}


class Words:
    """A vocabulary in this process: one token a byte, or what ``table`` says."""

    def __init__(self, bos: bool) -> None:
        self.bos = bos

    def tokens(self, text: bytes) -> bytes:
        ids = [1] * self.bos + [2 + byte for byte in text]
        return array("i", ids).tobytes()


TEXT = st.text(st.sampled_from("ab 1é"), min_size=1, max_size=12)


@given(question=TEXT, options=st.lists(TEXT, min_size=2, max_size=6), bos=st.booleans())
def test_counts_are_those_of_the_loop_in_llama_cpp(question: str, options: list[str], bos: bool) -> None:
    vocabulary = Words(bos)
    sequences = []
    for option in options:
        ids = array("i")
        ids.frombytes(vocabulary.tokens(f"{question} {option}".encode()))
        sequences.append(list(ids))
    shared = 0
    while shared < min(map(len, sequences)) and len({sequence[shared] for sequence in sequences}) == 1:
        shared += 1
    required = shared + sum(len(sequence) - shared for sequence in sequences)
    flags = any(len(sequence) == shared for sequence in sequences) * worker.OPTION_PREFIX
    flags |= (shared == 0) * worker.NO_COMMON_PREFIX
    counted = worker.count(vocabulary, Task(question, tuple(options), 0))  # type: ignore[arg-type]
    assert counted == (required, max(map(len, sequences)), flags)


def ids(*values: int) -> bytes:
    return array("i", values).tobytes()


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [
        (ids(), ids(), 0),
        (ids(), ids(1), 0),
        (ids(1, 2), ids(1, 2), 2),
        (ids(1, 2), ids(1, 2, 3), 2),
        (ids(1, 2, 3), ids(1, 2, 4), 2),
        (ids(0x0100, 5), ids(0x0200, 5), 0),  # the low bytes agree
        (ids(7, 0x01000000), ids(7, 0x02000000), 1),
        (ids(2), ids(3), 0),
        (ids(-1), ids(1), 0),
    ],
)
def test_shared_tokens(a: bytes, b: bytes, shared: int) -> None:
    assert worker._shared_tokens(a, b) == worker._shared_tokens(b, a) == shared


def test_order_survives_threads_and_batches(tmp_path: Path, binding: Binding) -> None:
    bench = tmp_path / "many.bin"
    mcbin.write(bench, [Task("word " * (1 + i % 50) + "?", ("x", "y"), 0) for i in range(5000)])
    news: list[float] = []
    result = run(bench, binding, advance=lambda done, remark: news.append(done))
    # BOS, the words (the first without its space), the space before "?", "?", then " x" and " y"
    assert result.required == array("i", [1 + 1 + i % 50 + 2 + 2 for i in range(5000)])
    assert news == sorted(news)


def test_a_text_of_more_tokens_than_bytes(tmp_path: Path, bench: Path) -> None:
    more = """
        def llama_tokenize(vocab, text, length, out, room, add_special, parse_special):
            ids = [byte for byte in text for _ in range(3)]
            if len(ids) > room: return -len(ids)
            out[:len(ids)] = ids
            return len(ids)
    """
    result = run(bench, make_binding(tmp_path, more))
    lengths = [[3 * len(f"{task.question} {option}") for option in task.options] for task in TASKS]
    assert result.longest_sequence == max(map(max, lengths))


# Without the binding


def test_bounds_are_above_every_tokenizer(bench: Path, binding: Binding) -> None:
    counted, bounded = run(bench, binding), run(bench, None)
    assert bounded.basis == "bounds" and bounded.required is None
    assert "not installed" in bounded.reason
    assert bounded.longest_tokens >= counted.longest_tokens
    assert bounded.longest_sequence >= counted.longest_sequence
    needs = [sum(len(f"{t.question} {o}") + module.EXTRA_TOKENS for o in t.options) for t in TASKS]
    assert (bounded.longest_tokens, bounded.total_tokens) == (max(needs), sum(needs))
    assert bounded.hazards == {"option-prefix": [1]}
    assert [f.slug for f in bounded.findings()] == ["option-prefix", "preflight-bounds-only"]
    assert "by text" in bounded.findings()[0].detail


@pytest.mark.parametrize(("tokenizer", "strict"), [("gpt2", True), ("llama", True), ("t5", False), ("bert", False)])
def test_tokenizers_that_rewrite_text_are_named(bench: Path, tokenizer: str, strict: bool) -> None:
    result = run(bench, None, replace(FACTS, tokenizer_model=tokenizer))
    assert ("no strict bound" in result.reason) is not strict


@pytest.mark.parametrize(
    ("task", "bos", "hazards"),
    [
        (Task("q", ("Yes", "Yes, it is"), 0), True, ["option-prefix"]),
        (Task("q", ("100", "1", "10"), 0), True, ["option-prefix"]),
        (Task("q", ("same", "same"), 0), True, ["option-prefix"]),
        (Task("q", ("1", "10", "2"), 0), True, []),
        (Task("q", ("a", "a", "b"), 0), True, []),
        (Task(" \n", ("a", "b"), 0), False, ["no-common-prefix"]),
        (Task(" \n", ("a", "b"), 0), None, ["no-common-prefix"]),
        (Task(" \n", ("a", "b"), 0), True, []),
        (Task(" \n", ("a", "ab"), 0), False, ["option-prefix", "no-common-prefix"]),
        (Task("q", ("a", "b"), 0), False, []),
    ],
)
def test_hazards_by_text(task: Task, bos: bool | None, hazards: list[str]) -> None:
    assert list(text_hazards(task, bos)) == hazards


def test_findings_name_some_tasks_and_count_all() -> None:
    result = Preflight("tokens", 0, 1, 1, 1.0, 1, hazards={"option-prefix": list(range(100))})
    (found,) = result.findings()
    assert found.detail.startswith("100 tasks: 0, 1, 2") and found.detail.endswith("and 90 more")


# The ways the worker can end

ENDINGS: dict[str, tuple[str, str]] = {
    "crash while loading": ("import os\ndef llama_backend_init(): os.abort()", "SIGABRT"),
    "crash while tokenizing": (
        "import os, signal\ndef llama_tokenize(*a): os.kill(os.getpid(), signal.SIGSEGV)",
        "SIGSEGV",
    ),
    "model not loaded": ("def llama_model_load_from_file(path, params): return None", "could not load"),
    "import fails": ("raise ImportError('libllama.so: no such file')", "libllama.so: no such file"),
    "tokenizer refuses": ("def llama_tokenize(*a): return -1", "could not tokenize"),
    "leaves quietly": ("import os\ndef llama_backend_init(): os._exit(0)", "exit status 0"),
    "leaves with a status": (
        "import os\ndef llama_backend_init(): os.write(2, b'out of luck'); os._exit(7)",
        "out of luck",
    ),
    "floods stderr": (
        "import os, sys\nsys.stderr.write('x' * 10_000_000 + '\\nlast')\nos._exit(1)",
        "last",
    ),
    "lies about the number of tasks": (
        "import os\ndef llama_backend_init():\n os.write(1, b'{\"tasks\": 99}\\n'); os._exit(0)",
        "no result",
    ),
    "prints junk": (
        "import os\ndef llama_backend_init():\n os.write(1, b'junk\\n[]\\n' * 9); os._exit(3)",
        "status 3",
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_worker_that_fails_gives_bounds_and_the_reason(tmp_path: Path, bench: Path, name: str) -> None:
    more, words = ENDINGS[name]
    result = run(bench, make_binding(tmp_path, more))
    assert result.basis == "bounds"
    assert words in result.reason
    assert result.longest_tokens == run(bench, None).longest_tokens


@pytest.mark.parametrize("broken", ["site", "lib", "both"])
def test_a_binding_that_is_not_there(tmp_path: Path, binding: Binding, bench: Path, broken: str) -> None:
    none = tmp_path / "none"
    site, lib = binding.site, binding.lib
    gone = Binding(none if broken != "lib" else site, none if broken != "site" else lib)
    result = run(bench, gone)
    # The stand-in needs no library; the real binding fails to load without one.
    assert result.basis == ("tokens" if broken == "lib" else "bounds")
    assert "llama_cpp" in result.reason or broken == "lib"


def test_a_worker_that_hangs_is_ended(tmp_path: Path, bench: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = f"""
        import os, time
        def llama_tokenize(*a):
            open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
            time.sleep(600)
    """
    monkeypatch.setattr(module, "LOAD_SECONDS", 1.0)
    start = time.monotonic()
    result = run(bench, make_binding(tmp_path, more))
    assert result.basis == "bounds" and "still at work" in result.reason
    assert time.monotonic() - start < 30
    assert_gone(int((tmp_path / "pid").read_text()))


def test_an_interrupt_ends_the_worker(tmp_path: Path, bench: Path) -> None:
    more = f"""
        import os, time
        def llama_backend_init():
            open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
            os.write(1, b'{{"done": 1}}\\n')
            time.sleep(600)
    """

    def interrupt(done: float, remark: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(bench, make_binding(tmp_path, more), advance=interrupt)
    assert_gone(int((tmp_path / "pid").read_text()))


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_worker_sees_no_llama_variables_and_no_strange_modules(
    tmp_path: Path, bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere" / "llama_cpp").mkdir(parents=True)
    (tmp_path / "elsewhere" / "llama_cpp" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "1")
    more = """
        import os
        names = [name for name in os.environ if name.startswith("LLAMA_")]
        assert names == ["LLAMA_CPP_LIB_PATH"], names
    """
    assert run(bench, make_binding(tmp_path, more)).reason == ""


def test_relative_paths_are_understood(tmp_path: Path, binding: Binding, bench: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(Path("x.bin"), Binding(Path("site"), Path("lib"))).basis == "tokens"


# The cache


def break_worker(binding: Binding) -> None:
    (binding.site / "llama_cpp" / "llama_cpp.py").write_text("raise SystemExit('started again')")


def test_a_second_preflight_starts_nothing(bench: Path, binding: Binding) -> None:
    first = run(bench, binding)
    break_worker(binding)
    again = run(bench, binding, replace(FACTS, quantization="Q4_0", parts=(Path("other.gguf"),)))
    assert again.cached and not first.cached
    assert replace(again, cached=False, seconds=0.0) == replace(first, seconds=0.0)


def change_benchmark(bench: Path, binding: Binding, model: ModelFacts) -> ModelFacts:
    mcbin.write(bench, TASKS[::-1])
    return model


def change_tokenizer(bench: Path, binding: Binding, model: ModelFacts) -> ModelFacts:
    return replace(model, tokenizer_sha256="another")


def change_library(bench: Path, binding: Binding, model: ModelFacts) -> ModelFacts:
    (binding.lib / "libllama.so").write_bytes(b"another library")
    return model


def change_binding(bench: Path, binding: Binding, model: ModelFacts) -> ModelFacts:
    (binding.site / "llama_cpp_python-0.3.36.dist-info").rename(binding.site / "llama_cpp_python-0.3.37.dist-info")
    return model


@pytest.mark.parametrize("change", [change_benchmark, change_tokenizer, change_library, change_binding])
def test_what_decides_the_counts_decides_the_cache(bench: Path, binding: Binding, change: Any) -> None:
    run(bench, binding)
    model = change(bench, binding, FACTS)
    assert not run(bench, binding, model).cached
    assert run(bench, binding, model).cached


@pytest.mark.parametrize("suffix", [".json", ".counts"])
@pytest.mark.parametrize("damage", [lambda p: p.write_bytes(p.read_bytes()[:-1]), lambda p: p.unlink()])
def test_a_damaged_cache_is_counted_again(bench: Path, binding: Binding, cache: Path, suffix: str, damage: Any) -> None:
    first = run(bench, binding)
    (entry,) = (cache / "preflight").glob(f"*{suffix}")
    if suffix == ".json" and entry.exists():
        entry.write_text("{" + entry.read_text())
    damage(entry)
    again = run(bench, binding)
    assert not again.cached and again.required == first.required


def test_bounds_are_not_remembered(tmp_path: Path, bench: Path) -> None:
    broken = make_binding(tmp_path, "raise ImportError")
    assert run(bench, broken).basis == "bounds"
    (broken.site / "llama_cpp" / "llama_cpp.py").write_text(textwrap.dedent(FAKE_BINDING))
    assert run(bench, broken).basis == "tokens"


def test_a_cache_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, bench: Path, binding: Binding, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LLMC_CACHE", str(tmp_path / "file" / "below"))
    assert run(bench, binding).basis == "tokens"
