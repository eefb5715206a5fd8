"""What a llama-perplexity binary does, learned by running it: once per engine, kept under its identity.

Version strings say little (source builds report 0, forks count on their own), so a handful of runs with the
known-answer model decide: do known questions get their known scores, is the context given by ``-c`` the total or
multiplied by ``-np``, is ``-kvu`` needed, how many sequences are allowed, on which stream do the lines appear.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from llmc import mcbin
from llmc.engine import environment
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.launch import Launch, launch
from llmc.engine.locate import EngineFiles, identity
from llmc.engine.process import Limits, run_process
from llmc.engine.transcript import Transcript, parse
from llmc.errors import RefusedError
from llmc.files import cache_dir, read_cache, write_cache

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
LIMITS = Limits(timeout=120.0, stall=60.0, exit_grace=10.0)
TEXT_LIMITS = Limits(timeout=60.0, stall=20.0, exit_grace=10.0)
CONTEXT_PER_SEQUENCE, SEQUENCES, LONG_TASK = 64, 8, 420  # 420 tokens: more than 64 or 256, less than 8 * 64
MANY_SEQUENCES = 128


class ProbeResult(BaseModel):
    """What was learned. ``base_arguments`` are accepted by this engine and make its output complete."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: Literal["llmc.probe/1"] = "llmc.probe/1"
    identity: str
    command: tuple[str, ...]
    usable: bool
    reason: str
    version: str
    build: int | None
    flavour: Literal["mainline", "ik_llama.cpp", "llamafile", "unknown"]
    flags: tuple[str, ...]
    base_arguments: tuple[str, ...]
    context_rule: Literal["multiplied", "total"]
    needs_kv_unified: bool
    max_sequences: int
    flash_attention: Literal["value", "switch", "none"]
    devices: tuple[str, ...]
    rows_on: Stream
    final_on: Stream | Literal["nowhere"]

    @property
    def backend(self) -> str:
        return "gpu" if self.devices else "cpu"

    def accepts(self, flag: str) -> bool:
        """True when the engine's help names the flag, or when it prints no help to go by."""
        return not self.flags or flag in self.flags


def probe(files: EngineFiles, *, force: bool = False) -> ProbeResult:
    """Return what is known of an engine, probing it when its identity is new (a second or two).

    Only a usable engine is remembered.
    """
    key = identity(files)
    entry = cache_dir("probe", f"{key}.json")
    if not force and (known := read_cache(entry)) is not None:
        try:
            result = ProbeResult.model_validate(known)
            return result.model_copy(update={"command": files.command})
        except ValidationError:
            pass  # written by another version of llmc: probe again
    with tempfile.TemporaryDirectory(prefix="llmc-probe-") as folder:
        result = _Prober(files, Path(folder)).probe(key)
    if result.usable:
        write_cache(entry, result.model_dump(mode="json"))
    else:
        # What made it fail may be the machine: no memory, no room, too busy. The next time may be better.
        with contextlib.suppress(OSError):
            entry.unlink(missing_ok=True)
    return result


def require_usable(result: ProbeResult) -> ProbeResult:
    """Return the result, or raise RefusedError when the engine failed its known answers."""
    if not result.usable:
        raise RefusedError(
            "engine-unusable",
            f"{' '.join(result.command)} ({result.version or 'version unknown'}): {result.reason}",
            "run `llmc engine install` for a tested build, or name another engine with --engine",
        )
    return result


