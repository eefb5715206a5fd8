"""What this machine has for running llmc, as a list of checks: facts, a judgement, and what to do."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from llmc import __version__
from llmc.errors import LlmcError, os_error
from llmc.files import cache_dir, is_file

Level = Literal["ok", "note", "missing"]

PACKAGES = ("datasets", "gguf", "huggingface_hub", "numpy", "pydantic", "pyyaml", "rich", "typer")
HUB_VARIABLES = (
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HF_DATASETS_OFFLINE",
)
INDEX_VARIABLES = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_FIND_LINKS",
    "PIP_CONFIG_FILE",
)
OWN_VARIABLES = ("LLMC_CACHE", "LLMC_ENGINE", "LLMC_BINDING", "LLMC_PROGRESS", "LLMC_DEBUG")
LOW_DISK_BYTES = 2e9
IMPORT_SECONDS = 60.0


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``missing`` keeps ``llmc run`` from working; ``note`` is worth knowing."""

    name: str
    level: Level
    detail: str
    remedy: str = ""


def checks() -> Iterator[Check]:
    """Yield every check of this machine, each as soon as it is done."""
    parts: tuple[Callable[[], Iterator[Check]], ...] = (
        _python,
        _engine,
        _installed_engines,
        _binding,
        _build_tools,
        _hardware,
        _caches,
        _llama_settings,
        _variables,
    )
    for part in parts:
        try:
            yield from part()
        except OSError as failure:
            told = os_error(failure, "read or write")
            yield Check(part.__name__.strip("_").replace("_", " "), "missing", told.what, told.remedy)


