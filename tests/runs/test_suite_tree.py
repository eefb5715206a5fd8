"""Suite files: read strictly, inherited downwards, varied by name; and the one that ships is the published one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from helpers import Cli
from llmc.benchmarks import names
from llmc.benchmarks import spec as specs
from llmc.errors import InputFileError, UsageError
from llmc.runs.suite_tree import Leaf, Metric, Node, Sample, catalogue, find, load, resolve
from llmc.scoring.metrics import RULES

SUITE: dict[str, Any] = {
    "name": "made-up",
    "aggregate": "mean-of-means",
    "shots": 5,
    "splits": ["validation"],
    "parts": [
        {"name": "exams", "aggregate": "mean", "benchmark": "mmlu", "groups": ["virology", "sociology"]},
        {
            "name": "others",
            "aggregate": "micro",
            "metric": "acc_per_char",
            "parts": [
                {"name": "csqa", "benchmark": "commonsense-qa", "splits": ["validation", "train"]},
                {"name": "coqa", "benchmark": "coqa", "shots": 0, "metric": "acc_raw"},
            ],
        },
    ],
    "variants": {
        "small": {
            "all": {"sample": {"count": 9, "draw": "even"}},
            "parts": {"csqa": {"splits": ["train"], "shots": 1}},
        }
    },
}


SHIPPED = [
    f"{name}:{variant}" if variant else name
    for name, path in catalogue().items()
    for variant in ("", *load(path).variants)
]


def written(tmp_path: Path, data: dict[str, Any]) -> Path:
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path


def leaves(tmp_path: Path, variant: str = "") -> dict[str, Leaf]:
    suite = resolve(load(written(tmp_path, SUITE)), variant)
    return {leaf.path: leaf for leaf in suite.tree.leaves()}


def test_what_is_said_above_holds_below(tmp_path: Path) -> None:
    found = leaves(tmp_path)
    assert list(found) == ["exams/virology", "exams/sociology", "others/csqa", "others/coqa"]
    exam, csqa, coqa = found["exams/sociology"], found["others/csqa"], found["others/coqa"]
    assert (exam.metric, exam.group, exam.questions.shots, exam.questions.splits) == (
        "acc_raw", "sociology", 5, ("validation",),
    )  # fmt: skip
    assert (csqa.metric, csqa.group, csqa.questions.shots) == ("acc_per_char", None, 5)
    assert csqa.questions.splits == ("validation", "train")
    assert (coqa.metric, coqa.questions.shots) == ("acc_raw", 0)


def test_a_variant_says_otherwise(tmp_path: Path) -> None:
    found = leaves(tmp_path, "small")
    sample = Sample(count=9, seed=0, draw="even")
    assert {leaf.questions.sample for leaf in found.values()} == {sample}
    assert (found["others/csqa"].questions.splits, found["others/csqa"].questions.shots) == (("train",), 1)
    assert found["others/coqa"].questions.shots == 0


def change(where: list[Any], value: Any, suite: dict[str, Any] = SUITE) -> dict[str, Any]:
    """The suite with one thing changed; None takes it out."""
    import copy

    data = copy.deepcopy(suite)
    here: Any = data
    for step in where[:-1]:
        here = here[step]
    if value is None:
        del here[where[-1]]
    else:
        here[where[-1]] = value
    return data


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (["agregate"], "mean", "did you mean aggregate"),
        (["aggregate"], None, "aggregate"),
        (["aggregate"], "median", "aggregate"),
        (["aggregate"], "mean", "parts of parts"),
        (["parts"], [], "parts or a benchmark"),
        (["parts", 0, "parts"], [{"name": "x", "benchmark": "mmlu"}], "parts or a benchmark"),
        (["parts", 0, "groups"], ["virology", "virology"], "twice"),
        (["parts", 0, "aggregate"], None, "aggregate"),
        (["parts", 1, "parts", 0, "aggregate"], "mean", "aggregate"),
        (["parts", 1, "groups"], ["x"], "groups"),
        (["parts", 1, "parts", 1, "name"], "csqa", "twice"),
        (["parts", 0, "name"], "csqa", "same name"),
        (["shots"], -1, "shots"),
        (["shots"], "5", "shots"),
        (["metric"], "accuracy", "metric"),
        (["variants", "small", "parts", "cqsa"], {}, "did you mean csqa"),
        (["variants", "small", "all", "sample", "draw"], "random", "sample"),
        (["splits"], None, "splits"),
    ],
)
def test_bad_files_are_refused_by_what_is_wrong(tmp_path: Path, where: list[Any], value: Any, said: str) -> None:
    with pytest.raises(InputFileError, match=said):
        resolve(load(written(tmp_path, change(where, value))))


@pytest.mark.parametrize("text", ["[1, 2", "just words", "", "- a\n- b\n"])
def test_files_that_are_no_suite(tmp_path: Path, text: str) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(InputFileError):
        load(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("olmo3-nonstem-qa", "did you mean olmo3-nonstem-qa-mc"),
        ("olmo3-nonstem-qa-mc:minni", "did you mean mini"),
        ("nothing-like-it", "unknown suite"),
    ],
)
def test_unknown_suites(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        find(name)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = written(tmp_path, SUITE)
    assert find(str(path)).name == "made-up"
    assert find(f"{path}:small").name == "made-up:small"
    with pytest.raises(InputFileError):
        find(str(tmp_path / "absent.yaml"))


def test_every_metric_is_a_rule_of_the_scorer() -> None:
    assert set(get_args(Metric)) == set(RULES)


@pytest.mark.parametrize("suite", SHIPPED)
def test_everything_that_a_shipped_suite_names_exists(suite: str) -> None:
    for leaf in find(suite).tree.leaves():
        asked = leaf.questions
        for split in asked.splits:
            target = names.parse(f"{asked.benchmark}-{split}", protocol=asked.protocol, shots=asked.shots)
            configs = target.spec.source.configs
            assert leaf.group is None or (configs is not None and leaf.group in configs.names)


def test_the_published_suite() -> None:
    tree = find("olmo3-nonstem-qa-mc").tree
    sizes = [len(part.parts) if isinstance(part, Node) else 1 for part in tree.parts]
    assert sizes == [13, 12, 14, 1, 1, 1, 1, 1, 1, 1, 1]
    parts = {leaf.path: leaf for leaf in tree.leaves()}
    assert "mmlu-other/anatomy" in parts
    assert len({leaf.group for leaf in parts.values() if leaf.group}) == 39
    mmlu = specs.find("mmlu").source.configs
    assert mmlu is not None and len(set(mmlu.names) - {leaf.group for leaf in parts.values()}) == 18  # the sciences
    assert {leaf.metric for leaf in parts.values()} == {"acc_raw"}
    assert [leaf.path for leaf in parts.values() if leaf.questions.shots != 5] == ["coqa"]
    drawn = {leaf.path: leaf.questions.sample for leaf in parts.values() if leaf.questions.sample}
    assert drawn == dict.fromkeys(
        ["commonsense-qa", "piqa", "social-iqa"], Sample(count=10000, seed=1234, draw="documents")
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\naggregate: mean\nname: y\n", "suite.yaml:3: the key name stands twice"),
        ("name: 2024-13-45\n", "suite.yaml:1: 2024-13-45 is no timestamp"),
        ("name: x\nparts: &a\n  - *a\n", "suite.yaml:2: too much is nested"),
        ("name: x\nagregate: mean\nparts: []\n", "suite.yaml:2: unknown key agregate; did you mean aggregate?"),
        ("parts: " + "[" * 50_000, "nested too deeply"),
    ],
)
def test_a_fault_of_the_file_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(InputFileError) as caught:
        load(path)
    assert said in caught.value.what and caught.value.remedy


def test_a_suite_of_what_there_is_not_cannot_be_shown(cli: Cli, tmp_path: Path) -> None:
    suite = change(["protocol"], "olmes")
    assert cli("suite", "show", written(tmp_path, suite)).code == 0
    for where, value, said in (
        (["parts", 1, "parts", 1, "benchmark"], "coqaa", "did you mean coqa"),
        (["parts", 0, "splits"], ["validation", "nowhere"], "nowhere"),
        (["parts", 0, "protocol"], "olmess", "did you mean olmes"),
    ):
        called = cli("suite", "show", written(tmp_path, change(where, value, suite)))
        assert called.code == 2 and said in called.err, called.err


def test_a_definition_changes_with_what_makes_the_score(tmp_path: Path) -> None:
    first = find(str(written(tmp_path, SUITE))).definition
    assert find(str(written(tmp_path, change(["description"], "other words")))).definition == first
    for where, value in ((["aggregate"], "micro"), (["shots"], 4), (["scoring"], {"bos": "never"})):
        assert find(str(written(tmp_path, change(where, value)))).definition != first
