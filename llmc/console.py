"""The only module that prints: rich text for people, one JSON envelope for programs.

People read tables on stdout; progress, notes and errors go to stderr, so that a pipe carries results only.
With ``--json`` stdout holds exactly one object::

    {"schema": "llmc.cli/1", "command": "run", "status": "ok", "exit_code": 0, "data": {...}}

or ``error`` instead of ``data``. ``llmc exec`` prints all of it on stderr: its stdout is the other program's.
Progress bars appear on a terminal only; ``LLMC_PROGRESS=plain`` prints plain lines instead (for CI logs),
``LLMC_PROGRESS=off`` nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, Protocol

from llmc.errors import ExitCode, LlmcError

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "llmc.cli/1"
PIPE_WIDTH, PIPE_HEIGHT, LEAST_WIDTH = 120, 25, 40
PLAIN_SECONDS = 10.0  # between two plain progress lines

_json_mode = False
_stdout_is_ours = True


def set_json(on: bool) -> None:
    global _json_mode  # noqa: PLW0603 - one process, one output mode
    _json_mode = on


def json_mode() -> bool:
    return _json_mode


def leave_stdout(on: bool) -> None:
    """Send results to stderr: for a command whose stdout belongs to the program that it runs."""
    global _stdout_is_ours  # noqa: PLW0603
    _stdout_is_ours = not on


def _results() -> IO[str]:
    # A stream that was closed when llmc started is None, and no other may be printed on in its place.
    return (sys.stdout if _stdout_is_ours else sys.stderr) or io.StringIO()


def stdout() -> Console:
    return _console(_results())


def stderr() -> Console:
    return _console(sys.stderr or io.StringIO())


def _console(file: IO[str]) -> Console:
    from rich.console import Console

    class Unread(Console):
        """Let the exit code stand when nobody reads any more (``| head``): the rest goes nowhere."""

        def on_broken_pipe(self) -> None:
            _silence(file)

    if file.isatty():
        return Unread(file=file, highlight=False)
    # A file or a pipe has no width of its own, and lines in it are not to be broken.
    return Unread(file=file, highlight=False, soft_wrap=True, width=_pipe_width(), height=PIPE_HEIGHT)


def _pipe_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    return max(LEAST_WIDTH, int(columns)) if re.fullmatch("[1-9][0-9]{0,3}", columns) else PIPE_WIDTH


def _silence(file: IO[str]) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def give_up_stdout() -> None:
    """Send what results are still to come, and those not yet written, nowhere."""
    if sys.stdout is not None:
        _silence(sys.stdout)


def width() -> int:
    """Columns of the terminal that results go to, or those of a line in a file or a pipe."""
    return stdout().width


def show(renderable: Any = "") -> None:
    """Print a result for people on stdout; silent in JSON mode. Rich markup is interpreted in strings."""
    if not _json_mode:
        stdout().print(renderable)


def show_text(text: str) -> None:
    """Print text as it is (no markup, no wrapping) on stdout; silent in JSON mode."""
    if not _json_mode:
        stdout().print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Print a remark about the work on stderr; silent in JSON mode. No markup."""
    if not _json_mode:
        stderr().print(text, style="dim", markup=False)


def ask_secret(question: str) -> str | None:
    """Return what is typed on the terminal, without showing it; None where nobody can be asked."""
    if _json_mode or sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    import getpass

    try:
        return getpass.getpass(question).strip() or None
    except EOFError:
        return None


def workflow_command(line: str) -> None:
    """Print a line that a CI server obeys: among the results, or on stderr where stdout holds one JSON object."""
    (stderr() if _json_mode else stdout()).print(line, markup=False, soft_wrap=True)


def emit(command: str, data: Any, code: ExitCode = ExitCode.OK, exit_code: int | None = None) -> None:
    """Print the JSON envelope of a finished command; does nothing in human mode.

    ``exit_code`` is what the shell gets where that is not ``code`` itself but another program's.
    """
    if _json_mode:
        shell = int(code) if exit_code is None else exit_code
        body = {"schema": SCHEMA, "command": command, "status": code.name.lower(), "exit_code": shell}
        _write_json({**body, "data": data})


