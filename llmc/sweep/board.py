"""The cells that are still to be done, given out one by one, and what became of each."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmc.runs.store import now
from llmc.sweep.matrix import CellSpec
from llmc.sweep.sources import ModelSource
from llmc.sweep.state import SweepFolder
from llmc.sweep.work import Done

OTHERS_SECONDS = 0.5  # between two looks at cells that another process is running


@dataclass(frozen=True)
class Event:
    """A cell that has ended: how, after how many seconds, and how many of how many that makes."""

    cell: CellSpec
    done: Done
    seconds: float
    number: int
    total: int


class Board:
    """Gives out cells to whoever has a place free; a cell that another process runs is waited for.

    ``on_done`` is called, one call at a time, after the map on disk knows about a cell. ``on_last`` is called with
    a model once none of its cells is left.
    """

    def __init__(
        self,
        cells: Sequence[CellSpec],
        folder: SweepFolder,
        on_done: Callable[[Event], None],
        on_last: Callable[[ModelSource], None],
    ) -> None:
        self.folder, self.on_done, self.on_last = folder, on_done, on_last
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self.total = len(cells)
        self.running: dict[str, float] = {}
        self._waiting = deque(cells)
        self._elsewhere: set[str] = set()
        self._left = Counter(cell.model for cell in cells)
        self._ended = 0
        self._began = now()
        self._lock = threading.RLock()

    def take(self, wait: bool = True) -> CellSpec | None:
        """Return a cell to run, claimed for this process; None when there is none (now, or at all if ``wait``)."""
        while not self.stop.is_set():
            with self._lock:
                for _ in range(len(self._waiting)):
                    cell = self._waiting.popleft()
                    if not self.folder.claim(cell.id):
                        self._elsewhere.add(cell.id)
                        self._waiting.append(cell)
                    elif (found := self._done_elsewhere(cell)) is not None:
                        self._conclude(cell, found, 0.0)
                    else:
                        self.running[cell.id] = time.monotonic()
                        return cell
                if not self._waiting:
                    return None
            if not wait:
                return None
            self.stop.wait(OTHERS_SECONDS)
        return None

    def _done_elsewhere(self, cell: CellSpec) -> Done | None:
        """Return what another process has just made of a cell that this one had to wait for."""
        if cell.id not in self._elsewhere:
            return None
        state = self.folder.load().cells.get(cell.id)
        if state is None or (state.finished or "") < self._began or state.status in ("pending", "interrupted"):
            return None
        run = self.folder.out / "runs" / state.run if state.run else None
        return Done(state.status, run, state.error, reused=True)

    def end(self, cell: CellSpec, done: Done, where: str | None = None) -> None:
        """Record how a cell ended; whatever goes wrong in doing so ends the sweep."""
        try:
            with self._lock:
                seconds = time.monotonic() - self.running.pop(cell.id)
                self._update(cell, done, seconds, where)
                self._conclude(cell, done, seconds)
        except BaseException as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.stop.set()

    def _update(self, cell: CellSpec, done: Done, seconds: float, where: str | None) -> None:
        results = {
            "status": done.status,
            "run": done.run.name if done.run else None,
            "error": done.error,
            "seconds": round(seconds, 3),
            "finished": now(),
            "where": where,
        }
        self.folder.update(cell.id, results, reused=done.reused)

    def _conclude(self, cell: CellSpec, done: Done, seconds: float) -> None:
        self.folder.release(cell.id)
        self._ended += 1
        self.on_done(Event(cell, done, seconds, self._ended, self.total))
        self._left[cell.model] -= 1
        if not self._left[cell.model]:
            self.on_last(cell.model)
