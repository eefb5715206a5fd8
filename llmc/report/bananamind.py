"""What a run of BananaMind Base Bench writes for programs (report.json) and for people (predictions.md, the screen)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from llmc.benchmarks.bananamind import NAME, TERMS, VERSION
from llmc.judge.bananamind import Answer, Figures, Rated
from llmc.judge.elo import PRIOR_RATING, PRIOR_WEIGHT, SCALE
from llmc.report.run_table import percent
from llmc.report.tables import plain_table

if TYPE_CHECKING:
    from rich.table import Table


def report(config: dict[str, Any], health: dict[str, Any], answers: Sequence[Answer], found: Figures) -> dict[str, Any]:
    """Return report.json: the run's configuration, every figure, and each choice's log-probability; no texts.

    It holds nothing that differs between a run and the same run interrupted and resumed.
    """
    return {
        **config,
        "elo": {"prior_rating": PRIOR_RATING, "prior_weight": PRIOR_WEIGHT, "scale": SCALE},
        "overall": _rated(found.overall),
        "categories": {name: _rated(each) for name, each in found.categories.items()},
        "difficulties": {name: _rated(each) for name, each in found.difficulties.items()},
        "health": health,
        "examples": [_example(one) for one in answers],
    }


def _rated(rated: Rated) -> dict[str, Any]:
    return {
        "elo": rated.elo.rating,
        "elo_standard_error": rated.elo.standard_error,
        "accuracy": rated.accuracy,
        "weighted_accuracy": rated.elo.weighted_accuracy,
        "correct": rated.correct,
        "total": rated.total,
        "weight_won": rated.elo.won,
        "weight": rated.elo.weight,
    }


def _example(one: Answer) -> dict[str, Any]:
    example = one.example
    choices = [
        {"sum_logprob": option.sum_logprob, "tokens": option.tokens, "mean_logprob": mean}
        for option, mean in zip(one.item.options, one.means, strict=True)
    ]
    return {
        "id": example.id,
        "category": example.category,
        "difficulty": example.difficulty,
        "weight": example.weight,
        "item_elo": example.item_elo,
        "label": example.label,
        "prediction": one.prediction,
        "correct": one.correct,
        "choices": choices,
    }


def table(found: Figures) -> Table:
    """One row for each category, the last for all: Elo with its standard error, raw and weighted accuracy."""
    shown = plain_table("category")
    for name in ("Elo", "SE", "accuracy", "weighted", "correct"):
        shown.add_column(name, justify="right")
    for row in _rows(found):
        shown.add_row(*row)
    return shown


def _rows(found: Figures) -> Iterator[list[str]]:
    for name, each in (*found.categories.items(), ("overall", found.overall)):
        weighted = percent(each.elo.weighted_accuracy, 2)
        error = f"{each.elo.standard_error:.0f}"
        ratio = f"{each.correct}/{each.total}"
        yield [name, f"{each.elo.rating:.0f}", error, percent(each.accuracy, 2), weighted, ratio]


def predictions(config: dict[str, Any], answers: Sequence[Answer], found: Figures) -> str:
    """Return predictions.md: the summary by category, then every selected and every right continuation."""
    lines = [
        f"# {NAME} {VERSION}: {_inline(config['model']['ref'])}",
        "",
        f"> {TERMS}",
        "",
        f"**Overall Elo {found.overall.elo.rating:.0f}** (standard error {found.overall.elo.standard_error:.0f}), "
        "not an official result:",
        "",
        *(f"- {reason}" for reason in config["non_official_because"]),
        *(f"- note: {warning}" for warning in config["warnings"]),
        "",
        "| category | Elo | SE | accuracy | weighted | correct |",
        "|---|---:|---:|---:|---:|---:|",
        *(f"| {' | '.join(row)} |" for row in _rows(found)),
        "",
        "## Every example",
    ]
    for one in answers:
        example = one.example
        mark = "right" if one.correct else "WRONG"
        lines += [
            "",
            f"### {_inline(example.id)}: {mark}",
            "",
            f"{example.category}, {example.difficulty}, Elo {example.item_elo:g}, weight {example.weight:g}",
            "",
            f"- selected ({one.prediction}, {one.means[one.prediction]:.4f} nats a token): "
            f"{_code(example.continuations[one.prediction])}",
        ]
        if not one.correct:
            right = _code(example.continuations[example.label])
            lines.append(f"- correct ({example.label}, {one.means[example.label]:.4f} nats a token): {right}")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Return a text as Markdown code, quoted so that its whitespace can be seen."""
    quoted = json.dumps(text, ensure_ascii=False)
    longest = max((len(run) for run in re.findall("`+", quoted)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence}{quoted}{fence}"


def _inline(text: str) -> str:
    return " ".join(str(text).split())
