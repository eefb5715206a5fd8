"""Every shipped sweep: it is read, expands to cells, and runs once its models and benchmarks are there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from helpers import letter_tasks
from llmc import hub, mcbin
from llmc.engine.known_answer import KnownAnswerModel
from llmc.files import configs_dir
from llmc.sweep.config import load_config
from llmc.sweep.matrix import expand
from llmc.sweep.run import Request
from sweeping import Sweeping

EXAMPLES = sorted(configs_dir("sweeps").glob("*.yaml"))
CELLS = {"quantization-ladder": 21, "published-files": 12, "kv-cache": 6, "gpus": 6, "gate": 4, "suite": 18}
SUITES = ("suite",)  # scored by log-probabilities: tests/real runs it


MODELS = {"suite": ["model-f16.gguf", "model-Q8_0.gguf"]}


def test_all_examples_are_tested() -> None:
    assert {path.stem for path in EXAMPLES} == set(CELLS)


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(request: pytest.FixtureRequest, sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example in a folder that has the models it names."""
    path = Path(shutil.copy(request.param, sweeping.folder))
    text = path.read_text()
    (sweeping.folder / "models").mkdir()
    for name in MODELS.get(path.stem) or re.findall(r"models/(model-[\w.-]+\.gguf)", text) or ["a.gguf", "b.gguf"]:
        KnownAnswerModel(padding=len(name)).write(sweeping.folder / "models" / name)
    files = tuple(hub.RepoFile(f"x-{label}.gguf", 1, None) for label in ("Q8_0", "Q5_K_M", "Q4_K_M"))
    monkeypatch.setattr(hub, "list_files", lambda repo, revision: hub.Listing(repo, "model", revision, "c0", files))
    return path


def test_it_expands_and_its_keys_are_explained(example: Path) -> None:
    config, file = load_config(example)
    assert config.name == example.stem
    assert len(expand(config, file).cells) == CELLS[example.stem]
    assert example.read_text().startswith("# ")
    Request(config, file, expand(config, file), example.parent / "out").slots()


def test_it_runs_with_small_models_and_questions(example: Path, sweeping: Sweeping) -> None:
    """Own benchmarks for the catalogue's, types the stand-in quantizer knows, local files for remote ones."""
    if example.stem in SUITES:
        pytest.skip("needs the real scorer: tests/real/test_sweep_suites.py runs it")
    text = example.read_text()
    for name in ("arc-easy", "commonsense-qa", "boolq"):
        mcbin.write(sweeping.folder / f"{name}.bin", letter_tasks(30))
        text = re.sub(rf"(benchmarks: \[.*?)\b{name}\b(?!\.bin)", rf"\g<1>{name}.bin", text)
    text = re.sub(r"quantize: \[.*?\]", "quantize: [Q8_0, Q4_0]", text)
    text = re.sub(r"  - hf: .*\n    labels: .*\n", "", text)
    text = re.sub(r"model: pypi:\S+\.gguf", "model: models/a.gguf", text).replace("models/*.gguf", "models/b.gguf")
    text = text.replace("baseline: SmolLM2-1.7B-Instruct-Q8_0", "baseline: SmolLM2-135M").replace(
        "arc-easy-validation:", "arc-easy:"
    )
    text = text.replace("min_accuracy: 60", "min_accuracy: 1").replace("margin: 2.0", "margin: 40")
    example.write_text(f"{text}\nhealth_check: false\n")
    called = sweeping.run(example, "--json")
    assert called.code == 0, called.out + called.err
    assert called.data["trusted"] == len(called.data["cells"]) >= 2
