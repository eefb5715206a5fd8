"""Requests to stop, at every stage of ``llmc run``: soon over, exit 130, nothing left running or half-made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import letter_tasks
from llmc import mcbin
from llmc.engine.known_answer import KnownAnswerModel

# Which launch of the engine hangs: the benchmark files of the probe, the health check and the run.
STAGES = ["known.bin", "canary.bin", "questions.bin", "layout-check.bin"]
PATIENCE = 30.0


def begin(tmp_path: Path, stage: str, mode: str = "hang=loading") -> tuple[subprocess.Popen[bytes], Path]:
    """Start llmc in a folder of its own and return it once the engine hangs, with the log of engine calls."""
    mcbin.write(tmp_path / "questions.bin", letter_tasks(12))
    KnownAnswerModel().write(tmp_path / "model.gguf")
    mark, log = tmp_path / "mark", tmp_path / "calls"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    variables = {
        "FAKE_ENGINE": mode,
        "FAKE_ENGINE_ONLY": stage,
        "FAKE_ENGINE_MARK": str(mark),
        "FAKE_ENGINE_LOG": str(log),
        "TMPDIR": str(temporary),
    }
    words = [sys.executable, "-m", "llmc", "run", "-m", "model.gguf", "-b", "questions.bin", "--json", "--layout-check"]
    if stage != "canary.bin":
        words.append("--no-health-check")
    process = subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until = time.monotonic() + PATIENCE
    while not mark.exists():
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.02)
    return process, log


def alive(log: Path) -> list[int]:
    pids = [json.loads(line)["pid"] for line in log.read_text().splitlines()]
    return [pid for pid in pids if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


@pytest.mark.usefixtures("fake_engine", "own_cache")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("stage", STAGES)
def test_one_request_at_any_stage(stage: str, number: signal.Signals, tmp_path: Path) -> None:
    process, log = begin(tmp_path, stage)
    asked = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - asked < 5
    assert process.returncode == 130, err
    assert not err and json.loads(out)["status"] == "interrupted" and json.loads(out)["exit_code"] == 130
    assert not alive(log)
    assert not list((tmp_path / "tmp").iterdir())
    cached = list((tmp_path / "llmc-cache" / "probe").glob("*"))
    assert bool(cached) == (stage != "known.bin"), "what was interrupted says nothing about the engine"
    assert not list((tmp_path / "llmc-cache" / "health").glob("*"))
    records = [json.loads(path.read_text()) for path in tmp_path.glob("out/runs/*/record.json")]
    if stage in ("known.bin", "canary.bin"):
        assert not (tmp_path / "out").exists()
    else:
        (record,) = records
        assert record["status"] == "interrupted" and record["result"] is None
        assert any(path.stat().st_size for path in tmp_path.glob("out/runs/*/stderr.log")) or stage == "questions.bin"


@pytest.mark.usefixtures("fake_engine", "own_cache")
def test_requests_without_end_are_no_traceback(tmp_path: Path) -> None:
    process, log = begin(tmp_path, "questions.bin", "hang=loading,ignore-int,ignore-term")
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        if process.poll() is not None:
            break
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and b"Traceback" not in err
    assert not alive(log)


@pytest.mark.parametrize("at", [0.03, 0.1, 0.2, 0.4])
def test_a_request_while_llmc_starts(at: float, tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import llmc.__main__ as m; print(flush=True); m.main()", "doctor"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(at)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert b"Traceback" not in err
