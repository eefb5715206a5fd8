"""``llmc gate``: may this change be merged? One verdict, printed, reported, and returned to the shell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import UsageError, os_error

if TYPE_CHECKING:
    from llmc.judge.gate import Verdict
    from llmc.judge.policy import Policy

EXAMPLE = "see configs/gates/ in llmc's repository"


@app.command()
def gate(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Records, run folders, runs of the store, or a sweep."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A YAML file that says what is asked.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="FILE", help="A committed baseline file, or a run.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option("--margin", help="Points of accuracy that may be lost. Default 1.0.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option("--alpha", help="Chance of a wrong pass that is accepted. Default 0.05.")
    ] = None,
    min_accuracy: Annotated[
        list[str] | None,
        typer.Option("--min-accuracy", metavar="[BENCH=]PERCENT", help="The least accuracy; several may follow."),
    ] = None,
    groups: Annotated[
        str | None, typer.Option("--groups", help="clusters: questions of one group hang together; none.")
    ] = None,
    axis: Annotated[
        list[str] | None, typer.Option("--axis", help="A setting that differs from the baseline's on purpose.")
    ] = None,
    holm: Annotated[
        bool | None, typer.Option("--holm/--no-holm", help="Adjust for the number of tests. Default: yes.")
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json-file", metavar="FILE", help="Write JSON.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown.")] = None,
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Hold runs against floors and a baseline: pass 0, fail 1, inconclusive 4, untrusted 3, nothing to evaluate 5."""
    from llmc.judge.gate import judge
    from llmc.judge.inputs import open_gated

    given = {"baseline": baseline, "margin": margin, "alpha": alpha, "groups": groups, "axis": axis, "holm": holm}
    policy = _policy(config, {name: value for name, value in given.items() if value is not None}, min_accuracy or [])
    names = runs or list(policy.runs)
    if not names:
        raise UsageError("no run was named", "name the runs to hold against the gate, or a sweep; see `llmc runs list`")
    sides = open_gated(names, out, policy.baseline)
    policy = policy.model_copy(update={"axis": (*sides.axis, *policy.axis)})
    verdict = judge(sides.candidates, sides.baselines, policy)
    _write_reports(verdict, junit, json_file, markdown)
    _show(verdict)
    return int(verdict.exit_code)


def _policy(config: Path | None, flags: dict[str, Any], floors: list[str]) -> Policy:
    """Return what is asked: the file's demands, with those on the command line in their place."""
    from pydantic import ValidationError

    from llmc.judge.policy import Policy

    body: dict[str, Any] = {}
    if config is not None:
        from llmc.yamlfile import read_yaml, validate

        read = validate(Policy, read_yaml(config), EXAMPLE)
        body = read.model_dump(exclude_unset=True)
        for name in ("baseline", "runs"):
            if name in body:
                body[name] = _beside(body[name], config.parent)
    body |= flags
    for text in floors:
        bench, percent = _floor(text)
        if bench is None:
            body["min_accuracy"] = percent
        else:
            own = body.setdefault("benchmarks", {}).setdefault(bench, {})
            own["min_accuracy"] = percent
    try:
        return Policy.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        # Of a benchmark's own demands only the floor can come from the command line; the file was checked before.
        name = "--min-accuracy" if key == "benchmarks" else "--" + key.replace("_", "-")
        raise UsageError(
            f"{name}: {str(first['msg']).removeprefix('Value error, ')}", "see `llmc gate --help`"
        ) from None


def _beside(names: Any, folder: Path) -> Any:
    """Paths in a file are relative to it; what is no path there is the name of a run."""
    if isinstance(names, str):
        path = folder / names
        return str(path) if path.exists() or names.endswith(".json") else names
    return [_beside(name, folder) for name in names]


def _floor(text: str) -> tuple[str | None, float]:
    bench, equals, number = text.rpartition("=")
    try:
        if equals and not bench.strip():
            raise ValueError("no benchmark is named before =")
        return (bench if equals else None), float(number.strip().removesuffix("%"))
    except ValueError:
        raise UsageError(
            f"--min-accuracy takes a percentage, alone or for a benchmark, not {text!r}",
            "write --min-accuracy 45 or --min-accuracy arc-easy-validation=45",
        ) from None


def _write_reports(verdict: Verdict, junit: Path | None, json_file: Path | None, markdown: Path | None) -> None:
    from llmc.files import atomic_write, write_json
    from llmc.report import gate as report
    from llmc.report.junit import junit as as_junit

    try:
        if junit is not None:
            with atomic_write(junit) as file:
                file.write(as_junit(verdict))
        if json_file is not None:
            write_json(json_file, report.data(verdict))
        if markdown is not None:
            with atomic_write(markdown) as file:
                file.write(report.markdown(verdict).encode("utf-8", "replace"))
    except OSError as error:
        raise os_error(error, "write the report", "choose another place for it") from error


def _show(verdict: Verdict) -> None:
    from llmc.report import gate as report
    from llmc.report import github

    if verdict.cases:
        console.show(report.table(verdict))
        console.show()
    for line in report.explanations(verdict):
        console.show_text(line)
    console.show_text(report.headline(verdict))
    if github.active(os.environ):
        for line in github.annotation_lines(verdict):
            console.workflow_command(line)
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            try:
                github.append_summary(verdict, Path(summary))
            except OSError as error:
                # The verdict is what counts: a summary that cannot be written does not change it.
                console.note(f"the step summary cannot be written: {error}")
    console.emit("gate", report.data(verdict), verdict.exit_code)
