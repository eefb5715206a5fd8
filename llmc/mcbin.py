"""The binary task format of ``llama-perplexity --multiple-choice``: a strict reader and a streaming writer.

Layout, little-endian throughout::

    uint32            number of tasks n
    uint32 * n        absolute byte offset of each task; the first is 4 + 4n
    per task          uint32 length + UTF-8 bytes: the question
                      mc1: uint32 k, k * (uint32 length + UTF-8 bytes), k * int32 labels (0 or 1, one 1)
                      mc2: uint32 0 (llama.cpp reads it and does not use it)

llama.cpp checks almost none of this: it ignores the offsets in a full run, stops in silence at the first task
that it cannot read, and scores labels other than 1 as wrong. The reader here accepts a file only when every
byte of it is accounted for, and never allocates more than the file is long, whatever the lengths in it claim.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO

from llmc.errors import FormatError, InputFileError, os_error
from llmc.files import CHUNK, atomic_write, looks_like

MAX_OPTIONS = 100  # llama.cpp refuses more
MAX_TASK_BYTES = 4 << 20  # a million tokens; keeps one hostile task from filling the memory
UINT32_MAX = 0xFFFF_FFFF
_U32 = struct.Struct("<I")
_OFFSETS_PER_READ = 1 << 16
_KNOWN_OPTIONS = 4096  # sets of letters with a place of the right one; few files have more than ten
_LABELS = [struct.Struct(f"<{width}i") for width in range(MAX_OPTIONS + 1)]
_OPTION_NAMES = [f"option {i}" for i in range(MAX_OPTIONS)]


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes twice as long to make, and a file has a million
class Task:
    """One question as the file stores it; the model sees ``question + " " + option``. Not to be changed."""

    question: str
    options: tuple[str, ...]
    gold: int


@dataclass(frozen=True)
class BinFacts:
    """What a benchmark file holds, as counted while reading it to its last byte.

    ``chance`` is the mean of 1/options over the tasks; ``engine_chance`` is what llama.cpp prints as "Random
    chance" (tasks / all options), equal to it when all tasks have the same width. ``gold_positions`` and
    ``widths`` count tasks by gold index and by number of options. ``duplicates`` counts tasks in
    which two options are equal; the first 100 are named. ``longest_bytes`` is the largest sum over
    one task of the bytes of ``question + " " + option``: a bound on tokens for byte-level vocabularies.
    """

    tasks: int
    size: int
    sha256: str
    widths: dict[int, int]
    gold_positions: dict[int, int]
    chance: float
    engine_chance: float
    longest_task: int
    longest_bytes: int
    text_bytes: int
    duplicates: int = 0
    first_duplicates: tuple[int, ...] = ()

    @property
    def widest(self) -> int:
        return max(self.widths)

    @property
    def majority_position(self) -> int:
        """The gold index that occurs most often (the lowest of several)."""
        return min(self.gold_positions, key=lambda i: (-self.gold_positions[i], i))

    @property
    def majority_share(self) -> float:
        return self.gold_positions[self.majority_position] / self.tasks


@dataclass(slots=True)
class _Options:
    """What follows a question: the options, which is right, their bytes in all, and whether two are equal."""

    options: tuple[str, ...]
    gold: int
    text_bytes: int
    has_equal: bool


class _Source:
    """A file read forward through a window, with its length known, so that every length is checked first."""

    def __init__(self, stream: IO[bytes], size: int, name: str) -> None:
        self.stream, self.size, self.name = stream, size, name
        self.window = b""
        self.base = 0  # file offset of the window's first byte
        self.position = 0  # of the next byte, in the window
        self.task_end = size
        self.digest = hashlib.sha256()
        # Letters, and labels with them, come again in task after task: bytes that were checked once.
        self._known: dict[bytes, _Options] = {}

    @property
    def at(self) -> int:
        """The file offset of the next byte."""
        return self.base + self.position

    def fail(self, what: str, task: int | None, offset: int | None = None) -> FormatError:
        where = "header" if task is None else f"task {task}"
        at = self.at if offset is None else offset
        return FormatError(
            f"{self.name}: {where}, byte {at}: {what}",
            task=task,
            offset=at,
            remedy="rebuild the file with `llmc build`, or fetch it again and compare its sha256",
        )

    def take(self, length: int, task: int | None, what: str) -> int:
        """Step over the next bytes, and return where in the window they are."""
        position = self.position
        if position + length > len(self.window):
            if length > self.size - self.at:
                left = self.size - self.at
                raise self.fail(f"{what} needs {length} bytes, {left} are left in the file", task)
            rest = self.window[position:]
            self.base, self.position, position = self.at, 0, 0
            # Never past the length seen at first: a file that grows meanwhile is read as it was.
            unread = self.size - self.base - len(rest)
            more = self.stream.read(min(unread, max(CHUNK, length - len(rest))))
            self.digest.update(more)
            self.window = rest + more
            if len(self.window) < length:
                raise self.fail(f"{what}: the file ended early (it changed while it was read)", task)
        self.position = position + length
        return position

    def number(self, task: int | None, what: str) -> int:
        position = self.take(4, task, what)
        return int(_U32.unpack_from(self.window, position)[0])

    def question(self, task: int) -> tuple[str, int]:
        """Begin a task: return its question and the length of that in bytes."""
        self.task_end = self.at + MAX_TASK_BYTES
        return self.text(task, "the question")

    def known_options(self) -> _Options | None:
        """Step over the rest of a task whose bytes are those of an earlier one, and return what they say."""
        at = self.position
        # Options of one byte each, the case that this is for, leave no doubt how many bytes to look at.
        width = self.window[at : at + 1]
        length = 8 + 9 * width[0] if width else 0
        found = self._known.get(self.window[at : at + length])
        if found is not None and self.at + length <= self.task_end:
            self.position = at + length
            return found
        return None

    def remember(self, start: int, read: _Options) -> None:
        """Keep the options read since ``start`` for ``known_options``, where they are of one byte each."""
        if start >= self.base and read.text_bytes == len(read.options) and len(self._known) < _KNOWN_OPTIONS:
            self._known[self.window[start - self.base : self.position]] = read

    def text(self, task: int, what: str) -> tuple[str, int]:
        """Return the next text and its length in bytes."""
        # The usual case, four times as fast as the checks below: all of the text is in the window and right.
        start = self.position + 4
        if start <= len(self.window):
            length = _U32.unpack_from(self.window, self.position)[0]
            stop = start + length
            if length and stop <= len(self.window) and self.base + stop <= self.task_end:
                try:
                    decoded = self.window[start:stop].decode()
                except UnicodeDecodeError:
                    pass
                else:
                    self.position = stop
                    return decoded, length
        return self._checked_text(task, what)

    def _checked_text(self, task: int, what: str) -> tuple[str, int]:
        length = self.number(task, f"the length of {what}")
        end = self.at + length
        if length == 0:
            raise self.fail(f"{what} is empty; llama.cpp stops at such a task", task, end - 4)
        if end > self.size:
            left = self.size - self.at
            raise self.fail(f"{what} claims {length} bytes, {left} are left in the file", task, self.at - 4)
        if end > self.task_end:
            raise self.fail(f"{what} takes the task past {MAX_TASK_BYTES} bytes", task, self.at - 4)
        position = self.take(length, task, what)
        try:
            return self.window[position : position + length].decode("utf-8"), length
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8", task, end - length + error.start) from None


class Reader:
    """Iterate over the tasks of a file, strictly, in bounded memory; ``facts`` is set once all were read.

    Raises FormatError (task index, byte offset, what was expected) at the first byte that is not as the
    format says, and InputFileError when the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.facts: BinFacts | None = None

    def __iter__(self) -> Iterator[Task]:
        try:
            if self.path.is_dir():
                raise InputFileError(f"{self.path} is a directory", "name a .bin file made by `llmc build`")
            if self.path.exists() and not self.path.is_file():
                raise InputFileError(f"{self.path} is not a regular file", "write it to a file first")
            with self.path.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                yield from self._read(_Source(stream, size, str(self.path)))
        except OSError as error:
            raise os_error(error, "read", "check the path and its permissions") from error

    def _read(self, source: _Source) -> Iterator[Task]:
        count = self._header(source)
        tally = _Tally()
        for index, offset in enumerate(_offsets(source.stream.fileno(), count)):
            if offset != source.at:
                raise source.fail(
                    f"the offset table says {offset}, the task begins at {source.at}", index, 4 + 4 * index
                )
            question, question_bytes = source.question(index)
            rest = source.known_options() or self._options(source, index)
            tally.add(index, question_bytes, rest)
            yield Task(question, rest.options, rest.gold)
        if source.at != source.size:
            raise source.fail(f"{source.size - source.at} bytes follow the last task", None)
        self.facts = tally.facts(source.size, source.digest.hexdigest())

    def _header(self, source: _Source) -> int:
        """Check the header and step over the offset table; return the number of tasks."""
        if source.size < 4:
            raise source.fail(f"a benchmark file has at least 4 bytes, this one has {source.size}", None)
        count = source.number(None, "the number of tasks")
        kind = looks_like(source.window[:512])
        looks = f" (this looks like {kind}, not a benchmark file)" if kind else ""
        if count == 0:
            raise source.fail(f"the file announces 0 tasks{looks}", None, 0)
        if 4 * count > source.size - 4:
            raise source.fail(f"{count} tasks are announced, the file is too short for their offsets{looks}", None, 0)
        if source.size > UINT32_MAX:
            raise source.fail(f"{source.size} bytes; the format ends at 4 GiB{looks}", None, 0)
        # Before hundreds of MB of something else are taken for an offset table:
        if (first := next(_offsets(source.stream.fileno(), 1))) != 4 + 4 * count:
            raise source.fail(f"the offset table says {first}, the task begins at {4 + 4 * count}", 0, 4)
        for start in range(0, count, _OFFSETS_PER_READ):
            source.take(4 * min(_OFFSETS_PER_READ, count - start), None, "the offset table")
        return count

    def _options(self, source: _Source, index: int) -> _Options:
        """Read what follows a task's question."""
        start = at = source.at
        width = source.number(index, "the number of options")
        if not 2 <= width <= MAX_OPTIONS:
            raise source.fail(f"{width} options; 2 to {MAX_OPTIONS} can be scored", index, at)
        options = []
        text_bytes = 0
        for i in range(width):
            option, length = source.text(index, _OPTION_NAMES[i])
            options.append(option)
            text_bytes += length
        at = source.at
        position = source.take(4 * width, index, "the labels")
        labels = _LABELS[width].unpack_from(source.window, position)
        if labels.count(1) != 1 or labels.count(0) != width - 1:
            for i, label in enumerate(labels):
                if label not in (0, 1):
                    raise source.fail(f"label {i} is {label}; labels are 0 or 1", index, at + 4 * i)
            raise source.fail(f"{sum(labels)} options are marked correct; exactly one must be", index, at)
        self._read_mc2(source, index)
        if source.at > source.task_end:
            raise source.fail(f"the task goes past {MAX_TASK_BYTES} bytes", index, source.task_end)
        read = _Options(tuple(options), labels.index(1), text_bytes, len(set(options)) != width)
        source.remember(start, read)
        return read

    def _read_mc2(self, source: _Source, index: int) -> None:
        at = source.at
        if (extra := source.number(index, "the size of mc2")) != 0:
            raise source.fail(f"mc2 holds {extra} options; it must be empty", index, at)


