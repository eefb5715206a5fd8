"""Runs in lm-eval's shape, read back with lm-eval's own functions."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from helpers import Cli, text_tasks
from llmc import mcbin

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("real_engine")]
LM_EVAL = "lm_eval==0.4.13"


@pytest.fixture(scope="module")
def lm_eval_utils(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """lm-eval's utils module alone: the package itself needs torch."""
    folder = tmp_path_factory.mktemp("lm-eval")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", LM_EVAL, "-d", str(folder)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip(f"{LM_EVAL} cannot be downloaded here")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extract("lm_eval/utils.py", folder)
    spec = importlib.util.spec_from_file_location("lm_eval_utils", folder / "lm_eval/utils.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        pytest.skip(f"lm-eval's utils need {error.name}")
    return module


def exported(cli: Cli, tmp_path: Path, model: Path, *more: str) -> tuple[dict[str, object], Path, Path]:
    mcbin.write(tmp_path / "bench.bin", text_tasks(30))
    words = ["-m", model, "-b", tmp_path / "bench.bin", "--out", tmp_path / "out", "--no-health-check", "--json"]
    run = cli("run", "--scorer", "logprobs", *words, *more)
    assert run.code == 0, run.out
    done = cli("runs", "export", run.data["runs"][0]["folder"], "--output", tmp_path / "export", "--json")
    assert done.code == 0, done.out
    return run.record, Path(done.data["results"]), Path(done.data["samples"])


def test_lm_evals_own_functions_find_and_name_the_files(
    cli: Cli, tmp_path: Path, known_model: Path, lm_eval_utils: ModuleType
) -> None:
    _, results, samples = exported(cli, tmp_path, known_model)
    names = [str(path) for path in results.parent.iterdir()]
    assert lm_eval_utils.get_latest_filename(lm_eval_utils.get_results_filenames(names)) == str(results)
    assert lm_eval_utils.get_sample_results_filenames(names) == [str(samples)]
    assert lm_eval_utils.get_file_task_name(samples.name) == "bench"
    assert lm_eval_utils.get_file_datetime(samples.name) == lm_eval_utils.get_file_datetime(
        results.name.replace(".json", ".jsonl")
    )
    body = json.loads(results.read_text())
    assert results.parent.name == lm_eval_utils.sanitize_model_name(body["model_name"])
    for line in samples.read_text().splitlines():
        sample = json.loads(line)
        document = json.dumps(sample["doc"], indent=2, ensure_ascii=False)
        assert sample["doc_hash"] == lm_eval_utils.hash_string(document)
        assert sample["prompt_hash"] == lm_eval_utils.hash_string(sample["arguments"]["gen_args_0"]["arg_0"])
    table = lm_eval_utils.make_table(body)
    assert "acc_norm" in table and "bench" in table


def test_the_figures_are_the_runs(cli: Cli, tmp_path: Path, known_model: Path) -> None:
    record, results, samples = exported(cli, tmp_path, known_model)
    metrics = record["metrics"]
    assert isinstance(metrics, dict)
    body = json.loads(results.read_text())
    scores = body["results"]["bench"]
    assert scores["acc,none"] == pytest.approx(metrics["acc_raw"])
    assert scores["acc_norm,none"] == pytest.approx(metrics["acc_norm"])
    p = scores["acc,none"]
    assert scores["acc_stderr,none"] == pytest.approx((p * (1 - p) / 29) ** 0.5)
    assert body["n-samples"] == {"bench": {"original": 30, "effective": 30}}
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [line["doc_id"] for line in lines] == list(range(30))
    assert sum(line["acc"] for line in lines) / 30 == pytest.approx(p)
    for line in lines:
        sums = [float(pair[0]) for pair in line["filtered_resps"]]
        assert line["acc"] == float(sums.index(max(sums)) == int(line["target"]))


def test_a_run_without_log_probabilities_is_refused(
    cli: Cli, tmp_path: Path, known_model: Path, fake_engine: Path
) -> None:
    mcbin.write(tmp_path / "bench.bin", text_tasks(6))
    words = ["-m", known_model, "-b", tmp_path / "bench.bin", "--out", tmp_path / "out", "--no-health-check", "--json"]
    run = cli("run", *words)
    assert run.code == 0, run.out
    refused = cli("runs", "export", run.data["runs"][0]["folder"], "--json")
    assert refused.code == 2 and "--scorer logprobs" in refused.error["remedy"]
