from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from llmc.benchmarks import spec as specs
from llmc.errors import InputFileError, UsageError

NAMES = sorted(specs.catalogue())


@pytest.fixture
def boolq() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(specs.catalogue()["boolq"].read_text(encoding="utf-8"))
    return data


def load(tmp_path: Path, data: Any) -> specs.Benchmark:
    path = tmp_path / "boolq.yaml"
    path.write_text(yaml.safe_dump(data) if not isinstance(data, str) else data, encoding="utf-8")
    specs.load.cache_clear()
    return specs.load(path)


@pytest.mark.parametrize("name", NAMES)
def test_every_spec_of_the_catalogue_is_sound(name: str) -> None:
    found = specs.find(name)
    assert found.name == name
    assert found.source.pinned == (len(found.source.revision) == 40)
    assert set(found.splits).isdisjoint(found.unlabelled)
    assert all(mirror.splits for mirror in found.source.mirrors)


def test_unknown_benchmark_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean commonsense-qa"):
        specs.find("commonsenseqa")


@pytest.mark.parametrize(
    ("where", "old", "new", "nearest"),
    [
        ((), "licence", "license", "licence"),
        (("source",), "revision", "revison", "revision"),
        (("source", "mirrors", 0), "package", "packge", "package"),
        (("protocols", "llama-mc"), "prompt", "promt", "prompt"),
        (("choices",), "fixed", "fixd", "fixed"),
        (("answer",), "encoding", "encodng", "encoding"),
        (("expect", "train"), "tasks", "task", "tasks"),
        (("choices",), "fixed", "shufle", "shuffle"),
        (("protocols", "olmes", "shots"), "documents", "document", "documents"),
    ],
)
def test_an_unknown_key_names_the_nearest_one_of_its_place(
    tmp_path: Path, boolq: dict[str, Any], where: tuple[Any, ...], old: str, new: str, nearest: str
) -> None:
    here: Any = boolq
    for part in where:
        here = here[part]
    here[new] = here.pop(old)
    with pytest.raises(InputFileError) as caught:
        load(tmp_path, boolq)
    key = ".".join(str(part) for part in (*where, new))
    assert f"unknown key {key}; did you mean {nearest}?" in caught.value.what
    assert "boolq.yaml" in caught.value.what


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"default_split": "test"}, "default_split names 'test'"),
        ({"default_protocol": "helm"}, "default_protocol names 'helm'"),
        ({"expect": {"dev": {"tasks": 3}}}, "expect names 'dev'"),
        ({"splits": ["train", "validation", "dev"]}, "splits names 'dev'"),
        ({"name": "Bool Q"}, "name"),
        ({"answer": {"column": "answer", "encoding": "colour"}}, "answer.encoding"),
        ({"answer": {"column": "answer", "encoding": "label"}}, "needs choices.labels"),
        ({"choices": {"fixed": ["a", "b"], "column": "c"}}, "exactly one of"),
        ({"choices": {}}, "exactly one of"),
        ({"choices": {"fixed": [True, False]}}, "choices.fixed.0"),
        ({"expect": {"train": {"tasks": 0}}}, "expect.train.tasks"),
        ({"expect": {"train": {"tasks": "12"}}}, "expect.train.tasks"),
        ({"fields": {"passage": "passage"}}, "fields names 'question'"),
        ({"fields": {"question": "q", "passage": "p", "choices": "c"}}, "choose another name"),
        ({"adapter": "hellaswga"}, "adapter names 'hellaswga'"),
        ({"fill": {"question": {"x": "y"}}}, "id_field is missing"),
        ({"fill": {"qestion": {"x": "y"}}, "id_field": "id"}, "fill names 'qestion'"),
        ({"leave_out": {"boring": "why not"}}, "leave_out.boring"),
        ({"leave_out": {"unlabelled": ""}}, "leave_out.unlabelled"),
        ({"choices": {"fixed": ["a", "b"], "json_text": True}}, "belong to a list column"),
        ({"choices": {"fixed": ["a", "b"], "shuffle": "yes"}}, "choices.shuffle"),
        ({"expect_configs": {"train": {"a": 1}}}, "expect_configs.train must give every config"),
        ({"protocols": {}}, "protocols"),
    ],
)
def test_inconsistent_specs_are_refused(
    tmp_path: Path, boolq: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputFileError) as caught:
        load(tmp_path, boolq | change)
    assert words in caught.value.what


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ({"form": "text", "prompt": "{pasage} {question}"}, "unknown {pasage}; did you mean passage?"),
        ({"form": "text", "prompt": "{question.upper}"}, "only plain"),
        ({"form": "text", "prompt": "{question!r}"}, "only plain"),
        ({"form": "text", "prompt": "{question:>30}"}, "only plain"),
        ({"form": "text", "prompt": "{0}"}, "only plain"),
        ({"form": "text", "prompt": "{question"}, "expected '}'"),
        ({"form": "letter", "prompt": "{question}"}, "must show the {choices}"),
        ({"form": "letter", "prompt": "{question}\n{choices}", "choice_line": "{word}"}, "unknown {word}"),
        ({"form": "text", "prompt": "{question} "}, "ends in whitespace"),
        ({"form": "verse", "prompt": "{question}"}, "protocols.llama-mc.form"),
        ({"form": "letter", "prompt": "{question}\n{choices}\n{choices}"}, "more than once"),
        ({"form": "text", "prompt": "{question}", "description": "{subject}"}, "unknown {subject}"),
        ({"form": "text", "prompt": "{question}", "description": "{choices}"}, "unknown {choices}"),
        ({"form": "text", "prompt": "{question}", "strip": ["answer"]}, "unknown {answer}"),
        ({"form": "text", "prompt": "{question}", "order": [1, 2]}, "every position once"),
        ({"form": "text", "prompt": "{question}", "order": [0, 0]}, "every position once"),
        ({"form": "letter", "prompt": "{question}", "listed_in": "passage"}, "which the prompt does not show"),
        ({"form": "letter", "prompt": "{question}", "listed_in": "question", "order": [1, 0]}, "cannot be rearranged"),
        ({"form": "text", "prompt": "{question}", "adapter": "none"}, "adapter names 'none'"),
        ({"form": "text", "prompt": "{question}", "shots": {}}, "exactly one of split and documents"),
        ({"form": "text", "prompt": "{question}", "shots": {"split": "dev", "documents": "x"}}, "exactly one of"),
        ({"form": "text", "prompt": "{question}", "shots": {"split": "dev", "usual": 0}}, "shots.usual"),
    ],
)
def test_templates_are_plain_and_known(
    tmp_path: Path, boolq: dict[str, Any], protocol: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputFileError) as caught:
        load(tmp_path, boolq | {"protocols": {"llama-mc": protocol}})
    assert words in caught.value.what


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({}, "name the dataset on the Hub (hf), or the files of each split"),
        ({"hf": "a/b", "revision": "main"}, "pinned: false"),
        ({"hf": "no-owner", "revision": "main", "pinned": False}, "source.hf"),
        (
            {"hf": "a/b", "pinned": False, "config": "x", "configs": {"names": ["y"], "columns": ["z"]}},
            "give one of the two",
        ),
        ({"hf": "a/b", "pinned": False, "configs": {"names": [], "columns": ["z"]}}, "source.configs.names"),
    ],
)
def test_sources_that_cannot_be(tmp_path: Path, boolq: dict[str, Any], source: dict[str, Any], words: str) -> None:
    with pytest.raises(InputFileError) as caught:
        load(tmp_path, boolq | {"source": source})
    assert words in caught.value.what


def test_a_mirror_without_a_commit_says_what_it_holds(tmp_path: Path, boolq: dict[str, Any]) -> None:
    boolq["source"]["mirrors"][0]["records_commit"] = False
    with pytest.raises(InputFileError, match="needs a note"):
        load(tmp_path, boolq)


def test_a_pinned_revision_is_a_whole_commit(tmp_path: Path, boolq: dict[str, Any]) -> None:
    boolq["source"]["revision"] = "main"
    with pytest.raises(InputFileError, match="pinned: false"):
        load(tmp_path, boolq)
    boolq["source"]["pinned"] = False
    assert load(tmp_path, boolq).source.revision == "main"


@pytest.mark.parametrize("text", ["name: [1", "- a\n- b\n", "", "\x00", "!!python/object:os.system {}"])
def test_what_is_no_spec_at_all(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputFileError, match=r"boolq\.yaml"):
        load(tmp_path, text)


def test_file_name_and_name_agree(small_specs: Path) -> None:
    (small_specs / "other.yaml").write_text((small_specs / "boolq.yaml").read_text())
    with pytest.raises(InputFileError, match="name inside is 'boolq'"):
        specs.find("other")
