"""Tasks of one or several built files as one file, in any order: what a part of a suite is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmc import __version__
from llmc.benchmarks import manifest
from llmc.benchmarks.item import Item
from llmc.benchmarks.manifest import ManifestEntry, Warned
from llmc.benchmarks.publish import explained, figures, publish, recipe_of, records, staged
from llmc.benchmarks.render import VERSION
from llmc.benchmarks.subset import inherited_warnings, pick_items, write_items
from llmc.errors import UsageError
from llmc.files import locked


def write_combined(
    parents: Sequence[ManifestEntry], order: Sequence[int], name: str, out: Path, selection: dict[str, Any]
) -> ManifestEntry:
    """Write the tasks at ``order``, which counts through the parents one behind the other, as the file ``name``.

    Ids, groups and source rows are kept; ``selection`` says how the tasks were chosen, and the names and checksums of
    the parents are put to it. The file is a benchmark's no longer, so that `llmc verify` looks at its checksum and
    structure, and at the parents' every task. An equal file that is there already is returned as it is. Raises
    UsageError for tasks that are not there or given twice, and what reading the parents raises.
    """
    with explained(out):
        return _write(parents, order, name, out, selection)


def _write(
    parents: Sequence[ManifestEntry], order: Sequence[int], name: str, out: Path, selection: dict[str, Any]
) -> ManifestEntry:
    made_of = [{"name": parent.name, "sha256": parent.files["bin"].sha256} for parent in parents]
    selection = {**selection, "tasks": len(order), "of": sum(parent.tasks for parent in parents), "from": made_of}
    recipe = recipe_of([VERSION, list(order), selection])
    with locked(manifest.lock_path(out, name)):
        known = manifest.read_sidecar(manifest.sidecar_path(out, name))
        if known is not None and known.recipe == recipe and not manifest.mismatch(known, out):
            return known
        items, warnings = _items(parents, order, out)
        first = parents[0]
        files = tuple(file for parent in parents for file in parent.source.files)
        with staged(out, name) as folder:
            counts = write_items(folder / f"{name}.bin", items)
            own = {
                "name": name,
                "benchmark": None,
                "config": None,
                "split": None,
                "spec": None,
                "files": records(folder, name),
                **figures(counts),
                "source": first.source.model_copy(update={"files": files}),
                "selection": selection,
                "warnings": warnings,
                "recipe": recipe,
                "llmc": __version__,
            }
            entry = ManifestEntry.model_validate({**dict(first), **own})
            publish(entry, folder, out)
    manifest.regenerate(out)
    return entry


def _items(parents: Sequence[ManifestEntry], order: Sequence[int], out: Path) -> tuple[list[Item], list[Warned]]:
    """Return the tasks in order, numbered anew, and the parents' warnings about them."""
    if not order or len(set(order)) != len(order) or min(order) < 0:
        raise UsageError("one or more different tasks are needed", "correct the selection")
    found: dict[int, Item] = {}
    warnings: list[Warned] = []
    before = 0
    for parent in parents:
        own = [index - before for index in order if before <= index < before + parent.tasks]
        if own:
            picked = pick_items(parent.bin_path(out), parent, own)
            found.update({before + index: item for index, item in zip(own, picked, strict=True)})
            warnings += inherited_warnings(parent, picked)
        before += parent.tasks
    if missing := set(order) - set(found):
        raise UsageError(f"there is no task {min(missing)}, there are {before}", "choose tasks inside the files")
    return [replace(found[index], index=new) for new, index in enumerate(order)], warnings
