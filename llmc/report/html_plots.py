"""Pictures of a sweep as SVG, drawn by matplotlib (the ``plots`` extra).

Colours are written as names of CSS variables, so that one picture serves a light and a dark page; ``standalone``
puts fixed ones in their place for a file of its own. Every picture is drawn for a wide page and for a phone, since
text that is scaled down to a phone's width cannot be read.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmc.report.compare import points
from llmc.report.run_table import duration, interval, percent
from llmc.report.sweep_row import Row
from llmc.report.sweep_view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from llmc.runs.record import Result

WIDE, NARROW = 7.8, 3.75  # inches; one is 96 CSS pixels
MOST_ROWS = 40  # cells in one picture; the table has all
MOST_LABELS = 12  # points of one benchmark that still leave room for their names
# Stand-ins while matplotlib draws -> the CSS variable, and its value in a picture outside the page.
COLOURS = {
    "#010101": ("--fg", "#1f2328"),
    "#020202": ("--muted", "#59636e"),
    "#030303": ("--line", "#d1d9e0"),
    "#040404": ("--accent", "#0969da"),
    "#050505": ("--band", "#ddf4ff"),
    "#060606": ("--bad", "#cf222e"),
    "#070707": ("--good", "#1a7f37"),
    "#080808": ("--second", "#8250df"),
    "#090909": ("--third", "#bc4c00"),
    "#0a0a0a": ("--fourth", "#0a7c86"),
    "#0b0b0b": ("--soft", "#54aeff"),
}
FG, MUTED, LINE, ACCENT, BAND, BAD, GOOD, SECOND, THIRD, FOURTH, SOFT = COLOURS
SERIES = ((ACCENT, "o"), (SECOND, "s"), (THIRD, "^"), (FOURTH, "D"), (GOOD, "v"), (FG, "P"))


@dataclass(frozen=True)
class Plot:
    """``wide`` and ``narrow`` are SVG elements for the page, ``file`` a whole SVG file."""

    slug: str
    title: str
    caption: str
    wide: str
    narrow: str
    file: str


@dataclass
class _Sheet:
    """One drawing in progress: what is hung on its elements as tooltips."""

    slug: str
    width: float
    tips: dict[str, str]
    common: str = ""

    @property
    def narrow(self) -> bool:
        return self.width < WIDE

    def tip(self, text: str) -> str:
        name = f"{self.slug}-{len(self.tips)}"
        self.tips[name] = text
        return name


def available() -> bool:
    """Return whether matplotlib can be imported."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def plots(view: View) -> list[Plot]:
    """Return the pictures that this sweep has something to show in; untrusted cells are in none of them."""
    scored = [row for row in view.rows if row.result is not None]
    if not scored:
        return []
    made = [
        _plot(
            "accuracy",
            "Accuracy against size",
            "Bars are Wilson 95 % intervals; the band is the baseline's; the dotted line is chance.",
            lambda sheet: _accuracy(view, scored, sheet),
        )
    ]
    if any(row.pair for row in scored):
        margin = " The dashed line is the gate's margin." if view.gate else ""
        made.append(
            _plot(
                "differences",
                "Difference to the baseline",
                f"In percentage points, paired question by question, with 95 % intervals.{margin}",
                lambda sheet: _differences(view, scored, sheet),
            )
        )
    if any(row.record and row.record.timings for row in scored):
        made.append(
            _plot(
                "timings",
                "Time in the engine",
                "Over all benchmarks of a model: loading it, and scoring.",
                lambda sheet: _timings(scored, sheet),
            )
        )
    return made


def _plot(slug: str, title: str, caption: str, draw: Callable[[_Sheet], Figure]) -> Plot:
    wide, narrow = (
        _svg(draw, _Sheet(f"{slug}-{name}", width, {}), title) for name, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return Plot(slug, title, caption, wide, narrow, _standalone(wide))


def _svg(draw: Callable[[_Sheet], Figure], sheet: _Sheet, title: str) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": sheet.slug,
        "font.size": 9.0,
        "text.color": FG,
        "axes.edgecolor": LINE,
        "axes.labelcolor": MUTED,
        "axes.titlecolor": FG,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "grid.color": LINE,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "text.parse_math": False,
    }
    with matplotlib.rc_context(style):
        figure = draw(sheet)
        file = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(file, metadata={"Date": None, "Creator": None})
    return _finished(file.getvalue(), sheet, title)


