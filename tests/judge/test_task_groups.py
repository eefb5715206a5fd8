from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.runs.record import TaskGroups


@given(st.lists(st.one_of(st.none(), st.sampled_from(["anatomy", "law", "a b|c", "水"])), min_size=1))
def test_groups_survive_their_coding(groups: list[str | None]) -> None:
    coded = TaskGroups.of(groups)
    if coded is None:
        assert set(groups) == {None}
    else:
        assert coded.expand(len(groups)) == tuple(groups)
        assert TaskGroups.model_validate_json(coded.model_dump_json()) == coded


def test_ordered_groups_are_short() -> None:
    coded = TaskGroups.of(["b"] * 5000 + ["a"] * 3 + [None] * 2)
    assert coded == TaskGroups(names=("a", "b"), runs="1x5000 0x3 -x2")


@pytest.mark.parametrize(
    "runs", ["", "0x2", "0x4", "1x3", "-1x3", "0x-3", "0 x3", "x3", "0x3x", "0x1e9", "0x9999999999"]
)
def test_other_runs_are_refused(runs: str) -> None:
    with pytest.raises(ValueError, match=r"run of groups|groups are those"):
        TaskGroups(names=("a",), runs=runs).expand(3)
