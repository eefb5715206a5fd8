"""A comparison for people (tables and sentences) and for programs (plain data)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from llmc.judge.compare import FEW_FLIPS, Comparison, Pair
from llmc.judge.stats import Estimate
from llmc.report.run_table import interval, percent
from llmc.report.tables import plain_table

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = "llmc.compare/1"


def points(share: float | None, digits: int = 2) -> str:
    """``-0.008`` -> ``-0.80``: a difference of shares in percentage points, with its sign."""
    return "-" if share is None else f"{100 * share + 0.0:+.{digits}f}"


def p_value(p: float) -> str:
    """Three significant digits, and no pretence of precision below one in ten thousand."""
    return "<0.0001" if p < 0.0001 else f"{p:.3g}" if p < 0.001 else f"{p:.3f}"


def tables(comparison: Comparison) -> Iterator[tuple[str, Table]]:
    """Yield a heading and a table for each benchmark and baseline, one row a candidate."""
    for _, group in groupby(comparison.pairs, key=lambda pair: (pair.baseline.benchmark, pair.baseline.origin)):
        pairs = list(group)
        a = pairs[0].baseline
        low, high = a.interval
        heading = (
            f"{a.benchmark}, {a.n} questions; baseline {a.label}: {percent(a.accuracy, 2)} ({interval(low, high)}), "
            f"{a.origin}"
        )
        yield heading, _table(pairs, comparison.options.confidence)


def _table(pairs: Sequence[Pair], confidence: float) -> Table:
    table = plain_table()
    table.add_column("candidate", overflow="fold")
    for name in ("accuracy", "points", f"{100 * confidence:g} % CI", "lost", "gained", "flips", "p", "p (Holm)"):
        table.add_column(name, justify="right")
    table.add_column("detects", justify="right")
    for each in pairs:
        low, high = each.interval
        table.add_row(
            each.candidate.label,
            percent(each.candidate.accuracy, 2),
            points(each.pairs.difference),
            f"{points(low)} to {points(high)}{'*' if each.by_score else ''}",
            str(each.pairs.lost),
            str(each.pairs.gained),
            percent(each.pairs.flip_rate),
            p_value(each.p),
            p_value(each.p_holm),
            "-" if each.detectable is None else f"{100 * each.detectable:.2f}",
        )
    return table


def remarks(comparison: Comparison) -> Iterator[str]:
    """Yield how to read the tables: one sentence a pair, then what is special about any of them."""
    for each in comparison.pairs:
        yield sentence(each, comparison.options.confidence)
        yield from (f"  warning: {text}" for text in each.warnings)
        yield from (f"  {text}" for text in _more(each))
    if comparison.pairs:
        yield "points are percentage points; detects is the smallest difference that 80 % of such comparisons show"
    if any(each.few_flips for each in comparison.pairs):
        yield f"* fewer than {FEW_FLIPS} answers differ: Tango's score interval, which holds for few"
    if any(each.by_score and not each.few_flips for each in comparison.pairs):
        yield "* no error can be estimated where all changed alike: Tango's score interval, which needs none"


def sentence(pair: Pair, confidence: float) -> str:
    """Say what the pair shows. A difference that is not shown is never called none."""
    who = f"{pair.candidate.label} on {pair.candidate.benchmark}: "
    low, high = (points(bound) for bound in pair.interval)
    if pair.p_holm < 1 - confidence:
        side = "worse" if pair.pairs.difference < 0 else "better"
        size = f"{abs(100 * pair.pairs.difference):.2f} points {side} than the baseline ({low} to {high})"
        return f"{who}{size}, adjusted p {p_value(pair.p_holm)}"
    if not pair.pairs.discordant:
        return f"{who}no answer differs; a true difference from {low} to {high} points would fit that too"
    if pair.detectable is None:
        few = f"{pair.pairs.n} question" + ("s are" if pair.pairs.n > 1 else " is")
        return (
            f"{who}no difference is shown, which is not the same as none: {few} too few to find any (80 % power), "
            f"and {low} to {high} points fit what was seen"
        )
    return (
        f"{who}no difference is shown, which is not the same as none: these {pair.pairs.n} questions find one of "
        f"{100 * pair.detectable:.2f} points or more (80 % power), and {low} to {high} points fit what was seen"
    )


def _more(pair: Pair) -> Iterator[str]:
    if pair.macro is not None:
        yield f"mean over {len(pair.groups)} groups: {_estimate(pair.macro)}"
    boot = pair.bootstrap
    if boot is not None:
        drawn = f"{boot.replicates:,} replicates, seed {boot.seed}"
        bounds = f"{points(boot.low)} to {points(boot.high)} points"
        # All alike: drawing them again shows nothing of the error.
        yield f"bootstrap over {boot.over} ({drawn}): {bounds if boot.se > 1e-12 else 'all gave the same, no interval'}"
    if pair.options is not None:
        o, n = pair.options, pair.pairs.n
        yield (
            f"answers changed: {o.changed} of {n} ({percent(o.changed / n)}): {o.lost} lost, {o.gained} gained, "
            f"{o.other_wrong} from wrong to another wrong (rule {o.rule})"
        )
        yield (
            f"KL divergence between option distributions: mean {o.kl.mean:.4g} nats"
            + (f" (+-{o.kl.se:.2g})" if o.kl.se is not None else "")
            + f", median {o.kl_median:.3g}, 99 % {o.kl_99:.3g}; same top option {percent(o.same_top, 2)}"
        )
        yield f"right option's probability: {_estimate(o.gold)}"


def _estimate(value: Estimate) -> str:
    if value.low is None or value.high is None:
        return f"{points(value.mean)} points (no standard error: a group holds one question, or there is one cluster)"
    if not value.se:
        return f"{points(value.mean)} points (no standard error: all questions changed alike)"
    return f"{points(value.mean)} points ({points(value.low)} to {points(value.high)})"


def groups_table(pair: Pair) -> Table:
    """One row a group: both accuracies, the difference with its interval, and what flipped."""
    table = plain_table()
    table.add_column("group", overflow="fold")
    for name in ("tasks", "baseline", "candidate", "difference", "interval", "lost", "gained"):
        table.add_column(name, justify="right")
    for group in pair.groups:
        counts, difference = group.pairs, group.difference
        # Where all answers of a group changed alike, or none did, an interval of no width would claim too much.
        bounds = f"{points(difference.low)} to {points(difference.high)}" if difference.se else "-"
        table.add_row(
            group.name,
            str(counts.n),
            percent((counts.both + counts.lost) / counts.n),
            percent((counts.both + counts.gained) / counts.n),
            points(counts.difference),
            bounds,
            str(counts.lost),
            str(counts.gained),
        )
    return table


def data(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison for JSON output: shares from -1 to 1, never NaN."""
    return {
        "schema": SCHEMA,
        "options": asdict(comparison.options),
        "pairs": [_pair_data(each) for each in comparison.pairs],
        "untrusted": [
            {"label": g.label, "origin": g.origin, "benchmark": g.benchmark, "reason": g.problem}
            for g in comparison.untrusted
        ],
    }


