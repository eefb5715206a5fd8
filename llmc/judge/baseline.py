"""The baseline file that a repository commits: the answers of trusted runs in compact form, and what made them.

``llmc.baseline/1`` holds one entry a benchmark. Answers are packed eight to a byte, the first task in the highest bit,
in base64. The same runs give the same bytes: nothing in it depends on when or where it was written.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmc.errors import InputFileError, UsageError, os_error
from llmc.files import write_json
from llmc.judge.answers import Answers, Given
from llmc.runs.record import EngineIdentity, ModelIdentity, TaskGroups, content_key

SCHEMA = "llmc.baseline/1"
_REMEDY = "write it anew with `llmc baseline save RUN... -o FILE`"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class Entry(_Part):
    """The answers to one benchmark: ``correct`` of ``tasks`` are right, ``answers`` says which.

    Model and engine are without the paths of the machine that made them.
    """

    benchmark: str
    label: str
    model: ModelIdentity | None = None
    engine: EngineIdentity | None = None
    tasks: int = Field(gt=0)
    correct: int = Field(ge=0)
    answers: str
    groups: TaskGroups | None = None
    key: str
    must: dict[str, Any]
    should: dict[str, Any]


class BaselineFile(_Part):
    schema_: Literal["llmc.baseline/1"] = Field(default="llmc.baseline/1", alias="schema")
    entries: tuple[Entry, ...]


def pack(correct: str) -> str:
    """Return a string of 0 and 1 as base64 of its bits."""
    size = -(-len(correct) // 8)
    return base64.b64encode(int(correct.ljust(size * 8, "0"), 2).to_bytes(size, "big")).decode()


def unpack(answers: str, tasks: int) -> str:
    """Return the string of 0 and 1 behind ``pack``; ValueError when it is not that of so many tasks."""
    try:
        data = base64.b64decode(answers, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"its answers are not base64: {error}") from None
    if len(data) != -(-tasks // 8):
        raise ValueError(f"it holds answers for {8 * len(data) - 7} to {8 * len(data)} tasks, not for {tasks}")
    bits = bin(int.from_bytes(b"\1" + data, "big"))[3:]
    if "1" in bits[tasks:]:
        raise ValueError(f"it holds answers beyond its {tasks} tasks")
    return bits[:tasks]


def make_baseline(runs: Sequence[Given]) -> BaselineFile:
    """Return the baseline of trusted runs, sorted by benchmark.

    Raises UntrustedError for a run that is not trusted, UsageError for two runs on one benchmark: a baseline says one
    thing of each.
    """
    entries: dict[str, tuple[Answers, Entry]] = {}
    for run in runs:
        answers = run.required()
        if answers.key in entries:
            other = entries[answers.key][0]
            raise UsageError(
                f"{other.origin} and {answers.origin} are both runs on {answers.benchmark}",
                "name one run for each benchmark",
            )
        entries[answers.key] = answers, _entry(answers)
    ordered = sorted((entry for _, entry in entries.values()), key=lambda e: (e.benchmark, e.key))
    return BaselineFile(entries=tuple(ordered))


def _entry(answers: Answers) -> Entry:
    model, engine = answers.model, answers.engine
    if model is not None:
        ref = model.ref if model.ref.startswith(("hf:", "pypi:")) else Path(model.ref).name
        model = model.model_copy(update={"path": None, "ref": ref})
    if engine is not None:
        engine = engine.model_copy(update={"command": tuple(Path(word).name for word in engine.command)})
    return Entry(
        benchmark=answers.benchmark,
        label=answers.label,
        model=model,
        engine=engine,
        tasks=answers.n,
        correct=answers.right,
        answers=pack(answers.correct),
        groups=TaskGroups.of(answers.groups) if answers.groups else None,
        key=answers.key,
        must=dict(answers.must),
        should=dict(answers.should),
    )


def save_baseline(file: BaselineFile, path: Path) -> None:
    """Write a baseline file, atomically; InputFileError when it cannot be written."""
    try:
        write_json(path, file.model_dump(mode="json", by_alias=True, exclude_none=True))
    except OSError as error:
        raise os_error(error, f"write {path}", "choose another place with -o") from error


def load_baseline(path: Path) -> BaselineFile:
    """Read a baseline file; InputFileError when it is none, is damaged, or holds nothing."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise os_error(error, "read the baseline", "check the path, or make one with `llmc baseline save`") from error
    schema = _schema(path, data)
    if schema != SCHEMA:
        said = f"its schema is {schema!r}" if schema else "it has no schema"
        raise InputFileError(f"{path} is not a baseline file ({SCHEMA}): {said}", _REMEDY)
    try:
        file = BaselineFile.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputFileError(f"{path} is not a whole baseline file: {where}: {first['msg']}", _REMEDY) from error
    try:
        json.loads(data, parse_constant=_no_number)  # in the parts that may hold anything
    except ValueError as error:
        raise InputFileError(f"{path} is not a whole baseline file: {error}", _REMEDY) from None
    if not file.entries:
        raise InputFileError(f"{path} is a baseline of no run at all", _REMEDY)
    return file


def _schema(path: Path, data: bytes) -> str:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{path} is not a whole JSON file: {error}", _REMEDY) from None
    return str(body.get("schema", "")) if isinstance(body, dict) else ""


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def open_baseline(path: Path) -> tuple[Given, ...]:
    """Return the runs in a baseline file, checked against their own figures; raises what ``load_baseline`` does."""
    return tuple(_given(entry, path) for entry in load_baseline(path).entries)


def _given(entry: Entry, path: Path) -> Given:
    try:
        correct = unpack(entry.answers, entry.tasks)
        if correct.count("1") != entry.correct:
            raise ValueError(f"it says {entry.correct} right and holds {correct.count('1')}")
        if content_key(entry.must) != entry.key:
            raise ValueError("its comparability key is not that of its own parts")
        groups = entry.groups.expand(entry.tasks) if entry.groups else None
    except ValueError as error:
        raise InputFileError(f"{path}: the entry for {entry.benchmark} is damaged: {error}", _REMEDY) from None
    answers = Answers(
        label=entry.label,
        origin=str(path),
        benchmark=entry.benchmark,
        correct=correct,
        must=entry.must,
        should=entry.should,
        model=entry.model,
        engine=entry.engine,
        groups=groups,
    )
    return Given(entry.label, str(path), entry.benchmark, answers=answers)
