"""Bytes to facts: every layout, any cut, any bytes."""

from __future__ import annotations

import random
import re
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_output import LAYOUTS, TALKATIVE, Output, render, row_lines
from llmc.engine.lines import MAX_LINE
from llmc.engine.rows import read_rows
from llmc.engine.transcript import MAX_FACTS, Transcript, TranscriptParser, parse

CORRECT = "101100111000"
marks = st.text("01", min_size=1, max_size=40)


def accuracies(correct: str) -> list[int]:
    return [int(line.split("\t")[1].replace(".", "")) for line in row_lines(correct)]


def check_whole(transcript: Transcript, correct: str, layout: str) -> None:
    assert list(transcript.row_numbers) == list(range(1, len(correct) + 1))
    assert list(transcript.accuracies) == accuracies(correct)
    assert transcript.rows_total == len(correct)
    assert transcript.bytes_read == (1687,)
    assert transcript.error_lines == ()
    assert transcript.selected == ()
    if layout == "quiet":
        assert transcript.announced == transcript.finals == transcript.chances == ()
        return
    assert transcript.announced == (len(correct),)
    [(value, error)] = transcript.finals
    assert value == pytest.approx(100 * correct.count("1") / len(correct), abs=5.1e-5)
    assert (error is None) == (len(correct) == 1)
    assert transcript.chances[0][0] == 25.0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("correct", ["1", "0", CORRECT, "0" * 7, "1" * 101])
