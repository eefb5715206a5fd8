from __future__ import annotations

import json

import pytest

from llmc.__main__ import run
from llmc.finding_pages import PAGES


@pytest.mark.parametrize("slug", PAGES)
def test_every_page_in_full(slug: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", slug]) == 0
    shown = capsys.readouterr().out
    page = PAGES[slug]
    for part in (slug, page.severity, page.title, page.what, page.why, page.remedy):
        assert part in shown
    assert all(part.strip() for part in (page.title, page.what, page.why, page.remedy))


def test_the_list_has_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == 0
    shown = capsys.readouterr().out
    assert all(slug in shown for slug in PAGES)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "row-gap", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["command"], body["status"], body["data"]["slug"]) == ("explain", "ok", "row-gap")
    assert body["data"]["remedy"] == PAGES["row-gap"].remedy
    assert run(["explain", "--json"]) == 0
    assert [f["slug"] for f in json.loads(capsys.readouterr().out)["data"]["findings"]] == list(PAGES)


def test_an_unknown_finding_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "row-gaps"]) == 2
    assert "did you mean row-gap?" in capsys.readouterr().err
    assert run(["explain", "row-gaps", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"
    assert run(["explain", "ROW-GAP "]) == 0
