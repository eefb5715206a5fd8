"""Rows to files: ``<name>.bin``, ``<name>.items.parquet`` and the sidecar, all of them or none.

Files are written into a hidden folder beside their destination and moved when all are whole; the old sidecar
goes first and the new one comes last, so what has a sidecar is always complete and consistent.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmc import __version__, console, mcbin
from llmc.benchmarks import fewshot, fixed_shots, manifest, names, questions
from llmc.benchmarks import spec as specs
from llmc.benchmarks.checks import Counts, Oddities, Refusals
from llmc.benchmarks.item import ItemWriter, items_path, read_ids, to_task
from llmc.benchmarks.manifest import ManifestEntry, SourceFile, SourceRecord, Warned
from llmc.benchmarks.own import rebuild_command
from llmc.benchmarks.publish import explained, figures, publish, recipe_of, records, staged
from llmc.benchmarks.render import VERSION, Renderer
from llmc.benchmarks.rowfiles import uncollected
from llmc.benchmarks.rows import RowProblem, RowReader
from llmc.benchmarks.select import seeded_sample
from llmc.benchmarks.source import Rows, open_rows
from llmc.benchmarks.subset import write_subset
from llmc.errors import FetchError, InputFileError, UsageError
from llmc.files import locked, readable

__all__ = ["build", "ensure_built", "write_subset"]


def ensure_built(name: str, out: Path, *, source: Path | None = None, force: bool = False) -> ManifestEntry:
    """Return the entry of a benchmark in ``out``, built first where it is missing, damaged or outdated.

    ``name`` is a benchmark, benchmark-split, with ``@protocol``, ``-<K>shot`` or ``.sample<N>s<seed>`` (see
    names.py), or what the user built from rows of their own. ``source`` names a file or folder of rows to build
    from instead of the Hub. Raises UsageError, FetchError and InputFileError; on any of them, as on Ctrl-C,
    ``out`` is left as it was.
    """
    try:
        target = names.parse(name)
    except UsageError:
        if (own := _built_by_hand(name, out)) is None:
            raise
        return own
    return build(target, out, source=source, force=force)


def _built_by_hand(name: str, out: Path) -> ManifestEntry | None:
    """Return the entry of a name that is not of the catalogue but is there, whole."""
    entry = manifest.intact_sidecar(out, name) if "/" not in name else None
    if entry is not None and (difference := manifest.mismatch(entry, out)):
        raise InputFileError(difference, f"run `{rebuild_command(entry, out)}`")
    return entry


def build(target: names.Target, out: Path, *, source: Path | None = None, force: bool = False) -> ManifestEntry:
    """Do what ``ensure_built`` says for a parsed name. A sample of all tasks or more is the whole split."""
    with explained(out):
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
    local = source is not None or target.spec.source.hf is None
    with locked(manifest.lock_path(out, name)):
        known = manifest.read_sidecar(manifest.sidecar_path(out, name))
        if known is not None and known.benchmark != target.spec.name:
            raise UsageError(
                f"{name} is built in {out} already, of {known.benchmark or 'a file that was imported'}",
                "choose another name or another folder with --out, or remove the files of that name",
            )
        usable = known is not None and not force and known.recipe == recipe and not manifest.mismatch(known, out)
        if known is not None and usable and not local:
            return known
        made = _Made(target, open_rows(target.spec, target.split, source, target.config), fewshot.load(target, source))
        if known is not None and usable and _same_files((*known.source.files, *known.shots_files), made.files):
            return _moved(known, made, out)
        with staged(out, name) as folder:
            counts, asked, warnings = _write_split(made, folder / f"{name}.bin")
            warnings += questions.shared(asked, out, target)
            entry = _entry(made, folder, counts, warnings, recipe)
            publish(entry, folder, out)
        questions.keep(asked, entry.files["bin"].sha256)
    manifest.regenerate(out)
    return entry


@dataclass(frozen=True)
class _Made:
    """What a build works on: the target, its rows and its worked examples."""

    target: names.Target
    rows: Rows
    shots: fewshot.Loaded | None

    @property
    def files(self) -> tuple[SourceFile, ...]:
        return (*self.rows.record.files, *(self.shots.files if self.shots else ()))


def _moved(known: ManifestEntry, made: _Made, out: Path) -> ManifestEntry:
    """Return the entry of files that need not be built again; written anew when their rows lie elsewhere now."""
    record = made.rows.record
    if record.via != "path" or known.source.via != "path" or known.source.path == record.path:
        return known
    entry = known.model_copy(update={"source": known.source.model_copy(update={"path": record.path})})
    manifest.write_sidecar(out, entry)
    manifest.regenerate(out)
    return entry


def _same_files(one: tuple[SourceFile, ...], other: tuple[SourceFile, ...]) -> bool:
    return [file.sha256 for file in one] == [file.sha256 for file in other]


# What of a spec does not change the files made from given rows.
_BESIDE_THE_POINT = {
    "title", "description", "splits", "unlabelled", "default_split", "default_protocol", "protocols", "licence",
    "citation", "homepage", "expect", "expect_configs", "example",
}  # fmt: skip


def _recipe(target: names.Target) -> str:
    """Return the hash of all that decides a file's bytes, given its rows."""
    spec = target.spec.model_dump(mode="json", exclude=_BESIDE_THE_POINT)
    spec["source"].pop("mirrors")
    protocol = target.spec.protocols[target.protocol]
    examples = None
    if target.shots and protocol.shots is not None and protocol.shots.documents is not None:
        examples = fixed_shots.documents(protocol.shots.documents).sha256
    chosen = protocol.model_dump(mode="json", exclude={"note"})
    return recipe_of([VERSION, target.split, target.config, target.protocol, target.shots, examples, spec, chosen])


