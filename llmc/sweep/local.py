"""The executor of one machine: threads that each watch one engine at a time."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Protocol

from llmc import console
from llmc.engine.interrupts import interrupt_runs
from llmc.sweep.board import Board
from llmc.sweep.work import Workshop, perform

STOP_SECONDS = 20.0  # after Ctrl-C: engines end within seconds; what else a thread waits for is left to itself
LOOK_SECONDS = 0.2

# (cell id, title of the step, total, done, remark)
Steps = Callable[[str, str, "float | None", float, str], None]


class Executor(Protocol):
    """Runs the cells of a board until none is left or ``board.stop`` is set."""

    def run(self, board: Board) -> None: ...


class LocalExecutor:
    """Runs as many cells side by side as there are ``slots``: the environment variables of each."""

    def __init__(self, workshop: Workshop, slots: Sequence[Mapping[str, str]], steps: Steps) -> None:
        self.workshop, self.slots, self.steps = workshop, slots, steps

    def run(self, board: Board) -> None:
        threads = [threading.Thread(target=self._guarded, args=(board, slot), daemon=True) for slot in self.slots]
        with stopped_by_signals(board):
            for thread in threads:
                thread.start()
            until: float | None = None
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(LOOK_SECONDS / len(threads))
                if board.stop.is_set():
                    until = until or time.monotonic() + STOP_SECONDS
                    if time.monotonic() > until:
                        break
        if board.failure is not None:
            raise board.failure

    def _guarded(self, board: Board, variables: Mapping[str, str]) -> None:
        try:
            self._work(board, variables)
        except BaseException as error:  # in a thread nobody else would ever learn of it
            board.fail(error)

    def _work(self, board: Board, variables: Mapping[str, str]) -> None:
        where = ",".join(f"{name}={value}" for name, value in variables.items() if name == "CUDA_VISIBLE_DEVICES")
        while (cell := board.take()) is not None:

            def sink(title: str, total: float | None, done: float, remark: str, name: str = cell.id) -> None:
                self.steps(name, title, total, done, remark)

            with console.progress_to(sink):
                done = perform(cell, self.workshop, variables)
            board.end(cell, done, where or None)


@contextlib.contextmanager
def stopped_by_signals(board: Board) -> Iterator[None]:
    """Let Ctrl-C and its kin stop the board and the engines; again, and the engines are ended more firmly."""

    def caught(number: int, frame: FrameType | None) -> None:
        board.stop.set()
        interrupt_runs()

    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    before[number] = signal.signal(number, caught)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
