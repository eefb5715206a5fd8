"""llama-perplexity's output, turned from bytes into facts. Judges nothing; ``audit`` does.

Bytes come as they were read, in pieces of any size, from two streams or from one log that holds both. The
result does not depend on where the pieces end, nor on which stream was heard first. No bytes whatever raise,
and memory is bounded: a line by ``lines.MAX_LINE``, the rows by ``max_rows`` (16 bytes each), and every list
by ``MAX_FACTS``.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from llmc.engine.interleave import Stitcher
from llmc.engine.lines import (
    GLUE,
    JSON_ROW,
    MAX_LINE,
    METADATA,
    RAW_NAME,
    ROW,
    Announced,
    BytesRead,
    ErrorLine,
    Fact,
    Row,
    Selected,
    Setting,
    Summary,
    clean,
    read_line,
)

__all__ = ["ErrorLine", "StreamName", "Transcript", "TranscriptParser", "parse"]

StreamName = Literal["stdout", "stderr", "combined"]
STREAMS: tuple[StreamName, ...] = ("stdout", "stderr", "combined")
T = TypeVar("T")
MAX_FACTS = 1000  # of one kind; more announcements, finals or errors than this say nothing new
ACCURACY_UNIT = 1e-8  # percent; accuracies are whole numbers of it, exactly as printed
_BLOCK = 1 << 16
_NAME_LINES = 64  # lines that a model's name may take
_ROWS = re.compile(rb"(?:" + ROW + rb"\r?\n)+")
_JSON_ROWS = re.compile(rb"(?:" + JSON_ROW + rb"\r?\n)+")
_JSON_WORD = re.compile(rb'([0-9]+)\\t([0-9]+\.[0-9]+)\\n"')


@dataclass(frozen=True)
class Timings:
    """llama.cpp's own timings, None where they were not printed (build 11434 hides them below -lv 4)."""

    load_seconds: float | None = None
    prompt_seconds: float | None = None
    prompt_tokens: int | None = None
    total_seconds: float | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Prompt tokens per second, which is what scoring consists of."""
        if not self.prompt_seconds or self.prompt_tokens is None:
            return None
        return self.prompt_tokens / self.prompt_seconds


@dataclass(frozen=True)
class Transcript:
    """The facts of one run's output.

    ``row_numbers`` and ``accuracies`` hold one entry per task line, as printed and in order; accuracies are
    in units of 1e-8 percent. ``rows_total`` counts the rows beyond ``max_rows`` too. ``finals`` and
    ``chances`` are (percent, standard error) with None for what is not finite. ``bytes_read``, ``announced``
    and ``selected`` (tasks, of how many) hold every such line. ``task`` of an error line is 0-based in the
    order of scoring. ``layout`` names what the log looks like: ``prefix``,
    ``colours``, ``jsonl``, ``crlf``, ``printf`` (summary with a leading space), ``cut-lines``.
    """

    bytes_read: tuple[int, ...] = ()
    announced: tuple[int, ...] = ()
    selected: tuple[tuple[int, int], ...] = ()
    row_numbers: array[int] = field(default_factory=lambda: array("q"))
    accuracies: array[int] = field(default_factory=lambda: array("q"))
    rows_total: int = 0
    finals: tuple[tuple[float | None, float | None], ...] = ()
    chances: tuple[tuple[float | None, float | None], ...] = ()
    error_lines: tuple[ErrorLine, ...] = ()
    n_ctx: int | None = None
    n_seq_max: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    flash_attn: str | None = None
    kv_unified: str | None = None
    seed: int | None = None
    build: str | None = None
    timings: Timings = Timings()
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    combined_bytes: int = 0
    layout: tuple[str, ...] = ()


class TranscriptParser:
    """Reads output as it arrives.

    ``rows``, ``announced``, ``running_accuracy`` and ``said_everything`` are live. Set ``expected`` to the
    number of tasks when it is known, so that the last row counts as the end where the final line is hidden.
    """

    def __init__(self, max_rows: int = 5_000_000) -> None:
        self.expected: int | None = None
        self._streams = {name: _Stream(max_rows, stitch=name == "combined") for name in STREAMS}

    def feed(self, stream: StreamName, data: bytes) -> None:
        """Take the next bytes of one stream."""
        self._streams[stream].feed(data)

    @property
    def rows(self) -> int:
        """Task lines so far."""
        return sum(stream.rows_total for stream in self._streams.values())

    @property
    def announced(self) -> int | None:
        """Tasks that will be scored, once the engine has said it."""
        for stream in self._streams.values():
            if stream.selected:
                return stream.selected[-1].tasks
            if stream.announced:
                return stream.announced[-1].tasks
        return None

    @property
    def running_accuracy(self) -> float | None:
        """The accuracy after the last row, in percent."""
        last = next((s.last_accuracy for s in self._streams.values() if s.last_accuracy is not None), None)
        return None if last is None else last * ACCURACY_UNIT

    @property
    def said_everything(self) -> bool:
        """Whether the engine has nothing left to say: a final line was seen, or the last expected row."""
        if any(stream.finals for stream in self._streams.values()):
            return True
        return self.expected is not None and self.rows >= self.expected > 0

    def close(self) -> Transcript:
        """Take the last line, which may lack its newline, and return everything."""
        streams = [self._streams[name] for name in STREAMS]
        rows, accuracies = array("q"), array("q")
        settings: dict[str, str] = {}
        layout: set[str] = set()
        for stream in streams:
            stream.finish()
            rows.extend(stream.row_numbers)
            accuracies.extend(stream.accuracies)
            settings.update(stream.settings)
            layout |= stream.layout
        return Transcript(
            bytes_read=tuple(fact.size for s in streams for fact in s.read),
            announced=tuple(fact.tasks for s in streams for fact in s.announced),
            selected=tuple((fact.tasks, fact.of) for s in streams for fact in s.selected),
            row_numbers=rows,
            accuracies=accuracies,
            rows_total=self.rows,
            finals=tuple((fact.percent, fact.error) for s in streams for fact in s.finals),
            chances=tuple((fact.percent, fact.error) for s in streams for fact in s.chances),
            error_lines=tuple(fact for s in streams for fact in s.errors),
            n_ctx=_whole(settings.get("n_ctx")),
            n_seq_max=_whole(settings.get("n_seq_max")),
            n_batch=_whole(settings.get("n_batch")),
            n_ubatch=_whole(settings.get("n_ubatch")),
            flash_attn=settings.get("flash_attn"),
            kv_unified=settings.get("kv_unified"),
            seed=_whole(settings.get("seed")),
            build=settings.get("build"),
            timings=Timings(
                load_seconds=_seconds(settings.get("load_ms")),
                prompt_seconds=_seconds(settings.get("prompt_eval_ms")),
                prompt_tokens=_whole(settings.get("prompt_eval_ms", "").partition(" ")[2]),
                total_seconds=_seconds(settings.get("total_ms")),
            ),
            stdout_bytes=streams[0].bytes,
            stderr_bytes=streams[1].bytes,
            combined_bytes=streams[2].bytes,
            layout=tuple(sorted(layout)),
        )


def parse(*, stdout: bytes = b"", stderr: bytes = b"", combined: bytes = b"") -> Transcript:
    """Return the transcript of output that is already in memory."""
    parser = TranscriptParser()
    for name, data in zip(STREAMS, (stdout, stderr, combined), strict=True):
        parser.feed(name, data)
    return parser.close()


class _Stream:
    """One stream's lines and what they said."""

    def __init__(self, max_rows: int, stitch: bool) -> None:
        self.max_rows = max_rows
        self.bytes = self.rows_total = 0
        self.last_accuracy: int | None = None
        self.row_numbers, self.accuracies = array("q"), array("q")
        self.read: list[BytesRead] = []
        self.announced: list[Announced] = []
        self.selected: list[Selected] = []
        self.finals: list[Summary] = []
        self.chances: list[Summary] = []
        self.errors: list[ErrorLine] = []
        self.settings: dict[str, str] = {}
        self.layout: set[str] = set()
        self._pending = bytearray()
        self._stitcher = Stitcher() if stitch else None
        self._held: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self.bytes += len(data)
        end = data.rfind(b"\n") + 1
        if end:
            first = data.find(b"\n") + 1
            self._hold(data[:first])
            head = bytes(self._pending)
            self._pending.clear()
            # One copy of the whole, so that rows in the first line take the fast way too.
            self._lines(head if first == end else head + data[first:end])
        self._hold(data[end:])

    def finish(self) -> None:
        # The second half of a line that was cut may be all that is missing, so the last line counts as it is.
        if self._pending:
            self._lines(bytes(self._pending) + b"\n")
            self._pending.clear()
        self._let_go()
        if self._stitcher and self._stitcher.cuts:
            self.layout.add("cut-lines")

    def _hold(self, data: bytes) -> None:
        room = MAX_LINE + 2 - len(self._pending)
        self._pending += data if len(data) <= room else data[:room]
        if len(data) > room and data.endswith(b"\n"):
            self._pending += b"\n"

    def _lines(self, block: bytes) -> None:
        at = 0
        while at < len(block):
            if not (self._held or (self._stitcher and self._stitcher.row_head)):
                if rows := _ROWS.match(block, at, at + _BLOCK):
                    self._add_rows(rows.group(), rows.group().replace(b".", b"").split())
                    at = rows.end()
                    continue
                if rows := _JSON_ROWS.match(block, at, at + _BLOCK):
                    pairs = _JSON_WORD.findall(rows.group())
                    self.layout.add("jsonl")
                    self._add_rows(rows.group(), [w.replace(b".", b"") for pair in pairs for w in pair])
                    at = rows.end()
                    continue
            end = block.index(b"\n", at)
            if end - at <= MAX_LINE:
                self._line(block[at:end])
            at = end + 1

    def _add_rows(self, text: bytes, words: list[bytes]) -> None:
        """Take rows in one go; ``words`` are their numbers and accuracies in turn, without decimal points."""
        self.rows_total += len(words) // 2
        room = 2 * max(0, self.max_rows - len(self.row_numbers))
        self.row_numbers.extend(map(int, words[:room:2]))
        self.accuracies.extend(map(int, words[1 : room + 1 : 2] if room else ()))
        self.last_accuracy = int(words[-1])
        if b"\r" in text:
            self.layout.add("crlf")
        if self._stitcher:
            self._stitcher.saw(Row(int(words[-2]), self.last_accuracy))

    def _line(self, raw: bytes) -> None:
        """Take one line. What follows a model's name is held back until it is known whether the name, which
        is printed raw, newlines and all, goes on in it: then a line of metadata comes next.
        """
        line = clean(raw)
        if self._held:
            if METADATA.match(line, _glue(line)):
                del self._held[1:]
                self._let_go()
            elif len(self._held) <= _NAME_LINES:
                self._held.append(raw)
                return
            else:
                self._let_go()
        if b"general.name" in line and RAW_NAME.match(line, _glue(line)):
            self._held.append(raw)
            return
        self._read(raw, line)

    def _let_go(self) -> None:
        held, self._held = self._held, []
        for raw in held:
            self._read(raw, clean(raw))

    def _read(self, raw: bytes, line: bytes) -> None:
        fact = self._stitcher.read(line) if self._stitcher else read_line(line)
        if fact is not None:
            self._record(fact)
            self._note_layout(raw, line)

    def _record(self, fact: Fact) -> None:
        if isinstance(fact, Row):
            self.rows_total += 1
            self.last_accuracy = fact.accuracy
            if len(self.row_numbers) < self.max_rows:
                self.row_numbers.append(fact.number)
                self.accuracies.append(fact.accuracy)
            if self._stitcher:
                self._stitcher.saw(fact)
        elif isinstance(fact, Setting):
            self.settings[fact.name] = fact.text
        elif isinstance(fact, Summary):
            _keep(self.finals if fact.which == "final" else self.chances, fact)
        elif isinstance(fact, Announced):
            _keep(self.announced, fact)
        elif isinstance(fact, Selected):
            _keep(self.selected, fact)
        elif isinstance(fact, BytesRead):
            _keep(self.read, fact)
        elif isinstance(fact, ErrorLine):
            _keep(self.errors, fact)

    def _note_layout(self, raw: bytes, line: bytes) -> None:
        if raw.endswith(b"\r"):
            self.layout.add("crlf")
        if b"\x1b" in raw:
            self.layout.add("colours")
        if line.startswith(b'{"'):
            self.layout.add("jsonl")
        elif line.startswith(b" Final"):
            self.layout.add("printf")
        elif re.match(rb"[0-9]+\.[0-9]{2}\.[0-9]{3}\.[0-9]{3} [DIWE] ", line):
            self.layout.add("prefix")


def _glue(line: bytes) -> int:
    """Return where the message of a line begins."""
    glue = GLUE.match(line)
    return glue.end() if glue else 0


def _keep(facts: list[T], fact: T) -> None:
    if len(facts) < MAX_FACTS:
        facts.append(fact)


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _seconds(milliseconds: str | None) -> float | None:
    return float(milliseconds.split()[0]) / 1000 if milliseconds else None
