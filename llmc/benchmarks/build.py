"""Rows to files: ``<name>.bin``, ``<name>.items.parquet`` and the sidecar, all of them or none.

Files are written into a hidden folder beside their destination and moved when all are whole; the old sidecar
goes first and the new one comes last, so what has a sidecar is always complete and consistent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmc import __version__, console, mcbin
from llmc.benchmarks import manifest, names
from llmc.benchmarks.checks import Counts, Oddities, Refusals
from llmc.benchmarks.item import SUFFIX, Item, ItemWriter, items_from_bin, items_path, read_ids, read_items, to_task
from llmc.benchmarks.manifest import FileRecord, ManifestEntry, SourceFile, SourceRecord, Warned
from llmc.benchmarks.render import VERSION, Renderer
from llmc.benchmarks.rows import RowReader
from llmc.benchmarks.select import seeded_sample
from llmc.benchmarks.source import Rows, open_rows
from llmc.errors import FetchError, InputFileError, UsageError, os_error
from llmc.files import locked, sha256_file

_ROOM = "choose another folder with --out, or make room"


def ensure_built(name: str, out: Path, *, source: Path | None = None, force: bool = False) -> ManifestEntry:
    """Return the entry of a benchmark in ``out``, built first where it is missing, damaged or outdated.

    ``name`` is a benchmark, benchmark-split, with ``@protocol`` or ``.sample<N>s<seed>`` (see names.py).
    ``source`` names a file or folder of rows to build from instead of the Hub. Raises UsageError,
    FetchError and InputFileError; on any of them, as on Ctrl-C, ``out`` is left as it was.
    """
    return build(names.parse(name), out, source=source, force=force)


def build(target: names.Target, out: Path, *, source: Path | None = None, force: bool = False) -> ManifestEntry:
    """Do what ``ensure_built`` says for a parsed name. A sample of all tasks or more is the whole split."""
    with _explained(out):
        entry = _build_split(target, out, source, force)
    if target.sample is None or target.sample[0] >= entry.tasks:
        return entry
    count, seed = target.sample
    indices = seeded_sample(entry.tasks, count, seed)
    selection = {"kind": "sample", "tasks": count, "of": entry.tasks, "seed": seed}
    selection["from_sha256"] = entry.files["bin"].sha256
    return write_subset(entry.bin_path(out), indices, target.name, out, selection)


def _build_split(target: names.Target, out: Path, source: Path | None, force: bool) -> ManifestEntry:
    name = target.full_name
    recipe = _recipe(target)
    with locked(manifest.lock_path(out, name)):
        known = manifest.read_sidecar(manifest.sidecar_path(out, name))
        usable = known is not None and not force and known.recipe == recipe and not manifest.mismatch(known, out)
        if known is not None and usable and source is None:
            return known
        rows = open_rows(target.spec, target.split, source)
        if known is not None and usable and _same_files(known.source.files, rows.record.files):
            return known
        with _staged(out, name) as folder:
            counts, warnings = _write_split(target, rows, folder / f"{name}.bin")
            entry = _entry(target, rows.record, folder, counts, warnings, recipe)
            _publish(entry, folder, out)
    manifest.regenerate(out)
    return entry


def _same_files(one: tuple[SourceFile, ...], other: tuple[SourceFile, ...]) -> bool:
    return [file.sha256 for file in one] == [file.sha256 for file in other]


def _recipe(target: names.Target) -> str:
    """Return the hash of all that decides a file's bytes, given its rows."""
    spec = target.spec.model_dump(mode="json")
    relevant = {key: spec[key] for key in ("source", "fields", "choices", "answer", "id_field", "group_field")}
    relevant["source"].pop("mirrors")
    protocol = target.spec.protocols[target.protocol].model_dump(mode="json", exclude={"note"})
    return _digest([VERSION, target.split, target.protocol, relevant, protocol])


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _write_split(target: names.Target, rows: Rows, path: Path) -> tuple[Counts, tuple[Warned, ...]]:
    """Write the .bin and the items of a split; raises InputFileError when a row cannot be scored."""
    spec, split = target.spec, target.split
    reader, renderer = RowReader(spec, split), Renderer(spec, target.protocol)
    counts, odd, refused = Counts(), Oddities(spec.protocols[target.protocol].form), Refusals()
    expect = spec.expect.get(split)
    seen = 0
    with (
        console.progress(f"Building {target.full_name}", expect.tasks if expect else None) as advance,
        mcbin.Writer(path) as binary,
        ItemWriter(items_path(path)) as items,
    ):
        for file, batch in rows.batches(reader.columns):
            for offset, values in enumerate(zip(*batch.columns, strict=True)):
                try:
                    row = reader.row(values, seen)
                    item = renderer.item(row, len(binary))
                    binary.add(to_task(item))
                except ValueError as problem:
                    refused.add(f"{file.name} {batch.place(offset)}", reader.row_id(values, seen), str(problem))
                else:
                    items.add(item)
                    counts.add(item)
                    odd.add(row)
                seen += 1
            advance(seen, "")
        _require_whole(target, rows, seen, refused)
    return counts, odd.warnings(lambda: read_ids(items_path(path))) + _compare(target, rows.record, counts)


def _require_whole(target: names.Target, rows: Rows, seen: int, refused: Refusals) -> None:
    where = f"{target.spec.name} {target.split}"
    if seen == 0:
        files = ", ".join(str(path) for path in rows.paths)
        raise InputFileError(f"{where}: there are no rows in {files}", "check the source and the split")
    if refused.count:
        raise InputFileError(
            f"{where}: {refused.sentence(seen)}",
            "correct or remove these rows, and name the result with --source",
        )


