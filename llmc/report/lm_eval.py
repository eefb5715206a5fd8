"""A run by the scorer in the shape lm-evaluation-harness writes, so that tools made for its files read llmc's runs.

Two files in a folder named by the model: ``results_<time>.json`` with the task's metrics, and
``samples_<task>_<time>.jsonl`` with one line an item. Names, keys and types are those of lm-eval 0.4.13
(loggers/evaluation_tracker.py, evaluator.py). What lm-eval would know and llmc does not is null, never invented:
there is no chat template, no seed that matters, and the documents are the items as they were scored.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from llmc.benchmarks.item import Item, items_from_bin, items_path, read_items
from llmc.errors import InputFileError, UsageError
from llmc.files import atomic_write, sha256_file
from llmc.runs.kept import read_items_jsonl
from llmc.runs.record import RunRecord, load_record
from llmc.scoring.metrics import choose
from llmc.scoring.results import ScoredItem

# llmc's rule -> the name lm-eval gives the same number.
METRICS = {"acc_raw": "acc", "acc_norm": "acc_norm", "acc_bytes": "acc_bytes", "acc_uncond": "acc_mutual_info"}
FILTER = "none"


@dataclass(frozen=True)
class Exported:
    results: Path
    samples: Path


def export_run(folder: Path, output: Path) -> Exported:
    """Write both files below ``output`` and return their paths.

    Raises UsageError for a run that has no per-option figures, InputFileError when its benchmark is no longer there.
    """
    record = load_record(folder)
    if record.result is None or record.items_file is None or record.benchmark is None or record.model is None:
        raise UsageError(
            f"{folder.name} has no log-probabilities to export",
            "score it with `llmc run --scorer logprobs` and export that run",
        )
    items = list(_items(record))
    scored = list(read_items_jsonl(folder / record.items_file))
    samples = [_sample(item, answer) for item, answer in zip(items, scored, strict=True)]
    stamp = datetime.fromisoformat(record.finished.replace("Z", "+00:00")).replace(tzinfo=None).isoformat()
    stamp = stamp.replace(":", "-")
    name = re.sub(r"[\"<>:/|\\?*\[\]]+", "__", record.model.ref)
    place = output / name
    paths = Exported(place / f"results_{stamp}.json", place / f"samples_{task_name(record)}_{stamp}.jsonl")
    with atomic_write(paths.samples, "w") as stream:
        for sample in samples:
            stream.write(json.dumps(sample, ensure_ascii=False) + "\n")
    with atomic_write(paths.results, "w") as stream:
        json.dump(_results(record, samples, name), stream, indent=2, ensure_ascii=False)
    return paths


def task_name(record: RunRecord) -> str:
    """The run's benchmark as lm-eval writes a task in a file name: letters, digits and underscores."""
    assert record.benchmark is not None
    return re.sub(r"\W", "_", record.benchmark.name)


def _items(record: RunRecord) -> Iterator[Item]:
    assert record.benchmark is not None
    path = Path(record.benchmark.path)
    try:
        same = sha256_file(path) == record.benchmark.sha256
    except OSError:
        same = False
    if not same:
        raise InputFileError(
            f"{path} is not the file that was scored", f"build {record.benchmark.name} again, into the same folder"
        )
    items = items_path(path)
    yield from read_items(items) if items.is_file() else items_from_bin(path)


def _sample(item: Item, answer: ScoredItem) -> dict[str, Any]:
    document = {
        "id": item.id,
        "group": item.group,
        "question": item.context,
        "choices": [text.removeprefix(" ") for text in item.continuations],
        "gold": item.gold,
    }
    pairs = [[str(option.sum_logprob), "False"] for option in answer.options]
    metrics = {}
    for rule, name in METRICS.items():
        choice = choose(answer, rule)
        if choice is not None:
            metrics[name] = 1.0 if choice.correct else 0.0
    return {
        "doc_id": item.index,
        "doc": document,
        "target": str(item.gold),
        "arguments": {
            f"gen_args_{i}": {"arg_0": item.context, "arg_1": text} for i, text in enumerate(item.continuations)
        },
        "resps": [[pair] for pair in pairs],
        "filtered_resps": pairs,
        "filter": FILTER,
        "metrics": list(metrics),
        "doc_hash": _hash(json.dumps(document, indent=2, ensure_ascii=False)),
        "prompt_hash": _hash(item.context),
        "target_hash": _hash(str(item.gold)),
        **metrics,
    }