def _write_split(made: _Made, path: Path) -> tuple[Counts, questions.Asked[int], tuple[Warned, ...]]:
    """Write the .bin and the items of a split; raises InputFileError when a row cannot be scored."""
    target = made.target
    spec, protocol = target.spec, target.protocol
    reader = RowReader(spec, target.split, protocol)
    renderer = Renderer(spec, protocol, made.shots.examples.before if made.shots else None)
    odd = Oddities(spec.protocols[protocol].form, renderer.shown, own_ids=spec.id_field is not None)
    counts = Counts()
    refused, left_out = Refusals(), Refusals()
    reasons = _reasons(target)
    seen = index = 0
    with (
        uncollected(),
        console.progress(f"Building {target.full_name}", target.expect.tasks if target.expect else None) as advance,
        mcbin.Writer(path) as binary,
        ItemWriter(items_path(path)) as items,
    ):
        for file, batch in made.rows.batches(reader.columns):
            for offset, values in enumerate(zip(*batch.columns, strict=True)):
                try:
                    row = reader.row(values, seen)
                    item = renderer.item(row, index)
                    binary.add(to_task(item))
                except ValueError as problem:
                    kind = problem.kind if isinstance(problem, RowProblem) else ""
                    place = f"{file.name} {batch.place(offset)}"
                    heap = left_out if kind in reasons else refused
                    heap.add(place, readable(reader.row_id(values, seen)), str(problem), kind)
                else:
                    index += 1
                    items.add(item)
                    counts.add(item)
                    odd.add(row, item.option_order)
                seen += 1
            advance(seen, "")
        _require_whole(made, seen, refused, counts)
    warnings = (*odd.warnings(lambda: read_ids(items_path(path))), *_left_out(reasons, left_out))
    return counts, odd.asked, warnings + _compare(target, made.rows.record, counts, left_out.count)


def _require_whole(made: _Made, seen: int, refused: Refusals, counts: Counts) -> None:
    hub = made.target.spec.source.hf is not None
    where = f"{made.target.spec.name} {made.target.split}"
    if seen == 0:
        files = ", ".join(str(path) for path in made.rows.paths)
        of = f" of {made.target.config}" if made.target.config else ""
        raise InputFileError(f"{where}: there are no rows{of} in {files}", "check the source and the split")
    if refused.count:
        raise InputFileError(
            f"{where}: {refused.sentence(seen)}",
            "correct or remove these rows" + (", and name the result with --source" if hub else ""),
        )
    if not counts.golds:
        raise InputFileError(f"{where}: all {seen} rows are left out", "check leave_out in the benchmark's YAML file")


def _reasons(target: names.Target) -> dict[str, str]:
    """Return the kinds of rows that are left out, and why."""
    spec = target.spec
    reasons: dict[str, str] = {str(kind): reason for kind, reason in spec.leave_out.items()}
    if spec.equal_options is not None:
        reasons["equal-options"] = spec.equal_options
    return reasons


def _left_out(reasons: dict[str, str], left_out: Refusals) -> tuple[Warned, ...]:
    found = []
    for kind, count in left_out.kinds.items():
        detail = f"{count} rows are left out: {reasons[kind]}"
        found.append(Warned(kind=f"left-out-{kind}", count=count, ids=left_out.of_kind(kind), detail=detail))
    return tuple(found)


def _compare(target: names.Target, record: SourceRecord, counts: Counts, left_out: int) -> tuple[Warned, ...]:
    """Hold the counts against the published ones: an error for published rows, a warning for one's own."""
    difference = counts.unexpected(target.expect, left_out)
    if not difference:
        return ()
    if record.via == "path":
        console.note(f"{target.full_name}: not the published split: {difference}")
        return (Warned(kind="not-as-published", count=counts.tasks, detail=difference),)
    raise FetchError(
        f"{target.full_name} did not come out as published: {difference}",
        "the source has changed or arrived damaged: check its revision, or name rows with --source",
    )


def _entry(made: _Made, folder: Path, counts: Counts, warnings: tuple[Warned, ...], recipe: str) -> ManifestEntry:
    target = made.target
    spec, form = target.spec, target.spec.protocols[target.protocol].form
    return ManifestEntry(
        name=target.full_name,
        benchmark=spec.name,
        config=target.config,
        split=target.split,
        protocol=target.protocol,
        form=form,
        prompt_mode=form,
        shots=target.shots,
        shots_source=made.shots.source if made.shots else None,
        shots_files=made.shots.files if made.shots else (),
        option_seed=spec.choices.shuffle,
        files=records(folder, target.full_name),
        **figures(counts),
        source=made.rows.record,
        licence=spec.licence,
        citation=spec.citation,
        homepage=spec.homepage,
        warnings=warnings,
        recipe=recipe,
        spec=None if spec.name in specs.catalogue() else spec.model_dump(mode="json"),
        llmc=__version__,
    )
