from __future__ import annotations

import json
from pathlib import Path

import pytest

import made_up_rows as made_up
from llmc.benchmarks import manifest
from llmc.benchmarks.build import ensure_built
from llmc.benchmarks.manifest import ManifestEntry
from llmc.errors import InputFileError, UsageError

pytestmark = pytest.mark.usefixtures("own_cache", "small_specs")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for name in ("boolq", "arc-easy"):
        ensure_built(name, tmp_path / "out", source=made_up.write(tmp_path / f"{name}.jsonl", made_up.ROWS[name]()))
    return tmp_path / "out"


def names(out: Path) -> list[str]:
    return list(json.loads((out / "manifest.json").read_text())["benchmarks"])


def test_the_manifest_follows_the_sidecars(out: Path) -> None:
    assert names(out) == ["arc-easy-validation", "boolq-validation"]
    (out / "boolq-validation.json").unlink()
    (out / "notes.json").write_text('{"schema": "something else"}')
    (out / "broken.json").write_text("{")
    (out / "list.json").write_text("[]")
    copied = (out / "arc-easy-validation.json").read_text()
    (out / "copy-of-it.json").write_text(copied)
    manifest.regenerate(out)
    assert names(out) == ["arc-easy-validation"]


def test_entries_survive_the_file(out: Path) -> None:
    entry = manifest.lookup(out, "boolq-validation")
    again = ManifestEntry.model_validate(json.loads((out / "boolq-validation.json").read_text()))
    assert again == entry
    assert manifest.mismatch(entry, out) == ""


def test_lookup_names_the_nearest_built_one(out: Path) -> None:
    with pytest.raises(UsageError, match="did you mean boolq-validation") as caught:
        manifest.lookup(out, "boolq-validaton")
    assert "llmc build" in caught.value.remedy


@pytest.mark.parametrize("suffix", [".bin", ".items.parquet"])
def test_changed_and_missing_files_are_seen(out: Path, suffix: str) -> None:
    entry = manifest.lookup(out, "boolq-validation")
    path = out / f"boolq-validation{suffix}"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "has changed" in manifest.mismatch(entry, out)
    path.write_bytes(data + b"x")
    assert "has changed" in manifest.mismatch(entry, out)
    path.unlink()
    assert "is missing" in manifest.mismatch(entry, out)


def test_entry_of_a_file(out: Path, tmp_path: Path) -> None:
    path = out / "boolq-validation.bin"
    assert manifest.entry_for_bin(path) == manifest.lookup(out, "boolq-validation")
    foreign = tmp_path / "foreign.bin"
    foreign.write_bytes(path.read_bytes())
    assert manifest.entry_for_bin(foreign) is None
    (tmp_path / "foreign.json").write_text('{"mine": 1}')
    assert manifest.entry_for_bin(foreign) is None
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(InputFileError, match="checksum differs") as caught:
        manifest.entry_for_bin(path)
    assert "--force" in caught.value.remedy
