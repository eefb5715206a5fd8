"""From a configuration to cells: globs, labels, names, axes, baselines, shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc import hub
from llmc.errors import LlmcError
from llmc.sweep.config import load_config
from llmc.sweep.matrix import CellSpec, EngineSettings, Matrix, expand
from llmc.sweep.sources import ModelSource

FILES = ("a.gguf", "b.gguf", "deep/c.gguf", "big-00001-of-00003.gguf", "big-00002-of-00003.gguf", "x.bin", "y.bin")


def matrix(folder: Path, **keys: Any) -> Matrix:
    for name in FILES:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    file = folder / "sweep.yaml"
    file.write_text(json.dumps({"name": "s", "benchmarks": ["x.bin"], **keys}))
    return expand(*load_config(file))


def names(found: Matrix) -> list[str]:
    return list(dict.fromkeys(cell.model.name for cell in found.cells))


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (["a.gguf", "b.gguf"], ["a", "b"]),
        (["*.gguf"], ["a", "b", "big"]),
        (["**/*.gguf"], ["a", "b", "big", "c"]),
        (["big-00001-of-00003.gguf"], ["big"]),
        ([{"model": "a.gguf", "name": "mine"}], ["mine"]),
        (["hf:owner/repo/deep/file.Q4_K_M.gguf@main"], ["file.Q4_K_M"]),
        (["pypi:pack==1.0/pack/m.gguf"], ["m"]),
    ],
)
def test_models(tmp_path: Path, models: list[Any], expected: list[str]) -> None:
    assert names(matrix(tmp_path, models=models)) == expected


def test_an_absolute_path_and_a_glob_of_benchmarks(tmp_path: Path) -> None:
    found = matrix(tmp_path, models=[str(tmp_path / "a.gguf")], benchmarks=["*.bin", "arc-easy"])
    assert [cell.id for cell in found.cells] == ["a/x", "a/y", "a/arc-easy"]
    assert found.cells[0].bench == str(tmp_path / "x.bin") and found.cells[2].bench == "arc-easy"


def test_labels_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(hub.RepoFile(f"Model-{label}.gguf", 1, None) for label in ("Q8_0", "Q4_K_M"))
    monkeypatch.setattr(hub, "list_files", lambda repo, revision: hub.Listing(repo, "model", revision, "c0", files))
    found = matrix(tmp_path, models=[{"hf": "own/Model-GGUF", "labels": ["Q8_0", "q4_k_m"], "revision": "v1"}])
    assert names(found) == ["Model-Q8_0", "Model-q4_k_m"]
    assert [cell.model.ref for cell in found.cells] == ["own/Model-GGUF:Q8_0@v1", "own/Model-GGUF:q4_k_m@v1"]
    with pytest.raises(LlmcError) as caught:
        matrix(tmp_path, models=["own/Model-GGUF:Q4_K_S"])
    assert "sweep.yaml:1" in caught.value.what and "did you mean Q4_K_M" in caught.value.what


def test_a_hub_out_of_reach_is_left_to_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(repo: str, revision: str) -> hub.Listing:
        raise hub.HubUnreachable("no route", "later")

    monkeypatch.setattr(hub, "list_files", unreachable)
    monkeypatch.setattr(hub, "cached_names", lambda repo, revision: None)
    assert names(matrix(tmp_path, models=["own/Model-GGUF:Q4_K_S"])) == ["Model-Q4_K_S"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"models": ["none*.gguf"]}, "none*.gguf matches no file"),
        ({"models": ["aa.gguf"]}, "no such file"),
        ({"models": ["aa.gguf"]}, "did you mean a.gguf"),
        ({"models": ["deep"]}, "is a folder"),
        ({"models": ["a.gguf", "a.gguf"]}, "stands twice"),
        ({"models": ["a.gguf", "*.gguf"]}, "stands twice"),
        ({"models": ["a.gguf", {"model": "b.gguf", "name": "a"}]}, "are both called a"),
        ({"models": [{"model": "*.gguf", "name": "all"}]}, "one name for the"),
        ({"models": ["hf:broken"]}, "does not name a file"),
        ({"models": ["pypi:x"]}, "not a package reference"),
        ({"models": ["a.gguf"], "benchmarks": ["x.bin", "*.bin"]}, "the benchmark x stands twice"),
        ({"models": ["a.gguf"], "benchmarks": ["z*.bin"]}, "z*.bin matches no file"),
        ({"models": ["a.gguf"], "benchmarks": ["z.bin"]}, "no such file"),
        ({"models": ["a.gguf"], "baseline": "aa"}, "did you mean a?"),
        ({"models": ["a.gguf"], "baseline": {"axes": {"kv": "f16"}}}, "no axis is called 'kv'"),
        ({"models": ["a.gguf"], "axes": {"k": {"x": "", "y": ""}}}, "the same cell stands twice"),
        ({"models": ["a.gguf"], "axes": {"k": {"x": "-bf other.bin"}}}, "-bf"),
        ({"models": ["a.gguf"], "flags": "--hellaswag"}, "--hellaswag"),
        ({"models": ["a.gguf"], "rule": "acc_nrm"}, "did you mean acc_norm?"),
        ({"models": ["a.gguf"], "rule": "acc_norm"}, "belong to the logprobs scorer"),
        ({"models": ["a.gguf"], "scorer": "logprobs", "flags": "-t 4"}, "are llama-perplexity's"),
        ({"models": ["a.gguf"], "axes": {"k": {"x": {"rule": "acc_raw"}}}}, "rule and scoring of k=x"),
        ({"models": ["a.gguf"], "gate": {"margin": 1}}, "the gate asks for nothing"),
        ({"models": ["a.gguf"], "baseline": "a", "gate": {"margin": 1}}, "the gate asks for nothing"),
        ({"models": ["a.gguf", "b.gguf"], "baseline": "a", "gate": {"axis": "layuot"}}, "did you mean layout?"),
        (
            {"models": ["a.gguf"], "axes": {"x": {"1": "", "1,y=2": "-t 2"}, "y": {"3": "", "2,y=3": "-b 64"}}},
            "two cells would be called",
        ),
        ({"base": "aa.gguf", "quantize": ["Q8_0"]}, "no such file"),
        ({"base": "a.gguf", "quantize": ["Q8_0", "Q8_0"]}, "stands twice"),
        ({"base": "a.gguf", "quantize": ["Q8_0"], "imatrix": "none"}, "no such file"),
    ],
)
def test_what_stands_for_nothing_or_twice_is_refused(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(LlmcError) as caught:
        matrix(tmp_path, **keys)
    assert said in caught.value.what and f"{tmp_path / 'sweep.yaml'}:1" in caught.value.what


@pytest.mark.parametrize(
    "keys",
    [
        {"baseline": "a", "gate": {"margin": 1, "axis": ["layout", "arguments.-ctk", "kv_type"]}},
        {"gate": {"min_accuracy": 30}},
        {"gate": {"baseline": "elsewhere"}},
    ],
)
def test_gates_that_ask_for_something_are_let_through(tmp_path: Path, keys: dict[str, Any]) -> None:
    assert len(matrix(tmp_path, models=["a.gguf", "b.gguf"], **keys).cells) == 2


def test_the_base_leads_and_is_the_baseline(tmp_path: Path) -> None:
    (tmp_path / "Model.F16.gguf").touch()
    found = matrix(tmp_path, base="Model.F16.gguf", quantize=["q8_0", "Q4_K_M"])
    assert names(found) == ["Model.F16", "Model-Q8_0", "Model-Q4_K_M"]
    assert [found.baseline_of(cell) for cell in found.cells] == [None, "Model.F16/x", "Model.F16/x"]
    without = matrix(tmp_path, base="Model.F16.gguf", quantize=["q8_0"], score_base=False)
    assert names(without) == ["Model-Q8_0"] and without.baseline is None


def test_a_baseline_of_models_keeps_the_axes_and_one_of_axes_the_models(tmp_path: Path) -> None:
    axes = {"kv": {"f16": "", "q8": "-ctk q8_0"}}
    by_model = matrix(tmp_path, models=["a.gguf", "b.gguf"], axes=axes, baseline="a")
    told = {cell.id: by_model.baseline_of(cell) for cell in by_model.cells}
    assert told == {"a/x/kv=f16": None, "a/x/kv=q8": None, "b/x/kv=f16": "a/x/kv=f16", "b/x/kv=q8": "a/x/kv=q8"}
    by_axis = matrix(tmp_path, models=["a.gguf", "b.gguf"], axes=axes, baseline={"axes": {"kv": "f16"}})
    told = {cell.id: by_axis.baseline_of(cell) for cell in by_axis.cells}
    assert told == {"a/x/kv=f16": None, "b/x/kv=f16": None, "a/x/kv=q8": "a/x/kv=f16", "b/x/kv=q8": "b/x/kv=f16"}


@given(st.lists(st.text(min_size=1), min_size=1, max_size=40, unique=True), st.integers(1, 9))
def test_every_cell_belongs_to_exactly_one_shard(models: list[str], count: int) -> None:
    for name in models:
        cell = CellSpec(ModelSource(name, "ref"), "b", "b", (), EngineSettings())
        assert sum(cell.in_shard(index, count) for index in range(1, count + 1)) == 1


def test_shards_do_not_change_from_one_version_to_the_next() -> None:
    cells = [CellSpec(ModelSource(f"m{i}", "ref"), "b", "b", (), EngineSettings()) for i in range(12)]
    shards = [next(i for i in range(1, 5) if cell.in_shard(i, 4)) for cell in cells]
    assert shards == [1, 3, 2, 2, 4, 2, 4, 1, 4, 4, 2, 3]
