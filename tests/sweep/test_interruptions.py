"""A sweep that is stopped, killed or doubled: what is done stays done, and the end is the same."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from llmc.runs.sweep_map import load_map
from sweeping import Sweeping

KILLS = 20


def results(sweeping: Sweeping, config: Path) -> list[dict[str, Any]]:
    """The final table: everything but when, where and how long."""
    called = sweeping.run(config, "--json")
    changing = ("run", "seconds", "engine_seconds", "tokens_per_second", "peak_rss")
    return [{k: v for k, v in cell.items() if k not in changing} for cell in called.data["cells"]]


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_keeps_what_is_done_and_goes_on_from_there(sweeping: Sweeping, tmp_path: Path, jobs: str) -> None:
    for number in range(4):
        sweeping.model(f"m{number}")
    config = sweeping.config(models=["*.gguf"])
    log = tmp_path / "calls"
    modes = {"FAKE_ENGINE": "hang=during,ignore-int", "FAKE_ENGINE_ONLY": "m2.gguf", "FAKE_ENGINE_LOG": str(log)}
    mark = tmp_path / "mark"
    child = sweeping.start(config, "--jobs", jobs, FAKE_ENGINE_MARK=str(mark), **modes)
    wait_for(mark.exists)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130, out + err
    statuses = sweeping.statuses()
    assert {statuses[f"m{n}/{b}"] for n in (0, 1) for b in ("alpha", "beta")} == {"trusted"}
    assert "interrupted" in (statuses["m2/alpha"], statuses["m2/beta"])
    assert "m2/alpha" in out
    log.unlink()
    assert sweeping.run(config).code == 0
    assert set(sweeping.statuses().values()) == {"trusted"}


def test_ctrl_c_in_the_health_check_is_no_failure(sweeping: Sweeping, tmp_path: Path) -> None:
    sweeping.model("one")
    config = sweeping.config(models=["one.gguf"], health_check=True)
    mark = tmp_path / "mark"
    child = sweeping.start(config, FAKE_ENGINE="hang=during", FAKE_ENGINE_ONLY="canary.bin", FAKE_ENGINE_MARK=str(mark))
    wait_for(mark.exists)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130 and "Traceback" not in err, out + err
    assert set(sweeping.statuses().values()) == {"interrupted", "pending"}


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_as_if_it_never_was(
    sweeping: Sweeping, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for number in range(5):
        sweeping.model(f"m{number}")
    sweeping.model("base")
    keys: dict[str, Any] = {"base": "base.gguf", "quantize": ["Q8_0", "Q4_0"], "keep": False}
    config = sweeping.config(models=["m*.gguf"], axes={"t": {"1": "-t 1", "2": "-t 2"}}, baseline="m0", **keys)
    chance = random.Random(5)
    # The longest of these waits lets two cells end, so that the work outlasts the kills.
    slow = {"FAKE_ENGINE": "slow=0.2", "FAKE_QUANTIZE": "slow=0.2"}
    file = sweeping.out / "sweeps/small/cells.json"
    for number in range(KILLS):
        before = file.stat().st_mtime_ns if file.exists() else None
        child = sweeping.start(config, "--jobs", "2", **slow)
        if number % 4 == 3:
            time.sleep(chance.uniform(0, 1))  # while it starts
        else:
            wait_for(lambda before=before: file.exists() and file.stat().st_mtime_ns != before)
            time.sleep(chance.uniform(0, 2.8))
        child.kill()
        child.communicate()
        assert child.returncode == -signal.SIGKILL, "it ended before it could be killed"
        for record in sweeping.records():
            json.loads(record.read_text())
        sweeping.map()
    assert 0 < len(sweeping.records()) < 32
    interrupted = results(sweeping, config)
    unbroken = Sweeping(sweeping.folder, sweeping.cli)
    sweeping.out.rename(tmp_path_factory.mktemp("first") / "out")
    assert results(unbroken, config) == interrupted
    assert all(cell["status"] == "trusted" for cell in interrupted) and len(interrupted) == 32
    models = sweeping.out / "sweeps/small/models"
    assert not list(models.glob("*.gguf")) and not list(models.glob(".*.tmp.gguf"))


def test_a_killed_sweep_loses_the_running_cell_alone(sweeping: Sweeping, tmp_path: Path) -> None:
    sweeping.model("one")
    sweeping.model("two")
    config = sweeping.config(models=["one.gguf", "two.gguf"])
    mark = tmp_path / "mark"
    child = sweeping.start(config, FAKE_ENGINE="hang=during", FAKE_ENGINE_ONLY="two.gguf", FAKE_ENGINE_MARK=str(mark))
    wait_for(mark.exists)
    child.kill()
    child.communicate()
    assert sweeping.statuses() == {
        "one/alpha": "trusted",
        "one/beta": "trusted",
        "two/alpha": "pending",
        "two/beta": "pending",
    }
    assert sweeping.run(config).code == 0
    assert len(sweeping.records()) == 4


def test_two_processes_at_once_share_the_work_and_spoil_nothing(sweeping: Sweeping, tmp_path: Path) -> None:
    for number in range(4):
        sweeping.model(f"m{number}")
    sweeping.model("base")
    keys: dict[str, Any] = {"base": "base.gguf", "quantize": ["Q8_0", "Q4_0"], "keep": False}
    config = sweeping.config(models=["m*.gguf"], **keys)
    log = tmp_path / "calls"
    children = [
        sweeping.start(config, "--json", FAKE_ENGINE="slow=0.01", FAKE_ENGINE_LOG=str(log), FAKE_QUANTIZE_LOG=str(log))
        for _ in range(2)
    ]
    ended = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0, 0], ended
    cells = [json.loads(out)["data"]["cells"] for out, _ in ended]
    assert cells[0] == cells[1]
    assert {cell["status"] for cell in cells[0]} == {"trusted"} and len(cells[0]) == 14
    scored = [line for line in log.read_text().splitlines() if "alpha.bin" in line or "beta.bin" in line]
    assert len(scored) == 14 == len(sweeping.records())


def test_a_failure_elsewhere_is_taken_as_it_is(sweeping: Sweeping, tmp_path: Path) -> None:
    """A process that waited for another's cell does not run it once more just because it failed."""
    sweeping.model("one")
    config = sweeping.config(models=["one.gguf"], benchmarks=["alpha.bin"])
    log, mark = tmp_path / "calls", tmp_path / "mark"
    modes = {"FAKE_ENGINE": "cut=3,slow=0.3", "FAKE_ENGINE_ONLY": "alpha.bin", "FAKE_ENGINE_LOG": str(log)}
    first = sweeping.start(config, FAKE_ENGINE_MARK=str(mark), **modes)
    wait_for(mark.exists)
    second = sweeping.start(config, **modes)
    for child in (first, second):
        child.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (3, 3)
    assert len(sweeping.records()) == 1


