"""Compile the pinned llama.cpp and its Python binding inside one folder; knows nothing of the cache."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from llmc import console
from llmc.engine.steps import OTHER_BYTES, Steps
from llmc.errors import EngineError
from llmc.files import sha256_file


@dataclass(frozen=True)
class Source:
    """A source package on the index. ``build`` is llama.cpp's own build number for the source inside."""

    package: str
    version: str
    sha256: str
    build: int


PINNED = Source(
    package="llama-cpp-python",
    version="0.3.36",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    build=11434,
)
PROGRAMS = ("llama-perplexity", "llama-quantize", "llama-tokenize", "llama-bench")
BUILD_TOOLS = ("cmake>=3.24,<5", "ninja>=1.11")
# numpy and typing-extensions, which the binding needs as well, are llmc's own requirements: leaving them out
# keeps the folder free of files for one Python version only.
BINDING_NEEDS = ("diskcache>=5.6.1", "jinja2>=3.0", "markupsafe>=2.0")

BACKENDS: dict[str, tuple[str, ...]] = {
    "cpu": ("-DGGML_METAL=OFF",),
    "blas": ("-DGGML_METAL=OFF", "-DGGML_BLAS=ON"),
    "cann": ("-DGGML_CANN=ON",),
    "cuda": ("-DGGML_CUDA=ON",),
    "hip": ("-DGGML_HIP=ON",),
    "metal": ("-DGGML_METAL=ON", "-DGGML_METAL_EMBED_LIBRARY=ON"),
    "musa": ("-DGGML_MUSA=ON",),
    "opencl": ("-DGGML_OPENCL=ON",),
    "sycl": ("-DGGML_SYCL=ON", "-DCMAKE_C_COMPILER=icx", "-DCMAKE_CXX_COMPILER=icpx"),
    "vulkan": ("-DGGML_VULKAN=ON",),
}
CONFIGURATION = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DGGML_CCACHE=OFF",
    # Otherwise both are taken from whatever git repository lies around the build folder.
    f"-DLLAMA_BUILD_NUMBER={PINNED.build}",
    f"-DLLAMA_BUILD_COMMIT=pypi-{PINNED.version}",
    # The link path is kept for the vendors' libraries (CUDA, oneAPI) outside the build.
    "-DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON",
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
)
# Options whose change would leave nothing to install, or install it elsewhere.
RESERVED = (
    "-G",
    "-S",
    "-B",
    "-DBUILD_SHARED_LIBS",
    "-DCMAKE_INSTALL_RPATH",
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH",
)

# llama-common parses arguments, chat templates and HTTP: half of the compile time and none of the scoring.
# Joined sources and less optimization take that from 310 to 80 CPU seconds. json.cpp specializes templates
# that other files instantiate, so it stays alone. Joining is kept to Linux, where it is tested.
SLIM_CMAKE = """\
function(llmc_slim)
  foreach(target llama-common cpp-httplib)
    if(TARGET ${target})
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
    endif()
  endforeach()
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set_target_properties(llama-common PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/common/json.cpp TARGET_DIRECTORY llama-common
                 PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()
cmake_language(DEFER CALL llmc_slim)
"""


def compiler_names(backend: str) -> list[str]:
    """Return the C++ compilers that would do: the one in $CXX, else the usual names in cmake's order."""
    if named := shlex.split(os.environ.get("CXX", ""))[:1]:
        return named
    return ["icpx"] if backend == "sycl" else ["c++", "g++", "clang++"]


def build(staging: Path, log: Path, backend: str, cmake_args: tuple[str, ...], jobs: int) -> Path:
    """Build everything inside ``staging``; return the finished engine's folder there."""
    tools, scratch, engine = staging / "tools", staging / "tmp", staging / "engine"
    for folder in (scratch, engine / "bin", engine / "lib"):
        folder.mkdir(parents=True)
    steps = Steps(log, _environment(tools, scratch))
    pip = make_tools(steps, tools)
    source = _fetch_source(steps, pip, staging)
    folder = staging / "build"
    slim = staging / "slim.cmake"
    slim.write_text(SLIM_CMAKE)
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    configure = (
        *(str(tools / "bin" / "cmake"), "-G", "Ninja"),
        *("-S", str(source / "vendor" / "llama.cpp"), "-B", str(folder)),
        f"-DCMAKE_PROJECT_TOP_LEVEL_INCLUDES={slim}",
        f"-DCMAKE_INSTALL_RPATH={origin}/../lib;{origin}",
        *CONFIGURATION,
        *BACKENDS[backend],
        *cmake_args,
    )
    steps.run("Configuring llama.cpp", configure)
    ninja = (str(tools / "bin" / "ninja"), "-C", str(folder), "-j", str(jobs), *PROGRAMS, "llama")
    steps.run(f"Building llama.cpp (build {PINNED.build}, {backend}, {jobs} jobs)", ninja, counted=True)
    _collect(folder / "bin", engine)
    binding = Steps(log, {**steps.environment, "CMAKE_ARGS": "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF"})
    target = ("--no-deps", "--target", str(engine / "binding"))
    binding.run("Installing the Python binding", (*pip, "install", *target, str(source), *BINDING_NEEDS))
    _try_out(steps, engine)
    return engine


