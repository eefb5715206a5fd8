"""``llmc exec`` around a fake engine that fails on demand."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fake_engine
from llmc import mcbin
from llmc.__main__ import run as llmc
from llmc.runs.record import RunRecord, load_record
from llmc.runs.store import Store

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="tracked by the kernel on Linux only")
RIGHT = [1, 0, 1, 1, 0, 1, 1, 1, 0, 1]


def tasks() -> list[mcbin.Task]:
    """Ten questions with golds at every position, and of several widths."""
    return [
        mcbin.Task(f"Question {i} is about", tuple(f"answer {i}{c}" for c in "abcde"[: 3 + i % 2]), i % 3)
        for i in range(10)
    ]


@dataclass
class Exec:
    """A folder with an engine, a model, a benchmark, and the commands that use them."""

    folder: Path
    engine: Path
    model: Path
    bench: Path

    @property
    def command(self) -> list[str]:
        return [str(self.engine), "-m", str(self.model), "-np", "4", "--multiple-choice", "-bf", str(self.bench)]

    def __call__(self, *options: str, command: list[str] | None = None) -> int:
        """Run in this process; return the exit code."""
        words = self.command if command is None else command
        return llmc(["exec", "--out", str(self.folder / "out"), *options, "--", *words])

    def start(self, *options: str, command: list[str] | None = None, **popen: Any) -> subprocess.Popen[bytes]:
        """Run in a process of its own, which obeys Ctrl-C whatever the tests were started from."""
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from llmc.__main__ import run; sys.exit(run(sys.argv[1:]))"
        )
        words = ["exec", "--out", str(self.folder / "out"), *options, "--", *(command or self.command)]
        popen = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": self.folder, **popen}
        return subprocess.Popen([sys.executable, "-c", code, *words], **popen)

    @property
    def record_folder(self) -> Path:
        (folder,) = (self.folder / "out" / "runs").iterdir()
        return folder

    @property
    def record(self) -> RunRecord:
        return load_record(self.record_folder)

    @property
    def slugs(self) -> set[str]:
        return {f.slug for f in self.record.findings}

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def exec_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exec]:
    for name in [n for n in os.environ if n.startswith(("LLAMA_", "FAKE_ENGINE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(tmp_path / "calls"))
    monkeypatch.setenv("FAKE_ENGINE_MARK", str(tmp_path / "mark"))
    monkeypatch.chdir(tmp_path)
    model, bench = tmp_path / "model.gguf", tmp_path / "tasks.bin"
    model.write_bytes(b"GGUF no real model")
    mcbin.write(bench, tasks())
    yield Exec(tmp_path, fake_engine.install(tmp_path / "bin"), model, bench)


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setenv("FAKE_ENGINE", text)


def wait_for(path: Path) -> None:
    until = time.monotonic() + 15
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} did not appear"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


# ---- what is right is trusted


@pytest.mark.parametrize("layout", ["", "printf", "old", "jsonl", "colours", "no-prefix", "crlf"])
def test_a_complete_run_is_trusted(exec_: Exec, mode: Callable[[str], None], layout: str) -> None:
    mode(layout)
    assert exec_() == 0
    record = exec_.record
    assert (record.status, record.kind, record.findings) == ("trusted", "exec", ())
    assert record.counts.model_dump() == {"in_file": 10, "announced": 10, "expected": 10, "scored": 10}
    assert record.result is not None and record.correct is not None
    assert record.result.correct == record.correct.count("1")
    assert record.argv == tuple(exec_.command)
    assert record.benchmark is not None and record.benchmark.sha256 == mcbin.scan(exec_.bench).sha256


def test_right_and_wrong_are_counted_task_by_task(exec_: Exec, mode: Callable[[str], None]) -> None:
    mode("always=1")
    assert exec_() == 0
    assert exec_.record.correct == "".join(str(int(task.gold == 1)) for task in tasks())
    assert "always-one-position" in exec_.slugs


@pytest.mark.parametrize(("answers", "correct"), [("right", "1" * 10), ("wrong", "0" * 10)])
def test_all_right_and_all_wrong(exec_: Exec, mode: Callable[[str], None], answers: str, correct: str) -> None:
    mode(answers)
    assert exec_() == 0
    assert exec_.record.correct == correct


@pytest.mark.parametrize(
    ("modes", "slug"),
    [("final=missing", "final-missing"), ("announce=missing", "not-announced"), ("quiet", "not-announced")],
)
def test_absent_evidence_warns(exec_: Exec, mode: Callable[[str], None], modes: str, slug: str) -> None:
    mode(modes)
    assert exec_() == 0
    assert exec_.record.status == "trusted"
    assert slug in exec_.slugs


def test_a_selection_that_was_asked_for(exec_: Exec) -> None:
    assert exec_(command=[*exec_.command, "--multiple-choice-tasks", "4"]) == 0
    record = exec_.record
    assert (record.counts.expected, record.counts.scored, record.counts.in_file) == (4, 4, 10)
    assert record.benchmark is not None and record.benchmark.selection is not None
    assert record.comparability is not None and "selection" in record.comparability.must


# ---- what is wrong is not

SILENT_FAILURES = {
    "cut=3": "scored-fewer",
    "skip=4": "row-gap",
    "double=4": "row-gap",
    "swap=4": "row-gap",
    "impossible=5": "impossible-accuracy",
    "extra=2": "scored-more",
    "final=wrong": "final-mismatch",
    "final=twice": "several-finals",
    "final=nan": "final-mismatch",
    "chance=wrong": "baseline-mismatch",
    "announce=99": "announced-mismatch",
    "read=5": "bytes-read-mismatch",
    "error=options,at=3": "too-many-options",
    "error=context,at=3": "context-too-small",
    "error=decode,at=3": "error-line",
    "error=malformed": "error-line",
    "silent": "no-output",
    "mute": "no-output",
    "rewrite-bench": "benchmark-changed",
    "rewrite-model": "model-changed",
    "child": "left-children",
}


@pytest.mark.parametrize("modes", SILENT_FAILURES)
def test_a_silent_failure_exits_3_without_a_score(exec_: Exec, mode: Callable[[str], None], modes: str) -> None:
    mode(modes)
    assert exec_() == 3
    record = exec_.record
    assert record.status == "untrusted"
    assert record.result is None and record.correct is None
    assert SILENT_FAILURES[modes] in {f.slug for f in record.findings if f.severity == "error"}


@linux_only
@pytest.mark.parametrize("modes", ["daemon", "orphan"])
def test_a_daemon_left_behind_is_ended_and_named(exec_: Exec, mode: Callable[[str], None], modes: str) -> None:
    mode(modes)
    assert exec_() == 3
    assert "left-children" in exec_.slugs
    assert all(gone(pid) for pid in exec_.calls()[0]["children"])


@pytest.mark.parametrize(
    ("modes", "options", "slug"),
    [
        ("hang=loading", ["--stall-timeout", "0.5"], "stalled"),
        ("hang=before", ["--stall-timeout", "0.5"], "stalled"),
        ("hang=during,ignore-term,ignore-int", ["--stall-timeout", "0.5"], "stalled"),
        ("hang=after", ["--exit-timeout", "0.3"], "did-not-exit"),
        ("hang=after,quiet", ["--exit-timeout", "0.3"], "did-not-exit"),
        ("spin=during", ["--timeout", "1", "--stall-timeout", "0.5"], "timeout"),
    ],
)
def test_an_engine_that_hangs_is_ended(
    exec_: Exec, mode: Callable[[str], None], modes: str, options: list[str], slug: str
) -> None:
    mode(modes)
    begin = time.monotonic()
    assert exec_(*options) == 3
    assert time.monotonic() - begin < 12
    assert exec_.slugs & {"stalled", "did-not-exit", "timeout"} == {slug}
    assert gone(exec_.calls()[0]["pid"])


@pytest.mark.parametrize(
    ("modes", "code", "slug"),
    [
        ("exit=1", 1, "exit-status"),
        ("exit=2", 2, "exit-status"),
        ("exit=77,at=4", 77, "exit-status"),
        ("signal=6", 134, "killed-by-signal"),
        ("signal=9,at=3", 137, "killed-by-signal"),
        ("signal=11", 139, "killed-by-signal"),
    ],
)
def test_a_failure_keeps_its_exit_code(
    exec_: Exec, mode: Callable[[str], None], modes: str, code: int, slug: str
) -> None:
    mode(modes)
    assert exec_() == code
    assert slug in exec_.slugs
    assert exec_.record.result is None


def test_a_broken_file_is_a_finding_not_a_refusal(exec_: Exec) -> None:
    exec_.bench.write_bytes(exec_.bench.read_bytes()[:-7])
    assert exec_() == 3
    assert {"bad-binary", "error-line"} <= exec_.slugs
    assert len(exec_.calls()) == 1


@pytest.mark.parametrize("file", ["missing.bin", "."])
def test_a_file_that_cannot_be_read_is_the_engine_s_own_failure(exec_: Exec, file: str) -> None:
    assert exec_(command=[*exec_.command[:-1], file]) == 1
    assert "exit-status" in exec_.slugs


@pytest.mark.parametrize("script", ["{engine}", "true\n{engine}\necho more"])
def test_a_script_that_holds_the_whole_command(exec_: Exec, script: str) -> None:
    """Its output tells what it ran; which file it was cannot be known."""
    path = exec_.folder / "run.sh"
    path.write_text(f"#!/bin/sh\n{script.format(engine=shlex.join(exec_.command))}\n")
    path.chmod(0o755)
    assert exec_(command=[str(path)]) == 0
    assert "benchmark-unknown" in exec_.slugs and "not-multiple-choice" not in exec_.slugs
    assert exec_.record.result is not None


def test_a_script_that_scores_nothing_is_none(exec_: Exec) -> None:
    assert exec_(command=["sh", "-c", "echo hello"]) == 3
    assert "not-multiple-choice" in exec_.slugs


def test_a_script_may_do_more_when_the_engine_is_done(exec_: Exec) -> None:
    script = f"{shlex.join(exec_.command)}; for i in 1 2 3 4 5 6; do sleep 0.2; echo $i; done"
    assert exec_("--exit-timeout", "0.8", command=["sh", "-c", script]) == 0
    assert "did-not-exit" not in exec_.slugs


def test_tasks_that_llama_cpp_may_get_wrong_are_named(exec_: Exec) -> None:
    mcbin.write(exec_.bench, [*tasks()[:-1], mcbin.Task("Is it?", ("Yes", "Yes, it is"), 0)])
    assert exec_() == 0
    (found,) = [each for each in exec_.record.findings if each.slug == "option-prefix"]
    assert found.severity == "warning" and "judged by text" in found.detail


def test_options_of_the_command_are_its_own(exec_: Exec, capfd: pytest.CaptureFixture[str]) -> None:
    """Without ``--`` the command begins at its first word, and ``--json`` behind that is not llmc's."""
    llmc(["exec", "--out", str(exec_.folder / "out"), "sh", "-c", "echo $0", "--json"])
    seen = capfd.readouterr()
    assert seen.out == "--json\n" and "llmc: untrusted" in seen.err


