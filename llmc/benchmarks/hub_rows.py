"""What a dataset's own README says about its files: which of them are a config's splits.

Authors declare it in the README's header, with patterns, folders and defaults whose rules are those of the
``datasets`` library; so that library reads them. What it finds at a commit never changes and is kept in llmc's
cache, without which every build would ask the Hub anew.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc import console, hub
from llmc.errors import FetchError
from llmc.files import cache_dir, read_cache, write_cache

README = "README.md"


@dataclass(frozen=True)
class Declared:
    """The splits of one config in the README's order, each with its files' paths in the repository, in order."""

    splits: Mapping[str, tuple[str, ...]]

    def __bool__(self) -> bool:
        return bool(self.splits)


def declared_files(listing: hub.Listing, config: str | None) -> Declared:
    """Return what the README of a listed dataset declares of ``config`` (None: its default); empty if nothing.

    Raises FetchError when the repository does not let its files be read, HubUnreachable when there is no answer
    and none is remembered.
    """
    if not any(file.path == README for file in listing.files):
        return Declared({})
    entry = _remembered(listing, config)
    if (known := read_cache(entry)) is not None:
        return Declared({split: tuple(paths) for split, paths in known.items()})
    readme = hub.download(listing.repo, README, listing.revision, "dataset", listing.file(README))
    splits = _by_datasets(listing, config) if _declares(readme) else {}
    write_cache(entry, splits)
    return Declared(splits)


def _remembered(listing: hub.Listing, config: str | None) -> Path:
    key = f"{hub.endpoint()}\n{listing.repo}\n{listing.revision}\n{config}"
    return cache_dir("declared", hashlib.sha256(key.encode()).hexdigest()[:32] + ".json")


def _declares(readme: Path) -> bool:
    """Say whether a README's header has a list of configs; most have not, and need no further look."""
    lines = iter(readme.read_text(encoding="utf-8", errors="replace").splitlines())
    return next(lines, "").strip() == "---" and any(line.startswith("configs:") for line in _until_rule(lines))


def _until_rule(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line.strip() == "---":
            return
        yield line


def _by_datasets(listing: hub.Listing, config: str | None) -> dict[str, tuple[str, ...]]:
    with hub.translated(listing.repo, "dataset", listing.revision, README), console.progress(f"Reading {README}"):
        import datasets
        import yaml
        from datasets.exceptions import DatasetsError

        # Both were read from the environment when datasets was imported, which may have been earlier.
        settings: Any = datasets.config
        settings.HF_ENDPOINT = hub.endpoint()
        settings.HF_HUB_OFFLINE = hub.offline()
        logging.getLogger("datasets").setLevel(logging.ERROR)
        try:
            builder = datasets.load_dataset_builder(
                listing.repo, config, revision=listing.revision, cache_dir=str(cache_dir("datasets"))
            )
        except (DatasetsError, ValueError, FileNotFoundError, yaml.YAMLError) as error:
            return _nothing(listing, config, error)
    found: Any = builder.config.data_files or {}
    return {str(split): tuple(_path(listing, str(url)) for url in urls) for split, urls in found.items()}


def _nothing(listing: hub.Listing, config: str | None, error: Exception) -> dict[str, tuple[str, ...]]:
    """Say why the README is of no help, and let the files' names decide; a Hub that gives no answer is no reason."""
    if isinstance(error, ConnectionError):
        raise error
    what = f"its config {config}" if config else "its files"
    console.note(f"{listing.repo}: the README does not tell {what} ({str(error).splitlines()[0]:.120})")
    return {}


def _path(listing: hub.Listing, url: str) -> str:
    """Return the path in the repository of ``hf://datasets/owner/name@commit/path``."""
    start = f"hf://datasets/{listing.repo}@{listing.revision}/"
    if not url.startswith(start):
        raise FetchError(
            f"the README of {listing.repo} names a file that is not its own: {url}",
            "download the rows and name them with --source",
        )
    return url.removeprefix(start)