def make_tools(steps: Steps, tools: Path) -> tuple[str, ...]:
    """Make a private environment with cmake and ninja in ``tools``; return the command of its pip."""
    steps.run("Preparing build tools", (sys.executable, "-m", "venv", str(tools)))
    pip = (str(tools / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input")
    steps.run("Fetching cmake and ninja", (*pip, "install", "--only-binary", ":all:", *BUILD_TOOLS))
    return pip


def _environment(tools: Path, scratch: Path) -> dict[str, str]:
    # pip's settings for where to install, and Python's for what to import, are meant for the user's own
    # environment; DESTDIR and the like would move our files. Index, proxy and certificate settings stay.
    dropped = {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONPATH", "PYTHONHOME", "DESTDIR", "CMAKE_ARGS"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {
        **kept,
        "PATH": os.pathsep.join((str(tools / "bin"), kept.get("PATH", os.defpath))),
        "TMPDIR": str(scratch),
        "LC_ALL": "C",
        "PIP_USER": "0",
        "PYTHONIOENCODING": "utf-8",
        "NINJA_STATUS": "[%f/%t] ",
    }


def _fetch_source(steps: Steps, pip: tuple[str, ...], staging: Path) -> Path:
    """Download, check and unpack the source package; return its top folder."""
    folder = staging / "sdist"
    folder.mkdir()
    wanted = staging / "source.txt"
    # With the checksum in the requirement pip refuses other bytes before it runs their metadata hook.
    wanted.write_text(f"{PINNED.package}=={PINNED.version} --hash=sha256:{PINNED.sha256}\n")
    download = (*pip, "download", "--no-deps", "--no-binary", PINNED.package, "--dest", str(folder))
    title = f"Fetching {PINNED.package} {PINNED.version} (77 MB)"
    steps.run(title, (*download, "--requirement", str(wanted)))
    archives = sorted(folder.glob("*.tar.gz"))
    if len(archives) != 1:
        raise EngineError(
            f"pip delivered {len(archives)} source packages of {PINNED.package} {PINNED.version}, not one",
            "check `pip config list`: the package index in use has to offer the .tar.gz",
        )
    digest = sha256_file(archives[0])
    if digest != PINNED.sha256:
        raise EngineError(
            f"{archives[0].name} has the SHA-256 {digest}, expected {PINNED.sha256}",
            OTHER_BYTES,
        )
    with console.progress("Unpacking the source"), tarfile.open(archives[0]) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(staging / "src", filter="data")
        else:  # the checksum above says what is in it
            archive.extractall(staging / "src")
    archives[0].unlink()
    return next((staging / "src").iterdir())


def _collect(built: Path, engine: Path) -> None:
    for name in PROGRAMS:
        shutil.copy2(built / name, engine / "bin" / name)
    for library in built.iterdir():
        if library.name.startswith("lib") and (".so" in library.name or library.suffix == ".dylib"):
            shutil.copy2(library, engine / "lib" / library.name, follow_symlinks=False)


def _try_out(steps: Steps, engine: Path) -> None:
    """Start what was built from the folder it will be moved from: it must not depend on where it lies."""
    version = steps.run("Trying the engine", (str(engine / "bin" / PROGRAMS[0]), "--version"))
    if str(PINNED.build) not in version:
        raise EngineError(f"the built engine calls itself {version.strip()!r}", f"read the log: {steps.log}")
    paths = {"PYTHONPATH": str(engine / "binding"), "LLAMA_CPP_LIB_PATH": str(engine / "lib")}
    code = "import llama_cpp; print(llama_cpp.llama_max_devices(), llama_cpp.__version__)"
    Steps(steps.log, {**steps.environment, **paths}).run("Trying the binding", (sys.executable, "-c", code))
