"""A benchmark as a run takes it: a file, what it holds, the ids behind its tasks, and a part of it when asked."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llmc import console, mcbin
from llmc.benchmarks.item import read_groups, read_ids
from llmc.benchmarks.manifest import ManifestEntry, entry_for_bin
from llmc.benchmarks.select import like_llama, seeded_sample
from llmc.errors import InputFileError, UsageError, os_error
from llmc.files import is_file, sha256_cached
from llmc.runs.identity import benchmark_identity
from llmc.runs.record import BenchmarkIdentity
from llmc.runs.settings import Settings


@dataclass(frozen=True)
class Bench:
    """``golds`` holds one byte a task: its gold index. ``items`` is the item file that the manifest vouches for."""

    name: str
    path: Path
    facts: mcbin.BinFacts
    golds: bytes
    entry: ManifestEntry | None
    items: Path | None

    def ids(self) -> list[str]:
        """Return the id of every task in file order: the items' own, else the task's index."""
        if self.items is not None:
            return list(read_ids(self.items))
        return [str(index) for index in range(self.facts.tasks)]

    def groups(self) -> list[str | None]:
        """Return the group of every task, all None when there are none."""
        if self.items is not None:
            return list(read_groups(self.items))
        return [None] * self.facts.tasks

    def identity(self) -> BenchmarkIdentity:
        entry = self.entry.model_dump(mode="json") if self.entry else {}
        keep = ("benchmark", "split", "protocol", "form", "shots", "source", "licence")
        source = {key: entry[key] for key in keep if entry.get(key) is not None} or None
        return benchmark_identity(self.name, self.path, self.facts, selection=entry.get("selection"), source=source)


def open_benches(names: Iterable[str], settings: Settings) -> list[Bench]:
    """Return the benchmarks that ``-b`` names, in that order; one that was named twice is scored once."""
    opened: dict[str, Bench] = {}
    for name in names:
        bench = open_bench(name, settings)
        known = opened.setdefault(bench.facts.sha256, bench)
        if known is not bench:
            console.note(f"{name} holds the same questions as {known.path}: they are scored once")
    return list(opened.values())


def open_bench(name: str, settings: Settings) -> Bench:
    """Return the benchmark that ``-b`` names: a .bin by path, or one of the catalogue, built where missing.

    Raises InputFileError or FormatError for a bad file, UsageError for an unknown name or an impossible
    selection.
    """
    if _is_path(name):
        path = Path(name)
    else:
        from llmc.benchmarks.build import ensure_built

        built = ensure_built(name, settings.out, source=settings.source)
        path = settings.out / f"{built.name}.bin"
    bench = _read(path)
    count = settings.like_llama if settings.like_llama is not None else settings.limit
    if count is None or count >= bench.facts.tasks:
        return bench
    return _subset(bench, count, settings)


def _is_path(name: str) -> bool:
    return name.endswith(".bin") or os.sep in name or is_file(Path(name))


def _read(path: Path) -> Bench:
    reader = mcbin.Reader(path)
    golds = bytes(task.gold for task in reader)
    assert reader.facts is not None
    entry = entry_for_bin(path)
    name = entry.name if entry else path.name.removesuffix(".bin")
    return Bench(name, path, reader.facts, golds, entry, _items(path, entry))


def _items(path: Path, entry: ManifestEntry | None) -> Path | None:
    """Return the item file of a built benchmark; one that lies beside a .bin of unknown origin may be anybody's."""
    if entry is None or "items" not in entry.files:
        return None
    items = path.with_name(entry.files["items"].name)
    remedy = f"run `llmc build {entry.name} --force`, or remove {entry.name}.json if the file is your own"
    try:
        found = sha256_cached(items)
    except OSError as error:
        raise os_error(error, "read", remedy) from error
    if found != entry.files["items"].sha256:
        raise InputFileError(f"{items} is not the file that {entry.name}.json describes: its checksum differs", remedy)
    return items


def _subset(bench: Bench, count: int, settings: Settings) -> Bench:
    if count < 1:
        raise UsageError(f"{count} questions cannot be scored", "ask for 1 or more")
    if settings.like_llama is not None:
        suffix, indices = f"llama{count}", like_llama(bench.facts.tasks, count)
        selection = {
            "kind": "like-llama",
            "tasks": count,
            "of": bench.facts.tasks,
            "generator": "mt19937(1), float32",
        }
    else:
        suffix = f"sample{count}s{settings.seed}"
        indices = seeded_sample(bench.facts.tasks, count, settings.seed)
        selection = {"kind": "sample", "tasks": count, "of": bench.facts.tasks, "seed": settings.seed}
    selection["from_sha256"] = bench.facts.sha256
    from llmc.benchmarks.build import write_subset

    entry = write_subset(bench.path, indices, f"{bench.name}.{suffix}", settings.out, selection)
    return _read(settings.out / f"{entry.name}.bin")
