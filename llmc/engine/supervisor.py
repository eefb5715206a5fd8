"""The small process between llmc and the command that it runs, so that nothing outlives llmc.

llmc starts this file by its path with ``python -I -S`` (about 20 ms): only the standard library is there, and
llmc itself need not be importable. It starts the command in a session of its own and stays beside it:

* When llmc dies, SIGKILL included, the control pipe closes (and the parent changes): everything is killed.
* When this process dies, Linux kills the command (PR_SET_PDEATHSIG follows the thread that forked, and this
  process has only one, which is why the signal cannot be asked for by llmc itself).
* On Linux orphans become children of this process (PR_SET_CHILD_SUBREAPER), so a grandchild that detached
  itself by a double fork and setsid() is still found, counted and ended. Elsewhere only the process group can
  be seen once a parent is gone.

It decides nothing. Control pipe, from llmc: eight bytes of length and a marshalled ``(argv, env, cwd,
sample_seconds)``, then single bytes: ``I``, ``T`` send SIGINT, SIGTERM to every process; ``K`` kills until
none is left. Status pipe, to llmc, lines: ``started PID``, ``failed STAGE ERRNO``, ``moved`` (CPU time, input
or page faults of the tree changed since the last sample), ``exited WAIT-STATUS PEAK-RSS-BYTES``,
``signalled N`` (processes alive when a command was obeyed), ``done`` (nothing is left).
"""

# Importing pathlib would double the time that this process takes to start.
# ruff: noqa: PTH110, PTH118, PTH123, PTH208
from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PARENT_CHECK = 0.5  # seconds between two looks at who the parent is
KILL_EVERY = 0.02  # seconds between two rounds of SIGKILL, which end when nothing is left
KILL_SLOWLY_AFTER = 100  # rounds; a process in uninterruptible sleep dies when its device answers
SIGNALS = {b"I": signal.SIGINT, b"T": signal.SIGTERM, b"K": signal.SIGKILL}

Order = tuple[list[bytes], dict[bytes, bytes], "bytes | None", "float | None"]
Counters = dict[int, tuple[int, ...]]


class LinuxTree:
    """The live descendants of this process, read from /proc, with what each has consumed so far."""

    def snapshot(self) -> Counters:
        found: Counters = {}
        queue = self._children(os.getpid())
        while queue:
            pid = queue.pop()
            stat = self._stat(pid)
            if stat is None or pid in found:
                continue
            queue += self._children(pid)
            if stat[0] not in (b"Z", b"X"):
                # minor faults, major faults, user time, system time (proc(5), fields 10, 12, 14, 15)
                found[pid] = (int(stat[7]), int(stat[9]), int(stat[11]), int(stat[12]), *self._input(pid))
        return found

    def _children(self, pid: int) -> list[int]:
        children: list[int] = []
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as stream:
                    children += map(int, stream.read().split())
        except FileNotFoundError:
            # Either the process is gone, or the kernel was built without CONFIG_PROC_CHILDREN.
            if not os.path.exists("/proc/thread-self/children"):
                return self._children_by_scan(pid)
        except OSError:
            pass
        return children

    def _children_by_scan(self, parent: int) -> list[int]:
        everyone = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in everyone if (stat := self._stat(pid)) is not None and int(stat[1]) == parent]

    @staticmethod
    def _stat(pid: int) -> list[bytes] | None:
        """Return the fields after the command name (which may hold anything): state, parent, group, ..."""
        try:
            with open(f"/proc/{pid}/stat", "rb") as stream:
                return stream.read().rpartition(b")")[2].split()
        except OSError:
            return None

    @staticmethod
    def _input(pid: int) -> list[int]:
        try:
            with open(f"/proc/{pid}/io", "rb") as stream:
                pairs = dict(line.split(b":") for line in stream.read().splitlines())
            return [int(pairs[b"rchar"]), int(pairs[b"read_bytes"])]
        except (OSError, KeyError, ValueError):
            return []  # another user's process (a setuid wrapper): CPU time and faults must do


