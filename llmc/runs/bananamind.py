"""Run BananaMind Base Bench 1.1 on a GGUF model: the file from the gated Hub or from disk, the scorer, and resuming.

Everything of a run lies in one folder: the benchmark's texts too, which may stand nowhere else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from llmc import __version__, console, hub
from llmc.benchmarks import bananamind as bench
from llmc.benchmarks.item import ItemWriter
from llmc.errors import EngineError, FetchError, InputFileError, UsageError, os_error
from llmc.files import atomic_write, file_stamp, locked, read_cache, sha256_file
from llmc.findings import Finding, finding, has_error
from llmc.runs.kept import Kept
from llmc.runs.prepare import PreparedModel
from llmc.runs.scorer import PreparedScorer, check_scorer_health
from llmc.runs.settings import FirstTime
from llmc.scoring.job import MOST_SEQUENCES, Job
from llmc.scoring.job import Settings as ScoringSettings
from llmc.scoring.metrics import choose
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import score_items

CONFIG, PARTIAL, ITEMS, TERMS_FILE = "run_config.json", "partial_results.jsonl", "items.parquet", "TERMS.txt"
SCHEMA = "llmc.bananamind/1"
MOST_EXAMPLES = (MOST_SEQUENCES - 1) // bench.CHOICES
DEVICES = ("auto", "cpu", "gpu", "cuda", "metal", "vulkan")
ALWAYS = (
    "scored by llama.cpp on a GGUF model: by the card's own words only results of the official runner compare with "
    "each other"
)

AskToken = Callable[[str], str | None]


@dataclass(frozen=True)
class Options:
    """What was asked for. ``local_data`` is a file or folder instead of the Hub; ``limit`` the first so many records.

    ``batch_size`` are the examples evaluated together at most, ``device`` one of ``DEVICES``.
    """

    out_dir: Path
    local_data: Path | None = None
    dataset_id: str = bench.REPO
    revision: str = bench.REVISION
    limit: int | None = None
    resume: bool = False
    add_bos: bool = False
    tokenization: Literal["separate", "joint"] = "separate"
    threads: int | None = None
    batch_size: int = 8
    device: str = "auto"
    context: int | None = None
    health_check: bool = True

    def scoring(self) -> ScoringSettings:
        """Return the scorer's settings. Four continuations an example, and one sequence for what they share."""
        return ScoringSettings(
            tokenization=self.tokenization,
            bos="always" if self.add_bos else "never",
            context=self.context,
            threads=self.threads,
            gpu_layers=0 if self.device == "cpu" else None,
            max_sequences=bench.CHOICES * self.batch_size + 1,
        )


@dataclass(frozen=True)
class Source:
    """The data with where it is from, in the words of the report."""

    data: bench.Data
    described: dict[str, Any]

    def examples(self, limit: int | None) -> tuple[bench.Example, ...]:
        return self.data.examples[:limit]


@dataclass(frozen=True)
class Ran:
    """What came of a run: its configuration, an answer for each example (or fewer, when a finding is an error)."""

    config: dict[str, Any]
    examples: tuple[bench.Example, ...]
    items: tuple[ScoredItem, ...]
    findings: tuple[Finding, ...]
    health: dict[str, Any]

    @property
    def trusted(self) -> bool:
        return not has_error(self.findings)


# The data


def open_source(options: Options, ask_token: AskToken) -> Source:
    """Return the checked data; ``ask_token`` asks a person for a token, and returns None where nobody is there.

    From the Hub nothing but the official file is taken. Raises FetchError and InputFileError.
    """
    if options.local_data is not None:
        path = _local(options.local_data)
        data = bench.read(path)
        return Source(data, {"via": "local", "path": str(path), "sha256": data.sha256, "records": len(data.examples)})
    path, commit = _fetch(options, ask_token)
    if (digest := sha256_file(path)) != bench.SHA256:
        raise FetchError(
            f"{options.dataset_id} at {options.revision}: {bench.FILE} is not that of {bench.NAME} {bench.VERSION}: "
            f"SHA-256 {digest}, the official one is {bench.SHA256}",
            "leave out --dataset-id and --dataset-revision; for data of your own use --local-data",
        )
    data = bench.read(path)
    described = {"via": "hub", "repo": options.dataset_id, "revision": commit, "file": bench.FILE}
    return Source(data, {**described, "sha256": data.sha256, "records": len(data.examples)})