def test_every_layout_gives_the_same_facts(layout: str, correct: str) -> None:
    output = render(layout, correct)
    check_whole(parse(stdout=output.stdout, stderr=output.stderr), correct, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", ["stdout", "stderr"])
def test_both_streams_one_after_the_other_in_one_log(layout: str, first: str) -> None:
    output = render(layout, CORRECT)
    parts = [output.stdout, output.stderr]
    check_whole(parse(combined=b"".join(parts if first == "stdout" else reversed(parts))), CORRECT, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_streams_under_each_others_name(layout: str) -> None:
    output = render(layout, CORRECT)
    check_whole(parse(stdout=output.stderr, stderr=output.stdout), CORRECT, layout)


@pytest.mark.parametrize("layout", TALKATIVE)
def test_a_selection(layout: str) -> None:
    output = render(layout, "10011", tasks=12)
    transcript = parse(stdout=output.stdout, stderr=output.stderr)
    assert transcript.announced == (12,)
    assert transcript.selected == ((5, 12),)
    assert list(transcript.accuracies) == accuracies("10011")


@given(marks, st.sampled_from(LAYOUTS), st.randoms(use_true_random=False), st.integers(1, 60))
def test_where_the_pieces_end_does_not_matter(correct: str, layout: str, rng: random.Random, step: int) -> None:
    output = render(layout, correct)
    whole = parse(stdout=output.stdout, stderr=output.stderr, combined=output.stderr + output.stdout)
    parser = TranscriptParser()
    left = {"stdout": output.stdout, "stderr": output.stderr, "combined": output.stderr + output.stdout}
    while any(left.values()):
        name = rng.choice([name for name, data in left.items() if data])
        size = rng.randint(1, step)
        parser.feed(name, left[name][:size])  # type: ignore[arg-type]
        left[name] = left[name][size:]
    assert parser.close() == whole


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_raise_and_no_cut_matters(pieces: list[bytes]) -> None:
    parser = TranscriptParser()
    for piece in pieces:
        parser.feed("combined", piece)
        parser.feed("stdout", piece)
    whole = parse(stdout=b"".join(pieces), combined=b"".join(pieces))
    assert parser.close() == whole


ALPHABET = [
    b"1\t50.00000000\n", b"12", b"\t", b"0.02.379.816 I ", b"Final result: 50.0000 +/- 1.0000", b"\n", b"...",
    b"\x1b[34m", b"\r", b'{"type":"log","msg":"', b'"}', b"multiple_choice_score: ", b"no tasks", b"done", b"\0",
    b"print_info: general.name = x", b"\xff", b"task 3 does not fit in the context window", b"error: ",
]  # fmt: skip


@given(st.lists(st.sampled_from(ALPHABET), max_size=60), st.integers(1, 9))
def test_fragments_in_any_order(words: list[bytes], step: int) -> None:
    data = b"".join(words)
    parser = TranscriptParser()
    for at in range(0, len(data), step):
        parser.feed("combined", data[at : at + step])
        parser.feed("stderr", data[at : at + step])
    assert parser.close() == parse(stderr=data, combined=data)


def mixed(output: Output, rng: random.Random, cut: str) -> bytes:
    """Both streams in one log, in turns of a few lines; the streams named in ``cut`` end within a line too."""
    left = {"stderr": output.stderr, "stdout": output.stdout}
    log = b""
    while any(left.values()):
        for name, data in left.items():
            lines = rng.randint(1, 6)
            end = next((m.end() for i, m in enumerate(re.finditer(rb"\n", data), 1) if i == lines), len(data))
            if name in cut:
                end = min(len(data), end + rng.randint(0, 30))
            log += data[:end]
            left[name] = data[end:]
    return log


def check_mixed(transcript: Transcript, correct: str) -> None:
    assert list(transcript.row_numbers) == list(range(1, len(correct) + 1))
    assert list(transcript.accuracies) == accuracies(correct)
    assert len(transcript.finals) == len(transcript.chances) == 1
    assert transcript.announced == (len(correct),)
    assert transcript.error_lines == ()


MIXABLE = ["mainline", "colours", "no-prefix", "old", "ik"]
some_marks = st.text("01", min_size=1, max_size=40)
randoms = st.randoms(use_true_random=False)


@given(some_marks, st.sampled_from(MIXABLE), randoms)
def test_two_streams_mixed_by_the_line(correct: str, layout: str, rng: random.Random) -> None:
    check_mixed(parse(combined=mixed(without_metadata(render(layout, correct)), rng, "")), correct)


@settings(max_examples=200)
@given(some_marks, st.sampled_from(["no-prefix", "old"]), randoms)
def test_rows_cut_by_messages(correct: str, layout: str, rng: random.Random) -> None:
    check_mixed(parse(combined=mixed(without_metadata(render(layout, correct)), rng, "stdout")), correct)


@settings(max_examples=300)
@given(some_marks, st.sampled_from(MIXABLE), randoms)
def test_what_cannot_be_put_together_is_seen_to_be_missing(correct: str, layout: str, rng: random.Random) -> None:
    transcript = parse(combined=mixed(without_metadata(render(layout, correct)), rng, "stdout stderr"))
    evidence = read_rows(transcript)
    if evidence.count == len(correct):
        assert evidence.correct in (correct, None)


def without_metadata(output: Output) -> Output:
    """Load-time lines come before the first task line in any log, whoever mixed it."""
    kept = [line for line in output.stderr.splitlines(keepends=True) if not re.search(rb"llama_|print|Nasty", line)]
    drop = re.compile(rb"(1\t100\.00000000|Final result: 99|multiple_choice_score: no tasks|7\t9\.0)")
    return replace(output, stderr=b"".join(line for line in kept if not drop.match(line)))


@pytest.mark.parametrize(
    ("log", "rows", "finals"),
    [
        (b"1\t0.00000000\n2\t50.0000.02.379.816 I Final result: 50.0000 +/- 50.0000\n00000\n", 2, 1),
        (b"1\t0.00000000\n20.02.379.816 I Final result: 50.0000 +/- 50.0000\n\t50.00000000\n", 2, 1),
        (b"1\t0.00000000\n0.02.379.816 I Final res2\t50.00000000\nult: 50.0000 +/- 50.0000\n", 2, 1),
        (b"1\t0.00000000\n0.02.379.812\t50.00000000\n6 I Final result: 50.0000 +/- 50.0000\n", 2, 1),
        (b"1\t0.00000000\n2\t50.0llama_perf: whatever\n0000000\nFinal result: 50.0000 +/- 50.0000\n", 2, 1),
        (b"1\t0.00000000\n2\t50.0Final result: 50.0000 +/- 50.0000\n000000\n", 1, 1),  # 7 decimals: no row
        (b"1\t0.00000000\n2\t50.0Final result: 50.0000 +/- 50.0000\n00000000\n", 1, 1),
    ],
)
def test_halves_are_put_together_only_where_they_fit(log: bytes, rows: int, finals: int) -> None:
    transcript = parse(combined=log)
    assert (transcript.rows_total, len(transcript.finals)) == (rows, finals)
    if rows == 2:
        assert list(transcript.accuracies) == [0, 50 * 10**8]
        assert "cut-lines" in transcript.layout


PREFIX = b"0.01.088.754 E "


@pytest.mark.parametrize(
    ("line", "kind", "task", "needed"),
    [
        (b"multiple_choice_score: no tasks", "no-tasks", None, None),
        (b"multiple_choice_score: failed to read task positions from prompt", "task-positions", None, None),
        (b"multiple_choice_score: failed to read task 8 of 8", "read-task", 7, None),
        (b"multiple_choice_score: failed to read task 8 at position 812", "read-task", 8, None),
        (b"multiple_choice_score: found 1 malformed tasks", "malformed-tasks", None, None),
        (b"multiple_choice_prepare_one_task: found bad task with empty question", "bad-task", None, None),
        (b"multiple_choice_prepare_one_task: found empty answer", "bad-task", None, None),
        (b"multiple_choice_score : task 3 requires a higher -np|--parallel value (at least 8)", "options", 3, 8),
        (b"multiple_choice_score : task 3 does not fit in the context window (requires 230 tokens)", "context", 3, 230),
        (b"multiple_choice_score : task 3 does not fit in the context window", "context", 3, None),
        (b"multiple_choice_score: llama_decode() failed", "decode", None, None),
        (b"failed to decode the batch, n_batch = 2048, ret = 1", "decode", None, None),
        (b"decode_helper: failed to decode the batch, n_batch = 2048, ret = -3", "decode", None, None),
        (b"decode: failed to find a memory slot for batch of size 46", "memory-slot", None, None),
        (b"split_equal: sequential split is not supported when there are coupled sequences in the input batch "
         b"(you may need to use the -kvu flag)", "coupled-sequences", None, None),
        (b"process_ubatch: failed to compute graph, compute status: -1", "compute", None, None),
        (b'error while handling argument "-bf": error: failed to open file \'no.bin\'', "argument", None, None),
        (b"error: unknown argument: --frobnicate", "argument", None, None),
        (b"error: invalid argument: --frobnicate", "argument", None, None),
        (b"error: invalid parameter for argument: -bf", "argument", None, None),
        (b"error: failed to open file 'no.bin'", "open-file", None, None),
        (b"llama_perplexity: unable to load model", "load-model", None, None),
        (b"main: error: unable to load model", "load-model", None, None),
        (b"llama_model_load: error loading model: missing tensor 'x'", "load-model", None, None),
        (b"gguf_init_from_file: failed to open GGUF file 'no.gguf'", "load-model", None, None),
        (b"cmn  common_init_: failed to create context with model 'm'", "create-context", None, None),
        (b"llama_perplexity: failed to create context", "create-context", None, None),
        (b"llama_init_from_model: failed to initialize the context: n_seq_max must be <= 256", "too-many-sequences",
         None, None),
        (b"llama_perplexity: perplexity tool requires '--ctx-size' > 0", "context-size", None, None),
        (b"/src/ggml/src/ggml.c:3021: GGML_ASSERT(a->ne[2] == b->ne[0]) failed", "assertion", None, None),
        (b"GGML_ASSERT: ggml.c:3021: a", "assertion", None, None),
        (b"/src/ggml-cuda/ggml-cuda.cu:109: CUDA error", "abort", None, None),
        (b"CUDA error: out of memory", "device", None, None),
        (b"ggml_metal_graph_compute: command buffer 0 failed with status 5", "device", None, None),
        (b"terminate called after throwing an instance of 'std::bad_alloc'", "exception", None, None),
        (b"  what():  std::bad_alloc", "exception", None, None),
        (b"libc++abi: terminating due to uncaught exception of type std::bad_alloc", "exception", None, None),
        (b"Segmentation fault (core dumped)", "killed", None, None),
        (b"bash: line 1: 12345 Killed                  llama-perplexity -m x", "killed", None, None),
    ],
)  # fmt: skip
def test_every_known_error(line: bytes, kind: str, task: int | None, needed: int | None) -> None:
    for form in (line, PREFIX + line, b"\x1b[31mE " + line + b"\x1b[0m", b"...0.01.088.754 I " + line):
        if form != line and line.startswith(b"  "):
            continue
        transcript = parse(combined=b"some line\n" + form + b"\n")
        assert [(e.kind, e.task, e.needed) for e in transcript.error_lines] == [(kind, task, needed)], form
        assert transcript.error_lines[0].text == line.decode().strip()


@pytest.mark.parametrize(
    "line",
    [
        b"llama_model_loader: - kv   2: general.name str = error: unknown argument",
        b"llama_model_loader: - kv   2: general.name str = Final result: 100.0000 +/- 0.0000",
        b"llama_model_loader: - kv   2: general.name str = 13\t100.00000000",
        b"llama_model_loader: - kv   2: general.name str = multiple_choice_score: no tasks",
        b"print_info: general.name          = GGML_ASSERT(x) failed",
        b"print_info: LF token              = 198 'multiple_choice_score: there are 5 tasks in prompt'",
        b"common_fit_params: encountered an error while trying to fit params to free device memory: failed to "
        b"create llama_context from model",
        b"cmn  common_init_: (for bugs during this step try to reproduce them with -fit off)",
        b"The Final result: 100.0000 +/- 0.0000",
        b"Final result: 100.0000 +/- 0.0000 or so",
        b"Final result: 100.00",
        b"13\t100.0000000",
        b"13\t100.000000000",
        b"13 100.00000000",
        b" 13\t100.00000000",
        b"-13\t100.00000000",
        b"13\t-100.00000000",
        b"13\tnan",
        b"hellaswag 13\t100.00000000%",
        b"12345678901\t100.00000000",
        b"multiple_choice_score: there are many tasks in prompt",
        b"Read some bytes from binary file x",
        b'{"type":"log","time":1,"level":"info","msg":"print_info: x\\n13\\t100.00000000\\n"}',
        b'{"type":"log","time":1,"level":"info","msg":"13\\t100.00000000\\n"}',
        b'{"type":"log","time":1,"level":"info","msg":"x\\nFinal result: 100.0000 +/- 0.0000\\n"}',
        b'{"type":"other","msg":"Final result: 100.0000 +/- 0.0000\\n"}',
        b'{"type":"log","msg":5}',
        b'{"' + b"[" * 5000,
    ],
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_what_only_looks_like_output_is_not_taken_for_it(line: bytes, place: str) -> None:
    plain = render("mainline", CORRECT)
    extra = line + b"\n"
    stderr = extra + plain.stderr if place == "before" else plain.stderr + extra
    check_whole(parse(stdout=plain.stdout, stderr=stderr), CORRECT, "mainline")
    check_whole(parse(combined=plain.stdout + stderr), CORRECT, "mainline")
    check_whole(parse(combined=stderr + plain.stdout), CORRECT, "mainline")


def test_rows_behind_progress_dots() -> None:
    assert parse(stdout=b"....1\t100.00000000\n").rows_total == 1
    assert parse(combined=b"multiple_choice_score: reading tasks...1\t100.00000000\n").rows_total == 1


@pytest.mark.parametrize("number", ["-nan", "nan", "inf", "-inf", "-nan(ind)"])
def test_what_is_not_finite_is_none(number: str) -> None:
    transcript = parse(combined=f"Final result: 100.0000 +/- {number}\nRandom chance: {number} +/- inf\n".encode())
    assert transcript.finals == ((100.0, None),)
    if "(" not in number:
        assert transcript.chances == ((None, None),)


def test_a_last_line_without_newline_counts_when_it_is_whole() -> None:
    assert parse(combined=b"1\t100.00000000").rows_total == 1
    assert parse(combined=b"1\t100.0000000").rows_total == 0
    assert parse(combined=b"Final result: 50.0000 +/- 1.0000").finals == ((50.0, 1.0),)
    assert parse(combined=b"Final result: 50.0000 +/- 1.000").finals == ()


def test_what_the_engine_says_about_itself() -> None:
    verbose = parse(stderr=render("verbose", CORRECT).stderr)
    assert (verbose.n_ctx, verbose.n_seq_max) == (512, 4)
    assert verbose.timings.load_seconds == pytest.approx(0.21529)
    assert verbose.timings.prompt_tokens == 384
    assert verbose.timings.tokens_per_second == pytest.approx(213.81, abs=0.01)
    ik = parse(stderr=render("ik", CORRECT).stderr)
    assert (ik.build, ik.seed, ik.n_ctx) == ("4840 (0123abcd)", 1234, 512)
    assert parse().timings.tokens_per_second is None


@pytest.mark.parametrize(
    ("layout", "notes"),
    [("mainline", {"prefix"}), ("colours", {"colours", "prefix"}), ("jsonl", {"jsonl"}), ("ik", {"printf"}),
     ("windows", {"crlf"}), ("no-prefix", set()), ("quiet", set())],
)  # fmt: skip
def test_layout_notes(layout: str, notes: set[str]) -> None:
    output = render(layout, CORRECT)
    assert set(parse(stdout=output.stdout, stderr=output.stderr).layout) == notes


def test_live_figures() -> None:
    parser = TranscriptParser()
    parser.expected = 4
    assert (parser.rows, parser.announced, parser.running_accuracy) == (0, None, None)
    assert not parser.said_everything
    parser.feed("stderr", b"multiple_choice_score: there are 9 tasks in prompt\n")
    assert parser.announced == 9
    parser.feed("stderr", b"multiple_choice_score: selecting 4 random tasks from 9 tasks available\n")
    assert parser.announced == 4
    parser.feed("stdout", b"1\t100.00000000\n2\t100.00000000\n3\t66.666")
    assert (parser.rows, parser.running_accuracy) == (2, 100.0)
    parser.feed("stdout", b"66667\n4\t50.00000000\n")
    assert (parser.rows, parser.running_accuracy) == (4, pytest.approx(50.0))
    assert parser.said_everything
    parser.expected = 5
    assert not parser.said_everything
    parser.feed("stderr", b"Final result: 50.0000 +/- 28.8675\n")
    assert parser.said_everything


def test_rows_beyond_the_limit_are_counted_not_kept() -> None:
    data = "".join(f"{line}\n" for line in row_lines("1" * 100)).encode()
    for pieces in ([data], [data[i : i + 7] for i in range(0, len(data), 7)]):
        parser = TranscriptParser(max_rows=10)
        for piece in pieces:
            parser.feed("stdout", piece)
        transcript = parser.close()
        assert (len(transcript.row_numbers), len(transcript.accuracies), transcript.rows_total) == (
            10,
            10,
            100,
        )


@pytest.mark.parametrize("length", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, MAX_LINE + 2, 3 * MAX_LINE])
@pytest.mark.parametrize("step", [997, 1 << 20])
def test_a_line_without_end_is_passed_over(length: int, step: int) -> None:
    data = b"." * (length - 14) + b"1\t100.00000000\n1\t100.00000000\n"
    parser = TranscriptParser()
    for at in range(0, len(data), step):
        parser.feed("stdout", data[at : at + step])
    assert parser.close().rows_total == (2 if length <= MAX_LINE else 1)


def test_memory_is_bounded_whatever_comes() -> None:
    parser = TranscriptParser(max_rows=1000)
    tracemalloc.start()
    for _ in range(60):
        parser.feed("combined", b"x" * (1 << 20))
    parser.feed("combined", b"\n" + b"multiple_choice_score: no tasks\n" * 20_000)
    parser.feed("combined", b"1\t100.00000000\n" * 200_000)
    transcript = parser.close()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 << 20
    assert len(transcript.error_lines) == MAX_FACTS
    assert transcript.rows_total == 200_000
