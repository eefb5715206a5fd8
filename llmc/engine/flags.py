"""The user's own llama-perplexity flags: what they set, and which of them a safe run must refuse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmc.errors import UsageError, did_you_mean, os_error
from llmc.files import is_file, sha256_cached

ALIASES: Mapping[str, str] = {
    "--parallel": "-np",
    "--ctx-size": "-c",
    "--batch-size": "-b",
    "--ubatch-size": "-ub",
    "--flash-attn": "-fa",
    "--cache-type-k": "-ctk",
    "--cache-type-v": "-ctv",
    "--binary-file": "-bf",
    "--file": "-f",
    "--prompt": "-p",
    "--escape": "-e",
    "--model": "-m",
    "--verbosity": "-lv",
    "--log-verbosity": "-lv",
    "--verbose": "-v",
    "--log-verbose": "-v",
    "--kv-unified": "-kvu",
    "--gpu-layers": "-ngl",
    "--n-gpu-layers": "-ngl",
    "--threads": "-t",
    "--threads-batch": "-tb",
    "--device": "-dev",
    "--help": "-h",
    "--usage": "-h",
}

_MODEL_ELSEWHERE = "the model is chosen with `llmc run -m`, so that its checksum is in the record"
_OTHER_MODE = "it is another mode, or belongs to one; a run is --multiple-choice only"
_INFORMATION = "it prints information instead of scoring"
REFUSED: Mapping[str, str] = {
    "-bf": "the benchmark is chosen with `llmc run -b`",
    "-f": "the benchmark is chosen with `llmc run -b`, and -f can corrupt it",
    "-p": "a prompt would replace the benchmark",
    "-e": "it rewrites backslashes inside the benchmark",
    "-m": _MODEL_ELSEWHERE,
    "-mu": _MODEL_ELSEWHERE,
    "--model-url": _MODEL_ELSEWHERE,
    "-hf": _MODEL_ELSEWHERE,
    "-hfr": _MODEL_ELSEWHERE,
    "--hf-repo": _MODEL_ELSEWHERE,
    "-hff": _MODEL_ELSEWHERE,
    "--hf-file": _MODEL_ELSEWHERE,
    "-dr": _MODEL_ELSEWHERE,
    "--docker-repo": _MODEL_ELSEWHERE,
    "--multiple-choice-tasks": "use `llmc run --like-llama N`, which picks the same questions and keeps their ids",
    "--multiple-choice": "llmc gives it",
    "--log-disable": "nothing could be audited",
    "--hellaswag": _OTHER_MODE,
    "--hellaswag-tasks": _OTHER_MODE,
    "--winogrande": _OTHER_MODE,
    "--winogrande-tasks": _OTHER_MODE,
    "--kl-divergence": _OTHER_MODE,
    "--kl-divergence-base": _OTHER_MODE,
    "--save-all-logits": _OTHER_MODE,
    "--ppl-stride": _OTHER_MODE,
    "--ppl-output-type": _OTHER_MODE,
    "-h": _INFORMATION,
    "--version": _INFORMATION,
    "--list-devices": _INFORMATION,
    "--completion-bash": _INFORMATION,
    "-cl": _INFORMATION,
    "--cache-list": _INFORMATION,
}

# Flags that make another model of the one named with -m; the first group names files.
ADAPTERS = ("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled")
ANOTHER_MODEL = (*ADAPTERS, "--control-vector-layer-range", "--override-kv", "--override-tensor-type")
_ROPE = re.compile(r"--(rope|yarn)-|-gan$|-gaw$|--grp-attn-")


@dataclass(frozen=True)
class UserFlags:
    """Flags after ``--``: ``given`` as typed, ``values`` by canonical name (None for a flag without value)."""

    given: tuple[str, ...]
    values: Mapping[str, str | None]

    def has(self, name: str) -> bool:
        return name in self.values

    def number(self, name: str) -> int | None:
        """Return the whole positive number a flag was given, None when absent; UsageError when it is not one."""
        if name not in self.values:
            return None
        text = self.values[name] or ""
        if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):  # llama.cpp reads an int of 32 bits
            raise UsageError(
                f"{name} takes a whole number from 1 to 999999999, got {text!r}", f"write for example `{name} 16`"
            )
        return int(text)


def is_flag(word: str) -> bool:
    """True for ``-x`` and ``--xyz``, false for values, negative numbers included."""
    return bool(re.match(r"-{1,2}[A-Za-z]", word))


def parse(given: Iterable[str], known: Iterable[str] = ()) -> UserFlags:
    """Check the user's flags against what is refused and what the engine knows.

    ``known`` are the flag names of the engine's own help; empty when it prints none, and then any name passes.
    Raises UsageError that names the flag and what to do instead.
    """
    words = tuple(given)
    names = set(known)
    values: dict[str, str | None] = {}
    current = ""
    for word in words:
        if not is_flag(word):
            if not current:
                raise UsageError(
                    f"{word!r} after `--` belongs to no flag",
                    "llama-perplexity takes flags only, as in `-- -t 4`",
                )
            values[current] = word if values[current] is None else f"{values[current]} {word}"
            continue
        if "=" in word:
            raise UsageError(f"llama-perplexity does not read {word!r}", "write the value as a word of its own")
        current = ALIASES.get(word, word)
        if current in REFUSED:
            raise UsageError(f"{word} cannot be passed to a safe run: {REFUSED[current]}", f"leave out {word}")
        if names and word not in names:
            raise UsageError(f"this engine does not know {word}{did_you_mean(word, names)}", "see its --help")
        values[current] = None
    if "tokenizer." in (values.get("--override-kv") or ""):
        raise UsageError(
            "--override-kv of a tokenizer key would tokenize otherwise than the plan, which reads the model's own",
            "write the key into the model's file (gguf-set-metadata), and name that file with -m",
        )
    return UserFlags(words, values)


def changing_the_model(given: Iterable[str]) -> list[str]:
    """Return the flags among the user's that make llama-perplexity score another model than the file itself."""
    return [word for word in given if word in ANOTHER_MODEL or _ROPE.match(word)]


def adapter_files(given: Iterable[str]) -> list[Path]:
    """Return the files that the user's flags add to the model, in the order given; those that are there.

    llama.cpp takes one file or several joined by commas, each with ``:SCALE`` in the scaled forms; older versions
    took the scale as a word of its own.
    """
    found: dict[Path, None] = {}
    inside = False
    for word in given:
        if is_flag(word):
            inside = word in ADAPTERS
        elif inside:
            for piece in (word, *word.split(",")):
                names = (piece, piece.rpartition(":")[0])
                found |= dict.fromkeys(Path(name) for name in names if name and is_file(Path(name)))
    return list(found)


def adapter_sums(given: Iterable[str]) -> dict[str, str]:
    """Return path -> SHA-256 of ``adapter_files``; raises InputFileError for one that cannot be read."""
    sums: dict[str, str] = {}
    for path in adapter_files(given):
        try:
            sums[str(path)] = sha256_cached(path)
        except OSError as error:
            raise os_error(error, f"read {path}", "check its permissions") from error
    return sums
