"""Quantized models made by the engine's own llama-quantize, whole or not at all, and known by their recipe.

llama-quantize exits 0 on some failures and leaves a file that looks like a model; so it writes to a temporary
name, and the file gets its own name only when its last lines say that all went well and its header agrees.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from llmc import console
from llmc.engine.gguf_model import ModelFacts, read_model
from llmc.engine.libraries import engine_libraries
from llmc.engine.locate import EngineFiles, identity, locate
from llmc.engine.process import Limits, run_process
from llmc.errors import EngineError, InputFileError, InterruptedRun, UsageError, did_you_mean
from llmc.files import sha256_cached
from llmc.runs.prepare import PreparedModel, prepare_model
from llmc.runs.record import content_key
from llmc.runs.settings import FirstTime
from llmc.sweep.sources import ModelSource, Recipe

PROGRAM = "llama-quantize"
FULL_PRECISION = ("F32", "F16", "BF16")
SPARE_BYTES = 64 << 20  # left free beside the file itself, for logs and records
_TYPES = re.compile(r"^\s+(?:\d+\s+or\s+)?(\w+)\s+:\s", re.MULTILINE)
_SIZE = re.compile(r"quant size\s*=\s*([0-9.]+) MiB")
_STEP = re.compile(rb"\[\s*(\d+)/\s*(\d+)\]")
_TAIL = 4000


@dataclass(frozen=True)
class Quantizer:
    """A llama-quantize: ``identity`` is over the program and its libraries, ``types`` are the names it takes."""

    path: Path
    identity: str
    types: tuple[str, ...]
    tells_size: bool

    def require_type(self, name: str) -> None:
        """Raise UsageError with the nearest type for one that this quantizer does not know."""
        if self.types and name.upper() not in (known.upper() for known in self.types):
            raise UsageError(
                f"{PROGRAM} knows no type {name}{did_you_mean(name.upper(), self.types)}",
                f"it knows {', '.join(self.types)}",
            )


def find_quantizer(engine: str | None) -> Quantizer:
    """Return the llama-quantize beside the engine in use; EngineError when there is none."""
    files = locate(engine)
    for folder in dict.fromkeys((files.binary.parent, Path(files.command[0]).parent)):
        path = folder / PROGRAM
        if path.is_file():
            binary = path.resolve()
            known = identity(EngineFiles((str(path),), binary, engine_libraries(binary), "beside the engine", None))
            said = _say([str(path), "--help"])
            types = dict.fromkeys(_TYPES.findall(said.partition("allowed quantization types")[2]))
            return Quantizer(path, known, tuple(types), "--dry-run" in said)
    raise EngineError(
        f"there is no {PROGRAM} beside {files.binary}",
        f"build it with llama.cpp (`cmake --build build --target {PROGRAM}`), or use the engine that "
        "`llmc engine install` builds",
    )


def _say(command: list[str]) -> str:
    """Return both streams of a short command, whatever its exit status."""
    with tempfile.TemporaryDirectory(prefix="llmc-quantize-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        run_process(command, stdout_log=out, stderr_log=err, limits=Limits(timeout=120.0))
        return out.read_text("utf-8", "replace") + err.read_text("utf-8", "replace")


def made_from(recipe: Recipe, base_sha256: str, quantizer: Quantizer) -> dict[str, Any]:
    """Return what identifies a quantized model without its file."""
    return {
        "base_sha256": base_sha256,
        "type": recipe.type,
        "imatrix_sha256": sha256_cached(recipe.imatrix) if recipe.imatrix else None,
        "quantizer": quantizer.identity,
    }


class Quantized:
    """The quantized models of a sweep, in one folder. Threads and processes share them through file locks."""

    def __init__(self, folder: Path, quantizer: Quantizer) -> None:
        self.folder, self.quantizer = folder, quantizer
        self._sizes: dict[str, int] = {}

    def planned(self, source: ModelSource, base: PreparedModel) -> PreparedModel:
        """Return the model as it will be, for planning and looking up: nothing is made, the path is the base's.

        Raises UsageError for a base that is quantized already when that was not allowed.
        """
        recipe = _recipe(source)
        if base.facts.quantization not in FULL_PRECISION and not recipe.allow_requantize:
            raise UsageError(
                f"{base.facts.path.name} is {base.facts.quantization} already, and quantizing again loses quality",
                "start from an F16, BF16 or F32 model, or say allow_requantize: true",
            )
        facts = replace(base.facts, size=self.size(source, base), quantization=recipe.type, tensor_types={})
        return PreparedModel(source.ref, facts, "", (), made_from(recipe, base.sha256, self.quantizer))

    def size(self, source: ModelSource, base: PreparedModel) -> int:
        """Return the bytes the file will take, as llama-quantize foretells them; the base's size if it does not."""
        path = self.path(source, base)
        if path.is_file():
            return path.stat().st_size
        if str(path) not in self._sizes:
            match = None
            if self.quantizer.tells_size:
                command = self._command(_recipe(source), base.facts.path, path)
                match = _SIZE.search(_say([command[0], "--dry-run", *command[1:]]))
            # Its figure is for the tensors; the vocabulary and other metadata stay as they are.
            head = max(0, base.facts.size - _tensor_bytes(base.facts))
            self._sizes[str(path)] = int(float(match[1]) * 2**20) + head if match else base.facts.size
        return self._sizes[str(path)]

    def path(self, source: ModelSource, base: PreparedModel) -> Path:
        key = content_key(made_from(_recipe(source), base.sha256, self.quantizer))
        return self.folder / f"{source.name}.{key[:10]}.gguf"

    @contextlib.contextmanager
    def use(self, source: ModelSource, base: PreparedModel) -> Iterator[PreparedModel]:
        """Make the model where it is missing, and hold it against deletion for the length of the block.

        Raises InputFileError when there is no room for it, EngineError when llama-quantize fails.
        """
        path = self.path(source, base)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock_file(path).open("a") as lock:
            self._hold(lock, source, base, path)
            made = prepare_model(str(path), FirstTime())
            yield replace(made, ref=source.ref, made_from=made_from(_recipe(source), base.sha256, self.quantizer))

    def _hold(self, lock: IO[str], source: ModelSource, base: PreparedModel, path: Path) -> None:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if path.is_file():
                return
            # A shared lock cannot become an exclusive one without being let go: hence the second look.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                self._make(source, base, path)

    def drop(self, source: ModelSource, base: PreparedModel) -> None:
        """Delete the model unless someone is using it."""
        self._drop(self.path(source, base))

    def drop_all_but(self, source: ModelSource, base: PreparedModel) -> None:
        """Delete every model of this folder that nobody is using, except one."""
        kept = self.path(source, base)
        for path in self.folder.glob("[!.]*.gguf"):
            if path != kept:
                self._drop(path)

    def _drop(self, path: Path) -> None:
        if not path.is_file():
            return
        with self._lock_file(path).open("a") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)

    @staticmethod
    def _lock_file(path: Path) -> Path:
        return path.with_name(f".{path.name}.lock")

    def _make(self, source: ModelSource, base: PreparedModel, path: Path) -> None:
        need, free = self.size(source, base) + SPARE_BYTES, shutil.disk_usage(self.folder).free
        if need > free:
            raise InputFileError(
                f"{source.name} takes {need / 1e9:.2f} GB, {self.folder} has {free / 1e9:.2f} GB free",
                "make room, choose another --out, or set keep: false to delete each model after its cells",
            )
        for stale in self.folder.glob(f".{path.stem}.*.tmp.gguf"):
            stale.unlink(missing_ok=True)  # of a process that was killed: this one holds the lock
        with tempfile.TemporaryDirectory(prefix="llmc-quantize-") as logs:
            temporary = self.folder / f".{path.stem}.{Path(logs).name[-8:]}.tmp.gguf"
            try:
                self._run(source, base, temporary, Path(logs))
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)

    def _run(self, source: ModelSource, base: PreparedModel, target: Path, logs: Path) -> None:
        recipe = _recipe(source)
        with console.progress(f"quantizing {source.name}", 1.0) as advance:

            def follow(stream: str, data: bytes) -> None:
                if steps := _STEP.findall(data):
                    advance(int(steps[-1][0]) / int(steps[-1][1]), "")

            outcome = run_process(
                self._command(recipe, base.facts.path, target),
                stdout_log=logs / "out",
                stderr_log=logs / "err",
                limits=Limits(stall=600.0),
                on_output=follow,
            )
        if outcome.ended_by == "interrupted":
            raise InterruptedRun(f"interrupted while quantizing {source.name}")
        said = "\n".join(_tail(logs / name) for name in ("out", "err"))
        if outcome.exit_code != 0 or outcome.ended_by != "itself" or "failed to" in said or not _SIZE.search(said):
            raise EngineError(
                f"{PROGRAM} could not make {source.name}: {_reason(said, outcome.exit_code)}", _remedy(said)
            )
        made = read_model(target)
        if made.parameters != base.facts.parameters or made.tokenizer_sha256 != base.facts.tokenizer_sha256:
            raise EngineError(
                f"{PROGRAM} made {source.name} with {made.parameters} of {base.facts.parameters} weights",
                "run it again; if it recurs, use another build of llama.cpp",
            )

    def _command(self, recipe: Recipe, base: Path, target: Path) -> list[str]:
        words = [str(self.quantizer.path)]
        if recipe.allow_requantize:
            words.append("--allow-requantize")
        if recipe.imatrix:
            words += ["--imatrix", str(recipe.imatrix)]
        return [*words, str(base), str(target), recipe.type]


def _recipe(source: ModelSource) -> Recipe:
    assert source.recipe is not None  # callers come here for models that have one
    return source.recipe


def _tensor_bytes(facts: ModelFacts) -> int:
    """Bytes of a model's tensors by llama.cpp's block sizes; 0 when a type is unknown."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    total = 0
    for name, weights in facts.tensor_types.items():
        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
        except KeyError:
            return 0
        total += weights // block * size
    return total


def _tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL))
        return stream.read().decode("utf-8", "replace")


def _reason(said: str, exit_code: int | None) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "failed" in line or "error" in line.lower()]
    return (telling or lines or [f"exit {exit_code}"])[0][-300:]


def _remedy(said: str) -> str:
    if "requires an imatrix" in said or "importance matrix" in said:
        return "give imatrix: a file made by llama-imatrix for this model, or another type"
    if "No space left" in said or "write error" in said.lower():
        return "make room on the disk, or set keep: false"
    return f"try it by hand: {PROGRAM} BASE.gguf OUT.gguf TYPE"
