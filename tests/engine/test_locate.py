"""locate: the order of places, every way to name the wrong thing, and an identity that covers libraries."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from llmc.engine import libraries
from llmc.engine.locate import EngineFiles, identity, installed, locate
from llmc.errors import EngineError
from llmc.files import write_json

SCRIPT = "#!/bin/sh\necho 'version: 1 (abc)'\n"


@pytest.fixture(autouse=True)
def nothing_installed(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH folder; no engine anywhere."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("LLMC_ENGINE", raising=False)
    return folder


def program(path: Path, text: str = SCRIPT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def put_installed(cache: Path, name: str, when: str = "2026-01-01", binding: bool = True) -> Path:
    root = cache / "engines" / name
    program(root / "bin" / "llama-perplexity", SCRIPT + f"# {name}\n")
    if binding:
        (root / "binding" / "llama_cpp").mkdir(parents=True)
    version, _, backend = name.partition("-")
    meta = {"schema": "llmc.engine/1", "version": version, "backend": backend, "installed": when}
    write_json(root / "engine.json", meta)
    return root


def test_places_are_asked_in_order(
    tmp_path: Path, own_cache: Path, nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step adds the place that goes before all earlier ones."""
    with pytest.raises(EngineError, match="no llama-perplexity") as caught:
        locate()
    assert "llmc engine install" in caught.value.remedy and "brew install" in caught.value.remedy

    root = put_installed(own_cache, "1-cpu")
    found = locate()
    assert found == EngineFiles(
        (str(root / "bin/llama-perplexity"),), root / "bin/llama-perplexity", (), "installed", installed()[0]
    )

    app = program(nothing_installed / "llama")
    assert (locate().command, locate().found_by) == ((str(app), "perplexity"), "PATH")

    on_path = program(nothing_installed / "llama-perplexity")
    assert (locate().command, locate().found_by) == ((str(on_path),), "PATH")

    named = program(tmp_path / "by-variable")
    monkeypatch.setenv("LLMC_ENGINE", str(named))
    assert (locate().command, locate().found_by) == ((str(named),), "$LLMC_ENGINE")

    given = program(tmp_path / "by-option")
    assert (locate(str(given)).command, locate(str(given)).found_by) == ((str(given),), "--engine")


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 2\n", "#!/bin/sh\necho usage: llama model list\n"])
def test_another_projects_llama_command_is_passed_over(nothing_installed: Path, text: str) -> None:
    program(nothing_installed / "llama", text)
    with pytest.raises(EngineError, match="no llama-perplexity"):
        locate()


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ("engine/llama-perplexity", "engine"),
        ("engine/bin/llama-perplexity", "engine"),
        ("engine/build/bin/llama-perplexity", "engine"),
        ("engine/perplexity", "engine"),
        ("engine/with space/llama-perplexity", "engine/with space"),
        ("engine/my-own-name", "engine/my-own-name"),
    ],
)
def test_a_folder_or_a_file_may_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, given: str
) -> None:
    path = program(tmp_path / made)
    monkeypatch.chdir(tmp_path)
    for form in (given, f"./{given}", str(tmp_path / given)):
        assert locate(form).binary == path.resolve()
        assert locate(form).command == (str(path),)


def test_the_single_program_gets_its_sub_command(tmp_path: Path) -> None:
    app = program(tmp_path / "release" / "llama")
    assert locate(str(app)).command == locate(str(app.parent)).command == (str(app), "perplexity")


def test_names_on_path_and_names_of_installed_engines(own_cache: Path, nothing_installed: Path) -> None:
    mine = program(nothing_installed / "my-perplexity")
    root = put_installed(own_cache, "1-cuda")
    assert locate("my-perplexity").binary == mine
    assert locate("1-cuda").installed == installed()[0]
    assert locate("1-cuda").binary == root / "bin/llama-perplexity"


def test_a_link_keeps_its_name_and_shows_its_target(tmp_path: Path) -> None:
    target = program(tmp_path / "store" / "llama-perplexity")
    link = tmp_path / "link"
    link.symlink_to(target)
    assert (locate(str(link)).command, locate(str(link)).binary) == ((str(link),), target)


def no_such_file(folder: Path) -> Path:
    return folder / "absent"


def dangling_link(folder: Path) -> Path:
    (folder / "link").symlink_to("nowhere")
    return folder / "link"


def empty_folder(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def model(folder: Path) -> Path:
    (folder / "model.gguf").write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(64))
    return folder / "model.gguf"


def empty_file(folder: Path) -> Path:
    return program(folder / "empty-file", "")


def text_file(folder: Path) -> Path:
    return program(folder / "README", "llama.cpp")


def archive(folder: Path) -> Path:
    (folder / "release.zip").write_bytes(b"PK\x03\x04" + bytes(64))
    return folder / "release.zip"


def not_executable(folder: Path) -> Path:
    program(folder / "llama-perplexity").chmod(0o644)
    return folder / "llama-perplexity"


