"""What an adapter must find in a row, found in another way than the adapter finds it.

`llmc verify` reads rows with these. Each has the name of an adapter, takes the same columns and gives the same
further ones; none shares code with it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llmc.benchmarks.scaffold import LETTERS

_LINE_HEADS = tuple([f"\n{letter}. " for letter in LETTERS])
_TITLE = " [title]"
_MARK = "\ue000"  # stands in for a title's full stop until all titles are found


@dataclass(frozen=True)
class Reading:
    """``apply`` takes the values of ``needs`` and returns those of ``gives``, or raises what Python does."""

    needs: tuple[str, ...]
    gives: tuple[str, ...]
    apply: Callable[..., tuple[Any, ...]]


def _blank(sentence: str) -> tuple[str]:
    pieces = sentence.split("_")
    if len(pieces) < 2:
        raise ValueError("no blank")
    return ("___".join(pieces),)


def _coqa(query: str) -> tuple[str]:
    return (query[: query.rindex("Question:")],)


def _jeopardy(context: str) -> tuple[str, str]:
    colon = context.find(":")
    if colon < 0:
        return "", context
    line = context.rfind("\n", 0, colon) + 1
    clue = context[colon + 1 :].lstrip()
    return context[line:colon], clue.split("\n", 1)[0]


def _lettered_options(options: list[str]) -> tuple[list[str]]:
    bare = []
    for place, option in enumerate(options):
        letter, bracket, text = option.partition(")")
        if letter != LETTERS[place] or not bracket:
            raise ValueError("no label")
        bare.append(text)
    return (bare,)


def _options_in_question(question: str, *options: str) -> tuple[str]:
    """Return as much of the question as its options leave over; the rest is to be the letters and the options."""
    stop = len(question) - sum(map(len, options)) - 4 * len(options)
    rest = "".join([head + option for head, option in zip(_LINE_HEADS, options, strict=False)])
    if stop < 0 or question[stop:] != rest:
        raise ValueError("other lines")
    return (question[:stop],)


def _subject(subject: str) -> tuple[str]:
    return (" ".join(subject.split("_")),)


def _without_brackets(text: str) -> str:
    """Take out each ``[``, all up to the next ``]`` on the same line, and that."""
    kept, at = [], 0
    while (opening := text.find("[", at)) >= 0:
        closing, line_end = text.find("]", opening), text.find("\n", opening)
        if closing < 0:
            break
        if 0 <= line_end < closing:
            kept.append(text[at : opening + 1])
            at = opening + 1
            continue
        kept.append(text[at:opening])
        at = closing + 1
    return "".join(kept) + text[at:]


def _hellaswag(*, swallows_stop: bool, keeps_end: bool = False) -> Reading:
    def clean(text: str, *, to_the_end: bool = False) -> str:
        text = text.lstrip()
        if not to_the_end:
            text = text.rstrip()
        if swallows_stop:
            text = _MARK.join(text.split("." + _TITLE))
        text = ". ".join(_MARK.join(text.split(_TITLE)).split(_MARK))
        return " ".join(_without_brackets(text).split("  "))

    def apply(activity: str, ctx_a: str, ctx_b: str, endings: list[str]) -> tuple[Any, ...]:
        start = "".join((activity, ": ", ctx_a, " ", ctx_b.capitalize()))
        return clean(start, to_the_end=keeps_end), [clean(text) for text in endings]

    return Reading(("activity_label", "ctx_a", "ctx_b", "endings"), ("clean_start", "clean_endings"), apply)


def _race(problems: str) -> tuple[Any, ...]:
    asked = ast.literal_eval(problems)
    history = []
    for problem in asked[:-1]:
        answer = dict(zip("ABCD", problem["options"], strict=True))[problem["answer"]]
        question = problem["question"]
        if question.endswith("  _  ."):
            history += [question.removesuffix(" _  ."), answer, "\n"]
        else:
            history += ["Question: ", question, "\nAnswer: ", answer, "\n"]
    last = asked[-1]
    return "".join(history), last["question"], last["options"], "ABCD".index(last["answer"])


READINGS = {
    "blank": Reading(("sentence",), ("with_blank",), _blank),
    "coqa": Reading(("query_original",), ("conversation",), _coqa),
    "hellaswag": _hellaswag(swallows_stop=False),
    "hellaswag-olmes": _hellaswag(swallows_stop=True, keeps_end=True),
    "hellaswag-olmes-rc": _hellaswag(swallows_stop=True),
    "jeopardy": Reading(("context_original",), ("category", "clue"), _jeopardy),
    "lettered-options": Reading(("options",), ("bare_options",), _lettered_options),
    "options-in-question": Reading(
        ("question", "option1", "option2", "option3", "option4"), ("stem",), _options_in_question
    ),
    "race": Reading(("problems",), ("history", "last_question", "last_options", "last_gold"), _race),
    "subject-in-words": Reading(("subject",), ("subject_in_words",), _subject),
}