class DarwinTree:
    """The same from libproc: children, and the members of the command's group whose parents are gone."""

    TASK_INFO = 4  # PROC_PIDTASKINFO; struct proc_taskinfo is six uint64 and twelve int32
    TASK_INFO_BYTES = 96

    def __init__(self) -> None:
        import ctypes

        self.c = ctypes
        self.lib = ctypes.CDLL("/usr/lib/libproc.dylib", use_errno=True)
        self.group = 0

    def snapshot(self) -> Counters:
        queue = self._list(self.lib.proc_listchildpids, os.getpid())
        if self.group:
            queue += self._list(self.lib.proc_listpgrppids, self.group)
        found: Counters = {}
        while queue:
            pid = queue.pop()
            if pid in found:
                continue
            info = self._task_info(pid)
            if info is not None:
                found[pid] = info
                queue += self._list(self.lib.proc_listchildpids, pid)
        return found

    def _list(self, function: object, number: int) -> list[int]:
        buffer = (self.c.c_int * 4096)()
        function(number, buffer, self.c.sizeof(buffer))  # type: ignore[operator]
        return [pid for pid in buffer if pid > 0]

    def _task_info(self, pid: int) -> tuple[int, ...] | None:
        buffer = self.c.create_string_buffer(self.TASK_INFO_BYTES)
        size = self.lib.proc_pidinfo(pid, self.TASK_INFO, self.c.c_uint64(0), buffer, self.TASK_INFO_BYTES)
        if size != self.TASK_INFO_BYTES:
            return None  # a zombie, or gone
        import struct

        numbers = struct.unpack("<6Q12i", buffer.raw)
        return (numbers[2], numbers[3], numbers[7], numbers[8])  # user time, system time, faults, pageins


class GroupOnly:
    """Where processes cannot be listed, the command's process group is all there is."""

    def snapshot(self) -> Counters:
        return {}


