"""``llmc explain``: what a finding means."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json
from llmc.errors import ExitCode


@app.command()
def explain(
    slug: Annotated[str | None, typer.Argument(metavar="[SLUG]", help="A finding; all are listed without.")] = None,
    json: Json = False,
) -> int:
    """Explain a finding in full: what happened, why llama.cpp does that, and what to do."""
    if slug is None:
        _list()
    else:
        _page(slug.strip().lower())
    return int(ExitCode.OK)


def _list() -> None:
    from llmc.finding_pages import PAGES
    from llmc.report.tables import plain_table

    table = plain_table()
    table.add_column("finding", no_wrap=True)
    table.add_column("severity", no_wrap=True)
    table.add_column("what it says")
    for slug, page in PAGES.items():
        table.add_row(slug, page.severity, page.title)
    console.show(table)
    data = [{"slug": slug, "severity": page.severity, "title": page.title} for slug, page in PAGES.items()]
    console.emit("explain", {"findings": data})


def _page(slug: str) -> None:
    from rich.text import Text

    from llmc.findings import page
    from llmc.report.verdict import STYLES

    found = page(slug)
    console.show(Text.assemble((slug, "bold"), " (", (found.severity, STYLES[found.severity]), ")"))
    console.show(Text(found.title))
    for heading, text in (("What happened", found.what), ("Why", found.why), ("What to do", found.remedy)):
        console.show()
        console.show(Text(heading, style="bold"))
        console.show(Text(text))
    console.emit("explain", {"slug": slug, **asdict(found)})
