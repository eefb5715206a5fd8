"""A benchmark from a file of one's own: which columns hold what, and how the answers point at the options."""

from __future__ import annotations

import contextlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc.benchmarks import names as built_names
from llmc.benchmarks import own_columns, paths
from llmc.benchmarks import spec as specs
from llmc.benchmarks.manifest import ManifestEntry
from llmc.benchmarks.own_answers import ENCODINGS, encoding
from llmc.benchmarks.rowfiles import column_names, read_rows
from llmc.errors import InputFileError, UsageError
from llmc.files import readable

PROTOCOL = "llama-mc"
_PROMPTS = {"letter": "Question: {question}\n{choices}\nAnswer:", "text": 'Question: "{question}" Answer:'}
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Given:
    """What the user says of a file; what is None is found out."""

    question: str | None = None
    choices: tuple[str, ...] = ()
    answer: str | None = None
    answer_as: str | None = None
    id: str | None = None
    group: str | None = None
    form: str = "letter"


def spec_of(path: Path, given: Given, *, name: str | None = None, split: str = "test") -> specs.Benchmark:
    """Return the spec of a file of questions. Nothing but its columns and the kind of its answers is looked at.

    Raises UsageError when the file leaves something open (with the columns there are, and the option that says it)
    and what reading it raises.
    """
    paths.require_file(path, "--from")
    called = _called(name or _name_of(path), split)
    names = column_names(path)
    if not names or not any(batch.columns[0] for batch in read_rows(path, names[:1])):
        raise InputFileError(f"{path} holds no rows", "name a file that holds questions")
    question = own_columns.column(path, names, given.question, own_columns.QUESTIONS, "question")
    answer = own_columns.column(path, names, given.answer, own_columns.ANSWERS, "answer")
    options = own_columns.options(path, names, given.choices, {question, answer})
    points = given.answer_as or encoding(path, options, answer)
    if points not in ENCODINGS:
        raise UsageError(f"--answer-as is one of {', '.join(ENCODINGS)}, not {points!r}", "choose one of them")
    if points == "label" and options.labels is None:
        raise UsageError(f"{path} has no labels beside its options", "say another --answer-as")
    data = {
        "name": called,
        "title": readable(path.name),
        "source": {"files": {split: paths.as_pattern(path.absolute())}},
        "splits": (split,),
        "default_split": split,
        "default_protocol": PROTOCOL,
        "fields": {"question": question},
        "choices": options.choices,
        "answer": {"column": answer, "encoding": points},
        "id_field": own_columns.named(path, names, given.id) if given.id is not None else _id_of(names),
        "group_field": own_columns.named(path, names, given.group) if given.group is not None else None,
        "protocols": {PROTOCOL: {"form": given.form, "prompt": _prompt(given.form)}},
    }
    return _validated(path, data)


def _prompt(form: str) -> str:
    if form not in _PROMPTS:
        raise UsageError(f"--form is {' or '.join(_PROMPTS)}, not {form!r}", "choose one of them")
    return _PROMPTS[form]


def _called(name: str, split: str) -> str:
    """Return the benchmark's name; UsageError where it or the split cannot be one, or the catalogue has them."""
    for option, what, given in (("--name", "benchmark", name), ("--split", "split", split)):
        if not _NAME.fullmatch(given):
            raise UsageError(
                f"{given!r} cannot be the name of a {what}",
                f"use small letters, digits and single hyphens with {option}",
            )
    if name in specs.catalogue() or built_names.in_catalogue(f"{name}-{split}"):
        taken = name if name in specs.catalogue() else f"{name}-{split}"
        raise UsageError(f"{taken} is a benchmark of the catalogue", "choose another name with --name")
    return name


def _validated(path: Path, data: dict[str, Any]) -> specs.Benchmark:
    from pydantic import ValidationError

    try:
        return specs.Benchmark.model_validate(data)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise UsageError(
            f"{path} cannot be described: {where}: {problem['msg']}", "rename the column or the file that it names"
        ) from error


def _name_of(path: Path) -> str:
    stem = path.name.split(".")[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-") or "own"


def _id_of(names: list[str]) -> str | None:
    return next((name for name in names if name.lower() in own_columns.IDS), None)


def rebuild_command(entry: ManifestEntry, out: Path) -> str:
    """Return the command that builds an entry's benchmark again.

    What a run makes itself is to be removed, so that the next one makes it anew. Of a benchmark that a YAML file
    describes the file's place is not known.
    """
    folder, chosen = shlex.quote(str(out)), entry.selection or {}
    if entry.source.via == "bin":
        return f"llmc import {shlex.quote(entry.source.path or 'FILE.bin')} --name {entry.name} --out {folder}"
    if entry.selection is not None and chosen.get("kind") != "sample":
        return shlex.join(
            ["rm", *(str(out / record.name) for record in entry.files.values()), f"{out}/{entry.name}.json"]
        )
    if entry.spec is None or entry.split is None:
        return f"llmc build {entry.name} --force --out {folder}"
    words = None
    with contextlib.suppress(ValueError):
        words = _from_words(specs.Benchmark.model_validate(entry.spec), entry.split)
    if words is None:
        protocol = f" --protocol {entry.protocol}" if entry.protocol else ""
        shots = f" --shots {entry.shots}" if entry.shots else ""
        return f"llmc build {entry.benchmark}.yaml --split {entry.split}{protocol}{shots} --force --out {folder}"
    if chosen.get("kind") == "sample":
        words += ["--limit", str(chosen["tasks"]), "--seed", str(chosen["seed"])]
    return f"llmc build {shlex.join(words)} --force --out {folder}"


def _from_words(spec: specs.Benchmark, split: str) -> list[str] | None:
    """Return the options that describe a file of questions, or None for a spec that they cannot say."""
    protocol, choices = spec.protocols.get(PROTOCOL), spec.choices
    if spec.source.hf is not None or len(spec.protocols) != 1 or protocol is None or choices.fixed:
        return None
    if protocol.prompt != _PROMPTS[protocol.form] or split not in spec.source.files:
        return None
    try:
        path = paths.matching(paths.restored(spec.source.files[split]))[0]
    except OSError:  # a folder on the way may not be read
        return None
    listed = [choices.column.removesuffix(".text") if choices.labels else choices.column] if choices.column else []
    words = ["--from", str(path), "--name", spec.name, "--split", split]
    words += ["--question-column", spec.fields["question"]]
    for column in (*listed, *(choices.columns or ())):
        words += ["--choices-column", column]
    words += ["--answer-column", spec.answer.column, "--answer-as", spec.answer.encoding]
    for option, value in (("--id-column", spec.id_field), ("--group-column", spec.group_field)):
        words += [option, value] if value else []
    return [*words, *(["--form", protocol.form] if protocol.form != "letter" else [])]
