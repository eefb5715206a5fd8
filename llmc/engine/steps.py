"""Run the programs of an install one after the other: one log, live progress, one clear error."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from llmc import console
from llmc.errors import EngineError

COUNTER = re.compile(rb"^\[(\d+)/(\d+)\]")  # ninja's, see NINJA_STATUS
ERROR_LINE = re.compile(
    r"\berror\b|^E(RROR)?:|Expected sha256|Got |fatal|not found|No such file|Killed|No space", re.IGNORECASE
)
TICK_SECONDS = 1.0
GRACE_SECONDS = 5.0
QUOTED_LINES = 6

OTHER_BYTES = (
    "the package index in use serves other bytes than those this version of llmc was made with: check "
    "`pip config list`, clear pip's cache (`pip cache purge`), and do not use what it served"
)

# What the tools print -> what to do. The first pattern that is found in the log's end wins.
REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r"No space left on device",
        "make room, or set LLMC_CACHE to a folder on a larger disk",
    ),
    (
        r"Killed signal|signal terminated program cc1plus|out of memory|virtual memory exhausted",
        "the compiler ran out of memory: run again with `--jobs 1`",
    ),
    (
        r"connection broken|NewConnectionError|Name or service not known|name resolution|timed out|ProxyError"
        r"|CERTIFICATE_VERIFY|Network is unreachable",
        "the Python package index cannot be reached: check the network and pip's settings (`pip config "
        "list`; PIP_INDEX_URL names another index), or bring your own llama.cpp and name it in LLMC_ENGINE",
    ),
    (r"DO NOT MATCH THE HASHES|HashMismatch", OTHER_BYTES),
    (
        r"No matching distribution|from versions:",
        "the package index in use does not have it: check `pip config list`, or set PIP_INDEX_URL",
    ),
    (
        r"ensurepip is not available|No module named (ensurepip|venv)",
        "install Python's venv module (`apt install python3-venv`)",
    ),
    (
        r"CUDA Toolkit not found|Failed to find nvcc|CMAKE_CUDA_COMPILER",
        "install the CUDA toolkit and put nvcc on PATH (or set CUDACXX), or choose another --backend",
    ),
    (
        r"Could NOT find Vulkan|glslc|SPIRV-Headers",
        "install the Vulkan SDK (Debian: libvulkan-dev glslc spirv-headers), or choose another --backend",
    ),
    (
        r"hip-config\.cmake|hipblas|HIP and hipBLAS|rocm",
        "install ROCm with its development files and set HIP_PATH, or choose another --backend",
    ),
    (
        r"IntelSYCL|icpx|MKL",
        "install the oneAPI base toolkit and source its setvars.sh, or choose another --backend",
    ),
    (
        r"CMAKE_CXX_COMPILER|CMAKE_C_COMPILER|unable to execute|c\+\+17|C\+\+17|filesystem: No such",
        "install a C++17 compiler (g++ 9 or newer, clang 10 or newer), or name one in CC and CXX",
    ),
    (
        r"Manually-specified variables were not used|Unknown argument|Parse error in command line",
        "check the --cmake-arg values",
    ),
)


@dataclass(frozen=True)
class Steps:
    """Runs commands with one environment; all they print is appended to ``log``."""

    log: Path
    environment: dict[str, str]

    def run(self, title: str, command: Sequence[str], *, counted: bool = False) -> str:
        """Run one command to its end and return what it printed.

        Progress is shown under ``title``, by ninja's counter where the output has one (``counted``).
        EngineError when the command cannot start or fails; when the wait is interrupted, the command and
        its children are ended.
        """
        total = 1.0 if counted else None
        with self.log.open("ab") as log:
            log.write(f"\n== {title}\n$ {' '.join(command)}\n".encode("utf-8", "surrogateescape"))
            log.flush()
            start = log.tell()
            with self._started(title, command, log) as child, console.progress(title, total) as advance:
                assert child.stdout is not None
                for done, remark in _follow(child.stdout, log):
                    advance(done, remark)
                status = child.wait()
        output = self._output(start)
        if status != 0:
            raise self._failure(title, command, f"exit status {status}", output)
        return output

    @contextlib.contextmanager
    def _started(self, title: str, command: Sequence[str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        try:
            # A session of its own, so that compilers started by ninja can be ended with it.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        except OSError as failure:
            raise self._failure(title, command, str(failure.strerror), "") from None
        try:
            yield child
        except BaseException:
            _end(child)
            raise
        finally:
            if child.stdout is not None:
                child.stdout.close()

    def _output(self, start: int) -> str:
        with self.log.open("rb") as stream:
            stream.seek(start)
            return stream.read().decode("utf-8", "replace")

    def _failure(self, title: str, command: Sequence[str], how: str, output: str) -> EngineError:
        lines = [line.rstrip() for line in output.splitlines() if line.strip()]
        telling = [line for line in lines if ERROR_LINE.search(line)] or lines
        quoted = "".join(f"\n    {line[:300]}" for line in telling[-QUOTED_LINES:])
        tail = "\n".join(lines[-400:])
        remedy = next((text for pattern, text in REMEDIES if re.search(pattern, tail)), "read the log")
        return EngineError(f"{title}: {Path(command[0]).name}: {how}{quoted}\n  the whole log: {self.log}", remedy)


def _follow(stream: IO[bytes], log: IO[bytes]) -> Iterator[tuple[float, str]]:
    """Copy a command's output to the log; yield (share done, remark) on every line and every second."""
    share, remark, rest = 0.0, "", b""
    descriptor = stream.fileno()
    while True:
        # A compiler can be silent for a minute: progress must not stop with it.
        if not select.select([descriptor], [], [], TICK_SECONDS)[0]:
            yield share, remark
            continue
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return
        log.write(chunk)
        log.flush()
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[-4096:]
        for line in lines:
            if match := COUNTER.match(line):
                done, total = int(match[1]), int(match[2])
                share, remark = done / max(total, 1), f"{done} of {total}"
        yield share, remark


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a command and everything it started: politely, then at once."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        limit = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < limit:
            if child.poll() is not None and not _group_alive(child.pid):
                return
            time.sleep(0.05)


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
