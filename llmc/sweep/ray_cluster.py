"""The executor for many machines: one Ray task a cell, its record and logs brought home.

Workers keep what they have prepared from one task to the next (``max_calls=0``). Ray runs a task again when its
machine or process is lost, or when the worker finds itself unfit (another engine, another model, a full disk); a run
that ended untrusted is a result, and is never repeated.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmc import __version__
from llmc.benchmarks.item import items_path
from llmc.errors import LlmcError, UsageError
from llmc.files import atomic_write, cache_dir, sha256_file
from llmc.runs.planned import Cell
from llmc.runs.record import RunRecord
from llmc.runs.settings import Settings
from llmc.runs.store import Store, discard, finish
from llmc.sweep.board import Board
from llmc.sweep.config import ExecutorConfig
from llmc.sweep.local import LOOK_SECONDS, STOP_SECONDS, stopped_by_signals
from llmc.sweep.matrix import CellSpec
from llmc.sweep.work import SYSTEM, Done, Planned, Workshop, describe, perform

RECORD = "record.json"
REACH_SECONDS = 10.0


class WorkerUnfit(Exception):
    """This worker cannot do what the sweep needs of it; another one, or a second try, may."""


@dataclass(frozen=True)
class Order:
    """What a worker is given. ``files`` are the benchmark and what lies beside it, name -> bytes."""

    cell: CellSpec
    settings: Settings
    bench_file: str
    bench_sha256: str
    llmc: str
    engine: str
    model_sha256: str


@dataclass(frozen=True)
class Parcel:
    """What a worker sends home: the end of the cell, and the files of its run."""

    done: Done
    files: dict[str, bytes]
    host: str


class RayExecutor:
    """Submits every cell without a trusted run to the cluster at ``config.address`` (None: one on this machine)."""

    def __init__(self, workshop: Workshop, config: ExecutorConfig) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError(
                "executor kind ray needs the ray package", "install it: pip install 'llmc-gguf[ray]'"
            ) from None
        self.ray: Any = ray
        self.workshop, self.config = workshop, config

    def run(self, board: Board) -> None:
        # Ray prints what it has to say of its workers on stdout, which is for results.
        with contextlib.redirect_stdout(sys.stderr), self._cluster(), stopped_by_signals(board):
            task = self.ray.remote(
                num_cpus=self.config.num_cpus,
                num_gpus=self.config.num_gpus,
                max_calls=0,
                max_retries=self.config.retries,
                retry_exceptions=[WorkerUnfit],
            )(work)
            benches: dict[str, Any] = {}
            pending: dict[Any, CellSpec] = {}
            while not board.stop.is_set():
                while (cell := board.take(wait=not pending)) is not None:
                    self._submit(cell, board, task, benches, pending)
                if not pending:
                    break
                ready, _ = self.ray.wait(list(pending), num_returns=1, timeout=LOOK_SECONDS)
                for each in ready:
                    cell = pending.pop(each)
                    self._bring_home(cell, each, board)
            self._cancel(pending, board)
        if board.failure is not None:
            raise board.failure

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[None]:
        ours = not self.ray.is_initialized()
        if ours:
            _require_reachable(self.config.address)
            try:
                self.ray.init(address=self.config.address, log_to_driver=False, include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UsageError(
                    f"no Ray cluster at {self.config.address or 'this machine'}: {error}",
                    "start one (`ray start --head`), or correct executor.address",
                ) from error
        try:
            yield
        finally:
            if ours:
                self.ray.shutdown()

    def _submit(
        self,
        cell: CellSpec,
        board: Board,
        task: Any,
        benches: dict[str, Any],
        pending: dict[Any, CellSpec],
    ) -> None:
        try:
            planned = self.workshop.plan(cell, self.workshop.planned_model(cell.model))
            if (known := self.workshop.known_run(planned)) is not None:
                board.end(cell, known)
                return
            bench = planned.bench
            if cell.bench not in benches:
                benches[cell.bench] = self.ray.put(_bench_files(bench.path))
            order = Order(
                cell=cell,
                # The file that is sent is the subset already; memory and paths are the worker's own.
                settings=replace(self.workshop.settings, limit=None, like_llama=None, memory_budget=None, source=None),
                bench_file=bench.path.name,
                bench_sha256=bench.facts.sha256,
                llmc=__version__,
                engine=_engine_of(planned),
                model_sha256=self.workshop.file(cell.model.ref).sha256,
            )
        except LlmcError as error:
            board.end(cell, Done("failed", None, describe(error), reused=False))
            return
        pending[task.remote(order, benches[cell.bench])] = cell

    def _bring_home(self, cell: CellSpec, ready: Any, board: Board) -> None:
        try:
            parcel: Parcel = self.ray.get(ready)
            done = self._unpack(cell, parcel)
            board.end(cell, done, parcel.host)
        except self.ray.exceptions.TaskCancelledError:
            board.end(cell, Done("interrupted", None, None, reused=False))
        except (self.ray.exceptions.RayError, WorkerUnfit) as error:
            cause = getattr(error, "cause", None) or error
            detail = {
                "kind": "infrastructure",
                "message": f"no worker could run it, after {self.config.retries} retries: {cause}".split("\n")[0],
                "remedy": "see `ray status` and the cluster's logs; the next `llmc sweep` tries again",
            }
            board.end(cell, Done("failed", None, detail, reused=False))

    def _unpack(self, cell: CellSpec, parcel: Parcel) -> Done:
        """Store a worker's run as if it had been made here: logs first, the record last."""
        if RECORD not in parcel.files:
            return parcel.done
        record = RunRecord.model_validate_json(parcel.files[RECORD])
        bench = self.workshop.bench_of(cell)
        if record.benchmark is not None:
            # The worker's copy is gone by now; the same file, by its checksum, is here.
            record = record.model_copy(
                update={"benchmark": record.benchmark.model_copy(update={"path": str(bench.path)})}
            )
        runs = Store(self.workshop.settings.out)
        folder = runs.new_folder(record.started, cell.model.name, bench.name, record.reuse_key or cell.id)
        try:
            for name, data in parcel.files.items():
                if name != RECORD:
                    with atomic_write(folder / name) as stream:
                        stream.write(data)
            finish(folder, record)
        except BaseException:
            discard(folder)
            raise
        return replace(parcel.done, run=folder)

    def _cancel(self, pending: dict[Any, CellSpec], board: Board) -> None:
        """Interrupt what still runs, and take in the records of the interrupted runs for a few seconds."""
        for each in pending:
            self.ray.cancel(each)
        until = time.monotonic() + STOP_SECONDS
        while pending and time.monotonic() < until:
            ready, _ = self.ray.wait(list(pending), num_returns=1, timeout=LOOK_SECONDS)
            for each in ready:
                self._bring_home(pending.pop(each), each, board)
        for cell in pending.values():
            board.end(cell, Done("interrupted", None, None, reused=False))


