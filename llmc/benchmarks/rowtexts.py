"""JSON Lines, JSON arrays and CSV: rows as objects, each with the place where it stands."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from llmc.errors import InputFileError

Placed = tuple[str, dict[str, Any]]


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacked where it is packed with gzip."""
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]


def json_rows(path: Path, kind: str, longest: int) -> Iterator[Placed]:
    """Yield the rows of a JSON file; one line of at most ``longest`` bytes each, unless ``kind`` is json-array."""
    with opened(path) as stream:
        if kind == "json-array":
            for number, row in enumerate(_parse(path, stream.read(), "the file")):
                yield f"entry {number}", _object(row, path, f"entry {number}")
            return
        number = 0
        while line := stream.readline(longest + 1):
            number += 1
            if len(line) > longest:
                raise InputFileError(f"{path}, line {number}: longer than {longest} bytes", "one row per line, please")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            yield f"line {number}", _object(_parse(path, line, f"line {number}"), path, f"line {number}")


def _parse(path: Path, data: bytes, place: str) -> Any:
    try:
        return json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InputFileError(
            f"{path}, {place}: not valid JSON ({error})", "correct it or fetch the file again"
        ) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} twice in one object")
    return found


def _object(value: Any, path: Path, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputFileError(f"{path}, {place}: a row is an object, this is {type(value).__name__}", "correct it")
    return value


class CsvRows:
    """The rows of a CSV or TSV file; ``header`` are its columns. Blank lines are no rows, also before the header."""

    def __init__(self, path: Path, longest: int) -> None:
        self.path = path
        csv.field_size_limit(longest)
        self._lines = self._numbered()
        place, self.header = next(self._lines, ("line 1", []))
        named = [name for name in self.header if name]  # several columns without a name are of no use to anybody
        if twice := next((name for name in named if named.count(name) > 1), None):
            raise InputFileError(f"{path}, {place}: column {twice!r} twice", "give each column a name of its own")

    def __iter__(self) -> Iterator[Placed]:
        header, width = self.header, len(self.header)
        for place, fields in self._lines:
            if len(fields) > width:
                raise InputFileError(f"{self.path}, {place}: more fields than the header has", "quote the commas")
            row: dict[str, Any] = dict.fromkeys(header) if len(fields) < width else {}
            row.update(zip(header, fields, strict=False))
            yield place, row

    def _numbered(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the fields of each line that has any, with the line that they begin on."""
        suffixes = {suffix.lower() for suffix in self.path.suffixes}
        with io.TextIOWrapper(opened(self.path), encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter="\t" if ".tsv" in suffixes else ",", strict=True)
            first = 1
            try:
                for fields in reader:
                    if fields:
                        yield f"line {first}", fields
                    first = reader.line_num + 1
            except csv.Error as error:
                raise InputFileError(f"{self.path}, line {reader.line_num}: {error}", "correct the file") from error
            except UnicodeDecodeError as error:
                raise self._not_utf8(error) from error

    def _not_utf8(self, error: UnicodeDecodeError) -> InputFileError:
        """Say which line it is: text is decoded in pieces of many lines, ahead of what is read."""
        where = ""
        with opened(self.path) as stream:
            for number, line in enumerate(stream, 1):
                try:
                    line.decode()
                except UnicodeDecodeError as found:
                    where, error = f", line {number}", found
                    break
        byte = f"byte 0x{error.object[error.start]:02x}"
        return InputFileError(f"{self.path}{where}: not UTF-8 text ({byte}: {error.reason})", "save the file as UTF-8")
