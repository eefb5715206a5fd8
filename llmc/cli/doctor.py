"""``llmc doctor``: what this machine has, and what to do about what is missing."""

from __future__ import annotations

from dataclasses import asdict

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json
from llmc.errors import ExitCode

MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "missing": "[bold red]missing[/]"}


@app.command()
def doctor(json: Json = False) -> int:
    """Check engine, binding, compiler, memory, caches and settings; exit 2 when `llmc run` could not work."""
    from rich.text import Text

    from llmc.report.doctor import checks
    from llmc.report.tables import plain_table

    with console.progress("Looking around") as advance:
        found = []
        for done, check in enumerate(checks(), start=1):
            found.append(check)
            advance(done, check.name)
    table = plain_table("what", "state", "found")
    for check in found:
        detail = Text(check.detail)
        if check.remedy:
            detail.append(f"\n-> {check.remedy}", style="bold")
        table.add_row(check.name, MARKS[check.level], detail)
    console.show(table)
    missing = [check.name for check in found if check.level == "missing"]
    code = ExitCode.USAGE if missing else ExitCode.OK
    console.show_text(f"not ready: {', '.join(missing)}" if missing else "ready: everything `llmc run` needs is here")
    console.emit("doctor", {"ready": not missing, "checks": [asdict(check) for check in found]}, code)
    return int(code)
