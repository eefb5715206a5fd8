"""One log that holds both streams: lines cut in two where a piece of the other stream came between.

A program that copies two pipes into one file writes whatever it has read so far, so a row can be cut anywhere
by a message of the other stream, and a message by rows::

    12<TAB>25.00.02.379.816 I Final result: 25.0000 +/- 13.0558
    0000000

Every line of such a log is then the head of a line of one stream and the tail of a line of the other, whose
head came before. Nothing is guessed: after k right of n, the next row is one of two, known to its last digit,
and halves are put together only where they make one of these, or a message that is known in full.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmc.engine.lines import GLUE, METADATA, PREFIX, UNITS, Chatter, Fact, Row, clean, read_line

MAX_CUT_LINE = 600  # bytes; messages that matter are shorter
MAX_ATTEMPTS = 20_000  # per log; a real one needs a handful, a hostile one could ask for millions
HEADER = b"task\tacc_norm"
_DOTS = re.compile(rb"\.*")
_DOTS_PART = re.compile(rb"\.+(?:d(?:o(?:ne?)?)?)?|d(?:o(?:ne?)?)?")
_PROGRESS_AT_END = re.compile(rb"(?:\.*done|\.+|" + HEADER + rb")\Z")
_MESSAGE = re.compile(rb"(?:" + PREFIX + rb")?(?:multiple_choice_| ?Final result: |Random chance: |Read [0-9])")
_MORE_OF_A_ROW = re.compile(rb"\.?[0-9]")
_STAMP = re.compile(rb"(?:0|[1-9][0-9]*)\.[0-9]{2}\.[0-9]{3}\.[0-9]{3} ")
_PART_OF_STAMP = re.compile(rb"[0-9]+(?:\.[0-9]{0,3}){1,3}(?: [DIWE]?)?\Z")
_PART_OF_COLOUR = re.compile(rb"\x1b\[?[0-9;]*\Z")
# How messages begin that matter, or that can come among or after the rows.
_KNOWN_MESSAGES = (
    b"Final result: ",
    b"Random chance: ",
    b"multiple_choice_score",
    b"multiple_choice_prepare_one_task",
    b"failed to decode the batch",
    b"GGML_ASSERT",
    b"CUDA error",
    b"llama_perf_context_print: ",
    b"llama_print_timings: ",
    b"common_memory_breakdown_print: ",
    b"llama_memory_breakdown_print: ",
)


@dataclass
class Stitcher:
    """Reads the lines of one combined log."""

    done: int = 0  # tasks in the last row, and how many of them were right; -1 where it does not say
    right: int = 0
    row_head: bytes = b""  # a part of a row, the table's header or the progress, and maybe what cut it
    message_head: bytes = b""  # what is left of the last line that nothing known begins in
    cuts: int = 0
    attempts: int = 0

    def saw(self, row: Row) -> None:
        """Take note of a row, wherever it was read."""
        right = (row.accuracy * row.number + UNITS // 2) // UNITS
        told = row.number > 0 and b"%d.%08d" % divmod(row.accuracy, 10**8) == _share(right, row.number)
        self.done, self.right = row.number, right if told else -1

    def read(self, line: bytes) -> Fact | None:
        """Return what one clean line says, alone or together with what was left over before."""
        fact = read_line(line)
        if isinstance(fact, Row) and not (self.row_head and line not in self._next_rows()):
            self.row_head = b""
            return fact
        if isinstance(fact, Chatter) and not line and self.row_head.startswith(self._next_rows()):
            return self._stdout_tail(line)  # of the row only its newline was missing
        if fact is not None and not isinstance(fact, Row):
            if line[:1].isdigit() and self._stdout_part(line):
                self.row_head = line  # "1" + "0.02.379.816 I ..." reads as minute 10
            return fact
        if len(line) > MAX_CUT_LINE or self.attempts >= MAX_ATTEMPTS or _is_metadata(line):
            return fact
        self.attempts += 1
        found = (
            self._stdout_tail(line)
            or fact
            or self._message_tail(line)
            or self._row_inside(line)
            or self._message_inside(line)
        )
        if found is None and self._stdout_part(line):
            self.row_head = line
        elif found is None:
            self._hold_message(_PROGRESS_AT_END.sub(b"", line))
        elif found is not fact:
            self.cuts += 1
        return found

    def _hold_message(self, head: bytes) -> None:
        bare = _without_colour(head)
        stamp = _STAMP.match(bare)
        body = bare[stamp.end() + 2 :] if stamp else bare
        if not body or body.isdigit() or _PART_OF_STAMP.match(body) or _begins_known(body):
            self.message_head = head

    def _next_rows(self) -> tuple[bytes, ...]:
        if self.right < 0:
            return ()
        done = self.done + 1
        return tuple(b"%d\t%b" % (done, _share(right, done)) for right in (self.right, self.right + 1))

    def _stdout_tail(self, line: bytes) -> Fact | None:
        """The end of ``line`` completes what ``row_head`` began; what is before it begins a message."""
        head = self.row_head
        if not head:
            return None
        dots = _DOTS.match(head)
        progress = (dots.group() if dots else b"") + b"done"
        wholes = (*self._next_rows(), HEADER, progress)
        fits = [(whole, self._before_tail(whole, line)) for whole in wholes]
        fits = [(whole, before) for whole, before in fits if before is not None]
        if len(fits) != 1 or (self.message_head and self._ambiguous(line)):
            return None  # better no row than the wrong one
        [(whole, before)] = fits
        self.row_head = b""
        if before:
            self._hold_message(before)
        return read_line(whole)

    def _ambiguous(self, line: bytes) -> bool:
        """Whether both next rows can end in ``line``, if the row was cut by the middle of a message."""
        rows = self._next_rows()
        return len(rows) == 2 and all(
            any(self.row_head.startswith(row[:cut]) and line.endswith(row[cut:]) for cut in range(1, len(row)))
            for row in rows
        )

    def _before_tail(self, whole: bytes, line: bytes) -> bytes | None:
        """Return what precedes the rest of ``whole`` in ``line``; None where the two do not fit."""
        for cut in range(min(len(whole), len(self.row_head)), 0, -1):
            rest = self.row_head[cut:]  # what cut the row: never more of its digits, but maybe a stamp's
            if _MORE_OF_A_ROW.match(rest) and not _STAMP.match(rest):
                continue
            if self.row_head.startswith(whole[:cut]) and line.endswith(whole[cut:]):
                before = line[: len(line) - len(whole) + cut]
                if not before or _begins_message(before):
                    return before
        return None

    def _message_tail(self, line: bytes) -> Fact | None:
        """The end of ``line`` completes the message begun before; what is before it begins a line of stdout."""
        if not self.message_head:
            return None
        for start in range(self._stdout_part(line), -1, -1):
            whole = clean(self.message_head + line[start:])
            fact = read_line(whole)
            if isinstance(fact, Chatter) and b"multiple_choice_score" not in whole:
                continue
            if fact is not None and not isinstance(fact, Row):
                self.message_head = b""
                self.row_head = line[:start] or self.row_head
                return fact
        return None

    def _row_inside(self, line: bytes) -> Fact | None:
        """The next row follows a message that was cut."""
        for row in self._next_rows():
            head = line.removesuffix(row)
            if head != line and _begins_message(head):
                self._hold_message(head)
                self.row_head = b""
                return read_line(row)
        return None

    def _message_inside(self, line: bytes) -> Fact | None:
        """A whole message follows a row, or another message, that was cut."""
        longest = self._stdout_part(line)
        for match in _MESSAGE.finditer(line, 1):
            for start in range(match.start(), min(match.start() + 4, len(line))):
                head = line[:start]
                if start > longest and not _begins_message(head):
                    continue
                fact = read_line(line[start:])
                if fact is not None:
                    if start <= longest:
                        self.row_head = line  # where the row ends and a stamp begins will show
                    else:
                        self._hold_message(head)
                    return fact
        return None

    def _stdout_part(self, line: bytes) -> int:
        """Return how many bytes at the start of ``line`` can be the start of a line of stdout."""
        dots = _DOTS_PART.match(line)
        longest = dots.end() if dots else 0
        for whole in (*self._next_rows(), HEADER):
            while longest < len(whole) and line.startswith(whole[: longest + 1]):
                longest += 1
        return longest


def _share(right: int, done: int) -> bytes:
    return b"%.8f" % (100.0 * right / done)


def _begins_message(head: bytes) -> bool:
    """Whether ``head`` can be what was left standing of a message that came among the rows."""
    head = _without_colour(head)
    if not head or _STAMP.match(head) or _PART_OF_STAMP.match(head):
        return True
    return _begins_known(head)


def _without_colour(head: bytes) -> bytes:
    return _PART_OF_COLOUR.sub(b"", clean(head)).lstrip(b"\x1b[")


def _begins_known(body: bytes) -> bool:
    return any(body.startswith(known) or known.startswith(body) for known in _KNOWN_MESSAGES)


def _is_metadata(line: bytes) -> bool:
    glue = GLUE.match(line)
    return METADATA.match(line, glue.end() if glue else 0) is not None