def sibling(folder: Path) -> Path:
    program(folder / "llama-perplexity")
    return program(folder / "llama-cli")


def device(folder: Path) -> Path:
    return Path("/dev/null")


WRONG: list[tuple[Callable[[Path], Path], str, str]] = [
    (no_such_file, "no such file", "llmc engine install"),
    (dangling_link, "is a link to nowhere, which does not exist", "llmc engine install"),
    (empty_folder, "holds no llama-perplexity", "cmake --build"),
    (model, "is a GGUF model, not a program", "with -m"),
    (empty_file, "is not a program but an empty file", "the llama-perplexity program"),
    (text_file, "is not a program", "the llama-perplexity program"),
    (archive, "is not a program but a zip archive", "the llama-perplexity program"),
    (not_executable, "is not executable", "chmod +x"),
    (sibling, "has no multiple-choice mode", "llama-perplexity"),
    (device, "is not a regular file", "the llama-perplexity program"),
]


@pytest.mark.parametrize("origin", ["--engine", "$LLMC_ENGINE"])
@pytest.mark.parametrize(("make", "what", "remedy"), WRONG)
def test_each_wrong_thing_has_its_own_sentence(
    tmp_path: Path,
    own_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], Path],
    what: str,
    remedy: str,
    origin: str,
) -> None:
    put_installed(own_cache, "1-cpu")  # never a silent way out when something else was asked for
    path = str(make(tmp_path))
    if origin == "$LLMC_ENGINE":
        monkeypatch.setenv("LLMC_ENGINE", path)
    with pytest.raises(EngineError) as caught:
        locate(path if origin == "--engine" else None)
    assert what in caught.value.what and origin in caught.value.what
    assert remedy in caught.value.remedy


def test_unreadable(tmp_path: Path, as_nobody: Callable[[], AbstractContextManager[None]]) -> None:
    path = program(tmp_path / "llama-perplexity")
    path.chmod(0o311)
    with as_nobody(), pytest.raises(EngineError, match="cannot read") as caught:
        locate(str(path))
    assert "permissions" in caught.value.remedy


def test_a_name_too_long(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot read"):
        locate(str(tmp_path / ("x" * 5000)))


def test_a_bare_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no command of that name on PATH"):
        locate("lama-perplexity")


def test_installed_engines_are_sorted_and_whole(own_cache: Path) -> None:
    assert installed() == []
    put_installed(own_cache, "1-cpu", "2026-01-01")
    put_installed(own_cache, "2-cpu", "2026-03-01", binding=False)
    put_installed(own_cache, "1-cuda", "2026-02-01")
    (put_installed(own_cache, "3-cpu", "2026-04-01") / "bin" / "llama-perplexity").unlink()
    (put_installed(own_cache, "4-cpu", "2026-05-01") / "engine.json").write_text("no json")
    put_installed(own_cache, ".build-x", "2026-06-01")
    assert [engine.name for engine in installed()] == ["2-cpu", "1-cuda", "1-cpu"]
    assert (installed()[0].version, installed()[0].backend, installed()[0].binding) == ("2", "cpu", None)


# ------------------------------------------------------------------------------------------ identity


def test_identity_follows_content_not_place(tmp_path: Path) -> None:
    first = program(tmp_path / "a" / "llama-perplexity")
    copy = program(tmp_path / "b" / "llama-perplexity")
    other = program(tmp_path / "c" / "llama-perplexity", SCRIPT + "# changed\n")
    ids = [identity(locate(str(path))) for path in (first, copy, other)]
    assert ids[0] == ids[1] != ids[2]


def test_identity_covers_backends_beside_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "llama-perplexity")
    seen = [identity(locate(str(path)))]
    (tmp_path / "libggml-cuda.so").write_text("one")
    seen.append(identity(locate(str(path))))
    (tmp_path / "libggml-cuda.so").write_text("two, longer")
    seen.append(identity(locate(str(path))))
    (tmp_path / "libggml-cuda.so.txt").write_text("not a library")
    assert identity(locate(str(path))) == seen[-1]
    extra = tmp_path / "elsewhere" / "special.so"
    extra.parent.mkdir()
    extra.write_text("out-of-tree backend")
    monkeypatch.setenv("GGML_BACKEND_PATH", str(extra))
    seen.append(identity(locate(str(path))))
    assert len(set(seen)) == 4


def test_identity_of_a_file_that_went_away(tmp_path: Path) -> None:
    path = program(tmp_path / "llama-perplexity")
    found = locate(str(path))
    path.unlink()
    with pytest.raises(EngineError, match="cannot read"):
        identity(found)


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled program that is linked against a library called libllama."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux")
    folder = tmp_path_factory.mktemp("linked")
    for name in ("bin", "lib"):
        (folder / name).mkdir()
    (folder / "l.c").write_text("int llama(void) { return 0; }")
    (folder / "m.c").write_text("int llama(void); int main(void) { return llama(); }")
    library = folder / "lib" / "libllama.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "l.c"], check=True)
    link = [f"-L{library.parent}", "-lllama", "-Wl,-rpath,$ORIGIN/../lib"]
    subprocess.run([compiler, "-o", folder / "bin" / "llama-perplexity", folder / "m.c", *link], check=True)
    return folder


