from __future__ import annotations

import pytest

from llmc.benchmarks.splitfiles import Undecided, of_split

TVT = ("train", "validation", "test")


@pytest.mark.parametrize(
    ("names", "config", "split", "found"),
    [
        (["README.md", "data/test-00000-of-00001.parquet"], None, "test", ["data/test-00000-of-00001.parquet"]),
        (
            [
                "data/train-00001-of-00002.parquet",
                "data/train-00000-of-00002.parquet",
                "data/test-00000-of-00001.parquet",
            ],
            None,
            "train",
            ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"],
        ),
        (
            ["piqa_train.parquet", "piqa_validation.parquet", "piqa_test.parquet"],
            None,
            "validation",
            ["piqa_validation.parquet"],
        ),
        (
            ["high/test/0000.parquet", "middle/test/0000.parquet", "all/test/0000.parquet"],
            "high",
            "test",
            ["high/test/0000.parquet"],
        ),
        (
            ["high/test/0000.parquet", "high/test/0001.parquet"],
            "high",
            "test",
            ["high/test/0000.parquet", "high/test/0001.parquet"],
        ),
        (["raw/dev.json", "tokenized/dev.json"], "raw", "validation", ["raw/dev.json"]),
        (["ARC-Easy_test.jsonl", "ARC-Challenge_test.jsonl"], "ARC-Easy", "test", ["ARC-Easy_test.jsonl"]),
        (["validation.jsonl", "validation_first1000.jsonl"], None, "validation", ["validation.jsonl"]),
        (["winogrande_xl/validation-0.parquet"], "winogrande_xl", "validation", ["winogrande_xl/validation-0.parquet"]),
        (["dataset_infos.json", "test.csv"], None, "test", ["test.csv"]),
    ],
)
def test_the_files_of_a_split(names: list[str], config: str | None, split: str, found: list[str]) -> None:
    assert of_split(names, config, split, TVT) == found


def test_dev_means_validation_unless_the_source_has_a_dev_split() -> None:
    files = ["all_dev.jsonl", "all_validation.jsonl"]
    assert of_split(files, None, "validation", ("validation", "test", "dev")) == ["all_validation.jsonl"]
    assert of_split(["dev.json", "test.json"], None, "validation", TVT) == ["dev.json"]
    with pytest.raises(Undecided, match="several files"):
        of_split(files, None, "validation", TVT)


def test_the_only_file_of_a_config_is_its_only_split() -> None:
    files = ["CareQA_en.json", "CareQA_es.json", "README.md"]
    assert of_split(files, "CareQA_en", "test", ("test",)) == ["CareQA_en.json"]
    with pytest.raises(Undecided, match="no file that is evidently the test split"):
        of_split(files, "CareQA_en", "test", TVT)


@pytest.mark.parametrize("names", [[], ["README.md"], ["dataset_infos.json"], ["script.py", "train.parquet"]])
def test_nothing_of_the_split(names: list[str]) -> None:
    with pytest.raises(Undecided, match="no file"):
        of_split(names, None, "test", TVT)


@pytest.mark.parametrize("names", [["a_test.jsonl", "b_test.jsonl"], ["x/test.csv", "y/test.csv"]])
def test_several_that_may_be_it(names: list[str]) -> None:
    with pytest.raises(Undecided, match="several files"):
        of_split(names, None, "test", TVT)
