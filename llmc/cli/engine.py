"""``llmc engine``: get a llama-perplexity, see which ones there are, and learn what one does."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json
from llmc.errors import ExitCode

if TYPE_CHECKING:
    from llmc.engine.locate import InstalledEngine

LONG_LIST = 12  # more values than this are counted in the table, and listed with --json only

engine_app = typer.Typer(help="The llama-perplexity that does the scoring.", no_args_is_help=True)
app.add_typer(engine_app, name="engine")


@engine_app.command("install")
def install(
    backend: Annotated[
        str | None,
        typer.Option("--backend", help="cpu, cuda, metal, vulkan, hip, sycl, ...; metal on Apple silicon, else cpu."),
    ] = None,
    cmake_arg: Annotated[
        list[str] | None,
        typer.Option("--cmake-arg", help="Passed to cmake, as --cmake-arg=-DNAME=VALUE; repeatable."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Compilers at a time (default: every core).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Build again even if the engine is there and whole.")] = False,
    json: Json = False,
) -> int:
    """Build a pinned llama.cpp with its Python binding into the cache (a few minutes, once).

    Needs a C++ compiler and the Python package index; nothing outside the cache is changed.
    """
    from llmc.engine import install as builder

    chosen = builder.default_backend() if backend is None else backend
    arguments = tuple(cmake_arg or ())
    known = builder.installed_whole(chosen, arguments)
    engine = known if known and not force else builder.install(chosen, arguments, jobs, force)
    fresh = engine is not known
    told = f"in {engine.meta.get('seconds')} s" if fresh else "already, and whole"
    console.show_text(f"llama.cpp build {engine.meta.get('build')} ({chosen}) is installed {told}: {engine.root}")
    console.emit("engine install", {"installed_now": fresh, "engine": _engine_data(engine)})
    return int(ExitCode.OK)


@engine_app.command("list")
def list_engines(json: Json = False) -> int:
    """List the engines in the cache, and the one a run would use."""
    from llmc.engine.install import flaw
    from llmc.engine.locate import engines_dir, installed, locate
    from llmc.errors import EngineError
    from llmc.report.tables import plain_table

    engines = installed()
    state = {engine.name: flaw(engine) for engine in engines}
    try:
        used, why = locate(), ""
    except EngineError as failure:
        used, why = None, f"{failure.what}: {failure.remedy}"
    if engines:
        table = plain_table("engine", "llama.cpp", "backend", "installed", "state")
        for e in engines:
            build = f"build {e.meta.get('build', '?')}"
            table.add_row(e.name, build, e.backend, str(e.meta.get("installed", "")), state[e.name] or "whole")
        console.show(table)
    else:
        console.show_text(f"no engine in {engines_dir()}; `llmc engine install` builds one")
    if used:
        console.show_text(f"a run uses {' '.join(used.command)} (found by: {used.found_by})")
    else:
        console.show_text(why)
    data = {
        "engines": [{**_engine_data(engine), "flaw": state[engine.name]} for engine in engines],
        "used": {"command": list(used.command), "found_by": used.found_by} if used else None,
    }
    console.emit("engine list", data)
    return int(ExitCode.OK)


@engine_app.command("probe")
def probe_engine(
    path: Annotated[
        str | None,
        typer.Argument(help="The program, its folder, or a name; default: the one a run would use."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Probe again even if this engine is known.")] = False,
    json: Json = False,
) -> int:
    """Learn what an engine does from questions with known answers; exit 2 when it cannot be used."""
    from rich.text import Text

    from llmc.engine.locate import locate
    from llmc.engine.probe import probe
    from llmc.report.tables import plain_table

    with console.progress("Probing the engine"):
        result = probe(locate(path), force=force)
    data = result.model_dump(mode="json")
    table = plain_table("what", "learned")
    for name, value in data.items():
        table.add_row(name.rstrip("_").replace("_", " "), Text(_cell(value)))
    console.show(table)
    code = ExitCode.OK if result.usable else ExitCode.USAGE
    if not result.usable:
        console.note(f"this engine cannot be used: {result.reason}; `llmc engine install` builds one that can")
    console.emit("engine probe", data, code)
    return int(code)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) if len(value) <= LONG_LIST else f"{len(value)} (listed with --json)"
    if value is None:
        return "unknown"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _engine_data(engine: InstalledEngine) -> dict[str, Any]:
    fields = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(engine).items()}
    fields["meta"] = {name: value for name, value in engine.meta.items() if name not in ("files", "cpu")}
    return {"name": engine.name, **fields}
