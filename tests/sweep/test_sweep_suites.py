"""The suites that a sweep's configuration names, as cells; and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmc.errors import LlmcError
from llmc.runs.suite_results import Absent
from llmc.runs.sweep_suites import PartKey, places_file, read_places, write_places
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


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"scoring": {"bos": "always"}}, "bos always would have no effect"),
        ({"axes": {"bos": {"m": {}, "a": {"scoring": {"bos": "always"}}}}}, "bos always would have no effect"),
        ({"axes": {"t": {"j": {}, "s": {"scoring": {"tokenization": "separate"}}}}}, "tokenization separate would"),
        ({"axes": {"t": {"n": {}, "l": {"scoring": {"truncate": "left"}}}}}, "truncate left would"),
        ({"scorer": "logprobs", "rule": "acc_per_char"}, "rule acc_per_char would have no effect"),
        ({"axes": {"r": {"a": {}, "b": {"rule": "acc_per_char"}}}, "scorer": "logprobs"}, "rule acc_per_char would"),
        # What the suite says itself, said once more: two values of the axis are then one.
        ({"axes": {"bos": {"m": {}, "n": {"scoring": {"bos": "never"}}}}}, "the same cell stands twice"),
    ],
)
def test_what_the_suite_decides_cannot_be_set_beside_it(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(LlmcError) as caught:
        matrix(tmp_path, **{"scorer": "logprobs", **keys})
    assert f"{tmp_path / 'sweep.yaml'}:1" in caught.value.what and said in caught.value.what
    assert caught.value.exit_code == 2 and caught.value.remedy


def test_what_the_suite_leaves_open_can_be_an_axis(tmp_path: Path) -> None:
    axes = {"kv": {"half": {"scoring": {"bos": "never"}}, "full": {"scoring": {"bos": "never", "kv_type": "f32"}}}}
    cells = matrix(tmp_path, scorer="logprobs", axes=axes).cells
    assert len(cells) == 18 and len({(cell.bench, cell.engine) for cell in cells}) == 18


def test_two_files_with_one_name_are_refused_with_the_line(tmp_path: Path) -> None:
    text = "name: mine\naggregate: mean\nsplits: [validation]\nparts: [{name: a, benchmark: piqa}]\n"
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text(text.replace("mine", "yours"))
    assert len(matrix(tmp_path, suites=["one.yaml", "other.yaml"]).cells) == 2
    (tmp_path / "sweep.yaml").write_text("name: s\nmodels: [a.gguf]\nsuites:\n - one.yaml\n - two.yaml\n")
    with pytest.raises(LlmcError, match=r"sweep.yaml:5: the suites one.yaml and two.yaml are both called mine"):
        expand(*load_config(tmp_path / "sweep.yaml"))


def test_a_suite_of_a_benchmark_that_there_is_not(tmp_path: Path) -> None:
    text = "name: mine\naggregate: mean\nsplits: [validation]\nparts: [{name: a, benchmark: piqqa}]\n"
    (tmp_path / "one.yaml").write_text(text)
    with pytest.raises(LlmcError, match="piqqa"):
        matrix(tmp_path, suites=["one.yaml"])


def test_places_are_kept_and_damage_is_named(tmp_path: Path) -> None:
    key = PartKey(f"{tmp_path}/suite.yaml:mini#3", "d", "ab" * 32)
    absent = {"c": Absent("missing", "no questions", "name a source")}
    write_places(tmp_path, key, {"a": (0, 2), "b/x": (1,)}, absent)
    assert read_places(tmp_path, key) == ({"a": (0, 2), "b/x": (1,)}, absent)
    for other in (replace(key, definition="e"), replace(key, benchmark_sha256="cd" * 32), replace(key, part="x#3")):
        write_places(tmp_path, other, {"a": (5,)}, {})
    assert read_places(tmp_path, key) == ({"a": (0, 2), "b/x": (1,)}, absent)
    for damage in ("", "[]", '{"schema": "other"}', '{"schema": "llmc.sweep-suite/1", "places": 3}', "[" * 200_000):
        places_file(tmp_path, key).write_text(damage)
        with pytest.raises(LlmcError, match="damaged"):
            read_places(tmp_path, key)
    with pytest.raises(LlmcError, match="cannot read"):
        read_places(tmp_path, replace(key, part="x#4"))
