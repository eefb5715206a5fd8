"""How runs learn that they are to stop: by signals in the main thread, by ``interrupt_runs`` in all others."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import cast


class StopRequests:
    """Counts requests to stop, and wakes the loop through ``fd``."""

    def __init__(self) -> None:
        self.count = 0
        self.fd: int | None = None
        self._write_end = -1

    def listen(self) -> None:
        self.fd, self._write_end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_end, False)

    def caught(self, number: int = 0, frame: FrameType | None = None) -> None:
        self.count += 1
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_end, b"!")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(cast(int, self.fd), 4096)

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            os.close(self._write_end)


_in_threads: set[StopRequests] = set()
_in_threads_lock = threading.Lock()


def interrupt_runs() -> None:
    """Ask every run that goes on outside the main thread to end, as a signal asks the one in it.

    Signals reach the main thread alone, so whoever runs commands in others catches them and calls this; a
    second call takes the next step of the ladder.
    """
    with _in_threads_lock:
        for signals in _in_threads:
            signals.caught()


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Catch SIGINT, SIGTERM and SIGHUP for the length of the block, where they are not ignored.

    Outside the main thread ``interrupt_runs`` stands for the signals.
    """
    signals = StopRequests()
    signals.listen()
    if threading.current_thread() is not threading.main_thread():
        with _in_threads_lock:
            _in_threads.add(signals)
        try:
            yield signals
        finally:
            with _in_threads_lock:
                _in_threads.discard(signals)
            signals.close()
        return
    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # SIG_IGN was set by nohup or a shell's `&`; None is a handler from C, which cannot be put back.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, signals.caught)
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.close()
