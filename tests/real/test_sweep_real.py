"""Real ladders: known-answer models and SmolLM2 quantized again, each with a broken file among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers import Called, Cli, expected_correct, text_tasks
from llmc import mcbin
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.locate import EngineFiles

pytestmark = pytest.mark.real
QUESTIONS = 12
PADDING = 20_000  # a small vocabulary makes llama-perplexity lose its last lines at exit


@pytest.fixture(autouse=True)
def _engine(real_engine: EngineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMC_ENGINE", str(real_engine.binary))


def sweep(cli: Cli, folder: Path, *more: str, **keys: Any) -> Called:
    config = folder / "sweep.yaml"
    config.write_text(json.dumps({"name": "ladder", "benchmarks": ["*.bin"], **keys}))
    return cli("sweep", config, "--out", folder / "out", *more)


def by_cell(called: Called) -> dict[str, dict[str, Any]]:
    return {cell["cell"]: cell for cell in called.data["cells"]}


def test_known_accuracies_beside_a_broken_file(cli: Cli, tmp_path: Path) -> None:
    tasks = text_tasks(60, seed=11)
    mcbin.write(tmp_path / "texts.bin", tasks)
    letters = [tuple(6 - 0.5 * ((i + turn) % 26) for i in range(26)) for turn in (0, 5)]
    models = {f"m{turn}": KnownAnswerModel(letter_logits=each, padding=PADDING) for turn, each in enumerate(letters)}
    for name, model in models.items():
        model.write(tmp_path / f"{name}.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes((tmp_path / "m0.gguf").read_bytes()[:400_000])
    keys: dict[str, Any] = {"health_check": False, "baseline": "m0"}
    called = sweep(cli, tmp_path, "--json", models=["m0.gguf", "m1.gguf", "broken.gguf"], **keys)
    cells = by_cell(called)
    assert called.code == 3
    assert [name for name, cell in cells.items() if cell["status"] != "trusted"] == ["broken/texts"]
    for name, model in models.items():
        assert cells[f"{name}/texts"]["correct"] == expected_correct(model, tasks).count("1")
    assert sweep(cli, tmp_path, models=["m0.gguf", "m1.gguf"], **keys).code == 0


def test_the_scorer_is_an_axis_like_any_other(cli: Cli, tmp_path: Path) -> None:
    tasks = text_tasks(25, seed=3)
    mcbin.write(tmp_path / "texts.bin", tasks)
    model = KnownAnswerModel(padding=PADDING)
    model.write(tmp_path / "m.gguf")
    axes = {"by": {"engine": "", "scorer": {"scorer": "logprobs"}}}
    called = sweep(cli, tmp_path, "--json", models=["m.gguf"], axes=axes, health_check=False)
    right = expected_correct(model, tasks).count("1")
    assert called.code == 0, called.out + called.err
    assert [cell["correct"] for cell in called.data["cells"]] == [right, right]


@pytest.mark.slow
def test_a_real_ladder_with_one_broken_file(cli: Cli, tmp_path: Path, real_model: Path) -> None:
    """SmolLM2 again at Q8_0, Q5_0 and Q4_0, each deleted after use, and a copy with NaN in its weights."""
    keys: dict[str, Any] = {
        "base": {"model": str(real_model), "name": "smollm2"},
        "quantize": ["Q8_0", "Q5_0", "Q4_0"],
        "allow_requantize": True,
        "keep": False,
        "benchmarks": ["arc-easy-validation"],
        "limit": QUESTIONS,
        "flags": "-t 1",  # threads of two engines at once would wait for each other
    }
    data = bytearray(real_model.read_bytes())
    # The header stays whole, so that nothing is wrong before the model is asked something.
    for place in range(len(data) // 3, len(data) - 4096, 4096):
        data[place : place + 2048] = b"\xff" * 2048  # scales that are no numbers
    (tmp_path / "broken.gguf").write_bytes(data)
    called = sweep(cli, tmp_path, "--json", models=["broken.gguf"], **keys)
    cells = by_cell(called)
    assert called.code == 3, called.out
    expected = {f"smollm2{kind}/arc-easy-validation": "trusted" for kind in ("", "-Q8_0", "-Q5_0", "-Q4_0")}
    assert {name: cell["status"] for name, cell in cells.items()} == {
        **expected,
        "broken/arc-easy-validation": "untrusted",
    }
    sizes = [cells[name]["size"] for name in expected]
    assert sizes[1] > sizes[2] > sizes[3]
    for name in list(expected)[1:]:
        assert cells[name]["difference"] is not None and abs(cells[name]["difference"]) <= 0.5
    assert not list((tmp_path / "out/sweeps/ladder/models").glob("*.gguf"))
    reported = cli("report", "ladder", "--out", tmp_path / "out")
    assert reported.code == 3
    page = (tmp_path / "out/sweeps/ladder/report/index.html").read_text()
    assert page.index("broken/arc-easy-validation") < page.index("<h2>Models and benchmarks")
    assert sweep(cli, tmp_path, **keys).code == 0
