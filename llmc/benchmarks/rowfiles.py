"""Files of rows, streamed column by column: Parquet, Arrow, JSON Lines, JSON arrays and CSV.

What a file is, its first bytes say: data sets are published under misleading names. Columns may be dotted
(``choices.text``): a field of a struct, or of each struct in a list.
"""

from __future__ import annotations

import contextlib
import csv
import gc
import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from llmc.errors import InputFileError, did_you_mean, os_error

ROWS_PER_BATCH = 4096
MAX_LINE = 64 << 20  # one row never needs more; keeps a file without newlines out of the memory
DATA_SUFFIXES = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".gz")


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


@dataclass(frozen=True)
class Batch:
    """Consecutive rows: a list of values for each column asked for; ``place(i)`` says where row i stands."""

    columns: list[list[Any]]
    place: Callable[[int], str]


def read_rows(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Yield the rows of a file in order, in bounded memory.

    Raises InputFileError: missing or unreadable file, a format that is none of the known ones, a damaged file
    (with its line), a column that is not there (with those that are).
    """
    try:
        kind = _kind(path)
        if kind == "parquet":
            yield from _parquet(path, columns)
        elif kind in ("arrow-file", "arrow-stream"):
            yield from _arrow(path, columns, kind)
        else:
            yield from _from_dicts(path, columns, _csv(path) if kind == "csv" else _json(path, kind))
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise InputFileError(f"{path} is damaged: {error}", "fetch it again") from error
        raise os_error(error, f"read {path}", "check the path and its permissions") from error
    except EOFError as error:
        raise InputFileError(f"{path} ends early: {error}", "fetch it again") from error


def column_names(path: Path) -> list[str]:
    """Return the columns of a file, those inside objects dotted; of JSON those of its first rows. Raises as above."""
    try:
        kind = _kind(path)
        if kind == "parquet":
            import pyarrow.parquet as pq

            return _dotted(pq.read_schema(path))
        if kind in ("arrow-file", "arrow-stream"):
            import pyarrow as pa

            with pa.memory_map(str(path)) as memory:
                opened = pa.ipc.open_stream(memory) if kind == "arrow-stream" else pa.ipc.open_file(memory)
                return _dotted(opened.schema)
        rows = _csv(path) if kind == "csv" else _json(path, kind)
        return list(dict.fromkeys(name for _, row in islice(rows, ROWS_PER_BATCH) for name in _names(row)))
    except OSError as error:
        raise os_error(error, f"read {path}", "check the path and its permissions") from error
    except ValueError as error:
        raise InputFileError(f"{path} is damaged: {error}", "fetch it again") from error


def _dotted(schema: Any) -> list[str]:
    import pyarrow as pa

    found = []
    for field in schema:
        found.append(field.name)
        inner = field.type.value_type if _is_list(field.type) else field.type
        if pa.types.is_struct(inner):
            found += [f"{field.name}.{part.name}" for part in inner]
    return found


def _kind(path: Path) -> str:
    with _open(path) as stream:
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
    if any(suffix in (".csv", ".tsv") for suffix in path.suffixes):
        return "csv"
    if not text:
        raise InputFileError(f"{path} is empty", "name a file that holds rows")
    raise InputFileError(
        f"{path} is none of the known formats (its first bytes are {head[:12]!r})",
        "give rows as Parquet, Arrow, JSON Lines or CSV",
    )


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]


def _no_column(path: Path, column: str, known: Iterable[str]) -> InputFileError:
    names = sorted(known)
    return InputFileError(
        f"{path} has no column {column!r}{did_you_mean(column, names)}",
        f"it has {', '.join(names) or 'none'}; the rows must have the columns that the Hub's copy has",
    )


# Parquet and Arrow


def _parquet(path: Path, columns: list[str]) -> Iterator[Batch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _require_columns(path, file.schema_arrow, columns)
            tops = list(dict.fromkeys(column.split(".")[0] for column in columns))
            yield from _from_arrow(file.iter_batches(ROWS_PER_BATCH, columns=tops), columns)
    except pa.ArrowException as error:
        raise InputFileError(f"{path} is a damaged Parquet file: {error}", "fetch it again") from error


def _arrow(path: Path, columns: list[str], kind: str) -> Iterator[Batch]:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as memory:
            if kind == "arrow-stream":
                reader = pa.ipc.open_stream(memory)
                batches: Iterator[Any] = iter(reader)
            else:
                reader = pa.ipc.open_file(memory)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            _require_columns(path, reader.schema, columns)
            parts = (
                batch.slice(start, ROWS_PER_BATCH)
                for batch in batches
                for start in range(0, batch.num_rows, ROWS_PER_BATCH)
            )
            yield from _from_arrow(parts, columns)
    except pa.ArrowException as error:
        raise InputFileError(f"{path} is a damaged Arrow file: {error}", "fetch it again") from error


def _require_columns(path: Path, schema: Any, columns: list[str]) -> None:
    import pyarrow as pa

    for column in columns:
        kind: Any = None
        for depth, part in enumerate(column.split(".")):
            if depth == 0:
                if part not in schema.names:
                    raise _no_column(path, column, schema.names)
                kind = schema.field(part).type
                continue
            inner = kind.value_type if _is_list(kind) else kind
            fields = [field.name for field in inner] if pa.types.is_struct(inner) else []
            if part not in fields:
                raise _no_column(path, column, [*schema.names, *(f"{column.split('.')[0]}.{f}" for f in fields)])
            kind = inner.field(part).type


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _from_arrow(batches: Iterator[Any], columns: list[str]) -> Iterator[Batch]:
    first = 0
    for batch in batches:
        values = [_values(batch.column(column.split(".")[0]), column.split(".")[1:]) for column in columns]
        yield Batch(values, partial(_row_name, first))
        first += batch.num_rows


def _row_name(first: int, offset: int) -> str:
    return f"row {first + offset}"


def _values(array: Any, inner: list[str]) -> list[Any]:
    import pyarrow.compute as pc

    for part in inner:
        if _is_list(array.type):
            return [None if row is None else [entry[part] for entry in row] for row in array.to_pylist()]
        array = pc.struct_field(array, part)
    values: list[Any] = array.to_pylist()
    return values


# JSON and CSV


def _from_dicts(path: Path, columns: list[str], rows: Iterator[tuple[str, dict[str, Any]]]) -> Iterator[Batch]:
    paths = [column.split(".") for column in columns]
    checked = False
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        if not checked:
            _require_keys(path, columns, chunk)
            checked = True
        values = [[_dig(row, keys) for _, row in chunk] for keys in paths]
        yield Batch(values, [place for place, _ in chunk].__getitem__)


def _require_keys(path: Path, columns: list[str], chunk: list[tuple[str, dict[str, Any]]]) -> None:
    """Tell a column that is missing everywhere from a value that is missing in one row."""
    known = {name for _, row in chunk for name in _names(row)}
    for column in columns:
        if column not in known:
            raise _no_column(path, column, known)


def _names(row: dict[str, Any]) -> Iterator[str]:
    for key, value in row.items():
        yield key
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            yield from (f"{key}.{name}" for name in _names(inner))


def _dig(row: Any, keys: list[str]) -> Any:
    for depth, key in enumerate(keys):
        if isinstance(row, list):
            return [_dig(entry, keys[depth:]) for entry in row]
        if not isinstance(row, dict):
            return None
        row = row.get(key)
    return row


def values_of(row: dict[str, Any], columns: list[str]) -> tuple[Any, ...]:
    """Return the values of a row's columns, None for those it has not."""
    return tuple(_dig(row, column.split(".")) for column in columns)


def _json(path: Path, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with _open(path) as stream:
        if kind == "json-array":
            yield from _json_array(path, stream)
            return
        number = 0
        while line := stream.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise InputFileError(f"{path}, line {number}: longer than {MAX_LINE} bytes", "one row per line, please")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            yield f"line {number}", _object(_parse(path, line, f"line {number}"), path, f"line {number}")


def _json_array(path: Path, stream: IO[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, row in enumerate(_parse(path, stream.read(), "the file")):
        yield f"entry {number}", _object(row, path, f"entry {number}")


def _parse(path: Path, data: bytes, place: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputFileError(
            f"{path}, {place}: not valid JSON ({error})", "correct it or fetch the file again"
        ) from error


def _object(value: Any, path: Path, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputFileError(f"{path}, {place}: a row is an object, this is {type(value).__name__}", "correct it")
    return value


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import io

    csv.field_size_limit(MAX_LINE)
    with io.TextIOWrapper(_open(path), encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t" if ".tsv" in path.suffixes else ",", strict=True)
        try:
            for row in reader:
                place = f"line {reader.line_num}"
                if None in row:
                    raise InputFileError(f"{path}, {place}: more fields than the header has", "quote the commas")
                yield place, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputFileError(f"{path}, line {reader.reader.line_num}: {error}", "correct the file") from error
