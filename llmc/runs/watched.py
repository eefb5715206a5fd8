"""The files of somebody else's run, looked at before and after without holding the run up."""

from __future__ import annotations

import re
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from llmc import mcbin
from llmc.engine.preflight import named_tasks, text_hazards
from llmc.errors import FormatError, LlmcError
from llmc.files import file_stamp, is_file, sha256_file
from llmc.findings import Finding, finding

_SPLIT_MODEL = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True)
class Contents:
    """What a benchmark file holds after the run: ``facts`` is None when it is broken or cannot be read."""

    facts: mcbin.BinFacts | None
    golds: bytes
    findings: tuple[Finding, ...]


def read_contents(path: Path) -> Contents:
    """Read a benchmark file to its last byte, with what is wrong with it, and what llama.cpp may score wrongly.

    Nothing is known of the model here, so hazards are judged by text and are warnings. Raises what cannot be read.
    """
    reader = mcbin.Reader(path)
    golds = bytearray()
    hazards: dict[str, list[int]] = {}
    try:
        for index, task in enumerate(reader):
            golds.append(task.gold)
            for slug in text_hazards(task):
                hazards.setdefault(slug, []).append(index)
    except FormatError as error:
        return Contents(None, b"", (finding("bad-binary", error.what),))
    found = [finding(slug, f"{named_tasks(tasks)} (judged by text)", "warning") for slug, tasks in hazards.items()]
    return Contents(reader.facts, bytes(golds), tuple(found))


class WatchedBenchmark:
    """A benchmark file from before a run to after it. Its checksum is taken while the engine starts.

    Only a regular file is read: what a pipe holds belongs to the engine.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.regular = is_file(path)
        self._before: str | None = None
        self._thread = threading.Thread(target=self._hash, daemon=True)
        if self.regular:
            self._thread.start()

    def _hash(self) -> None:
        try:
            self._before = sha256_file(self.path)
        except OSError:
            self.regular = False

    def announced(self) -> int | None:
        """Return the number of tasks in the file's first four bytes, as the engine will read it."""
        if not self.regular:
            return None
        try:
            with self.path.open("rb") as stream:
                return int(struct.unpack("<I", stream.read(4))[0])
        except (OSError, struct.error):
            return None

    def contents(self) -> Contents:
        """Read the file to its last byte and compare it with before the run."""
        if not self.regular:
            return Contents(None, b"", ())
        self._thread.join()
        if not self.regular:
            return Contents(None, b"", ())
        findings: list[Finding] = []
        contents = Contents(None, b"", ())
        try:
            contents = read_contents(self.path)
            findings += contents.findings
            now = contents.facts.sha256 if contents.facts else self._hash_again(findings)
        except LlmcError as error:
            findings.append(finding("benchmark-changed", f"cannot be read any more: {error.what}"))
            now = ""
        if now and now != self._before:
            detail = f"{self.path.name}: sha256 was {str(self._before)[:12]}, is now {now[:12]}"
            findings.append(finding("benchmark-changed", detail))
        return Contents(contents.facts, contents.golds, tuple(findings))

    def _hash_again(self, findings: list[Finding]) -> str:
        try:
            return sha256_file(self.path)
        except OSError as error:
            findings.append(finding("benchmark-changed", f"cannot be read any more: {error.strerror}"))
            return ""


class WatchedModel:
    """A model's files, all parts of a split one; changes are told by size, time and inode."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamps: dict[Path, tuple[int, int, int]] = {}
        for part in self._parts():
            try:
                self.stamps[part] = file_stamp(part)
            except OSError:
                continue  # the engine will say what it misses

    def _parts(self) -> list[Path]:
        split = _SPLIT_MODEL.fullmatch(self.path.name)
        if split is None:
            return [self.path]
        stem, parts = split.groups()
        return [self.path.with_name(f"{stem}-{i:05d}-of-{parts}.gguf") for i in range(1, int(parts) + 1)]

    def findings(self) -> list[Finding]:
        for part, stamp in self.stamps.items():
            try:
                now = file_stamp(part)
            except OSError as error:
                return [finding("model-changed", f"{part.name} cannot be read any more: {error.strerror}")]
            if now != stamp:
                return [finding("model-changed", f"{part.name}: its size, time or inode changed")]
        return []
