"""Find llama-cpp-python, the Python binding by which libllama is called, without importing it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmc.engine.libraries import BACKEND, OURS
from llmc.engine.locate import InstalledEngine, identity, installed, locate
from llmc.errors import EngineError
from llmc.files import sha256_cached, with_home

PACKAGE = "llama_cpp"
# The first whose contexts can be told whether to use flash attention; answers would depend on it unseen.
OLDEST = (0, 3, 17)
HOW_TO_GET = "run `llmc engine install`, or `pip install 'llama-cpp-python>={}'`".format(".".join(map(str, OLDEST)))
_VARIABLE = "LLMC_BINDING"
_LIBRARY_NAMES = ("libllama.so", "libllama.dylib")


@dataclass(frozen=True)
class Binding:
    """The llama-cpp-python binding: the folder to import it from, and the folder of its libllama.

    ``engine`` is the installed engine that it belongs to; None for one that was installed with pip.
    ``found_by`` is "installed", "$LLMC_BINDING" or "Python". ``variables`` are added to the environment of the
    process that loads it: the devices it may see.
    """

    site: Path
    lib: Path
    version: str = ""
    found_by: str = "installed"
    engine: InstalledEngine | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def libllama(self) -> Path | None:
        """Return the libllama that the binding will load, or None."""
        return next((self.lib / name for name in _LIBRARY_NAMES if (self.lib / name).is_file()), None)

    @property
    def backend(self) -> str:
        """Return what libllama computes with: the installed engine's backend, else its libraries' (as "cuda+cpu")."""
        if self.engine is not None:
            return self.engine.backend
        matches = (re.match(r"libggml-([a-z]+)", path.name) for path in self._libraries() if BACKEND.match(path.name))
        kinds = {match[1] for match in matches if match and match[1] not in ("base", "cpu")}
        return "+".join(sorted(kinds)) or "cpu"

    def identity(self) -> str:
        """Return the SHA-256 that changes when the binding's results can: of the engine, or of its libraries.

        EngineError when a file cannot be read.
        """
        if self.engine is not None:
            return identity(locate(str(self.engine.binary)))
        digest = hashlib.sha256(f"{PACKAGE} {self.version}".encode())
        try:
            for path in self._libraries():
                digest.update(f"\n{path.name} {sha256_cached(path)}".encode("utf-8", "surrogateescape"))
        except OSError as failure:
            raise EngineError(f"cannot read {failure.filename}: {failure.strerror}", "check its permissions") from None
        return digest.hexdigest()

    def _libraries(self) -> list[Path]:
        try:
            return sorted(path for path in self.lib.iterdir() if OURS.match(path.name) and path.is_file())
        except OSError:
            return []


def find_binding() -> Binding | None:
    """Return the binding to use, or None when there is none that will do.

    In this order: ``$LLMC_BINDING`` (a folder of packages that holds llama_cpp, or llama_cpp itself), the newest
    installed engine that has one, the llama_cpp that this Python would import. EngineError when the variable names
    none, or one that is too old.
    """
    if wanted := os.environ.get(_VARIABLE):
        return _named(wanted)
    for engine in installed():
        if engine.binding is not None:
            return Binding(engine.binding, engine.lib, engine.version, "installed", engine)
    return _importable()


def require_binding() -> Binding:
    """Return the binding to use; EngineError, with the remedy, when there is none."""
    found = find_binding()
    if found is None:
        raise EngineError("the scorer needs libllama and its Python binding, and neither is installed", HOW_TO_GET)
    return found


def _named(text: str) -> Binding:
    folder = with_home(text)
    site = folder.parent if folder.name == PACKAGE else folder
    if not (site / PACKAGE / "__init__.py").is_file():
        raise EngineError(f"${_VARIABLE}: {text} holds no {PACKAGE} package", "name the folder that llama_cpp lies in")
    binding = _of_package(site / PACKAGE, f"${_VARIABLE}")
    if binding.libllama() is None:
        raise EngineError(
            f"${_VARIABLE}: {binding.lib} holds no libllama",
            "install llama-cpp-python with its own library, as pip does",
        )
    if _too_old(binding.version):
        raise EngineError(
            f"${_VARIABLE}: llama-cpp-python {binding.version} is too old",
            f"install {'.'.join(map(str, OLDEST))} or newer",
        )
    return binding


def _importable() -> Binding | None:
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin:
        return None
    binding = _of_package(Path(spec.origin).parent, "Python")
    return None if binding.libllama() is None or _too_old(binding.version) else binding


def _of_package(package: Path, found_by: str) -> Binding:
    try:
        text = (package / "__init__.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"""^__version__\s*=\s*["']([^"']+)""", text, re.MULTILINE)
    return Binding(package.parent, package / "lib", match[1] if match else "", found_by)


def _too_old(version: str) -> bool:
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[: len(OLDEST)])
    return bool(numbers) and numbers < OLDEST
