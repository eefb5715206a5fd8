"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmc import console


def _json(on: bool) -> bool:
    if on:
        console.set_json(True)
    return on


Json = Annotated[bool, typer.Option("--json", callback=_json, help="Print one JSON object on stdout, nothing else.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for everything llmc writes.")]
Engine = Annotated[str | None, typer.Option("--engine", help="llama-perplexity to use: a path, or a command on PATH.")]