def _pair_data(pair: Pair) -> dict[str, Any]:
    low, high = pair.interval
    return {
        "baseline": pair.baseline.describe(),
        "candidate": pair.candidate.describe(),
        "tasks": pair.pairs.n,
        "both_right": pair.pairs.both,
        "lost": pair.pairs.lost,
        "gained": pair.pairs.gained,
        "both_wrong": pair.pairs.neither,
        "flip_rate": pair.pairs.flip_rate,
        "difference": {"estimate": pair.pairs.difference, **asdict(pair.difference)},
        "score_interval": {"low": pair.score_low, "high": pair.score_high},
        "interval": {"low": low, "high": high, "method": "tango" if pair.by_score else "miller"},
        "unpaired_se": pair.unpaired_se,
        "mcnemar": asdict(pair.mcnemar),
        "p": pair.p,
        "p_holm": pair.p_holm,
        "detectable_80": pair.detectable,
        "bootstrap": asdict(pair.bootstrap) if pair.bootstrap else None,
        "macro": asdict(pair.macro) if pair.macro else None,
        "groups": [
            {
                "name": g.name,
                "tasks": g.pairs.n,
                "baseline_correct": g.pairs.both + g.pairs.lost,
                "candidate_correct": g.pairs.both + g.pairs.gained,
                "lost": g.pairs.lost,
                "gained": g.pairs.gained,
                "difference": asdict(g.difference),
            }
            for g in pair.groups
        ],
        "options": asdict(pair.options) if pair.options else None,
        "lost_tasks": list(pair.lost),
        "gained_tasks": list(pair.gained),
        "warnings": list(pair.warnings),
    }