def _local(path: Path) -> Path:
    if path.is_dir():
        for inside in (path / bench.FILE, path / Path(bench.FILE).name):
            if inside.is_file():
                return inside
        raise InputFileError(f"{path} has no {bench.FILE}", "name the folder of the dataset, or the file itself")
    if not path.is_file():
        raise InputFileError(f"no such file or folder: {path}", "check the path given with --local-data")
    return path


def _fetch(options: Options, ask_token: AskToken) -> tuple[Path, str]:
    """Try HF_TOKEN, then the saved token, then ask."""
    given = os.environ.get("HF_TOKEN")
    try:
        return _download(options)
    except hub.HubRefused as refusal:
        refused = refusal
    if given:
        os.environ.pop("HF_TOKEN")
        try:
            return _download(options)
        except hub.HubRefused:
            pass  # the saved token, or none, does not open it either
        finally:
            os.environ["HF_TOKEN"] = given
    token = ask_token(f"{options.dataset_id} is gated. Token of an account that accepted its terms: ")
    if token is None:
        raise refused
    os.environ["HF_TOKEN"] = token
    return _download(options)


def _download(options: Options) -> tuple[Path, str]:
    listing = hub.list_files(options.dataset_id, options.revision, "dataset")
    file = listing.file(bench.FILE)
    return hub.download(options.dataset_id, bench.FILE, listing.revision, "dataset", file), listing.revision


# The run


def run(options: Options, source: Source, scorer: PreparedScorer, model: PreparedModel) -> Ran:
    """Score the examples in ``options.out_dir``, from where an interrupted run of the same stands with ``resume``.

    Raises UsageError when the folder holds another run, RefusedError for an example that the context cannot hold.
    """
    examples = source.examples(options.limit)
    config = _config(options, source, scorer, model, len(examples))
    folder = options.out_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise os_error(error, "make the folder", "name another with --out-dir") from error
    with locked(
        folder / ".lock", lambda: console.note(f"waiting for another llmc at work in {folder} ..."), remove=True
    ):
        _require_place(folder, config, options.resume)
        health: dict[str, Any] = {"checked": False, "reason": "--no-health-check"}
        unhealthy: list[Finding] = []
        if options.health_check:
            health, unhealthy = check_scorer_health(scorer, model, options.scoring(), FirstTime())
        if has_error(unhealthy):
            return Ran(config, examples, (), tuple(unhealthy), health)
        items, findings = _score(options, config, examples, scorer, model)
    return Ran(config, examples, items, (*findings, *_changes(model)), health)


def require_device(wanted: str, scorer: PreparedScorer) -> None:
    """Raise EngineError when the scorer's libllama is not built for a device."""
    has = scorer.binding.backend
    if wanted not in ("auto", "cpu", has) and not (wanted == "gpu" and has != "cpu"):
        backend = "cuda" if wanted == "gpu" else wanted
        raise EngineError(
            f"--device {wanted}: the scorer's libllama is built for {has}",
            f"run `llmc engine install --backend {backend}`, or use --device auto",
        )


def reasons(options: Options, data: bench.Data) -> list[str]:
    """Return why a run's results are not official ones; there is always one."""
    found = [ALWAYS]
    if options.limit is not None and options.limit < len(data.examples):
        found.append(f"limited to the first {options.limit} of {len(data.examples)} records")
    found += [f"the data is not the official file: {deviation}" for deviation in data.deviations]
    if options.tokenization != "separate":
        found.append("context and continuation are tokenized as one text, not each by itself")
    if options.add_bos:
        found.append("a BOS token is put before every context (--add-bos)")
    return found


