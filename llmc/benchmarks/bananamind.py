"""BananaMind Base Bench 1.1: its file read and checked, as its card says the official runner does.

Its terms allow evaluation only, so it is no benchmark of the catalogue: nothing of it is built into `out`, and its
texts stand nowhere but in the folder of a run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmc.benchmarks.item import Item
from llmc.errors import InputFileError, os_error

NAME, VERSION = "BananaMind Base Bench", "1.1"
REPO, FILE = "BananaMind/BananaMind-Base-Bench-1.1", "data/test.jsonl"
REVISION = "d4aade51312889e8580963e1ce960c6eaef1a450"
SHA256 = "2f563bb46df778ca494fa20f994a8d3045d4c51fbbffeee433764e2813abea21"
CHOICES, PER_CATEGORY = 4, 50
DIFFICULTIES = {"easy": 117, "medium": 117, "hard": 116}
LABELS = (88, 88, 87, 87)
DIFFICULTY_WEIGHTS = {"easy": 1.0, "medium": 1.5, "hard": 2.25}
# By the first word of a category's name: its weight, and the ratings of its easy, medium and hard items.
CATEGORIES: dict[str, tuple[float, tuple[int, int, int]]] = {
    "language": (1.00, (750, 850, 1000)),
    "commonsense": (1.10, (800, 900, 1050)),
    "world": (1.10, (800, 900, 1050)),
    "context": (1.20, (850, 950, 1100)),
    "quantitative": (1.30, (900, 1000, 1150)),
    "logical": (1.35, (950, 1050, 1200)),
    "code": (1.40, (950, 1050, 1200)),
}
TERMS = (
    "The questions, answers and labels of this benchmark are for evaluating models only, never for training of any "
    "kind, and are not to be passed on. llmc keeps their texts in this folder and nowhere else."
)
# Far beyond the card's tables, and near enough that no sum or product of them leaves what a float can hold.
MOST_WEIGHT, MOST_ELO = 1_000_000, 100_000
_SHOWN = 10  # faults in a message
_KEYS = (
    "id", "version", "category", "difficulty", "category_weight", "difficulty_weight", "item_elo", "context",
    "continuations", "label", "score_mode", "tags",
)  # fmt: skip


@dataclass(frozen=True)
class Example:
    """One record of the file, under the names that the card gives."""

    id: str
    category: str
    difficulty: str
    category_weight: float
    difficulty_weight: float
    item_elo: float
    context: str
    continuations: tuple[str, ...]
    label: int

    @property
    def weight(self) -> float:
        """What a right answer counts: category times difficulty."""
        return self.category_weight * self.difficulty_weight

    def item(self, index: int) -> Item:
        """Return the example as the scorer takes it."""
        attributes = {
            "difficulty": self.difficulty,
            "category_weight": self.category_weight,
            "difficulty_weight": self.difficulty_weight,
            "item_elo": self.item_elo,
        }
        text = json.dumps(attributes)
        return Item(
            index, self.id, self.category, self.context, None, None, self.continuations, self.label, index, text
        )


@dataclass(frozen=True)
class Data:
    """The examples of a file, its checksum, and in what it is not the official one (nothing, when it is)."""

    examples: tuple[Example, ...]
    sha256: str
    deviations: tuple[str, ...]
    warnings: tuple[str, ...]


def read(path: Path) -> Data:
    """Read a file and check it: every record's fields, then counts, answer positions and checksum.

    Raises InputFileError that names every record at fault; what differs from the official file is not a fault.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise os_error(error, "read the benchmark", "check the path") from error
    digest = hashlib.sha256(content).hexdigest()
    examples, faults = _parse(content, official=digest == SHA256)
    if not faults:
        faults = _repeated(examples)
    if faults:
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise InputFileError(
            f"{path} is not a file of {NAME} {VERSION}: {'; '.join(faults[:_SHOWN])}{more}",
            "correct these records; the card of the dataset says what each holds",
        )
    if not examples:
        raise InputFileError(f"{path} holds no records", "name the file of the dataset, data/test.jsonl")
    return Data(tuple(examples), digest, tuple(_deviations(examples, digest)), tuple(_off_the_table(examples)))


