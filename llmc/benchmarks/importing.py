"""Benchmark files of others, taken over: items, a clean ``.bin`` and a sidecar that says where they are from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from llmc import __version__, console, mcbin
from llmc.benchmarks import manifest, names
from llmc.benchmarks.checks import Counts
from llmc.benchmarks.item import Item, ItemWriter, item_of, items_path, to_task
from llmc.benchmarks.manifest import ManifestEntry, SourceFile, SourceRecord, Warned
from llmc.benchmarks.paths import stored
from llmc.benchmarks.publish import explained, figures, publish, recipe_of, records, staged
from llmc.benchmarks.scaffold import LETTERS
from llmc.errors import UsageError
from llmc.files import locked, readable

_NAME = re.compile(r"[A-Za-z0-9][\w.@+-]*")


def import_bin(path: Path, out: Path, name: str | None = None) -> ManifestEntry:
    """Return the entry of a ``.bin`` of any origin, imported into ``out``.

    The file is read to its last byte as strictly as one's own, but for mc2, the second set of options that some
    publishers fill: it is kept with the items (``attributes``), and the new ``.bin`` has none. Ids are the
    tasks' numbers. ``name`` is the file's own, followed by ``.imported`` where the catalogue has that name.
    Raises FormatError, InputFileError, and UsageError for a name that cannot be or is taken.
    """
    chosen = _name(path, name)
    with explained(out), locked(manifest.lock_path(out, chosen)):
        known = manifest.read_sidecar(manifest.sidecar_path(out, chosen))
        if known is not None and known.source.via != "bin":
            raise UsageError(f"{chosen} is built in {out} already, from its source", "choose another with --name")
        with staged(out, chosen) as folder:
            reader = mcbin.LenientReader(path)
            counts, is_letter = _write(reader, folder / f"{chosen}.bin")
            assert reader.facts is not None
            if reader.filled and (out / f"{chosen}.bin").resolve() == path.resolve():
                raise UsageError(
                    f"{path} has a filled mc2 and would be overwritten by a file without it",
                    "choose another name with --name, or another folder with --out",
                )
            form = "letter" if is_letter else "text"
            own = {"name": chosen, "files": records(folder, chosen), "form": form, "prompt_mode": form}
            source = SourceRecord(
                via="bin",
                path=stored(path.absolute()),
                files=(SourceFile(name=readable(path.name), sha256=reader.facts.sha256),),
            )
            entry = ManifestEntry.model_validate(
                {
                    **own,
                    **figures(counts),
                    "source": source,
                    "warnings": _warnings(reader),
                    "recipe": recipe_of(["import", reader.facts.sha256]),
                    "llmc": __version__,
                }
            )
            publish(entry, folder, out)
    manifest.regenerate(out)
    return entry


def _name(path: Path, name: str | None) -> str:
    chosen = path.name.removesuffix(".bin") if name is None else name
    if not _NAME.fullmatch(chosen) or f"{chosen}.json" == manifest.MANIFEST:
        raise UsageError(f"{chosen!r} cannot name a benchmark", "give letters, digits and ._@+- with --name")
    if not names.in_catalogue(chosen):
        return chosen
    if name is not None:
        raise UsageError(f"{name} is what `llmc build` calls a benchmark of the catalogue", "choose another --name")
    return f"{chosen}.imported"


def _write(reader: mcbin.LenientReader, path: Path) -> tuple[Counts, bool]:
    """Write the tasks as they are; return their counts, and whether all options are letters in order."""
    counts, is_letter = Counts(), True
    with (
        console.progress(f"Importing {reader.path.name}") as advance,
        mcbin.Writer(path) as binary,
        ItemWriter(items_path(path)) as items,
    ):
        for item in _items(reader):
            task = to_task(item)
            binary.add(task)
            items.add(item)
            counts.add(item)
            is_letter = is_letter and "".join(task.options) == LETTERS[: len(task.options)]
            if item.index % 4096 == 0:
                advance(item.index)
    return counts, is_letter


def _items(reader: mcbin.LenientReader) -> Iterator[Item]:
    for index, task in enumerate(reader):
        item = item_of(index, task)
        if reader.mc2_task == index and reader.mc2 is not None:
            second = {"options": reader.mc2.options, "labels": reader.mc2.labels}
            item = replace(item, attributes=json.dumps({"mc2": second}, ensure_ascii=False))
        yield item


def _warnings(reader: mcbin.LenientReader) -> tuple[Warned, ...]:
    found = []
    facts = reader.facts
    assert facts is not None
    if facts.duplicates:
        ids = tuple(str(index) for index in facts.first_duplicates)
        found.append(Warned(kind="duplicate-options", count=facts.duplicates, ids=ids))
    if reader.filled:
        detail = f"{reader.filled} tasks carried a second set of options (mc2): kept in the items' attributes"
        found.append(Warned(kind="mc2-left-out", count=reader.filled, detail=detail))
    return tuple(found)
