"""What a benchmark file holds, beyond its structure: form, lengths, twins, hazards, one task in full."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from llmc.console import Advance
from llmc.engine.gguf_model import ModelFacts
from llmc.engine.preflight import Preflight, text_hazards
from llmc.errors import FormatError, UsageError
from llmc.mcbin import BinFacts, Reader, Task

Form = Literal["letter", "text", "mixed"]

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LISTED = 100  # task numbers kept of each kind
TASKS_BETWEEN_NEWS = 4096


@dataclass
class Group:
    """Tasks that share a property: how many, and the first 100 of them (0-based)."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, index: int) -> None:
        self.count += 1
        if self.count <= LISTED:
            self.first.append(index)


@dataclass(frozen=True)
class Inspection:
    """The facts of one file. ``hazards`` are judged by text: tasks that some tokenizer may trip over.

    ``unwinnable`` are tasks whose gold has an equal option before it: the first of equals wins, so they are never
    right. ``example`` is the task that was asked for.
    """

    path: Path
    facts: BinFacts
    form: Form
    unwinnable: Group
    hazards: dict[str, Group]
    example_index: int
    example: Task


def inspect(path: Path, task: int, advance: Advance) -> Inspection:
    """Read a file to its last byte; ``task`` is the 0-based task to show.

    Raises FormatError where the file is broken, saying how many tasks before are whole, and UsageError when there
    is no such task.
    """
    reader = Reader(path)
    lettered, unwinnable = 0, Group()
    hazards: dict[str, Group] = {}
    example: Task | None = None
    try:
        for index, each in enumerate(reader):
            if index == task:
                example = each
            lettered += is_lettered(each)
            if each.options.index(each.options[each.gold]) < each.gold:
                unwinnable.add(index)
            for slug in text_hazards(each):
                hazards.setdefault(slug, Group()).add(index)
            if index % TASKS_BETWEEN_NEWS == 0:
                advance(index, f"{index:,} tasks")
    except FormatError as error:
        raise _with_whole_tasks(error) from None
    facts = reader.facts
    assert facts is not None  # set by a reader that came to its end
    if example is None:
        raise UsageError(
            f"{path} has no task {task}: its {facts.tasks} tasks are numbered from 0",
            f"pass --task 0 to --task {facts.tasks - 1}",
        )
    form: Form = "letter" if lettered == facts.tasks else "mixed" if lettered else "text"
    return Inspection(path, facts, form, unwinnable, hazards, task, example)


def is_lettered(task: Task) -> bool:
    """Return whether the options are the letters A, B, C, ... in order."""
    return "".join(task.options) == LETTERS[: len(task.options)]


def _with_whole_tasks(error: FormatError) -> FormatError:
    """Say how much of the file is whole, and that llama.cpp's exit status would not tell."""
    if not error.task:
        return error
    before = f"the {error.task} tasks before are whole" if error.task > 1 else "the task before is whole"
    return FormatError(
        f"{error.what} ({before}; llama-perplexity may exit 0 all the same)",
        task=error.task,
        offset=error.offset,
        remedy=error.remedy,
    )


def printable(text: str) -> str:
    """Return text with control characters escaped, line ends aside: none may steer a terminal or be overlooked."""
    return "".join(
        char if char == "\n" or unicodedata.category(char)[0] != "C" else char.encode("unicode_escape").decode()
        for char in text
    )


def rows(seen: Inspection) -> list[tuple[str, str]]:
    """Return name and value of what is worth showing of the file itself, in order."""
    facts = seen.facts
    widths = ", ".join(f"{width}: {count:,}" for width, count in facts.widths.items())
    golds = ", ".join(f"{_position(i)} {100 * count / facts.tasks:.1f} %" for i, count in facts.gold_positions.items())
    chance = f"{100 * facts.chance:.2f} % (mean of 1/options)"
    if abs(facts.chance - facts.engine_chance) > 5e-5:
        chance += f"; llama.cpp prints {100 * facts.engine_chance:.2f} % (tasks/options)"
    majority = f"{_position(facts.majority_position)}, {100 * facts.majority_share:.2f} %"
    found = [
        ("tasks", f"{facts.tasks:,}"),
        ("size", f"{facts.size:,} bytes"),
        ("sha256", facts.sha256),
        ("form", seen.form),
        ("options", f"{widths}  (number of options: tasks)"),
        ("chance", chance),
        ("majority", f"{majority} (always choosing it)"),
        ("golds", golds),
        ("text", f"{facts.text_bytes / facts.tasks:,.0f} bytes a task on average, all options joined"),
        ("longest", f"task {facts.longest_task}, {facts.longest_bytes:,} bytes"),
        ("equal options", _group(Group(facts.duplicates, list(facts.first_duplicates)))),
    ]
    if seen.unwinnable.count:
        found.append(("never right", f"{_group(seen.unwinnable)} (an equal option stands before the gold)"))
    return found


