"""``llmc exec`` around the real engine, with the model whose answers are known by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from llmc import mcbin
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.locate import EngineFiles
from llmc.engine.probe import known_tasks
from llmc.runs.record import RunRecord, load_record

pytestmark = pytest.mark.real
# llama.cpp does not flush its log when it exits. With an ordinary model the memory that is freed before gives
# its logging thread the time; with the smallest one the last lines are lost in one run of ten.
PADDING = 20_000
MODEL = KnownAnswerModel(padding=PADDING)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODEL.write(tmp_path_factory.mktemp("model") / "known.gguf")


class Real:
    def __init__(self, folder: Path, engine: tuple[str, ...], model: Path) -> None:
        self.folder, self.engine, self.model = folder, engine, model
        self.bench = folder / "tasks.bin"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_")}
        self.environment["XDG_CONFIG_HOME"] = str(folder / "config")

    def words(self, *more: str) -> list[str]:
        given = ["-m", str(self.model), "-c", "256", "-np", "8", "--multiple-choice", "-bf", str(self.bench)]
        return [*self.engine, *given, *more]

    def llmc(self, words: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "llmc", "exec", "--", *words]
        return subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, timeout=120)

    def start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from llmc.__main__ import run; sys.exit(run(['exec', '--', *sys.argv[1:]]))"
        )
        command = [sys.executable, "-c", code, *words]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE)

    @property
    def record(self) -> RunRecord:
        (folder,) = (self.folder / "out" / "runs").iterdir()
        return load_record(folder)

    @property
    def slugs(self) -> set[str]:
        return {f.slug for f in self.record.findings}


@pytest.fixture
def real(tmp_path: Path, real_engine: EngineFiles, model: Path) -> Real:
    made = Real(tmp_path, real_engine.command, model)
    mcbin.write(made.bench, known_tasks())
    return made


@pytest.mark.parametrize(
    "flags",
    [[], ["--log-colors", "on"], ["--log-jsonl"], ["--no-log-prefix"], ["-lv", "4"]],
    ids=lambda flags: " ".join(flags) or "plain",
)
def test_known_answers_are_trusted_and_exact(real: Real, flags: list[str]) -> None:
    plain = subprocess.run(real.words(*flags), env=real.environment, capture_output=True, timeout=60)
    if plain.returncode == 1 and b"invalid argument" in plain.stderr:
        pytest.skip(f"this engine does not know {flags[0]}")
    done = real.llmc(real.words(*flags))
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert real.record.status == "trusted"
    assert real.record.correct == "".join(
        str(int(MODEL.choice(task.question, task.options) == task.gold)) for task in known_tasks()
    )
    if "--log-jsonl" not in flags:
        assert done.stdout.rstrip() == plain.stdout.rstrip()


def test_the_order_of_llama_s_own_selection(real: Real) -> None:
    done = real.llmc(real.words("--multiple-choice-tasks", "5"))
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert real.record.counts.expected == real.record.counts.scored == 5


def _few_sequences(real: Real) -> list[str]:
    return [*real.words(), "-np", "4"]


def _short_context(real: Real) -> list[str]:
    mcbin.write(real.bench, [*known_tasks(), mcbin.Task("x" * 4000, ("A", "B"), 0)])
    return real.words()


def _truncated(real: Real) -> list[str]:
    real.bench.write_bytes(real.bench.read_bytes()[:-9])
    return real.words()


def _escaped(real: Real) -> list[str]:
    mcbin.write(real.bench, [mcbin.Task("C:\\new\\table\\x41 is", ("one", "two"), 0)] * 3)
    return real.words("-e")


def _silenced(real: Real) -> list[str]:
    return real.words("--log-disable")


def _another_mode(real: Real) -> list[str]:
    return real.words("--hellaswag")


def _config(real: Real) -> list[str]:
    _escaped(real)
    file = real.folder / "config" / "llama.cpp" / "config.ini"
    file.parent.mkdir(parents=True)
    file.write_text("escape = on\n")
    return real.words()


@pytest.mark.parametrize(
    ("make", "slugs"),
    [
        (_few_sequences, {"too-many-options"}),
        (_short_context, {"context-too-small"}),
        (_truncated, {"bad-binary"}),
        # The error is the last thing that the engine says, and may be lost with its log.
        (_escaped, {"error-line", "no-output"}),
        (_silenced, {"no-output"}),
        (_another_mode, {"not-multiple-choice"}),
    ],
)
def test_silent_failures_of_the_real_engine(real: Real, make: Callable[[Real], list[str]], slugs: set[str]) -> None:
    done = real.llmc(make(real))
    if done.returncode == 1:
        pytest.skip("this engine reports that failure by its exit code")
    assert done.returncode == 3, done.stderr.decode(errors="replace")
    assert slugs & real.slugs
    assert real.record.result is None


def test_settings_from_a_config_file_are_caught_where_they_break_the_run(real: Real) -> None:
    done = real.llmc(_config(real))
    assert "environment-in-force" in real.slugs
    if done.returncode == 0:
        pytest.skip("this engine reads no config.ini")
    assert done.returncode == 3, done.stderr.decode(errors="replace")
    assert real.record.result is None


def test_hidden_diagnostics_are_a_warning(real: Real) -> None:
    real.environment["LLAMA_ARG_LOG_VERBOSITY"] = "0"
    done = real.llmc(real.words())
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert "environment-in-force" in real.slugs


@pytest.mark.parametrize("words", [["-m", "missing.gguf"], ["-bf", "missing.bin"], ["--no-such-flag"]])
def test_the_engine_s_own_exit_code(real: Real, words: list[str]) -> None:
    assert real.llmc(real.words(*words)).returncode == 1
    assert "exit-status" in real.slugs


def test_nan_weights_are_named_as_a_warning(real: Real, tmp_path: Path) -> None:
    real.model = KnownAnswerModel(nan=True, padding=PADDING).write(tmp_path / "nan.gguf")
    tasks = [mcbin.Task(f"Question {i} is", ("first", "second", "third"), i % 3) for i in range(30)]
    mcbin.write(real.bench, tasks)
    done = real.llmc(real.words())
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert "always-one-position" in real.slugs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopping_leaves_no_engine_behind(real: Real, number: int) -> None:
    tasks = (mcbin.Task(f"{i} " + "x" * 200, ("one", "two"), 0) for i in range(20_000))
    mcbin.write(real.bench, tasks)
    with real.start(real.words()) as process:
        assert process.stdout is not None
        text = b""
        while b"\n3\t" not in text:
            data = os.read(process.stdout.fileno(), 4096)
            assert data, "the engine ended before it was interrupted"
            text += data
        process.send_signal(number)
        begin = time.monotonic()
        process.stdout.read()  # ends when nobody holds the pipe any more
        code = process.wait(20)
        assert time.monotonic() - begin < 5
    assert not _named_in_a_process(str(real.bench))
    if number == signal.SIGINT:
        assert code == 130
        assert real.record.status == "interrupted"


def _named_in_a_process(text: str) -> list[str]:
    until = time.monotonic() + 2
    while True:
        listed = subprocess.run(["ps", "-axww", "-o", "args"], capture_output=True, text=True).stdout.splitlines()
        found = [line for line in listed if text in line]
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)
