"""Some tasks of a built file, or of any ``.bin``, as a benchmark of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmc import __version__, mcbin
from llmc.benchmarks import manifest
from llmc.benchmarks.checks import Counts
from llmc.benchmarks.item import Item, ItemWriter, items_from_bin, items_path, read_items, to_task
from llmc.benchmarks.manifest import ManifestEntry, SourceFile, SourceRecord, Warned
from llmc.benchmarks.own import rebuild_command
from llmc.benchmarks.paths import stored
from llmc.benchmarks.publish import explained, figures, publish, recipe_of, records, staged
from llmc.benchmarks.render import VERSION
from llmc.errors import InputFileError, UsageError
from llmc.files import locked, readable, sha256_file


def write_subset(
    entry_or_bin: Path, indices: list[int], name: str, out: Path, selection: dict[str, Any]
) -> ManifestEntry:
    """Write some tasks of a built file, or of any ``.bin``, as a benchmark of their own, in the given order.

    ``entry_or_bin`` is a ``.bin`` or the sidecar beside it. Ids and source rows are kept; ``selection`` says
    how the indices were chosen and is recorded. An equal subset that is there already is returned as it is.
    Raises UsageError for indices outside the file or given twice, and what reading the file raises.
    """
    with explained(out):
        return _write_subset(entry_or_bin, indices, name, out, selection)


def _write_subset(
    entry_or_bin: Path, indices: list[int], name: str, out: Path, selection: dict[str, Any]
) -> ManifestEntry:
    path = entry_or_bin.with_suffix(".bin") if entry_or_bin.suffix == ".json" else entry_or_bin
    parent = manifest.entry_for_bin(path)
    digest = parent.files["bin"].sha256 if parent else sha256_file(path)
    recipe = recipe_of([VERSION, digest, indices, selection])
    with locked(manifest.lock_path(out, name)):
        known = manifest.read_sidecar(manifest.sidecar_path(out, name))
        if known is not None and known.recipe == recipe and not manifest.mismatch(known, out):
            return known
        with staged(out, name) as folder:
            items = pick_items(path, parent, indices)
            counts = write_items(folder / f"{name}.bin", items)
            own = {"name": name, "files": records(folder, name), **figures(counts)}
            own |= {"selection": selection, "recipe": recipe, "llmc": __version__}
            entry = ManifestEntry.model_validate(_inherited(path, parent, digest, items) | own)
            publish(entry, folder, out)
    manifest.regenerate(out)
    return entry


def pick_items(path: Path, parent: ManifestEntry | None, indices: list[int]) -> list[Item]:
    """Return the items at ``indices`` in that order, numbered anew."""
    wanted = set(indices)
    if not indices or len(wanted) != len(indices) or min(wanted) < 0:
        raise UsageError(f"{path}: a subset takes one or more different indices", "correct the selection")
    found: dict[int, Item] = {}
    for item in _items_of(path, parent, min(wanted)):
        if item.index in wanted:
            found[item.index] = item
            if len(found) == len(wanted):
                break
    if missing := wanted - set(found):
        raise UsageError(f"{path} has no task {min(missing)}", "choose indices inside the file")
    return [replace(found[index], index=new) for new, index in enumerate(indices)]


def _items_of(path: Path, parent: ManifestEntry | None, first: int) -> Iterator[Item]:
    items = items_path(path)
    if parent is not None:
        if difference := manifest.mismatch(parent, path.parent):
            raise InputFileError(difference, f"run `{rebuild_command(parent, path.parent)}`")
        yield from read_items(items, first)
    elif not items.is_file():
        yield from items_from_bin(path)
    else:
        # Nothing vouches for these two, so each item must be the task that stands at its place.
        for item, task in zip(read_items(items), mcbin.Reader(path), strict=False):
            if to_task(item) != task:
                raise InputFileError(f"{items}: item {item.index} is not the task in {path.name}", "remove it")
            yield item


def write_items(path: Path, items: Iterable[Item]) -> Counts:
    """Write a .bin and its item file into a folder of the caller's own; return what was counted."""
    counts = Counts()
    with mcbin.Writer(path) as binary, ItemWriter(items_path(path)) as writer:
        for item in items:
            binary.add(to_task(item))
            writer.add(item)
            counts.add(item)
    return counts


def _inherited(path: Path, parent: ManifestEntry | None, digest: str, items: list[Item]) -> dict[str, Any]:
    """Return what a subset takes over from the file it is of; warnings only as far as they name its items."""
    if parent is None:
        file = SourceFile(name=readable(path.name), sha256=digest)
        return {"source": SourceRecord(via="bin", path=stored(path.absolute()), files=(file,))}
    return {**dict(parent), "warnings": inherited_warnings(parent, items)}


def inherited_warnings(parent: ManifestEntry, items: Iterable[Item]) -> tuple[Warned, ...]:
    """Return a file's warnings as far as they name these of its items."""
    ids = {item.id for item in items}
    warnings = []
    for warned in parent.warnings:
        if named := tuple(item_id for item_id in warned.ids if item_id in ids):
            warnings.append(Warned(kind=warned.kind, count=len(named), ids=named, detail=warned.detail))
    return tuple(warnings)