def hazard_rows(seen: Inspection) -> list[tuple[str, str]]:
    """Return what some tokenizer may trip over, for when no model says which tasks are hit."""
    found = []
    for slug in ("option-prefix", "no-common-prefix"):
        group = seen.hazards.get(slug, Group())
        note = f" (by text, for some models; see `llmc explain {slug}`)" if group.count else ""
        found.append((slug, _group(group) + note))
    return found


def model_rows(model: ModelFacts, checked: Preflight, facts: BinFacts) -> list[tuple[str, str]]:
    """Return name and value of what the model makes of the file."""
    about = "" if checked.basis == "tokens" else "at most "
    return [
        ("model", f"{model.path.name}: {model.architecture}, {model.quantization}"),
        ("vocabulary", f"{model.vocab_size:,} tokens, {model.tokenizer_model} {model.tokenizer_pre}".rstrip()),
        ("BOS", {True: "added", False: "not added", None: "not stated"}[checked.add_bos]),
        ("longest task", f"task {checked.longest_task}: {about}{checked.longest_tokens:,} tokens of context"),
        ("longest text", f"{about}{checked.longest_sequence:,} tokens, question and one option"),
        ("all tasks", f"{about}{checked.total_tokens:,} tokens, {checked.mean_tokens:,.0f} a task"),
        ("needs", f"-np {facts.widest} or more, {checked.longest_tokens:,} tokens of total context or more"),
        ("hazards", "see below" if checked.hazards else "none"),
    ]


def data(seen: Inspection, model: ModelFacts | None, checked: Preflight | None) -> dict[str, Any]:
    """Return the same for programs."""
    facts = seen.facts
    found: dict[str, Any] = {
        "path": str(seen.path),
        "sha256": facts.sha256,
        "bytes": facts.size,
        "tasks": facts.tasks,
        "form": seen.form,
        "options": {str(width): count for width, count in facts.widths.items()},
        "gold_positions": {str(i): count for i, count in facts.gold_positions.items()},
        "chance": facts.chance,
        "engine_chance": facts.engine_chance,
        "majority_position": facts.majority_position,
        "majority_share": facts.majority_share,
        "text_bytes": facts.text_bytes,
        "longest_task": facts.longest_task,
        "longest_bytes": facts.longest_bytes,
        "duplicate_options": {"tasks": facts.duplicates, "first": list(facts.first_duplicates)},
        "never_right": {"tasks": seen.unwinnable.count, "first": seen.unwinnable.first},
        "text_hazards": {slug: {"tasks": group.count, "first": group.first} for slug, group in seen.hazards.items()},
        "task": {
            "index": seen.example_index,
            "question": seen.example.question,
            "options": list(seen.example.options),
            "gold": seen.example.gold,
        },
    }
    if model is not None and checked is not None:
        found["model"] = {
            "path": str(model.path),
            "architecture": model.architecture,
            "quantization": model.quantization,
            "vocab_size": model.vocab_size,
            "basis": checked.basis,
            "reason": checked.reason,
            "add_bos": checked.add_bos,
            "add_eos": checked.add_eos,
            "longest_task": checked.longest_task,
            "longest_tokens": checked.longest_tokens,
            "longest_sequence": checked.longest_sequence,
            "total_tokens": checked.total_tokens,
            "task_tokens": None if checked.required is None else checked.required[seen.example_index],
            "hazards": checked.hazards,
            "seconds": round(checked.seconds, 3),
            "cached": checked.cached,
        }
    return found


def _position(index: int) -> str:
    return LETTERS[index] if index < len(LETTERS) else str(index)


def _group(group: Group) -> str:
    if not group.count:
        return "none"
    shown = ", ".join(map(str, group.first[:10]))
    more = ", ..." if group.count > 10 else ""
    return f"{group.count:,} {'task' if group.count == 1 else 'tasks'}: {shown}{more}"
