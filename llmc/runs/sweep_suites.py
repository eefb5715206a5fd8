"""Which questions of a sweep's runs belong to which task of a suite.

A suite's part is one cell of a sweep, and one file that several tasks may share. ``out/sweeps/<name>/suites/`` keeps
where in that file each task's questions are, so that what the suite scores can be read from the runs alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from llmc.errors import InputFileError, os_error
from llmc.files import write_json
from llmc.runs.suite_results import Absent

FOLDER = "suites"
SCHEMA = "llmc.sweep-suite/1"
Places = dict[str, tuple[int, ...]]


def places_file(sweep: Path, key: str) -> Path:
    """Return the file for one part of a suite; ``key`` is the cell's name of it."""
    return sweep / FOLDER / f"{''.join(c if c.isalnum() or c in '.-+@' else '_' for c in key)}.json"


def write_places(sweep: Path, key: str, places: Mapping[str, Sequence[int]], absent: Mapping[str, Absent]) -> None:
    """Keep the places of every task's questions, and why some tasks have none."""
    body = {
        "schema": SCHEMA,
        "part": key,
        "places": {path: list(own) for path, own in places.items()},
        "absent": {path: asdict(why) for path, why in absent.items()},
    }
    write_json(places_file(sweep, key), body)


def read_places(sweep: Path, key: str) -> tuple[Places, dict[str, Absent]]:
    """Return what ``write_places`` kept; InputFileError when it is gone or damaged."""
    path = places_file(sweep, key)
    try:
        body = json.loads(path.read_bytes())
        if body["schema"] != SCHEMA:
            raise ValueError(f"schema {body['schema']}")
        places = {str(task): tuple(map(int, own)) for task, own in body["places"].items()}
        return places, {str(task): Absent(**why) for task, why in body["absent"].items()}
    except OSError as error:
        raise os_error(error, "read", "run `llmc sweep` again: it writes the file, and runs nothing twice") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputFileError(f"{path} is damaged: {error}", "delete it and run `llmc sweep` again") from error
