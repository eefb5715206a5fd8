"""What single lines of llama-perplexity's output say, for every layout it has had since January 2024.

The engine's logger writes messages, not lines: ``reading tasks`` and the progress dots carry no newline, so
the next message is glued to them, with its own prefix in the middle of the line. A line is therefore read as
*glue* (prefixes, dots, the two messages without a newline) followed by one message that runs to its end.
A message counts only where it begins: model metadata is printed behind a function name of its own and can
hold any text at all, a row or a ``Final result`` included.

Sources: tools/perplexity/perplexity.cpp, common/log.cpp and common/arg.cpp of llama.cpp b1934 to b11434, and
ik_llama.cpp build 4840.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

MAX_LINE = 1 << 16  # bytes of one line that are looked at; the longest real one is about 2,000
UNITS = 10**10  # printed units (1e-8 percent) in a share of 1
MAX_TEXT = 400  # characters of an error line that are kept

ANSI = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
PREFIX = rb"(?:[0-9]+\.[0-9]{2}\.[0-9]{3}\.[0-9]{3} )?[DIWE] "
UNFINISHED = rb"multiple_choice_score: (?:reading tasks|preparing task data)"
GLUE = re.compile(rb"(?:" + PREFIX + rb"|\.+|" + UNFINISHED + rb")*")
# Rows are never prefixed: before one, a prefix belongs to a message without a newline.
ROW_GLUE = rb"(?:\.|(?:" + PREFIX + rb")?" + UNFINISHED + rb")*"
ROW = rb"([0-9]{1,10})\t([0-9]{1,3})\.([0-9]{8})"
ROW_LINE = re.compile(ROW_GLUE + ROW)
JSON_ROW = rb'\{"type":"log","time":[0-9]+,"level":"none","msg":"([0-9]{1,10})\\t([0-9]{1,3})\.([0-9]{8})\\n"\}'
_JSON_ROW_LINE = re.compile(JSON_ROW)

_NUMBER = rb"-?(?:[0-9]+\.[0-9]{4}|nan(?:\(\w+\))?|inf)"
_SUMMARY = re.compile(rb" ?(Final result|Random chance): (" + _NUMBER + rb") \+/- (" + _NUMBER + rb") ?")
_SCORE = rb"multiple_choice_score ?: "
_ANNOUNCED = re.compile(_SCORE + rb"there are ([0-9]{1,10}) tasks in prompt")
_SELECTED = re.compile(_SCORE + rb"selecting ([0-9]{1,10}) random tasks from ([0-9]{1,10}) tasks available")
_READ = re.compile(rb"Read ([0-9]{1,19}) bytes from binary file .+")
_CHATTER = re.compile(
    rb"|\.*(?:done)?|task\tacc_norm|" + _SCORE + rb"calculating TruthfulQA score over [0-9]+ tasks\.|" + UNFINISHED
)
_SETTING = re.compile(
    rb"(?:llama_context|llama_init_from_model|llama_new_context_with_model): +"
    rb"(n_ctx|n_seq_max|n_batch|n_ubatch|flash_attn|kv_unified) += +(\w+)"
)
_SEED = re.compile(rb"(?:main|llama_perplexity): seed += +([0-9]{1,20})")
_BUILD = re.compile(rb"(?:main: build = |build: )([0-9]+ \((?:[0-9a-f]+|unknown)\)(?: with .{1,200})?)")
_TIMING = re.compile(
    rb"llama_(?:perf_context_print|print_timings): +(load|prompt eval|total) time = +([0-9]+\.[0-9]+) ms"
    rb"(?: / +([0-9]{1,18}) tokens.*)?"
)
_SETTING_BEGINNINGS = (b"llama_", b"main: ", b"build: ")
# The one piece of metadata that is printed raw: a model's name may hold newlines, and so whole false lines.
RAW_NAME = re.compile(rb"(?:print_info|llm_load_print_meta): general\.name +=")
METADATA = re.compile(rb"(?:llama_model_loader|llama_load_model_from_file|print_info|llm_load_print_meta|load):")


class Row(NamedTuple):
    """A task line: its number and the accuracy so far, in units of 1e-8 percent."""

    number: int
    accuracy: int


class Summary(NamedTuple):
    """``Final result`` or ``Random chance``: percent and standard error, None where not finite."""

    which: Literal["final", "chance"]
    percent: float | None
    error: float | None


class Announced(NamedTuple):
    tasks: int


class Selected(NamedTuple):
    tasks: int
    of: int


class BytesRead(NamedTuple):
    size: int


class Setting(NamedTuple):
    """Something worth recording that the engine says about itself, as text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Chatter:
    """A known line that says nothing: progress, the table's header, an empty line."""


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """A line known as an error. ``task`` is 0-based in the order of scoring; ``needed`` is the number of
    sequences (kind ``options``) or tokens (kind ``context``) that would do; ``text`` is the message itself.
    """

    kind: str
    text: str
    task: int | None = None
    needed: int | None = None