def _results(record: RunRecord, samples: list[dict[str, Any]], sanitized: str) -> dict[str, Any]:
    assert record.model is not None and record.benchmark is not None
    task, count = task_name(record), len(samples)
    scores: dict[str, Any] = {"alias": task, "sample_len": count}
    names = samples[0]["metrics"]
    for name in names:
        mean = sum(sample[name] for sample in samples) / count
        scores[f"{name},{FILTER}"] = mean
        scores[f"{name}_stderr,{FILTER}"] = _standard_error(mean, count)
    source = record.benchmark.source or {}
    shots = int(source.get("shots") or 0)
    in_all = (record.benchmark.selection or {}).get("of", count)
    started, finished = (datetime.fromisoformat(t.replace("Z", "+00:00")) for t in (record.started, record.finished))
    hashes = (sample["doc_hash"] + sample["prompt_hash"] + sample["target_hash"] for sample in samples)
    return {
        "results": {task: scores},
        "group_subtasks": {task: []},
        "configs": {task: _task_config(record, task, shots, names)},
        "versions": {task: 1.0},
        "n-shot": {task: shots},
        "higher_is_better": {task: dict.fromkeys(names, True)},
        "n-samples": {task: {"original": in_all, "effective": count}},
        "config": _config(record),
        "git_hash": None,
        "date": started.timestamp(),
        "lm_eval_version": None,
        "task_hashes": {task: _hash("".join(hashes))},
        "model_source": "llmc",
        "model_name": record.model.ref,
        "model_name_sanitized": sanitized,
        "system_instruction": None,
        "system_instruction_sha": None,
        "fewshot_as_multiturn": None,
        "chat_template": None,
        "chat_template_sha": None,
        "start_time": started.timestamp(),
        "end_time": finished.timestamp(),
        "total_evaluation_time_seconds": str(record.timings.total if record.timings else 0.0),
    }


def _task_config(record: RunRecord, task: str, shots: int, metrics: Iterable[str]) -> dict[str, Any]:
    assert record.benchmark is not None
    source = record.benchmark.source or {}
    return {
        "task": task,
        "dataset_path": (source.get("source") or {}).get("hf"),
        "test_split": source.get("split"),
        "output_type": "multiple_choice",
        "target_delimiter": "",
        "num_fewshot": shots,
        "metric_list": [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in metrics],
        "metadata": {"version": 1.0, "benchmark_sha256": record.benchmark.sha256, "protocol": source.get("protocol")},
    }


def _config(record: RunRecord) -> dict[str, Any]:
    assert record.model is not None
    selection = (record.benchmark.selection if record.benchmark else None) or {}
    return {
        "model": "llmc",
        "model_args": {"pretrained": record.model.ref, **(record.scoring or {})},
        "model_num_parameters": record.model.parameters,
        "model_dtype": record.model.quantization,
        "model_revision": None,
        "model_sha": record.model.sha256,
        "batch_size": None,
        "batch_sizes": [],
        "device": record.engine.backend if record.engine else None,
        "use_cache": None,
        "limit": selection.get("tasks"),
        "bootstrap_iters": 0,
        "gen_kwargs": {},
        "random_seed": selection.get("seed"),
        "numpy_seed": None,
        "torch_seed": None,
        "fewshot_seed": None,
    }


def _standard_error(mean: float, count: int) -> float | str:
    """lm-eval's: the sample's standard deviation over the root of its size; "N/A" where that is not defined."""
    return math.sqrt(mean * (1 - mean) / (count - 1)) if count > 1 else "N/A"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
