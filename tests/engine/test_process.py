"""run_process against children that will not cooperate.

They are small Python programs; marker files tell when one has come to the point of the test.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmc.engine import supervised, supervisor
from llmc.engine.process import Limits, Outcome, run_process
from llmc.errors import EngineError, InputFileError

LINUX = sys.platform.startswith("linux")
linux_only = pytest.mark.skipif(not LINUX, reason="orphans and parent death are tracked by the kernel on Linux only")
QUICK = Limits(stall=None, interrupt_grace=0.2, terminate_grace=0.2)
IGNORE = "import signal; [signal.signal(number, signal.SIG_IGN) for number in (1, 2, 15)]"
FOREVER = "import time\nwhile True: time.sleep(100)"
DETACH = """
import os, sys, time, pathlib
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if CLOSE:
            null = os.open(os.devnull, os.O_RDWR)
            for fd in range(3): os.dup2(null, fd)
        pathlib.Path("daemon.tmp").write_text(str(os.getpid()))
        os.rename("daemon.tmp", "daemon")
        while True: time.sleep(100)
    os._exit(0)
os.wait()
while not os.path.exists("daemon"): time.sleep(0.005)
"""


class Runner:
    """Runs Python programs in a folder of their own, where they leave marker files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out, self.err = folder / "stdout.log", folder / "stderr.log"

    def command(self, argv: list[str], **options: Any) -> Outcome:
        options.setdefault("limits", QUICK)
        return run_process(argv, stdout_log=self.out, stderr_log=self.err, cwd=self.folder, **options)

    def python(self, program: str, **options: Any) -> Outcome:
        return self.command([sys.executable, "-I", "-S", "-c", textwrap.dedent(program)], **options)

    def pid(self, name: str) -> int:
        return int((self.folder / name).read_text())


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def alive(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be reaped."""
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        if not LINUX:
            return True
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "what the test waits for did not happen"
        time.sleep(0.005)


# ---- how it ends


@pytest.mark.parametrize("code", [0, 1, 2, 77, 255])
def test_exit_code(run: Runner, code: int) -> None:
    outcome = run.python(f"raise SystemExit({code})")
    assert (outcome.exit_code, outcome.signal, outcome.ended_by, outcome.left_children) == (
        code,
        None,
        "itself",
        0,
    )


@pytest.mark.parametrize("number", [6, 9, 11, 13, 15])
def test_death_by_signal(run: Runner, number: int) -> None:
    outcome = run.python(
        f"""
        import os, resource, signal
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if {number} != signal.SIGKILL: signal.signal({number}, signal.SIG_DFL)
        os.kill(os.getpid(), {number})
        """
    )
    assert (outcome.exit_code, outcome.signal, outcome.ended_by) == (None, number, "itself")


def test_streams_go_to_their_logs_byte_for_byte(run: Runner) -> None:
    seen: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    def collect(stream: str, data: bytes) -> None:
        seen[stream] += data

    outcome = run.python(
        "import os; os.write(1, bytes(range(256)) * 999); os.write(2, b'no newline at the end')",
        on_output=collect,
    )
    assert outcome.exit_code == 0
    assert run.out.read_bytes() == bytes(range(256)) * 999 == seen["stdout"]
    assert run.err.read_bytes() == b"no newline at the end" == seen["stderr"]


def test_output_is_seen_while_the_process_runs(run: Runner) -> None:
    def on_output(stream: str, data: bytes) -> None:
        (run.folder / "seen").write_bytes(run.out.read_bytes())

    outcome = run.python(
        "import os, time; os.write(1, b'early')\nwhile not os.path.exists('seen'): time.sleep(0.005)",
        on_output=on_output,
        limits=Limits(timeout=20),
    )
    assert outcome.ended_by == "itself"
    assert (run.folder / "seen").read_bytes() == b"early"


def test_what_an_ended_child_left_in_the_pipe_is_read_to_the_end(run: Runner) -> None:
    outcome = run.python("import os; os.write(1, b'x' * 60000); os.kill(os.getpid(), 9)")
    assert outcome.signal == 9
    assert run.out.stat().st_size == 60000


def test_closed_streams_are_not_the_end(run: Runner) -> None:
    outcome = run.python("import os; os.close(1); os.close(2); open('after', 'w').close(); os._exit(5)")
    assert outcome.exit_code == 5
    assert (run.folder / "after").exists()


def test_environment_folder_and_arguments_arrive_exactly(run: Runner) -> None:
    words = ["", " ", "a b", "*", "$HOME", "\n", "'\"", "ä", "\udcff"]
    program = "import os, sys; os.write(1, repr((sys.argv[1:], dict(os.environ), os.getcwd())).encode())"
    environment = {"PATH": os.environ["PATH"], "ONLY": "this\udcfe", "LC_ALL": "C.UTF-8"}
    run.command([sys.executable, "-I", "-S", "-c", program, *words], env=environment)
    arguments, given, folder = eval(run.out.read_text())
    assert arguments == words
    assert given == environment
    assert Path(folder) == run.folder.resolve()


def test_stdin_is_closed_unless_asked_for(run: Runner) -> None:
    run.python("import os; os.write(1, repr(os.read(0, 10)).encode())")
    assert run.out.read_bytes() == b"b''"
    reader, writer = os.pipe()
    os.write(writer, b"given")
    os.close(writer)
    run.python("import os; os.write(1, os.read(0, 10))", stdin=reader)
    os.close(reader)
    assert run.out.read_bytes() == b"given"


def test_the_child_gets_default_signals_a_session_and_no_descriptors_of_ours(run: Runner) -> None:
    program = """
    import os, signal
    fds = []
    for fd in range(256):
        try: os.fstat(fd)
        except OSError: continue
        fds.append(fd)
    os.write(1, repr((os.getsid(0) == os.getpid(), fds)).encode())
    """
    with (run.folder / "open").open("w"):
        run.python(program)
    assert run.out.read_bytes() == b"(True, [0, 1, 2])"
    if LINUX:
        run.command(["grep", "SigIgn", "/proc/self/status"])
        ignored = int(run.out.read_text().split()[1], 16)
        own = int(
            next(s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith("SigIgn")).split()[1],
            16,
        )
        python_ignores = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
        assert ignored == own & ~python_ignores


def test_peak_memory_and_time(run: Runner) -> None:
    outcome = run.python("data = bytearray(200 << 20); import time; time.sleep(0.3)")
    assert outcome.peak_rss is not None
    assert 200 << 20 < outcome.peak_rss < 300 << 20
    assert 0.3 < outcome.seconds < 10
    assert run.command(["true"]).peak_rss < 64 << 20  # type: ignore[operator]


# ---- what cannot be started


@pytest.mark.parametrize(
    ("make", "says", "remedy"),
    [
        (lambda p: "no-such-command-at-all", "no command no-such-command-at-all on PATH", "PATH"),
        (lambda p: str(p / "missing"), "does not exist", "check the path"),
        (str, "is a folder", "name the program in it"),
        (lambda p: _file(p, b"#!/bin/sh\n", 0o644), "may not be executed", "chmod +x"),
        (lambda p: _file(p, b"#!/no/such/interpreter\n", 0o755), "interpreter or loader", "head -1"),
        (
            lambda p: _file(p, b"\x7fELF\x02\x01\x01" + b"\0" * 57, 0o755),
            "not a program for this machine",
            "file ",
        ),
        (lambda p: _file(p, b"echo no first line\n", 0o755), "not a program for this machine", "#!/bin/sh"),
    ],
    ids=[
        "not-on-path",
        "missing",
        "folder",
        "not-executable",
        "no-interpreter",
        "architecture",
        "no-shebang",
    ],
)
def test_a_command_that_cannot_start_is_explained(
    run: Runner, make: Callable[[Path], str], says: str, remedy: str
) -> None:
    with pytest.raises(EngineError) as caught:
        run.command([make(run.folder), "--flag"])
    assert says in caught.value.what
    assert remedy in caught.value.remedy


def _file(folder: Path, content: bytes, mode: int) -> str:
    path = folder / "program"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_a_file_on_path_that_may_not_be_executed_is_named(run: Runner) -> None:
    path = _file(run.folder, b"#!/bin/sh\n", 0o644)
    with pytest.raises(EngineError) as caught:
        run.command(["program"], env={"PATH": str(run.folder)})
    assert path in caught.value.what


def test_path_is_searched_as_the_child_sees_it(run: Runner) -> None:
    (run.folder / "bin").mkdir()
    _file(run.folder / "bin", b"#!/bin/sh\nexit 9\n", 0o755)
    assert run.command(["program"], env={"PATH": f"/no/such:{run.folder / 'bin'}"}).exit_code == 9


@pytest.mark.parametrize("argv", [[], ["true", "a\0b"]])
def test_an_impossible_command_is_refused(run: Runner, argv: list[str]) -> None:
    with pytest.raises(EngineError):
        run.command(argv)


def test_a_folder_that_is_not_there(run: Runner) -> None:
    with pytest.raises(EngineError, match="cannot run true in"):
        run_process(["true"], stdout_log=run.out, stderr_log=run.err, cwd=run.folder / "gone")


# ---- limits


@pytest.mark.parametrize("stubborn", [False, True], ids=["yielding", "stubborn"])
def test_time_limit(run: Runner, stubborn: bool) -> None:
    begin = time.monotonic()
    outcome = run.python(
        f"{IGNORE if stubborn else ''}\n{FOREVER}",
        limits=Limits(timeout=0.4, stall=None, interrupt_grace=0.2, terminate_grace=0.2),
    )
    assert outcome.ended_by == "timeout"
    assert outcome.signal == (signal.SIGKILL if stubborn else outcome.signal)
    assert 0.4 <= time.monotonic() - begin < 4


def test_the_ladder_has_three_rungs_in_order(run: Runner) -> None:
    program = """
    import os, signal, time
    def heard(number, frame): os.write(1, b"%d " % number)
    for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, heard)
    while True: time.sleep(100)
    """
    limits = Limits(timeout=0.3, stall=None, interrupt_grace=0.3, terminate_grace=0.3)
    outcome = run.python(program, limits=limits)
    assert run.out.read_text() == "2 15 "
    assert outcome.signal == signal.SIGKILL


def test_a_process_that_yields_keeps_its_exit_code_but_not_its_reason(run: Runner) -> None:
    program = "import signal, sys, time; signal.signal(2, lambda *_: sys.exit(0)); open('on', 'w'); time.sleep(60)"
    outcome = run.python(program, limits=Limits(timeout=0.5, stall=None))
    assert (outcome.exit_code, outcome.ended_by) == (0, "timeout")


def test_stalled_when_nothing_moves(run: Runner) -> None:
    outcome = run.python(f"import os; os.write(1, b'x')\n{FOREVER}", limits=Limits(stall=0.6))
    assert outcome.ended_by == "stalled"
    assert run.out.read_bytes() == b"x"


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("while time.monotonic() < end: pass", id="cpu"),
        pytest.param("while time.monotonic() < end: time.sleep(0.05); os.write(2, b'.')", id="output"),
        pytest.param(
            "while time.monotonic() < end: time.sleep(0.05); open('/dev/zero', 'rb').read(1)",
            id="input",
            marks=linux_only,
        ),
        pytest.param(
            "import mmap; m = mmap.mmap(-1, 1 << 20)\n"
            "while time.monotonic() < end: time.sleep(0.05); m[n] = 1; n += 4096",
            id="faults",
            marks=linux_only,
        ),
        pytest.param(
            "if os.fork() == 0:\n    while time.monotonic() < end: pass\n    os._exit(0)\nos.wait()",
            id="cpu-of-a-grandchild",
        ),
    ],
)
def test_not_stalled_while_anything_moves(run: Runner, work: str) -> None:
    program = f"import os, time; n = 0; end = time.monotonic() + 2\n{work}"
    outcome = run.command([sys.executable, "-S", "-c", program], limits=Limits(stall=1))
    assert (outcome.ended_by, outcome.exit_code) == ("itself", 0)


def test_a_slow_consumer_is_not_a_stall(run: Runner) -> None:
    outcome = run.python(
        "import os; os.write(1, b'a')",
        on_output=lambda stream, data: time.sleep(1.0),
        limits=Limits(stall=0.5),
    )
    assert (outcome.ended_by, outcome.exit_code) == ("itself", 0)


def test_said_everything_and_does_not_exit(run: Runner) -> None:
    said = threading.Event()
    outcome = run.python(
        f"import os; os.write(1, b'the end')\n{FOREVER}",
        on_output=lambda stream, data: said.set(),
        said_everything=said.is_set,
        limits=Limits(stall=None, exit_grace=0.3),
    )
    assert outcome.ended_by == "did-not-exit"
    assert run.out.read_bytes() == b"the end"


def test_said_everything_and_exits_in_time(run: Runner) -> None:
    outcome = run.python(
        "import os, time; os.write(1, b'the end'); time.sleep(0.5)",
        said_everything=lambda: True,
        limits=Limits(stall=None, exit_grace=10),
    )
    assert (outcome.ended_by, outcome.exit_code) == ("itself", 0)


def test_saying_more_takes_back_having_said_everything(run: Runner) -> None:
    chunks: list[bytes] = []
    outcome = run.python(
        "import os, time; os.write(1, b'1'); time.sleep(0.2); os.write(1, b'2'); time.sleep(1)",
        on_output=lambda stream, data: chunks.append(data),
        said_everything=lambda: len(chunks) == 1,
        limits=Limits(stall=None, exit_grace=0.6),
    )
    assert outcome.ended_by == "itself"


# ---- descendants


def test_a_helper_that_ends_with_the_main_process_is_no_leftover(run: Runner) -> None:
    outcome = run.python("import os, time\nif os.fork() == 0: time.sleep(0.1); os._exit(0)")
    assert (outcome.exit_code, outcome.left_children) == (0, 0)


@pytest.mark.parametrize("ignoring", [False, True], ids=["yielding", "stubborn"])
def test_a_child_that_outlives_the_main_process_is_ended_and_counted(run: Runner, ignoring: bool) -> None:
    program = f"""
