"""Findings and verdicts in words, for every command that judges a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llmc.findings import Finding, page

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

STYLES = {"error": "bold red", "warning": "yellow"}


def verdict_text(trusted: bool, findings: Sequence[Finding]) -> Text:
    """Return ``trusted`` or ``untrusted`` with the number of findings behind it."""
    from rich.text import Text

    errors = sum(f.severity == "error" for f in findings)
    warnings = len(findings) - errors
    text = Text("trusted", style="bold green") if trusted else Text("untrusted", style="bold red")
    counts = [_counted(n, noun) for n, noun in ((errors, "error"), (warnings, "warning")) if n]
    return text.append(f" ({', '.join(counts)})", style="default") if counts else text


class _Indented:
    """Text two columns in: wrapped with a hanging indent on a terminal, one long line in a pipe."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.padding import Padding
        from rich.text import Text

        yield Text("  ").append_text(self.text) if options.no_wrap else Padding(self.text, (0, 0, 0, 2))


def findings_renderable(findings: Sequence[Finding]) -> RenderableType:
    """Return the findings in words: what was found with this run's figures, and how to mend it.

    The severity is a word, never colour alone, and lines wrap with a hanging indent at any width.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for each in findings:
        head = Text.assemble((each.severity, STYLES[each.severity]), " ", (each.slug, "bold"))
        parts.append(head.append(f": {page(each.slug).title}"))
        parts.append(_Indented(Text(each.detail)))
        parts.append(_Indented(Text.assemble(("fix: ", "bold"), each.remedy)))
    if any(f.severity == "error" for f in findings):
        parts.append(Text(f"in full: llmc explain {findings[0].slug}", style="dim"))
    return Group(*parts)


def findings_data(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Return the findings for JSON output, each with its remedy."""
    return [{**each.model_dump(), "remedy": each.remedy} for each in findings]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number > 1 else "")