def test_the_exit_code_stands_when_the_record_cannot_go_where_it_was_asked_for(
    exec_: Exec, capfd: pytest.CaptureFixture[str]
) -> None:
    target = exec_.folder / "new" / "run.json"
    command = ["sh", "-c", "rmdir new; touch new; exit 7"]
    assert exec_("--record", str(target), command=command) == 7
    assert "could not be written" in capfd.readouterr().err
    assert exec_.record.status == "untrusted"


def test_another_mode_is_named(exec_: Exec, capfd: pytest.CaptureFixture[str]) -> None:
    assert exec_(command=[*exec_.command, "--hellaswag"]) == 3
    assert "not-multiple-choice" in exec_.slugs
    assert "--hellaswag" in capfd.readouterr().err


# ---- untouched


def test_streams_and_arguments_pass_unchanged(
    exec_: Exec, mode: Callable[[str], None], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    mode("printf,garbage")
    # Named, since libraries of the test run may have put variables past Python's os.environ.
    plain = subprocess.run(exec_.command, capture_output=True, check=True, env=dict(os.environ))
    exec_()
    seen = capfdbinary.readouterr()
    assert seen.out == plain.stdout == (exec_.record_folder / "stdout.log").read_bytes()
    assert seen.err.startswith(plain.stderr)
    assert (exec_.record_folder / "stderr.log").read_bytes() == plain.stderr
    first, second = exec_.calls()
    assert first["argv"] == second["argv"]
    assert first["env"] == second["env"]


def test_a_bare_environment_stays_bare(exec_: Exec) -> None:
    bare = {"PATH": os.environ["PATH"], "FAKE_ENGINE_LOG": str(exec_.folder / "calls"), "LLAMA_ARG_X": "1"}
    with exec_.start(env=bare) as process:
        process.communicate(timeout=30)
    given = exec_.calls()[0]["env"]
    assert {k: v for k, v in given.items() if k not in ("PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE")} == bare
    with exec_.start(env=bare, command=["env"]) as process:
        out, _ = process.communicate(timeout=30)
    assert sorted(out.decode().split()) == sorted(f"{name}={value}" for name, value in bare.items())


def test_stdin_is_inherited(exec_: Exec) -> None:
    with exec_.start(command=["cat"], stdin=subprocess.PIPE) as process:
        out, _ = process.communicate(b"typed", timeout=30)
    assert out == b"typed"


def test_output_arrives_while_the_engine_runs(exec_: Exec, mode: Callable[[str], None]) -> None:
    mode("hang=during")
    with exec_.start() as process:
        assert process.stdout is not None
        text = b""
        while b"\n5\t" not in text:
            text += os.read(process.stdout.fileno(), 4096)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_an_exit_code_stands_when_nobody_reads_the_verdict(exec_: Exec, mode: Callable[[str], None]) -> None:
    mode("cut=3")
    reader, writer = os.pipe()
    os.close(reader)
    with exec_.start(stdout=writer, stderr=writer) as process:
        os.close(writer)
        assert process.wait(30) == 3


@pytest.mark.parametrize("redirect", [">&-", "2>&-", "<&-", ">&- 2>&-", "| head -n 1"])
def test_streams_that_are_closed(exec_: Exec, redirect: str) -> None:
    words = [sys.executable, "-m", "llmc", "exec", "--", *exec_.command]
    done = subprocess.run(["sh", "-c", f'"$@" {redirect}', "sh", *words], capture_output=True, timeout=30)
    assert exec_.record.status == "trusted"
    if "2>&-" not in redirect:
        assert b"trusted" in done.stderr
    assert b"trusted" not in done.stdout
    log = (exec_.record_folder / "stdout.log").read_bytes()
    assert log.count(b"\t") == 11


def test_the_file_through_a_pipe_reaches_the_engine_whole(exec_: Exec) -> None:
    if not Path("/dev/fd").exists():
        pytest.skip("there is no /dev/fd here")
    words = [sys.executable, "-m", "llmc", "exec", "--", *exec_.command[:-1], "/dev/fd/9"]
    done = subprocess.run(
        ["sh", "-c", f'cat {exec_.bench} | "$@" 9<&0 </dev/null', "sh", *words], capture_output=True, timeout=30
    )
    assert done.returncode == 0, done.stderr.decode()
    assert exec_.record.status == "trusted"
    assert "benchmark-unknown" in exec_.slugs


def test_settings_from_outside_are_named(exec_: Exec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_LOG_VERBOSITY", "3")
    config = exec_.folder / "config" / "llama.cpp" / "config.ini"
    config.parent.mkdir(parents=True)
    config.write_text("escape = on\n")
    assert exec_(command=["env", "LLAMA_ARG_THREADS=2", *exec_.command]) == 0
    (finding,) = (f for f in exec_.record.findings if f.slug == "environment-in-force")
    for part in ("LLAMA_ARG_LOG_VERBOSITY=3", "LLAMA_ARG_THREADS=2", str(config)):
        assert part in finding.detail
    assert str(config) in exec_.record.config_files
    assert exec_.calls()[0]["env"]["LLAMA_ARG_LOG_VERBOSITY"] == "3"


def test_wrappers_are_seen_through(exec_: Exec) -> None:
    assert exec_(command=["env", "A=1", "nice", "-n", "1", *exec_.command]) == 0
    record = exec_.record
    assert record.engine is not None and record.engine.command == (str(exec_.engine),)
    assert record.model is not None and record.model.ref == str(exec_.model)


def test_relative_paths_are_those_of_the_command(exec_: Exec) -> None:
    assert exec_(command=["bin/llama-perplexity", "-m", "model.gguf", "--multiple-choice", "-bf", "tasks.bin"]) == 0
    assert exec_.record.counts.in_file == 10


# ---- what llmc itself says


def test_the_verdict_is_on_stderr_only(exec_: Exec, capfd: pytest.CaptureFixture[str]) -> None:
    exec_()
    seen = capfd.readouterr()
    assert "trusted" in seen.err and "record:" in seen.err
    assert "trusted" not in seen.out and "record:" not in seen.out


def test_an_untrusted_verdict_names_remedy_and_no_score(
    exec_: Exec, mode: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    mode("cut=3")
    exec_()
    said = capfd.readouterr().err.partition("untrusted")[2]
    assert "scored-fewer" in said and "fix:" in said and "3 of 10 tasks" in said
    assert "interval" not in said


@pytest.mark.parametrize(
    ("modes", "code", "status"), [("", 0, "ok"), ("cut=3", 3, "untrusted"), ("exit=7", 7, "untrusted")]
)
def test_json_is_one_object_after_the_engine_s_stderr(
    exec_: Exec, mode: Callable[[str], None], capfd: pytest.CaptureFixture[str], modes: str, code: int, status: str
) -> None:
    mode(modes)
    assert exec_("--json") == code
    seen = capfd.readouterr()
    log = (exec_.record_folder / "stderr.log").read_text()
    assert seen.err.startswith(log)
    envelope = json.loads(seen.err[len(log) :])
    assert (envelope["command"], envelope["exit_code"], envelope["status"]) == ("exec", code, status)
    assert envelope["data"]["record"] == json.loads((exec_.record_folder / "record.json").read_text())
    assert seen.out == (exec_.record_folder / "stdout.log").read_text()


def test_the_record_goes_where_it_is_asked_for(exec_: Exec) -> None:
    target = exec_.folder / "new" / "run.json"
    assert exec_("--record", str(target)) == 0
    assert load_record(target) == exec_.record


@pytest.mark.parametrize(
    ("options", "command", "says"),
    [
        ([], ["no-such-engine", "-m", "x"], "no-such-engine"),
        ([], [], "no command"),
        (["--record", "."], ["true"], "is a folder"),
        (["--out", "model.gguf"], ["true"], "model.gguf"),
        (["--timeout", "-1"], ["true"], "--timeout"),
        (["--no-such-option"], ["true"], "--no-such-option"),
    ],
)
def test_what_cannot_run_is_one_message_and_exit_2(
    exec_: Exec, capfd: pytest.CaptureFixture[str], options: list[str], command: list[str], says: str
) -> None:
    assert exec_(*options, command=command) == 2
    seen = capfd.readouterr()
    assert seen.out == ""
    assert says in seen.err and "fix:" in seen.err
    assert "Traceback" not in seen.err and "internal error" not in seen.err
    assert not list(exec_.folder.glob("out/runs/*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_keeps_what_was_written_and_says_so(
    exec_: Exec, mode: Callable[[str], None], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mode("hang=after")
    new_folder = Store.new_folder

    def full(self: Store, *names: str) -> Path:
        folder = new_folder(self, *names)
        (folder / "stderr.log").symlink_to("/dev/full")
        return folder

    monkeypatch.setattr(Store, "new_folder", full)
    assert exec_() == 2
    err = capfd.readouterr().err
    assert "stderr.log" in err and "room" in err and "Traceback" not in err
    assert gone(exec_.calls()[0]["pid"])
    assert not list(exec_.folder.glob("out/runs/*/record.json"))


def test_an_error_in_json_mode_leaves_stdout_alone(exec_: Exec, capfd: pytest.CaptureFixture[str]) -> None:
    assert exec_("--json", command=["no-such-engine"]) == 2
    seen = capfd.readouterr()
    assert seen.out == ""
    assert json.loads(seen.err)["error"]["kind"] == "engine"


# ---- stopping


@pytest.mark.parametrize("stubborn", ["", ",ignore-int,ignore-term"], ids=["yielding", "stubborn"])
def test_ctrl_c(exec_: Exec, mode: Callable[[str], None], stubborn: str) -> None:
    mode(f"hang=during,child{stubborn}")
    with exec_.start() as process:
        wait_for(exec_.folder / "mark")
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert time.monotonic() - begin < 5
    assert process.returncode == 130
    record = exec_.record
    assert record.status == "interrupted" and "interrupted" in exec_.slugs and record.result is None
    assert (exec_.record_folder / "stdout.log").read_bytes() == out
    assert b"Traceback" not in err
    (call,) = exec_.calls()
    assert all(gone(pid) for pid in [call["pid"], *call["children"]])


@linux_only
def test_kill_9_leaves_nothing_behind(exec_: Exec, mode: Callable[[str], None]) -> None:
    mode("hang=during,child,daemon,ignore-int,ignore-term")
    with exec_.start() as process:
        wait_for(exec_.folder / "mark")
        process.kill()
        process.communicate(timeout=30)
    (call,) = exec_.calls()
    until = time.monotonic() + 2
    while not all(gone(pid) for pid in [call["pid"], *call["children"]]):
        assert time.monotonic() < until, "processes outlive llmc"
        time.sleep(0.02)
    assert not (exec_.record_folder / "record.json").exists()
