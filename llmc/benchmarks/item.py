"""Items: the common form of every benchmark, and the Parquet files that hold them.

An item file ``<name>.items.parquet`` lies beside ``<name>.bin`` with one row per task in the same order. The
``.bin`` is a projection of it: question = context, option = continuation less one leading space.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

from llmc import mcbin
from llmc.benchmarks.paths import for_arrow
from llmc.errors import InputFileError, os_error

ROWS_PER_GROUP = 10_000
# Contexts and ids hardly ever repeat: a dictionary of them costs time and makes larger files.
_PARQUET = {"compression": "zstd", "use_dictionary": ["group"]}
SUFFIX = ".items.parquet"


@dataclass(slots=True, unsafe_hash=True)  # a frozen one takes five times as long to make
class Item:
    """One question as it is scored. Each continuation starts with its own whitespace; ``gold`` indexes them.
    Not to be changed.

    ``id`` is the source's own, ``source_row`` the row in the source's split (-1 when there is none),
    ``option_order`` the original indices when options were shuffled, ``attributes`` a JSON object or None.
    """

    index: int
    id: str
    group: str | None
    context: str
    uncond_context: str | None
    option_order: tuple[int, ...] | None
    continuations: tuple[str, ...]
    gold: int
    source_row: int
    attributes: str | None = None


def items_path(bin_path: Path) -> Path:
    """Return where the items of a ``.bin`` lie."""
    name = bin_path.name
    return bin_path.with_name((name[:-4] if name.endswith(".bin") else name) + SUFFIX)


def to_task(item: Item) -> mcbin.Task:
    """Project an item to the binary's form; ValueError when a continuation does not start with a space.

    llama.cpp joins question and option with one space, so exactly that one is taken off.
    """
    continuations = item.continuations
    bare = _bare_letters if continuations and len(continuations[0]) <= 4 else _bare
    return mcbin.Task(item.context, bare(continuations), item.gold)


def _bare(continuations: tuple[str, ...]) -> tuple[str, ...]:
    for i, text in enumerate(continuations):
        if text[:1] != " ":
            raise ValueError(f"continuation {i} starts with {text[:1]!r}, not a space: no .bin can hold it")
    return tuple([text[1:] for text in continuations])


_bare_letters = lru_cache(maxsize=1024)(_bare)  # letters come again in every item


def item_of(index: int, task: mcbin.Task) -> Item:
    """Return a task as an item whose id is its index."""
    continuations = tuple([" " + option for option in task.options])
    return Item(index, str(index), None, task.question, None, None, continuations, task.gold, -1)


def items_from_bin(path: Path) -> Iterator[Item]:
    """Yield the tasks of a ``.bin`` as items whose id is their index; raises what ``mcbin.Reader`` does."""
    for index, task in enumerate(mcbin.Reader(path)):
        yield item_of(index, task)


def schema() -> Any:
    """Return the Arrow schema of an item file."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("index", pa.int32(), nullable=False),
            pa.field("id", pa.string(), nullable=False),
            pa.field("group", pa.string()),
            pa.field("context", pa.string(), nullable=False),
            pa.field("uncond_context", pa.string()),
            pa.field("option_order", pa.list_(pa.int32())),
            pa.field("continuations", pa.list_(pa.string()), nullable=False),
            pa.field("gold", pa.int16(), nullable=False),
            pa.field("source_row", pa.int64(), nullable=False),
            pa.field("attributes", pa.string()),
        ]
    )