import os, time
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    {IGNORE if ignoring else "pass"}
    os.write(writer, b'.')
    while True: time.sleep(100)
os.read(reader, 1)
open('child', 'w').write(str(pid))
os._exit(3)
"""
    outcome = run.python(program)
    assert (outcome.exit_code, outcome.ended_by, outcome.left_children) == (3, "itself", 1)
    assert not alive(run.pid("child"))


@linux_only
@pytest.mark.parametrize("close", [True, False], ids=["pipes-closed", "pipes-held"])
def test_a_daemon_in_its_own_session_is_found(run: Runner, close: bool) -> None:
    outcome = run.python(f"CLOSE = {close}\n{DETACH}\nos._exit(0)")
    assert (outcome.exit_code, outcome.left_children) == (0, 1)
    assert not alive(run.pid("daemon"))


def test_every_leftover_is_counted(run: Runner) -> None:
    outcome = run.python("import os, time\nfor _ in range(5):\n    if os.fork() == 0: time.sleep(100)\nos._exit(0)")
    assert outcome.left_children == 5


def test_something_else_that_holds_the_pipe_does_not_hold_us(run: Runner) -> None:
    """A process that is no descendant (a service that was handed the pipe) keeps it open for ever."""
    serve = """
    import socket, time
    listener = socket.socket(socket.AF_UNIX)
    listener.bind('s')
    listener.listen()
    open('ready', 'w')
    client, _ = listener.accept()
    descriptors = socket.recv_fds(client, 1, 1)
    client.send(b'.')
    time.sleep(100)
    """
    give = """
    import os, socket
    service = socket.socket(socket.AF_UNIX)
    service.connect('s')
    socket.send_fds(service, [b'.'], [1])
    service.recv(1)
    os.write(1, b'all of it')
    os._exit(0)
    """
    holder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(serve)], cwd=run.folder)
    try:
        wait_until((run.folder / "ready").exists)
        begin = time.monotonic()
        outcome = run.python(give)
        assert time.monotonic() - begin < 5
        assert (outcome.exit_code, outcome.left_children) == (0, 1)
        assert run.out.read_bytes() == b"all of it"
    finally:
        holder.kill()
        holder.wait()


@linux_only
def test_a_fork_storm_is_ended(run: Runner) -> None:
    """Every process starts a successor and ends, so that no list of them is ever up to date."""
    program = """