Fact = Row | Summary | Announced | Selected | BytesRead | Setting | Chatter | ErrorLine

# What multiple_choice_score itself gives up with; ``task`` is 0-based unless the group is ``task1``.
_SCORE_ERRORS: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    ("no-tasks", re.compile(rb"no tasks")),
    ("task-positions", re.compile(rb"failed to read task positions.*")),
    ("read-task", re.compile(rb"failed to read task (?P<task1>[0-9]{1,10}) of [0-9]+")),
    ("read-task", re.compile(rb"failed to read task (?P<task>[0-9]{1,10}) at position [0-9]+")),
    ("malformed-tasks", re.compile(rb"found [0-9]+ malformed tasks")),
    ("bad-task", re.compile(rb"found (?:bad task|empty answer).*")),
    (
        "options",
        re.compile(
            rb"task (?P<task>[0-9]{1,10}) requires a higher -np\|--parallel value"
            rb"(?: \(at least (?P<needed>[0-9]{1,10})\))?"
        ),
    ),
    (
        "context",
        re.compile(
            rb"task (?P<task>[0-9]{1,10}) does not fit in the context window"
            rb"(?: \(requires (?P<needed>[0-9]{1,18}) tokens\))?"
        ),
    ),
    ("decode", re.compile(rb"llama_decode\(\) failed.*")),
)
# Messages by their beginning, behind the name of any function or, below, bare.
_FUNCTION_ERRORS: tuple[tuple[bytes, str], ...] = (
    (b"failed to decode the batch, n_batch = ", "decode"),
    (b"failed to find a memory slot for batch of size ", "memory-slot"),
    (b"sequential split is not supported when there are coupled", "coupled-sequences"),
    (b"failed to compute graph, compute status: ", "compute"),
    (b"perplexity tool requires '--ctx-size' > 0", "context-size"),
    (b"unable to load model", "load-model"),
    (b"failed to load model", "load-model"),
    (b"error loading model", "load-model"),
    (b"failed to open GGUF file ", "load-model"),
    (b"failed to initialize the context: n_seq_max must be <= ", "too-many-sequences"),
    (b"failed to create context", "create-context"),
    (b"failed to create the context", "create-context"),
)
_BARE_ERRORS: tuple[tuple[bytes, str], ...] = (
    (b"failed to decode the batch, n_batch = ", "decode"),
    (b"error while handling argument ", "argument"),
    (b"error while handling environment variable ", "argument"),
    (b"error: unknown ", "argument"),
    (b"error: invalid ", "argument"),
    (b"error: failed to open file ", "open-file"),
    (b"error: failed to read file ", "open-file"),
    (b"GGML_ASSERT", "assertion"),
    (b"terminate called ", "exception"),
    (b"libc++abi: terminating ", "exception"),
    (b"  what(): ", "exception"),
    *((name + b" error", "device") for name in (b"CUDA", b"ROCm", b"HIP", b"MUSA", b"CANN", b"SYCL")),
)
_BARE_BEGINNINGS = tuple(beginning for beginning, _ in _BARE_ERRORS)
_FUNCTION_BEGINNINGS = tuple(beginning for beginning, _ in _FUNCTION_ERRORS)
_SCORE_FUNCTION = re.compile(rb"multiple_choice_(?:score|prepare_one_task) ?: ")
_FUNCTION = re.compile(rb"\w+(?: {1,8}\w+)? ?: (?:error: )?")
_METAL_FAILED = re.compile(rb"(?:error: )?command buffer [0-9]+ failed with status ")
_ABORTED = re.compile(rb"\S{1,400}\.(?:c|cc|cpp|cu|h|hpp|m|mm):[0-9]+: (?P<assertion>GGML_ASSERT)?")
_KILLED = re.compile(  # said by the shell, whose words land in the log too
    rb"(?:\S{1,400}: line [0-9]+: +[0-9]+ )?(?:Segmentation fault|Aborted|Killed|Bus error|"
    rb"Illegal instruction|Floating point exception|Terminated)(?: +\(core dumped\))?(?: .*)?"
)


