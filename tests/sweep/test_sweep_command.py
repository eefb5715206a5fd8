"""`llmc sweep` with a stand-in engine: what runs, what does not run again, and what a failure leaves alone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from helpers import letter_tasks
from llmc import mcbin
from llmc.sweep.quantize import find_quantizer
from sweeping import Sweeping


def test_every_cell_gets_its_run_and_none_runs_twice(
    sweeping: Sweeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeping.model("one")
    sweeping.model("two")
    config = sweeping.config(models=["*.gguf"], axes={"kv": {"f16": "", "q8": "-ctk q8_0 -ctv q8_0"}}, baseline="one")
    first = sweeping.run(config, "--json")
    assert first.code == 0, first.out + first.err
    names = [cell["cell"] for cell in first.data["cells"]]
    assert names == [f"{m}/{b}/kv={kv}" for m in ("one", "two") for b in ("alpha", "beta") for kv in ("f16", "q8")]
    assert all(cell["correct"] is not None for cell in first.data["cells"])
    assert {cell["cell"] for cell in first.data["cells"] if cell["difference"] is not None} == set(names[4:])
    log = tmp_path / "calls"
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(log))
    again = sweeping.run(config, "--json")
    assert again.data == {**first.data, "updated": again.data["updated"]}
    assert not log.exists() and len(sweeping.records()) == 8


def test_flags_of_axes_reach_the_engine_and_split_the_cells(
    sweeping: Sweeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeping.model("one")
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(tmp_path / "calls"))
    axes = {"threads": {"t1": "-t 1", "t2": ["-t", 2]}, "batch": {"small": "-b 64"}}
    config = sweeping.config(models=["one.gguf"], benchmarks=["alpha.bin"], axes=axes, flags="-ngl 0")
    assert sweeping.run(config).code == 0
    calls = [json.loads(line)["argv"] for line in (tmp_path / "calls").read_text().splitlines()]
    scored = [" ".join(call) for call in calls if "alpha.bin" in " ".join(call)]
    assert len(scored) == 2
    for call, threads in zip(scored, ("1", "2"), strict=True):
        assert f"-ngl 0 -t {threads} -b 64" in call


@pytest.mark.parametrize("jobs", ["1", "3"])
@pytest.mark.parametrize(
    ("mode", "status"), [("cut=3", "untrusted"), ("exit=1", "untrusted"), ("signal=11", "untrusted")]
)
def test_a_failing_cell_stops_and_colours_no_other(
    sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch, mode: str, status: str, jobs: str
) -> None:
    for name in ("one", "two", "three"):
        sweeping.model(name)
    monkeypatch.setenv("FAKE_ENGINE", mode)
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "two.gguf")
    called = sweeping.run(sweeping.config(models=["*.gguf"], baseline="one"), "--jobs", jobs)
    assert called.code == 3
    assert sweeping.statuses() == {
        f"{model}/{bench}": status if model == "two" else "trusted"
        for model in ("one", "three", "two")
        for bench in ("alpha", "beta")
    }
    assert called.out.startswith(f"{status}: two/alpha")
    monkeypatch.setenv("FAKE_ENGINE", "")
    assert sweeping.run(sweeping.config(models=["*.gguf"], baseline="one")).code == 0
    assert set(sweeping.statuses().values()) == {"trusted"}
    assert len(sweeping.records()) == 8


def test_what_cannot_be_prepared_fails_its_own_cells_only(sweeping: Sweeping) -> None:
    """A damaged model, a damaged benchmark and a refused flag: each is recorded with its reason."""
    sweeping.model("good")
    (sweeping.folder / "broken.gguf").write_bytes((sweeping.folder / "good.gguf").read_bytes()[:5000])
    (sweeping.folder / "gamma.bin").write_bytes(b"\x03\0\0\0nothing")
    called = sweeping.run(sweeping.config(models=["*.gguf"]), "--json")
    assert called.code == 3
    by_name = {cell["cell"]: cell for cell in called.data["cells"]}
    assert {name: cell["status"] for name, cell in by_name.items()} == {
        f"{model}/{bench}": "trusted" if (model, bench != "gamma") == ("good", True) else "failed"
        for model in ("broken", "good")
        for bench in ("alpha", "beta", "gamma")
    }
    assert "broken.gguf" in by_name["broken/alpha"]["problem"] and "gamma.bin" in by_name["good/gamma"]["problem"]


def test_a_bug_in_one_cell_is_that_cells_failure(sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmc.sweep import work

    sweeping.model("one")
    real = work.run_cell

    def run_cell(cell: Any) -> Any:
        if cell.bench.name == "alpha":
            raise ZeroDivisionError("a bug")
        return real(cell)

    monkeypatch.setattr(work, "run_cell", run_cell)
    called = sweeping.run(sweeping.config(models=["one.gguf"]))
    assert called.code == 3
    assert sweeping.statuses() == {"one/alpha": "failed", "one/beta": "trusted"}
    assert "ZeroDivisionError" in (sweeping.map().cells["one/alpha"].error or {})["message"]


def test_no_engine_at_all_is_no_cell_failure(sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeping.model("one")
    called = sweeping.run(sweeping.config(models=["one.gguf"], engine="nowhere/llama-perplexity"))
    assert called.code == 2 and "nowhere/llama-perplexity" in called.err
    assert not (sweeping.out / "sweeps").exists()


def test_changed_questions_run_again_under_the_same_name(sweeping: Sweeping) -> None:
    sweeping.model("one")
    config = sweeping.config(models=["one.gguf"], benchmarks=["alpha.bin"])
    assert sweeping.run(config).code == 0
    mcbin.write(sweeping.folder / "alpha.bin", letter_tasks(15))
    called = sweeping.run(config, "--json")
    assert called.data["cells"][0]["tasks"] == 15 and len(sweeping.records()) == 2


def test_force_runs_everything_again(sweeping: Sweeping) -> None:
    sweeping.model("one")
    config = sweeping.config(models=["one.gguf"])
    sweeping.run(config)
    assert sweeping.run(config, "--force").code == 0 and len(sweeping.records()) == 4


def test_cells_that_left_the_configuration_leave_the_map(sweeping: Sweeping) -> None:
    sweeping.model("one")
    sweeping.model("two")
    sweeping.run(sweeping.config(models=["one.gguf", "two.gguf"]))
    assert sweeping.run(sweeping.config(models=["two.gguf"])).code == 0
    assert list(sweeping.statuses()) == ["two/alpha", "two/beta"]
    assert len(sweeping.records()) == 4


def test_a_lost_or_damaged_map_is_made_again_from_the_store(
    sweeping: Sweeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeping.model("one")
    config = sweeping.config(models=["one.gguf"])
    sweeping.run(config)
    before = {name: cell.run for name, cell in sweeping.map().cells.items()}
    (sweeping.out / "sweeps/small/cells.json").write_text("{ half")
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(tmp_path / "calls"))
    assert sweeping.run(config).code == 0
    assert {name: cell.run for name, cell in sweeping.map().cells.items()} == before
    assert not (tmp_path / "calls").exists()


def test_shards_are_disjoint_and_together_everything(sweeping: Sweeping) -> None:
    for number in range(4):
        sweeping.model(f"m{number}")
    config = sweeping.config(models=["*.gguf"], baseline="m0")
    seen: list[str] = []
    for part in ("1/3", "2/3", "3/3"):
        called = sweeping.run(config, "--shard", part, "--json")
        assert called.code in (0, 5)
        seen += [cell["cell"] for cell in called.data["cells"]]
    assert sorted(seen) == sorted(sweeping.statuses()) and len(seen) == len(set(seen)) == 8
    assert set(sweeping.statuses().values()) == {"trusted"}
    assert len(sweeping.records()) == 8


def test_a_shard_is_held_against_no_gate_and_the_whole_is(sweeping: Sweeping) -> None:
    for number in range(3):
        sweeping.model(f"m{number}")
    config = sweeping.config(models=["*.gguf"], baseline="m0", gate={"margin": 1})
    parts = [sweeping.run(config, "--shard", f"{part}/2", "--json") for part in (1, 2)]
    assert [part.code for part in parts] == [0, 0] and all(part.data["gate"] is None for part in parts)
    whole = sweeping.run(config, "--json")
    assert whole.code == 4 and whole.data["gate"]["outcome"] == "inconclusive"


@pytest.mark.parametrize("text", ["0/3", "4/3", "x/3", "3", "1/", "-1/2"])
def test_impossible_shards_are_refused(sweeping: Sweeping, text: str) -> None:
    sweeping.model("one")
    called = sweeping.run(sweeping.config(models=["one.gguf"]), f"--shard={text}")
    assert called.code == 2 and text in called.err


def test_gpus_are_pinned_one_place_to_a_cell(
    sweeping: Sweeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        sweeping.model(f"m{number}")
    monkeypatch.setenv("FAKE_ENGINE_LOG", str(tmp_path / "calls"))
    monkeypatch.setenv("FAKE_ENGINE", "slow=0.02")
    called = sweeping.run(sweeping.config(models=["*.gguf"]), "--gpus", "0+1,2+3")
    assert called.code == 0, called.err
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    scored = [call["env"] for call in calls if any("alpha.bin" in word for word in call["argv"])]
    assert {env["CUDA_VISIBLE_DEVICES"] for env in scored} == {"0,1", "2,3"}
    assert all(env["HIP_VISIBLE_DEVICES"] == env["CUDA_VISIBLE_DEVICES"] for env in scored)
    assert {cell.where for cell in sweeping.map().cells.values()} == {
        "CUDA_VISIBLE_DEVICES=0,1",
        "CUDA_VISIBLE_DEVICES=2,3",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--gpus", "0,1", "--jobs", "3"), "--jobs 3 with 2 places"), (("--gpus", "0;1"), "is no list of GPUs")],
)
def test_places_that_cannot_work_are_refused(sweeping: Sweeping, words: tuple[str, ...], said: str) -> None:
    sweeping.model("one")
    called = sweeping.run(sweeping.config(models=["one.gguf"]), *words)
    assert called.code == 2 and said in called.err


def test_jobs_run_side_by_side(sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        sweeping.model(f"m{number}")
    config = sweeping.config(models=["*.gguf"], benchmarks=["beta.bin"])
    monkeypatch.setenv("FAKE_ENGINE", "slow=0.15")
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "beta.bin")
    begin = time.monotonic()
    assert sweeping.run(config, "--jobs", "4").code == 0
    assert time.monotonic() - begin < 4 * 8 * 0.15
    assert len(sweeping.records()) == 4


@pytest.mark.parametrize(
    ("gate", "mode", "code"),
    [
        ({"margin": 30}, "", 0),
        ({"margin": 1}, "", 4),
        ({"margin": 1, "min_accuracy": 99}, "", 1),
        ({"margin": 30}, "wrong", 1),
        ({"margin": 30}, "cut=3", 3),
    ],
)
def test_the_gate_decides_unless_a_cell_has_no_score(
    sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch, gate: dict[str, float], mode: str, code: int
) -> None:
    sweeping.bench("alpha", 60)
    (sweeping.folder / "beta.bin").unlink()
    sweeping.model("one")
    sweeping.model("two")
    monkeypatch.setenv("FAKE_ENGINE", mode)
    monkeypatch.setenv("FAKE_ENGINE_ONLY", "two.gguf")
    if mode == "wrong":
        mcbin.write(sweeping.folder / "alpha.bin", letter_tasks(60, golds=[0]))
    called = sweeping.run(sweeping.config(models=["one.gguf", "two.gguf"], baseline="one", gate=gate), "--json")
    assert called.code == code
    assert called.data["gate"]["exit_code"] == code == called.data["exit_code"]


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ({"margin": 1}, "the gate asks for nothing"),
        ({"margin": 1, "baseline": "committed.json"}, "committed.json"),
        ({"margin": 1, "baseline": "another-sweep"}, "another-sweep"),
        ({"min_accuracy": 5, "axis": "bakend"}, "did you mean backend?"),
    ],
)
def test_a_gate_that_cannot_be_held_is_refused_before_anything_runs(
    sweeping: Sweeping, gate: dict[str, Any], said: str, words: tuple[str, ...]
) -> None:
    sweeping.model("one")
    called = sweeping.run(sweeping.config(models=["one.gguf"], gate=gate), *words)
    assert called.code == 2 and said in called.err and "sweep.yaml:1" in called.err
    assert not sweeping.records()


def test_a_gate_with_a_committed_baseline_is_held(sweeping: Sweeping) -> None:
    sweeping.model("one")
    assert sweeping.run(sweeping.config(models=["one.gguf"])).code == 0
    saved = sweeping.cli(
        "baseline", "save", *(path.parent for path in sweeping.records()), "-o", sweeping.folder / "b.json"
    )
    assert saved.code == 0
    config = sweeping.config(models=["one.gguf"], gate={"margin": 1, "baseline": "b.json"})
    called = sweeping.run(config, "--json")
    assert called.code == 0 and called.data["gate"]["outcome"] == "pass" and called.data["problems"] == []


LADDER: dict[str, Any] = {"base": "base.gguf", "quantize": ["Q8_0", "Q4_0"]}


class TestQuantized:
    @pytest.fixture(autouse=True)
    def _base(self, sweeping) -> None:
        sweeping.model("base")

    def models(self, sweeping) -> list[Path]:
        return sorted((sweeping.out / "sweeps/small/models").glob("[!.]*.gguf"))

    def test_a_ladder_is_made_scored_and_compared_with_its_base(self, sweeping) -> None:
        called = sweeping.run(sweeping.config(**LADDER), "--json")
        assert called.code == 0, called.out + called.err
        cells = {cell["cell"]: cell for cell in called.data["cells"]}
        assert list(cells) == [f"base{q}/{b}" for q in ("", "-Q8_0", "-Q4_0") for b in ("alpha", "beta")]
        assert {cell["baseline"] for name, cell in cells.items() if name.startswith("base-")} == {
            "base/alpha",
            "base/beta",
        }
        assert [path.name.split(".")[0] for path in self.models(sweeping)] == ["base-Q4_0", "base-Q8_0"]
        record = json.loads(next(p for p in sweeping.records() if "base-Q4_0" in str(p)).read_text())
        made = record["model"]["made_from"]
        assert made["type"] == "Q4_0" and made["quantizer"] == find_quantizer(None).identity
        assert made["imatrix_sha256"] is None and len(made["base_sha256"]) == 64

    def test_a_model_that_is_not_kept_is_gone_and_not_made_again(
        self, sweeping: Sweeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_QUANTIZE_LOG", str(tmp_path / "made"))
        config = sweeping.config(**LADDER, keep=False)
        assert sweeping.run(config).code == 0
        assert self.models(sweeping) == []
        assert (tmp_path / "made").read_text().split() == ["Q8_0", "Q4_0"]
        again = sweeping.run(config, "--json")
        assert again.code == 0 and again.data["trusted"] == 6
        assert (tmp_path / "made").read_text().split() == ["Q8_0", "Q4_0"]

    def test_another_imatrix_or_base_is_another_model(self, sweeping: Sweeping, tmp_path: Path) -> None:
        assert sweeping.run(sweeping.config(**LADDER, keep=False)).code == 0
        (tmp_path / "some.imatrix").write_bytes(b"data")
        assert sweeping.run(sweeping.config(**LADDER, keep=False, imatrix="some.imatrix")).code == 0
        assert len(sweeping.records()) == 6 + 4
        sweeping.model("base", padding=77)
        assert sweeping.run(sweeping.config(**LADDER, keep=False)).code == 0
        assert len(sweeping.records()) == 6 + 4 + 6

    @pytest.mark.parametrize(
        ("mode", "said"),
        [("failed", "requires an imatrix"), ("exit=3", "could not make"), ("mute", "could not make"), ("cut", "")],
    )
    def test_a_failed_quantization_leaves_no_model_behind(
        self, sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch, mode: str, said: str
    ) -> None:
        monkeypatch.setenv("FAKE_QUANTIZE", mode)
        called = sweeping.run(sweeping.config(**LADDER))
        assert called.code == 3
        assert self.models(sweeping) == [] and not list((sweeping.out / "sweeps/small/models").glob("*.tmp*"))
        statuses = sweeping.statuses()
        assert statuses["base/alpha"] == "trusted" and statuses["base-Q4_0/alpha"] == "failed"
        assert said in (sweeping.map().cells["base-Q4_0/alpha"].error or {})["message"]

    def test_a_full_disk_is_noticed_before_anything_is_written(
        self, sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import shutil

        monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000))
        called = sweeping.run(sweeping.config(**LADDER))
        assert called.code == 3 and "free" in (sweeping.map().cells["base-Q4_0/alpha"].error or {})["message"]
        assert self.models(sweeping) == []

    def test_an_unknown_type_is_refused_with_the_nearest(self, sweeping) -> None:
        called = sweeping.run(sweeping.config(base="base.gguf", quantize=["Q8_0", "Q4_O"]))
        assert called.code == 2 and "did you mean Q4_0" in called.err and "sweep.yaml:1: " in called.err

    def test_dry_run_says_what_each_cell_needs_and_makes_nothing(
        self, sweeping: Sweeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_QUANTIZE_LOG", str(tmp_path / "made"))
        config = sweeping.config(**LADDER)
        called = sweeping.run(config, "--dry-run", "--json")
        assert called.code == 0 and not (tmp_path / "made").exists() and not sweeping.records()
        cells = {cell["cell"]: cell for cell in called.data["cells"]}
        size = (sweeping.folder / "base.gguf").stat().st_size
        assert cells["base/alpha"]["disk_bytes"] == 0 and not cells["base/alpha"]["cached"]
        assert abs(cells["base-Q4_0/alpha"]["disk_bytes"] - size) < size / 2
        assert cells["base-Q4_0/alpha"]["memory_bytes"] > size and cells["base/alpha"]["tasks"] == 12
        sweeping.run(config)
        done = sweeping.run(config, "--dry-run", "--json")
        assert all(cell["cached"] for cell in done.data["cells"]) and done.data["disk_bytes"] == 0
