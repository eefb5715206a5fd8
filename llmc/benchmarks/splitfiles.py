"""Which of several files hold a split: by what they are called, on the Hub as in a folder of one's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from llmc.benchmarks.rowfiles import DATA_SUFFIXES

# What a split is also called in files passed around outside the Hub.
ALIASES = {"validation": ("dev", "val", "valid"), "train": ("training",), "test": ()}
_SHARD = re.compile(r"(-?\d{5}(-of-\d{5})?)|(?<=/)\d{4}(?=\.)")
_SPACING = re.compile(r"[-_./\s]+")


class Undecided(ValueError):
    """No file, or several different ones, may be the split; completes "... has ..."."""


def is_data(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in DATA_SUFFIXES and PurePosixPath(name).stem not in (
        "dataset_infos",
        "dataset_info",
        "state",
        "package",
    )


def of_split(names: Sequence[str], config: str | None, split: str, splits: Sequence[str]) -> list[str]:
    """Return the files of a split in order, its shards all of them; raises Undecided.

    A file belongs to the split whose name, or what else that is called, is a word of its path
    (``data/validation-00000-of-00001.parquet``, ``piqa_validation.parquet``, ``high/validation/0000.parquet``); one
    that is called nothing else goes before the others. Where some files name the config, only these count. Of a
    source with a single split, a config's only file needs no further name.
    """
    data = sorted(name for name in names if is_data(name))
    words = {split, *ALIASES.get(split, ())} - (set(splits) - {split})
    of_config = [name for name in data if config and plain(config) in plain(name)]
    among = of_config or data
    found = [name for name in among if _bare(name) in words] or [
        name for name in among if set(_SPACING.split(name.lower())) & words
    ]
    if not found and len(of_config) == 1 and list(splits) == [split]:
        return of_config
    if len({_SHARD.sub("", name) for name in found}) > 1:
        raise Undecided(f"several files that may be the {split} split: {', '.join(found[:8])}")
    if not found:
        raise Undecided(f"no file that is evidently the {split} split ({', '.join(data[:8]) or 'no data files'})")
    return found


def _bare(name: str) -> str:
    """Return a file's name without its folder, shard and suffixes."""
    return _SHARD.sub("", PurePosixPath(name).name).split(".")[0].lower()


def plain(text: str) -> str:
    """Return a name as it is compared: in small letters, without hyphens and underscores."""
    return re.sub(r"[-_]", "", text.lower())