def _parse(content: bytes, *, official: bool) -> tuple[list[Example], list[str]]:
    examples: list[Example] = []
    faults: list[str] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            faults.append(f"line {number} is not JSON ({error})")
            continue
        wrong = _faults(record, official)
        named = record.get("id") if isinstance(record, dict) else None
        where = f"line {number}" + (f" (id {named})" if isinstance(named, str) and named else "")
        faults += [f"{where}: {fault}" for fault in wrong]
        if not wrong:
            values = {name: record[name] for name in Example.__dataclass_fields__}
            examples.append(Example(**{**values, "continuations": tuple(record["continuations"])}))
    return examples, faults


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _faults(record: Any, official: bool) -> list[str]:
    """Return what is wrong with a record; of the official file nothing is asked that only the card's words say."""
    if not isinstance(record, dict):
        return ["not an object"]
    found = [f"{name} is missing" for name in _KEYS if name not in record]
    found += [f"unknown field {name}" for name in record if name not in _KEYS]
    if found:
        return found
    texts = record["continuations"]
    checks = {
        "id": _is_text(record["id"]) and record["id"].strip() == record["id"],
        "version": record["version"] == VERSION,
        "category": _is_text(record["category"]) and (official or _category(record["category"]) is not None),
        "difficulty": record["difficulty"] in DIFFICULTIES if _is_text(record["difficulty"]) else False,
        "category_weight": _is_number(record["category_weight"], 1 / MOST_WEIGHT, MOST_WEIGHT),
        "difficulty_weight": _is_number(record["difficulty_weight"], 1 / MOST_WEIGHT, MOST_WEIGHT),
        "item_elo": _is_number(record["item_elo"], -MOST_ELO, MOST_ELO),
        "context": _is_string(record["context"]),
        "continuations": type(texts) is list and len(texts) == CHOICES and all(map(_is_text, texts)),
        "label": type(record["label"]) is int and 0 <= record["label"] < CHOICES,
        "score_mode": record["score_mode"] == "mean_logprob",
        "tags": type(record["tags"]) is list and all(map(_is_text, record["tags"])),
    }
    found = [f"{name} is {_shown(record[name])}; {_WANTED[name]}" for name, right in checks.items() if not right]
    if checks["continuations"] and not official:
        found += [f"continuation {i} does not begin with whitespace" for i, text in enumerate(texts) if text[0].strip()]
    return found


def _shown(value: Any) -> str:
    """Return a value in few words: of the benchmark's own texts no more than tells what is wrong."""
    return f"a list of {len(value)}" if type(value) is list else f"{value!r:.60}"


_WANTED = {
    "id": "a text is wanted, without whitespace around it",
    "version": f"it should be {VERSION!r}",
    "category": f"it should begin with {', '.join(CATEGORIES)}",
    "difficulty": f"it should be {', '.join(DIFFICULTIES)}",
    "category_weight": f"a number from {1 / MOST_WEIGHT:f} to {MOST_WEIGHT:,} is wanted",
    "difficulty_weight": f"a number from {1 / MOST_WEIGHT:f} to {MOST_WEIGHT:,} is wanted",
    "item_elo": f"a number from {-MOST_ELO:,} to {MOST_ELO:,} is wanted",
    "context": "a text is wanted",
    "continuations": f"{CHOICES} texts are wanted, none of them empty",
    "label": f"a position from 0 to {CHOICES - 1} is wanted",
    "score_mode": "it should be 'mean_logprob'",
    "tags": "a list of texts is wanted",
}


def _is_text(value: Any) -> bool:
    return _is_string(value) and value != ""


def _is_string(value: Any) -> bool:
    # JSON can spell half a surrogate pair, which is no text.
    return type(value) is str and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_number(value: Any, least: float, most: float) -> bool:
    # Compared as it is: a whole number of JSON may have more digits than a float can hold.
    return type(value) in (int, float) and least <= value <= most


def _category(name: str) -> str | None:
    """Return which category a name is, by its first word; None for one that is none."""
    first = re.split(r"[^a-z]+", name.lower())[0]
    return "logical" if first == "logic" else first if first in CATEGORIES else None


def _repeated(examples: Sequence[Example]) -> list[str]:
    counts = Counter(example.id for example in examples)
    return [f"the id {name} is given to {count} records" for name, count in counts.items() if count > 1]


def _deviations(examples: Sequence[Example], digest: str) -> list[str]:
    """Return in what the file differs from the official one."""
    found = []
    categories = Counter(example.category for example in examples)
    difficulties = Counter(example.difficulty for example in examples)
    labels = Counter(example.label for example in examples)
    total = PER_CATEGORY * len(CATEGORIES)
    if len(examples) != total:
        found.append(f"{len(examples)} records instead of {total}")
    if len(categories) != len(CATEGORIES) or set(categories.values()) != {PER_CATEGORY}:
        given = ", ".join(f"{name} {count}" for name, count in sorted(categories.items()))
        found.append(f"categories {given} instead of {len(CATEGORIES)} of {PER_CATEGORY}")
    for what, counts, wanted in (
        ("difficulties", difficulties, DIFFICULTIES),
        ("answer positions", labels, dict(enumerate(LABELS))),
    ):
        given_counts = [counts[name] for name in wanted]  # type: ignore[index]
        if given_counts != list(wanted.values()):
            found.append(f"{what} {'/'.join(map(str, given_counts))} instead of {'/'.join(map(str, wanted.values()))}")
    if digest != SHA256:
        found.append(f"SHA-256 {digest} instead of {SHA256}")
    return found


def _off_the_table(examples: Sequence[Example]) -> list[str]:
    """Name records whose weights or rating are not those of the card's tables; the records' own count."""
    names = []
    for example in examples:
        category = _category(example.category)
        if category is None:
            continue
        weight, ratings = CATEGORIES[category]
        place = list(DIFFICULTIES).index(example.difficulty)
        tabled = (weight, DIFFICULTY_WEIGHTS[example.difficulty], ratings[place])
        if (example.category_weight, example.difficulty_weight, example.item_elo) != tabled:
            names.append(example.id)
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return [f"weights or ratings are not those of the card's tables, and count as the records have them: {shown}"]