def clean(line: bytes) -> bytes:
    """Return a line without its colours and without a carriage return at its end."""
    line = line.removesuffix(b"\r")
    return ANSI.sub(b"", line) if b"\x1b" in line else line


def row(number: bytes, whole: bytes, decimals: bytes) -> Row:
    """Return a task line from its three groups of digits; 8 decimals, so the value is exact."""
    return Row(int(number), int(whole + decimals))


def read_line(line: bytes) -> Fact | None:
    """Return what one clean line (no newline, no colours) says, or None when nothing known begins in it."""
    if line.startswith(b'{"'):
        return _read_json(line)
    if match := ROW_LINE.fullmatch(line):
        return row(*match.groups())
    glue = GLUE.match(line)
    return read_message(line[glue.end() :] if glue else line)


def read_message(body: bytes) -> Fact | None:
    """Return what one message without its prefix says, rows excepted."""
    if match := _SUMMARY.fullmatch(body):
        which: Literal["final", "chance"] = "final" if match[1] == b"Final result" else "chance"
        return Summary(which, _finite(match[2]), _finite(match[3]))
    if match := _ANNOUNCED.fullmatch(body):
        return Announced(int(match[1]))
    if match := _SELECTED.fullmatch(body):
        return Selected(int(match[1]), int(match[2]))
    if match := _READ.fullmatch(body):
        return BytesRead(int(match[1]))
    if _CHATTER.fullmatch(body):
        return Chatter()
    return _read_setting(body) or _read_error(body)


def _read_setting(body: bytes) -> Setting | None:
    if not body.startswith(_SETTING_BEGINNINGS):
        return None
    if match := _SETTING.fullmatch(body):
        return Setting(match[1].decode(), match[2].decode())
    if match := _SEED.fullmatch(body):
        return Setting("seed", match[1].decode())
    if match := _BUILD.fullmatch(body):
        return Setting("build", match[1].decode("utf-8", "replace"))
    if match := _TIMING.fullmatch(body):
        name = match[1].decode().replace(" ", "_")
        tokens = match[3].decode() if match[3] else ""
        return Setting(f"{name}_ms", f"{match[2].decode()} {tokens}".strip())
    return None


def _read_error(body: bytes) -> ErrorLine | None:
    if score := _SCORE_FUNCTION.match(body):
        return _read_score_error(body, score.end())
    if body.startswith(_BARE_BEGINNINGS):
        return ErrorLine(next(kind for start, kind in _BARE_ERRORS if body.startswith(start)), _text(body))
    if (name := _FUNCTION.match(body)) and not METADATA.match(body):
        if body.startswith(_FUNCTION_BEGINNINGS, name.end()):
            found = (kind for start, kind in _FUNCTION_ERRORS if body.startswith(start, name.end()))
            return ErrorLine(next(found), _text(body))
        if body.startswith(b"ggml_metal") and _METAL_FAILED.match(body, name.end()):
            return ErrorLine("device", _text(body))
    if aborted := _ABORTED.match(body):
        return ErrorLine("assertion" if aborted["assertion"] else "abort", _text(body))
    if _KILLED.fullmatch(body):
        return ErrorLine("killed", _text(body))
    return None


def _read_score_error(body: bytes, start: int) -> ErrorLine | None:
    for kind, pattern in _SCORE_ERRORS:
        if match := pattern.fullmatch(body, start):
            found = {name: int(digits) for name, digits in match.groupdict().items() if digits}
            task = found["task1"] - 1 if "task1" in found else found.get("task")
            return ErrorLine(kind, _text(body), task, found.get("needed"))
    return None


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace").strip()[:MAX_TEXT]


def _read_json(line: bytes) -> Fact | None:
    """Read one message of ``--log-jsonl``. It is one message however many newlines it holds, so text inside
    a value (a model's name, say) never begins one.
    """
    if match := _JSON_ROW_LINE.fullmatch(line):
        return row(*match.groups())
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("type") != "log" or not isinstance(entry.get("msg"), str):
        return None
    body = entry["msg"].removesuffix("\n").encode("utf-8", "replace")
    if match := ROW_LINE.fullmatch(body):
        return row(*match.groups()) if entry.get("level") == "none" else None
    return read_message(body)


def _finite(number: bytes) -> float | None:
    return None if b"n" in number else float(number)
