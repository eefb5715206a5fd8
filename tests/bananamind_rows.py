"""Records in the schema and with the counts of BananaMind Base Bench 1.1; every text was written for these tests."""

from __future__ import annotations

import json
import random
from typing import Any

CATEGORIES = {
    "language_completion": (1.00, (750, 850, 1000), (17, 17, 16)),
    "commonsense": (1.10, (800, 900, 1050), (17, 16, 17)),
    "world_knowledge": (1.10, (800, 900, 1050), (16, 17, 17)),
    "context_tracking": (1.20, (850, 950, 1100), (17, 17, 16)),
    "quantitative": (1.30, (900, 1000, 1150), (17, 16, 17)),
    "logical_reasoning": (1.35, (950, 1050, 1200), (16, 17, 17)),
    "code_completion": (1.40, (950, 1050, 1200), (17, 17, 16)),
}
DIFFICULTIES = {"easy": 1.0, "medium": 1.5, "hard": 2.25}
STARTS = (" ", " ", " ", "\n", "  ", "\t", "\n    ")
WORDS = ("kettle", "a red door", "seven", "snow", "the Long Road", "ox.", "x = 3", "y\u00e9s", "no, never", "B")


def records() -> list[dict[str, Any]]:
    """Return the 350 records; which answer is right follows from their order alone."""
    chance = random.Random(11)
    found: list[dict[str, Any]] = []
    for category, (weight, ratings, counts) in CATEGORIES.items():
        for (difficulty, factor), rating, count in zip(DIFFICULTIES.items(), ratings, counts, strict=True):
            for _ in range(count):
                number = len(found)
                start = STARTS[number % len(STARTS)]
                found.append(
                    {
                        "id": f"{category}-{number:03d}",
                        "version": "1.1",
                        "category": category,
                        "difficulty": difficulty,
                        "category_weight": weight,
                        "difficulty_weight": factor,
                        "item_elo": rating,
                        "context": f"Shelf {number} holds a kettle; what comes next is",
                        "continuations": [f"{start}{word} {number}" for word in chance.sample(WORDS, 4)],
                        "label": number % 4,
                        "score_mode": "mean_logprob",
                        "tags": ["made-up"],
                    }
                )
    return found


def as_bytes(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
