"""Where the scorer's items come from: an item file, or a benchmark file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llmc.benchmarks.item import Item, items_from_bin, read_items
from llmc.errors import InputFileError


def chosen_items(path: Path, indices: tuple[int, ...] | None) -> Iterator[Item]:
    """Yield the items of a file (.parquet or .bin) that ``indices`` name, in ascending order; None is all.

    Raises what the readers raise, and InputFileError when the file has no such item.
    """
    if indices is None:
        yield from _items(path, 0)
        return
    wanted = iter(indices)
    following = next(wanted)
    for item in _items(path, following):
        if item.index == following:
            yield item
            following = next(wanted, -1)
            if following < 0:
                return
    raise InputFileError(f"{path} has no item {following}", "choose items by their place in the file, from 0 on")


def _items(path: Path, first: int) -> Iterator[Item]:
    return read_items(path, first) if path.suffix == ".parquet" else items_from_bin(path)