def _python() -> Iterator[Check]:
    from importlib import metadata

    yield Check("llmc", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield Check("Python", "ok", f"{platform.python_version()}, {sys.executable}, {platform.platform()}")
    found, absent = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            absent.append(name)
    if absent:
        remedy = f"`{sys.executable} -m pip install {' '.join(absent)}`"
        yield Check("packages", "missing", f"not installed: {', '.join(absent)}", remedy)
    yield Check("packages", "ok", ", ".join(found))


def _engine() -> Iterator[Check]:
    from llmc.engine.locate import locate
    from llmc.engine.probe import probe

    try:
        files = locate()
        command = f"{' '.join(files.command)} (found by: {files.found_by})"
        result = probe(files)
    except LlmcError as failure:
        yield Check("engine", "missing", failure.what, failure.remedy)
        return
    if not result.usable:
        yield Check("engine", "missing", f"{command}: {result.reason}", "`llmc engine install`")
        return
    devices = ", ".join(result.devices) or "CPU only"
    yield Check("engine", "ok", f"{command}: {result.flavour}, version {result.version or 'unknown'}, {devices}")
    yield Check("known answers", "ok", "this engine scores questions with known answers as computed by hand")


def _installed_engines() -> Iterator[Check]:
    from llmc.engine.install import flaw
    from llmc.engine.locate import engines_dir, installed

    engines = installed()
    for engine in engines:
        problem = flaw(engine)
        remedy = f"`llmc engine install --backend {engine.backend}`" if problem else ""
        detail = f"{engine.name}: {problem or 'whole'}"
        yield Check("installed engine", "note" if problem else "ok", detail, remedy)
    if not engines:
        yield Check("installed engine", "note", f"none in {engines_dir()}", "`llmc engine install`")


def _binding() -> Iterator[Check]:
    from llmc.engine.binding import HOW_TO_GET, find_binding

    try:
        found = find_binding()
    except LlmcError as failure:
        yield Check("binding", "missing", failure.what, failure.remedy)
        return
    if found is None:
        yield Check(
            "binding",
            "note",
            "no llama-cpp-python: preflight goes by bytes, not tokens, and `--scorer logprobs` cannot run",
            HOW_TO_GET,
        )
        return
    code = "import llama_cpp; print(llama_cpp.__version__)"
    extra = {"PYTHONPATH": str(found.site), "LLAMA_CPP_LIB_PATH": str(found.lib)}
    status, text = _first_line([sys.executable, "-c", code], extra)
    if status == 0:
        yield Check("binding", "ok", f"llama-cpp-python {text} ({found.backend}) in {found.site}")
    else:
        remedy = "`llmc engine install --force`" if found.engine else "install it again, for this Python"
        yield Check("binding", "note", f"{found.site} cannot be imported: {text}", remedy)


def _build_tools() -> Iterator[Check]:
    from llmc.engine.build import compiler_names

    names = compiler_names("cpu")
    compiler = next((path for name in names if (path := shutil.which(name))), None)
    if compiler:
        yield Check("C++ compiler", "ok", f"{compiler}: {_first_line([compiler, '--version'])[1]}")
    else:
        detail = f"none of {', '.join(names)} on PATH: `llmc engine install` needs one"
        yield Check("C++ compiler", "note", detail, "apt install g++, or xcode-select --install")
    lacking = [name for name in ("pip", "venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if lacking:
        detail = f"this Python lacks {', '.join(lacking)}: needed by `llmc engine install` and pypi: references"
        remedy = f"`{sys.executable} -m ensurepip`, or `apt install python3-venv python3-pip`"
        yield Check("pip and venv", "note", detail, remedy)
    else:
        yield Check("pip and venv", "ok", "there")


def _hardware() -> Iterator[Check]:
    from llmc.engine.install import usable_cores
    from llmc.runs.memory import available_bytes

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Check("CPU", "ok", f"{usable_cores()} of {os.cpu_count()} cores usable, {_cpu_name()}")
    yield Check("memory", "ok", f"{_size(available_bytes())} of {_size(total)} available")
    for name, folder in (("disk (cache)", cache_dir()), ("disk (here)", Path.cwd())):
        free = shutil.disk_usage(_existing(folder)).free
        low = free < LOW_DISK_BYTES
        remedy = "make room, or set LLMC_CACHE or --out to another disk" if low else ""
        yield Check(name, "note" if low else "ok", f"{_size(free)} free at {_existing(folder)}", remedy)


def _caches() -> Iterator[Check]:
    root = cache_dir()
    parent = _existing(root)
    if not os.access(parent, os.W_OK | os.X_OK) or not parent.is_dir():
        remedy = "correct its permissions, or set LLMC_CACHE to another folder"
        yield Check("cache", "missing", f"cannot write to {parent}", remedy)
        return
    parts = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    sizes = ", ".join(f"{path.name} {_size(_folder_bytes(path))}" for path in parts)
    yield Check("cache", "ok", f"{root}: {sizes or 'empty'}")


def _llama_settings() -> Iterator[Check]:
    from llmc.engine.environment import SYSTEM_CONFIG, user_config

    names = sorted(name for name in os.environ if name.startswith("LLAMA_"))
    if names:
        detail = f"set: {', '.join(names)}. `llmc run` drops and records them; `llmc exec` passes them on"
        yield Check("LLAMA_* variables", "note", detail, f"unset {' '.join(names)}")
    else:
        yield Check("LLAMA_* variables", "ok", "none set")
    user = user_config(os.environ)
    if is_file(user):
        detail = f"{user}: `llmc run` keeps it from being read; `llmc exec` does not"
        yield Check("config.ini", "note", detail, "move it away if its settings are not meant for benchmarks")
    if is_file(SYSTEM_CONFIG):
        detail = f"{SYSTEM_CONFIG}: cannot be switched off; llmc overrides the settings that matter, records it"
        yield Check("config.ini", "note", detail, "remove it if it is not needed")
    if not is_file(user) and not is_file(SYSTEM_CONFIG):
        yield Check("config.ini", "ok", "none that llama.cpp would read")


def _variables() -> Iterator[Check]:
    for name, variables in (
        ("Hugging Face", HUB_VARIABLES),
        ("package index", INDEX_VARIABLES),
        ("llmc settings", OWN_VARIABLES),
    ):
        present = [f"{v}={_harmless(v, os.environ[v])}" for v in variables if os.environ.get(v)]
        yield Check(name, "ok", ", ".join(present) or "no variable set: the defaults are used")


def _harmless(name: str, value: str) -> str:
    """Return a variable's value without secrets: tokens are not shown, nor passwords in addresses."""
    if "TOKEN" in name:
        return "(set, not shown)"
    return re.sub(r"://[^/@\s]+@", "://...@", value)


def _first_line(command: list[str], extra: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a small command; return its exit status and the first line it printed (the last, if it failed)."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=IMPORT_SECONDS,
            env={**os.environ, "LC_ALL": "C", **(extra or {})},
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return 1, str(failure)
    lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    return done.returncode, (lines[-1 if done.returncode else 0] if lines else "it printed nothing")


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def _existing(path: Path) -> Path:
    """Return the folder itself, or the nearest parent that exists."""
    return next((p for p in (path, *path.parents) if p.exists()), Path("/"))


def _folder_bytes(folder: Path) -> int:
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            path = Path(base) / name
            total += path.lstat().st_size if not path.is_symlink() and path.exists() else 0
    return total


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
