from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import made_up_rows as made_up
from llmc.benchmarks import fixed_shots, names
from llmc.benchmarks import spec as specs
from llmc.benchmarks.build import ensure_built
from llmc.benchmarks.item import Item, items_path, read_items
from llmc.errors import InputFileError, UsageError

pytestmark = pytest.mark.usefixtures("own_cache")


def folder(tmp_path: Path, name: str, **splits: list[dict[str, Any]]) -> Path:
    for split, rows in splits.items():
        made_up.write(tmp_path / "rows" / name / f"{split}.jsonl", rows)
    return tmp_path / "rows"


def items(tmp_path: Path, name: str, source: Path) -> list[Item]:
    entry = ensure_built(name, tmp_path / "out", source=source)
    assert entry.name == names.parse(name).full_name
    return list(read_items(items_path(entry.bin_path(tmp_path / "out"))))


def shot(number: int) -> str:
    options = [f"{letter}. thing {number * 5 + k}" for k, letter in enumerate("ABCDE")]
    start = f"Question: Which of these things is number {number}?\n"
    return start + "\n".join(options) + f"\nAnswer: {'ABCDE'[number % 5]}\n\n"


def test_the_first_rows_of_the_split_in_order(tmp_path: Path, small_specs: Path) -> None:
    source = folder(tmp_path, "commonsense-qa", train=made_up.csqa(9), validation=made_up.csqa(4)[3:])
    (item,) = items(tmp_path, "commonsense-qa-validation@lm-eval-3shot", source)
    question = shot(3).rsplit(" ", 1)[0]
    assert item.context == shot(0) + shot(1) + shot(2) + question
    (bare,) = items(tmp_path, "commonsense-qa-validation@lm-eval", source)
    assert bare.context == question
    assert (item.id, item.gold, item.continuations) == (bare.id, bare.gold, bare.continuations)


def test_where_examples_are_from_is_recorded(tmp_path: Path, small_specs: Path) -> None:
    source = folder(tmp_path, "commonsense-qa", train=made_up.csqa(9), validation=made_up.csqa(4))
    entry = ensure_built("commonsense-qa@lm-eval-3shot", tmp_path / "out", source=source)
    assert (entry.shots, entry.shots_source) == (3, "train split, first 3")
    assert [file.name for file in entry.shots_files] == ["commonsense-qa/train.jsonl"]
    fixed = ensure_built("commonsense-qa@olmes-5shot", tmp_path / "out", source=source)
    assert (fixed.shots, fixed.shots_files) == (5, ())
    assert str(fixed.shots_source).startswith("olmes/commonsense-qa, first 5 (MIT; sha256 ")


def test_other_examples_make_the_file_anew(tmp_path: Path, small_specs: Path) -> None:
    source = folder(tmp_path, "commonsense-qa", train=made_up.csqa(9), validation=made_up.csqa(4))
    name = "commonsense-qa@lm-eval-2shot"
    first = ensure_built(name, tmp_path / "out", source=source)
    folder(tmp_path, "commonsense-qa", train=made_up.csqa(9)[5:])
    assert ensure_built(name, tmp_path / "out", source=source).files != first.files


def test_a_question_is_never_its_own_example(tmp_path: Path, small_specs: Path) -> None:
    """A protocol whose examples are of the split itself: the first K others."""
    spec = small_specs / "commonsense-qa.yaml"
    data = yaml.safe_load(spec.read_text())
    data["protocols"]["lm-eval"]["shots"] = {"split": "validation"}
    spec.write_text(yaml.safe_dump(data, sort_keys=False))
    specs.load.cache_clear()
    source = folder(tmp_path, "commonsense-qa", validation=made_up.csqa(6))
    found = items(tmp_path, "commonsense-qa@lm-eval-2shot", source)
    before = [item.context[: -len(shot(i).rsplit(" ", 1)[0])] for i, item in enumerate(found)]
    first = shot(0) + shot(1)
    assert before == [shot(1) + shot(2), shot(0) + shot(2), first, first, first, first]
    assert ensure_built("commonsense-qa@lm-eval-2shot", tmp_path / "out", source=source).shots_source == (
        "validation split, first 2, the question itself left out"
    )


def mmlu(subject: str, number: int) -> list[dict[str, Any]]:
    return [
        {
            "question": f"{subject} {i}?",
            "subject": subject,
            "choices": [f"{subject} {i} {k}" for k in "abcd"],
            "answer": 0,
        }
        for i in range(number)
    ]