def test_the_map_survives_two_writers(tmp_path: Path) -> None:
    from threading import Thread

    from llmc.runs.sweep_map import CellState
    from llmc.sweep.state import SweepFolder

    cells = {f"c{i}": CellState(model="m", benchmark=f"b{i}", definition="d") for i in range(40)}
    folders = [SweepFolder(tmp_path, "s") for _ in range(4)]
    folders[0].begin({}, cells)

    def write(folder: SweepFolder, names: list[str]) -> None:
        for name in names:
            folder.update(name, {"status": "trusted", "run": name}, reused=False)

    parts = [list(cells)[i::4] for i in range(4)]
    threads = [Thread(target=write, args=pair) for pair in zip(folders, parts, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = load_map(tmp_path / "sweeps/s").cells
    assert {name: cell.run for name, cell in found.items()} == {name: name for name in cells}


def test_a_claim_excludes_another_process(tmp_path: Path) -> None:
    import subprocess
    import sys

    from llmc.sweep.state import SweepFolder

    code = (
        "import sys; from pathlib import Path; from llmc.sweep.state import SweepFolder\n"
        f"folder = SweepFolder(Path({str(tmp_path)!r}), 's')\n"
        "with folder.claims(): print(folder.claim('x'), folder.claim('y'))\n"
    )
    folder = SweepFolder(tmp_path, "s")
    with folder.claims():
        assert folder.claim("x")
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
        assert said == ["False", "True"]
        folder.release("x")
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
        assert said == ["True", "True"]
