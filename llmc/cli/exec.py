"""``llmc exec``: the user's own command, untouched, and a verdict on it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Out
from llmc.errors import ExitCode, LlmcError, UsageError, os_error

if TYPE_CHECKING:
    from llmc.runs.exec import Executed


def _json(on: bool) -> bool:
    if on:
        console.set_json(True)
    return on


@app.command(name="exec", context_settings={"allow_interspersed_args": False})
def exec_(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND [ARG]...", help="Your llama-perplexity command, wrappers and all."),
    ] = None,
    out: Out = Path("out"),
    record: Annotated[Path | None, typer.Option("--record", help="Write the run record to this file too.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0.1, help="Seconds the command may take; no limit if absent."),
    ] = None,
    stall_timeout: Annotated[
        float,
        typer.Option("--stall-timeout", min=0, help="Seconds without any sign of life before it is ended; 0: never."),
    ] = 600.0,
    exit_timeout: Annotated[
        float,
        typer.Option("--exit-timeout", min=0, help="Seconds to exit after the last line was printed; 0: no limit."),
    ] = 60.0,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            callback=_json,
            help="Print one JSON object on stderr, after the command's own output: stdout is the command's.",
        ),
    ] = False,
) -> int:
    """Run your own command exactly as given, pass its output through, and audit it afterwards.

    The exit code is the command's own when that is not 0 (128 + N for signal N), 3 when it failed silently or
    had to be ended, 130 after Ctrl-C, else 0. The verdict goes to stderr.
    """
    from llmc.runs.exec import DEFAULT_LIMITS, execute

    if not command:
        raise UsageError("no command to run", "write `llmc exec -- llama-perplexity -m MODEL ...`")
    _check_writable(record)
    limits = replace(
        DEFAULT_LIMITS,
        timeout=timeout,
        stall=stall_timeout or None,
        exit_grace=exit_timeout or float("inf"),
    )
    executed = execute(command, out, limits)
    _show(executed)
    if record is not None:
        _write_record(record, executed)
    data = {"folder": str(executed.folder), "record": executed.record.dump()}
    console.emit("exec", data, executed.record.exit_code, executed.exit_code)
    return executed.exit_code


def _check_writable(path: Path | None) -> None:
    """A record that cannot be written is better known before a long run than after it."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"--record {path} is a folder", "name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise os_error(error, f"write {path}", "name another file with --record") from error


def _write_record(path: Path, executed: Executed) -> None:
    from llmc.files import write_json

    try:
        write_json(path, executed.record.dump())
    except (OSError, LlmcError) as error:  # the command has run, and its exit code stands
        console.note(f"--record {path} could not be written: {error}; the record is in {executed.folder}")


def _show(executed: Executed) -> None:
    from rich.text import Text

    from llmc.report.verdict import findings_renderable, verdict_text

    record = executed.record
    console.show()
    console.show(Text.assemble("llmc: ", verdict_text(record.exit_code == ExitCode.OK, record.findings)))
    if record.result is not None:
        score = record.result
        console.show(
            f"{100 * score.accuracy:.2f} % ({score.correct} of {score.tasks}), 95 % interval "
            f"{100 * score.wilson_low:.2f} to {100 * score.wilson_high:.2f}"
        )
    if record.findings:
        console.show(findings_renderable(record.findings))
    console.show_text(f"record: {executed.folder / 'record.json'}")
