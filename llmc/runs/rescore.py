"""llama-perplexity's tasks by the scorer, under llama.cpp's own rule: for those it gets wrong, and as a cross-check.

The rule here is llama.cpp's with the common prefix capped one token before the end of the shortest option, so that
every option keeps at least one token to score. Where no option lies inside the common prefix the cap changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmc import console
from llmc.benchmarks.select import seeded_sample
from llmc.findings import Finding, finding
from llmc.runs.record import CrossCheck
from llmc.runs.scorer import LLAMA_RULE, prepare_scorer
from llmc.scoring.job import Job
from llmc.scoring.metrics import Choice, choose
from llmc.scoring.results import ScoredItem
from llmc.scoring.session import score_items

if TYPE_CHECKING:
    from llmc.runs.planned import Cell

# Rounding moves a quantized model's mean log-probability of one option by up to 0.3 nats between two ways of batching.
NEAR_TIE = 0.3


def choices_of(cell: Cell, indices: Sequence[int], folder: Path, title: str) -> tuple[dict[int, Choice], list[Finding]]:
    """Score some tasks of a cell by the scorer; return what llama.cpp's rule makes of each, and what went wrong.

    The choices are complete when no finding is an error.
    """
    scorer = prepare_scorer(cell.engine.limits)
    job = Job(cell.bench.items or cell.bench.path, cell.settings.scoring, tuple(sorted(indices)))
    found: dict[int, Choice] = {}
    folder.mkdir(parents=True, exist_ok=True)
    with console.progress(title, len(indices)) as advance:

        def take(item: ScoredItem) -> None:
            choice = choose(item, LLAMA_RULE)
            if choice is not None:
                found[item.index] = choice
            advance(len(found))

        scored = score_items(job, cell.model.facts, scorer.binding, folder, on_result=take, limits=scorer.limits)
    findings = [f for f in scored.findings if f.severity == "error"]
    if not findings and len(found) != len(indices):
        findings.append(finding("rule-undefined", f"{len(indices) - len(found)} tasks have no common prefix"))
    return found, findings


def rescore(cell: Cell, folder: Path) -> tuple[dict[int, bool], list[Finding]]:
    """Return right or wrong of the tasks that llama-perplexity would get wrong, and findings about them."""
    if not cell.rescored:
        return {}, []
    choices, findings = choices_of(cell, cell.rescored, folder / "rescored", "tasks llama-perplexity gets wrong")
    return {index: choice.correct for index, choice in choices.items()}, findings


def cross_check(cell: Cell, correct: str, folder: Path) -> tuple[CrossCheck | None, list[Finding]]:
    """Score a sample of a trusted run by the scorer as well, and compare right and wrong task by task.

    ``correct`` has one mark for each task that llama-perplexity scored.
    """
    count = min(cell.settings.cross_check, cell.tasks)
    if not count:
        return None, []
    places = cell.places()
    marks = dict(zip(places, correct, strict=True))
    sample = [places[i] for i in seeded_sample(len(places), count, seed=0)]
    choices, findings = choices_of(cell, sample, folder / "cross-check", "cross-check")
    if findings:
        why = "; ".join(f"{f.slug}: {f.detail}" for f in findings)
        return None, [finding("cross-check", f"could not be completed: {why}", "warning")]
    apart = [index for index in sample if choices[index].correct is not (marks[index] == "1")]
    ids = cell.bench.ids() if apart else []
    listed = tuple({"index": index, "id": ids[index], "margin": round(choices[index].margin, 6)} for index in apart)
    check = CrossCheck(tasks=count, agreed=count - len(apart), near_tie=NEAR_TIE, disagreements=listed)
    beyond = [each for each in listed if float(str(each["margin"])) > NEAR_TIE]
    if not beyond:
        return check, []
    named = ", ".join(f"{each['id']} (margin {each['margin']:.3f})" for each in beyond[:10])
    return check, [finding("cross-check", f"{len(beyond)} of {count} tasks differ beyond rounding: {named}")]