def _finished(svg: str, sheet: _Sheet, title: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    # The page's own font, at the size that was measured with a wider one.
    svg = re.sub(r"(font: (?:bold )?[0-9.]+px) [^;\"]*", r"\1 var(--font)", svg)
    for colour, (variable, _) in COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    for name, text in sheet.tips.items():
        svg = svg.replace(f'<g id="{name}">', f'<g id="{name}"><title>{html.escape(text)}</title>', 1)
    # Several pictures share the page, and matplotlib numbers the elements of each from 1.
    svg = re.sub(r'(?<=\bid=")', f"{sheet.slug}-", svg)
    svg = re.sub(r'(?<=url\(#)|(?<=href="#)', f"{sheet.slug}-", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1)


def _standalone(svg: str) -> str:
    for variable, value in COLOURS.values():
        svg = svg.replace(f"var({variable})", value)
    svg = svg.replace("var(--font)", "sans-serif")
    end = svg.index(">") + 1
    return f'{svg[:end]}\n<rect width="100%" height="100%" fill="#ffffff"/>{svg[end:]}'


def _figure(sheet: _Sheet, height: float) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(sheet.width, height), layout="constrained")
    figure.patch.set_visible(False)
    return figure


def _facets(sheet: _Sheet, count: int, height: float) -> tuple[Figure, list[Axes]]:
    columns = 1 if sheet.narrow or count == 1 else 2
    lines = -(-count // columns)
    figure = _figure(sheet, height * lines)
    facets = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes in facets:
        axes.patch.set_visible(False)
    for axes in facets[count:]:
        axes.set_visible(False)
    return figure, facets[:count]


def _accuracy(view: View, scored: Sequence[Row], sheet: _Sheet) -> Figure:
    from matplotlib.ticker import FuncFormatter

    names = [name for name in view.benchmarks if any(row.cell.benchmark == name for row in scored)]
    settings = list(dict.fromkeys(tuple(row.cell.axes.items()) for row in scored))
    figure, facets = _facets(sheet, len(names), 2.7)
    for axes, name in zip(facets, names, strict=True):
        rows = [row for row in scored if row.cell.benchmark == name]
        _reference(axes, rows)
        by_size = len({_size(row) for row in rows}) > 1
        places = [_size(row) / 1e9 if by_size else float(i) for i, row in enumerate(rows)]
        sheet.common = _common([row.cell.model for row in rows])
        for number, (row, x) in enumerate(zip(rows, places, strict=True)):
            _point(axes, row, x, SERIES[settings.index(tuple(row.cell.axes.items())) % len(SERIES)], sheet)
            if len(rows) <= MOST_LABELS and by_size:
                _name(axes, _short(row, sheet), row.result, x, below=bool(number % 2))
        axes.set_title(name)
        axes.set_ylabel("accuracy")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.0f} %"))
        axes.margins(x=0.12, y=0.18)
        axes.grid(axis="y")
        if by_size:
            _size_axis(axes, places)
        else:
            axes.set_xticks(places, [_short(row, sheet) for row in rows], rotation=90 if len(rows) > 4 else 0)
    _legend(figure, settings)
    return figure


def _reference(axes: Axes, rows: Sequence[Row]) -> None:
    """The baseline's interval as a band, and chance as a line."""
    for row in rows:
        if row.is_baseline and row.result:
            axes.axhspan(row.result.wilson_low, row.result.wilson_high, color=BAND, zorder=0, linewidth=0)
            axes.axhline(row.result.accuracy, color=SOFT, linewidth=0.9, zorder=1)
    chance = next((r.record.benchmark.chance for r in rows if r.record and r.record.benchmark), None)
    if chance is not None:
        axes.axhline(chance, color=MUTED, linewidth=0.9, linestyle=":", zorder=1)


def _point(axes: Axes, row: Row, x: float, style: tuple[str, str], sheet: _Sheet) -> None:
    result = row.result
    assert result is not None  # only scored rows are drawn
    colour, marker = style
    axes.vlines(x, result.wilson_low, result.wilson_high, color=colour, linewidth=1.1, zorder=2)
    text = f"{row.label}: {percent(result.accuracy, 2)} ({interval(result.wilson_low, result.wilson_high)})"
    axes.plot([x], [result.accuracy], marker, color=colour, markersize=5, zorder=3, gid=sheet.tip(text))


def _name(axes: Axes, text: str, result: Result | None, x: float, *, below: bool) -> None:
    assert result is not None  # only scored rows are drawn
    y, away, side = (result.wilson_low, -3, "top") if below else (result.wilson_high, 3, "bottom")
    axes.annotate(
        text, (x, y), xytext=(0, away), textcoords="offset points", ha="center", va=side, fontsize=7.5, color=MUTED
    )


