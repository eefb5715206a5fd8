"""Items in the forms that others read: JSON Lines, Parquet, or a task folder for lm-evaluation-harness."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llmc import console
from llmc.benchmarks import manifest, names
from llmc.benchmarks.item import Item, ItemWriter, items_from_bin, items_path, read_items
from llmc.benchmarks.own import rebuild_command
from llmc.errors import InputFileError, UsageError, os_error
from llmc.files import atomic_write

FORMATS = ("jsonl", "parquet", "lm-eval")
_ROOM = "choose another place with --output, or make room"


class Source:
    """Items to export: of a built benchmark by its name, or of any ``.bin``.

    Raises UsageError for a name that is not built, InputFileError for a file that is not as its sidecar says.
    """

    def __init__(self, given: str, out: Path) -> None:
        if given.endswith(".bin"):
            path = Path(given)
            if not path.is_file():
                raise InputFileError(f"no such file: {path}", "check the path, or name a built benchmark")
            self.entry = manifest.entry_for_bin(path)
        else:
            _, self.entry = names.entry(given, out)
            path = self.entry.bin_path(out)
        if self.entry is not None and (difference := manifest.mismatch(self.entry, path.parent)):
            raise InputFileError(difference, f"run `{rebuild_command(self.entry, path.parent)}`")
        self.path = path
        self.name = self.entry.name if self.entry else path.name.removesuffix(".bin")

    def items(self) -> Iterator[Item]:
        """Yield the items; ids of a ``.bin`` that nothing describes are the tasks' numbers."""
        items = read_items(items_path(self.path)) if self.entry else items_from_bin(self.path)
        with console.progress(f"Exporting {self.name}", self.entry.tasks if self.entry else None) as advance:
            for item in items:
                if item.index % 4096 == 0:
                    advance(item.index)
                yield item


def default_output(name: str, form: str, out: Path) -> Path:
    """Return where an export goes that is not told where to."""
    return out / "export" / (name if form == "lm-eval" else f"{name}.{form}")


def export(source: Source, form: str, output: Path) -> int:
    """Write the items in a form of ``FORMATS``; return how many. All of it is written or nothing.

    Raises InputFileError when a file cannot be read or written, UsageError for ``output`` of the wrong kind.
    """
    if form == "lm-eval" and output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; an lm-eval task is a folder", "name a folder with --output")
    if form != "lm-eval" and output.is_dir():
        raise UsageError(f"{output} is a folder", f"name a file in it: {output / f'{source.name}.{form}'}")
    write: dict[str, Callable[[Source, Path], int]] = {"jsonl": _jsonl, "parquet": _parquet, "lm-eval": _lm_eval}
    try:
        return write[form](source, output)
    except OSError as error:
        raise os_error(error, "write", _ROOM) from error


def _jsonl(source: Source, output: Path) -> int:
    return _write_lines(output, map(_as_json, source.items()))


def _as_json(item: Item) -> dict[str, Any]:
    row = asdict(item)
    if item.attributes is not None:
        row["attributes"] = json.loads(item.attributes)
    return row


def _write_lines(output: Path, rows: Iterable[dict[str, Any]]) -> int:
    count = 0
    with atomic_write(output, "w") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _parquet(source: Source, output: Path) -> int:
    count = 0
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}.partial")
    try:
        with ItemWriter(partial) as writer:
            for item in source.items():
                writer.add(item)
                count += 1
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return count


# lm-evaluation-harness


def _lm_eval(source: Source, output: Path) -> int:
    """Write ``<name>.jsonl`` and, last, the ``<name>.yaml`` that makes a task of it."""
    delimiter = _delimiter(source)
    data = output / f"{source.name}.jsonl"
    count = _write_lines(data, (_lm_eval_row(item, delimiter) for item in source.items()))
    with atomic_write(output / f"{source.name}.yaml", "w") as stream:
        stream.write(_lm_eval_yaml(source, data, delimiter))
    return count


def _delimiter(source: Source) -> str:
    """Return what stands before every continuation: one space, or nothing where one of them begins otherwise."""
    for item in source.items():
        if any(text[:1] != " " for text in item.continuations):
            return ""
    return " "


def _lm_eval_row(item: Item, delimiter: str) -> dict[str, Any]:
    return {
        "id": item.id,
        "group": item.group,
        "context": item.context,
        "choices": [text[len(delimiter) :] for text in item.continuations],
        "gold": item.gold,
    }


def _lm_eval_yaml(source: Source, data: Path, delimiter: str) -> str:
    """Return a task's configuration. Columns are named, not put into templates, so no text is interpreted."""
    import yaml

    metrics = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
    task: dict[str, Any] = {
        "task": task_name(source.name),
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data.resolve())}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "context",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "target_delimiter": delimiter,
        "num_fewshot": 0,
        "metric_list": metrics,
        "metadata": _metadata(source),
    }
    head = (
        f"# {source.name}, written by llmc. Run it with\n"
        f"#   lm_eval --include_path {data.parent.resolve()} --tasks {task['task']} ...\n"
        "# The prompts hold their worked examples already: leave num_fewshot at 0. data_files is an absolute path;\n"
        "# correct it when the folder moves.\n"
    )
    return head + yaml.safe_dump(task, sort_keys=False, allow_unicode=True)


def task_name(name: str) -> str:
    """Return a benchmark's name as lm-eval takes it: ``@`` and ``.`` would not do there."""
    return "llmc_" + "".join(letter if letter.isalnum() else "_" for letter in name)


def _metadata(source: Source) -> dict[str, Any]:
    entry = source.entry
    found: dict[str, Any] = {"version": 1.0, "benchmark": source.name}
    if entry is not None:
        found |= {
            "bin_sha256": entry.files["bin"].sha256,
            "source": entry.source.hf or entry.source.path,
            "revision": entry.source.revision,
            "licence": entry.licence,
        }
    return {key: value for key, value in found.items() if value is not None}