class Supervisor:
    def __init__(self, control: int, status: int) -> None:
        self.control, self.status = control, status
        for fd in (control, status):
            os.set_inheritable(fd, False)
        self.parent = os.getppid()
        self.main = 0
        self.exited = False
        self.killing = False
        self.rounds = 0
        self.prctl = self._find_prctl()
        self.reaps_orphans = self.prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.tree = self._find_tree()
        self.wake = self._catch_signals()
        self.before: Counters | None = None

    @staticmethod
    def _find_prctl() -> Callable[[int, int], bool]:
        """Return prctl as ``(option, argument) -> succeeded``; one that never succeeds outside Linux."""
        if not sys.platform.startswith("linux"):
            return lambda option, argument: False
        try:
            import ctypes

            function = ctypes.CDLL(None, use_errno=True).prctl
        except (ImportError, OSError, AttributeError):
            return lambda option, argument: False
        function.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
        return lambda option, argument: function(option, argument, 0, 0, 0) == 0

    @staticmethod
    def _find_tree() -> LinuxTree | DarwinTree | GroupOnly:
        if sys.platform == "darwin":
            try:
                return DarwinTree()
            except (ImportError, OSError, AttributeError):
                return GroupOnly()
        return LinuxTree() if os.path.exists("/proc/self/stat") else GroupOnly()

    @staticmethod
    def _catch_signals() -> int:
        """Make SIGCHLD wake the loop; leave the others to llmc, which hears them too and decides."""
        wake, write_end = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # A handler, unlike SIG_IGN, is not inherited by the command; what was ignored before stays so.
            if number == signal.SIGCHLD or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        return wake

    # ---- talking to llmc

    def say(self, line: str) -> None:
        try:
            os.write(self.status, line.encode() + b"\n")
        except OSError:
            self.killing = True  # nobody listens any more

    def receive_order(self) -> Order | None:
        head = self._receive(8)
        body = self._receive(int.from_bytes(head, "little")) if len(head) == 8 else b""
        return marshal.loads(body) if body else None

    def _receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            chunk = os.read(self.control, length - len(data))
            if not chunk:
                return b""
            data += chunk
        return data

    def obey(self) -> None:
        commands = os.read(self.control, 64)
        if not commands:
            self.killing = True
        for byte in commands:
            command = bytes([byte])
            self.say(f"signalled {self.signal_all(SIGNALS[command])}")
            self.killing = self.killing or command == b"K"

    # ---- the command

    def start(self, argv: list[bytes], env: dict[bytes, bytes], cwd: bytes | None) -> bool:
        failed, write_end = os.pipe()
        me = os.getpid()
        self.main = os.fork()
        if self.main == 0:
            stage = "start"
            try:
                os.setsid()
                self.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != me:
                    os._exit(127)
                for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ"):  # ignored by every Python
                    if hasattr(signal, name):
                        signal.signal(getattr(signal, name), signal.SIG_DFL)
                if cwd is not None:
                    stage = "enter"
                    os.chdir(cwd)
                stage = "run"
                execute(argv, env)
            except OSError as error:
                os.write(write_end, f"failed {stage} {error.errno}".encode())
            finally:
                os._exit(127)
        os.close(write_end)
        report = b""
        while chunk := os.read(failed, 256):
            report += chunk
        os.close(failed)
        self._let_go_of_streams()
        if report:
            os.waitpid(self.main, 0)
            self.say(report.decode())
            return False
        if isinstance(self.tree, DarwinTree):
            self.tree.group = self.main
        self.say(f"started {self.main}")
        return True

    @staticmethod
    def _let_go_of_streams() -> None:
        """Give up the command's stdin, stdout and stderr, so that llmc sees them close when it does."""
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        if null > 2:
            os.close(null)

    def signal_all(self, number: int) -> int:
        """Send a signal to every process once; return how many there were."""
        alive = self.tree.snapshot()
        for pid in alive:
            try:
                if os.getpgid(pid) != self.main:
                    os.kill(pid, number)
            except OSError:
                pass  # it ended meanwhile, or is another user's
        try:
            os.killpg(self.main, number)
        except OSError:
            return len(alive)
        return max(1, len(alive))

    def reap(self) -> bool:
        """Collect what ended; return whether nothing is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return self.reaps_orphans or not self._group_lives()
            if pid == 0:
                return False
            if pid == self.main:
                self.exited = True
                unit = 1 if sys.platform == "darwin" else 1024
                self.say(f"exited {status} {usage.ru_maxrss * unit}")

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.main, 0)
        except OSError:
            return bool(self.tree.snapshot())
        return True

    def sample(self) -> None:
        now = self.tree.snapshot()
        if now != self.before or not now:
            self.say("moved")
        self.before = now

    def watch(self, every: float | None) -> None:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        next_sample = time.monotonic() + every if every else float("inf")
        while not self.reap():
            if self.killing:
                self.signal_all(signal.SIGKILL)
                self.rounds += 1
            ready = dict(poll.poll(1000 * self._pause(next_sample)))
            if self.wake in ready:
                os.read(self.wake, 4096)
            if self.control in ready and not self.killing:
                self.obey()
            if os.getppid() != self.parent:
                self.killing = True
            if every and time.monotonic() >= next_sample:
                self.sample()
                next_sample = time.monotonic() + every
        self.say("done")

    def _pause(self, next_sample: float) -> float:
        if self.killing:
            return KILL_EVERY if self.rounds < KILL_SLOWLY_AFTER else PARENT_CHECK
        if self.exited and not self.reaps_orphans:
            return KILL_EVERY  # nobody tells when somebody else's child ends
        return max(0.0, min(PARENT_CHECK, next_sample - time.monotonic()))


def execute(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Replace this process as execvp(3) does, with the PATH of ``env``; raise OSError when it cannot."""
    if b"/" in argv[0]:
        os.execve(argv[0], argv, env)
    failure = FileNotFoundError(errno.ENOENT, "not found")
    for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
        try:
            os.execve(os.path.join(folder or b".", argv[0]), argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            failure = error  # type: ignore[assignment]
    raise failure


def main() -> None:
    supervisor = Supervisor(int(sys.argv[1]), int(sys.argv[2]))
    order = supervisor.receive_order()
    if order is not None:
        argv, env, cwd, every = order
        if supervisor.start(argv, env, cwd):
            supervisor.watch(every)
    os._exit(0)  # nothing to tear down, and llmc waits


if __name__ == "__main__":
    main()