def _common(names: Sequence[str]) -> str:
    """Return what all names begin with, up to the last separator: it tells nothing in a small picture."""
    first, last = min(names), max(names)
    same = next((i for i, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    # Where one name begins another, cutting at the separator leaves something of both.
    return first[: max(first.rfind(sign, 0, same) for sign in "-_.") + 1] if first != last else ""


def _short(row: Row, sheet: _Sheet) -> str:
    return row.cell.model.removeprefix(sheet.common)


def _size(row: Row) -> int:
    model = row.record.model if row.record else None
    return (model.size or 0) if model else 0


def _size_axis(axes: Axes, places: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if min(places) > 0 and max(places) / min(places) > 6:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    small = max(places) < 1
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{1000 * x:.3g}" if small else f"{x:.3g}"))
    axes.set_xlabel(f"size, {'MB' if small else 'GB'}")


def _legend(figure: Figure, settings: Sequence[tuple[tuple[str, str], ...]]) -> None:
    from matplotlib.lines import Line2D

    if len(settings) < 2:
        return
    handles = []
    for number, values in enumerate(settings[: len(SERIES)]):
        colour, marker = SERIES[number]
        text = ", ".join(f"{axis}={value}" for axis, value in values)
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle="", markersize=5, label=text))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, labelcolor=FG)


def _differences(view: View, scored: Sequence[Row], sheet: _Sheet) -> Figure:
    groups = {}
    for name in view.benchmarks:
        rows = [row for row in scored if row.cell.benchmark == name and row.pair]
        if rows:
            groups[name] = sorted(rows, key=_difference)[:MOST_ROWS]
    counts = [len(rows) for rows in groups.values()]
    figure = _figure(sheet, sum(0.75 + 0.23 * n for n in counts))
    grid = figure.subplots(len(groups), 1, squeeze=False, sharex=True, height_ratios=[n + 1.6 for n in counts])
    for axes, (name, rows) in zip(grid.flat, groups.items(), strict=True):
        axes.patch.set_visible(False)
        margin = view.gate.policy.margin_of(name) if view.gate else None
        axes.axvline(0, color=MUTED, linewidth=0.9)
        if margin is not None:
            axes.axvline(-100 * margin, color=BAD, linewidth=0.9, linestyle="--")
        for y, row in enumerate(rows):
            _difference_bar(axes, row, y, margin or 0.0, sheet)
        axes.set_yticks(range(len(rows)), [_fitted(row.label, sheet) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_title(name)
        axes.grid(axis="x")
        axes.tick_params(left=False)
    grid[-1][0].set_xlabel("percentage points")
    return figure


def _difference(row: Row) -> float:
    return row.pair.pairs.difference if row.pair else 0.0


def _difference_bar(axes: Axes, row: Row, y: int, margin: float, sheet: _Sheet) -> None:
    pair = row.pair
    assert pair is not None  # only compared rows are drawn
    low, high = pair.interval
    colour = BAD if high < -margin else GOOD if low > 0 else ACCENT
    axes.hlines(y, 100 * low, 100 * high, color=colour, linewidth=1.4)
    text = f"{row.label}: {points(pair.pairs.difference)} ({points(low)} to {points(high)}), "
    text += f"{pair.pairs.lost} lost, {pair.pairs.gained} gained"
    axes.plot([100 * pair.pairs.difference], [y], "o", color=colour, markersize=5, gid=sheet.tip(text))


def _fitted(text: str, sheet: _Sheet) -> str:
    """Names that would leave a phone no room for the figures go on two lines, or lose their middle."""
    most = 20 if sheet.narrow else 44
    if len(text) <= most:
        return text
    first, _, rest = text.partition(" ")
    lines = [first, rest] if sheet.narrow and rest else [text]
    return "\n".join(line if len(line) <= most else f"{line[: most // 2 - 1]}…{line[-most // 2 :]}" for line in lines)


def _timings(scored: Sequence[Row], sheet: _Sheet) -> Figure:
    load: dict[str, float] = {}
    rest: dict[str, float] = {}
    for row in scored:
        timings = row.record.timings if row.record else None
        if timings is not None:
            loading = min(timings.load or 0.0, timings.engine)
            load[row.label] = load.get(row.label, 0.0) + loading
            rest[row.label] = rest.get(row.label, 0.0) + timings.engine - loading
    slowest = sorted(load, key=lambda label: -(load[label] + rest[label]))[:MOST_ROWS]
    labels = [label for label in load if label in slowest]
    figure = _figure(sheet, 0.9 + 0.25 * len(labels))
    axes: Any = figure.subplots()
    axes.patch.set_visible(False)
    for y, label in enumerate(labels):
        total = load[label] + rest[label]
        text = f"{label}: loading {duration(load[label])}, scoring {duration(rest[label])}"
        axes.barh(y, load[label], color=SOFT, height=0.6)
        (bar,) = axes.barh(y, rest[label], left=load[label], color=ACCENT, height=0.6)
        bar.set_gid(sheet.tip(text))
        axes.annotate(
            duration(total), (total, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=MUTED
        )
    axes.set_yticks(range(len(labels)), [_fitted(label, sheet) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.margins(x=0.16)
    axes.tick_params(left=False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.set_xlabel("seconds")
    return figure
