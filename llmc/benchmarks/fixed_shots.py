"""The worked examples that llmc carries itself, in ``configs/fewshots/``.

One JSON file each, with its source, its licence and the documents in order, in the columns of the data set they belong
to.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from llmc.errors import InputFileError
from llmc.files import configs_dir


@dataclass(frozen=True)
class Documents:
    """A file of fixed documents."""

    source: str
    licence: str
    documents: tuple[dict[str, Any], ...]
    sha256: str


@cache
def documents(name: str) -> Documents:
    """Return the documents of a name such as ``olmes/piqa``; InputFileError when the file is not there or not one."""
    path = configs_dir("fewshots") / f"{name}.json"
    try:
        data = path.read_bytes()
        content = json.loads(data)
        given = tuple(dict(document) for document in content["documents"])
        return Documents(content["source"], content["licence"], given, hashlib.sha256(data).hexdigest())
    except OSError as error:
        raise InputFileError(f"there are no worked examples {name!r}: {error.strerror}", f"write {path}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputFileError(f"{path} is not a file of worked examples: {error!r}", "correct it") from error