def _compare(target: names.Target, record: SourceRecord, counts: Counts) -> tuple[Warned, ...]:
    """Hold the counts against the published ones: an error for published rows, a warning for one's own."""
    difference = counts.unexpected(target.spec.expect.get(target.split))
    if not difference:
        return ()
    if record.via == "path":
        console.note(f"{target.full_name}: not the published split: {difference}")
        return (Warned(kind="not-as-published", count=counts.tasks, detail=difference),)
    raise FetchError(
        f"{target.full_name} did not come out as published: {difference}",
        "the source has changed or arrived damaged: check its revision, or name rows with --source",
    )


def _entry(
    target: names.Target,
    record: SourceRecord,
    folder: Path,
    counts: Counts,
    warnings: tuple[Warned, ...],
    recipe: str,
) -> ManifestEntry:
    spec, form = target.spec, target.spec.protocols[target.protocol].form
    return ManifestEntry(
        name=target.full_name,
        benchmark=spec.name,
        split=target.split,
        protocol=target.protocol,
        form=form,
        prompt_mode=form,
        shots=0,
        files=_records(folder, target.full_name),
        **_figures(counts),
        source=record,
        licence=spec.licence,
        citation=spec.citation,
        homepage=spec.homepage,
        warnings=warnings,
        recipe=recipe,
        llmc=__version__,
    )


def _figures(counts: Counts) -> dict[str, Any]:
    return {
        "tasks": counts.tasks,
        "options": dict(sorted(counts.widths.items())),
        "chance": counts.chance,
        "majority": counts.majority,
    }


def _records(folder: Path, name: str) -> Any:
    found = {}
    for kind, suffix in (("bin", ".bin"), ("items", SUFFIX)):
        path = folder / f"{name}{suffix}"
        found[kind] = FileRecord(name=path.name, sha256=sha256_file(path), bytes=path.stat().st_size)
    return found


@contextlib.contextmanager
def _explained(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise os_error(error, f"write to {out}" if error.filename is None else "use", _ROOM) from error


@contextlib.contextmanager
def _staged(out: Path, name: str) -> Iterator[Path]:
    """Give a fresh hidden folder in ``out``, removed at the end; the caller holds the lock of ``name``."""
    folder = out / f".{name}.building"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _publish(entry: ManifestEntry, folder: Path, out: Path) -> None:
    # All writing is done before anything is moved: a full disk leaves the older files as they are.
    manifest.write_sidecar(folder, entry)
    sidecar = manifest.sidecar_path(out, entry.name)
    sidecar.unlink(missing_ok=True)
    for record in entry.files.values():
        (folder / record.name).replace(out / record.name)
    (folder / sidecar.name).replace(sidecar)


def write_subset(
    entry_or_bin: Path, indices: list[int], name: str, out: Path, selection: dict[str, Any]
) -> ManifestEntry:
    """Write some tasks of a built file, or of any ``.bin``, as a benchmark of their own, in the given order.

    ``entry_or_bin`` is a ``.bin`` or the sidecar beside it. Ids and source rows are kept; ``selection`` says
    how the indices were chosen and is recorded. An equal subset that is there already is returned as it is.
    Raises UsageError for indices outside the file or given twice, and what reading the file raises.
    """
    with _explained(out):
        return _write_subset(entry_or_bin, indices, name, out, selection)


def _write_subset(
    entry_or_bin: Path, indices: list[int], name: str, out: Path, selection: dict[str, Any]
) -> ManifestEntry:
    path = entry_or_bin.with_suffix(".bin") if entry_or_bin.suffix == ".json" else entry_or_bin
    parent = manifest.entry_for_bin(path)
    digest = parent.files["bin"].sha256 if parent else sha256_file(path)
    recipe = _digest([VERSION, digest, indices, selection])
    with locked(manifest.lock_path(out, name)):
        known = manifest.read_sidecar(manifest.sidecar_path(out, name))
        if known is not None and known.recipe == recipe and not manifest.mismatch(known, out):
            return known
        with _staged(out, name) as folder:
            items = _pick(path, parent, indices)
            counts = _write_items(folder / f"{name}.bin", items)
            own = {"name": name, "files": _records(folder, name), **_figures(counts)}
            own |= {"selection": selection, "recipe": recipe, "llmc": __version__}
            entry = ManifestEntry.model_validate(_inherited(path, parent, digest, items) | own)
            _publish(entry, folder, out)
    manifest.regenerate(out)
    return entry


def _pick(path: Path, parent: ManifestEntry | None, indices: list[int]) -> list[Item]:
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
            raise InputFileError(difference, f"run `llmc build {parent.name} --force --out {path.parent}`")
        yield from read_items(items, first)
    elif not items.is_file():
        yield from items_from_bin(path)
    else:
        # Nothing vouches for these two, so each item must be the task that stands at its place.
        for item, task in zip(read_items(items), mcbin.Reader(path), strict=False):
            if to_task(item) != task:
                raise InputFileError(f"{items}: item {item.index} is not the task in {path.name}", "remove it")
            yield item


def _write_items(path: Path, items: Iterable[Item]) -> Counts:
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
        file = SourceFile(name=path.name, sha256=digest)
        return {"source": SourceRecord(via="bin", path=str(path), files=(file,))}
    ids = {item.id for item in items}
    warnings = []
    for warned in parent.warnings:
        if named := tuple(item_id for item_id in warned.ids if item_id in ids):
            warnings.append(Warned(kind=warned.kind, count=len(named), ids=named, detail=warned.detail))
    return {**dict(parent), "warnings": warnings}
