"""llmc's end of the two pipes to the supervisor process."""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmc.errors import EngineError

SCRIPT = Path(__file__).with_name("supervisor.py")
GOODBYE = 2.0  # seconds that a supervisor with nothing left to do may take to exit


class NotStarted(Exception):
    """The operating system refused to run the command; ``stage`` is start, enter (the folder) or run."""

    def __init__(self, stage: str, number: int) -> None:
        super().__init__(stage, number)
        self.stage, self.number = stage, number


class Supervised:
    """A command under its supervisor, and what the supervisor has reported of it so far.

    ``wait_status`` and ``peak_rss`` are known once the main process ended, ``done`` is true once nothing is
    left, ``gone`` once the supervisor is no longer there. ``left`` counts processes alive after the main one.
    """

    def __init__(
        self,
        argv: Sequence[str],
        stdout: int,
        stderr: int,
        *,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        stdin: int | None,
        sample: float | None,
        inherit: bool,
    ) -> None:
        self.pid: int | None = None
        self.wait_status: int | None = None
        self.peak_rss: int | None = None
        self.exited_at: float | None = None
        self.done = self.gone = self.moved = False
        self.left = 0
        self._partial = b""
        order = marshal.dumps(
            (
                [os.fsencode(word) for word in argv],
                {os.fsencode(k): os.fsencode(v) for k, v in (os.environ if env is None else env).items()},
                None if cwd is None else os.fsencode(cwd),
                sample,
            )
        )
        control, self._control = os.pipe()
        self.status, status = os.pipe()
        os.set_blocking(self.status, False)
        try:
            self._process = subprocess.Popen(
                [sys.executable or "python3", "-I", "-S", str(SCRIPT), str(control), str(status)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(control, status, *(inheritable_descriptors() if inherit else ())),
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._control)
            os.close(self.status)
            raise EngineError(
                f"cannot start the supervisor with {sys.executable}: {error.strerror}",
                "check the limits on processes (`ulimit -u`) and the memory that is free",
            ) from error
        finally:
            os.close(control)
            os.close(status)
        self.send(len(order).to_bytes(8, "little") + order)

    def send(self, command: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # the status pipe tells that it is gone
            view = memoryview(command)
            while view:
                view = view[os.write(self._control, view) :]

    def hear(self) -> None:
        """Take in what the supervisor has said, without waiting; NotStarted when the command did not run."""
        try:
            data = os.read(self.status, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self.gone = True
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._take(line.decode().split())

    def _take(self, words: list[str]) -> None:
        event, figures = words[0], words[1:]
        if event == "moved":
            self.moved = True
        elif event == "started":
            self.pid = int(figures[0])
        elif event == "exited":
            self.wait_status, self.peak_rss = int(figures[0]), int(figures[1])
            self.exited_at = time.monotonic()
        elif event == "signalled":
            if self.wait_status is not None:
                self.left = max(self.left, int(figures[0]))
        elif event == "done":
            self.done = True
        elif event == "failed":
            raise NotStarted(figures[0], int(figures[1]))

    def how_it_vanished(self) -> int:
        """Return the supervisor's own exit code (negative: signal) after ``gone`` without ``done``."""
        try:
            return self._process.wait(GOODBYE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def kill_group(self) -> None:
        """End the command's group directly: for when the supervisor was killed and cannot."""
        if self.pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, 9)

    def close(self) -> None:
        """Hang up, upon which the supervisor kills what is left."""
        os.close(self._control)
        os.close(self.status)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GOODBYE)


def inheritable_descriptors() -> list[int]:
    """Return the descriptors beyond stderr that llmc was started with, a shell's ``<(...)`` among them."""
    found = []
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def why_not_started(
    argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None, failure: NotStarted
) -> EngineError:
    """Say in words why the operating system refused ``argv``, and what mends it."""
    name, reason = argv[0], os.strerror(failure.number)
    if failure.stage == "enter":
        return EngineError(f"cannot run {name} in {cwd}: {reason}", "name a folder that exists and can be entered")
    if failure.stage == "start":
        return EngineError(f"cannot start {name}: {reason}", "check the limits on processes and memory (`ulimit -a`)")
    path = _resolve(name, (os.environ if env is None else env).get("PATH", os.defpath), cwd)
    if path is None:
        if "/" in name:
            return EngineError(f"{name} does not exist", "check the path")
        return EngineError(f"there is no command {name} on PATH", "name it by its path, or put its folder on PATH")
    if path.is_dir():
        return EngineError(
            f"{path} is a folder, not a program", f"name the program in it, e.g. {path}/llama-perplexity"
        )
    if failure.number == errno.ENOENT:
        return EngineError(
            f"{path} cannot run: the interpreter or loader that it names does not exist",
            f"look at `head -1 {path}` (a script) or `file {path}` (built for another system?)",
        )
    if failure.number == errno.EACCES:
        return EngineError(f"{path} may not be executed", f"`chmod +x {path}`, or move it off a noexec file system")
    if failure.number in (errno.ENOEXEC, getattr(errno, "EBADARCH", errno.ENOEXEC)):
        return EngineError(
            f"{path} is not a program for this machine ({reason})",
            f"`file {path}` says what it is; a script needs a first line like #!/bin/sh",
        )
    if failure.number == errno.ETXTBSY:
        return EngineError(f"{path} is still being written", "wait until the build or download is done")
    return EngineError(f"cannot run {path}: {reason}", "check the program and its arguments")


def _resolve(name: str, search: str, cwd: Path | None) -> Path | None:
    base = cwd or Path()
    if "/" in name:
        return base / name if os.path.lexists(base / name) else None
    found = shutil.which(name, path=search)
    if found is None:
        # which() passes over what is not executable; that is the very thing to report here.
        near = (Path(folder or ".") / name for folder in search.split(os.pathsep))
        return next((path for path in near if path.exists()), None)
    return Path(found)
