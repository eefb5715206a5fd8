"""``llmc verify``: built files against their sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import ExitCode, InputFileError, LlmcError, UsageError
from llmc.files import readable

if TYPE_CHECKING:
    from llmc.benchmarks.verify import Verification


@app.command()
def verify(
    benchmarks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|FILE.bin]...", help="A built benchmark, or any file beside its manifest."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Verify everything that is built in --out.")] = False,
    source: Annotated[
        Path | None,
        typer.Option("--source", help="Rows to verify against: a file or folder, in the Hub's columns."),
    ] = None,
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Derive every task again from its source and compare. FILE.bin: checksum and structure only."""
    names = _names(benchmarks or [], every, out)
    if source is not None and source.is_file() and len(names) > 1:
        raise UsageError("one file of rows cannot be several benchmarks", "name one benchmark with --source")
    done: list[Verification] = []
    failed: list[tuple[str, LlmcError]] = []
    for name in names:
        try:
            done.append(_verify(name, out, source))
        except LlmcError as error:
            if len(names) == 1:
                raise
            failed.append((name, error))
    _show(done, failed)
    wrong = [ExitCode.UNTRUSTED for result in done if not result.right]
    code = ExitCode.worst([*wrong, *(error.exit_code for _, error in failed)])
    unverified = [{"name": name, "error": error.what, "remedy": error.remedy} for name, error in failed]
    console.emit("verify", {"results": [result.data() for result in done], "unverified": unverified}, code)
    return int(code)


def _names(given: list[str], every: bool, out: Path) -> list[str]:
    from llmc.benchmarks import manifest

    if every and given:
        raise UsageError("--all and names exclude each other", "drop one of them")
    if not every and not given:
        raise UsageError("nothing to verify", "name a benchmark or a .bin file, or say --all")
    if not every:
        return given
    built = manifest.names_in(out)
    if not built:
        raise UsageError(f"nothing is built in {out}", f"run `llmc build NAME --out {out}`")
    return built


def _verify(name: str, out: Path, source: Path | None) -> Verification:
    from llmc.benchmarks import manifest, verify

    if name.endswith(".bin"):
        if source is not None:
            raise UsageError("--source goes with a benchmark's name, not with a file", f"name {name[:-4]} instead")
        return verify.verify_file(Path(name))
    entry = manifest.read_sidecar(manifest.sidecar_path(out, name))
    if entry is not None and entry.benchmark is None:
        return verify.verify_file(out / f"{name}.bin")
    if entry is None and (out / f"{name}.bin").is_file():
        return verify.verify_file(out / f"{name}.bin")  # another publisher's, or one whose record is lost
    if entry is None and name in (manifest.listed(out) or {}):
        raise InputFileError(
            f"{out}/manifest.json lists {name}, but there are no files of it",
            "build it again, or build anything into that folder: the list is made anew then",
        )
    return verify.verify_built(name, out, source)


def _show(done: list[Verification], failed: list[tuple[str, LlmcError]]) -> None:
    for result in done:
        tasks = f"{result.tasks} task{'' if result.tasks == 1 else 's'}"
        if result.right and result.against:
            _say(f"verified   {result.name}: {tasks}, each as in {result.against}")
        elif result.right:
            _say(f"unchanged  {result.name}: {tasks}, checksum and structure as published")
        else:
            _say(f"WRONG      {result.name}: {_problems(result.count)} in {tasks}")
            for problem in result.problems:
                _say(f"  {problem.sentence}")
            if result.count > len(result.problems):
                _say(f"  and {result.count - len(result.problems)} more")
            _say(f"  fix: {result.fix or 'fetch the file again'}")
        for note in result.notes:
            _say(f"  note: {note}")
    for name, error in failed:
        _say(f"unverified {name}: {error.what}\n  fix: {error.remedy}")


def _say(text: str) -> None:
    console.show_text(readable(text))  # paths need not be text


def _problems(count: int) -> str:
    return "1 problem" if count == 1 else f"{count} problems"
