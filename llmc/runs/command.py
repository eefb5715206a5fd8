"""What a command line of the user's own asks of llama-perplexity, read without changing a word of it.

The engine may stand behind wrappers (``env X=1 nice -n 5 llama-perplexity ...``, ``sh -c '...'``) or be the
sub-command of ``llama``. llama.cpp takes ``--flag value`` only, never ``--flag=value``, and of a repeated
flag the last one counts.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmc.findings import Finding, finding

_PROGRAM = re.compile(r"(?:.*[-_.])?perplexity(?:[-_.].*)?", re.IGNORECASE)
_FILE_ENDINGS = (".gguf", ".bin", ".txt", ".log", ".raw")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash")
_MODEL = ("-m", "--model")
_BINARY_FILE = ("-bf", "--binary-file")
_TEXT_FILE = ("-f", "--file")
_SUBSET = ("--multiple-choice-tasks",)
# Text that may look like a flag itself.
_FREE_TEXT = ("-p", "--prompt")
_WITH_VALUE = (*_MODEL, *_BINARY_FILE, *_TEXT_FILE, *_SUBSET, *_FREE_TEXT)
_OTHER_MODES = ("--hellaswag", "--winogrande", "--kl-divergence")


@dataclass(frozen=True)
class EngineCommand:
    """The engine's part of a command: the program's own words and what its arguments set.

    ``program`` is empty when no word looks like llama-perplexity; the arguments are then all but the first.
    ``subset`` is the number of ``--multiple-choice-tasks``, None when absent or not a number.
    ``assigned`` are ``NAME=value`` words before the program.
    """

    program: tuple[str, ...]
    model: str | None
    binary_file: str | None
    text_file: str | None
    multiple_choice: bool
    subset: int | None
    other_modes: tuple[str, ...]
    assigned: Mapping[str, str]

    @property
    def shows_nothing(self) -> bool:
        """Whether no argument says what is scored, or how: a script may hold the real command."""
        said = (self.binary_file, self.text_file, *self.other_modes)
        return not self.multiple_choice and not any(said)

    def findings(self) -> list[Finding]:
        """Return ``not-multiple-choice`` with every reason there is, or nothing."""
        reasons = []
        if not self.multiple_choice:
            reasons.append("there is no --multiple-choice")
        if self.other_modes:
            reasons.append(f"{' and '.join(self.other_modes)} asks for another mode")
        if self.text_file is not None:
            reasons.append(f"-f {self.text_file} is read as text; a benchmark is given with -bf")
        elif self.binary_file is None:
            reasons.append("there is no -bf file")
        return [finding("not-multiple-choice", "; ".join(reasons))] if reasons else []


def read_command(argv: Sequence[str]) -> EngineCommand:
    """Return what ``argv`` asks for; never raises, whatever the words are."""
    words = _out_of_shell([_dashed(word) for word in argv])
    start = _program_at(words)
    program: tuple[str, ...] = ()
    if start is None:
        before, arguments = words[:1], words[1:]
    else:
        first = start - 1 if start and Path(words[start - 1]).name == "llama" else start
        program, before, arguments = tuple(words[first : start + 1]), words[:first], words[start + 1 :]
    values, switches = _flags(arguments)

    def last(names: tuple[str, ...]) -> str | None:
        given = [value for name, value in values if name in names]
        return given[-1] if given else None

    subset = last(_SUBSET)
    return EngineCommand(
        program=program,
        model=last(_MODEL),
        binary_file=last(_BINARY_FILE),
        text_file=last(_TEXT_FILE),
        multiple_choice="--multiple-choice" in switches,
        subset=int(subset) if subset is not None and re.fullmatch(r"[+-]?[0-9]{1,18}", subset) else None,
        other_modes=tuple(mode for mode in _OTHER_MODES if mode in switches),
        assigned=dict(_assignments(before)),
    )


def _out_of_shell(words: list[str]) -> list[str]:
    """Return the words of the script when a shell is to run one (``bash -lc '...'``), else ``words``."""
    for i, word in enumerate(words):
        if Path(word).name not in _SHELLS:
            continue
        # Only among the shell's own options: what stands behind a script's name is the script's.
        own = list(itertools.takewhile(lambda each: each.startswith("-"), words[i + 1 :]))
        at = next((j for j, each in enumerate(own) if re.fullmatch(r"-[a-z]*c", each)), None)
        script = i + 2 + at if at is not None else len(words)
        if script < len(words):
            return [*words[:i], *_script_words(words[script], words[script + 2 :])]
    return words


def _dashed(word: str) -> str:
    """Return a word as llama.cpp reads it: ``--binary_file`` is ``--binary-file``."""
    return word.replace("_", "-") if re.fullmatch(r"--[A-Za-z0-9_-]+", word) else word


def _script_words(script: str, given: Sequence[str]) -> list[str]:
    """Return the words of the simple command in a script that names the engine, else of the last one.

    ``given`` are the script's own arguments, which stand where it says ``$@``.
    """
    lexer = shlex.shlex(script, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    try:
        for token in lexer:
            if token and set(token) <= set("();<>|&\n"):
                commands.append([])
            elif token in ("$@", "$*"):
                commands[-1] += given
            else:
                commands[-1].append(_dashed(token))
    except ValueError:
        return script.split()  # an open quotation: the shell will complain, not llmc
    return next((words for words in commands if _program_at(words) is not None), commands[-1])


def _program_at(words: Sequence[str]) -> int | None:
    for i, word in enumerate(words):
        if word in _BINARY_FILE or word == "--multiple-choice":
            return None
        name = Path(word).name
        if _PROGRAM.fullmatch(name) and not name.endswith(_FILE_ENDINGS) and not word.startswith("-"):
            return i
    return None


def _flags(arguments: Sequence[str]) -> tuple[list[tuple[str, str]], set[str]]:
    values, switches = [], set()
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            value = next(words, None)
            if value is not None:
                values.append((word, value))
        else:
            switches.add(word)
    return values, switches


def _assignments(words: Sequence[str]) -> list[tuple[str, str]]:
    matches = (re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word, re.DOTALL) for word in words)
    return [(match[1], match[2]) for match in matches if match]