class _Prober:
    def __init__(self, files: EngineFiles, folder: Path) -> None:
        self.files, self.folder = files, folder
        self.environment = environment.scrubbed().variables
        # Unused vocabulary makes the engine slow enough at its exit to get its last lines out (see launch).
        self.model = KnownAnswerModel(padding=20_000)
        self.runs = 0
        self.hung = False

    def probe(self, key: str) -> ProbeResult:
        help_text = self._text("--help")
        flags = parse_flags(help_text)
        # An engine that hangs is not asked the same in other words: each answer would take a minute.
        ask_version = "--version" in flags or not (flags or self.hung)
        version_text = self._text("--version") if ask_version else ""
        version, build = parse_version(version_text)
        model = self.model.write(self.folder / "model.gguf")
        known = mcbin.write(self.folder / "known.bin", known_tasks())
        expected = "".join(str(int(self.model.choice(t.question, t.options) == t.gold)) for t in known_tasks())
        base, kvu, answer = self._find_arguments(flags, model, known, expected)
        usable = not answer.reason
        context_rule: Literal["multiplied", "total"] = "total"
        sequences = SEQUENCES
        if usable:
            context_rule = self._context_rule(model, [*base, *kvu])
            sequences = self._max_sequences(model, [*base, *kvu], context_rule)
        return ProbeResult(
            identity=key,
            command=self.files.command,
            usable=usable,
            reason=answer.reason,
            version=version,
            build=build,
            flavour=flavour(help_text, version_text),
            flags=tuple(sorted(flags)),
            base_arguments=tuple(base),
            context_rule=context_rule,
            needs_kv_unified=bool(kvu),
            max_sequences=sequences,
            flash_attention=flash_attention_style(help_text),
            devices=self._devices(flags),
            rows_on=answer.rows_on,
            final_on=answer.final_on,
        )

    def _text(self, *arguments: str) -> str:
        """Return both streams of a short informative run, at most 1 MiB of each."""
        self.runs += 1
        out, err = self.folder / f"{self.runs}.out", self.folder / f"{self.runs}.err"
        command = [*self.files.command, *arguments]
        outcome = run_process(command, stdout_log=out, stderr_log=err, env=self.environment, limits=TEXT_LIMITS)
        if outcome.ended_by == "interrupted":
            raise KeyboardInterrupt
        self.hung = self.hung or outcome.ended_by != "itself"
        parts = []
        for path in (out, err):
            with path.open("rb") as stream:
                parts.append(stream.read(1 << 20).decode("utf-8", "replace"))
        return "\n".join(parts)

    def _find_arguments(
        self, flags: set[str], model: Path, known: mcbin.BinFacts, expected: str
    ) -> tuple[list[str], list[str], _Answer]:
        """Try the fullest set of helpful arguments first, then fewer; return the first that answers rightly."""
        full = helpful_arguments(flags)
        kvu = ["-kvu"] if "-kvu" in flags else []
        tries = [(full, []), (full, kvu), ([], []), ([], ["-kvu"])]
        first: tuple[list[str], list[str], _Answer] | None = None
        for base, extra in tries:
            answer = self._ask(model, self.folder / "known.bin", known, expected, [*base, *extra])
            if not answer.reason:
                return base, extra, answer
            first = first or (base, extra, answer)
            if self.hung:
                break
        assert first is not None
        return first

    def _ask(
        self, model: Path, questions: Path, facts: mcbin.BinFacts, expected: str, arguments: Sequence[str]
    ) -> _Answer:
        layout = ["-c", "512", "-np", str(SEQUENCES)]
        result, streams = self._score(model, questions, facts, [*layout, *arguments])
        reason = ""
        if not result.audit.trusted:
            causes = [f.detail for f in result.audit.findings if f.severity == "error"]
            reason = "a run on questions with known answers failed: " + "; ".join(causes)
        elif result.audit.correct != expected:
            reason = f"known answers are {expected}, it answers {result.audit.correct} (1 = right)"
        return _Answer(
            reason,
            rows_on="stdout" if streams["stdout"].rows_total else "stderr",
            final_on=next((name for name in STREAMS if streams[name].finals), "nowhere"),
        )

    def _score(
        self, model: Path, questions: Path, facts: mcbin.BinFacts, arguments: Sequence[str]
    ) -> tuple[Launch, dict[str, Transcript]]:
        """Return a launch, and what each of its streams says on its own."""
        self.runs += 1
        logs = {name: self.folder / f"{self.runs}.{name}" for name in STREAMS}
        result = launch(
            [*self.files.command, "-m", str(model), "--multiple-choice", "-bf", str(questions), *arguments],
            facts=facts,
            golds=None,
            stdout_log=logs["stdout"],
            stderr_log=logs["stderr"],
            environment=self.environment,
            limits=LIMITS,
        ).not_interrupted()
        self.hung = self.hung or result.outcome.ended_by != "itself"
        return result, {name: parse(combined=path.read_bytes()) for name, path in logs.items()}

    def _scores(self, model: Path, task: mcbin.Task, arguments: Sequence[str]) -> bool:
        questions = self.folder / "one.bin"
        facts = mcbin.write(questions, [task])
        result, _ = self._score(model, questions, facts, arguments)
        return result.audit.trusted

    def _context_rule(self, model: Path, arguments: Sequence[str]) -> Literal["multiplied", "total"]:
        task = mcbin.Task("x" * LONG_TASK + "?", ("A", "B"), 0)
        layout = ["-c", str(CONTEXT_PER_SEQUENCE), "-np", str(SEQUENCES)]
        return "multiplied" if self._scores(model, task, [*layout, *arguments]) else "total"

    def _max_sequences(self, model: Path, arguments: Sequence[str], rule: str) -> int:
        """128 is all that llama.cpp's batching uses; builds before mid-2025 allow 64 sequences at most."""
        context = "16" if rule == "multiplied" else "2048"
        for count in (MANY_SEQUENCES, 64, 32, 16):
            layout = ["-c", context, "-np", str(count)]
            if self._scores(model, mcbin.Task("x?", ("A", "B"), 0), [*layout, *arguments]):
                return count
        return SEQUENCES

    def _devices(self, flags: set[str]) -> tuple[str, ...]:
        return parse_devices(self._text("--list-devices")) if "--list-devices" in flags else ()


