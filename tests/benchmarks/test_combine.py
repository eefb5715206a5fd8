"""Tasks of several built files as one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from llmc import mcbin
from llmc.benchmarks import manifest
from llmc.benchmarks.build import ensure_built
from llmc.benchmarks.combine import write_combined
from llmc.benchmarks.item import read_items, to_task
from llmc.benchmarks.manifest import ManifestEntry
from llmc.benchmarks.verify import verify_file
from llmc.errors import InputFileError, UsageError
from made_up_rows import csqa, write

pytestmark = pytest.mark.usefixtures("own_cache", "small_specs")


@pytest.fixture
def parents(tmp_path: Path) -> tuple[Path, list[ManifestEntry]]:
    source, out = tmp_path / "rows", tmp_path / "out"
    rows = csqa(11)
    rows[3]["question"] += " "
    write(source / "validation.jsonl", rows[:7])
    write(source / "train.jsonl", rows[7:])
    return out, [ensure_built(f"commonsense-qa-{split}", out, source=source) for split in ("validation", "train")]


def test_tasks_in_the_order_asked(parents: tuple[Path, list[ManifestEntry]]) -> None:
    out, built = parents
    order = [10, 3, 0, 7, 6]
    entry = write_combined(built, order, "some", out, {"kind": "suite", "seed": 1234})
    everything = [item for each in built for item in read_items(out / each.files["items"].name)]
    items = list(read_items(out / entry.files["items"].name))
    assert items == [replace(everything[place], index=i) for i, place in enumerate(order)]
    assert list(mcbin.Reader(entry.bin_path(out))) == [to_task(item) for item in items]
    assert entry.tasks == 5 and entry.benchmark is None and entry.protocol == "llama-mc"
    assert entry.selection == {
        "kind": "suite",
        "seed": 1234,
        "tasks": 5,
        "of": 11,
        "from": [{"name": each.name, "sha256": each.files["bin"].sha256} for each in built],
    }
    assert [warned.ids for warned in entry.warnings if warned.kind == "whitespace"] == [("row0003",)]
    assert entry.name in manifest.entries(out) and verify_file(entry.bin_path(out)).right


def test_an_equal_file_stays_and_another_takes_its_place(parents: tuple[Path, list[ManifestEntry]]) -> None:
    out, built = parents
    first = write_combined(built, [1, 8], "some", out, {"kind": "suite"})
    stamp = first.bin_path(out).stat().st_mtime_ns
    assert write_combined(built, [1, 8], "some", out, {"kind": "suite"}) == first
    assert first.bin_path(out).stat().st_mtime_ns == stamp
    assert write_combined(built, [8, 1], "some", out, {"kind": "suite"}).files != first.files


@pytest.mark.parametrize("order", [[], [1, 1], [-1], [11], [3, 400]])
def test_tasks_that_are_not_there(parents: tuple[Path, list[ManifestEntry]], order: list[int]) -> None:
    out, built = parents
    with pytest.raises(UsageError):
        write_combined(built, order, "some", out, {})
    assert not (out / "some.json").exists() and not (out / "some.bin").exists()


def test_a_parent_that_was_changed(parents: tuple[Path, list[ManifestEntry]]) -> None:
    out, built = parents
    path = built[1].bin_path(out)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputFileError, match="changed"):
        write_combined(built, [9], "some", out, {})
