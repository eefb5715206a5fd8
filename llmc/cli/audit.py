"""``llmc audit``: judge logs that are already on disk."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import InputFileError, LlmcError, UsageError, os_error

if TYPE_CHECKING:
    from llmc.engine.audit import Audit
    from llmc.engine.process import Outcome
    from llmc.engine.transcript import StreamName, Transcript
    from llmc.findings import Finding
    from llmc.mcbin import BinFacts
    from llmc.runs.record import RunRecord

STANDARD_INPUT = "-"
_CHUNK = 1 << 20
_HEAD = 256
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HELP_LOGS = "name one combined log, or the stdout and the stderr of one run"


@app.command()
def audit(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...", help="One log with both streams, or the two streams in any order; - for stdin."
        ),
    ],
    bin_path: Annotated[
        Path | None, typer.Option("--bin", metavar="FILE", help="The benchmark file that was scored.")
    ] = None,
    exit_status: Annotated[
        int | None,
        typer.Option("--exit-status", min=-64, max=255, help="What the process returned; -N for signal N."),
    ] = None,
    subset: Annotated[
        int | None,
        typer.Option("--subset", min=1, help="The N of --multiple-choice-tasks N, if it was given."),
    ] = None,
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Judge what llama-perplexity printed: was every task scored, and do all figures agree?

    The verdict is kept as a run record, like that of a run.
    """
    from llmc.engine.audit import audit as judge
    from llmc.engine.case import selection
    from llmc.runs.audited import audited_record
    from llmc.runs.observed import Observed
    from llmc.runs.store import now

    started = now()
    transcript = _read_logs(logs)
    facts, golds, extra = _read_bin(bin_path)
    if subset is None and transcript.selected:
        from llmc.findings import finding

        subset, of = transcript.selected[-1]
        extra = [*extra, finding("selection-scored", f"{subset:,} of {of:,} tasks were selected")]
    subset = selection(subset, facts.tasks if facts is not None else None)
    result = judge(
        transcript,
        facts=facts,
        outcome=(outcome := _outcome(exit_status)),
        subset=subset,
        # A selection is scored in an order of its own.
        golds=golds if subset is None else None,
        extra=extra,
    )
    bin_name = None if bin_path is None else str(bin_path)
    record = audited_record(Observed(transcript, result, bin_name, facts, subset), logs, outcome, started)
    _show(result, transcript, facts)
    folder = _keep(record, out)
    data = {**_data(result, transcript, facts, logs, bin_path), "folder": folder, "record": record.dump()}
    console.emit("audit", data, record.exit_code)
    return int(record.exit_code)


def _keep(record: RunRecord, out: Path) -> str | None:
    """Write the record; a place where nothing can be written changes nothing about the verdict."""
    from llmc.runs.audited import keep

    try:
        folder = keep(record, out)
    except LlmcError as error:
        console.note(f"no record was written: {error.what}; fix: {error.remedy}")
        return None
    console.show_text(f"\nrecord: {folder / 'record.json'}")
    return str(folder)


