"""Sweeps on a Ray cluster of this machine: cells are tasks, records come home, and only the unfit try again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import letter_tasks
from llmc import mcbin
from sweeping import Sweeping

pytest.importorskip("ray", reason="needs the ray package: pip install 'llmc-gguf[ray]'")
pytestmark = pytest.mark.slow

RAY: dict[str, Any] = {"kind": "ray", "num_cpus": 1, "retries": 2}


def run(sweeping: Sweeping, config: Path, **environment: str) -> tuple[int, dict[str, Any]]:
    """Run in a process of its own: Ray leaves threads and handlers behind in one that used it."""
    done = subprocess.run(
        [sys.executable, "-m", "llmc", "sweep", str(config), "--out", str(sweeping.out), "--json"],
        env={**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)["data"]


def test_cells_run_on_the_cluster_and_their_records_come_home(sweeping: Sweeping, tmp_path: Path) -> None:
    sweeping.model("base")
    sweeping.model("two")
    keys: dict[str, Any] = {"base": "base.gguf", "quantize": ["Q4_0"], "keep": False, "limit": 6}
    config = sweeping.config(models=["two.gguf"], executor=RAY, **keys)
    log = tmp_path / "calls"
    modes = {"FAKE_ENGINE_LOG": str(log), "FAKE_ENGINE": "exit=1", "FAKE_ENGINE_ONLY": "two.gguf"}
    code, data = run(sweeping, config, **modes)
    cells = {cell["cell"]: cell for cell in data["cells"]}
    assert code == 3, data
    assert {name: cell["status"] for name, cell in cells.items()} == {
        f"{model}/{bench}": "untrusted" if model == "two" else "trusted"
        for model in ("base", "base-Q4_0", "two")
        for bench in ("alpha", "beta")
    }
    record = json.loads(next(p for p in sweeping.records() if "base-Q4_0-alpha" in str(p)).read_text())
    assert record["model"]["made_from"]["type"] == "Q4_0" and record["counts"]["scored"] == 6
    assert Path(record["benchmark"]["path"]).is_file() and record["benchmark"]["selection"]["seed"] == 0
    folder = next(p for p in sweeping.records() if "base-Q4_0-alpha" in str(p)).parent
    assert (folder / "stdout.log").stat().st_size > 0
    assert all(cell.where for cell in sweeping.map().cells.values())
    calls = [" ".join(json.loads(line)["argv"]) for line in log.read_text().splitlines()]
    scored = [call for call in calls if "two.gguf" in call and "--multiple-choice" in call]
    assert len(scored) == 2, "an untrusted run is a result, not a reason to try again"
    assert len(sweeping.records()) == 6
    local = sweeping.config(models=["two.gguf"], **keys)
    again = sweeping.run(local, "--json")
    assert again.code == 0
    assert sum(cell["accuracy"] is not None for cell in again.data["cells"]) == 6 and len(sweeping.records()) == 8


@pytest.mark.skipif(sys.platform != "linux", reason="finds the worker through /proc")
def test_a_worker_that_is_killed_is_replaced(sweeping: Sweeping, fake_engine: Path, tmp_path: Path) -> None:
    """The engine's first run on alpha kills the worker that watches it, as a machine's end would."""
    sweeping.model("one")
    mark = tmp_path / "killed"
    real = fake_engine.with_name("llama-perplexity.real")
    fake_engine.rename(real)
    fake_engine.write_text(
        f"#!/bin/sh\nkill_worker() {{ touch {mark}; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); }}\n"
        f'case "$*" in *alpha.bin*) [ -e {mark} ] || kill_worker;; esac\n'
        f'exec {real} "$@"\n'
    )
    fake_engine.chmod(0o755)
    code, data = run(sweeping, sweeping.config(models=["one.gguf"], executor=RAY))
    assert mark.exists() and code == 0, data
    assert len(sweeping.records()) == 2


def test_a_worker_with_another_model_is_unfit(sweeping: Sweeping) -> None:
    """The model changes between the sweep's look at it and the worker's: no record may come of that."""
    from dataclasses import replace

    from llmc.sweep import ray_cluster
    from llmc.sweep.config import load_config
    from llmc.sweep.matrix import expand
    from llmc.sweep.run import Request

    sweeping.model("one")
    loaded, file = load_config(sweeping.config(models=["one.gguf"], executor=RAY))
    request = Request(loaded, file, expand(loaded, file), sweeping.out)
    workshop = request.workshop()
    cell = request.cells[0]
    bench = workshop.bench(cell.bench)
    order = ray_cluster.Order(
        cell=cell,
        settings=request.settings(),
        bench_file=bench.path.name,
        bench_sha256=bench.facts.sha256,
        llmc=ray_cluster.__version__,
        engine=workshop.engine().probe.identity,
        model_sha256=workshop.file(cell.model.ref).sha256,
    )
    files = ray_cluster._bench_files(bench.path)
    parcel = ray_cluster.work(order, files)
    assert parcel.done.status == "trusted" and "record.json" in parcel.files
    mcbin.write(sweeping.folder / "other.bin", letter_tasks(3))
    other = {bench.path.name: (sweeping.folder / "other.bin").read_bytes()}
    for wrong, files_sent in (
        (replace(order, model_sha256="0" * 64), files),
        (replace(order, engine="0" * 64), files),
        (replace(order, llmc="0.0"), files),
        (replace(order, bench_sha256="0" * 64), files),
        (replace(order, bench_sha256="1" * 64), other),
    ):
        with pytest.raises(ray_cluster.WorkerUnfit):
            ray_cluster.work(wrong, files_sent)


def test_a_cluster_that_is_not_there_is_a_plain_error(sweeping: Sweeping) -> None:
    sweeping.model("one")
    config = sweeping.config(models=["one.gguf"], executor={**RAY, "address": "127.0.0.1:1"})
    done = subprocess.run(
        [sys.executable, "-m", "llmc", "sweep", str(config), "--out", str(sweeping.out)],
        env={**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 2 and "no Ray cluster at 127.0.0.1:1" in done.stderr, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