import os, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if os.fork(): os._exit(0)
        time.sleep(0.001)
os._exit(0)
"""
    begin = time.monotonic()
    outcome = run.python(program)
    assert outcome.left_children >= 1
    assert time.monotonic() - begin < 8


@linux_only
def test_children_are_found_without_the_kernel_s_list_of_them() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        tree = supervisor.LinuxTree()
        assert child.pid in tree.snapshot()
        assert set(tree._children_by_scan(os.getpid())) == set(tree._children(os.getpid()))
        assert child.stdin is not None
        child.stdin.close()


@pytest.fixture
def no_kernel_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor as on a system that lists no processes and hands no orphans over."""
    text = supervised.SCRIPT.read_text()
    for line, other in (
        ('if not sys.platform.startswith("linux"):', "if True:"),
        ('return LinuxTree() if os.path.exists("/proc/self/stat") else GroupOnly()', "return GroupOnly()"),
    ):
        assert line in text
        text = text.replace(line, other)
    (tmp_path / "supervisor.py").write_text(text)
    monkeypatch.setattr(supervised, "SCRIPT", tmp_path / "supervisor.py")


@pytest.mark.usefixtures("no_kernel_help")
def test_without_the_kernel_s_help_the_process_group_is_ended(run: Runner) -> None:
    outcome = run.python(
        f"{IGNORE}; import os, time\npid = os.fork()\nif pid == 0: time.sleep(100)\n"
        "open('child', 'w').write(str(pid)); os._exit(3)"
    )
    assert (outcome.exit_code, outcome.left_children) == (3, 1)
    assert not alive(run.pid("child"))