@dataclass(frozen=True)
class Mc2:
    """The second set of options that a file of others may carry: each 1 or 0, right or wrong, any number of them."""

    options: tuple[str, ...]
    labels: tuple[int, ...]


class LenientReader(Reader):
    """A ``Reader`` that also takes files whose mc2 is filled; all else is as strict.

    ``mc2`` holds those of the last task read, with ``mc2_task`` its index; ``filled`` counts the tasks with any.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.mc2: Mc2 | None = None
        self.mc2_task = -1
        self.filled = 0

    def _read_mc2(self, source: _Source, index: int) -> None:
        at = source.at
        width = source.number(index, "the size of mc2")
        if width == 0:
            return
        if width > MAX_OPTIONS:
            raise source.fail(f"mc2 holds {width} options; {MAX_OPTIONS} are the most", index, at)
        options = tuple([source.text(index, f"option {i} of mc2")[0] for i in range(width)])
        at = source.at
        labels = _LABELS[width].unpack_from(source.window, source.take(4 * width, index, "the labels of mc2"))
        for i, label in enumerate(labels):
            if label not in (0, 1):
                raise source.fail(f"label {i} of mc2 is {label}; labels are 0 or 1", index, at + 4 * i)
        self.mc2, self.mc2_task = Mc2(options, labels), index
        self.filled += 1


def _offsets(handle: int, count: int) -> Iterator[int]:
    """Yield the offset table's entries, read apart from the tasks and some at a time."""
    for start in range(0, count, _OFFSETS_PER_READ):
        length = 4 * min(_OFFSETS_PER_READ, count - start)
        table = os.pread(handle, length, 4 + 4 * start)
        for (offset,) in _U32.iter_unpack(table[: len(table) // 4 * 4]):
            yield offset


class _Tally:
    """Counts kept while tasks go by."""

    def __init__(self) -> None:
        self.widths: Counter[int] = Counter()
        self.golds: Counter[int] = Counter()
        self.inverse_widths = 0.0
        self.text_bytes = self.longest_bytes = self.longest_task = 0
        self.duplicates = 0
        self.first_duplicates: list[int] = []

    def add(self, index: int, question_bytes: int, rest: _Options) -> None:
        width = len(rest.options)
        self.widths[width] += 1
        self.golds[rest.gold] += 1
        # As the model sees them: the question before each option, joined by a space.
        text_bytes = width * (question_bytes + 1) + rest.text_bytes
        self.text_bytes += text_bytes
        if text_bytes > self.longest_bytes:
            self.longest_bytes, self.longest_task = text_bytes, index
        if rest.has_equal:
            self.duplicates += 1
            if self.duplicates <= 100:
                self.first_duplicates.append(index)

    def facts(self, size: int, sha256: str) -> BinFacts:
        tasks = sum(self.widths.values())
        return BinFacts(
            tasks=tasks,
            size=size,
            sha256=sha256,
            widths=dict(sorted(self.widths.items())),
            gold_positions=dict(sorted(self.golds.items())),
            chance=sum(n / width for width, n in self.widths.items()) / tasks,
            engine_chance=tasks / sum(width * n for width, n in self.widths.items()),
            longest_task=self.longest_task,
            longest_bytes=self.longest_bytes,
            text_bytes=self.text_bytes,
            duplicates=self.duplicates,
            first_duplicates=tuple(self.first_duplicates),
        )


def read(path: str | os.PathLike[str]) -> list[Task]:
    """Return all tasks of a file, read strictly."""
    return list(Reader(path))


def scan(path: str | os.PathLike[str]) -> BinFacts:
    """Read a file to its last byte and return what it holds; raises FormatError as ``Reader`` does."""
    reader = Reader(path)
    for _ in reader:
        pass
    assert reader.facts is not None
    return reader.facts


class Writer:
    """Write tasks one by one; the file appears under its name only when all is written.

    The body goes to one temporary file and the offsets to memory (4 bytes a task), since the offset table
    comes first and its size is known last. ``add`` refuses what llama.cpp cannot score (ValueError), and a
    file beyond 4 GiB (InputFileError), where offsets would wrap.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.sha256 = ""
        self.size = 0
        self._lengths = array("I")
        self._body: IO[bytes] | None = None

    def __enter__(self) -> Writer:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._body = tempfile.TemporaryFile(buffering=CHUNK, dir=self.path.parent, prefix=".mcbin-")
        except OSError as error:
            raise self._failed(error) from error
        return self

    def _failed(self, error: OSError) -> InputFileError:
        why = error.strerror or str(error)
        return InputFileError(f"cannot write {self.path}: {why}", "choose another folder with --out, or make room")

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, task: Task) -> None:
        data = encode_task(task)
        self.size += len(data)
        if 4 + 4 * (len(self._lengths) + 1) + self.size > UINT32_MAX:
            raise InputFileError(
                f"{self.path}: task {len(self._lengths)} would take the file past 4 GiB, the format's limit",
                "split the benchmark, or build a part of it with --limit",
            )
        assert self._body is not None
        try:
            self._body.write(data)
        except OSError as error:
            raise self._failed(error) from error
        self._lengths.append(len(data))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._body is not None
        try:
            if kind is None:
                self._assemble()
        except OSError as failure:
            raise self._failed(failure) from failure
        finally:
            self._body.close()

    def _assemble(self) -> None:
        assert self._body is not None
        count = len(self._lengths)
        if count == 0:
            raise InputFileError(f"{self.path}: there are no tasks to write", "check the source and its filters")
        digest = hashlib.sha256()
        self._body.seek(0)
        with atomic_write(self.path) as out:

            def put(data: bytes) -> None:
                digest.update(data)
                out.write(data)

            put(_U32.pack(count))
            offset = 4 + 4 * count
            for start in range(0, count, _OFFSETS_PER_READ):
                table = bytearray()
                for length in self._lengths[start : start + _OFFSETS_PER_READ]:
                    table += _U32.pack(offset)
                    offset += length
                put(bytes(table))
            while chunk := self._body.read(CHUNK):
                put(chunk)
        self.size, self.sha256 = offset, digest.hexdigest()


def encode_task(task: Task) -> bytes:
    """Return the bytes of one task; ValueError when llama.cpp could not score it."""
    options = task.options
    # Letters and yes/no come again in every task; longer options hardly ever do.
    encode = _encode_same_options if options and len(options[0]) <= 3 else _encode_options
    rest = encode(options, task.gold)
    question = task.question.encode("utf-8")
    if not question:
        raise ValueError("the question is empty")
    data = _U32.pack(len(question)) + question + rest
    if len(data) > MAX_TASK_BYTES:
        raise ValueError(f"the task takes {len(data)} bytes; {MAX_TASK_BYTES} are the limit")
    return data


def _encode_options(options: tuple[str, ...], gold: int) -> bytes:
    width = len(options)
    if not 2 <= width <= MAX_OPTIONS:
        raise ValueError(f"{width} options; 2 to {MAX_OPTIONS} can be scored")
    if not 0 <= gold < width:
        raise ValueError(f"gold index {gold} is outside the {width} options")
    if not all(options):
        raise ValueError(f"option {options.index('')} is empty")
    parts = [_U32.pack(width)]
    for option in options:
        text = option.encode("utf-8")
        parts += (_U32.pack(len(text)), text)
    parts.append(_encode_labels(width, gold))
    return b"".join(parts)


_encode_same_options = lru_cache(maxsize=1024)(_encode_options)


@cache
def _encode_labels(width: int, gold: int) -> bytes:
    """Return the labels and the empty mc2."""
    return struct.pack(f"<{width}iI", *(1 if i == gold else 0 for i in range(width)), 0)


def write(path: str | os.PathLike[str], tasks: Iterable[Task]) -> BinFacts:
    """Write a file and return its facts, read back from the disk."""
    with Writer(path) as writer:
        for task in tasks:
            writer.add(task)
    return scan(path)
