"""The suites that a sweep's configuration names, as cells; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmc.errors import LlmcError
from llmc.runs.suite_results import Absent
from llmc.runs.sweep_suites import places_file, read_places, write_places
from llmc.sweep.config import load_config
from llmc.sweep.matrix import Matrix, expand

MINI = "olmo3-nonstem-qa-mc:mini"


def matrix(folder: Path, **keys: Any) -> Matrix:
    (folder / "a.gguf").touch()
    file = folder / "sweep.yaml"
    file.write_text(json.dumps({"name": "s", "models": ["a.gguf"], "suites": [MINI], **keys}))
    return expand(*load_config(file))


def test_every_file_of_a_suite_is_a_cell_scored_as_the_suite_says(tmp_path: Path) -> None:
    cells = matrix(tmp_path).cells
    # The three parts of MMLU are asked together.
    assert len(cells) == 9
    assert cells[0].id == f"a/{MINI}/mmlu-validation@olmes-5shot"
    assert all(cell.engine.scorer == "logprobs" and cell.engine.rule == "acc_raw" for cell in cells)
    assert all(cell.engine.scoring.bos == "never" for cell in cells)
    assert [cell.suite.number for cell in cells if cell.suite] == list(range(9))


def test_shards_split_a_suite(tmp_path: Path) -> None:
    cells = matrix(tmp_path, suites=[MINI, "olmo3-nonstem-qa-mc"]).cells
    assert sorted(c.id for c in cells) == sorted(c.id for i in (1, 2, 3) for c in cells if c.in_shard(i, 3))
    assert len({cell.id for cell in cells}) == 18


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"suites": ["olmo3-nonstem-qa"]}, "did you mean olmo3-nonstem-qa-mc"),
        ({"suites": ["olmo3-nonstem-qa-mc:tiny"]}, "has no variant 'tiny'"),
        ({"suites": [MINI, MINI]}, "stands twice"),
        ({"suites": ["none.yaml"]}, "none.yaml"),
        ({"suites": ["bananamind-base-bench-1.1"]}, "runner of its own"),
        ({"suites": []}, "give benchmarks: or suites:"),
        ({"limit": 10}, "name a variant"),
        ({"like_llama": 10}, "name a variant"),
        ({"flags": "-t 4"}, "the flags -t 4 are llama-perplexity's"),
        ({"axes": {"threads": {"few": "-t 1", "many": "-t 2"}}}, "the flags -t 1 are llama-perplexity's"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(LlmcError) as caught:
        matrix(tmp_path, **keys)
    assert "sweep.yaml" in caught.value.what and said in caught.value.what and caught.value.exit_code == 2


def test_places_are_kept_and_damage_is_named(tmp_path: Path) -> None:
    key = f"{tmp_path}/suite.yaml:mini#3"
    absent = {"c": Absent("missing", "no questions", "name a source")}
    write_places(tmp_path, key, {"a": (0, 2), "b/x": (1,)}, absent)
    assert read_places(tmp_path, key) == ({"a": (0, 2), "b/x": (1,)}, absent)
    for damage in ("", "[]", '{"schema": "other"}', '{"schema": "llmc.sweep-suite/1", "places": 3}'):
        places_file(tmp_path, key).write_text(damage)
        with pytest.raises(LlmcError, match="damaged"):
            read_places(tmp_path, key)
    with pytest.raises(LlmcError, match="cannot read"):
        read_places(tmp_path, key.replace("#3", "#4"))
