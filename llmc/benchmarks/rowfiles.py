"""Files of rows, streamed column by column: Parquet, Arrow, JSON Lines, JSON arrays and CSV.

What a file is, its first bytes say: data sets are published under misleading names. Columns may be dotted
(``choices.text``): a field of a struct, or of each struct in a list; a column of that very name goes first.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from llmc.benchmarks import rowarrow
from llmc.benchmarks.rowtexts import CsvRows, Placed, json_rows, opened
from llmc.benchmarks.rowvalues import Batch, inside, names_in, no_column, values_of
from llmc.errors import InputFileError, os_error

__all__ = ["DATA_SUFFIXES", "Batch", "column_names", "read_rows", "uncollected", "values_of"]

ROWS_PER_BATCH = 4096
MAX_LINE = 64 << 20  # one row never needs more; keeps a file without newlines out of the memory
DATA_SUFFIXES = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".gz")
_AGAIN = "fetch it again"


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the cyclic garbage collector from looking at millions of rows again and again; they form no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_rows(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Yield the rows of a file in order, in bounded memory.

    Raises InputFileError: missing or unreadable file, a format that is none of the known ones, a damaged file
    (with its line), a column that is not there (with those that are).
    """
    with _explained(path):
        kind = _kind(path)
        if kind in _BINARY:
            yield from rowarrow.read_rows(path, columns, kind, ROWS_PER_BATCH)
        else:
            yield from _from_objects(path, columns, kind)


def column_names(path: Path, *, whole: bool = False) -> list[str]:
    """Return the columns of a file, those inside objects dotted; of JSON those of its first rows, or of all.

    Raises as ``read_rows`` does.
    """
    with _explained(path):
        kind = _kind(path)
        if kind in _BINARY:
            return rowarrow.column_names(path, kind)
        rows = _objects(path, kind)
        if isinstance(rows, CsvRows):
            return [name for name in rows.header if name]
        return _names(rows if whole else islice(rows, ROWS_PER_BATCH))


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn all that a file can do to its readers into an InputFileError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        what = "ends early" if isinstance(error, EOFError) else "is damaged"
        raise InputFileError(f"{path} {what}: {error}", _AGAIN) from error
    except OSError as error:
        raise os_error(error, f"read {path}", "check the path and its permissions") from error
    except ValueError as error:
        raise InputFileError(f"{path} is damaged: {error}", _AGAIN) from error


_BINARY = ("parquet", "arrow-file", "arrow-stream")


def _kind(path: Path) -> str:
    with opened(path) as stream:
        head = stream.read(4096)
    if head[:4] == b"PAR1":
        return "parquet"
    if head[:6] == b"ARROW1":
        return "arrow-file"
    if head[:4] == b"\xff\xff\xff\xff":
        return "arrow-stream"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] in (b"{", b"["):
        return "json-lines" if text[:1] == b"{" else "json-array"
    if not text:
        raise InputFileError(f"{path} is empty", "name a file that holds rows")
    if any(suffix.lower() in (".csv", ".tsv") for suffix in path.suffixes):
        return "csv"
    raise InputFileError(
        f"{path} is none of the known formats (its first bytes are {head[:12]!r})",
        "give rows as Parquet, Arrow, JSON Lines or CSV",
    )


# JSON and CSV


def _objects(path: Path, kind: str) -> Iterable[Placed]:
    return CsvRows(path, MAX_LINE) if kind == "csv" else json_rows(path, kind, MAX_LINE)


def _names(rows: Iterable[Placed]) -> list[str]:
    return list(dict.fromkeys(name for _, row in rows for name in names_in(row)))


def _from_objects(path: Path, columns: list[str], kind: str) -> Iterator[Batch]:
    rows = iter(_objects(path, kind))
    checked = False
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        if not checked:
            _require_keys(path, columns, _names(chunk), kind)
            checked = True
        yield Batch([_column(chunk, name) for name in columns], [place for place, _ in chunk].__getitem__)


def _column(chunk: list[Placed], name: str) -> list[Any]:
    if "." in name:
        return [inside(row, name) for _, row in chunk]
    return [row.get(name) for _, row in chunk]


def _require_keys(path: Path, columns: list[str], known: list[str], kind: str) -> None:
    """Tell a column that is missing everywhere from one that is missing in some rows, be they thousands."""
    if set(columns) <= set(known):
        return
    known = _names(_objects(path, kind))
    for column in columns:
        if column not in known:
            raise no_column(path, column, known)
