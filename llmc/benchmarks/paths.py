"""Paths as text that any file can hold, and back; and what sort of file a path is.

A file's name need not be Unicode: Python holds a stray byte as a lone surrogate, which neither JSON nor Arrow
takes. It is written as ``\\udcff`` for the byte 0xff, and read back where no file has that very name.
"""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmc.errors import InputFileError, os_error
from llmc.files import readable

_BYTE = re.compile(r"\\udc([89a-f][0-9a-f])")
_ESCAPED = re.compile(r"\[([*?[])\]")


def stored(path: Path) -> str:
    """Return a path as text for records and specs."""
    return str(readable(str(path)))


def restored(text: str) -> Path:
    """Return the path that ``stored`` was given."""
    if "\\udc" not in text or Path(text).exists():
        return Path(text)
    return Path(_BYTE.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), text))


def as_pattern(path: Path) -> str:
    """Return what ``matching`` takes for this file alone, whatever characters are in its name."""
    return stored(path.parent / glob.escape(path.name))


def matching(pattern: Path) -> list[Path]:
    """Return the file of this very name, else those that its last part matches, else the path as it is, absent.

    A name is tried as it stands first, since ``q[1].jsonl`` is a name like any other.
    """
    if pattern.is_file():
        return [pattern]
    plain = pattern.with_name(_ESCAPED.sub(r"\1", pattern.name)) if pattern.name else pattern
    if plain != pattern and glob.escape(plain.name) == pattern.name:
        return [plain]
    return sorted(pattern.parent.glob(pattern.name)) or [pattern]


def require_file(path: Path, option: str) -> None:
    """Require a regular file; InputFileError says what else it is, with the option that named it."""
    try:
        if path.is_file():
            return
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:
        raise os_error(error, "read", f"check the path given with {option} and its permissions") from error
    if is_folder:
        raise InputFileError(f"{path} is a folder", f"name one file in it with {option}")
    if exists:
        raise InputFileError(f"{path} is not a regular file", f"save the rows in a file and name it with {option}")
    raise InputFileError(f"no such file: {path}", f"check the path given with {option}")


@contextlib.contextmanager
def for_arrow(path: Path, mode: str = "rb") -> Iterator[Any]:
    """Give what Arrow opens: the path as text, or the opened file where its name is no text."""
    name = str(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        with path.open(mode) as stream:
            yield stream
    else:
        yield name
