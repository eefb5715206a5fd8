"""`llmc report`: one folder, the same figures in every form, what has no score first, and a page that stands alone."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from helpers import Cli
from llmc.files import write_json
from llmc.judge.stats import mcnemar
from llmc.runs.record import ModelIdentity, RunRecord
from llmc.runs.store import finish
from made_runs import record

BENCHES = ("arc", "boolq")
MODELS = {"full": 16.1, "Q8_0": 8.6, "Q5_K": 5.9, "Q4_0": 4.7}


def answers(model: str, bench: str, tasks: int = 200) -> str:
    """Each smaller model loses some of what the full one has right, and gains a little."""
    step = list(MODELS).index(model)
    marks = ["1" if (i * 7 + len(bench)) % 10 < 6 else "0" for i in range(tasks)]
    for i in range(step * 9):
        place = (i * 37 + step) % tasks
        marks[place] = "0" if marks[place] == "1" else "1" if i % 3 == 0 else "0"
    return "".join(marks)


def made(folder: Path, *, broken: str = "", gate: dict[str, Any] | None = None, baseline: bool = True) -> Path:
    """Write a sweep of four models on two benchmarks into ``folder``/out; ``broken`` names a model without score."""
    cells: dict[str, Any] = {}
    for model, bits in MODELS.items():
        for bench in BENCHES:
            name, run = f"{model}/{bench}", f"20260102T030405Z-{model}-{bench}-0000000000"
            identity = ModelIdentity(
                ref=model, path=f"/m/{model}.gguf", sha256=model, size=int(bits * 1e8), quantization=model,
                bits_per_weight=bits,
            )  # fmt: skip
            made_record: RunRecord = record(
                answers(model, bench), model=model, bench=bench, trusted=model != broken
            ).model_copy(update={"model": identity})
            target = folder / "out/runs" / run
            target.mkdir(parents=True)
            finish(target, made_record)
            cells[name] = {
                "model": model,
                "benchmark": bench,
                "definition": "d",
                "status": made_record.status,
                "run": run,
                "seconds": 12.5,
                "finished": "2026-01-02T03:05:05Z",
                "baseline": f"full/{bench}" if baseline and model != "full" else None,
            }
    path = folder / "out/sweeps/ladder"
    head = {"schema": "llmc.sweep/1", "name": "ladder", "updated": "2026-01-02T03:05:05Z"}
    write_json(path / "cells.json", {**head, "config": {"name": "ladder", "gate": gate}, "cells": cells})
    return path


def report(cli: Cli, sweep: Path, *more: str) -> tuple[int, Path, str]:
    called = cli("report", sweep, *more)
    return called.code, sweep / "report", called.out + called.err


class Page(HTMLParser):
    """What a page refers to and says, and whether every element is closed."""

    VOID = ("meta", "link", "br", "hr", "img", "input", "col")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "poster", "data"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)


def test_every_form_holds_the_same_figures(cli: Cli, tmp_path: Path) -> None:
    sweep = made(tmp_path)
    code, folder, said = report(cli, sweep)
    assert code == 0, said
    data = json.loads((folder / "cells.json").read_text())
    with (folder / "cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(data["cells"]) == 8
    page, markdown = (folder / "index.html").read_text(), (folder / "report.md").read_text()
    for row, cell in zip(rows, data["cells"], strict=True):
        correct = answers(cell["model"], cell["benchmark"])
        assert cell["accuracy"] == correct.count("1") / len(correct) == float(row["accuracy"])
        assert f"{100 * cell['accuracy']:.2f} %" in page and f"{100 * cell['accuracy']:.2f} %" in markdown
        if cell["model"] == "full":
            assert cell["difference"] is None and row["difference"] == ""
            continue
        base = answers("full", cell["benchmark"])
        lost = sum(a > b for a, b in zip(base, correct, strict=True))
        gained = sum(a < b for a, b in zip(base, correct, strict=True))
        assert (cell["lost"], cell["gained"]) == (lost, gained) == (int(row["lost"]), int(row["gained"]))
        assert cell["p"] == pytest.approx(mcnemar(lost, gained).mid_p) and cell["p_holm"] >= cell["p"]
        assert f"{100 * cell['difference']:+.2f}" in page and f"{100 * cell['difference']:+.2f}" in markdown


def test_a_cell_without_a_score_comes_first_and_is_drawn_nowhere(cli: Cli, tmp_path: Path) -> None:
    sweep = made(tmp_path, broken="Q5_K")
    code, folder, said = report(cli, sweep)
    assert code == 3 and said.startswith("untrusted: Q5_K/arc")
    for name in ("index.html", "report.md"):
        text = (folder / name).read_text().replace("\\", "")
        said_first = [text.index(word) for word in ("Q5_K/arc", "scored-fewer", "Fix:")]
        assert max(said_first) < min(text.index(word) for word in ("60.00 %", "<svg", "| model") if word in text)
    for picture in (folder / "plots").glob("*.svg"):
        assert "Q4_0" in picture.read_text() and "Q5_K" not in picture.read_text()
    cells = {cell["cell"]: cell for cell in json.loads((folder / "cells.json").read_text())["cells"]}
    assert cells["Q5_K/arc"]["accuracy"] is None and cells["Q5_K/arc"]["difference"] is None
    assert cells["Q4_0/arc"]["difference"] is not None


def test_a_baseline_without_a_score_leaves_the_scores_of_others(cli: Cli, tmp_path: Path) -> None:
    sweep = made(tmp_path, broken="full")
    code, folder, _ = report(cli, sweep)
    cells = {cell["cell"]: cell for cell in json.loads((folder / "cells.json").read_text())["cells"]}
    assert code == 3
    assert cells["Q8_0/arc"]["accuracy"] is not None and cells["Q8_0/arc"]["difference"] is None


def test_a_lost_run_is_a_cell_without_a_score(cli: Cli, tmp_path: Path) -> None:
    sweep = made(tmp_path)
    shutil.rmtree(next((tmp_path / "out/runs").glob("*-Q4_0-arc-*")))
    code, folder, said = report(cli, sweep)
    assert code == 3 and "Q4_0/arc" in said
    assert sum(cell["accuracy"] is not None for cell in json.loads((folder / "cells.json").read_text())["cells"]) == 7


@pytest.mark.parametrize("changes", [{}, {"broken": "Q8_0"}, {"baseline": False}, {"gate": {"margin": 3}}])
def test_the_page_stands_alone(cli: Cli, tmp_path: Path, changes: dict[str, Any]) -> None:
    sweep = made(tmp_path, **changes)
    _, folder, _ = report(cli, sweep)
    text = (folder / "index.html").read_text()
    page = Page(text)
    assert page.open == [] and page.scripts == 0
    assert all(link.startswith(("#", "data:")) for link in page.links), page.links
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", text)
    assert len(page.ids) == len(set(page.ids))
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    for word in re.findall(r"var\((--[a-z-]+)", text):
        assert f"{word}:" in text, word


def test_words_of_users_are_text_and_nothing_else(cli: Cli, tmp_path: Path) -> None:
    sweep = made(tmp_path)
    path = sweep / "cells.json"
    text = path.read_text().replace('"model": "Q4_0"', '"model": "<script>alert(1)</script>|x"')
    path.write_text(text.replace("Q4_0/", "<img src=x>/"))
    _, folder, _ = report(cli, sweep)
    page = (folder / "index.html").read_text()
    assert "<script>" not in page and "<img" not in page and Page(page).open == []
    markdown = (folder / "report.md").read_text()
    assert "<script>" not in markdown and "<img" not in markdown
    assert all(line.count("|") - line.count("\\|") == 13 for line in markdown.splitlines() if line.startswith("|"))


def test_the_gates_verdict_is_the_reports(cli: Cli, tmp_path: Path) -> None:
    for number, (margin, code) in enumerate(((40, 0), (0.5, 1))):
        sweep = made(tmp_path / str(number), gate={"margin": margin})
        found, folder, _ = report(cli, sweep)
        assert found == code
        data = json.loads((folder / "cells.json").read_text())
        assert data["gate"]["exit_code"] == code == data["exit_code"]
        assert data["gate"]["outcome"] in (folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ({"margin": 3, "baseline": "nowhere"}, "nowhere"),
        ({"margin": 3, "axis": ["layuot"]}, "did you mean layout"),
        ({"margin": 1000}, "margin"),
    ],
)
def test_a_gate_that_cannot_be_held_hides_no_cell(cli: Cli, tmp_path: Path, gate: dict[str, Any], said: str) -> None:
    code, folder, shown = report(cli, made(tmp_path, gate=gate))
    data = json.loads((folder / "cells.json").read_text())
    assert code == 2 == data["exit_code"] and data["trusted"] == 8 and data["gate"] is None
    assert all(cell["accuracy"] is not None for cell in data["cells"])
    page, markdown = (folder / "index.html").read_text(), (folder / "report.md").read_text().replace("\\", "")
    assert all("no verdict: the gate" in text and said in text for text in (shown, page, markdown))
    assert page.index("no verdict") < page.index("<table")


def test_an_ampersand_is_text_too(cli: Cli, tmp_path: Path) -> None:
    sweep = made(tmp_path)
    path = sweep / "cells.json"
    path.write_text(path.read_text().replace('"model": "Q4_0"', '"model": "&lt;script&gt; AT&T"'))
    _, folder, _ = report(cli, sweep)
    assert "&amp;lt;script&amp;gt; AT&amp;T" in (folder / "report.md").read_text()


def test_sweeps_are_found_by_name_and_written_where_asked(cli: Cli, tmp_path: Path) -> None:
    made(tmp_path)
    called = cli("report", "ladder", "--out", tmp_path / "out", "--to", tmp_path / "elsewhere", "--json")
    assert called.code == 0 and (tmp_path / "elsewhere/index.html").is_file()
    assert sorted(Path(path).name for path in called.data["files"]) == [
        "accuracy.svg", "cells.csv", "cells.json", "differences.svg", "index.html", "report.md", "timings.svg",
    ]  # fmt: skip
    assert cli("report", tmp_path / "out/sweeps/ladder/cells.json").code == 0
    unknown = cli("report", "lader", "--out", tmp_path / "out")
    assert unknown.code == 2 and "did you mean ladder?" in unknown.err


def test_without_matplotlib_the_report_says_how_to_get_plots(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    sweep = made(tmp_path)
    code, folder, said = report(cli, sweep)
    assert code == 0 and "llmc-gguf[plots]" in said
    assert "llmc-gguf[plots]" in (folder / "index.html").read_text() and not (folder / "plots").exists()


def test_pictures_in_files_have_fixed_colours(cli: Cli, tmp_path: Path) -> None:
    from xml.etree import ElementTree

    _, folder, _ = report(cli, made(tmp_path))
    for picture in (folder / "plots").glob("*.svg"):
        assert "var(" not in picture.read_text()
        ElementTree.parse(picture)
        assert f"](plots/{picture.name})" in (folder / "report.md").read_text()


def browser() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if found is None:
        pytest.skip("needs Chromium or Chrome to open the page in")
    return found


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page_without_complaint(cli: Cli, tmp_path: Path, width: int, scheme: str) -> None:
    program = browser()
    _, folder, _ = report(cli, made(tmp_path, broken="Q5_K", gate={"margin": 3}))
    # The page in a frame of the device's width: a window cannot be made as narrow as a phone.
    probe = tmp_path / "probe.html"
    probe.write_text(
        f'<iframe id="f" src="{(folder / "index.html").as_uri()}" style="width:{width}px;height:900px"></iframe>'
        "<script>onload = () => { const d = f.contentDocument, s = [...d.querySelectorAll('svg')];"
        "const shown = s.filter(x => x.getBoundingClientRect().width > 0);"
        "document.title = JSON.stringify({wide: d.documentElement.scrollWidth, shown: shown.length, all: s.length,"
        "background: getComputedStyle(d.body).backgroundColor,"
        "text: Math.min(...shown.flatMap(x => [...x.querySelectorAll('text')]"
        ".map(t => t.getBoundingClientRect().height).filter(h => h > 0)))}); }</script>"
    )
    command = [
        program, "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
        "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--enable-logging=stderr", "--v=0", f"--user-data-dir={tmp_path / 'profile'}",
        f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
        "--virtual-time-budget=5000", "--dump-dom", probe.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr, done.stderr
    match = re.search(r"<title>(.*?)</title>", done.stdout)
    assert match is not None, done.stdout[:2000]
    seen = json.loads(match[1])
    assert seen["wide"] <= width, "the page scrolls sideways"
    assert seen["shown"] == 3 and seen["all"] == 6
    assert seen["text"] >= 9, "text too small to read"
    assert (seen["background"] == "rgb(255, 255, 255)") == (scheme == "light")
