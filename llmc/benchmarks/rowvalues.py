"""What all files of rows share: batches, dotted columns, and the error for a column that is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc.errors import InputFileError, did_you_mean


@dataclass(frozen=True)
class Batch:
    """Consecutive rows: a list of values for each column asked for; ``place(i)`` says where row i stands."""

    columns: list[list[Any]]
    place: Callable[[int], str]


def no_column(path: Path, column: str, known: Iterable[str]) -> InputFileError:
    names = sorted(set(known))
    return InputFileError(
        f"{path} has no column {column!r}{did_you_mean(column, names)}",
        f"it has {', '.join(names) or 'none'}; the rows must have the columns that the Hub's copy has",
    )


def names_in(row: dict[str, Any]) -> Iterator[str]:
    """Yield the columns of a row, those inside objects, or inside the objects of a list, dotted."""
    for key, value in row.items():
        yield key
        inner = next((entry for entry in value if isinstance(entry, dict)), None) if isinstance(value, list) else value
        if isinstance(inner, dict):
            yield from (f"{key}.{name}" for name in names_in(inner))


def inside(value: Any, column: str) -> Any:
    """Return a column of an object, of each object in a list; None where it is not.

    A key that is itself called ``a.b`` goes before ``b`` inside ``a``.
    """
    if isinstance(value, list):
        return [inside(entry, column) for entry in value]
    if not isinstance(value, dict):
        return None
    if column in value:
        return value[column]
    at = column.find(".")
    while at >= 0:
        if column[:at] in value:
            return inside(value[column[:at]], column[at + 1 :])
        at = column.find(".", at + 1)
    return None


def values_of(row: dict[str, Any], columns: list[str]) -> tuple[Any, ...]:
    """Return the values of a row's columns, None for those it has not."""
    return tuple([inside(row, column) for column in columns])
