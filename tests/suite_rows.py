"""Rows for every part of the OLMo 3 suite, written for these tests, in the columns of the real data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmc.benchmarks import spec as specs
from made_up_rows import csqa, write

GEN2MC = ("coqa", "drop", "jeopardy", "naturalqs", "squad")


def subjects() -> tuple[str, ...]:
    configs = specs.find("mmlu").source.configs
    assert configs is not None
    return configs.names


def mmlu(each: dict[str, int]) -> list[dict[str, Any]]:
    """So many rows of each subject; gold positions go round, and every subject begins elsewhere."""
    return [
        {
            "question": f"What does lesson {i} of {subject} say?",
            "subject": subject,
            "choices": [f"{word} {i}" for word in ("nothing", "little", "much", "all")],
            "answer": (i * i + number) % 4,
        }
        for number, (subject, count) in enumerate(each.items())
        for i in range(count)
    ]


def piqa(number: int) -> list[dict[str, Any]]:
    return [
        {"goal": f"open box {i}", "sol1": f"lift lid {i}", "sol2": f"sing to it {i}", "label": i % 3 % 2}
        for i in range(number)
    ]


def social_iqa(number: int) -> list[dict[str, Any]]:
    return [
        {
            "context": f"Kim waters plant {i}.",
            "question": "How will Kim feel?",
            "answerA": f"calm {i}",
            "answerB": f"cross {i}",
            "answerC": f"tall {i}",
            "label": str(1 + i * i % 3),
        }
        for i in range(number)
    ]


def gen2mc(name: str, number: int) -> list[dict[str, Any]]:
    """Rows of one of the five sets; they have three, four or five options."""
    rows = []
    for i in range(number):
        width = 3 + i % 3
        own: dict[str, Any] = {
            "coqa": {
                "query_original": f"Passage: Story {i}.\n\nFinal question:\n\nQuestion: who is it, {i}?\nAnswer:",
                "question_original": f"who is it, {i}?",
            },
            "drop": {"passage_original": f" Team {i} scored {i} goals.", "question_original": f"how many, {i}?"},
            "jeopardy": {"context_original": f"NUMBERS: It is {i}"},
            "naturalqs": {"question": f"what is number {i}"},
            "squad": {
                "title_original": f"Title {i}",
                "context_original": f"A text about {i}.",
                "question_original": f"What about {i}?",
            },
        }[name]
        rows.append(
            {
                "id": f"{name}-{i}",
                **own,
                "choices": {"text": [f"{name} {i} {k}" for k in range(width)], "label": list("ABCDE"[:width])},
                "answerKey": "ABCDE"[(i * i + len(name)) % width],
            }
        )
    return rows


def write_all(folder: Path, leave_out: tuple[str, ...] = ()) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Write every part's splits below ``folder``; return the rows by benchmark and split."""
    names = subjects()
    rows = {
        "mmlu": {
            "dev": mmlu(dict.fromkeys(names, 5)),
            "validation": mmlu({name: 9 + i % 3 for i, name in enumerate(names)}),
            "test": mmlu({name: 1 + i % 4 for i, name in enumerate(names)}),
        },
        "commonsense-qa": {"validation": csqa(7), "train": csqa(13)[7:]},
        "piqa": {"validation": piqa(8), "train": piqa(13)[8:]},
        "social-iqa": {"validation": social_iqa(9), "train": social_iqa(14)[9:]},
        **{name: {"test" if name == "jeopardy" else "validation": gen2mc(name, 6 + len(name))} for name in GEN2MC},
    }
    for name, splits in rows.items():
        for split, its in splits.items():
            if name not in leave_out:
                write(folder / name / f"{split}.jsonl", its)
    return rows