class ItemWriter:
    """Write items to a Parquet file (zstd) in row groups; the same items give the same bytes.

    The file has its name from the start: callers write into a folder of their own and move it when whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: list[Item] = []

    def __enter__(self) -> ItemWriter:
        import pyarrow.parquet as pq

        self._schema = schema()
        self._open = contextlib.ExitStack()
        name = self._guard(lambda: self._open.enter_context(for_arrow(self.path, "wb")))
        self._writer = self._guard(lambda: pq.ParquetWriter(name, self._schema, **_PARQUET))
        return self

    def add(self, item: Item) -> None:
        self._pending.append(item)
        if len(self._pending) >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        items, self._pending = self._pending, []
        if items:
            columns = [_column(items, field) for field in self._schema]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            self._guard(lambda: self._writer.write_batch(batch))

    def _guard(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except OSError as error:
            raise os_error(error, f"write {self.path}", "choose another folder with --out, or make room") from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._guard(self._writer.close)
            self._guard(self._open.close)


def _column(items: list[Item], field: Any) -> Any:
    import pyarrow as pa

    values = list(map(attrgetter(field.name), items))
    if field.name == "continuations":
        # Flat values and offsets are several times faster than a list of lists.
        offsets, flat = [0], []
        for texts in values:
            flat.extend(texts)
            offsets.append(len(flat))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, pa.string()))
    return pa.array(values, field.type)


def read_items(path: Path, first: int = 0) -> Iterator[Item]:
    """Yield the items of a file in order, in bounded memory; with ``first`` from that one on, or a little earlier.

    Raises InputFileError when the file is missing, is not an item file, or breaks its own numbering.
    """
    for index, values in read_values(path, first):
        if values[0] != index:
            raise InputFileError(f"{path}: item {index} is numbered {values[0]}", _REBUILD)
        yield Item(*values)


def read_values(path: Path, first: int = 0) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield (row, the values of an ``Item`` in its fields' order), whatever number the item itself claims.

    Raises InputFileError when the file is missing or is not an item file.
    """
    names = schema().names
    with _opened(path) as file:
        index, groups = _groups_from(file.metadata, first)
        for batch in file.iter_batches(ROWS_PER_GROUP, row_groups=groups, columns=names):
            columns = [_python_values(batch.column(name)) for name in names]
            yield from enumerate(zip(*columns, strict=True), index)
            index += batch.num_rows


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An item file for reading; whatever is wrong with it, also later, is an InputFileError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with for_arrow(path) as name, pq.ParquetFile(name) as file:
            if missing := [name for name in schema().names if name not in file.schema_arrow.names]:
                raise InputFileError(f"{path} is not an item file: no column {missing[0]!r}", _REBUILD)
            yield file
    except OSError as error:
        raise os_error(error, f"read {path}", _REBUILD) from error
    except pa.ArrowException as error:
        raise InputFileError(f"{path} is not a readable item file: {error}", _REBUILD) from error


def _python_values(column: Any) -> list[Any]:
    import pyarrow as pa

    if column.null_count == len(column):
        return [None] * len(column)
    if not pa.types.is_list(column.type):
        values: list[Any] = column.to_pylist()
        return values
    # Flat values and offsets are several times faster than a list of lists.
    flat, offsets = column.values.to_pylist(), column.offsets.to_pylist()
    return [
        tuple(flat[start:stop]) if valid else None
        for start, stop, valid in zip(offsets, offsets[1:], column.is_valid().to_pylist(), strict=False)
    ]


def _groups_from(metadata: Any, first: int) -> tuple[int, list[int]]:
    """Return the row groups from the one that holds row ``first`` on, and the row that they begin with."""
    start = skipped = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if start + rows > first:
            break
        start, skipped = start + rows, group + 1
    return start, list(range(skipped, metadata.num_row_groups))


def read_ids(path: Path) -> Iterator[str]:
    """Yield the ids alone, in order; raises as ``read_items`` does."""
    return _read_column(path, "id")


def read_groups(path: Path) -> Iterator[str | None]:
    """Yield the groups alone, in order; raises as ``read_items`` does."""
    return _read_column(path, "group")


def _read_column(path: Path, name: str) -> Iterator[Any]:
    with _opened(path) as file:
        for batch in file.iter_batches(ROWS_PER_GROUP, columns=[name]):
            yield from _python_values(batch.column(0))


_REBUILD = "rebuild it with `llmc build`"
