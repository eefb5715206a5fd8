"""The rows of the worked examples, read again for `llmc verify`: of a split, or of llmc's fixed documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from llmc.benchmarks import names
from llmc.benchmarks.evidence import Evidence, Unfit, Witness
from llmc.benchmarks.source import open_rows
from llmc.errors import InputFileError
from llmc.files import configs_dir

Worked = Callable[[Evidence], Sequence[Evidence]]


def worked_examples(target: names.Target, source: Path | None) -> Worked | None:
    """Return what gives the examples before a row's question; None when the target has none.

    Raises InputFileError for examples that cannot be read, and what ``open_rows`` does.
    """
    shots = target.spec.protocols[target.protocol].shots
    if target.shots == 0 or shots is None:
        return None
    if shots.documents is not None:
        fixed = _documents(target, shots.documents)
        return lambda evidence: fixed
    assert shots.split is not None
    return _of_split(target, shots.split, source)


def _documents(target: names.Target, name: str) -> list[Evidence]:
    path = configs_dir("fewshots") / f"{name}.json"
    witness = Witness(target.spec, "example", target.protocol)
    try:
        given = json.loads(path.read_bytes())["documents"][: target.shots]
        found = [witness.read_document(document, at) for at, document in enumerate(given)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(f"{path}: the worked examples cannot be read: {error}", "install llmc again") from error
    if len(found) < target.shots:
        raise InputFileError(
            f"{path} has {len(found)} worked examples, {target.full_name} needs {target.shots}",
            "build it again with fewer --shots",
        )
    return found


def _of_split(target: names.Target, split: str, source: Path | None) -> Worked:
    """Give the first rows of a split, of a question's own part of the source, never the question itself."""
    own_parts, same = target.spec.source.configs is not None, split == target.split
    witness = Witness(target.spec, split, target.protocol)
    first: dict[str | None, list[Evidence]] = {}
    row = 0
    for file, batch in open_rows(target.spec, split, source, target.config).batches(witness.columns):
        for offset, values in enumerate(zip(*batch.columns, strict=True)):
            found = first.setdefault(witness.group(values) if own_parts else None, [])
            if len(found) < target.shots + same:
                try:
                    found.append(witness.read(values, row))
                except Unfit as problem:
                    raise InputFileError(
                        f"{file} {batch.place(offset)}, a worked example, {problem}",
                        "verify against the rows that the file was built from",
                    ) from None
            row += 1
        if not own_parts and len(first[None]) >= target.shots + same:
            break

    def before(evidence: Evidence) -> Sequence[Evidence]:
        found = first.get(evidence.group if own_parts else None, [])
        if same:
            found = [one for one in found if one.row != evidence.row]
        if len(found) < target.shots:
            raise Unfit(f"has {len(found)} worked examples, {target.shots} are asked for")
        return found[: target.shots]

    return before