def _config(
    options: Options, source: Source, scorer: PreparedScorer, model: PreparedModel, count: int
) -> dict[str, Any]:
    """Return what run_config.json holds; ``signature`` is all that can change a figure."""
    scoring = options.scoring()
    return {
        "schema": SCHEMA,
        "benchmark": bench.NAME,
        "version": bench.VERSION,
        "official": False,
        "non_official_because": reasons(options, source.data),
        "terms": bench.TERMS,
        "warnings": list(source.data.warnings),
        "llmc_version": __version__,
        "model": model.identity().model_dump(mode="json"),
        "scorer": scorer.identity().model_dump(mode="json"),
        "dataset": source.described,
        "signature": {
            "model sha256": model.sha256,
            "data sha256": source.data.sha256,
            "examples": count,
            "score_mode": "mean_logprob",
            "scorer": scorer.identity_sha256,
            **scoring.evaluated(),
            **scoring.computed(),
        },
    }


def _require_place(folder: Path, config: dict[str, Any], resume: bool) -> None:
    known = read_cache(folder / CONFIG)
    if known is None:
        if resume:
            raise UsageError(f"{folder} holds no run to resume", "leave out --resume to begin one")
        if (folder / PARTIAL).exists():
            raise UsageError(
                f"{folder} holds {PARTIAL}, and no {CONFIG} says of what run", "remove it, or name another --out-dir"
            )
        return
    if not resume:
        raise UsageError(f"{folder} holds a run already", "go on with it by --resume, or name another --out-dir")
    before = known.get("signature")
    before = before if isinstance(before, dict) else {}
    now = config["signature"]
    if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        told = ", ".join(f"{name} (was {before.get(name)}, is {now.get(name)})" for name in changed)
        raise UsageError(
            f"the run in {folder} cannot be resumed: {told}", "restore what has changed, or name another --out-dir"
        )


def _score(
    options: Options,
    config: dict[str, Any],
    examples: Sequence[bench.Example],
    scorer: PreparedScorer,
    model: PreparedModel,
) -> tuple[tuple[ScoredItem, ...], list[Finding]]:
    folder = options.out_dir
    kept = Kept(folder, config, names=(PARTIAL, CONFIG), line=lambda item: _line(examples[item.index], item), each=True)
    items = kept.take_up()
    for index, item in enumerate(items):
        if (item.index, item.id, item.gold) != (index, examples[index].id, examples[index].label):
            raise UsageError(f"{folder / PARTIAL}: line {index + 1} is not of this run", "name another --out-dir")
    try:
        with atomic_write(folder / TERMS_FILE, "w") as stream:
            stream.write(bench.TERMS + "\n")
    except OSError as error:
        raise os_error(error, "write", "name another folder with --out-dir, or make room") from error
    with ItemWriter(folder / ITEMS) as writer:
        for index, example in enumerate(examples):
            writer.add(example.item(index))
    job = Job(folder / ITEMS, options.scoring(), done=len(items))
    title = f"{model.short_name} on {bench.NAME} {bench.VERSION}"
    with console.progress(title, len(examples)) as advance, kept:

        def take(item: ScoredItem) -> None:
            kept.add(item)
            items.append(item)
            advance(len(items), f"{len(items)}/{len(examples)} examples")

        scored = score_items(job, model.facts, scorer.binding, folder, on_result=take, limits=scorer.limits)
    findings = list(scored.findings)
    if len(items) != len(examples) and not has_error(findings):
        findings.append(finding("scored-fewer", f"{len(items)} of {len(examples)} examples answered"))
    return tuple(items), findings


def _line(example: bench.Example, item: ScoredItem) -> str:
    """One line of partial_results.jsonl: the answer in the card's terms, and the scorer's figures."""
    choice = choose(item, "acc_per_token")
    assert choice is not None  # defined for every item
    answer = {
        **item.as_dict(),
        "category": example.category,
        "difficulty": example.difficulty,
        "label": example.label,
        "prediction": choice.chosen,
        "correct": choice.correct,
        "mean_logprobs": list(choice.scores),
        "official": False,
    }
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def _changes(model: PreparedModel) -> list[Finding]:
    try:
        same = tuple(file_stamp(path) for path in model.facts.parts) == model.stamps
    except OSError:
        same = False
    return [] if same else [finding("model-changed", f"{model.facts.path.name}: size, time or inode changed")]
