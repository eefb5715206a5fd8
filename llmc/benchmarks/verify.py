"""Is a built file what its source says? Every task is derived again from its row and compared.

A label-scrambling fault passes every check of structure and merely scores at chance, so nothing less than all
tasks will do. The road is another one than the build's: rows are read by evidence.py and prompts put together
by scaffold.py, derive.py and worked.py, none of which knows the renderer. What is found wrong is reported by task, with
what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from llmc import console, mcbin
from llmc.benchmarks import manifest, names, own, record_check
from llmc.benchmarks import spec as specs
from llmc.benchmarks.derive import Derivation, Wanted
from llmc.benchmarks.evidence import Unfit, Witness
from llmc.benchmarks.item import items_path, read_values
from llmc.benchmarks.manifest import ManifestEntry
from llmc.benchmarks.paths import restored
from llmc.benchmarks.rowfiles import uncollected
from llmc.benchmarks.select import like_llama, seeded_sample
from llmc.benchmarks.source import Rows, open_rows
from llmc.benchmarks.worked import worked_examples
from llmc.errors import InputFileError, UsageError
from llmc.files import sha256_file

SHOWN = 20  # problems in words; the count goes on
T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """Something wrong with a file. ``task`` is None when it is not about one task."""

    what: str
    task: int | None = None
    id: str = ""

    @property
    def sentence(self) -> str:
        where = "" if self.task is None else f"task {self.task} (id {self.id}): "
        return where + self.what


@dataclass
class Verification:
    """What became of one file: how many tasks were compared with their rows, and what is wrong.

    ``against`` names the source, or is empty when only checksum and structure were looked at. ``problems`` holds
    the first ones, ``count`` counts all; ``fix`` is the command that builds it again.
    """

    name: str
    path: Path
    against: str
    tasks: int = 0
    problems: list[Problem] = field(default_factory=list)
    count: int = 0
    notes: list[str] = field(default_factory=list)
    fix: str = ""

    @property
    def right(self) -> bool:
        return self.count == 0

    def add(self, problem: Problem) -> None:
        self.count += 1
        if len(self.problems) < SHOWN:
            self.problems.append(problem)

    def add_all(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self.add(Problem(problem))

    def data(self) -> dict[str, Any]:
        """Return the result for programs."""
        return {
            "name": self.name,
            "file": str(self.path),
            "verified": self.right,
            "against": self.against,
            "tasks": self.tasks,
            "problem_count": self.count,
            "problems": [{"task": p.task, "id": p.id, "problem": p.what} for p in self.problems],
            "notes": self.notes,
            "fix": "" if self.right else self.fix,
        }


def verify_built(name: str, out: Path, source: Path | None = None) -> Verification:
    """Hold a built benchmark against its source, task by task, and its files against the manifest.

    ``name`` as for ``llmc build``; ``source`` names the rows, else the manifest's own record of where they came
    from is followed: the same commit, or the same path. Raises UsageError when it is not built or names no
    known benchmark, FetchError and InputFileError when the source cannot be had.
    """
    called, entry = names.entry(name, out)
    target = _target(entry)
    place = source or _recorded_path(target, entry)
    if misnamed := list(record_check.in_name(called, entry, target)):
        # What it was built from is not known, so there is nothing to hold its tasks against.
        result = Verification(called, out / f"{called}.bin", "", fix=own.rebuild_command(entry, out))
        result.add_all(misnamed)
        result.add_all(record_check.in_manifest(called, out))
        return result
    rows = open_rows(target.spec, target.split, place, target.config)
    result = Verification(called, entry.bin_path(out), _described(rows), fix=own.rebuild_command(entry, out))
    if [f.sha256 for f in rows.record.files] != [f.sha256 for f in entry.source.files]:
        result.notes.append("the source's files are not those that it was built from; the content is what counts")
    derivation = Derivation(target.spec, target.protocol, worked_examples(target, place))
    reader = mcbin.Reader(result.path)
    with uncollected(), console.progress(f"Verifying {called}", entry.tasks) as advance:
        _compare(derivation, _selected(entry, _derived(target, rows, derivation)), reader, result, advance)
    result.add_all(record_check.in_files(called, entry, out, reader.facts))
    result.add_all(record_check.in_settings(called, entry, target))
    result.add_all(record_check.in_manifest(called, out))
    return result


def verify_file(path: Path) -> Verification:
    """Hold a ``.bin`` against what a manifest beside it says, and against the format, to the last byte.

    The manifest is the sidecar, or any ``manifest.json`` in the folder that gives the file a SHA-256. Raises
    InputFileError when the file cannot be read or nothing describes it.
    """
    if not path.is_file():
        raise InputFileError(f"no such file: {path}", "check the path, or name a built benchmark")
    name = path.name.removesuffix(".bin")
    entry, published = _described_by(path, name)
    result = Verification(name, path, "", fix=own.rebuild_command(entry, path.parent) if entry else "")
    reader = mcbin.Reader(path)
    with console.progress(f"Verifying {path.name}", entry.tasks if entry else None) as advance:
        for number, _ in enumerate(_guarded(reader, result)):
            if number % 4096 == 0:
                advance(number)
            result.tasks += 1
    if entry is not None:
        result.add_all(record_check.in_files(name, entry, path.parent, reader.facts))
        result.add_all(record_check.in_manifest(name, path.parent))
    elif sha256_file(path) != published:
        result.add(Problem(f"its SHA-256 is not the published {published}"))
    return result


def _described_by(path: Path, name: str) -> tuple[ManifestEntry | None, str | None]:
    """Return the sidecar of a ``.bin``, or the SHA-256 that another publisher's manifest gives for it."""
    from llmc.benchmarks.foreign import published_sha256

    entry = manifest.read_sidecar(manifest.sidecar_path(path.parent, name))
    if entry is not None:
        return entry, None
    is_listed = name in (manifest.listed(path.parent) or {})
    published = None if is_listed else published_sha256(path)
    if published is not None:
        return None, published
    manifest.intact_sidecar(path.parent, name)  # raises for a damaged one
    if is_listed:
        raise InputFileError(f"{name}.json, the record of {path}, is missing", f"run `llmc build {name} --force`")
    raise InputFileError(
        f"nothing beside {path} says what it should be",
        "put the manifest.json it came with beside it, or verify a benchmark by its name",
    )


