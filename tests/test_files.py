"""Files that are whole or absent, cached checksums, locks."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from llmc import files


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(("mode", "content"), [("wb", b"\0\xff\n"), ("w", "Größe 🦙\n")])
def test_a_file_appears_whole_under_its_name(tmp_path: Path, mode: str, content: str | bytes) -> None:
    path = tmp_path / "deep" / "er" / "x"
    with files.atomic_write(path, mode) as out:
        out.write(content)
        assert not path.exists()
    expected = content if isinstance(content, bytes) else content.encode("utf-8")
    assert path.read_bytes() == expected
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("before", [None, b"old"])
def test_a_failed_write_leaves_what_was_there(tmp_path: Path, error: type[BaseException], before: bytes | None) -> None:
    path = tmp_path / "x"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(error), files.atomic_write(path) as out:
        out.write(b"new and half")
        raise error("stopped")
    assert [entry.name for entry in tmp_path.iterdir()] == ([] if before is None else ["x"])
    assert before is None or path.read_bytes() == before


def test_results_are_readable_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_json(tmp_path / "x", {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_a_very_long_name_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    files.write_json(path, [1])
    assert json.loads(path.read_text()) == [1]


def test_json_keeps_order_and_letters(tmp_path: Path) -> None:
    files.write_json(tmp_path / "x.json", {"z": "é", "a": 1})
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert text.index("z") < text.index("a") and "é" in text and text.endswith("}\n")


def test_sha256_of_a_file_longer_than_a_chunk(tmp_path: Path) -> None:
    data = os.urandom(1000) * 3000
    (tmp_path / "x").write_bytes(data)
    assert files.sha256_file(tmp_path / "x") == hashlib.sha256(data).hexdigest()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were really read for a checksum."""
    read: list[Path] = []
    real = files.sha256_file
    monkeypatch.setattr(files, "sha256_file", lambda path: read.append(path) or real(path))
    return read


def test_a_checksum_is_computed_once(tmp_path: Path, counted: list[Path]) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    (tmp_path / "link").symlink_to(path)
    expected = hashlib.sha256(b"abc").hexdigest()
    assert [files.sha256_cached(p) for p in (path, path, tmp_path / "link")] == [expected] * 3
    assert counted == [path.resolve()]


def rewrite(path: Path) -> None:
    path.write_bytes(b"another length")


def rewrite_same_size(path: Path) -> None:
    stamp = path.stat().st_mtime_ns
    path.write_bytes(b"xyz")
    os.utime(path, ns=(stamp, stamp + 2_000_000_000))


def replace_same_size_and_time(path: Path) -> None:
    stamp = path.stat()
    other = path.with_name("other")
    other.write_bytes(b"xyz")
    os.utime(other, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [rewrite, rewrite_same_size, replace_same_size_and_time])
def test_a_changed_file_is_hashed_again(tmp_path: Path, counted: list[Path], change) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    files.sha256_cached(path)
    change(path)
    assert files.sha256_cached(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(counted) == 2


def test_a_file_that_changes_while_it_is_hashed_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    real = files.sha256_file

    def meddled(name: Path) -> str:
        digest = real(name)
        path.write_bytes(b"abcd")
        return digest

    monkeypatch.setattr(files, "sha256_file", meddled)
    files.sha256_cached(path)
    monkeypatch.setattr(files, "sha256_file", real)
    assert files.sha256_cached(path) == hashlib.sha256(b"abcd").hexdigest()


@pytest.mark.parametrize("junk", [b"", b"{", b"[1]", b"null", b"\xff\xfe"])
def test_a_damaged_cache_is_no_cache(tmp_path: Path, cache: Path, counted: list[Path], junk: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    files.sha256_cached(path)
    (entry,) = (cache / "sha256").iterdir()
    entry.write_bytes(junk)
    assert files.read_cache(entry) is None
    assert files.sha256_cached(path) == hashlib.sha256(b"abc").hexdigest()
    assert len(counted) == 2


def test_a_cache_that_cannot_be_written_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    monkeypatch.setenv("LLMC_CACHE", str(tmp_path / "file" / "below"))
    assert files.sha256_cached(tmp_path / "file") == hashlib.sha256(b"abc").hexdigest()


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.cache_dir("a", "b") == tmp_path / "cache" / "a" / "b"
    monkeypatch.setenv("LLMC_CACHE", "~/here")
    assert files.cache_dir() == Path.home() / "here"
    monkeypatch.delenv("LLMC_CACHE")
    assert files.cache_dir("x").name == "x" and "llmc" in str(files.cache_dir("x"))


def add_one(path: Path) -> None:
    for _ in range(50):
        with files.locked(path.with_suffix(".lock")):
            value = int(path.read_text())
            files.write_json(path, value + 1)


def test_a_lock_keeps_processes_apart(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    workers = [multiprocessing.Process(target=add_one, args=(path,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert int(path.read_text()) == 150


def test_a_lock_is_let_go_when_the_block_raises(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), files.locked(tmp_path / "lock"):
        raise RuntimeError
    entered = threading.Event()

    def enter() -> None:
        with files.locked(tmp_path / "lock"):
            entered.set()

    threading.Thread(target=enter, daemon=True).start()
    assert entered.wait(10)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "empty"),
        (b"GGUF\3\0\0\0", "GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
        (b"PK\3\4\x14\0", "zip"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"PAR1\x15\0", "parquet"),
        (b"\n <!doctype html>", "web page"),
        (b"<HTML>", "web page"),
        (b"<?xml version='1.0'?>", "XML"),
        (b'\x40\0\0\0\0\0\0\0{"__metadata__":', "safetensors"),
        (b'{"error": "no"}', "JSON"),
        (bytes(64), "zero bytes"),
        (b"plain words, nothing else", "text"),
        (b"\1\0\0\0\x08\0\0\0\1\0\0\0q", ""),
        (b"\x93" * 64, ""),
        ("日本語".encode()[:-1], "text"),
    ],
)
def test_what_a_file_looks_like(head: bytes, words: str) -> None:
    found = files.looks_like(head)
    assert words.lower() in found.lower() and bool(found) == bool(words)


def test_a_lock_that_is_removed_still_excludes(tmp_path: Path) -> None:
    """Ten threads that each find, make and remove the lock's file: never two inside at a time."""
    path, inside, most = tmp_path / "lock", 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with files.locked(path, remove=True):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0002)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and not path.exists()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("caf\u00e9", "caf\u00e9"),
        ("a\udcffb", "a\\udcffb"),
        (["\udcff", 1, None], ["\\udcff", 1, None]),
        (("\udcff",), ("\\udcff",)),
        ({"\udcff": {"x": "\udc80"}}, {"\\udcff": {"x": "\\udc80"}}),
    ],
)
def test_texts_that_are_no_unicode_are_spelt_out(given: object, expected: object) -> None:
    assert files.readable(given) == expected


def test_a_home_that_does_not_exist_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_CACHE", "~no-such-user/cache")
    assert files.cache_dir("x") == Path("~no-such-user/cache/x")


@pytest.mark.parametrize("name", ["missing", "x" * 5000, "nul\0byte", "folder"])
def test_what_is_no_file_is_told_without_raising(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert not files.is_file(tmp_path / name)
