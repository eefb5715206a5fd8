"""What becomes of output when stdout or stderr is closed, full, unread, narrow, or not in UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LLMC = f"{sys.executable} -m llmc"
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def shell(script: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which $llmc is the command; a pipeline fails with its first failing part."""
    line = f"set -o pipefail; llmc='{LLMC}'; {script}"
    environment = {**os.environ, "LLMC_PROGRESS": "", **variables}
    return subprocess.run(["bash", "-c", line], check=False, cwd=cwd, env=environment, capture_output=True, timeout=60)


def quiet(done: subprocess.CompletedProcess[bytes]) -> None:
    """No traceback, and no complaint of Python's own at its exit."""
    for word in (b"Traceback", b"internal error", b"Exception ignored"):
        assert word not in done.stdout + done.stderr, done.stderr.decode()


@pytest.mark.parametrize(
    "command",
    ["--version", "--help", "explain", "explain --json", "runs list", "runs list --json", "run --help", "bench list"],
)
class TestEveryKindOfOutput:
    def test_nobody_reads(self, command: str, tmp_path: Path) -> None:
        done = shell(f"$llmc {command} | true", tmp_path)
        quiet(done)
        assert done.returncode == 0 and not done.stderr

    def test_the_first_line_only(self, command: str, tmp_path: Path) -> None:
        done = shell(f"$llmc {command} | head -1", tmp_path)
        quiet(done)
        assert done.returncode == 0 and done.stdout

    @needs_full
    def test_no_room(self, command: str, tmp_path: Path) -> None:
        done = shell(f"$llmc {command} > /dev/full", tmp_path)
        quiet(done)
        assert done.returncode == 2
        assert b"No space left" in done.stderr

    @pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
    def test_closed(self, command: str, closed: str, tmp_path: Path) -> None:
        done = shell(f"$llmc {command} {closed}", tmp_path)
        quiet(done)
        assert done.returncode == 0


@pytest.mark.parametrize("redirection", ["2>&-", pytest.param("2>/dev/full", marks=needs_full), "2>&1 | true"])
def test_an_error_nobody_can_read_still_has_its_exit_code(redirection: str, tmp_path: Path) -> None:
    done = shell(f"$llmc inspect nothing.bin {redirection}", tmp_path)
    quiet(done)
    assert done.returncode == 2


@pytest.mark.parametrize("width", ["1", "40", "0", "x", "-5", "\u00b2", "999999999999"])
def test_any_width(width: str, tmp_path: Path) -> None:
    done = shell("$llmc explain; $llmc explain nonsense", tmp_path, COLUMNS=width, LINES=width)
    quiet(done)
    assert done.returncode == 2 and b"no-output" in done.stdout


@pytest.mark.parametrize("name", [b"caf\xc3\xa9 [red].bin", b"not\xffutf8.bin", b"two\nlines.bin"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("option", ["", "--json"])
def test_names_and_encodings_of_every_kind(name: bytes, encoding: str, option: str, tmp_path: Path) -> None:
    from helpers import letter_tasks
    from llmc import mcbin

    mcbin.write(tmp_path / os.fsdecode(name), letter_tasks(2))
    done = shell(f"$llmc inspect *.bin {option}", tmp_path, PYTHONIOENCODING=encoding)
    quiet(done)
    assert done.returncode == 0, done.stderr
    if option:
        assert json.loads(done.stdout.decode(encoding))["data"]["tasks"] == 2
    missing = shell(f"$llmc inspect x*.bin {option}", tmp_path, PYTHONIOENCODING=encoding)
    quiet(missing)
    assert missing.returncode == 2


def test_the_current_folder_is_gone(tmp_path: Path) -> None:
    done = shell("mkdir gone; cd gone; rmdir ../gone; $llmc doctor --json; $llmc exec -- true", tmp_path)
    quiet(done)
    assert done.returncode == 2 and b"folder has been deleted" in done.stderr


@pytest.mark.parametrize("style", ["plain", "off", "", "nonsense"])
def test_progress_styles(style: str, tmp_path: Path) -> None:
    from helpers import letter_tasks
    from llmc import mcbin

    mcbin.write(tmp_path / "two.bin", letter_tasks(2))
    done = shell("$llmc inspect two.bin", tmp_path, LLMC_PROGRESS=style)
    assert done.returncode == 0
    assert (b"reading two.bin" in done.stderr) == (style == "plain")
