from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmc import mcbin
from llmc.benchmarks import item as items
from llmc.benchmarks.item import Item, ItemWriter, items_from_bin, items_path, read_items, to_task
from llmc.errors import InputFileError

PLAIN = Item(0, "a", None, "Question", None, None, (" yes", " no"), 1, 0)

ITEMS = st.builds(
    Item,
    index=st.just(0),
    id=st.text(max_size=8),
    group=st.none() | st.text(max_size=8),
    context=st.text(max_size=20),
    uncond_context=st.none() | st.text(max_size=8),
    option_order=st.none() | st.lists(st.integers(0, 99), max_size=4).map(tuple),
    continuations=st.lists(st.text(max_size=10), min_size=1, max_size=5).map(tuple),
    gold=st.integers(0, 99),
    source_row=st.integers(-1, 2**40),
    attributes=st.none() | st.text(max_size=8),
)


def write(path: Path, all_items: list[Item]) -> Path:
    with ItemWriter(path) as writer:
        for one in all_items:
            writer.add(one)
    return path


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ITEMS, max_size=12))
def test_items_come_back_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_items: list[Item]) -> None:
    monkeypatch.setattr(items, "ROWS_PER_GROUP", 5)
    numbered = [replace(one, index=i) for i, one in enumerate(given_items)]
    path = write(tmp_path / "x.items.parquet", numbered)
    assert list(read_items(path)) == numbered
    first = path.read_bytes()
    assert write(path, numbered).read_bytes() == first


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(items, "ROWS_PER_GROUP", 10)
    path = write(tmp_path / "x.items.parquet", [replace(PLAIN, index=i) for i in range(25)])
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [10, 10, 5]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("first", [0, 9, 10, 19, 24, 25, 99])
def test_reading_may_start_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setattr(items, "ROWS_PER_GROUP", 10)
    path = write(tmp_path / "x.items.parquet", [replace(PLAIN, index=i) for i in range(25)])
    found = [one.index for one in read_items(path, first)]
    assert found == list(range(25))[first // 10 * 10 if first < 25 else 25 :]


def test_projection_takes_one_space_off() -> None:
    assert to_task(PLAIN) == mcbin.Task("Question", ("yes", "no"), 1)
    assert to_task(replace(PLAIN, continuations=("  x", " y"))).options == (" x", "y")


@pytest.mark.parametrize("bad", ["x", "\nx", "\tx", "", "\u00a0x"])
def test_other_whitespace_cannot_be_projected(bad: str) -> None:
    with pytest.raises(ValueError, match="continuation 1 starts with"):
        to_task(replace(PLAIN, continuations=(" x", bad)))


def test_items_of_a_foreign_bin(tmp_path: Path) -> None:
    tasks = [mcbin.Task(f"q{i}", ("x", " y"), i % 2) for i in range(3)]
    mcbin.write(tmp_path / "f.bin", tasks)
    made = list(items_from_bin(tmp_path / "f.bin"))
    assert [one.id for one in made] == ["0", "1", "2"]
    assert made[1].continuations == (" x", "  y")
    assert [to_task(one) for one in made] == tasks


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a-test.bin", "a-test.items.parquet"), ("a.sample5s1.bin", "a.sample5s1.items.parquet")],
)
def test_where_items_lie(name: str, expected: str) -> None:
    assert items_path(Path("out") / name) == Path("out") / expected


def test_files_that_are_no_item_files(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x.items.parquet"
    with pytest.raises(InputFileError, match="cannot read"):
        list(read_items(path))
    with pytest.raises(InputFileError):
        list(read_items(tmp_path))
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(InputFileError, match="not a readable item file"):
        list(read_items(path))
    pq.write_table(pa.table({"index": [0]}), path)
    with pytest.raises(InputFileError, match="no column 'id'"):
        list(read_items(path))
    write(path, [replace(PLAIN, index=1)])
    with pytest.raises(InputFileError, match="item 0 is numbered 1"):
        list(read_items(path))
    whole = write(path, [PLAIN] * 1).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputFileError):
        list(read_items(path))
