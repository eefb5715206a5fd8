"""``llmc run``: the safe run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Engine, Json, Out
from llmc.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from llmc.runs.cell import Cell, Finished

HAZARDS = ("fail", "exclude")


@app.command()
def run(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="GGUF: a path, owner/repo:Q4_K_M, hf:owner/repo/file.gguf, pypi:..."),
    ],
    bench: Annotated[list[str], typer.Option("--bench", "-b", help="Benchmark name or .bin file; several may follow.")],
    more: Annotated[list[str] | None, typer.Argument(metavar="[BENCH]...", help="More benchmarks.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Score a seeded sample of N questions.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of --limit.")] = 0,
    like_llama: Annotated[
        int | None,
        typer.Option("--like-llama", min=1, help="The N questions llama.cpp's --multiple-choice-tasks N picks."),
    ] = None,
    on_hazard: Annotated[
        str,
        typer.Option("--on-hazard", help="Tasks llama-perplexity would get wrong: fail, or exclude them."),
    ] = "fail",
    memory_budget: Annotated[
        str | None, typer.Option("--memory-budget", help="Most memory the engine may take, as 8G or 512M.")
    ] = None,
    health: Annotated[
        bool,
        typer.Option("--health-check/--no-health-check", help="Check the model on obvious questions first."),
    ] = True,
    layout_check: Annotated[
        bool,
        typer.Option("--layout-check", help="Score up to 200 tasks again at another layout; count flips."),
    ] = False,
    part_size: Annotated[
        int, typer.Option("--part-size", min=1, help="Tasks per launch of very large files.")
    ] = 50_000,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0.1, help="Seconds one launch may take.")] = None,
    stall_timeout: Annotated[
        float,
        typer.Option("--stall-timeout", min=1, help="Seconds without any sign of life before it is ended."),
    ] = 300.0,
    force: Annotated[bool, typer.Option("--force", help="Run again even if the store has a trusted run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and run nothing.")] = False,
    source: Annotated[
        Path | None, typer.Option("--source", help="Rows to build missing benchmarks from: a file or folder.")
    ] = None,
    engine: Engine = None,
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Score a model on benchmarks and say whether the result can be trusted.

    Flags after `--` go to llama-perplexity: `llmc run -m model.gguf -b arc-easy -- -t 8`.
    """
    from llmc.engine.plan import parse_bytes
    from llmc.runs.cell import plan_cell
    from llmc.runs.settings import Settings

    if limit is not None and like_llama is not None:
        raise UsageError("--limit and --like-llama exclude each other", "give one of them")
    if on_hazard not in HAZARDS:
        raise UsageError(f"--on-hazard is {' or '.join(HAZARDS)}, not {on_hazard!r}", "see `llmc run --help`")
    settings = Settings(
        out=out,
        engine=engine,
        source=source,
        limit=limit,
        seed=seed,
        like_llama=like_llama,
        on_hazard="exclude" if on_hazard == "exclude" else "fail",
        memory_budget=parse_bytes(memory_budget) if memory_budget is not None else _default_budget(),
        health_check=health,
        force=force,
        part_size=part_size,
        timeout=timeout,
        stall=stall_timeout,
        layout_check=200 if layout_check else 0,
        user_flags=tuple(context.obj or ()),
    )
    cells = _plan_all(model, [*bench, *(more or [])], settings, plan_cell)
    if dry_run:
        return _show_plans(cells)
    return _run_all(cells)


def _default_budget() -> int:
    """Nine tenths of the memory that is available now: beyond it the kernel would end the run."""
    from llmc.runs.memory import available_bytes

    return available_bytes() * 9 // 10


def _plan_all(model: str, benches: list[str], settings: Any, plan_cell: Any) -> list[Cell]:
    """Everything that can be refused is refused before the first launch."""
    from llmc.engine.flags import parse
    from llmc.runs.bench import open_benches
    from llmc.runs.prepare import prepare_engine, prepare_model
    from llmc.runs.settings import FirstTime
    from llmc.runs.store import require_writable

    require_writable(settings.out)
    shared = FirstTime()
    prepared = prepare_engine(settings, shared)
    parse(settings.user_flags, prepared.probe.flags)  # before anything is fetched or read to its end
    opened = open_benches(benches, settings)
    loaded = prepare_model(model, shared)
    cells = []
    for number, each in enumerate(opened):
        first = shared if number == 0 else FirstTime()
        cells.append(plan_cell(prepared, loaded, each, settings, first))
    return cells


