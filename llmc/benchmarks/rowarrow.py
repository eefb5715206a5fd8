"""Parquet and Arrow files of rows, column by column, in bounded memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from llmc.benchmarks.paths import for_arrow
from llmc.benchmarks.rowvalues import Batch, inside, no_column
from llmc.errors import InputFileError


def column_names(path: Path, kind: str) -> list[str]:
    """Return the columns of a file, those inside objects dotted."""
    with _opened(path, kind) as (schema, _):
        return _dotted(schema)


def read_rows(path: Path, columns: list[str], kind: str, size: int) -> Iterator[Batch]:
    """Yield the rows of a file in batches of at most ``size``; InputFileError for a column that is not there."""
    with _opened(path, kind) as (schema, batches):
        steps = [_steps(path, schema, column) for column in columns]
        tops = list(dict.fromkeys(step[0] for step in steps))
        first = 0
        for batch in batches(size, tops):
            yield Batch([_values(batch.column(top), inner) for top, *inner in steps], partial(_row_name, first))
            first += batch.num_rows


@contextlib.contextmanager
def _opened(path: Path, kind: str) -> Iterator[tuple[Any, Callable[[int, list[str]], Iterator[Any]]]]:
    """Give the schema of a file, and what yields its batches of at most so many rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with for_arrow(path) as opened:
        try:
            if kind == "parquet":
                with pq.ParquetFile(opened) as file:
                    yield file.schema_arrow, lambda size, tops: file.iter_batches(size, columns=tops)
                return
            with pa.memory_map(opened) if isinstance(opened, str) else contextlib.nullcontext(opened) as memory:
                if kind == "arrow-stream":
                    reader = pa.ipc.open_stream(memory)
                    yield reader.schema, lambda size, tops: _sliced(iter(reader), size)
                else:
                    reader = pa.ipc.open_file(memory)
                    found = (reader.get_batch(i) for i in range(reader.num_record_batches))
                    yield reader.schema, lambda size, tops: _sliced(found, size)
        except pa.ArrowException as error:
            name = "Parquet" if kind == "parquet" else "Arrow"
            raise InputFileError(f"{path} is a damaged {name} file: {error}", "fetch it again") from error


def _sliced(batches: Iterator[Any], size: int) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)


def _dotted(schema: Any) -> list[str]:
    found = []
    for field in schema:
        found.append(field.name)
        found += [f"{field.name}.{part}" for part in _parts(field.type)]
    return found


def _parts(kind: Any) -> list[str]:
    """Return the fields of a struct, or of the structs in a list."""
    import pyarrow as pa

    inner = kind.value_type if _is_list(kind) else kind
    return [field.name for field in inner] if pa.types.is_struct(inner) else []


def _steps(path: Path, schema: Any, column: str) -> list[str]:
    """Return the names that lead to a column, from the outermost in; a name with a dot in it goes first."""
    steps: list[str] = []
    rest: str | None = column
    names, outer = schema.names, schema
    while rest is not None:
        step, rest = _first_step(rest, names)
        if step is None:
            top = column.partition(".")[0]
            raise no_column(path, column, [*schema.names, *(n for n in _dotted(schema) if n.startswith(f"{top}."))])
        if names.count(step) > 1:
            raise InputFileError(f"{path}: column {step!r} twice", "give each column a name of its own")
        steps.append(step)
        kind = outer.field(step).type
        names, outer = _parts(kind), kind.value_type if _is_list(kind) else kind
    return steps


def _first_step(name: str, names: list[str]) -> tuple[str | None, str | None]:
    """Return the one of ``names`` that a dotted name begins with, and what is left of it (None: nothing)."""
    if name in names:
        return name, None
    at = name.find(".")
    while at >= 0:
        if name[:at] in names:
            return name[:at], name[at + 1 :]
        at = name.find(".", at + 1)
    return None, None


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _row_name(first: int, offset: int) -> str:
    return f"row {first + offset}"


def _values(array: Any, inner: list[str]) -> list[Any]:
    import pyarrow.compute as pc

    while inner and not _is_list(array.type):
        array, inner = pc.struct_field(array, inner[0]), inner[1:]
    values: list[Any] = array.to_pylist()
    return [_within(value, inner) for value in values] if inner else values


def _within(value: Any, steps: list[str]) -> Any:
    for step in steps:
        value = inside(value, step)
    return value
