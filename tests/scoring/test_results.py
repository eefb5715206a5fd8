"""Jobs and answers as they travel between the processes and lie on disk."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc import mcbin
from llmc.errors import InputFileError, UsageError
from llmc.scoring.items import chosen_items
from llmc.scoring.job import Job, Settings
from llmc.scoring.results import ScoredItem, ScoredOption, lengths
from scorer_helpers import item, write_items

FIGURE = st.floats(-1e6, 0)
OPTION = st.builds(
    ScoredOption,
    FIGURE,
    st.integers(1, 99),
    st.integers(1, 99),
    st.integers(1, 99),
    st.integers(0, 99),
    st.integers(0, 99),
    st.none() | FIGURE,
    st.none() | st.integers(1, 9),
    st.none() | FIGURE,
    st.integers(0, 9),
)


@given(st.builds(ScoredItem, st.integers(0), st.text(), st.integers(0, 9), st.integers(0), st.lists(OPTION).map(tuple)))
def test_an_answer_comes_back_to_the_bit(scored: ScoredItem) -> None:
    line = scored.to_json()
    assert "\n" not in line
    again = ScoredItem.from_dict(json.loads(line))
    assert again == scored and again.to_json() == line


@pytest.mark.parametrize(
    "change",
    [{"options": None}, {"index": "0"}, {"id": 3}, {"gold": None}, {"options": [{"sum_logprob": -1.0}]},
     {"options": [{"surprise": 1}]}, {"index": True}],
)  # fmt: skip
def test_what_is_no_answer(change: dict[str, Any]) -> None:
    whole = ScoredItem(0, "a", 0, 0, (ScoredOption(-1.0, 1, 2, 2, 1, 1),)).as_dict()
    ScoredItem.from_dict(whole)
    with pytest.raises(ValueError, match="not a scored item"):
        ScoredItem.from_dict({**whole, **change})


def test_a_sum_that_is_no_number_is_no_answer() -> None:
    whole = ScoredItem(0, "a", 0, 0, (ScoredOption(-1.0, 1, 2, 2, 1, 1),)).as_dict()
    whole["options"][0]["sum_logprob"] = "-1"
    with pytest.raises(ValueError, match="no number"):
        ScoredItem.from_dict(whole)


def test_finite() -> None:
    assert ScoredOption(-1.0, 1, 2, 2, 1, 1, -1.0, 1, -2.0).finite()
    for bad in (math.nan, math.inf, -math.inf):
        assert not ScoredOption(bad, 1, 2, 2, 1, 1).finite()
        assert not ScoredOption(-1.0, 1, 2, 2, 1, 1, bad, 1).finite()
        assert not ScoredOption(-1.0, 1, 2, 2, 1, 1, uncond_sum_logprob=bad).finite()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (" bank", (5, 5, 4, 4)),
        ("  can", (5, 5, 4, 4)),
        ("\nx", (2, 2, 2, 2)),
        (" caf\u00e9 ", (6, 7, 5, 6)),
        (" ", (1, 1, 0, 0)),
    ],
)
def test_lengths(text: str, wanted: tuple[int, ...]) -> None:
    assert tuple(lengths(text).values()) == wanted


def test_a_job_comes_back() -> None:
    job = Job(Path("/a b/c.bin"), Settings(uncond=True, context=99, batch_tokens=7), (0, 5), 1)
    assert Job.from_json(job.to_json()) == job
    assert Job.from_json(Job(Path("x")).to_json()) == Job(Path("x"))


@pytest.mark.parametrize(
    "wrong",
    [{"tokenization": "Joint"}, {"bos": "yes"}, {"truncate": "right"}, {"kv_type": "q8_0"}, {"batch_tokens": 0},
     {"max_sequences": 257}, {"max_sequences": 1}, {"context": 1}, {"threads": 0}, {"road": "fast"}],
)  # fmt: skip
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Settings(**wrong)


@pytest.mark.parametrize("indices", [(), (3, 3), (3, 1), (-1, 2)])
def test_selections_that_cannot_be(indices: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="ascending"):
        Job(Path("x"), indices=indices)


def test_every_setting_is_either_what_is_evaluated_or_how() -> None:
    both = {**Settings().evaluated(), **Settings().computed(), "uncond": False}
    assert both.keys() == Settings.__dataclass_fields__.keys()


@pytest.mark.parametrize("kind", ["parquet", "bin"])
def test_items_by_their_place(kind: str, tmp_path: Path) -> None:
    items = [item(i, f"Q{i}", " a", " b", gold=i % 2) for i in range(9)]
    if kind == "parquet":
        path = write_items(tmp_path / "x.items.parquet", items)
    else:
        path = tmp_path / "x.bin"
        mcbin.write(path, [mcbin.Task(each.context, ("a", "b"), each.gold) for each in items])
    assert [each.context for each in chosen_items(path, None)] == [each.context for each in items]
    assert [each.index for each in chosen_items(path, (0, 4, 8))] == [0, 4, 8]
    with pytest.raises(InputFileError, match="no item 9"):
        list(chosen_items(path, (1, 9)))
