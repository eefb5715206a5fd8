"""The CI examples, run: their very shell steps, in a repository made for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from helpers import letter_tasks
from llmc import mcbin
from llmc.engine.known_answer import KnownAnswerModel
from llmc.files import configs_dir

EXAMPLES = configs_dir("ci")
WORKFLOW = Path(__file__).parents[2] / ".github/workflows/model-gate.yml"
SHIM = '#!/bin/sh\necho "$0 $*" >> "$CALLS"\n'


class Repository:
    """A repository as the README of the examples describes it, with a stand-in engine and two small benchmarks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "models").mkdir(parents=True)
        (root / "ci").mkdir()
        for name in ("sweep.yaml", "gate.yaml"):
            shutil.copy(EXAMPLES / name, root / "ci" / name)
        for name, tasks in (("arc-easy", 300), ("commonsense-qa", 240)):
            mcbin.write(root / f"ci/{name}.bin", letter_tasks(tasks, golds=[0, 0, 1]))
        sweep = (root / "ci/sweep.yaml").read_text()
        # Benchmarks of this test's own in the place of real ones; the known-answer model answers letters only.
        changed = sweep.replace("[arc-easy, commonsense-qa]", "[arc-easy.bin, commonsense-qa.bin]\nhealth_check: false")
        assert changed != sweep
        (root / "ci/sweep.yaml").write_text(changed)
        KnownAnswerModel().write(root / "models/candidate.gguf")
        self.bin = root / "bin"
        self.bin.mkdir()
        # Installing is another test's business; here it is only seen that it is asked for.
        self._program("pip", SHIM)
        run = f'exec "{sys.executable}" -m llmc "$@"\n'
        self._program("llmc", f'#!/bin/sh\nif [ "$1" = engine ]; then echo "$0 $*" >> "$CALLS"; exit 0; fi\n{run}')

    def _program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def shell(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "CALLS": str(self.root / "calls"),
            "GITHUB_STEP_SUMMARY": str(self.root / "summary.md"),
            **environment,
        }
        # As GitHub's runner does it.
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.root,
            env=variables,
            capture_output=True,
            text=True,
        )

    def save_baseline(self) -> None:
        """The commands of the README."""
        readme = (EXAMPLES / "README.md").read_text()
        block = readme.split("```sh\n")[1].split("```")[0]
        commands = [line for line in block.splitlines() if line.startswith("llmc ")]
        assert len(commands) == 2
        for command in commands:
            done = self.shell(command)
            assert done.returncode == 0, done.stdout + done.stderr
        assert (self.root / "ci/baseline.json").stat().st_size < 10_000


@pytest.fixture
def repository(tmp_path: Path, fake_engine: Path, own_cache: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.save_baseline()
    return made


def github_steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    steps: list[dict[str, Any]] = workflow["jobs"]["gate"]["steps"]
    return steps


def run_github(repository: Repository, **environment: str) -> dict[str, int]:
    """Run every step that has a script, as the runner would; return their exit codes."""
    codes: dict[str, int] = {}
    for step in github_steps():
        failed = any(codes.values())
        if "run" not in step or (failed and "!cancelled()" not in step.get("if", "")):
            continue
        done = repository.shell(step["run"], GITHUB_ACTIONS="true", LLMC_PROGRESS="plain", **environment)
        codes[step["name"]] = done.returncode
    return codes


OUTCOMES = [
    ("", 0, {"tests": "4", "failures": "0", "errors": "0"}),
    ("wrong", 1, {"tests": "4", "failures": "4", "errors": "0"}),
    ("exit=1", 3, {"tests": "2", "failures": "0", "errors": "2"}),
]


@pytest.mark.parametrize(("mode", "code", "junit"), OUTCOMES)
def test_the_github_workflow(repository: Repository, mode: str, code: int, junit: dict[str, str]) -> None:
    if mode:
        # The change: another model file, which does worse.
        KnownAnswerModel(padding=7).write(repository.root / "models/candidate.gguf")
    codes = run_github(repository, FAKE_ENGINE=mode, FAKE_ENGINE_ONLY="candidate.gguf")
    sweep = 3 if code == 3 else 0
    assert codes == {"Install": 0, "Score": sweep, "Gate": code, "Report": sweep}
    calls = (repository.root / "calls").read_text()
    assert "llmc-gguf[plots]" in calls and "engine install --cmake-arg=-DGGML_NATIVE=OFF" in calls
    suites = ElementTree.parse(repository.root / "out/gate.xml").getroot()
    assert {name: suites.get(name) for name in junit} == junit
    assert "gate: " in (repository.root / "summary.md").read_text()
    assert (repository.root / "out/report/index.html").is_file()


@pytest.mark.parametrize(("mode", "code", "junit"), OUTCOMES)
def test_the_gitlab_job(repository: Repository, mode: str, code: int, junit: dict[str, str]) -> None:
    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["model-gate"]
    if mode:
        KnownAnswerModel(padding=7).write(repository.root / "models/candidate.gguf")
    modes = {"FAKE_ENGINE": mode, "FAKE_ENGINE_ONLY": "candidate.gguf"}
    done = repository.shell("\n".join([*job["before_script"], *job["script"]]), **modes)
    assert done.returncode == code, done.stdout + done.stderr
    assert repository.shell("\n".join(job["after_script"])).returncode == 0
    suites = ElementTree.parse(repository.root / job["artifacts"]["reports"]["junit"]).getroot()
    assert {name: suites.get(name) for name in junit} == junit
    assert (repository.root / "report/index.html").is_file()


def test_the_workflow_keeps_what_it_says(repository: Repository) -> None:
    """Every path it uploads exists after it ran, and its actions are pinned to a version."""
    run_github(repository)
    steps = github_steps()
    assert all("@v" in step["uses"] for step in steps if "uses" in step)
    upload = next(step for step in steps if "upload-artifact" in step.get("uses", ""))
    for pattern in upload["with"]["path"].split():
        assert list(repository.root.glob(pattern)), pattern
