"""May two runs be paired? What must be equal is refused by name when it is not; what should be is warned about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llmc.errors import UsageError, did_you_mean
from llmc.judge.answers import Answers

_NAMES = {
    "benchmark_sha256": "benchmark file",
    "items_sha256": "item file",
    "bos": "BOS token",
    "engine_flavour": "engine flavour",
    "engine_version": "engine version",
}
_REMEDIES = {
    "benchmark_sha256": "score both on the very same file: `llmc run -m MODEL -b FILE.bin`",
    "items_sha256": "score both on the very same item file",
    "excluded": "score both with the same --on-hazard; tasks left out of one must be left out of the other",
    "rescored": "score both with the same --on-hazard",
    "selection": "score the same questions in both: the same --limit, --seed or --like-llama",
    "scorer": "score both with the same scorer",
    "rule": "score both under the same rule",
}
_LAYOUT_FLAGS = ("-np", "-c", "-b", "-ub", "-fa")  # what the layout says already
_TASK_LISTS = ("excluded", "rescored")
_LISTED = 6
_ABSENT = object()  # a part that one run does not have at all, as opposed to one that it has as none


def refuse_unless_pairable(a: Answers, b: Answers) -> None:
    """Raise UsageError, naming every part that differs, unless both answered the same questions by the same rule."""
    parts = differing(a.must, b.must)
    if parts:
        said = "; ".join(_said(part, a.must.get(part, _ABSENT), b.must.get(part, _ABSENT)) for part in parts)
        raise UsageError(
            f"{b.label} ({b.origin}) cannot be paired with {a.label} ({a.origin}): {said}",
            _REMEDIES.get(parts[0], "score both in the same way"),
        )
    if a.n != b.n:
        raise UsageError(
            f"{b.label} ({b.origin}) holds {b.n} answers and {a.label} ({a.origin}) holds {a.n}, on one benchmark file",
            "one of the two records is damaged: run it again",
        )


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts that are not equal, the benchmark file first, then in the order of ``a``."""
    parts = [part for part in dict.fromkeys([*a, *b]) if part not in a or part not in b or a[part] != b[part]]
    return sorted(parts, key=lambda part: part not in ("benchmark_sha256", "items_sha256"))


def _said(part: str, a: Any, b: Any) -> str:
    name = _NAMES.get(part, part.replace("_", " "))
    if part in _TASK_LISTS:
        return _said_tasks(part, *(() if each is _ABSENT else each for each in (a, b)))
    return f"{name} differs: {_shown(a)} (baseline) and {_shown(b)}"


def _said_tasks(part: str, a: Iterable[int], b: Iterable[int]) -> str:
    only_a, only_b = sorted(set(a) - set(b)), sorted(set(b) - set(a))
    halves = []
    for tasks, side in ((only_a, "the baseline"), (only_b, "the other")):
        if tasks:
            listed = ", ".join(map(str, tasks[:_LISTED])) + (", ..." if len(tasks) > _LISTED else "")
            halves.append(f"{len(tasks)} in {side} only (task {listed})")
    return f"{part} tasks differ: " + " and ".join(halves)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if value is _ABSENT:
        return "not stated"
    if value == "":
        return "given"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def flat(should: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts that should be equal, layout and arguments one by one: ``layout.c``, ``arguments.-ctk``."""
    parts: dict[str, Any] = {}
    for name, value in should.items():
        if isinstance(value, Mapping):
            parts |= {f"{name}.{inner}": each for inner, each in value.items()}
        elif name == "arguments" and isinstance(value, list | tuple):
            flags = _flags(value)
            told = _LAYOUT_FLAGS if isinstance(should.get("layout"), Mapping) else ()
            parts |= {f"{name}.{flag}": each for flag, each in flags.items() if flag not in told}
        else:
            parts[name] = value
    return parts


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """Return each flag with the words up to the next one."""
    flags: dict[str, str] = {}
    last = ""
    for word in map(str, arguments):
        if word.startswith("-") and not word[1:2].isdigit():
            last = word
            flags[last] = ""
        else:
            flags[last] = f"{flags.get(last, '')} {word}".strip()
    return flags


def check_axis(axis: Sequence[str], runs: Iterable[Answers]) -> None:
    """Raise UsageError when an axis names no part that any of the runs knows."""
    known: set[str] = set()
    for run in runs:
        known |= {*run.should, *flat(run.should)}
    for name in axis:
        if known and name not in known:
            raise UsageError(
                f"no run has a setting called {name!r}{did_you_mean(name, known)}",
                f"--axis takes one of {', '.join(sorted(known))}",
            )


def warnings(a: Answers, b: Answers, axis: Sequence[str] = ()) -> tuple[str, ...]:
    """Return a sentence for each part that should be equal and is not, the sweep's own axes left out.

    A part of which one run knows nothing (``llmc exec`` knows fewer) is not said to differ.
    """
    one, other = flat(a.should), flat(b.should)
    told = []
    for part in dict.fromkeys([*one, *other]):
        whole = part.split(".")[0]
        unknown = whole not in a.should or whole not in b.should
        if unknown or _on_axis(part, axis) or one.get(part) == other.get(part):
            continue
        told.append(f"{_NAMES.get(part, part)} differs: {_shown(one.get(part))} and {_shown(other.get(part))}")
    return tuple(told)


def groups_of(a: Answers, b: Answers) -> tuple[str | None, ...] | None:
    """Return the tasks' groups: those of either run, since both answered the same file; None without."""
    return next((side.groups for side in (a, b) if side.has_groups), None)


def without_clusters(a: Answers, b: Answers, groups: str) -> tuple[str, ...]:
    """Return a sentence when clusters were asked for and the questions are in none."""
    if groups != "clusters" or groups_of(a, b):
        return ()
    return (f"{b.benchmark} has no groups for --groups clusters: every question was taken by itself",)


def _on_axis(part: str, axis: Sequence[str]) -> bool:
    return any(part == name or part.startswith(f"{name}.") for name in axis)


def same_computation(a: Answers, b: Answers) -> bool:
    """Return whether both ran the same model file in the same way, so that equal answers need no inference."""
    models = (a.model.sha256 if a.model else None, b.model.sha256 if b.model else None)
    engines = (a.engine.identity if a.engine else None, b.engine.identity if b.engine else None)
    return (
        None not in models
        and models[0] == models[1]
        and None not in engines
        and engines[0] == engines[1]
        and a.must == b.must
        and a.should == b.should
        and a.correct == b.correct
    )
