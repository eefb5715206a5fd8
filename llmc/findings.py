"""Every finding: its slug, its severity, what happened, why llama.cpp does that, and the remedy.

Slugs are stable: programs match on them, and ``llmc explain SLUG`` prints the page. An ``error`` makes a run
untrusted; a ``warning`` is shown and recorded. The pages themselves are in ``finding_pages.py``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from llmc.errors import UsageError, did_you_mean
from llmc.files import readable
from llmc.finding_pages import PAGES, Page

Severity = Literal["error", "warning"]


class Finding(BaseModel):
    """One thing the audit saw. ``detail`` carries the figures of this very run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slug: str
    severity: Severity
    detail: str

    @property
    def remedy(self) -> str:
        return page(self.slug).remedy


def finding(slug: str, detail: str, severity: Severity | None = None) -> Finding:
    """Make a finding with its page's severity, or another one where the circumstances change it."""
    return Finding(slug=slug, severity=severity or page(slug).severity, detail=readable(detail))


def page(slug: str) -> Page:
    """Return the page of a slug; UsageError with the nearest known slug when there is none."""
    try:
        return PAGES[slug]
    except KeyError:
        raise UsageError(
            f"there is no finding called {slug!r}{did_you_mean(slug, PAGES)}", "list them with `llmc explain`"
        ) from None


def has_error(findings: list[Finding] | tuple[Finding, ...]) -> bool:
    return any(f.severity == "error" for f in findings)