@pytest.fixture
def linked_copy(linked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    return Path(shutil.copytree(linked, tmp_path / "moved"))


def test_identity_covers_linked_libraries(linked_copy: Path) -> None:
    library = linked_copy / "lib" / "libllama.so"
    found = locate(str(linked_copy))
    assert found.libraries == (library,)
    before = identity(found)
    with library.open("ab") as stream:
        stream.write(b"\0")
    assert identity(locate(str(linked_copy))) != before


def test_a_library_that_is_missing_is_named(linked_copy: Path) -> None:
    (linked_copy / "lib" / "libllama.so").unlink()
    with pytest.raises(EngineError, match=r"the loader does not find libllama\.so") as caught:
        locate(str(linked_copy))
    assert "LD_LIBRARY_PATH" in caught.value.remedy


# ------------------------------------------------------------------------------------- tools' output

OTOOL_L = """\
/opt/llama/bin/llama-perplexity:
\t@rpath/libllama-common.0.dylib (compatibility version 0.0.0, current version 0.5.0)
\t/opt/home brew/lib/libggml.0.dylib (compatibility version 0.0.0, current version 0.0.0)
\t/usr/lib/libSystem.B.dylib (compatibility version 1.0.0, current version 1351.0.0)
"""
OTOOL_COMMANDS = """\
Load command 14
          cmd LC_LOAD_DYLIB
      cmdsize 56
         name /usr/lib/libSystem.B.dylib (offset 24)
Load command 17
          cmd LC_RPATH
      cmdsize 40
         path @loader_path/../lib (offset 12)
Load command 18
          cmd LC_RPATH
      cmdsize 32
         path /opt/lib (offset 12)
"""


def test_otool_is_read() -> None:
    assert libraries.parse_otool(OTOOL_L) == [
        "@rpath/libllama-common.0.dylib",
        "/opt/home brew/lib/libggml.0.dylib",
        "/usr/lib/libSystem.B.dylib",
    ]
    assert libraries.parse_rpaths(OTOOL_COMMANDS) == ["@loader_path/../lib", "/opt/lib"]


def test_dyld_paths_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program finds libllama through its own rpath, and that one libggml through its own folder."""
    binary = program(tmp_path / "bin" / "llama-perplexity")
    for name in ("libllama.dylib", "libggml.dylib"):
        program(tmp_path / "lib" / name)
    needs = {
        "llama-perplexity": ["@rpath/libllama.dylib", "/usr/lib/absent-on-disk.dylib"],
        "libllama.dylib": ["@rpath/libllama.dylib", "@loader_path/libggml.dylib"],
        "libggml.dylib": ["@executable_path/../lib/libggml.dylib"],
    }

    def otool(tool: str, option: str, path: str) -> str:
        if option == "-L":
            return "".join(f"\t{n} (compatibility version 0, x)\n" for n in needs[Path(path).name])
        rpath = "@loader_path/../lib" if path == str(binary) else ""
        return f"cmd LC_RPATH\n cmdsize 1\n path {rpath} (offset 12)\n" if rpath else ""

    monkeypatch.setattr(libraries, "_tool_output", otool)
    monkeypatch.setattr(libraries.sys, "platform", "darwin")
    found = [path.name for path in libraries.engine_libraries(binary)]
    assert found == ["libggml.dylib", "libllama.dylib"]
    (tmp_path / "lib" / "libggml.dylib").unlink()
    with pytest.raises(EngineError, match=r"does not find @loader_path/libggml\.dylib"):
        libraries.engine_libraries(binary)


def test_ldd_is_read() -> None:
    text = (
        "\tlinux-vdso.so.1 (0x00007ffd)\n"
        "\tlibllama.so.0 => /opt/my llama/libllama.so.0 (0x00007f40)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f40)\n"
    )
    assert libraries.parse_ldd(text, Path("x")) == [Path("/opt/my llama/libllama.so.0")]
    assert libraries.parse_ldd("\tnot a dynamic executable\n", Path("x")) == []
    with pytest.raises(EngineError, match=r"x cannot start: the loader does not find libcudart\.so\.12"):
        libraries.parse_ldd(text + "\tlibcudart.so.12 => not found\n", Path("x"))


def test_a_wrapper_is_known_by_what_it_starts(tmp_path: Path) -> None:
    real, wrapper = program(tmp_path / "real" / "llama-perplexity"), tmp_path / "llama-perplexity"
    wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={tmp_path}/real exec "{real}" "$@"\n')
    wrapper.chmod(0o755)
    before = locate(str(wrapper))
    assert real.resolve() in before.libraries
    first = identity(before)
    real.write_bytes(real.read_bytes() + b"# built again\n")
    assert identity(locate(str(wrapper))) != first
