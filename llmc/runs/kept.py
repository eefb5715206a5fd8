"""Answers of the scorer on their way to a whole run: flushed as they come, and taken up again after a stop.

A folder named by the run's content key holds ``items.jsonl``, one line an item in file order, and ``wanted.json``,
everything that could change a figure. A run that is killed leaves whole batches and perhaps a part of one; the next
run keeps the whole ones and begins with the first that is not, so that it ends with the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from llmc.errors import InputFileError, UsageError, os_error
from llmc.files import CHUNK, read_cache, write_json
from llmc.scoring.results import ScoredItem

ITEMS, WANTED = "items.jsonl", "wanted.json"
AGAIN = "items.jsonl is not meant to be edited: delete the run's folder and score it again"


class Kept:
    """The answers in one folder; a context manager that appends to them.

    ``line`` writes an answer as a line that ``ScoredItem.from_dict`` reads, fields of its own included. With ``each``
    every answer is on the disk before the next, without it every batch.
    """

    def __init__(
        self,
        folder: Path,
        wanted: dict[str, Any],
        *,
        names: tuple[str, str] = (ITEMS, WANTED),
        line: Callable[[ScoredItem], str] = ScoredItem.to_json,
        each: bool = False,
    ) -> None:
        self.folder, self.wanted = folder, wanted
        self.path, self._wanted_path = folder / names[0], folder / names[1]
        self._to_line, self._each = line, each
        self._stream: IO[str] | None = None
        self._batch = -1

    def take_up(self) -> list[ScoredItem]:
        """Return the items of whole batches from before, in order, and drop what follows them in the file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        items: list[ScoredItem] = []
        ends: list[int] = []
        at = 0
        for line in self._lines():
            at += len(line)
            item = _read(line)
            if item is None:
                break
            items.append(item)
            ends.append(at)
        # The last batch seen may be incomplete: nothing in the file says how many items it has.
        last = items[-1].batch if items else None
        while items and items[-1].batch == last:
            items.pop()
            ends.pop()
        self._cut(ends[-1] if ends else 0)
        write_json(self._wanted_path, self.wanted)
        return items

    def _lines(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as stream:
                yield from (line for line in stream if line.endswith(b"\n"))
        except FileNotFoundError:
            return

    def _cut(self, size: int) -> None:
        if self.path.exists():
            with self.path.open("rb+") as stream:
                stream.truncate(size)

    def __enter__(self) -> Kept:
        self._stream = self.path.open("a", encoding="utf-8")
        return self

    def add(self, item: ScoredItem) -> None:
        """Append one answer; a batch is on the disk when the next begins."""
        assert self._stream is not None
        if item.batch != self._batch:
            self._stream.flush()
            self._batch = item.batch
        self._stream.write(self._to_line(item) + "\n")
        if self._each:
            self._stream.flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._stream is not None
        self._stream.close()


def read_items_jsonl(path: Path) -> Iterator[ScoredItem]:
    """Yield the answers of a finished run in bounded memory; InputFileError names the line that holds none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    item = ScoredItem.from_dict(json.loads(line))
                    if not item.options or not 0 <= item.gold < len(item.options):
                        raise ValueError("its gold option is none of its options")
                    if not all(option.finite() for option in item.options):
                        raise ValueError("a log-probability is not finite")
                except (ValueError, TypeError, RecursionError, OverflowError) as error:
                    raise InputFileError(f"{path}, line {number}: {error}", AGAIN) from None
                yield item
    except OSError as error:
        raise os_error(error, "read", AGAIN) from error


def count_lines(path: Path) -> int | None:
    """Return the whole lines of a file; None when it cannot be read."""
    count = 0
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                count += chunk.count(b"\n")
    except OSError:
        return None
    return count


def _read(line: bytes) -> ScoredItem | None:
    try:
        return ScoredItem.from_dict(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None


def require_resumable(folder: Path, wanted: dict[str, Any]) -> None:
    """Check that there is something to resume; UsageError says what has changed when another run was begun."""
    if (folder / ITEMS).exists():
        return
    others = [known for other in folder.parent.glob(".scored-*") if (known := read_cache(other / WANTED)) is not None]
    same = [known for known in others if known.get("benchmark") == wanted.get("benchmark")]
    if not same:
        raise UsageError("there is no interrupted run to resume here", "leave out --resume to begin")
    changed = [name for name in wanted if same[-1].get(name) != wanted[name]]
    raise UsageError(
        f"the interrupted run of {wanted.get('benchmark')} cannot be resumed: {', '.join(changed)} changed",
        "restore what has changed, or leave out --resume to begin anew",
    )
