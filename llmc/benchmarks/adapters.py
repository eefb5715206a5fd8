"""Named adapters: what a few sources need before their rows read like all others.

An adapter takes some columns of a row and gives further ones, which a spec then names as if the source had
them. It changes nothing silently: what it does not recognise is a ``RowProblem``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LINE_HEADS = tuple([f"\n{letter}. " for letter in _LETTERS])
_BRACKETS = re.compile(r"\[.*?\]")
_CLUE = re.compile(r"(.*?):\s*(.*)")
_BLANK_AT_END = "  _  ."
_FOUR_LINES = "\nA. %s\nB. %s\nC. %s\nD. %s"


class RowProblem(ValueError):
    """Why a row cannot be scored; the message completes "row N ...". ``kind`` is what a spec may leave out."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Adapter:
    """``apply`` takes the values of ``needs`` and returns those of ``gives``."""

    needs: tuple[str, ...]
    gives: tuple[str, ...]
    apply: Callable[..., tuple[Any, ...]]


def _text(value: Any, column: str) -> str:
    if type(value) is not str:
        raise RowProblem(f"has no text in {column}" if value is None else f"has {value!r:.60} in {column}, not text")
    return value


def _texts(value: Any, column: str) -> list[str]:
    if type(value) is not list or any(type(entry) is not str for entry in value):
        raise RowProblem(f"has {value!r:.60} in {column}, not a list of texts")
    return value


def _lettered_options(options: Any) -> tuple[list[str]]:
    """Take the label off options such as ``A)42``; nothing else changes, spaces included."""
    bare = []
    for letter, option in zip(_LETTERS, _texts(options, "options"), strict=False):
        if not option.startswith(f"{letter})"):
            raise RowProblem(f"has the option {option!r:.60} where one with the label {letter}) is expected")
        bare.append(option[2:])
    return (bare,)


def _subject(subject: Any) -> tuple[str]:
    return (_text(subject, "subject").replace("_", " "),)


def _options_in_question(question: Any, *options: Any) -> tuple[str]:
    """Return the question without the lettered options at its end, which must be the options in order."""
    if type(question) is not str or set(map(type, options)) != {str}:
        _text(question, "question")
        for number, option in enumerate(options, 1):
            _text(option, f"option{number}")
    lines = _FOUR_LINES % options
    if not question.endswith(lines):
        raise RowProblem("has a question that does not end in its own options, lettered and in order")
    return (question[: len(question) - len(lines)],)


def _hellaswag(title: str, *, keep_end: bool = False) -> Adapter:
    """Activity and context as one text, and the endings, both without the marks of the source.

    ``title`` matches what becomes a full stop: lm-eval replaces the mark alone, which can leave two of them; olmes
    replaces the full stop before it too. ``keep_end`` keeps the space after a context whose second part is empty.
    """
    mark = re.compile(title)

    def clean(text: str) -> str:
        return _BRACKETS.sub("", mark.sub(". ", text)).replace("  ", " ")

    def apply(activity: Any, ctx_a: Any, ctx_b: Any, endings: Any) -> tuple[Any, ...]:
        start = f"{_text(activity, 'activity_label')}: {_text(ctx_a, 'ctx_a')} {_text(ctx_b, 'ctx_b').capitalize()}"
        ends = [clean(ending.strip()) for ending in _texts(endings, "endings")]
        return clean(start.lstrip() if keep_end else start.strip()), ends

    needs = ("activity_label", "ctx_a", "ctx_b", "endings")
    return Adapter(needs, ("clean_start", "clean_endings"), apply)


def _race(problems: Any) -> tuple[Any, ...]:
    """Return the earlier questions of an article with their answers, and the last question with its options.

    ``problems`` is the text of a Python list. Of cloze questions that end in a blank, the blank is filled in;
    only the last question of an article is scored.
    """
    try:
        asked = ast.literal_eval(_text(problems, "problems"))
        *before, last = [(p["question"], p["options"], "ABCD".index(p["answer"])) for p in asked]
        history = "".join(_solved(question, options[gold]) for question, options, gold in before)
    except (ValueError, SyntaxError, TypeError, KeyError, IndexError, MemoryError, RecursionError) as error:
        raise RowProblem(f"has problems that cannot be read: {error!r:.80}") from error
    return history, *last


def _solved(question: str, answer: str) -> str:
    if question.endswith(_BLANK_AT_END):
        return f"{question[:-5]}{answer}\n"
    return f"Question: {question}\nAnswer: {answer}\n"


def _blank(sentence: Any) -> tuple[str]:
    text = _text(sentence, "sentence")
    if "_" not in text:
        raise RowProblem("has a sentence without a blank (_)")
    return (text.replace("_", "___"),)


def _jeopardy(context: Any) -> tuple[str, str]:
    """Split ``CATEGORY: clue``; a text without a colon is a clue without a category."""
    text = _text(context, "context_original")
    found = _CLUE.findall(text)
    return found[0] if found else ("", text)


def _coqa(query: Any) -> tuple[str]:
    """Return what stands before the question that is asked: the passage and the conversation so far."""
    before, asked, _ = _text(query, "query_original").rpartition("Question:")
    if not asked:
        raise RowProblem("has no 'Question:' in query_original")
    return (before,)


ADAPTERS = {
    "blank": Adapter(("sentence",), ("with_blank",), _blank),
    "coqa": Adapter(("query_original",), ("conversation",), _coqa),
    "hellaswag": _hellaswag(r" \[title\]"),
    "hellaswag-olmes": _hellaswag(r"\.? \[title\]", keep_end=True),
    "hellaswag-olmes-rc": _hellaswag(r"\.? \[title\]"),
    "jeopardy": Adapter(("context_original",), ("category", "clue"), _jeopardy),
    "lettered-options": Adapter(("options",), ("bare_options",), _lettered_options),
    "options-in-question": Adapter(
        ("question", "option1", "option2", "option3", "option4"), ("stem",), _options_in_question
    ),
    "race": Adapter(("problems",), ("history", "last_question", "last_options", "last_gold"), _race),
    "subject-in-words": Adapter(("subject",), ("subject_in_words",), _subject),
}
