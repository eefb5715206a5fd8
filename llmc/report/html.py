"""The page of a sweep: one HTML file that needs nothing else, for light and dark screens of any width."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmc.errors import ExitCode
from llmc.report import gate as gate_report
from llmc.report.compare import points
from llmc.report.run_table import percent
from llmc.report.sweep_row import Row
from llmc.report.sweep_suites import SuiteScore, by_suite, part_names, reasons
from llmc.report.sweep_suites import cells as suite_cells
from llmc.report.sweep_table import COLUMNS, alerts, cells, headline, method, problems
from llmc.report.sweep_view import View

if TYPE_CHECKING:
    from llmc.report.html_plots import Plot

_STYLE = Path(__file__).with_name("sweep.css")
_TONES = {"trusted": "good", "pass": "good", "inconclusive": "warn", "pending": "warn", "interrupted": "warn"}
FULL_SHADE = 0.05  # a difference of five points, or more, has the full colour
MOST_SHADE = 85


def page(view: View, plots: Sequence[Plot], without_plots: str = "") -> str:
    """Return the page. ``without_plots`` says why it has none."""
    title = _text(f"{view.name} - llmc")
    body = [
        _head(view),
        _untrusted(view),
        _alerts(view),
        _gate(view),
        _section("Models and benchmarks", _heat_map(view)),
        *(_section(plot.title, _figure(plot)) for plot in plots),
        _section("Plots", f"<p>{_text(without_plots)}</p>") if without_plots else "",
        *(_section(name, _suite(scores)) for name, scores in by_suite(view.suites).items()),
        _section("All cells", _results(view) + f'<p class="method">{_text(method(view))}</p>'),
        _section("What was run", _origin(view)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # An icon of its own keeps a browser from asking a server for one.
        f'<link rel="icon" href="data:,">\n<title>{title}</title>\n'
        f"<style>\n{_STYLE.read_text('utf-8')}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(part for part in body if part) + "\n</main>\n</body>\n</html>\n"
    )


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{_text(title)}</h2>\n{content}\n</section>"


def _badge(word: str) -> str:
    return f'<span class="badge {_TONES.get(word, "bad")}">{_text(word)}</span>'


def _head(view: View) -> str:
    word = {ExitCode.OK: "trusted", ExitCode.INTERRUPTED: "interrupted"}.get(view.exit_code)
    if view.gate is not None and not view.untrusted and not view.suites_without:
        word = view.gate.outcome
    elif view.exit_code == ExitCode.USAGE:
        word = "refused"
    return (
        f"<header>\n<h1>{_text(view.name)}</h1>\n<p>{_badge(word or 'untrusted')} {_text(headline(view))}</p>\n"
        f'<p class="muted">{_text(view.map.updated)} · llmc {_text(view.map.llmc_version)}</p>\n</header>'
    )


def _untrusted(view: View) -> str:
    if not view.untrusted:
        return ""
    count = len(view.untrusted)
    items = []
    for rows in problems(view):
        fix = f"<br><b>Fix:</b> {_text(rows[0].remedy)}" if rows[0].remedy else ""
        names = ", ".join(f"<b>{_text(row.id)}</b>" for row in rows)
        items.append(f"<li>{_badge(rows[0].status)} {names}: {_text(rows[0].problem)}{fix}</li>")
    return (
        f'<section class="alert">\n<h2>{count} {"cell has" if count == 1 else "cells have"} no score</h2>\n'
        f"<p>They are in no comparison and no plot.</p>\n<ul>\n{chr(10).join(items)}\n</ul>\n</section>"
    )


def _alerts(view: View) -> str:
    """What has no score or verdict although it has cells, at the top like the cells without a score."""
    items = "\n".join(f"<li>{_text(line)}</li>" for line in alerts(view))
    return f'<section class="alert">\n<h2>Without a verdict</h2>\n<ul>\n{items}\n</ul>\n</section>' if items else ""


def _gate(view: View) -> str:
    if view.gate is None:
        return ""
    rows = []
    for case in view.gate.cases:
        first, *rest = gate_report.cells(case)
        figures = "".join(f"<td{_left(i)}>{_text(each)}</td>" for i, each in enumerate(rest[1:], start=2))
        rows.append(f'<tr><th scope="row">{_text(rest[0])}</th><td class="text">{_badge(first)}</td>{figures}</tr>')
    names = gate_report.COLUMNS
    head = f'<th class="text">{names[1]}</th><th class="text">{names[0]}</th>'
    head += "".join(f"<th{_left(i)}>{_text(name)}</th>" for i, name in enumerate(names[2:], start=2))
    reasons = "".join(f"<li>{_text(line.strip())}</li>" for line in gate_report.explanations(view.gate))
    return _section(
        "Gate",
        f"<p>{_badge(view.gate.outcome)} {_text(gate_report.headline(view.gate))}</p>\n"
        f"<details><summary>Every demand</summary>{_table(head, rows)}</details>\n"
        f"<details><summary>Why, and what to do</summary><ul>{reasons}</ul></details>",
    )


def _left(column: int) -> str:
    return ' class="text"' if column in (2, 4) else ""


def _table(head: str, rows: Sequence[str], kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return (
        f'<div class="scroll" tabindex="0"><table{name}>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{chr(10).join(rows)}\n</tbody></table></div>"
    )


def _results(view: View) -> str:
    rows = []
    for row in view.rows:
        first, second, verdict, *figures = cells(row)
        body = f'<td class="text">{_text(second)}</td><td class="text">{_badge(verdict)}</td>'
        body += "".join(f"<td>{_text(each)}</td>" for each in figures)
        rows.append(f'<tr><th scope="row">{_text(first)}</th>{body}</tr>')
    head = "".join(f"<th{' class=text' if i < 3 else ''}>{_text(name)}</th>" for i, name in enumerate(COLUMNS))
    return _table(head, rows)


def _suite(scores: Sequence[SuiteScore]) -> str:
    """One row a model: the score of the suite and of its parts; below it, why there is none."""
    parts = part_names(scores)
    rows = []
    for each in scores:
        label, *figures = suite_cells(each, parts)
        body = "".join(f"<td>{_text(figure)}</td>" for figure in figures)
        rows.append(f'<tr><th scope="row">{_text(label)}</th>{body}</tr>')
    head = "".join(
        f"<th{'' if i else ' class=text'}>{_text(name)}</th>" for i, name in enumerate(("model", "score", *parts))
    )
    why = "".join(f"<li>{_text(line)}</li>" for each in scores for line in reasons(each))
    return _table(head, rows) + (f"<ul>{why}</ul>" if why else "")


def _heat_map(view: View) -> str:
    """Models down, benchmarks across: shaded by the difference to the baseline, or by accuracy without one."""
    by_place = {(row.label, row.cell.benchmark): row for row in view.rows}
    head = '<th class="text">model</th>' + "".join(f"<th>{_text(name)}</th>" for name in view.benchmarks)
    rows = []
    for label in view.labels:
        line = "".join(_heat_cell(view, by_place.get((label, name))) for name in view.benchmarks)
        rows.append(f'<tr><th scope="row">{_text(label)}</th>{line}</tr>')
    how = (
        "Accuracy in percent, and the difference to the baseline in points, which is also the shade."
        if view.has_baseline
        else "Accuracy in percent; the shade is its distance from chance."
    )
    return f'{_table(head, rows, "heat")}\n<p class="method">{how}</p>'


def _heat_cell(view: View, row: Row | None) -> str:
    if row is None:
        return "<td></td>"
    result = row.result
    if result is None:
        return f'<td class="none"><span>{_text(row.status)}</span></td>'
    chance = row.record.benchmark.chance if row.record and row.record.benchmark else None
    if row.pair is not None:
        difference = row.pair.pairs.difference
        tone, share, note = "neg" if difference < 0 else "pos", abs(difference) / FULL_SHADE, points(difference)
    elif view.has_baseline:
        tone, share, note = "plain", 0.0, "baseline" if row.is_baseline else "not compared"
    else:
        above = (result.accuracy - (chance or 0.0)) / (1 - (chance or 0.0))
        tone, share, note = "plain", max(0.0, above), ""
    much = round(MOST_SHADE * min(1.0, share))
    under = f"<span>{_text(note)}</span>" if note else ""
    score = _text(percent(result.accuracy))
    return f'<td class="{tone}" style="--much:{much}%"><b>{score}</b>{under}</td>'


def _figure(plot: Plot) -> str:
    wide = plot.wide.replace("<svg ", '<svg class="wide" ', 1)
    narrow = plot.narrow.replace("<svg ", '<svg class="narrow" ', 1)
    return f"<figure>\n<figcaption>{_text(plot.caption)}</figcaption>\n{wide}\n{narrow}\n</figure>"


def _origin(view: View) -> str:
    """Engines and machines of the trusted runs: what the figures hold for."""
    engines: dict[str, None] = {}
    machines: dict[str, None] = {}
    for row in view.rows:
        if row.record and row.record.engine:
            engine = row.record.engine
            engines[f"{engine.flavour or 'engine'} {engine.version or ''} ({engine.backend or 'unknown backend'})"] = (
                None
            )
        if row.record and row.record.host:
            host = row.record.host
            machines[f"{host.get('cpu') or host.get('machine')}, {host.get('cores')} cores, {host.get('system')}"] = (
                None
            )
    names = ", ".join(dict.fromkeys(row.cell.benchmark for row in view.rows))
    facts = {"Engine": "; ".join(engines), "Machine": "; ".join(machines), "Benchmarks": names}
    facts["Configuration"] = ", ".join(
        f"{key} {value}" for key, value in view.map.config.items() if key in ("limit", "seed", "like_llama") and value
    )
    lines = [
        f"<tr><th scope='row'>{key}</th><td class='text'>{_text(value)}</td></tr>"
        for key, value in facts.items()
        if value
    ]
    return f'<div class="scroll"><table><tbody>{"".join(lines)}</tbody></table></div>'
