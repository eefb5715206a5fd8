"""``llmc run``: the safe run."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Engine, Json, Out
from llmc.errors import ExitCode, UsageError, did_you_mean

if TYPE_CHECKING:
    from llmc.runs.planned import Cell, Finished, ScoredCell
    from llmc.runs.settings import FirstTime, Settings

HAZARDS = ("rescore", "exclude", "fail")
SCORERS = ("perplexity", "logprobs")
LAYOUT_CHECK_TASKS = 200


@app.command()
def run(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="GGUF: a path, owner/repo:Q4_K_M, hf:owner/repo/file.gguf, pypi:..."),
    ],
    bench: Annotated[
        list[str] | None, typer.Option("--bench", "-b", help="Benchmark name or .bin file; several may follow.")
    ] = None,
    more: Annotated[list[str] | None, typer.Argument(metavar="[BENCH]...", help="More benchmarks.")] = None,
    suite: Annotated[
        str | None, typer.Option("--suite", help="A suite instead of benchmarks: see `llmc suite list`.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Score a seeded sample of N questions.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of --limit.")] = 0,
    like_llama: Annotated[
        int | None,
        typer.Option("--like-llama", min=1, help="The N questions llama.cpp's --multiple-choice-tasks N picks."),
    ] = None,
    on_hazard: Annotated[
        str,
        typer.Option("--on-hazard", help="Tasks llama-perplexity would get wrong: rescore, exclude, or fail."),
    ] = "rescore",
    scorer: Annotated[
        str, typer.Option("--scorer", help="perplexity (llama-perplexity), or logprobs: every option, every metric.")
    ] = "perplexity",
    rule: Annotated[
        str, typer.Option("--rule", help="With --scorer logprobs: the rule whose answers are the result.")
    ] = "llama_cpp",
    tokenization: Annotated[str, typer.Option("--tokenization", help="logprobs: joint or separate.")] = "joint",
    bos: Annotated[
        str, typer.Option("--bos", help="logprobs: BOS as the model says (model), never or always.")
    ] = "model",
    truncate: Annotated[
        str, typer.Option("--truncate", help="logprobs: items beyond the context: never (refuse), or left.")
    ] = "never",
    context_tokens: Annotated[
        int | None, typer.Option("--context", min=2, help="logprobs: most tokens of one sequence.")
    ] = None,
    uncond: Annotated[
        bool, typer.Option("--uncond", help="logprobs: also score options without the question (acc_uncond).")
    ] = False,
    kv_type: Annotated[str, typer.Option("--kv-type", help="logprobs: type of the KV cache, f16 or f32.")] = "f16",
    resume: Annotated[
        bool, typer.Option("--resume", help="logprobs: go on with an interrupted run; refused if anything changed.")
    ] = False,
    cross_check: Annotated[
        int, typer.Option("--cross-check", min=0, help="Score N tasks by the scorer as well, and compare.")
    ] = 0,
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
    from llmc.runs.settings import Settings
    from llmc.scoring.job import Settings as ScoringSettings

    if limit is not None and like_llama is not None:
        raise UsageError("--limit and --like-llama exclude each other", "give one of them")
    _one_of("--on-hazard", on_hazard, HAZARDS)
    _one_of("--scorer", scorer, SCORERS)
    scoring = ScoringSettings(
        tokenization=tokenization,  # type: ignore[arg-type] # checked when it is made
        bos=bos,  # type: ignore[arg-type]
        truncate=truncate,  # type: ignore[arg-type]
        context=context_tokens,
        uncond=uncond or rule == "acc_uncond",
        kv_type=kv_type,  # type: ignore[arg-type]
    )
    settings = Settings(
        out=out,
        engine=engine,
        source=source,
        limit=limit,
        seed=seed,
        like_llama=like_llama,
        on_hazard=on_hazard,  # type: ignore[arg-type] # checked above
        memory_budget=parse_bytes(memory_budget) if memory_budget is not None else _default_budget(),
        health_check=health,
        force=force,
        part_size=part_size,
        timeout=timeout,
        stall=stall_timeout,
        layout_check=LAYOUT_CHECK_TASKS if layout_check else 0,
        cross_check=cross_check,
        scorer=scorer,  # type: ignore[arg-type] # checked above
        scoring=scoring,
        rule=rule,
        resume=resume,
        user_flags=tuple(context.obj or ()),
    )
    if suite is not None:
        from llmc.cli.suite import run_suite_command

        given = {name for name in context.params if _is_given(context, name)}
        return run_suite_command(suite, model, settings, explicit=given, scorer=scorer, dry_run=dry_run)
    if not bench:
        raise UsageError("nothing to run", "name benchmarks with -b (see `llmc bench list`), or one with --suite")
    _check_combination(settings)
    cells = _plan_all(model, [*bench, *(more or [])], settings)
    if not dry_run:
        return _run_all(cells)
    from llmc.report.run_output import show_plans
    from llmc.runs.describe import describe

    plans = [describe(cell) for cell in cells]
    show_plans(plans)
    console.emit("run", {"dry_run": True, "cells": plans})
    return int(ExitCode.OK)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(
            f"{option} is {', '.join(allowed)}, not {value!r}{did_you_mean(value, allowed)}", "see `llmc run --help`"
        )


def _check_combination(settings: Settings) -> None:
    """Options that say nothing to the scorer in use are mistakes, not wishes to be ignored."""
    from llmc.scoring.job import Settings as ScoringSettings

    if settings.rule != "llama_cpp":
        from llmc.scoring.metrics import RULES

        _one_of("--rule", settings.rule, tuple(RULES))
    if settings.scorer == "logprobs":
        if settings.user_flags:
            raise UsageError(
                "flags after `--` are llama-perplexity's, and --scorer logprobs does not run it", "drop them"
            )
        if settings.layout_check or settings.cross_check:
            raise UsageError("--layout-check and --cross-check belong to --scorer perplexity", "drop them")
        return
    if settings.rule != "llama_cpp" or settings.scoring != ScoringSettings():
        raise UsageError(
            "--rule, --tokenization, --bos, --truncate, --context, --uncond and --kv-type belong to the other scorer",
            "add `--scorer logprobs`, or drop them",
        )
    if settings.resume:
        raise UsageError("--resume belongs to --scorer logprobs", "runs in parts resume by themselves: run it again")


def _default_budget() -> int:
    """Nine tenths of the memory that is available now: beyond it the kernel would end the run."""
    from llmc.runs.memory import available_bytes

    return available_bytes() * 9 // 10


def _plan_all(model: str, benches: list[str], settings: Settings) -> list[Cell] | list[ScoredCell]:
    """Everything that can be refused is refused before the first launch."""
    from llmc.engine.flags import parse
    from llmc.runs.bench import open_benches
    from llmc.runs.cell import plan_cell
    from llmc.runs.prepare import prepare_engine, prepare_model
    from llmc.runs.settings import FirstTime
    from llmc.runs.store import require_writable

    require_writable(settings.out)
    shared = FirstTime()
    if settings.scorer == "logprobs":
        return _plan_scored(model, benches, settings, shared)
    prepared = prepare_engine(settings, shared)
    parse(settings.user_flags, prepared.probe.flags)  # before anything is fetched or read to its end
    opened = open_benches(benches, settings)
    loaded = prepare_model(model, shared)
    cells = []
    for number, each in enumerate(opened):
        first = shared if number == 0 else FirstTime()
        cells.append(plan_cell(prepared, loaded, each, settings, first))
    return cells


def _plan_scored(model: str, benches: list[str], settings: Settings, shared: FirstTime) -> list[ScoredCell]:
    from llmc.engine.process import Limits
    from llmc.runs.bench import open_benches
    from llmc.runs.prepare import prepare_model
    from llmc.runs.scored import plan_scored_cell
    from llmc.runs.scorer import prepare_scorer
    from llmc.runs.settings import FirstTime

    scorer = prepare_scorer(Limits(timeout=settings.timeout, stall=settings.stall))
    opened = open_benches(benches, settings)
    loaded = prepare_model(model, shared)
    firsts = [shared, *(FirstTime() for _ in opened[1:])]
    return [plan_scored_cell(scorer, loaded, each, settings, first) for each, first in zip(opened, firsts, strict=True)]


def _run_one(cell: Cell | ScoredCell) -> Finished:
    # Either road imports a good deal, and a run takes only one.
    from llmc.runs.planned import Cell

    if isinstance(cell, Cell):
        from llmc.runs.cell import run_cell

        return run_cell(cell)
    from llmc.runs.scored import run_scored_cell

    return run_scored_cell(cell)


def _load_what_shows() -> None:
    """Import what will show the results; the import system makes whoever needs it sooner wait."""
    for name in ("llmc.report.run_output", "rich.table"):
        importlib.import_module(name)


def _run_all(cells: list[Cell] | list[ScoredCell]) -> int:
    threading.Thread(target=_load_what_shows, daemon=True).start()  # while the engine works
    finished: list[Finished] = []
    try:
        for cell in cells:
            finished.append(_run_one(cell))
            if finished[-1].record.status == "interrupted":
                break
    except BaseException:
        if finished:
            from llmc.report.run_output import show_finished

            show_finished(finished)  # what is done is not lost with what went wrong
        raise
    from llmc.report.run_output import show_finished

    code = ExitCode.worst(each.record.exit_code for each in finished)
    show_finished(finished)
    data = [{"folder": str(f.folder), "reused": f.reused, "record": f.record.dump()} for f in finished]
    console.emit("run", {"runs": data}, code)
    return int(code)