def error(failure: LlmcError, command: str = "") -> None:
    """Print one error: what, then how to mend it; as the JSON envelope in JSON mode.

    Where the envelope cannot be written (the disk is full), people get to read the error instead.
    """
    if _json_mode:
        detail: dict[str, Any] = {"kind": failure.kind, "message": failure.what, "remedy": failure.remedy}
        for extra in ("slug", "task", "offset"):
            if (value := getattr(failure, extra, None)) is not None:
                detail[extra] = value
        status = failure.exit_code.name.lower()
        body = {"schema": SCHEMA, "command": command, "status": status, "exit_code": int(failure.exit_code)}
        try:
            _write_json({**body, "error": detail})
        except OSError:
            give_up_stdout()
        else:
            return
    with contextlib.suppress(OSError):
        _write_error(failure)


def _write_error(failure: LlmcError) -> None:
    out = stderr()
    out.print("[bold red]error:[/] ", end="")
    out.print(failure.what, markup=False)
    if failure.remedy:
        out.print("[bold]fix:[/]   ", end="")
        out.print(failure.remedy, markup=False)


def _write_json(body: dict[str, Any]) -> None:
    file = _results()
    unicode = (getattr(file, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
    text = json.dumps(body, indent=1, ensure_ascii=not unicode, allow_nan=False)
    try:
        # A lone surrogate stands for a byte of a file's name; \udcXX is how JSON writes it.
        file.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
        file.flush()
    except BrokenPipeError:
        _silence(file)


_sink = threading.local()


@contextlib.contextmanager
def progress_to(sink: Callable[[str, float | None, float, str], None]) -> Iterator[None]:
    """Give the progress of every step in this thread to ``sink`` (title, total, done, remark) instead of showing it.

    For work in several threads, of which only one can draw on the terminal.
    """
    _sink.take = sink
    try:
        yield
    finally:
        del _sink.take


class Advance(Protocol):
    """Says how far a step is: ``done`` in the unit of its total, and a short remark."""

    def __call__(self, done: float, remark: str = "") -> None: ...


@contextlib.contextmanager
def progress(title: str, total: float | None = None) -> Iterator[Advance]:
    """Show the progress of one long step; yields ``advance(done, remark)``.

    ``total`` may be None for a step of unknown length. Calls may come as often as they like.
    """
    style = os.environ.get("LLMC_PROGRESS", "")
    take = getattr(_sink, "take", None)
    if take is not None:
        yield lambda done, remark="": take(title, total, done, remark)
    elif style == "off" or _json_mode or sys.stderr is None:
        yield _silent
    elif style == "plain":
        yield from _plain(title, total)
    elif sys.stderr.isatty():
        yield from _bar(title, total)
    else:
        yield _silent


def _silent(done: float, remark: str = "") -> None:
    """The progress of a step nobody watches."""


def _plain(title: str, total: float | None) -> Iterator[Advance]:
    start = last = time.monotonic()
    sys.stderr.write(f"{title} ...\n")
    sys.stderr.flush()

    def advance(done: float, remark: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_SECONDS:
            last = now
            share = f" {100 * done / total:.0f} %" if total else ""
            sys.stderr.write(f"{title}{share} {remark} ({now - start:.0f} s)\n")
            sys.stderr.flush()

    yield advance
    sys.stderr.write(f"{title}: done in {time.monotonic() - start:.1f} s\n")


def _bar(title: str, total: float | None) -> Iterator[Advance]:
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%" if total else ""),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[remark]}", markup=False),
    )
    with Progress(*columns, console=stderr(), transient=True, expand=True) as bar:
        task = bar.add_task(title, total=total, remark="")

        def advance(done: float, remark: str = "") -> None:
            bar.update(task, completed=done, remark=remark)

        yield advance
