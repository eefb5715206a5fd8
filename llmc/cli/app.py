"""The command tree. Each group registers itself; its heavy imports happen inside the command."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from llmc.errors import InterruptedRun


class _Tree(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Newer versions of typer would turn it into an exit that says nothing.
            raise InterruptedRun("interrupted") from None


app = typer.Typer(
    name="llmc",
    cls=_Tree,
    help="Score GGUF models with llama.cpp, and refuse numbers that cannot be trusted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", "-V", help="Show the version and exit."),
) -> None:
    if version:
        from llmc import __version__

        typer.echo(f"llmc {__version__}")
        raise typer.Exit()


def register() -> None:
    """Attach every command file to the tree."""
    import importlib
    import pkgutil

    import llmc.cli

    for module in sorted(m.name for m in pkgutil.iter_modules(llmc.cli.__path__)):
        if module not in ("app", "options"):
            importlib.import_module(f"llmc.cli.{module}")


register()
