"""``llmc verify``: built files against their sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import ExitCode, LlmcError, UsageError

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
    built = list(manifest.entries(out))
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
        return verify.verify_file(entry.bin_path(out))
    return verify.verify_built(name, out, source)


def _show(done: list[Verification], failed: list[tuple[str, LlmcError]]) -> None:
    for result in done:
        tasks = f"{result.tasks} task{'' if result.tasks == 1 else 's'}"
        if result.right and result.against:
            console.show_text(f"verified   {result.name}: {tasks}, each as in {result.against}")
        elif result.right:
            console.show_text(f"unchanged  {result.name}: {tasks}, checksum and structure as published")
        else:
            console.show_text(f"WRONG      {result.name}: {_problems(result.count)} in {tasks}")
            for problem in result.problems:
                console.show_text(f"  {problem.sentence}")
            if result.count > len(result.problems):
                console.show_text(f"  and {result.count - len(result.problems)} more")
            console.show_text(f"  fix: llmc build {result.name} --force --out {result.path.parent}")
        for note in result.notes:
            console.show_text(f"  note: {note}")
    for name, error in failed:
        console.show_text(f"unverified {name}: {error.what}\n  fix: {error.remedy}")


def _problems(count: int) -> str:
    return "1 problem" if count == 1 else f"{count} problems"
