"""Rows written for these tests, in the columns of the real data sets."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any


def csqa(number: int = 6) -> list[dict[str, Any]]:
    """Return rows in CommonsenseQA's columns; the gold position is the row's number modulo 5."""
    return [
        {
            "id": f"row{i:04d}",
            "question": f"Which of these things is number {i}?",
            "question_concept": "number",
            "choices": {"label": list("ABCDE"), "text": [f"thing {i * 5 + k}" for k in range(5)]},
            "answerKey": "ABCDE"[i % 5],
        }
        for i in range(number)
    ]


def boolq(number: int = 6) -> list[dict[str, Any]]:
    """Return rows in BoolQ's columns; every third answer is false."""
    return [
        {"question": f"is the kettle number {i} hot", "answer": i % 3 != 0, "passage": f"Kettle {i} was on the stove."}
        for i in range(number)
    ]


def arc(number: int = 6) -> list[dict[str, Any]]:
    """Return rows in ARC's columns: labels are letters or digits, and there are three to five options."""
    rows = []
    for i in range(number):
        width = 3 + i % 3
        labels = list("12345" if i % 2 else "ABCDE")[:width]
        rows.append(
            {
                "id": f"Made_{i}",
                "question": f"What does a plant of kind {i} need?",
                "choices": {
                    "text": [f"{word} {i}" for word in ("light", "iron", "music", "salt", "paint")][:width],
                    "label": labels,
                },
                "answerKey": labels[i % width],
            }
        )
    return rows


ROWS = {"commonsense-qa": csqa, "boolq": boolq, "arc-easy": arc}


def parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the format that the suffixes say (``.stream.arrow`` is Arrow's stream form)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        path.write_bytes(parquet(rows))
    elif path.suffix == ".arrow":
        _arrow(path, rows)
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.name.endswith(".array.json"):
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        if path.suffix == ".gz":
            import gzip

            data = gzip.compress(data)
        path.write_bytes(data)
    return path


def _arrow(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    table = pa.Table.from_pylist(rows)
    new = pa.ipc.new_stream if ".stream" in path.name else pa.ipc.new_file
    with path.open("wb") as out, new(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


def saved_dataset(folder: Path, rows: list[dict[str, Any]], revision: str, split: str = "validation") -> None:
    """Write rows as ``datasets.save_to_disk`` lays them out, with the revision in the info."""
    for name, data in saved_files(rows, revision, split).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def saved_files(rows: list[dict[str, Any]], revision: str, split: str = "validation") -> dict[str, bytes]:
    import pyarrow as pa

    half = max(1, len(rows) // 2)
    files = {}
    for number, part in enumerate((rows[:half], rows[half:])):
        out = io.BytesIO()
        table = pa.Table.from_pylist(part, schema=pa.Table.from_pylist(rows).schema)
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        files[f"data-{number:05d}-of-00002.arrow"] = out.getvalue()
    state = {"_data_files": [{"filename": name} for name in files], "_split": split}
    checksums = {f"hf://datasets/made/up@{revision}/data/{split}.parquet": {"num_bytes": 1, "checksum": None}}
    files["state.json"] = json.dumps(state).encode()
    files["dataset_info.json"] = json.dumps({"download_checksums": checksums}).encode()
    return files
