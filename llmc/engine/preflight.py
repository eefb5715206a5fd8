"""How many tokens every task takes, and which tasks llama.cpp would score wrongly, before a run.

With the llama-cpp-python binding the file is tokenized exactly as the engine does (``tokenizer_worker``).
Without it, or where it fails, bytes bound the tokens and string prefixes stand in for token prefixes; the
basis says which. Results are cached by content: the benchmark's hash, the tokenizer's, and the library's.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import llmc
from llmc import files
from llmc.console import Advance
from llmc.engine.binding import Binding
from llmc.engine.gguf_model import ModelFacts
from llmc.engine.tokenizer_worker import NO_COMMON_PREFIX, OPTION_PREFIX
from llmc.findings import Finding, finding
from llmc.mcbin import BinFacts, Reader, Task

CACHE_FORMAT = 1
LOAD_SECONDS = 120.0  # for starting up and reading a vocabulary from a slow disk
BYTES_PER_SECOND = 100_000  # a twentieth of what one core tokenizes; slower than this is stuck
EXTRA_TOKENS = 3  # beyond one token a byte: BOS, EOS and the space that SPM tokenizers put in front
STDERR_TAIL = 2000
NAMED_TASKS = 10  # in a finding's text; all are in the result

Basis = Literal["tokens", "bounds"]
_FLAGS = {"option-prefix": OPTION_PREFIX, "no-common-prefix": NO_COMMON_PREFIX}
# Tokenizers that rewrite text before they split it, possibly into more bytes.
_NORMALIZING = ("t5", "bert")


@dataclass(frozen=True)
class Preflight:
    """The tokens of a benchmark file under one model.

    ``required`` has, per task, the tokens llama.cpp needs in its context: the common prefix and what each
    option adds. ``longest_sequence`` is the longest single question + option, for the training context.
    ``hazards`` maps a finding's slug to the tasks (0-based) that it names. On the basis "bounds" tokens are
    upper bounds, ``required`` is None, hazards are tasks that may be affected, and ``reason`` says why.
    """

    basis: Basis
    longest_task: int
    longest_tokens: int
    longest_sequence: int
    mean_tokens: float
    total_tokens: int
    required: array[int] | None = field(default=None, repr=False)
    hazards: dict[str, list[int]] = field(default_factory=dict)
    reason: str = ""
    add_bos: bool | None = None
    add_eos: bool | None = None
    seconds: float = 0.0
    cached: bool = False

    def findings(self) -> list[Finding]:
        """Return a finding for every hazard and, on the basis "bounds", one that says so."""
        found = [
            finding(slug, f"{named_tasks(tasks)}{'' if self.basis == 'tokens' else ' (judged by text, not by tokens)'}")
            for slug, tasks in self.hazards.items()
        ]
        if self.basis == "bounds":
            found.append(finding("preflight-bounds-only", self.reason))
        return found


def preflight(
    bin_path: Path,
    model: ModelFacts,
    binding: Binding | None,
    *,
    facts: BinFacts,
    advance: Advance | None = None,
) -> Preflight:
    """Return the tokens and hazards of all tasks of a benchmark file.

    ``facts`` are those of ``mcbin.scan(bin_path)``. ``advance`` is told the tasks done. A binding that is
    absent, broken or crashes is no error: the result then rests on bounds and gives the reason.
    """
    start = time.monotonic()
    reason = "the llama-cpp-python binding is not installed"
    if binding is not None:
        entry = _cache_entry(facts, model, binding)
        if entry is not None and (known := _load(entry, facts)) is not None:
            return replace(known, cached=True, seconds=time.monotonic() - start)
        try:
            counted, said, raw = _tokenize(bin_path, model, binding, facts, advance)
        except _WorkerFailed as failure:
            reason = str(failure)
        else:
            if entry is not None:
                _store(entry, said, raw)
            return replace(counted, seconds=time.monotonic() - start)
    bounded = _bounds(bin_path, model, facts, reason)
    return replace(bounded, seconds=time.monotonic() - start)


class _WorkerFailed(Exception):
    """Why the tokenizer worker gave no result; for the record, never for the caller."""


def _tokenize(
    bin_path: Path, model: ModelFacts, binding: Binding, facts: BinFacts, advance: Advance | None
) -> tuple[Preflight, dict[str, Any], bytes]:
    limit = LOAD_SECONDS + facts.text_bytes / BYTES_PER_SECOND
    with tempfile.TemporaryDirectory(prefix="llmc-preflight-") as folder:
        result = Path(folder, "counts")
        said = _run_worker([str(model.path.resolve()), str(bin_path.resolve()), str(result)], binding, limit, advance)
        try:
            raw = result.read_bytes()
        except OSError as error:
            raise _WorkerFailed(f"the tokenizer left no result: {error.strerror}") from None
    counted = _counted(raw, said, facts)
    if counted is None:
        raise _WorkerFailed(f"the tokenizer counted {said.get('tasks')} of {facts.tasks} tasks")
    return counted, said, raw


def _run_worker(arguments: list[str], binding: Binding, limit: float, advance: Advance | None) -> dict[str, Any]:
    """Run the worker; return its summary line. Raises _WorkerFailed for every other ending."""
    root = Path(llmc.__file__).resolve().parents[1]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    variables["PYTHONPATH"] = os.pathsep.join((str(binding.site.resolve()), str(root)))
    variables["LLAMA_CPP_LIB_PATH"] = str(binding.lib.resolve())
    code = "import sys; from llmc.engine.tokenizer_worker import main; sys.exit(main())"
    timed_out = threading.Event()
    with tempfile.TemporaryFile() as errors:
        try:
            # The working folder is on the path of `python -c`: let it be one that holds no strange modules.
            child = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=Path(arguments[-1]).parent,
                env=variables,
            )
        except OSError as error:
            raise _WorkerFailed(f"the tokenizer could not be started: {error.strerror}") from None

        def stop() -> None:
            timed_out.set()
            child.kill()

        timer = threading.Timer(limit, stop)
        timer.daemon = True
        with child:
            timer.start()
            try:
                last = _last_message(child, advance)
                status = child.wait()
            finally:
                timer.cancel()
                child.kill()
        if timed_out.is_set():
            raise _WorkerFailed(f"the tokenizer was still at work after {limit:.0f} s")
        if status != 0 or "tasks" not in last:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - STDERR_TAIL))
            raise _WorkerFailed(_ending(status, last, errors.read().decode(errors="replace")))
    return last


def _last_message(child: subprocess.Popen[bytes], advance: Advance | None) -> dict[str, Any]:
    last: dict[str, Any] = {}
    assert child.stdout is not None
    while line := child.stdout.readline(STDERR_TAIL):
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            last = message
            if advance is not None and "done" in message:
                advance(message["done"], "")
    return last


def _ending(status: int, last: dict[str, Any], errors: str) -> str:
    if "error" in last:
        return f"the tokenizer failed: {last['error']}"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"the tokenizer was ended by {name}"
    lines = errors.strip().splitlines()
    return f"the tokenizer failed: {lines[-1] if lines else f'exit status {status}'}"


def _counted(raw: bytes, said: dict[str, Any], facts: BinFacts) -> Preflight | None:
    """Turn the worker's result into facts; None when it is not of this file's length."""
    tasks = facts.tasks
    required, longest = array("i"), array("i")
    width = required.itemsize
    if said.get("tasks") != tasks or len(raw) != tasks * (2 * width + 1):
        return None
    required.frombytes(raw[: tasks * width])
    longest.frombytes(raw[tasks * width : 2 * tasks * width])
    flags = raw[2 * tasks * width :]
    total = sum(required)
    most = max(required)
    hazards = {slug: [i for i, flag in enumerate(flags) if flag & bit] for slug, bit in _FLAGS.items()}
    return Preflight(
        basis="tokens",
        longest_task=required.index(most),
        longest_tokens=most,
        longest_sequence=max(longest),
        mean_tokens=total / tasks,
        total_tokens=total,
        required=required,
        hazards={slug: found for slug, found in hazards.items() if found},
        add_bos=said.get("add_bos"),
        add_eos=said.get("add_eos"),
    )


def _cache_entry(facts: BinFacts, model: ModelFacts, binding: Binding) -> Path | None:
    """Return where the result for these contents is kept; None when there is no library to name."""
    library = binding.libllama()
    if library is None:
        return None
    versions = sorted(path.name for path in binding.site.glob("llama_cpp_python-*.dist-info"))
    parts = [str(CACHE_FORMAT), facts.sha256, model.tokenizer_sha256, files.sha256_cached(library), *versions]
    return files.cache_dir("preflight", hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32] + ".json")


def _load(entry: Path, facts: BinFacts) -> Preflight | None:
    said = files.read_cache(entry)
    try:
        raw = entry.with_suffix(".counts").read_bytes()
    except OSError:
        return None
    if said is None or hashlib.sha256(raw).hexdigest() != said.get("sha256"):
        return None
    return _counted(raw, said, facts)


def _store(entry: Path, said: dict[str, Any], raw: bytes) -> None:
    try:
        with files.atomic_write(entry.with_suffix(".counts")) as out:
            out.write(raw)
    except OSError:
        return  # a full or read-only disk costs the next run some time, nothing else
    files.write_cache(entry, {**said, "sha256": hashlib.sha256(raw).hexdigest()})


def _bounds(bin_path: Path, model: ModelFacts, facts: BinFacts, reason: str) -> Preflight:
    """Bound tokens by bytes: no tokenizer of llama.cpp makes more than one token of a byte of its input.

    Tokenizers that normalize first (t5, bert) may tokenize more bytes than the file has; the reason says so.
    """
    longest_task = longest_tokens = longest_sequence = total = 0
    hazards: dict[str, list[int]] = {}
    for index, task in enumerate(Reader(bin_path)):
        stem = len(task.question.encode()) + 1 + EXTRA_TOKENS
        lengths = [stem + len(option.encode()) for option in task.options]
        tokens = sum(lengths)
        total += tokens
        longest_sequence = max(longest_sequence, *lengths)
        if tokens > longest_tokens:
            longest_task, longest_tokens = index, tokens
        for slug in text_hazards(task, model.add_bos):
            hazards.setdefault(slug, []).append(index)
    if model.tokenizer_model in _NORMALIZING:
        reason += f"; a {model.tokenizer_model} tokenizer rewrites text, so that bytes are no strict bound"
    return Preflight(
        basis="bounds",
        longest_task=longest_task,
        longest_tokens=longest_tokens,
        longest_sequence=longest_sequence,
        mean_tokens=total / facts.tasks,
        total_tokens=total,
        hazards=hazards,
        reason=reason,
        add_bos=model.add_bos,
        add_eos=model.add_eos,
    )


def text_hazards(task: Task, add_bos: bool | None = None) -> Iterator[str]:
    """Yield the hazards that a task may have, judged by its text alone.

    An option whose tokens are a prefix of all others' is a string prefix of them too, so none is missed, but
    some are named that tokenize apart ("cat" and "cats"). Nothing but white space before the options may
    leave them without a common first token, unless the model puts BOS there.
    """
    shortest = min(task.options, key=len)
    if all(option.startswith(shortest) for option in task.options):
        yield "option-prefix"
    if not add_bos and not task.question.strip():
        yield "no-common-prefix"


def named_tasks(tasks: list[int]) -> str:
    named = ", ".join(map(str, tasks[:NAMED_TASKS]))
    more = f" and {len(tasks) - NAMED_TASKS} more" if len(tasks) > NAMED_TASKS else ""
    return f"{len(tasks)} task{'s' * (len(tasks) != 1)}: {named}{more}"