def _run_all(cells: list[Cell]) -> int:
    from llmc.runs.cell import run_cell

    finished: list[Finished] = []
    try:
        for cell in cells:
            finished.append(run_cell(cell))
            if finished[-1].record.status == "interrupted":
                break
    except BaseException:
        if finished:
            _show(finished)  # what is done is not lost with what went wrong
        raise
    code = ExitCode.worst(each.record.exit_code for each in finished)
    _show(finished)
    data = [{"folder": str(f.folder), "reused": f.reused, "record": f.record.dump()} for f in finished]
    console.emit("run", {"runs": data}, code)
    return int(code)


def _show(finished: list[Finished]) -> None:
    from llmc.report.run_table import groups_table, results_table
    from llmc.report.verdict import findings_renderable

    console.show(results_table([(f.folder, f.record, f.reused) for f in finished], console.width()))
    for each in finished:
        name = each.record.benchmark.name if each.record.benchmark else ""
        if each.record.groups:
            console.show()
            console.show(groups_table(each.record))
        if each.record.findings:
            console.show()
            console.show_text(f"{name}:")
            console.show(findings_renderable(each.record.findings))
        _show_layout_check(each)
    console.show()
    for each in finished:
        console.show_text(f"record: {each.folder / 'record.json'}")
    _note_first_time(finished)


def _show_layout_check(finished: Finished) -> None:
    check = finished.record.layout_check
    if check is not None:
        share = 100 * check.flipped / check.tasks
        console.show_text(
            f"layout check: {check.flipped} of {check.tasks} answers ({share:.1f} %) differ at "
            f"-np {check.layout['np']} -c {check.layout['c']}"
        )


def _note_first_time(finished: list[Finished]) -> None:
    """Say what only a first run pays for, when it took noticeable time."""
    timings = [f.record.timings for f in finished if f.record.timings and not f.reused]
    spent = [(name, s) for t in timings for name, s in t.first_time.items() if s >= 0.2]
    if spent:
        console.note("first-time work, cached from now on: " + ", ".join(f"{name} {s:.1f} s" for name, s in spent))


def _show_plans(cells: list[Cell]) -> int:
    plans = [_describe(cell) for cell in cells]
    for each in plans:
        console.show_text(each["command_line"])
        layout, memory = each["layout"], each["memory_bytes"]
        console.show_text(
            f"  {each['tasks']} tasks, longest {each['longest_tokens']} tokens, {each['total_tokens']} in all "
            f"({each['basis']})"
        )
        console.show_text(
            f"  layout: -np {layout['np']} -c {layout['c']}: {layout['total_context']} tokens in one context, "
            f"flash attention {layout['fa']}"
        )
        parts = ", ".join(f"{name} {size / 2**20:.0f}" for name, size in memory.items() if name != "total")
        console.show_text(f"  memory: about {memory['total'] / 2**20:.0f} MiB ({parts})")
        expected = each["expected_seconds"]
        console.show_text(
            f"  time: about {expected:.0f} s" if expected is not None else "  time: not known before the first run"
        )
        console.show()
    console.emit("run", {"dry_run": True, "cells": plans})
    return int(ExitCode.OK)


def _describe(cell: Cell) -> dict[str, Any]:
    from llmc.runs.estimate import expected_seconds

    memory = cell.plan.memory
    command = cell.command()
    return {
        "benchmark": cell.bench.name,
        "tasks": cell.tasks,
        "command": command,
        "command_line": shlex.join(command),
        "environment_dropped": sorted(cell.engine.environment.dropped),
        "layout": cell.plan.layout(),
        "basis": cell.plan.basis,
        "longest_tokens": cell.preflight.longest_tokens,
        "total_tokens": cell.preflight.total_tokens,
        "memory_bytes": {**memory.__dict__, "total": memory.total},
        "expected_seconds": expected_seconds(cell),
        "excluded": len(cell.excluded),
        "findings": [f.model_dump(mode="json") for f in cell.findings],
    }