@dataclass(frozen=True)
class _Answer:
    """How the known questions were answered; an empty ``reason`` means rightly."""

    reason: str
    rows_on: Stream
    final_on: Stream | Literal["nowhere"]


def known_tasks() -> list[mcbin.Task]:
    """Questions whose scores under the known-answer model differ clearly: letters and texts, 2 to 6 options."""
    letters = [
        mcbin.Task(
            f"Question {n}?\n{''.join(f'{c}. {c.lower()}{n}' for c in 'ABCDEF'[:k])}\nAnswer:",
            tuple("ABCDEF"[:k]),
            g,
        )
        for n, (k, g) in enumerate([(4, 0), (5, 1), (5, 0), (4, 2), (6, 0), (2, 1), (3, 0)])
    ]
    texts = [
        mcbin.Task("The river runs to the", ("sea", "mountain top", "k"), 0),
        mcbin.Task("Water is", ("wet.", "dry as a bone", "old", "qq"), 3),
        mcbin.Task("Caf\u00e9 means", ("coffee", "tea time", "\u00e9t\u00e9"), 2),
        mcbin.Task("One, two,", ("three", "four and five"), 1),
        mcbin.Task("Green and", ("blue green", "red", "mm mm", "t", "yellow"), 4),
    ]
    return letters + texts


def helpful_arguments(flags: set[str]) -> list[str]:
    """Arguments that make the output complete and plain, as far as the engine's help names them."""
    wanted = [
        ("--no-escape", []),
        ("-lv", ["4"]),  # 3 hides the context size, the offload and the timings since build 9160
        ("--log-colors", ["off"]),
    ]
    arguments: list[str] = []
    for flag, value in wanted:
        # The scale of -lv before build 7217 had no 4; those builds have no --log-colors either.
        if flag in flags and (flag != "-lv" or "--log-colors" in flags):
            arguments += [flag, *value]
    return arguments


def parse_flags(help_text: str) -> set[str]:
    """Return every option name that a help text defines at the start of a line."""
    flags: set[str] = set()
    for line in help_text.splitlines():
        match = re.match(r"\s{0,12}(-{1,2}[A-Za-z][\w-]*(?:[ \t]*,[ \t]+-{1,2}[A-Za-z][\w-]*)*)", line)
        if match:
            flags.update(re.findall(r"-{1,2}[A-Za-z][\w-]*", match.group(1)))
    return flags


def parse_version(text: str) -> tuple[str, int | None]:
    """Return (version string, build number or None) from ``--version`` output of any flavour."""
    match = re.search(r"^\s*version:\s*(.+?)\s*$", text, re.M) or re.search(r"^\s*(llamafile\S*\s+v\S+)", text, re.M)
    if not match:
        return "", None
    version = match.group(1)
    number = re.search(r"\bbuild (\d+)", version) or re.match(r"(\d+) \(", version)
    return version, int(number.group(1)) if number else None


def parse_devices(text: str) -> tuple[str, ...]:
    """Return the GPU devices that ``--list-devices`` names (none on a CPU build)."""
    _, found, after = text.partition("Available devices:")
    lines = after.splitlines() if found else []
    return tuple(line.strip() for line in lines if re.match(r"\s+\S+: ", line))


def flavour(help_text: str, version_text: str) -> Literal["mainline", "ik_llama.cpp", "llamafile", "unknown"]:
    if "llamafile" in version_text:
        return "llamafile"
    if re.search(r"--(fused-moe|mla-use|mla-attn|run-time-repack)\b|-fmoe\b", help_text):
        return "ik_llama.cpp"
    return "mainline" if "--multiple-choice" in help_text else "unknown"


def flash_attention_style(help_text: str) -> Literal["value", "switch", "none"]:
    """``-fa`` takes a value since build 6325; before that it is a switch that is off by default."""
    match = re.search(r"^.*--flash-attn\b.*$", help_text, re.M)
    if not match:
        return "none"
    return "value" if re.search(r"--flash-attn[ ,]*[\[<(]?(FA|on|auto|0)", match.group(0)) else "switch"