def test_examples_are_of_the_question_s_own_subject(tmp_path: Path, small_specs: Path) -> None:
    dev = [*mmlu("anatomy", 3), *mmlu("astronomy", 3)]
    source = folder(tmp_path, "mmlu", dev=dev, test=[*mmlu("astronomy", 1), *mmlu("anatomy", 1)])
    for item in items(tmp_path, "mmlu-test@olmes-2shot", source):
        other = "anatomy" if item.group == "astronomy" else "astronomy"
        assert item.context.startswith(
            f"The following are multiple choice questions (with answers) about {item.group}.\n\n"
            f"Question: {item.group} 0?\n A. {item.group} 0 a\n"
        )
        assert item.context.count("Answer: A\n\nQuestion:") == 2
        assert other not in item.context
    (alone,) = items(tmp_path, "mmlu-anatomy-test@olmes-2shot", source)
    assert alone.context.count("anatomy 1?") == 1


def test_a_subject_without_examples_is_named(tmp_path: Path, small_specs: Path) -> None:
    source = folder(tmp_path, "mmlu", dev=mmlu("anatomy", 3), test=[*mmlu("anatomy", 1), *mmlu("virology", 1)])
    with pytest.raises(InputFileError, match="belongs to 'virology', of which there are no worked examples"):
        items(tmp_path, "mmlu-test@olmes-2shot", source)


def test_too_few_rows_for_examples(tmp_path: Path, small_specs: Path) -> None:
    source = folder(tmp_path, "commonsense-qa", train=made_up.csqa(2), validation=made_up.csqa(4))
    with pytest.raises(InputFileError, match="needs 3 rows of the train split") as caught:
        items(tmp_path, "commonsense-qa@lm-eval-3shot", source)
    assert "--shots" in caught.value.remedy


def test_a_row_that_cannot_be_an_example_is_named(tmp_path: Path, small_specs: Path) -> None:
    bad = made_up.csqa(3)
    bad[1]["answerKey"] = ""
    source = folder(tmp_path, "commonsense-qa", train=bad, validation=made_up.csqa(4))
    with pytest.raises(InputFileError, match=r"train\.jsonl line 2 cannot be a worked example: it has no answer"):
        items(tmp_path, "commonsense-qa@lm-eval-3shot", source)


def test_one_file_holds_one_split_only(tmp_path: Path, small_specs: Path) -> None:
    source = made_up.write(tmp_path / "rows.jsonl", made_up.csqa(5))
    with pytest.raises(UsageError, match=r"the worked examples of .* are rows of the train split") as caught:
        items(tmp_path, "commonsense-qa@lm-eval-3shot", source)
    assert "folder" in caught.value.remedy
    assert len(items(tmp_path, "commonsense-qa@olmes-3shot", source)) == 5  # fixed documents need no rows


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("boolq-5shot", "llama-mc asks boolq without worked examples"),
        ("coqa-5shot", "olmes asks coqa without worked examples"),
        ("truthfulqa-mc1-1shot", "lm-eval asks truthfulqa-mc1 without worked examples"),
        ("piqa@olmes-8shot", "olmes has 7 worked examples of piqa, not 8"),
    ],
)
def test_examples_that_a_protocol_has_not(name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        names.parse(name)
    assert words in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize("data", ["{", "[]", '{"documents": [1], "source": "s", "licence": "l"}', '{"documents": []}'])
def test_documents_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    (tmp_path / "bad.json").write_text(data)
    monkeypatch.setattr(fixed_shots, "configs_dir", lambda *parts: tmp_path)
    fixed_shots.documents.cache_clear()
    with pytest.raises(InputFileError, match=r"bad\.json is not a file of worked examples"):
        fixed_shots.documents("bad")
    with pytest.raises(InputFileError, match="there are no worked examples 'none'"):
        fixed_shots.documents("none")
    fixed_shots.documents.cache_clear()


def test_documents_may_stand_in_the_columns_that_an_adapter_gives() -> None:
    from llmc.benchmarks.rows import RowReader

    reader = RowReader(specs.find("hellaswag"), "x", "olmes")
    row = reader.document({"clean_start": "Text: It is. ", "clean_endings": ["a", " b"], "label": "1"}, 0)
    assert (row.texts, row.choices, row.gold) == (("Text: It is. ",), ("a", " b"), 1)
    raw = json.loads(json.dumps(specs.find("hellaswag").example))
    assert reader.document(raw, 0).texts == ("Baking bread: How to bake bread. Mix flour and water. The baker",)
