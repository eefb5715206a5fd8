"""The exception tree and the exit codes.

    LlmcError                       anything llmc reports itself; carries its exit code
    +-- UsageError            (2)   arguments or configuration that cannot work
    |   +-- InputFileError    (2)   a file that is missing, unreadable or not what it should be
    |   |   +-- FormatError   (2)   a benchmark file that breaks the binary format (see mcbin)
    |   +-- FetchError        (2)   something that could not be downloaded or found in a source
    |   +-- EngineError       (2)   no usable llama-perplexity, or an install that failed
    |   +-- RefusedError      (2)   a run that would go wrong, refused before it starts; has a finding
    +-- UntrustedError        (3)   a result exists but cannot be trusted
    +-- InterruptedRun        (130) Ctrl-C, after everything was put away

Every message has three parts: what happened, where (in ``what``), and ``remedy``: the command or edit that
mends it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """What every llmc command returns to the shell."""

    OK = 0
    GATE_FAILED = 1
    USAGE = 2
    UNTRUSTED = 3
    INCONCLUSIVE = 4
    NOTHING = 5
    INTERRUPTED = 130

    @classmethod
    def worst(cls, codes: Iterable[ExitCode]) -> ExitCode:
        """Return the code that wins when several apply: 130, then 3, 2, 1, 4, 5, 0."""
        order = (cls.INTERRUPTED, cls.UNTRUSTED, cls.USAGE, cls.GATE_FAILED, cls.INCONCLUSIVE, cls.NOTHING)
        seen = set(codes)
        return next((code for code in order if code in seen), cls.OK)


class LlmcError(Exception):
    """An error llmc explains in its own words.

    ``what`` says what happened and where, ``remedy`` how to mend it, ``kind`` names it in JSON output.
    """

    exit_code: ExitCode = ExitCode.USAGE
    kind: str = "error"

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class UsageError(LlmcError):
    kind = "usage"


class InputFileError(UsageError):
    kind = "input-file"


class FormatError(InputFileError):
    """A benchmark file that is not exactly what the format says.

    ``task`` is the 0-based task index or None (header), ``offset`` the byte offset of the first wrong byte.
    """

    kind = "bad-binary"

    def __init__(self, what: str, *, task: int | None, offset: int, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.task = task
        self.offset = offset


class FetchError(UsageError):
    kind = "fetch"


class EngineError(UsageError):
    kind = "engine"


class RefusedError(UsageError):
    """A run refused before launch. ``slug`` names the finding that ``llmc explain`` describes."""

    kind = "refused"

    def __init__(self, slug: str, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.slug = slug


class UntrustedError(LlmcError):
    exit_code = ExitCode.UNTRUSTED
    kind = "untrusted"


class InterruptedRun(LlmcError):
    exit_code = ExitCode.INTERRUPTED
    kind = "interrupted"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the nearest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def os_error(error: OSError, action: str, remedy: str = "") -> InputFileError:
    """Turn an OSError into one sentence: what was being done, to which path, and why it failed."""
    where = f" {error.filename}" if error.filename else ""
    return InputFileError(f"cannot {action}{where}: {error.strerror or error}", remedy)
