"""Worked examples before a question: the first rows of a split, or fixed documents that llmc carries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc.benchmarks import names
from llmc.benchmarks.fixed_shots import documents
from llmc.benchmarks.render import BETWEEN, Renderer
from llmc.benchmarks.rows import Row, RowProblem, RowReader
from llmc.benchmarks.source import open_rows
from llmc.errors import InputFileError, UsageError


class Examples:
    """The worked examples of a target: one text per config, and others for rows that are examples themselves."""

    def __init__(self, renderer: Renderer, rows: dict[str | None, list[Row]], count: int, same_split: bool) -> None:
        self._texts = {group: [renderer.worked(row) for row in found] for group, found in rows.items()}
        self._places = {group: [row.source_row for row in found] for group, found in rows.items()}
        self._count, self._same_split = count, same_split
        self._by_config = len(rows) > 1 or None not in rows
        self._joined = {group: _join(texts[:count]) for group, texts in self._texts.items()}

    def before(self, row: Row) -> str:
        """Return the examples that stand before the question of a row, each with an empty line after it."""
        group = row.group if self._by_config else None
        if self._same_split and row.source_row in self._places.get(group, ()):
            own = self._places[group].index(row.source_row)
            texts = [text for at, text in enumerate(self._texts[group]) if at != own]
            return _join(texts[: self._count])
        try:
            return self._joined[group]
        except KeyError:
            raise RowProblem(f"belongs to {group!r}, of which there are no worked examples") from None


def _join(texts: list[str]) -> str:
    return "".join(text + BETWEEN for text in texts)


@dataclass(frozen=True)
class Loaded:
    """Examples ready to use, what they are in words, and the files that they were read from."""

    examples: Examples
    source: str
    files: tuple[Any, ...]


def load(target: names.Target, source: Path | None) -> Loaded | None:
    """Return the worked examples of a target, fetched where needed; None when it asks for none.

    ``source`` is where the user's rows are, as for ``open_rows``. Raises what that does, and InputFileError when
    there are too few rows or one of them cannot be used.
    """
    if target.shots == 0:
        return None
    shots = target.spec.protocols[target.protocol].shots
    assert shots is not None  # names.parse refuses the others
    renderer = Renderer(target.spec, target.protocol)
    if shots.documents is not None:
        found = documents(shots.documents)
        reader = RowReader(target.spec, "example", target.protocol)
        rows = [reader.document(found.documents[i], i) for i in range(target.shots)]
        words = f"{shots.documents}, first {target.shots} ({found.licence}; sha256 {found.sha256})"
        return Loaded(Examples(renderer, {None: rows}, target.shots, same_split=False), words, ())
    assert shots.split is not None
    return _from_split(target, shots.split, source, renderer)


def _from_split(target: names.Target, split: str, source: Path | None, renderer: Renderer) -> Loaded:
    same = split == target.split
    if source is not None and source.is_file() and not same:
        raise UsageError(
            f"the worked examples of {target.name} are rows of the {split} split, and {source} is one file",
            f"name the folder that holds both the {split} and the {target.split} split with --source",
        )
    rows = open_rows(target.spec, split, source, target.config)
    needed = target.shots + same
    found = _first_rows(target, split, rows, needed)
    short = [str(group) for group, own in found.items() if len(own) < needed]
    if short or not found:
        raise InputFileError(
            f"{target.name} needs {needed} rows of the {split} split, of {', '.join(short) or 'which there are none'} "
            f"there are fewer",
            "ask for fewer with --shots",
        )
    of = " of the question's own config" if target.spec.source.configs else ""
    words = f"{split} split{of}, first {target.shots}" + (", the question itself left out" if same else "")
    return Loaded(Examples(renderer, found, target.shots, same), words, rows.record.files)


def _first_rows(target: names.Target, split: str, rows: Any, needed: int) -> dict[str | None, list[Row]]:
    """Return the first rows of a split, of each config where there are several."""
    spec = target.spec
    reader = RowReader(spec, split, target.protocol)
    several = spec.source.configs is not None
    found: dict[str | None, list[Row]] = {}
    seen = 0
    for file, batch in rows.batches(reader.columns):
        for offset, values in enumerate(zip(*batch.columns, strict=True)):
            group = reader.group(values) if several else None
            own = found.setdefault(group, [])
            if len(own) < needed:
                try:
                    own.append(reader.row(values, seen))
                except RowProblem as problem:
                    raise InputFileError(
                        f"{file.name} {batch.place(offset)} cannot be a worked example: it {problem}",
                        "correct the row, and name the result with --source",
                    ) from problem
            seen += 1
        if not several and len(found[None]) >= needed:
            break
    return found
