"""The Hub's road from end to end: huggingface_hub and datasets against a server that speaks the Hub's API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

import made_up_rows as made_up
from helpers import Cli
from hub_server import Hub, Repo, commit_of, repo, serve
from llmc import hub, mcbin
from llmc.benchmarks import spec as specs
from llmc.benchmarks.hub_rows import _path, declared_files
from llmc.benchmarks.manifest import read_sidecar
from llmc.errors import FetchError

README = """---
license: mit
configs:
- config_name: first
  default: true
  data_files:
  - split: validation
    path: odd/*.parquet
  - split: test
    path: [odd/x-1.parquet]
- config_name: second
  data_dir: other
---
# Made up
"""
ROWS = made_up.csqa(9)
FILES = {
    "README.md": README.encode(),
    "odd/x-0.parquet": made_up.parquet(ROWS[:4]),
    "odd/x-1.parquet": made_up.parquet(ROWS[4:]),
    "other/train-00000-of-00001.parquet": made_up.parquet(ROWS[:2]),
    "other/validation-00000-of-00001.parquet": made_up.parquet(ROWS[2:]),
}
NAME = "tau/commonsense_qa"


@pytest.fixture
def store() -> Repo:
    return repo(dict(FILES))


@pytest.fixture
def server(store: Repo, hub_settings: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serve({f"datasets/{NAME}": store}) as running:
        hub_settings.setenv("HF_ENDPOINT", running.url)
        # huggingface_hub took the endpoint when it was imported; datasets leaves some addresses to it.
        hub_settings.setattr(constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        hub_settings.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running


def declared(config: str | None = None) -> dict[str, tuple[str, ...]]:
    return dict(declared_files(hub.list_files(NAME, "main", "dataset"), config).splits)


def test_the_readme_says_which_files_are_a_split(server: Hub) -> None:
    both = ("odd/x-0.parquet", "odd/x-1.parquet")
    assert declared("first") == {"validation": both, "test": both[1:]}
    assert declared() == declared("first")
    assert declared("second") == {
        "train": ("other/train-00000-of-00001.parquet",),
        "validation": ("other/validation-00000-of-00001.parquet",),
    }


def test_what_was_found_is_remembered(server: Hub, hub_settings: pytest.MonkeyPatch) -> None:
    found = declared("first")
    asked = len(server.requests)
    hub_settings.setenv("HF_HUB_OFFLINE", "1")
    assert declared("first") == found
    assert len(server.requests) == asked


@pytest.mark.parametrize(
    "readme",
    [
        "",
        "# no header",
        "---\nlicense: mit\n---\nconfigs:\n- config_name: x",
        "---\nconfigs: [1\n---",
        "---\nconfigs:\n- config_name: first\n  data_files: missing/*.parquet\n---",
        "---\nconfigs:\n- config_name: other\n  data_files: odd/*.parquet\n---",
    ],
)
def test_readmes_of_no_help_leave_it_to_the_names(server: Hub, store: Repo, readme: str) -> None:
    (files,) = store.commits.values()
    files["README.md"] = readme.encode()
    assert declared("first") == {}


def test_no_readme_at_all(server: Hub, store: Repo) -> None:
    (files,) = store.commits.values()
    del files["README.md"]
    assert declared() == {}
    assert not [line for line in server.requests if "README" in line]


# From the Hub to a verified file, by the commands


@pytest.fixture
def unpinned(small_specs: Path) -> Path:
    """CommonsenseQA as if its commit and its files were not known: both come from the Hub."""
    import yaml

    path = small_specs / "commonsense-qa.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["source"] = {"hf": NAME, "revision": "main", "pinned": False, "config": "first"}
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    specs.load.cache_clear()
    return path


def source_of(out: Path) -> Any:
    entry = read_sidecar(out / "commonsense-qa-validation.json")
    assert entry is not None
    return entry.source


def test_built_and_verified_from_what_the_readme_declares(
    server: Hub, unpinned: Path, tmp_path: Path, cli: Cli
) -> None:
    out = tmp_path / "out"
    assert cli("build", "commonsense-qa", "--out", out).code == 0
    assert [task.gold for task in mcbin.read(out / "commonsense-qa-validation.bin")] == [i % 5 for i in range(9)]
    assert [file.name for file in source_of(out).files] == ["odd/x-0.parquet", "odd/x-1.parquet"]
    called = cli("verify", "commonsense-qa", "--out", out)
    assert (called.code, f"each as in {NAME}@{source_of(out).revision[:12]}" in called.out) == (0, True)


def test_a_branch_that_moves(server: Hub, store: Repo, unpinned: Path, tmp_path: Path, cli: Cli) -> None:
    """The manifest records what was resolved; verify follows the record, a rebuild follows the branch."""
    out = tmp_path / "out"
    assert cli("build", "commonsense-qa", "--out", out).code == 0
    first = source_of(out)
    moved = commit_of("moved")
    store.commits[moved] = {**FILES, "odd/x-0.parquet": made_up.parquet(made_up.csqa(12)[9:])}
    store.branches["main"] = moved
    assert (first.requested_revision, first.pinned) == ("main", False)
    called = cli("verify", "commonsense-qa", "--out", out, "--json")
    assert (called.code, called.data["results"][0]["notes"]) == (0, [])
    assert cli("build", "commonsense-qa", "--force", "--out", out).code == 0
    second = source_of(out)
    assert (second.requested_revision, second.revision) == ("main", moved)
    assert first.revision != moved
    assert cli("verify", "commonsense-qa", "--out", out).code == 0
    called = cli("build", "commonsense-qa", "--revision", first.revision, "--force", "--out", out)
    assert (called.code, source_of(out).revision) == (0, first.revision)


def test_offline_with_and_without_what_is_needed(
    server: Hub, unpinned: Path, tmp_path: Path, cli: Cli, hub_settings: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    hub_settings.setenv("HF_HUB_OFFLINE", "1")
    called = cli("build", "commonsense-qa", "--out", out)
    assert (called.code, "HF_HUB_OFFLINE is set" in called.err) == (2, True)
    assert "--source" in called.err
    hub_settings.delenv("HF_HUB_OFFLINE")
    hub_settings.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert cli("build", "commonsense-qa", "--out", out).code == 0
    asked = len(server.requests)
    hub_settings.setenv("HF_HUB_OFFLINE", "1")
    assert cli("verify", "commonsense-qa", "--out", out).code == 0
    assert cli("build", "commonsense-qa", "--force", "--out", out).code == 0
    assert len(server.requests) == asked


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_gated_dataset(
    server: Hub, store: Repo, unpinned: Path, tmp_path: Path, cli: Cli, hub_settings: pytest.MonkeyPatch, token: str
) -> None:
    store.gated, store.token = True, "right"
    if token:
        hub_settings.setenv("HF_TOKEN", token)
    out = tmp_path / "out"
    called = cli("build", "commonsense-qa", "--out", out)
    assert (called.code, "is gated" in called.err) == (2, True), called.err
    assert "accept the terms" in called.err
    assert not [path for path in out.glob("*") if path.suffix]
    hub_settings.setenv("HF_TOKEN", "right")
    assert cli("build", "commonsense-qa", "--out", out).code == 0


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"cut_after": 300}, "received 300 bytes"),
        ({"corrupt": True}, "arrived damaged (sha256"),
        ({"status": 503}, "answered with HTTP 503"),
        ({"delay": 3.0}, "cannot be reached"),
    ],
)
def test_broken_and_slow_downloads(
    server: Hub,
    store: Repo,
    unpinned: Path,
    tmp_path: Path,
    cli: Cli,
    hub_settings: pytest.MonkeyPatch,
    fault: dict[str, Any],
    words: str,
) -> None:
    hub_settings.setattr(hub, "CONTACT_SECONDS", 0.5)
    if "delay" not in fault and "status" not in fault:
        declared("first")  # the listing and the README arrive whole; the rows do not
    for name, value in fault.items():
        setattr(store, name, value)
    start = time.monotonic()
    called = cli("build", "commonsense-qa", "--out", tmp_path / "out")
    assert (called.code, words in called.err) == (2, True), called.err
    assert called.err.count("fix:") == 1
    assert time.monotonic() - start < 60
    assert not [path for path in (tmp_path / "out").glob("*") if path.suffix]
    for name, value in Repo({}, {}).__dict__.items():
        if name in fault:
            setattr(store, name, value)
    assert cli("build", "commonsense-qa", "--out", tmp_path / "out").code == 0


def test_a_readme_may_not_lead_elsewhere(server: Hub, store: Repo) -> None:
    (files,) = store.commits.values()
    files["README.md"] = README.replace("odd/*.parquet", "hf://datasets/some/other/x.parquet").encode()
    server.repos["datasets/some/other"] = repo({"x.parquet": made_up.parquet(ROWS)})
    assert declared("first") == {}  # datasets refuses it, and says so in a note
    listing = hub.list_files(NAME, "main", "dataset")
    with pytest.raises(FetchError, match="names a file that is not its own"):
        _path(listing, "hf://datasets/some/other@main/x.parquet")
    assert _path(listing, f"hf://datasets/{NAME}@{listing.revision}/a/b.parquet") == "a/b.parquet"
