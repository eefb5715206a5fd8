from __future__ import annotations

import io

import pytest
from rich.console import Console

from llmc.findings import finding, page
from llmc.report.verdict import findings_data, findings_renderable, verdict_text

FINDINGS = [
    finding("too-many-options", "3 of 7 tasks scored; stopped at task 3, which needs 8 sequences"),
    finding("exit-unknown", "[bold]nobody[/bold] saw it"),
]


def rendered(width: int, *, soft: bool = False, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, soft_wrap=soft, force_terminal=colour, no_color=not colour)
    console.print(findings_renderable(FINDINGS))
    return out.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_every_word_is_shown_at_any_width(width: int) -> None:
    text = rendered(width)
    assert all(len(line) <= width for line in text.splitlines())
    for each in FINDINGS:
        for part in (each.severity, each.slug, page(each.slug).title, each.detail, each.remedy):
            assert words(part).replace(" ", "") in text.replace(" ", "").replace("\n", "")


def test_a_pipe_gets_whole_lines() -> None:
    lines = [line.rstrip() for line in rendered(80, soft=True).splitlines()]
    assert lines[:3] == [
        "error too-many-options: A task has more options than can be scored",
        f"  {FINDINGS[0].detail}",
        f"  fix: {FINDINGS[0].remedy}",
    ]
    assert lines[-1] == "in full: llmc explain too-many-options"


def test_no_colour_no_escape() -> None:
    assert "\x1b" not in rendered(80)
    assert "\x1b[" in rendered(80, colour=True)


def test_warnings_alone_point_nowhere() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(findings_renderable(FINDINGS[1:]))
    assert "in full" not in out.getvalue()


def test_verdict_counts_what_is_behind_it() -> None:
    assert verdict_text(False, FINDINGS).plain == "untrusted (1 error, 1 warning)"
    assert verdict_text(True, []).plain == "trusted"
    assert verdict_text(True, FINDINGS[1:] * 2).plain == "trusted (2 warnings)"


def test_data_carries_the_remedy() -> None:
    [first, _] = findings_data(FINDINGS)
    assert first == {
        "slug": "too-many-options",
        "severity": "error",
        "detail": FINDINGS[0].detail,
        "remedy": page("too-many-options").remedy,
    }
