"""What llmc reads out of a command line that is not its own."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.runs.command import read_command

PLAIN = "llama-perplexity -m model.gguf --multiple-choice -bf tasks.bin"


@pytest.mark.parametrize(
    "line",
    [
        PLAIN,
        "llama-perplexity --model model.gguf --multiple-choice --binary-file tasks.bin",
        "llama-perplexity --multiple-choice -bf other.bin -m other.gguf -bf tasks.bin -m model.gguf",
        "/opt/llama.cpp/build/bin/llama-perplexity -bf tasks.bin -m model.gguf --multiple-choice",
        "./llama-perplexity-cuda -bf tasks.bin -m model.gguf --multiple-choice",
        "./perplexity -bf tasks.bin -m model.gguf --multiple-choice",
        "llamafile-perplexity -bf tasks.bin -m model.gguf --multiple-choice",
        "llama perplexity -bf tasks.bin -m model.gguf --multiple-choice",
        "/usr/bin/llama perplexity -bf tasks.bin -m model.gguf --multiple-choice",
        f"env X=1 nice -n 5 {PLAIN}",
        f"numactl -m 0 -N 1 {PLAIN}",
        f"timeout -k 5 -f 100 {PLAIN}",
        f"taskset -c 0-3 stdbuf -oL {PLAIN}",
        "my-build -m model.gguf --multiple-choice -bf tasks.bin",
        "nice ./my-build -m model.gguf --multiple-choice -bf tasks.bin",
        f"sh -c '{PLAIN}'",
        f"/bin/bash -lc 'cd . && A=1 {PLAIN} -t 4 2>&1 | tee log.txt'",
        f"env A=1 bash -ec '{PLAIN}; echo done'",
        "llama-perplexity --model model.gguf --multiple_choice --binary_file tasks.bin",  # as llama.cpp reads it
        f"sh ./wrapper.sh {PLAIN} -c 128",  # the engine's -c, not the shell's
        f"bash -x -- ./wrapper.sh {PLAIN} -c 128",
        f"sh -c 'A=1\n{PLAIN}\ncp -f here there'",
        f"sh -c 'exec \"$@\"' sh {PLAIN}",
        "llama-perplexity -p --hellaswag -m model.gguf --multiple-choice -bf tasks.bin",
        "llama-perplexity -m model.gguf --multiple-choice -bf tasks.bin --multiple-choice-tasks nonsense",
    ],
)
def test_finds_model_and_file(line: str) -> None:
    command = read_command(shlex.split(line))
    assert (command.model, command.binary_file) == ("model.gguf", "tasks.bin")
    assert command.multiple_choice
    assert command.findings() == []


@pytest.mark.parametrize(
    ("line", "reasons"),
    [
        ("llama-perplexity -m m -bf t.bin", ["no --multiple-choice"]),
        ("llama-perplexity -m m --multiple-choice", ["no -bf"]),
        ("llama-perplexity -m m --multiple-choice -f t.bin", ["-f t.bin"]),
        ("llama-perplexity -m m --multiple-choice --file t.bin", ["-f t.bin"]),
        ("llama-perplexity -m m --multiple-choice -bf t.bin -f wiki.txt", ["-f wiki.txt"]),
        ("llama-perplexity -m m --multiple-choice -bf t.bin --hellaswag", ["--hellaswag"]),
        ("llama-perplexity -m m --multiple-choice -bf t.bin --winogrande", ["--winogrande"]),
        ("llama-perplexity -m m --multiple-choice -bf t.bin --kl-divergence", ["--kl-divergence"]),
        ("llama-perplexity -m m -f wiki.txt", ["no --multiple-choice", "-f wiki.txt"]),
        ("llama-perplexity --multiple-choice -bf=t.bin", ["no -bf"]),
        ("ls -l", ["no --multiple-choice", "no -bf"]),
        ("llama-perplexity", ["no --multiple-choice", "no -bf"]),
    ],
)
def test_what_is_no_multiple_choice_run(line: str, reasons: list[str]) -> None:
    (finding,) = read_command(line.split()).findings()
    assert (finding.slug, finding.severity) == ("not-multiple-choice", "error")
    for reason in reasons:
        assert reason in finding.detail


@pytest.mark.parametrize(
    ("words", "subset"),
    [
        ("", None),
        ("--multiple-choice-tasks 5", 5),
        ("--multiple-choice-tasks -1", -1),
        ("--multiple-choice-tasks x", None),
        ("--multiple-choice-tasks 5 --multiple-choice-tasks 7", 7),
        ("--multiple-choice-tasks", None),
    ],
)
def test_subset(words: str, subset: int | None) -> None:
    assert read_command(f"{PLAIN} {words}".split()).subset == subset


def test_assignments_before_the_program_are_kept() -> None:
    command = read_command(["env", "LLAMA_ARG_MODEL=m=1.gguf", *PLAIN.split(), "NOT=one"])
    assert command.assigned == {"LLAMA_ARG_MODEL": "m=1.gguf"}
    assert command.program == ("llama-perplexity",)


def test_the_sub_command_belongs_to_the_program() -> None:
    command = read_command(["nice", "/usr/bin/llama", "perplexity", "-m", "x"])
    assert command.program == ("/usr/bin/llama", "perplexity")


def test_a_value_that_looks_like_the_program_is_no_program() -> None:
    command = read_command(shlex.split("./mine -m my-perplexity.gguf --multiple-choice -bf t.bin"))
    assert (command.model, command.program) == ("my-perplexity.gguf", ())


@given(
    st.lists(st.one_of(st.text(), st.sampled_from(["sh", "-c", "-m", "-bf", "llama", "perplexity", "'", "env", "--"])))
)
def test_any_words_are_read(words: list[str]) -> None:
    command = read_command(words)
    assert command.findings() or command.binary_file is not None


@pytest.mark.parametrize(("line", "nothing"), [("./run.sh", True), ("sh ./run.sh 3", True), (PLAIN, False)])
def test_a_command_line_may_show_nothing(line: str, nothing: bool) -> None:
    assert read_command(shlex.split(line)).shows_nothing is nothing
