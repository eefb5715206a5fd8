"""``llmc suite``: the suites there are; and what ``llmc run --suite`` does."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json
from llmc.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from llmc.judge.suite import Judged
    from llmc.runs.planned import ScoredCell
    from llmc.runs.settings import Settings
    from llmc.runs.suite_plan import SuitePlan
    from llmc.runs.suite_run import SuiteRun
    from llmc.runs.suite_tree import Suite

SCHEMA = "llmc.suite/1"
OVERRIDES = {"tokenization": "tokenization", "bos": "bos", "truncate": "truncate"}
# Options of `llmc run` that say something to a suite; what the others ask for, the suite decides itself.
ALLOWED = {
    "suite", "model", "source", "out", "json", "force", "dry_run", "health", "timeout", "stall_timeout",
    "context_tokens", "kv_type", *OVERRIDES,
}  # fmt: skip

suite = typer.Typer(help="Suites of benchmarks, for `llmc run --suite`.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(suite, name="suite")


@suite.command("list")
def list_suites(json: Json = False) -> None:
    """List every suite with its variants."""
    from llmc.report.tables import plain_table
    from llmc.runs import suite_tree

    table = plain_table("suite", "parts", "what it is")
    found = []
    for name, path in suite_tree.catalogue().items():
        file = suite_tree.load(path)
        for each in (suite_tree.resolve(file, variant) for variant in ("", *file.variants)):
            leaves = len(list(each.tree.leaves()))
            table.add_row(each.name, str(len(each.tree.parts)), each.description)
            found.append({"name": each.name, "title": each.title, "parts": len(each.tree.parts), "tasks": leaves})
        console.note(f"{name}: {file.source}")
    console.show(table)
    console.emit("suite list", {"suites": found})


@suite.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A suite, suite:variant, or a YAML file.")],
    json: Json = False,
) -> None:
    """Show the tasks of a suite: whose questions, how asked, and how their scores become one."""
    from llmc.report.tables import plain_table
    from llmc.runs import suite_tree
    from llmc.runs.suite_plan import check_names

    one = suite_tree.find(name)
    check_names(one)
    table = plain_table("task", "questions", "protocol", "shots", "sample", "metric")
    data = []
    for leaf in one.tree.leaves():
        asked = leaf.questions
        drawn = asked.sample
        sample = f"{drawn.count} of the part, seed {drawn.seed}, {drawn.draw}" if drawn else "all"
        questions = f"{asked.benchmark} {' + '.join(asked.splits)}"
        protocol = asked.protocol or "default"
        table.add_row(leaf.path, questions, protocol, str(asked.shots), sample, leaf.metric)
        data.append(
            {
                "path": leaf.path,
                "benchmark": asked.benchmark,
                "splits": list(asked.splits),
                "protocol": asked.protocol,
                "shots": asked.shots,
                "group": leaf.group,
                "sample": drawn.model_dump() if drawn else None,
                "metric": leaf.metric,
            }
        )
    console.show_text("\n".join(line for line in (f"{one.name}: {one.title}", one.description, one.source, "") if line))
    console.show(table)
    console.emit("suite show", {"name": one.name, "aggregate": one.tree.aggregate, "tasks": data})


def run_suite_command(
    name: str, model: str, settings: Settings, *, explicit: Collection[str], scorer: str, dry_run: bool
) -> int:
    """Do what ``llmc run --suite`` asks and return the exit code; ``explicit`` are the options that were given."""
    from llmc.runs import suite_tree
    from llmc.runs.suite_run import run_suite

    refuse_others(explicit, settings, scorer)
    one = suite_tree.find(name)
    chosen = {field: value for field, value in one.scoring.items() if field not in explicit}
    settings = replace(settings, scoring=replace(settings.scoring, **chosen))  # type: ignore[arg-type]
    plan, cells = _plan(one, model, settings)
    if dry_run:
        return _show_plan(plan, cells)
    return _show(one, plan, cells, run_suite(plan, cells), settings)


def refuse_others(explicit: Collection[str], settings: Settings, scorer: str) -> None:
    """Raise UsageError for options that a suite has no use for: they are mistakes, not wishes to be ignored."""
    if settings.user_flags:
        raise UsageError("flags after `--` are llama-perplexity's, and a suite is scored without it", "drop them")
    if "resume" in explicit:
        raise UsageError("a suite resumes by itself", "leave --resume out and run it again")
    others = sorted(set(explicit) - ALLOWED - ({"scorer"} if scorer == "logprobs" else set()))
    if others:
        named = ", ".join(
            "benchmarks" if each in ("bench", "more") else f"--{each.replace('_', '-')}" for each in others
        )
        raise UsageError(f"a suite decides for itself what {named} would say", f"drop {named}, or leave out --suite")


def _plan(one: Suite, model: str, settings: Settings) -> tuple[SuitePlan, list[ScoredCell]]:
    from llmc.engine.process import Limits
    from llmc.runs.prepare import prepare_model
    from llmc.runs.scorer import prepare_scorer
    from llmc.runs.settings import FirstTime
    from llmc.runs.store import require_writable
    from llmc.runs.suite_plan import plan_suite
    from llmc.runs.suite_run import scored_cells

    require_writable(settings.out)
    first = FirstTime()
    scorer = prepare_scorer(Limits(timeout=settings.timeout, stall=settings.stall))
    loaded = prepare_model(model, first)
    plan = plan_suite(one, settings)
    return plan, scored_cells(plan, scorer, loaded, settings, first)


def _show_plan(plan: SuitePlan, cells: list[ScoredCell]) -> int:
    from llmc.report.run_output import show_plans
    from llmc.runs.describe import describe

    plans = [describe(cell) for cell in cells]
    show_plans(plans)
    missing = {path: absent.__dict__ for path, absent in plan.absent.items()}
    for path, absent in plan.absent.items():
        console.show_text(f"missing: {path}: {absent.what}")
    console.emit("run", {"dry_run": True, "suite": plan.suite.name, "cells": plans, "missing": missing})
    return int(ExitCode.OK)


def _show(one: Suite, plan: SuitePlan, cells: list[ScoredCell], done: SuiteRun, settings: Settings) -> int:
    from llmc.judge.suite import judge
    from llmc.report.suite_table import absent_lines, level_table, verdict_line

    judged = judge(one.tree, done.results)
    code = ExitCode.OK if judged.score is not None else ExitCode.UNTRUSTED
    code = ExitCode.INTERRUPTED if done.interrupted else code
    record = _record(one, judged, cells, done, settings, code)
    path = _write(record, one, cells, settings)
    for node in judged.nodes():
        console.show_text(f"{one.name if node is judged else node.path}:")
        console.show(level_table(node))
        console.show()
    for line in absent_lines(judged):
        console.show_text(line)
    console.show_text(verdict_line(one.name, judged))
    if record["differs"]:
        console.show_text(f"not as the suite defines it: {', '.join(record['differs'])}")
    console.show_text(f"record: {path}")
    data = [{"folder": str(f.folder), "reused": f.reused, "record": f.record.dump()} for f in done.finished]
    console.emit("run", {"suite": record, "file": str(path), "runs": data}, code)
    return int(code)


def _record(
    one: Suite, judged: Judged, cells: list[ScoredCell], done: SuiteRun, settings: Settings, code: ExitCode
) -> dict[str, Any]:
    from llmc import __version__
    from llmc.runs.store import now

    used = settings.scoring.evaluated()
    statuses = {ExitCode.OK: "trusted", ExitCode.INTERRUPTED: "interrupted"}
    return {
        "schema": SCHEMA,
        "llmc_version": __version__,
        "suite": one.name,
        "title": one.title,
        "source": one.source,
        "finished": now(),
        "status": statuses.get(code, "incomplete"),
        "model": cells[0].model.identity().model_dump(mode="json") if cells else None,
        "scoring": used,
        "differs": [
            f"{name} {used[name]} instead of {value}" for name, value in one.scoring.items() if used[name] != value
        ],
        "score": judged.score,
        "metric": judged.metric,
        "metrics": dict(judged.metrics),
        "tree": judged.data(),
        "runs": [
            {"folder": each.folder.name, "benchmark": _name(each), "reused": each.reused} for each in done.finished
        ],
    }


def _name(finished: Any) -> str:
    return str(finished.record.benchmark.name)


def _write(record: dict[str, Any], one: Suite, cells: list[ScoredCell], settings: Settings) -> Path:
    """Write the suite's record beside the runs that it rests on, and return its path."""
    from llmc.files import write_json
    from llmc.runs.record import content_key
    from llmc.runs.store import KEY_LENGTH, slug

    stamp = record["finished"].replace("-", "").replace(":", "")
    model = slug(cells[0].model.short_name) if cells else "no-model"
    path = settings.out / "suites" / f"{stamp}-{model}-{slug(one.file_name)}-{content_key(record)[:KEY_LENGTH]}.json"
    write_json(path, record)
    return path
