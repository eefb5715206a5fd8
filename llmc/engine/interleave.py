"""One log that holds both streams: lines cut in two where a piece of the other stream came between.

A program that copies two pipes into one file writes whatever it has read so far, so a row can be cut anywhere
by a message of the other stream, and a message by rows::

    12<TAB>25.00.02.379.816 I Final result: 25.0000 +/- 13.0558
    0000000

Nothing is guessed: the halves of a row are put together only where they make the very row that comes next,
with its 8 decimals, and the halves of a message only where they make a message known in full.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmc.engine.lines import GLUE, METADATA, PREFIX, ROW, Chatter, Fact, Row, clean, read_line, row

MAX_CUT_LINE = 600  # bytes; messages that matter are shorter
MAX_ATTEMPTS = 20_000  # per log; a real one needs a handful, a hostile one could ask for millions
_WHOLE_ROW = re.compile(ROW)
_ROW_AT_END = re.compile(ROW + rb"\Z")
_ROW_TAIL = re.compile(rb"[0-9.\t]+\Z")
_PROGRESS_AT_END = re.compile(rb"(?:\.*done|\.+|task\tacc_norm)\Z")
_MESSAGE = re.compile(
    rb"(?:" + PREFIX + rb")?(?:multiple_choice_| ?Final result: |Random chance: |Read [0-9])"
)


@dataclass
class Stitcher:
    """Reads the lines of one combined log. ``expected`` is the number of the row that comes next."""

    expected: int = 1
    row_head: bytes = b""  # a line that begins with a part of the expected row
    message_head: bytes = b""  # the last line, or part of one, that nothing known begins in
    cuts: int = 0
    attempts: int = 0

    def read(self, line: bytes) -> Fact | None:
        """Return what one clean line says, alone or together with what was left over before."""
        fact = read_line(line)
        if isinstance(fact, Row):
            if fact.number != self.expected and (joined := self._row_tail(line)):
                self.cuts += 1
                return joined
            self.row_head = b""
            return fact
        if fact is not None:
            if line[:1].isdigit() and self._row_part(line):
                self.row_head = line  # "1" + "0.02.379.816 I ..." reads as minute 10
            return fact
        if len(line) > MAX_CUT_LINE or self.attempts >= MAX_ATTEMPTS or self._is_metadata(line):
            return None
        self.attempts += 1
        found: Fact | None = (
            self._row_tail(line)
            or self._message_tail(line)
            or self._row_inside(line)
            or self._message_inside(line)
        )
        if found is None:
            if self._row_part(line):
                self.row_head = line
            else:
                self.message_head = _PROGRESS_AT_END.sub(b"", line)
            return None
        self.cuts += 1
        return found

    def _row_tail(self, line: bytes) -> Row | None:
        """The end of ``line`` completes the row begun in ``row_head``; what is before it begins a message."""
        tail = _ROW_TAIL.search(line)
        if not self.row_head or tail is None:
            return None
        longest = self._row_part(self.row_head)
        for start in range(tail.start(), len(line)):
            for length in range(longest, 0, -1):
                match = _WHOLE_ROW.fullmatch(self.row_head[:length] + line[start:])
                if match and int(match[1]) == self.expected:
                    self.row_head = b""
                    if start:
                        self.message_head = line[:start]
                    return row(*match.groups())
        return None

    def _message_tail(self, line: bytes) -> Fact | None:
        """The end of ``line`` completes the message begun before; what is before it begins the next row."""
        if not self.message_head:
            return None
        for start in range(self._row_part(line) + 1):
            fact = read_line(clean(self.message_head + line[start:]))
            if fact is not None and not isinstance(fact, Row | Chatter):
                self.message_head = b""
                if start:
                    self.row_head = line
                return fact
        return None

    def _row_inside(self, line: bytes) -> Row | None:
        """The next row follows a message that was cut."""
        match = _ROW_AT_END.search(line)
        number = str(self.expected).encode()
        if self.expected == 1 or match is None or not match[1].endswith(number):
            return None
        self.message_head = line[: match.end(1) - len(number)]
        self.row_head = b""
        return row(number, match[2], match[3])

    def _message_inside(self, line: bytes) -> Fact | None:
        """A whole message follows a row that was cut."""
        longest = self._row_part(line)
        for start in range(1, longest + 1):
            if _MESSAGE.match(line, start):
                fact = read_line(line[start:])
                if fact is not None:
                    self.row_head = line
                    return fact
        return None

    def _row_part(self, line: bytes) -> int:
        """Return how many bytes at the start of ``line`` can be the start of the expected row."""
        number = str(self.expected).encode() + b"\t"
        if not line.startswith(number):
            return next((n for n in range(len(number) - 1, 0, -1) if line.startswith(number[:n])), 0)
        value = re.compile(rb"[0-9]{0,3}(?:\.[0-9]{0,8})?").match(line, len(number))
        return value.end() if value else len(number)

    def _is_metadata(self, line: bytes) -> bool:
        glue = GLUE.match(line)
        return METADATA.match(line, glue.end() if glue else 0) is not None
