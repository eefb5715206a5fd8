"""``llmc sweep``: models x quantizations x benchmarks x settings, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import ExitCode, LlmcError

if TYPE_CHECKING:
    from llmc.sweep.board import Event
    from llmc.sweep.run import Request


@app.command()
def sweep(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What to run; see configs/sweeps/.")],
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Cells side by side. Default: 1, or one a GPU.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="GPUs to pin cells to: 0,1,2 one each, 0+1,2+3 two each.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="I/N", help="Only the I-th of N parts of the cells (job arrays).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run cells again even if the store has trusted runs.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the cells and what each needs; run nothing.")
    ] = False,
    out: Out = Path("out"),
    json: Json = False,
) -> int:
    """Run every cell of a sweep that has no trusted run yet; run it again to go on after an interruption.

    A cell that fails is recorded and shown, and stops no other. Exits 3 when any cell has no trusted run or a suite no
    score, else with the verdict of the configuration's gate, else 0.
    """
    from llmc.sweep.config import load_config
    from llmc.sweep.gate import check_baseline
    from llmc.sweep.matrix import expand
    from llmc.sweep.run import Request, parse_shard

    loaded, file = load_config(config)
    request = Request(
        config=loaded,
        file=file,
        matrix=expand(loaded, file),
        out=out,
        shard=parse_shard(shard) if shard else None,
        force=force,
        jobs=jobs,
        gpus=tuple(gpus.split(",")) if gpus else (),
    )
    check_baseline(loaded, file, out)
    return _preview(request) if dry_run else _run(request)


def _run(request: Request) -> int:
    from llmc.report.sweep_table import show_sweep, sweep_data
    from llmc.report.sweep_view import view_sweep
    from llmc.sweep.run import run_sweep

    with console.progress(request.config.name, len(request.cells)) as advance:
        display = _Display(advance)
        run_sweep(request, display.ended, display.step)
    view = view_sweep(request.folder.path, only=[cell.id for cell in request.cells])
    show_sweep(view)
    console.emit("sweep", sweep_data(view), view.exit_code)
    return int(view.exit_code)


class _Display:
    """One bar over all cells, beside it what is being done; a line for each cell that ended."""

    def __init__(self, advance: console.Advance) -> None:
        self.advance = advance
        self.ended_cells = 0
        self.steps: dict[str, str] = {}

    def step(self, cell: str, title: str, total: float | None, done: float, remark: str) -> None:
        text = f"{title} {remark}".strip()
        if cell:
            self.steps[cell] = text
            self._draw()
        else:  # before the first one
            self.advance(self.ended_cells, text)

    def ended(self, event: Event) -> None:
        from llmc.report.run_table import duration, percent

        self.ended_cells = event.number
        self.steps.pop(event.cell.id, None)
        done = event.done
        score = f"{percent(done.accuracy)}  " if done.accuracy is not None else ""
        took = "reused" if done.reused else duration(event.seconds)
        why = f": {done.error['message']}" if done.error else ""
        console.note(f"[{event.number}/{event.total}] {event.cell.id}  {score}{done.status}{why}  {took}")
        self._draw()

    def _draw(self) -> None:
        steps = list(self.steps.values())
        more = f" and {len(steps) - 1} more" if len(steps) > 1 else ""
        self.advance(self.ended_cells, (steps[0] + more) if steps else "")


def _preview(request: Request) -> int:
    from llmc.report.sweep_table import preview_table
    from llmc.sweep.run import preview

    cells = preview(request)
    free = _free(request.out)
    made = {cell["model"]: cell["disk_bytes"] for cell in cells}
    keep = request.config.keep
    disk = sum(made.values()) if keep else max(made.values(), default=0) * len(request.slots())
    left = [cell for cell in cells if not cell["cached"]]
    console.show(preview_table(cells, console.width()))
    console.show()
    console.show_text(f"{len(cells)} cells, {len(cells) - len(left)} of them done already")
    if disk:
        console.show_text(
            f"disk for quantized models: {disk / 1e9:.2f} GB{'' if keep else ' at a time'}; {free / 1e9:.1f} GB free"
        )
    failing = [cell for cell in cells if cell["error"]]
    for cell in failing:
        console.show_text(f"would fail: {cell['cell']}: {cell['error']['message']}")
    code = ExitCode.USAGE if failing else ExitCode.OK if cells else ExitCode.NOTHING
    data: dict[str, Any] = {
        "dry_run": True,
        "name": request.config.name,
        "cells": cells,
        "disk_bytes": disk,
        "free_bytes": free,
    }
    console.emit("sweep", data, code)
    return int(code)


def _free(out: Path) -> int:
    import shutil

    folder = out.resolve()
    while not folder.exists():
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise LlmcError(f"cannot tell the free space of {folder}: {error.strerror}", "choose another --out") from error
