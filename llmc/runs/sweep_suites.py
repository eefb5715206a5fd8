"""Which questions of a sweep's runs belong to which task of a suite.

A suite's part is one cell of a sweep, and one file that several tasks may share. ``out/sweeps/<name>/suites/`` keeps
where in that file each task's questions are, so that what the suite scores can be read from the runs alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from llmc.errors import InputFileError, os_error
from llmc.files import write_json
from llmc.runs.record import content_key
from llmc.runs.suite_results import Absent

FOLDER = "suites"
SCHEMA = "llmc.sweep-suite/1"
_NAME_LENGTH = 120  # of a file that people can tell apart; the key behind it is what counts
Places = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class PartKey:
    """A part of a suite as one run answered it.

    ``part`` is the cell's name of it, ``definition`` that of the suite's file, ``benchmark_sha256`` the questions.
    Another text of the file, or other questions, are another key: no preview changes what a finished run is read by.
    """

    part: str
    definition: str
    benchmark_sha256: str


def places_file(sweep: Path, key: PartKey) -> Path:
    """Return the file for one part of a suite."""
    name = "".join(c if c.isalnum() or c in ".-+@" else "_" for c in key.part)[-_NAME_LENGTH:]
    return sweep / FOLDER / f"{name}-{content_key(asdict(key))[:16]}.json"


def write_places(sweep: Path, key: PartKey, places: Mapping[str, Sequence[int]], absent: Mapping[str, Absent]) -> None:
    """Keep the places of every task's questions, and why some tasks have none."""
    body = {
        "schema": SCHEMA,
        **asdict(key),
        "places": {path: list(own) for path, own in places.items()},
        "absent": {path: asdict(why) for path, why in absent.items()},
    }
    write_json(places_file(sweep, key), body)


def read_places(sweep: Path, key: PartKey) -> tuple[Places, dict[str, Absent]]:
    """Return what ``write_places`` kept for this very key; InputFileError when it is gone or damaged."""
    path = places_file(sweep, key)
    try:
        body = json.loads(path.read_bytes())
        if body["schema"] != SCHEMA:
            raise ValueError(f"schema {body['schema']}")
        if PartKey(*(body[name] for name in ("part", "definition", "benchmark_sha256"))) != key:
            raise ValueError("it is of other questions")
        places = {str(task): tuple(map(int, own)) for task, own in body["places"].items()}
        return places, {str(task): Absent(**why) for task, why in body["absent"].items()}
    except OSError as error:
        raise os_error(error, "read", "run `llmc sweep` again: it writes the file, and runs nothing twice") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputFileError(f"{path} is damaged: {error}", "delete it and run `llmc sweep` again") from error