@pytest.mark.usefixtures("no_kernel_help")
def test_without_the_kernel_s_help_nothing_stalls_falsely_and_a_limit_still_holds(run: Runner) -> None:
    outcome = run.python(f"{IGNORE}\n{FOREVER}", limits=Limits(timeout=1.5, stall=0.5, terminate_grace=0.2))
    assert (outcome.ended_by, outcome.signal) == ("timeout", signal.SIGKILL)


# ---- quantity


@pytest.mark.slow
def test_gigabytes_of_output_take_no_memory(run: Runner) -> None:
    total = 0

    def count(stream: str, data: bytes) -> None:
        nonlocal total
        total += len(data)

    for log in (run.out, run.err):
        log.symlink_to("/dev/null")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = run.python(
        "import os\nblock = b'x' * (1 << 20)\nfor _ in range(2048): os.write(1, block)", on_output=count
    )
    assert outcome.exit_code == 0
    assert total == 2 << 30
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1024 if LINUX else 1) < 32 << 20


def test_a_consumer_that_lags_holds_the_child_back(run: Runner) -> None:
    written: list[int] = []

    def slow(stream: str, data: bytes) -> None:
        if not written:
            time.sleep(0.5)
            written.append((run.folder / "count").stat().st_size)

    program = """
    import os
    count = open('count', 'ab', 0)
    for _ in range(1000): os.write(1, b'x' * 65536); count.write(b'.')
    """
    outcome = run.python(program, on_output=slow)
    assert outcome.exit_code == 0
    assert run.out.stat().st_size == 65536 * 1000
    assert written[0] * 65536 < 4 << 20