def _engine_of(planned: Planned) -> str:
    return planned.engine.probe.identity if isinstance(planned, Cell) else planned.scorer.identity_sha256


def _require_reachable(address: str | None) -> None:
    """Raise UsageError for a host and port where nobody answers: Ray would end this process over it."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto", "local", or none: Ray itself looks
    try:
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"no Ray cluster at {address}: {error.strerror or error}",
            "start one (`ray start --head`), or correct executor.address",
        ) from error


def _bench_files(path: Path) -> dict[str, bytes]:
    beside = (path, items_path(path), path.with_suffix(".json"))
    return {each.name: each.read_bytes() for each in beside if each.is_file()}


_workshops: dict[Settings, Workshop] = {}  # a worker process keeps them from one task to the next


def work(order: Order, files: dict[str, bytes]) -> Parcel:
    """Run one cell on a worker. Raises WorkerUnfit for what another worker, or another try, may do better."""
    host = socket.gethostname()
    try:
        workshop = _workshop(order.settings)
        _require_fit(order, workshop, host)
        _require_model(order, workshop, host)
        bench = _place_bench(order, files, host)
        if order.cell.model.recipe is not None:
            workshop.quantized().drop_all_but(order.cell.model, workshop.file(order.cell.model.ref))
        done = perform(replace(order.cell, bench=str(bench), suite=None), workshop)
        if done.error is not None and done.error["kind"] == SYSTEM:
            raise WorkerUnfit(f"{host}: {done.error['message']}")
        return Parcel(done, _pack(done), host)
    except OSError as error:
        raise WorkerUnfit(f"{host}: {error}") from error


def _workshop(settings: Settings) -> Workshop:
    """Return this process's workshop; runs are made in a temporary folder and leave it with their parcel."""
    if settings not in _workshops:
        out = tempfile.mkdtemp(prefix="llmc-ray-")
        atexit.register(shutil.rmtree, out, ignore_errors=True)
        _workshops[settings] = Workshop(replace(settings, out=Path(out)), cache_dir("sweep"))
    return _workshops[settings]


def _require_fit(order: Order, workshop: Workshop, host: str) -> None:
    if order.llmc != __version__:
        raise WorkerUnfit(f"{host} has llmc {__version__}, the sweep was started with {order.llmc}")
    try:
        if order.cell.engine.scorer == "logprobs":
            engine = workshop.scorer().identity_sha256
        else:
            engine = workshop.engine().probe.identity
    except LlmcError as error:
        raise WorkerUnfit(f"{host}: {error.what}") from error
    if engine != order.engine:
        raise WorkerUnfit(f"{host} has another engine ({engine[:12]}) than the sweep ({order.engine[:12]})")


def _require_model(order: Order, workshop: Workshop, host: str) -> None:
    try:
        found = workshop.file(order.cell.model.ref).sha256
    except LlmcError as error:
        raise WorkerUnfit(f"{host}: {error.what}") from error
    if found != order.model_sha256:
        raise WorkerUnfit(f"{host}: {order.cell.model.ref} has sha256 {found[:12]}, not {order.model_sha256[:12]}")


def _place_bench(order: Order, files: dict[str, bytes], host: str) -> Path:
    """Write the benchmark into this machine's cache, under its checksum, and check that."""
    folder = cache_dir("sweep-benchmarks", order.bench_sha256[:32])
    for name, data in files.items():
        if not (folder / name).is_file():
            with atomic_write(folder / name) as stream:
                stream.write(data)
    path = folder / order.bench_file
    if sha256_file(path) != order.bench_sha256:
        path.unlink()
        raise WorkerUnfit(f"{host}: the benchmark arrived with another checksum")
    return path


def _pack(done: Done) -> dict[str, bytes]:
    if done.run is None:
        return {}
    paths = [path for path in done.run.rglob("*") if path.is_file()]
    files = {str(path.relative_to(done.run)): path.read_bytes() for path in paths}
    shutil.rmtree(done.run, ignore_errors=True)
    return files