def _read_logs(logs: list[str]) -> Transcript:
    """Read one log as both streams in one, or two as one stream each: what each holds tells them apart."""
    from llmc.engine.transcript import TranscriptParser

    if len(logs) > 2:
        raise UsageError(f"{len(logs)} logs were named; a run has at most two", _HELP_LOGS)
    if len(logs) == 2 and (logs[0] == logs[1] or _same_file(Path(logs[0]), Path(logs[1]))):
        raise UsageError(f"the log {logs[0]} was named twice", _HELP_LOGS)
    parser = TranscriptParser()
    streams: tuple[StreamName, ...] = ("combined",) if len(logs) == 1 else ("stdout", "stderr")
    binary = [name for name, stream in zip(logs, streams, strict=True) if _feed(parser, stream, name)]
    if binary:
        raise InputFileError(f"{binary[0]} is binary data, not a log of llama-perplexity", _HELP_LOGS)
    return parser.close()


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _feed(parser: Any, stream: StreamName, name: str) -> bool:
    """Feed one log to its end; return whether it begins with binary data.

    Later in a log NUL bytes are what a crash of the machine left there, which is for the audit to judge.
    """
    head = b""
    decoder = None
    with _opened(name) as log:
        try:
            while data := log.read(_CHUNK):
                if not head and data.startswith(_UTF16):  # what PowerShell's `>` writes
                    decoder = codecs.getincrementaldecoder("utf-16")("replace")
                data = data if decoder is None else decoder.decode(data).encode("utf-8", "replace")
                head = head or data[:_HEAD]
                parser.feed(stream, data)
        except OSError as error:
            raise os_error(error, f"read {name}", "check the path and its permissions") from error
    return b"\0" in head


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputFileError("standard input is closed", "name a log file")
        if sys.stdin.isatty():
            console.note("reading the log from standard input; end it with Ctrl-D")
        yield sys.stdin.buffer
        return
    path = Path(name)
    if path.is_dir():
        raise InputFileError(f"{path} is a directory, not a log", _HELP_LOGS)
    try:
        log = path.open("rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputFileError(f"cannot read the log {name}: {reason}", "check the path") from error
    with log:
        yield log


def _read_bin(path: Path | None) -> tuple[BinFacts | None, bytes | None, list[Finding]]:
    """Return the file's facts and gold indices, or the finding that says why there are none."""
    from llmc.runs.watched import read_contents

    if path is None:
        return None, None, []
    contents = read_contents(path)
    return contents.facts, contents.golds if contents.facts else None, list(contents.findings)


def _outcome(exit_status: int | None) -> Outcome | None:
    from llmc.engine.process import Outcome

    if exit_status is None:
        return None
    return Outcome(
        exit_code=exit_status if exit_status >= 0 else None,
        signal=-exit_status if exit_status < 0 else None,
        ended_by="itself",
        left_children=0,
        seconds=0.0,
        peak_rss=None,
    )


def _show(result: Audit, transcript: Transcript, facts: BinFacts | None) -> None:
    from rich.text import Text

    from llmc.report.verdict import findings_renderable, verdict_text

    expected = f"{result.tasks_expected:,}" if result.tasks_expected is not None else "an unknown number"
    rows = [("tasks", f"{result.tasks_scored:,} scored of {expected}")]
    rows += _score_rows(result, transcript, facts)
    for label, value in rows:
        console.show(Text(f"{label:<13} {value}"))
    console.show(Text(f"{'verdict':<13} ").append_text(verdict_text(result.trusted, result.findings)))
    if result.findings:
        console.show()
        console.show(findings_renderable(result.findings))


def _score_rows(result: Audit, transcript: Transcript, facts: BinFacts | None) -> Iterator[tuple[str, str]]:
    score = _score(result, transcript, facts)
    if score is None:
        return
    yield "accuracy", f"{100 * score['accuracy']:.2f} % ({score['right']:,} right)"
    yield "95 % interval", f"{100 * score['wilson_low']:.2f} to {100 * score['wilson_high']:.2f} % (Wilson)"
    if score["chance"] is not None:
        yield "chance", f"{100 * score['chance']:.2f} %"
    if score["majority_share"] is not None:
        always = f"always option {score['majority_position']}, counted from 0"
        yield "majority", f"{100 * score['majority_share']:.2f} % ({always})"


def _score(result: Audit, transcript: Transcript, facts: BinFacts | None) -> dict[str, Any] | None:
    """Return the score and what to read it against, as shares; None when there is none to trust."""
    from llmc.stats import wilson

    if result.accuracy is None or result.correct is None:
        return None
    right, tasks = result.correct.count("1"), len(result.correct)
    low, high = wilson(right, tasks)
    whole = facts is not None and facts.tasks == tasks
    printed = transcript.chances[0][0] if transcript.chances else None
    engines = None if printed is None else printed / 100
    return {
        "accuracy": result.accuracy,
        "right": right,
        "tasks": tasks,
        "wilson_low": low,
        "wilson_high": high,
        "engine_standard_error": None if result.engine_se is None else result.engine_se / 100,
        # Of a selection only the engine knows the chance, and nobody the majority.
        "chance": facts.chance if facts is not None and whole else engines,
        "majority_position": facts.majority_position if facts is not None and whole else None,
        "majority_share": facts.majority_share if facts is not None and whole else None,
        "correct": result.correct,
    }


def _data(
    result: Audit, transcript: Transcript, facts: BinFacts | None, logs: list[str], bin_path: Path | None
) -> dict[str, Any]:
    from llmc.report.verdict import findings_data

    return {
        "trusted": result.trusted,
        "tasks_expected": result.tasks_expected,
        "tasks_scored": result.tasks_scored,
        "score": _score(result, transcript, facts),
        "findings": findings_data(result.findings),
        "logs": logs,
        "bin": None if bin_path is None else {"path": str(bin_path), "sha256": facts.sha256 if facts else None},
        "engine": {
            "n_ctx": transcript.n_ctx,
            "n_seq_max": transcript.n_seq_max,
            "build": transcript.build,
            "tokens_per_second": transcript.timings.tokens_per_second,
            "layout": list(transcript.layout),
        },
    }
