"""Run one command to its end, whatever it does: the mechanism, which judges nothing.

The command runs in a session of its own under a small supervisor (``supervisor.py``), with both its output
pipes read here as they fill. However it ends (by itself, by a limit, by Ctrl-C, by the death of llmc), no
process that it started is left, and what it wrote is in the two log files.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from llmc.engine.interrupts import StopRequests, stop_requests
from llmc.engine.supervised import NotStarted, Supervised, why_not_started
from llmc.engine.tee import Tee, new_pipe
from llmc.errors import EngineError, LlmcError

Stream = Literal["stdout", "stderr"]
EndedBy = Literal["itself", "timeout", "stalled", "did-not-exit", "interrupted"]
OnOutput = Callable[[Stream, bytes], None]

LEFTOVER_GRACE = 0.5  # seconds that descendants get to end after the main process has
HOLDER_GRACE = 0.5  # seconds for a pipe to close after everything known is gone
KILL_GRACE = 5.0  # seconds after SIGKILL; beyond them a process hangs in the kernel and is given up
DROP_GRACE = 0.5  # seconds that a slow reader of our output gets after Ctrl-C
OWN_PAUSE = 5.0  # a longer gap between two looks means that llmc itself was stopped or asleep
LONGEST_WAIT = 1.0
INTERRUPT, TERMINATE, KILL = b"I", b"T", b"K"
RUNGS = (INTERRUPT, TERMINATE, KILL)
STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")


@dataclass(frozen=True)
class Limits:
    """Seconds after which a process is ended, and what it gets at each rung of the ladder.

    ``timeout`` overall; ``stall`` without output, CPU time, input or page faults in the whole process tree;
    ``exit_grace`` to exit after everything was said; with ``may_go_on``, after the last output from then on, since a
    script may do more when the engine is done. Then SIGINT, ``interrupt_grace`` later SIGTERM, and
    ``terminate_grace`` after that SIGKILL. None switches a limit off.
    """

    timeout: float | None = None
    stall: float | None = 300.0
    exit_grace: float = 30.0
    may_go_on: bool = False
    interrupt_grace: float = 1.5
    terminate_grace: float = 1.5


@dataclass(frozen=True)
class Outcome:
    """How the process ended.

    Exactly one of ``exit_code`` and ``signal`` is a number, or neither when it would not die even by SIGKILL.
    ``ended_by`` is what llmc saw; a process ended by a limit may still exit 0. ``left_children`` counts
    processes that outlived the main one, or something else that held its output open. ``seconds`` is wall
    time, ``peak_rss`` the largest resident size in bytes of the main process or of a child it waited for.
    """

    exit_code: int | None
    signal: int | None
    ended_by: EndedBy
    left_children: int
    seconds: float
    peak_rss: int | None


def run_process(
    argv: Sequence[str],
    *,
    stdout_log: Path,
    stderr_log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limits: Limits = Limits(),
    on_output: OnOutput | None = None,
    said_everything: Callable[[], bool] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    passthrough: bool = False,
) -> Outcome:
    """Run ``argv`` (no shell) and return how it ended; both streams go to the logs as they come.

    ``on_output`` sees every chunk in the caller's thread; while it works the child is held back by its pipe,
    so that memory stays bounded. An exception from it ends the child and is raised here. ``said_everything``
    is asked after output; once true, the process has ``limits.exit_grace`` to exit. ``passthrough`` copies
    both streams to llmc's own, unchanged; a reader that went away is no failure. In the main thread SIGINT,
    SIGTERM and SIGHUP end the child by the ladder (again: the next rung at once); ignored ones stay ignored.
    In other threads ``interrupt_runs`` does.

    Raises EngineError when the command cannot be started, InputFileError when a log cannot be written.
    """
    if not argv or any("\0" in word for word in argv):
        raise EngineError("the command is empty or holds a NUL byte", "name the program and its arguments")
    onward = _own_streams() if passthrough else (None, None)
    _fill_standard_descriptors()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(stop_requests())
        tees: dict[Stream, Tee] = {}
        writers: list[int] = []
        try:
            for name, log, fd in zip(STREAMS, (stdout_log, stderr_log), onward, strict=True):
                reader, writer = new_pipe()
                writers.append(writer)
                stack.callback(os.close, reader)
                tees[name] = Tee(reader, log, fd)
                stack.callback(tees[name].close)
            child = Supervised(
                argv,
                *writers,
                env=env,
                cwd=cwd,
                stdin=stdin,
                sample=_sample_seconds(limits),
                inherit=passthrough,
            )
            stack.callback(child.close)
        finally:
            for writer in writers:
                os.close(writer)
        run = _Run(child, tees, limits, signals, on_output, said_everything, started)
        try:
            return run.to_the_end()
        except NotStarted as failure:
            raise why_not_started(argv, env, cwd, failure) from None


class _Run:
    """The state of one run, moved on by whatever happens first: output, a report, a signal, a deadline."""

    def __init__(
        self,
        child: Supervised,
        tees: dict[Stream, Tee],
        limits: Limits,
        signals: StopRequests,
        on_output: OnOutput | None,
        said_everything: Callable[[], bool] | None,
        started: float,
    ) -> None:
        self.child, self.tees, self.limits, self.signals = child, tees, limits, signals
        self.on_output, self.said_everything = on_output, said_everything
        self.started = self.looked = self.moved = started
        self.said: float | None = None  # since when everything has been said
        self.ended_by: EndedBy = "itself"
        self.answered = 0  # signals to llmc acted upon
        self.rung = -1  # the last step of the ladder taken
        self.due = math.inf  # when the next one is
        self.over: float | None = None  # since when no process is left that could be waited for
        self.given_up = False
        self.holders = 0

    def to_the_end(self) -> Outcome:
        try:
            while not self._finished():
                self._wait_for_something()
                self._obey_signals()
                self._watch_limits()
                self._climb_when_due()
                self._wind_up()
            return self._outcome()
        except NotStarted:
            raise
        except BaseException:
            self._kill_now()
            raise

    # ---- what happens

    def _wait_for_something(self) -> None:
        poll = select.poll()
        if not self.child.gone:
            poll.register(self.child.status, select.POLLIN)
        if self.signals.fd is not None:
            poll.register(self.signals.fd, select.POLLIN)
        for tee in self.tees.values():
            if tee.held_back:
                poll.register(cast(int, tee.onward), select.POLLOUT)
            elif tee.open:
                poll.register(tee.source, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(1000 * self._patience())}
        if self.signals.fd in ready:
            self.signals.clear()
        for name, tee in self.tees.items():
            self._serve(name, tee, ready)
        if self.child.status in ready:
            self.child.hear()
            if self.child.moved:
                self.child.moved, self.moved = False, time.monotonic()

    def _serve(self, name: Stream, tee: Tee, ready: set[int]) -> None:
        if tee.held_back:
            if tee.onward in ready:
                tee.pass_on()
        elif tee.source in ready and (data := tee.read()):
            if self.on_output is not None:
                self.on_output(name, data)
            now = self.moved = time.monotonic()
            if self.said_everything is not None:
                since = now if self.limits.may_go_on else self.said or now
                self.said = since if self.said_everything() else None

    def _patience(self) -> float:
        """Seconds until the next thing that has to be done without being told."""
        due = [self.due]
        if self.over is not None:
            due.append(self.over + HOLDER_GRACE)
        elif self.child.exited_at is not None:
            due.append(self.child.exited_at + LEFTOVER_GRACE)
        else:
            due += [deadline for deadline, _ in self._deadlines()]
        return max(0.0, min(LONGEST_WAIT, min(due) - time.monotonic()) + 0.001)

    def _deadlines(self) -> Iterator[tuple[float, EndedBy]]:
        if self.limits.timeout is not None:
            yield self.started + self.limits.timeout, "timeout"
        if self.said is not None:
            yield self.said + self.limits.exit_grace, "did-not-exit"
        if self.limits.stall is not None:
            yield self.moved + self.limits.stall, "stalled"

    # ---- what is done about it

    def _obey_signals(self) -> None:
        while self.answered < self.signals.count:
            self.answered += 1
            self.ended_by = "interrupted"
            if self.rung < len(RUNGS) - 1:
                self._climb()

    def _watch_limits(self) -> None:
        now = time.monotonic()
        own_pause = now - self.looked > OWN_PAUSE
        self.looked = now
        if own_pause or any(tee.held_back for tee in self.tees.values()):
            # Time in which llmc itself was stopped, or its reader took nothing, is not the child's.
            self.moved = now
            self.said = now if self.said is not None else None
        if self.rung >= 0 or self.child.exited_at is not None:
            return
        for deadline, reason in self._deadlines():
            if now >= deadline:
                self.ended_by = reason
                self._climb()
                return

    def _climb(self) -> None:
        self.rung += 1
        self.child.send(RUNGS[self.rung])
        grace = (self.limits.interrupt_grace, self.limits.terminate_grace, KILL_GRACE)[self.rung]
        self.due = time.monotonic() + grace

    def _climb_when_due(self) -> None:
        now = time.monotonic()
        exited_at = self.child.exited_at
        if exited_at is not None and not self.child.done and self.rung < len(RUNGS) - 1:
            # Descendants that outlive the main process: no Ctrl-C was meant for them, so begin with SIGTERM.
            if self.rung < 0:
                self.rung = RUNGS.index(TERMINATE) - 1
                self.due = exited_at + LEFTOVER_GRACE
            elif self.rung == RUNGS.index(INTERRUPT):
                self.due = min(self.due, exited_at + LEFTOVER_GRACE)
        if now < self.due or self.child.done:
            return
        if self.rung < len(RUNGS) - 1:
            self._climb()
        else:
            self.given_up = True

    def _wind_up(self) -> None:
        """Once no process is left: read what the pipes still hold, and let go of what others keep open."""
        now = time.monotonic()
        if self.over is None:
            if not (self.child.done or self.child.gone or self.given_up):
                return
            self.over = now
            if self.child.gone and not self.child.done:
                self.child.kill_group()
            for tee in self.tees.values():
                tee.count_owed()
        if now < self.over + HOLDER_GRACE:
            return
        for tee in self.tees.values():
            if self.ended_by == "interrupted":
                tee.drop_onward()
            if tee.open and not tee.held_back and tee.owed is not None and tee.owed <= 0:
                tee.open = False
                self.holders = 1

    def _finished(self) -> bool:
        return self.over is not None and not any(tee.open or tee.held_back for tee in self.tees.values())

    def _outcome(self) -> Outcome:
        exit_code, killed_by = self._exit_status()
        ended = self.child.exited_at or time.monotonic()
        return Outcome(
            exit_code=exit_code,
            signal=killed_by,
            ended_by=self.ended_by,
            left_children=max(self.child.left, self.holders),
            seconds=ended - self.started,
            peak_rss=self.child.peak_rss,
        )

    def _exit_status(self) -> tuple[int | None, int | None]:
        if self.child.gone and not self.child.done:
            code = self.child.how_it_vanished()
            if code >= 0:
                raise LlmcError(
                    f"the supervisor of the run ended unexpectedly (exit {code})",
                    "run it again; if it recurs, report it with the Python version and the system",
                )
            return None, -code
        if self.child.wait_status is None:
            return None, None
        code = os.waitstatus_to_exitcode(self.child.wait_status)
        return (code, None) if code >= 0 else (None, -code)

    def _kill_now(self) -> None:
        self.child.send(KILL)
        until = time.monotonic() + KILL_GRACE
        poll = select.poll()
        poll.register(self.child.status, select.POLLIN)
        while not (self.child.done or self.child.gone) and (left := until - time.monotonic()) > 0:
            if poll.poll(1000 * left):
                with contextlib.suppress(NotStarted):
                    self.child.hear()
        if self.child.gone:
            self.child.kill_group()


def _sample_seconds(limits: Limits) -> float | None:
    """How often the supervisor looks whether the process tree moves: a tenth of the limit, within reason."""
    return None if limits.stall is None else min(5.0, max(0.05, limits.stall / 10))


def _own_streams() -> tuple[int | None, int | None]:
    """Return llmc's stdout and stderr descriptors, None for one that was closed when llmc started."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return (1 if sys.__stdout__ is not None else None, 2 if sys.__stderr__ is not None else None)


def _fill_standard_descriptors() -> None:
    """Open /dev/null for each of 0, 1, 2 that is closed, so that no pipe of ours gets such a number."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
