"""What BananaMind Base Bench may weigh and rate, and that whatever is let through has a rating that is a number."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bananamind_rows import records
from llmc.benchmarks.bananamind import MOST_ELO, MOST_WEIGHT, read
from llmc.errors import InputFileError
from llmc.judge.elo import Game, elo


def written(path: Path, **changes: Any) -> Path:
    rows = records()
    rows[2].update(changes)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("item_elo", 10**400),
        ("item_elo", -(10**400)),
        ("item_elo", 1e308),
        ("item_elo", -1e308),
        ("item_elo", MOST_ELO + 1),
        ("category_weight", 1e308),
        ("category_weight", 10**400),
        ("difficulty_weight", 1e-300),
        ("difficulty_weight", 2 * MOST_WEIGHT),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(tmp_path: Path, name: str, value: float) -> None:
    with pytest.raises(InputFileError) as caught:
        read(written(tmp_path / "data.jsonl", **{name: value}))
    assert "line 3" in caught.value.what and f"{name} is " in caught.value.what and "from" in caught.value.what


@pytest.mark.parametrize("weight", [1 / MOST_WEIGHT, 1, MOST_WEIGHT])
@pytest.mark.parametrize("rating", [-MOST_ELO, 800, MOST_ELO])
def test_what_is_let_through_can_be_rated(tmp_path: Path, weight: float, rating: float) -> None:
    changes = {"category_weight": weight, "difficulty_weight": weight, "item_elo": rating}
    data = read(written(tmp_path / "data.jsonl", **changes))
    assert data.examples[2].weight > 0
    for right in (True, False):
        found = elo([Game(each.weight, each.item_elo, right) for each in data.examples])
        assert math.isfinite(found.rating) and 0 <= found.weighted_accuracy <= 1
