"""Is the record of a built file true? Checksums, sizes, counts and settings, held against files, spec and manifest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmc import __version__, mcbin
from llmc.benchmarks import manifest, names
from llmc.benchmarks.manifest import ManifestEntry
from llmc.files import sha256_file

SUBSET = re.compile(r"\.(sample\d+s\d+|llama\d+)$")


def in_files(name: str, entry: ManifestEntry, out: Path, facts: mcbin.BinFacts | None) -> Iterator[str]:
    """Yield what the record of ``name`` says otherwise than the files; ``facts`` is None when the .bin is damaged."""
    if entry.name != name:
        yield f"{name}.json records the name {entry.name}"
    for kind, suffix in (("bin", ".bin"), ("items", ".items.parquet")):
        if kind not in entry.files:
            yield f"{name}.json records no {kind} file"
        elif (recorded := entry.files[kind].name) != name + suffix:
            yield f"{name}.json records the file {recorded}, expected {name}{suffix}"
    for kind, record in entry.files.items():
        path = out / record.name
        if not path.is_file():
            yield f"{path} is missing"
            continue
        digest = facts.sha256 if kind == "bin" and facts is not None else sha256_file(path)
        if digest != record.sha256:
            yield f"{path} is not the file that was built: SHA-256 {digest}, expected {record.sha256}"
        if (size := path.stat().st_size) != record.bytes:
            yield f"{name}.json records {path.name} as {record.bytes} bytes, the file has {size}"
    if facts is None:
        return
    majority = (facts.majority_position, facts.majority_share)
    for what, found, said in (
        ("tasks", facts.tasks, entry.tasks),
        ("tasks by number of options", facts.widths, entry.options),
        ("chance", round(facts.chance, 12), round(entry.chance, 12)),
        ("commonest answer position", majority, (entry.majority.position, entry.majority.share)),
    ):
        if found != said:
            yield f"{name}.json records {what} as {said}, the file holds {found}"


def in_name(name: str, entry: ManifestEntry, target: names.Target) -> Iterator[str]:
    """Yield how benchmark, part, split, protocol and shots of a record are not those that its name says."""
    subset = SUBSET.search(name)
    drawn = entry.selection is not None
    if target.full_name != (name[: subset.start()] if subset and drawn else name):
        yield f"{name}.json records what is called {target.full_name}: benchmark, split, protocol or shots are wrong"
    elif subset and drawn and entry.selection is not None:
        chosen = entry.selection
        called = {
            "sample": f".sample{chosen.get('tasks')}s{chosen.get('seed')}",
            "like-llama": f".llama{chosen.get('tasks')}",
        }
        if called.get(str(chosen.get("kind")), subset[0]) != subset[0]:
            yield f"{name}.json records the selection {chosen}, which is not the name's {subset[0]}"


def in_settings(name: str, entry: ManifestEntry, target: names.Target) -> Iterator[str]:
    """Yield what a record says otherwise than the spec that it was built by.

    Licence, citation and homepage may be worded anew from one version of llmc to the next.
    """
    spec, form = target.spec, target.spec.protocols[target.protocol].form
    expected: dict[str, Any] = {
        "form": form,
        "prompt_mode": form,
        "option_seed": spec.choices.shuffle,
        "shots": target.shots,
    }
    if entry.llmc == __version__ or entry.spec is not None:
        expected |= {"licence": spec.licence, "citation": spec.citation, "homepage": spec.homepage}
    for key, right in expected.items():
        if (found := getattr(entry, key)) != right:
            yield f"{name}.json records {key} as {found!r}, expected {right!r}"


def in_manifest(name: str, out: Path) -> Iterator[str]:
    """Yield what ``manifest.json`` says otherwise than a sidecar; a folder without one is as complete."""
    path = out / manifest.MANIFEST
    listed = manifest.listed(out)
    if listed is None:
        if path.exists():
            yield f"{path} is damaged, or not llmc's"
        return
    if name not in listed:
        yield f"{path} does not list {name}"
        return
    sidecar = json.loads(manifest.sidecar_path(out, name).read_bytes())
    if different := sorted(_differences(listed[name], sidecar, "")):
        shown = ", ".join(different[:8])
        yield f"{path} and {name}.json disagree on {shown}"


def _differences(one: Any, other: Any, at: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {*one, *other}:
            yield from _differences(one.get(key), other.get(key), f"{at}.{key}" if at else key)
    elif one != other or type(one) is not type(other):
        yield at
