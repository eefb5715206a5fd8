"""One output stream of a child: read as it comes, kept in a log file, passed on, never gathered in memory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import struct
import sys
import termios
from pathlib import Path

from llmc.errors import InputFileError, os_error

READ_BYTES = 1 << 20
F_SETPIPE_SZ = 1031  # Linux; in the fcntl module since Python 3.10 only where the headers had it
# What a descriptor reported as writable takes without blocking: PIPE_BUF of a pipe, less of a terminal.
PIPE_STEP = select.PIPE_BUF
TERMINAL_STEP = 256


def new_pipe() -> tuple[int, int]:
    """Return (read end, write end) of a pipe as roomy as the system allows; the read end does not block."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):  # over the user's limit for pipes: 64 KiB do too
            fcntl.fcntl(writer, F_SETPIPE_SZ, READ_BYTES)
    return reader, writer


class Tee:
    """Reads ``source`` and writes what comes to the log and, when given, to the descriptor ``onward``.

    A reader that is slow holds the child back through the pipe, as it would without llmc in between; one that
    goes away is no reason to stop, since the log goes on.
    """

    def __init__(self, source: int, log: Path, onward: int | None) -> None:
        self.source = source
        self.name = log
        self.open = True
        self.owed: int | None = None
        self.pending = memoryview(b"")
        self.onward = onward
        self._step = _safe_step(onward) if onward is not None else 0
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        except OSError as error:
            raise _cannot_write(error, str(log)) from error

    @property
    def held_back(self) -> bool:
        """Whether the reader of ``onward`` has not yet taken all."""
        return bool(self.pending)

    def read(self) -> bytes:
        """Return what has come, already in the log; b"" when nothing has, or the stream has ended (``open``).

        InputFileError when the log or ``onward`` cannot be written (no room).
        """
        try:
            data = os.read(self.source, READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            self.open = False
            return b""
        if self.owed is not None:
            self.owed -= len(data)
        self._keep(data)
        if self.onward is not None:
            self.pending = memoryview(data)
            self.pass_on()
        return data

    def _keep(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._log, view) :]
        except OSError as error:
            raise _cannot_write(error, str(self.name)) from error

    def pass_on(self) -> None:
        """Write as much of ``pending`` as the reader takes now, without ever waiting for it."""
        while self.pending and self.onward is not None:
            if self._step and not _writable(self.onward):
                return
            try:
                taken = os.write(self.onward, self.pending[: self._step] if self._step else self.pending)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.EIO):
                    raise _cannot_write(error, "the output onward") from error
                self.drop_onward()
                return
            self.pending = self.pending[taken:]

    def drop_onward(self) -> None:
        self.onward, self.pending = None, memoryview(b"")

    def count_owed(self) -> None:
        """Note how much the pipe still holds, written by processes that have all ended."""
        self.owed = struct.unpack("i", fcntl.ioctl(self.source, termios.FIONREAD, b"\0" * 4))[0]

    def close(self) -> None:
        self.open = False
        os.close(self._log)


def _cannot_write(error: OSError, name: str) -> InputFileError:
    named = OSError(error.errno, error.strerror, name)
    return os_error(named, "write", "make room on the disk, or choose another folder with --out")


def _safe_step(fd: int) -> int:
    """Return how much may be written at once when ``fd`` polls writable; 0 where writing never waits long."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return 0
    return TERMINAL_STEP if os.isatty(fd) else PIPE_STEP


def _writable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(0))