def test_both_streams_at_once_never_block_each_other(run: Runner) -> None:
    program = "import os\nfor _ in range(300):\n    os.write(2, b'e' * 65536); os.write(1, b'o' * 65536)"
    assert run.python(program).exit_code == 0
    assert run.out.stat().st_size == run.err.stat().st_size == 300 * 65536


# ---- failures on our side


def test_a_failing_callback_leaves_no_child(run: Runner) -> None:
    def fail(stream: str, data: bytes) -> None:
        raise RuntimeError("a bug in the caller")

    with pytest.raises(RuntimeError, match="a bug in the caller"):
        run.python(
            f"{IGNORE}; import os; open('main', 'w').write(str(os.getpid())); os.write(1, b'x')\n{FOREVER}",
            on_output=fail,
        )
    assert not alive(run.pid("main"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("log", ["out", "err"])
def test_a_full_disk_ends_the_child_with_a_clear_error(run: Runner, log: str) -> None:
    getattr(run, log).symlink_to("/dev/full")
    with pytest.raises(InputFileError) as caught:
        run.python(
            f"{IGNORE}; import os; open('main', 'w').write(str(os.getpid()))\n"
            f"os.write(1, b'x'); os.write(2, b'y')\n{FOREVER}"
        )
    assert os.strerror(errno.ENOSPC) in caught.value.what
    assert "room" in caught.value.remedy
    assert not alive(run.pid("main"))


def test_a_log_that_cannot_be_opened(run: Runner) -> None:
    run.out.mkdir()
    with pytest.raises(InputFileError, match=r"stdout\.log"):
        run.python("open('started', 'w')")
    assert not (run.folder / "started").exists()


def test_nothing_of_ours_stays_open(run: Runner) -> None:
    def descriptors() -> list[str]:
        return sorted(os.listdir("/dev/fd"))  # noqa: PTH208

    run.python("pass")
    before = descriptors()
    run.python("pass")
    with contextlib.suppress(EngineError):
        run.command(["/no/such/program"])
    with contextlib.suppress(InputFileError):
        run_process(["true"], stdout_log=run.out, stderr_log=run.folder)
    assert descriptors() == before


# ---- signals to llmc, and its death

HOST = """
import json, os, pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)
from llmc.engine.process import Limits, run_process
options = json.loads(sys.argv[1])
folder = pathlib.Path.cwd()
outcome = run_process(
    options["argv"], stdout_log=folder / "stdout.log", stderr_log=folder / "stderr.log",
    limits=Limits(**options.get("limits", {})), passthrough=options.get("passthrough", False),
)
restored = signal.getsignal(signal.SIGINT) is signal.default_int_handler
pathlib.Path("outcome").write_text(json.dumps({**outcome.__dict__, "restored": restored}))
"""


def start_host(folder: Path, program: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that calls run_process on ``program``, as llmc does."""
    pipes = {name: options.pop(name) for name in ("stdout", "stderr", "stdin") if name in options}
    argv = [sys.executable, "-I", "-S", "-c", textwrap.dedent(program)]
    words = [sys.executable, "-c", HOST, json.dumps({"argv": argv, **options})]
    return subprocess.Popen(words, cwd=folder, **pipes)


def host_outcome(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "outcome").read_text()))


FAMILY = f"""
import os, sys, time
{IGNORE}
if os.fork() == 0:
    open('grandchild', 'w').write(str(os.getpid())); open('ready2', 'w')
    while True: time.sleep(100)
open('main', 'w').write(str(os.getpid())); open('ready1', 'w')
while True: time.sleep(100)
"""


def family_is_ready(folder: Path) -> bool:
    return (folder / "ready1").exists() and (folder / "ready2").exists()


@pytest.mark.parametrize(
    ("number", "limits"),
    [
        (signal.SIGINT, {}),
        (signal.SIGTERM, {"interrupt_grace": 0.1, "terminate_grace": 0.1}),
        (signal.SIGHUP, {"interrupt_grace": 0.1, "terminate_grace": 0.1}),
    ],
)
def test_a_request_to_stop_ends_even_a_stubborn_family_in_five_seconds(
    tmp_path: Path, number: int, limits: dict[str, float]
) -> None:
    with start_host(tmp_path, FAMILY, limits=limits) as host:
        wait_until(lambda: family_is_ready(tmp_path))
        begin = time.monotonic()
        host.send_signal(number)
        assert host.wait(10) == 0
        assert time.monotonic() - begin < 5
    outcome = host_outcome(tmp_path)
    assert outcome["ended_by"] == "interrupted"
    assert outcome["restored"]
    assert not alive(int((tmp_path / "main").read_text()))
    assert not alive(int((tmp_path / "grandchild").read_text()))


def test_ctrl_c_again_climbs_at_once(tmp_path: Path) -> None:
    with start_host(tmp_path, FAMILY, limits={"interrupt_grace": 60, "terminate_grace": 60}) as host:
        wait_until(lambda: family_is_ready(tmp_path))
        for _ in range(3):
            host.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert host.wait(10) == 0
    assert host_outcome(tmp_path)["signal"] == signal.SIGKILL


def test_a_child_that_heeds_ctrl_c_ends_at_once_with_its_own_code(tmp_path: Path) -> None:
    program = """
    import os, signal, time
    signal.signal(2, lambda *_: os._exit(4))
    open('ready', 'w')
    time.sleep(60)
    """
    with start_host(tmp_path, program, limits={"interrupt_grace": 60}) as host:
        wait_until((tmp_path / "ready").exists)
        host.send_signal(signal.SIGINT)
        host.wait(10)
    outcome = host_outcome(tmp_path)
    assert (outcome["exit_code"], outcome["ended_by"]) == (4, "interrupted")


@linux_only
@pytest.mark.parametrize(
    "program", [FAMILY, f"CLOSE = True\n{DETACH}\nopen('ready1', 'w'); open('ready2', 'w')\n{FOREVER}"]
)
def test_killing_llmc_leaves_nothing(tmp_path: Path, program: str) -> None:
    with start_host(tmp_path, program) as host:
        wait_until(lambda: family_is_ready(tmp_path))
        pids = [int(p.read_text()) for p in tmp_path.iterdir() if p.name in ("main", "grandchild", "daemon")]
        assert pids and all(map(alive, pids))
        host.kill()
        host.wait()
        wait_until(lambda: not any(map(alive, pids)), 1.5)


@linux_only
def test_a_killed_supervisor_is_no_success(tmp_path: Path) -> None:
    with start_host(tmp_path, FAMILY) as host:
        wait_until(lambda: family_is_ready(tmp_path))
        main = int((tmp_path / "main").read_text())
        supervisor = int(Path(f"/proc/{main}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(supervisor, signal.SIGKILL)
        assert host.wait(10) == 0
    outcome = host_outcome(tmp_path)
    assert (outcome["exit_code"], outcome["signal"]) == (None, signal.SIGKILL)
    assert not alive(main)
    assert not alive(int((tmp_path / "grandchild").read_text()))


def test_outside_the_main_thread(run: Runner) -> None:
    handler = signal.getsignal(signal.SIGINT)
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(run.python("raise SystemExit(6)")))
    thread.start()
    thread.join(20)
    assert outcomes[0].exit_code == 6
    assert signal.getsignal(signal.SIGINT) is handler


def test_two_at_once(tmp_path: Path) -> None:
    codes: dict[int, int | None] = {}

    def one(code: int) -> None:
        (tmp_path / str(code)).mkdir()
        codes[code] = (
            Runner(tmp_path / str(code)).python(f"import time; time.sleep(0.2); raise SystemExit({code})").exit_code
        )

    threads = [threading.Thread(target=one, args=(code,)) for code in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert codes == {code: code for code in range(1, 7)}


# ---- passing the streams on


def test_passthrough_is_exact_and_each_to_its_own(tmp_path: Path) -> None:
    program = "import os; os.write(1, bytes(range(256)) * 5000); os.write(2, b'\\xff\\0err'); os._exit(0)"
    with start_host(tmp_path, program, passthrough=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as host:
        out, err = host.communicate(timeout=20)
    assert out == bytes(range(256)) * 5000 == (tmp_path / "stdout.log").read_bytes()
    assert err == b"\xff\0err" == (tmp_path / "stderr.log").read_bytes()


def test_passthrough_comes_in_time(tmp_path: Path) -> None:
    program = "import os, time; os.write(1, b'now')\nwhile not os.path.exists('go'): time.sleep(0.005)"
    with start_host(tmp_path, program, passthrough=True, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        assert os.read(host.stdout.fileno(), 100) == b"now"
        (tmp_path / "go").touch()


def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    program = "import os\nfor _ in range(100): os.write(1, b'x' * 65536)\nopen('whole', 'w'); os._exit(8)"
    with start_host(tmp_path, program, passthrough=True, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        host.stdout.read(10)
        host.stdout.close()
        host.wait(20)
    assert host_outcome(tmp_path)["exit_code"] == 8
    assert (tmp_path / "stdout.log").stat().st_size == 100 * 65536


def test_ctrl_c_works_while_the_reader_takes_nothing(tmp_path: Path) -> None:
    program = f"{IGNORE}; import os; open('ready', 'w')\nwhile True: os.write(1, b'x' * 65536)"
    reader, writer = os.pipe()
    with start_host(tmp_path, program, passthrough=True, stdout=writer, limits={"stall": 1.0}) as host:
        os.close(writer)
        wait_until((tmp_path / "ready").exists)
        time.sleep(1.5)  # longer than the stall limit: a reader that pauses is not the child's stall
        assert host.poll() is None
        begin = time.monotonic()
        host.send_signal(signal.SIGINT)
        assert host.wait(10) == 0
        assert time.monotonic() - begin < 5
    os.close(reader)
    assert host_outcome(tmp_path)["ended_by"] == "interrupted"


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1", "1 2", "0 1 2"])
def test_closed_standard_streams_of_llmc(tmp_path: Path, closed: str) -> None:
    redirect = {"0": "<&-", "1": ">&-", "2": "2>&-"}
    program = "import os; os.write(1, b'out'); os.write(2, b'err'); os._exit(0)"
    options = json.dumps({"argv": [sys.executable, "-I", "-S", "-c", program], "passthrough": True})
    shell = '"$0" -c "$1" "$2" ' + " ".join(redirect[fd] for fd in closed.split())
    subprocess.run(["sh", "-c", shell, sys.executable, HOST, options], cwd=tmp_path, check=True, timeout=20)
    assert (tmp_path / "stdout.log").read_bytes() == b"out"
    assert (tmp_path / "stderr.log").read_bytes() == b"err"


def test_passthrough_hands_on_inherited_descriptors(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"through a shell's <(...)")
    os.close(writer)
    program = f"import os; os.write(1, os.read({reader}, 100))"
    options = json.dumps({"argv": [sys.executable, "-I", "-S", "-c", program], "passthrough": True})
    done = subprocess.run(
        [sys.executable, "-c", HOST, options],
        cwd=tmp_path,
        pass_fds=(reader,),
        capture_output=True,
        timeout=20,
    )
    os.close(reader)
    assert done.stdout == b"through a shell's <(...)"


# ---- cost


def test_overhead_is_small(run: Runner) -> None:
    times = []
    for _ in range(5):
        begin = time.monotonic()
        run.command(["true"])
        times.append(time.monotonic() - begin)
    assert min(times) < 0.08


def test_throughput(run: Runner) -> None:
    for log in (run.out, run.err):
        log.symlink_to("/dev/null")
    times = []
    for _ in range(3):
        begin = time.monotonic()
        run.command(["head", "-c", str(200 << 20), "/dev/zero"])
        times.append(time.monotonic() - begin)
    assert (200 << 20) / min(times) > 100e6