def _target(entry: ManifestEntry) -> names.Target:
    """Return what an entry was built as, with its source at the commit that it was built from."""
    if entry.benchmark is None or entry.split is None or entry.protocol is None:
        raise UsageError(f"{entry.name} was not built from rows", f"verify the file: {entry.files['bin'].name}")
    spec = specs.find(entry.benchmark) if entry.spec is None else _own_spec(entry)
    if entry.source.via == "hub":
        spec = names.at_revision(spec, entry.source.revision)
    if entry.split not in spec.splits or entry.protocol not in spec.protocols:
        raise UsageError(
            f"{spec.name} has no split {entry.split} and protocol {entry.protocol} any more, as {entry.name} was built",
            f"build what it has: see `llmc bench show {spec.name}`",
        )
    return names.Target(spec, entry.split, entry.protocol, None, entry.config, entry.shots or 0)


def _own_spec(entry: ManifestEntry) -> specs.Benchmark:
    from pydantic import ValidationError

    try:
        return specs.Benchmark.model_validate(entry.spec)
    except ValidationError as error:
        raise UsageError(f"{entry.name}.json holds no usable spec", f"build {entry.name} again") from error


def _recorded_path(target: names.Target, entry: ManifestEntry) -> Path | None:
    own = target.spec.source.hf is None
    return restored(entry.source.path) if entry.source.via == "path" and entry.source.path and not own else None


def _described(rows: Rows) -> str:
    record = rows.record
    if record.via == "path":
        return str(record.path)
    at = f"{record.hf}@{(record.revision or 'unknown')[:12]}"
    return f"{at} from {record.mirror.package} {record.mirror.version}" if record.mirror else at


# Task by task


def _compare(
    derivation: Derivation,
    wanted: Iterable[Wanted],
    reader: mcbin.Reader,
    result: Verification,
    advance: console.Advance,
) -> None:
    tasks = _guarded(reader, result)
    items = _guarded(read_values(items_path(result.path)), result)
    ended: set[str] = set()
    for index, right in enumerate(wanted):
        task, (_, item) = next(tasks, None), next(items, (index, None))
        if task is None or item is None:
            for what in {"the .bin": task, "the items file": item}.items():
                if what[1] is None and what[0] not in ended:
                    ended.add(what[0])
                    problem = f"{what[0]} ends before this task, the source goes on"
                    result.add(Problem(problem, index, right.evidence.id))
            if task is None and item is None:
                continue
        result.tasks += 1
        if (
            task is None
            or task.question != right.question
            or task.options != right.options
            or task.gold != right.gold
            or item != right.item
        ):
            for what_is_wrong in derivation.differences(right, task, item):
                result.add(Problem(what_is_wrong, index, right.evidence.id))
        if index % 4096 == 0:
            advance(index)
    for name, stream in (("the .bin", tasks), ("the items file", items)):
        if extra := sum(1 for _ in stream):
            result.add(Problem(f"{name} goes on after the source's last row: {extra} tasks too many"))


def _guarded(stream: Iterable[T], result: Verification) -> Iterator[T]:
    """Yield what a file holds until it ends or is found damaged, which is then a problem of that file."""
    try:
        yield from stream
    except InputFileError as error:
        result.add(Problem(error.what))


def _derived(target: names.Target, rows: Rows, derivation: Derivation) -> Iterator[Wanted]:
    """Yield the task of each row, but for those that the spec leaves out."""
    witness = Witness(target.spec, target.split, target.protocol)
    row = index = 0
    for file, batch in rows.batches(witness.columns):
        for offset, values in enumerate(zip(*batch.columns, strict=True)):
            try:
                right = derivation.wanted(index, witness.read(values, row))
            except Unfit as problem:
                if problem.kind not in witness.left_out:
                    raise InputFileError(
                        f"{file} {batch.place(offset)} {problem}",
                        "verify against the rows that the file was built from",
                    ) from None
            else:
                yield right
                index += 1
            row += 1
    if row == 0:
        files = ", ".join(str(path) for path in rows.paths)
        raise InputFileError(f"there are no rows in {files}", "check the source and the split")


def _selected(entry: ManifestEntry, wanted: Iterator[Wanted]) -> Iterator[Wanted]:
    """Yield the tasks that a file is of: all, or those that its selection draws, in its order."""
    chosen = entry.selection
    if chosen is None:
        yield from wanted
        return
    draws = {"sample": seeded_sample, "like-llama": like_llama}
    draw: Any = draws.get(str(chosen.get("kind")))
    if draw is None:
        raise UsageError(f"{entry.name} is a selection of its own ({chosen.get('kind')})", "verify the whole file")
    seed = (chosen["seed"],) if "seed" in chosen else ()
    picked = draw(chosen["of"], chosen["tasks"], *seed)
    among = set(picked)
    found = {at: one for at, one in enumerate(wanted) if at in among}
    for index, at in enumerate(at for at in picked if at in found):
        found[at].item = (index, *found[at].item[1:])
        yield found[at]
