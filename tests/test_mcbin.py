"""The binary format: what is written reads back, and nothing that is broken is taken for whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmc import mcbin
from llmc.errors import FormatError, InputFileError
from llmc.mcbin import MAX_OPTIONS, Reader, Task, Writer

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    options = draw(st.lists(TEXTS, min_size=2, max_size=8))
    return Task(draw(TEXTS), tuple(options), draw(st.integers(0, len(options) - 1)))


SMALL = [
    Task("Which is a number?\nAnswer:", ("1", "dog"), 0),
    Task("Größe — 日本語 🦙", ("да", "нет", "\0\n\\n"), 2),
    Task("q", ("same", "same"), 1),
]


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def texts(*values: bytes) -> bytes:
    return b"".join(u32(len(value)) + value for value in values)


def task_bytes(
    question: bytes = b"q",
    options: tuple[bytes, ...] = (b"a", b"b"),
    labels: tuple[int, ...] = (1, 0),
    mc2: bytes = u32(0),
    width: int | None = None,
) -> bytes:
    width = len(options) if width is None else width
    marks = struct.pack(f"<{len(labels)}i", *labels)
    return texts(question) + u32(width) + texts(*options) + marks + mc2


def file_bytes(*bodies: bytes, count: int | None = None, offsets: list[int] | None = None) -> bytes:
    at, table = 4 + 4 * len(bodies), []
    for body in bodies:
        table.append(at)
        at += len(body)
    table = table if offsets is None else offsets
    return u32(len(bodies) if count is None else count) + b"".join(map(u32, table)) + b"".join(bodies)


def write_bytes(folder: Path, data: bytes) -> Path:
    path = folder / "x.bin"
    path.write_bytes(data)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(tasks(), min_size=1, max_size=12))
def test_what_is_written_reads_back(tmp_path: Path, written: list[Task]) -> None:
    path = tmp_path / "x.bin"
    facts = mcbin.write(path, written)
    data = path.read_bytes()
    assert mcbin.read(path) == written
    assert (facts.tasks, facts.size) == (len(written), len(data))
    assert facts.sha256 == hashlib.sha256(data).hexdigest()
    assert facts.widths == Counter(len(task.options) for task in written)
    assert facts.gold_positions == Counter(task.gold for task in written)
    assert facts.chance == pytest.approx(sum(1 / len(task.options) for task in written) / len(written))
    assert facts.engine_chance == pytest.approx(len(written) / sum(len(task.options) for task in written))
    needs = [sum(len(f"{t.question} {option}".encode()) for option in t.options) for t in written]
    assert facts.text_bytes == sum(needs)
    assert (facts.longest_bytes, facts.longest_task) == (max(needs), needs.index(max(needs)))
    doubled = [i for i, t in enumerate(written) if len(set(t.options)) < len(t.options)]
    assert (facts.duplicates, list(facts.first_duplicates)) == (len(doubled), doubled)


def test_the_bytes_are_those_of_the_format(tmp_path: Path) -> None:
    mcbin.write(tmp_path / "x.bin", [Task("Q", ("yes", "no"), 1), Task("é", ("a", "b", "c"), 0)])
    expected = file_bytes(
        task_bytes(b"Q", (b"yes", b"no"), (0, 1)), task_bytes("é".encode(), (b"a", b"b", b"c"), (1, 0, 0))
    )
    assert (tmp_path / "x.bin").read_bytes() == expected


def test_the_writer_knows_hash_and_size_without_reading_back(tmp_path: Path) -> None:
    with Writer(tmp_path / "x.bin") as writer:
        for task in SMALL:
            writer.add(task)
        assert len(writer) == len(SMALL)
    data = (tmp_path / "x.bin").read_bytes()
    assert (writer.size, writer.sha256) == (len(data), hashlib.sha256(data).hexdigest())


def test_majority_is_the_lowest_of_equals() -> None:
    facts = mcbin.BinFacts(4, 0, "", {2: 4}, {1: 2, 0: 2}, 0.5, 0.5, 0, 0, 0)
    assert (facts.majority_position, facts.majority_share, facts.widest) == (0, 0.5, 2)


def test_the_widest_task_and_the_longest_text(tmp_path: Path) -> None:
    wide = Task("q", tuple(f"option {i}" for i in range(MAX_OPTIONS)), 99)
    # Longer than the reader's window, so that every field straddles two reads somewhere.
    long = Task("x" * (5 << 19), ("y" * (5 << 18), "z"), 0)
    mcbin.write(tmp_path / "x.bin", [long, wide, long, *SMALL])
    assert mcbin.read(tmp_path / "x.bin") == [long, wide, long, *SMALL]


@pytest.mark.parametrize("shift", range(0, 24))
def test_every_field_may_straddle_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    monkeypatch.setattr(mcbin, "CHUNK", 16 + shift)
    mcbin.write(tmp_path / "x.bin", SMALL * 5)
    assert mcbin.read(tmp_path / "x.bin") == SMALL * 5


REFUSED: dict[str, Task] = {
    "one option": Task("q", ("a",), 0),
    "no option": Task("q", (), 0),
    "101 options": Task("q", ("a",) * (MAX_OPTIONS + 1), 0),
    "empty question": Task("", ("a", "b"), 0),
    "empty option": Task("q", ("a", ""), 0),
    "gold too high": Task("q", ("a", "b"), 2),
    "gold negative": Task("q", ("a", "b"), -1),
    "surrogate": Task("q\ud800", ("a", "b"), 0),
    "surrogate option": Task("q", ("a", "\udfff"), 0),
    "beyond the task limit": Task("q" * mcbin.MAX_TASK_BYTES, ("a", "b"), 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_writer_refuses_what_cannot_be_scored(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError), Writer(tmp_path / "x.bin") as writer:
        writer.add(SMALL[0])
        writer.add(REFUSED[name])
    assert list(tmp_path.iterdir()) == []


GOOD = task_bytes()
HUGE = 0xFFFF_FFFF

# name: (file, task index, byte offset, a word of the message)
BROKEN: dict[str, tuple[bytes, int | None, int, str]] = {
    "empty": (b"", None, 0, "at least 4"),
    "three bytes": (b"\1\0\0", None, 0, "at least 4"),
    "zero tasks": (u32(0), None, 0, "0 tasks"),
    "zero bytes": (bytes(4096), None, 0, "zero bytes"),
    "count alone": (u32(1), None, 0, "too short"),
    "count one too high": (file_bytes(GOOD, count=2), 0, 4, "begins at 12"),
    "count one too low": (file_bytes(GOOD, GOOD, count=1), 0, 4, "begins at 8"),
    "count absurd": (file_bytes(GOOD, count=HUGE), None, 0, "too short"),
    "count fills the file": (file_bytes(GOOD, count=(len(GOOD) + 4) // 4), 0, 4, "begins at"),
    "offset one too high": (file_bytes(GOOD, offsets=[9]), 0, 4, "says 9"),
    "offset one too low": (file_bytes(GOOD, offsets=[7]), 0, 4, "says 7"),
    "offsets zero": (file_bytes(GOOD, GOOD, offsets=[0, 0]), 0, 4, "says 0"),
    "second offset wrong": (file_bytes(GOOD, GOOD, offsets=[12, 13]), 1, 8, "says 13"),
    "offsets swapped": (file_bytes(GOOD, GOOD, offsets=[12 + len(GOOD), 12]), 0, 4, "says"),
    "question empty": (file_bytes(task_bytes(question=b"")), 0, 8, "empty"),
    "question length absurd": (file_bytes(u32(HUGE) + GOOD[4:]), 0, 8, "claims 4294967295"),
    "question one short": (file_bytes(u32(0) + GOOD[5:]), 0, 8, "empty"),
    "question one long": (file_bytes(u32(2) + GOOD[4:]), 0, 14, "options"),
    "question not UTF-8": (file_bytes(task_bytes(question=b"ab\xff")), 0, 14, "UTF-8"),
    "question cut in a character": (file_bytes(task_bytes(question="é".encode()[:1])), 0, 12, "UTF-8"),
    "question with a surrogate": (file_bytes(task_bytes(question=b"\xed\xa0\x80")), 0, 12, "UTF-8"),
    "no options": (file_bytes(task_bytes(options=(), labels=())), 0, 13, "0 options"),
    "one option": (file_bytes(task_bytes(options=(b"a",), labels=(1,))), 0, 13, "1 options"),
    "101 options": (
        file_bytes(task_bytes(options=(b"a",) * 101, labels=(1,) + (0,) * 100)),
        0,
        13,
        "101 options",
    ),
    "width absurd": (file_bytes(task_bytes(width=HUGE)), 0, 13, "options"),
    "width one too high": (file_bytes(task_bytes(width=3)), 0, 32, "the labels"),
    "width one too low": (file_bytes(task_bytes(b"q", (b"a",) * 3, (1, 0, 0), width=2)), 0, 31, "label 1"),
    "option empty": (file_bytes(task_bytes(options=(b"a", b""))), 0, 22, "option 1 is empty"),
    "option length absurd": (file_bytes(GOOD[:9] + u32(HUGE) + GOOD[13:]), 0, 17, "option 0"),
    "option not UTF-8": (file_bytes(task_bytes(options=(b"a", b"\x80"))), 0, 26, "option 1"),
    "no gold": (file_bytes(task_bytes(labels=(0, 0))), 0, 27, "0 options are marked"),
    "two golds": (file_bytes(task_bytes(labels=(1, 1))), 0, 27, "2 options are marked"),
    "label two": (file_bytes(task_bytes(labels=(0, 2))), 0, 31, "label 1 is 2"),
    "label negative": (file_bytes(task_bytes(labels=(-1, 1))), 0, 27, "label 0 is -1"),
    "labels that sum to one": (file_bytes(task_bytes(labels=(2, -1))), 0, 27, "label 0 is 2"),
    "one label missing": (file_bytes(task_bytes(labels=(1,))), 0, 35, "mc2"),
    "mc2 missing": (file_bytes(task_bytes(mc2=b"")), 0, 35, "mc2"),
    "mc2 filled": (file_bytes(task_bytes(mc2=u32(1) + texts(b"a") + u32(1))), 0, 35, "mc2 holds 1"),
    "mc2 absurd": (file_bytes(task_bytes(mc2=u32(HUGE))), 0, 35, "mc2"),
    "a byte follows": (file_bytes(GOOD) + b"\0", None, 39, "1 bytes follow"),
    "a task follows": (file_bytes(GOOD) + GOOD, None, 39, "31 bytes follow"),
    "second task cut": (file_bytes(GOOD, GOOD)[:-1], 1, 70, "mc2"),
    "big-endian": (b"\0\0\0\1" + file_bytes(GOOD)[4:], None, 0, "too short"),
    "HTML": (b"<!DOCTYPE html><html><body>404</body></html>" * 9, None, 0, "HTML"),
    "LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        None,
        0,
        "Git LFS",
    ),
    "GGUF": (b"GGUF\3\0\0\0" + bytes(1000), None, 0, "GGUF"),
    "zip": (b"PK\3\4" + bytes(1000), None, 0, "zip"),
    "JSON lines": (b'{"question": "q", "answer": "a"}\n' * 100, None, 0, "JSON"),
    "parquet": (b"PAR1" + bytes(1000), None, 0, "parquet"),
    "text": (b"just a few words about nothing\n" * 20, None, 0, "text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_with_task_and_byte(tmp_path: Path, name: str) -> None:
    data, task, offset, words = BROKEN[name]
    path = write_bytes(tmp_path, data)
    with pytest.raises(FormatError) as caught:
        mcbin.scan(path)
    assert words in caught.value.what
    assert (caught.value.task, caught.value.offset) == (task, offset)
    assert str(path) in caught.value.what and caught.value.remedy


def test_a_file_beyond_the_format_is_refused(tmp_path: Path) -> None:
    path = write_bytes(tmp_path, file_bytes(GOOD))
    os.truncate(path, mcbin.UINT32_MAX + 1)  # sparse: takes no room
    with pytest.raises(FormatError, match="4 GiB"):
        mcbin.scan(path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "directory"),
        (lambda path: None, "No such file"),
        (os.mkfifo, "regular file"),
    ],
    ids=["directory", "missing", "fifo"],
)
def test_what_is_no_file_is_an_input_error(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    make(tmp_path / "x.bin")
    with pytest.raises(InputFileError, match=words) as caught:
        mcbin.scan(tmp_path / "x.bin")
    assert caught.value.remedy


def small_file(folder: Path) -> bytes:
    mcbin.write(folder / "small.bin", SMALL)
    return (folder / "small.bin").read_bytes()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = small_file(tmp_path)
    path = tmp_path / "x.bin"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(FormatError):
            mcbin.scan(path)


def test_every_changed_byte_gives_other_content_or_a_format_error(tmp_path: Path) -> None:
    data = small_file(tmp_path)
    path = tmp_path / "x.bin"
    accepted = 0
    for at in range(len(data)):
        for value in {data[at] ^ 1, data[at] ^ 0x80, 0, 1, 0x41, 0xFF} - {data[at]}:
            path.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
            try:
                changed = mcbin.read(path)
            except FormatError as error:
                assert 0 <= error.offset <= len(data)
                continue
            accepted += 1
            assert changed != SMALL
            # The format has one spelling for every content.
            assert file_bytes(*map(mcbin.encode_task, changed)) == path.read_bytes()
    assert accepted  # letters may change; a reader that refuses all would pass otherwise


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_parse_or_raise_a_format_error(tmp_path: Path, data: bytes) -> None:
    path = write_bytes(tmp_path, data)
    try:
        facts = mcbin.scan(path)
    except FormatError:
        return
    assert facts.size == len(data)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcbin, "CHUNK", 64)
    mcbin.write(tmp_path / "x.bin", SMALL * 50)
    reader = iter(Reader(tmp_path / "x.bin"))
    next(reader)
    os.truncate(tmp_path / "x.bin", 700)
    with pytest.raises(FormatError, match="changed while it was read"):
        list(reader)


def test_a_file_that_grows_while_it_is_read_is_read_as_it_was(tmp_path: Path) -> None:
    facts = mcbin.write(tmp_path / "x.bin", SMALL)
    reader = Reader(tmp_path / "x.bin")
    rows = iter(reader)
    next(rows)
    with (tmp_path / "x.bin").open("ab") as more:
        more.write(b"more")
    list(rows)
    assert reader.facts == facts


def test_facts_appear_only_after_the_last_byte(tmp_path: Path) -> None:
    mcbin.write(tmp_path / "x.bin", SMALL)
    reader = Reader(tmp_path / "x.bin")
    rows = iter(reader)
    next(rows)
    assert reader.facts is None
    list(rows)
    assert reader.facts is not None and reader.facts.tasks == len(SMALL)


# Heads of files that are then stretched with zero bytes to 256 MB.
HOSTILE = {
    "count": file_bytes(GOOD, count=HUGE),
    "count that the file could hold": u32(1) + u32(8),
    "question": file_bytes(u32(HUGE) + GOOD[4:]),
    "question as long as the file": u32(1) + u32(8) + u32((256 << 20) - 12),
    "option as long as the file": file_bytes(GOOD[:9] + u32((256 << 20) - 21)),
    "width": file_bytes(task_bytes(width=HUGE)),
    "labels": file_bytes(task_bytes(labels=(HUGE >> 1, 1))),
    "mc2": file_bytes(task_bytes(mc2=u32(HUGE))),
    "nothing but offsets": u32((64 << 20) - 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_length_makes_the_reader_take_more_than_a_constant(tmp_path: Path, name: str) -> None:
    path = write_bytes(tmp_path, HOSTILE[name])
    os.truncate(path, 256 << 20)
    with pytest.raises(FormatError), peak_memory(below=32 << 20):
        mcbin.scan(path)


@pytest.mark.parametrize("part", ["question", "last option"])
def test_writer_and_reader_agree_on_the_longest_task(tmp_path: Path, part: str) -> None:
    room = mcbin.MAX_TASK_BYTES - len(mcbin.encode_task(Task("q", ("a", "b"), 0))) + 1

    def task(length: int) -> Task:
        long = "x" * length
        return Task(long, ("a", "b"), 0) if part == "question" else Task("q", ("a", long), 0)

    longest = mcbin.encode_task(task(room))
    assert len(longest) == mcbin.MAX_TASK_BYTES
    assert mcbin.read(write_bytes(tmp_path, file_bytes(longest))) == [task(room)]
    with pytest.raises(ValueError, match="bytes"):
        mcbin.encode_task(task(room + 1))
    too_long = longest.replace(u32(room) + b"x", u32(room + 1) + b"xx", 1)
    with pytest.raises(FormatError, match="past"):
        mcbin.scan(write_bytes(tmp_path, file_bytes(too_long)))


def test_the_longest_possible_task_stays_within_that_constant(tmp_path: Path) -> None:
    """One astral character makes Python keep four bytes for each of the others."""
    question = "🦙" + "x" * (mcbin.MAX_TASK_BYTES - 64)
    mcbin.write(tmp_path / "x.bin", [Task(question, ("a", "b"), 0)])
    del question
    with peak_memory(below=32 << 20):
        mcbin.scan(tmp_path / "x.bin")


@contextlib.contextmanager
def peak_memory(below: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < below


class _NoSpace:
    """A file on a disk with room for so many bytes."""

    def __init__(self, stream: object, room: int) -> None:
        self._stream, self._room = stream, room

    def write(self, data: bytes) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise OSError(28, os.strerror(28))
        return self._stream.write(data)  # type: ignore[attr-defined, no-any-return]

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@pytest.fixture
def existing(tmp_path: Path) -> Iterator[Path]:
    """A file that a failed write must leave as it is, and alone in its folder."""
    path = tmp_path / "x.bin"
    mcbin.write(path, SMALL[:1])
    before = path.read_bytes()
    yield path
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_between_tasks_leaves_nothing(existing: Path) -> None:
    with pytest.raises(RuntimeError, match="source"), Writer(existing) as writer:
        writer.add(SMALL[1])
        raise RuntimeError("the source broke")


def test_no_tasks_are_no_file(existing: Path) -> None:
    with pytest.raises(InputFileError, match="no tasks"):
        mcbin.write(existing, [])


@pytest.mark.parametrize("room", [0, 40])
def test_a_full_disk_while_tasks_are_added(existing: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    real = mcbin.tempfile.TemporaryFile
    monkeypatch.setattr(mcbin.tempfile, "TemporaryFile", lambda **k: _NoSpace(real(**k), room))
    with pytest.raises(InputFileError, match=r"x\.bin: No space left") as caught:
        mcbin.write(existing, SMALL)
    assert caught.value.remedy


def test_a_full_disk_while_the_file_is_put_together(existing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mcbin.atomic_write

    @contextlib.contextmanager
    def small(path: Path) -> Iterator[object]:
        with real(path) as stream:
            yield _NoSpace(stream, 20)

    monkeypatch.setattr(mcbin, "atomic_write", small)
    with pytest.raises(InputFileError, match="No space left"):
        mcbin.write(existing, SMALL)


def test_a_folder_without_permission(existing: Path, as_nobody: Any) -> None:
    existing.parent.chmod(0o500)
    try:
        with as_nobody(), pytest.raises(InputFileError, match="Permission denied"):
            mcbin.write(existing, SMALL)
    finally:
        existing.parent.chmod(0o700)


def test_a_folder_that_is_a_file(existing: Path) -> None:
    with pytest.raises(InputFileError, match="cannot write"):
        mcbin.write(existing / "deeper" / "x.bin", SMALL)


def test_the_writer_stops_at_the_formats_limit(existing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = len(mcbin.encode_task(SMALL[0]))
    monkeypatch.setattr(mcbin, "UINT32_MAX", 4 + 4 * 3 + 3 * body)
    with Writer(existing.with_name("fits.bin")) as writer:
        for _ in range(3):
            writer.add(SMALL[0])
    assert writer.size == mcbin.UINT32_MAX
    existing.with_name("fits.bin").unlink()
    with pytest.raises(InputFileError, match=r"task 3 .* 4 GiB"), Writer(existing) as writer:
        for _ in range(4):
            writer.add(SMALL[0])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_819772_tasks_stream_in_bounded_memory(tmp_path: Path) -> None:
    """The size of MedConceptsQA, written and read in a process of its own whose peak is measured."""
    program = """
        import re, sys
        from llmc.mcbin import Task, Writer, scan
        stem = "What is medical code %06d of ICD10CM?\\nA. one\\nB. two\\nC. three\\nD. four\\nAnswer:"
        with Writer(sys.argv[1]) as writer:
            for i in range(819_772):
                writer.add(Task(stem % i, ("A", "B", "C", "D"), i % 4))
        print(scan(sys.argv[1]).tasks)
        # Not ru_maxrss, which a child inherits from the process that started it.
        print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()).group(1))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "x.bin")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(mcbin.__file__).parents[1])},
    )
    count, peak = map(int, done.stdout.split())
    assert count == 819_772
    assert peak < 64 << 10
