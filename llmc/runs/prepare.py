"""The two things that cells share: an engine that answers its known questions, and a model that is whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmc import console
from llmc.engine import environment
from llmc.engine.binding import Binding, find_binding
from llmc.engine.gguf_model import ModelFacts, model_sha256, read_model
from llmc.engine.health import Health, health_check
from llmc.engine.locate import locate
from llmc.engine.probe import ProbeResult, probe, require_usable
from llmc.engine.process import Limits
from llmc.errors import InputFileError
from llmc.fetch import fetch_model
from llmc.files import file_stamp
from llmc.findings import Finding, finding
from llmc.runs.identity import model_identity
from llmc.runs.record import EngineIdentity, ModelIdentity
from llmc.runs.settings import FirstTime, Settings


@dataclass(frozen=True)
class PreparedEngine:
    probe: ProbeResult
    binding: Binding | None
    environment: environment.Environment
    limits: Limits

    def findings(self) -> list[Finding]:
        found = self.environment.findings()
        if self.probe.flavour == "unknown" or not self.probe.version:
            name = " ".join(self.probe.command)
            found.append(finding("engine-unsupported", f"{name}: version {self.probe.version or 'unknown'}"))
        return found

    def identity(self) -> EngineIdentity:
        return EngineIdentity(
            command=self.probe.command,
            flavour=self.probe.flavour,
            version=self.probe.version,
            build=self.probe.build,
            identity=self.probe.identity,
            backend=self.probe.backend,
            devices=self.probe.devices,
        )


@dataclass(frozen=True)
class PreparedModel:
    """``stamps`` are size, time and inode of each of its files from before they were read.

    ``made_from`` is the recipe of a model that llmc made itself: base, type, importance matrix, quantizer.
    """

    ref: str
    facts: ModelFacts
    sha256: str
    stamps: tuple[tuple[int, int, int], ...]
    made_from: dict[str, Any] | None = None

    @property
    def content(self) -> Any:
        """What tells the model from others: its recipe, which outlives the file, else its checksum."""
        return self.made_from or self.sha256

    @property
    def short_name(self) -> str:
        return self.facts.path.stem

    def identity(self) -> ModelIdentity:
        return model_identity(self.ref, self.facts, self.sha256, self.made_from)


def prepare_engine(settings: Settings, first: FirstTime) -> PreparedEngine:
    """Find the engine, probe it and make its environment; raises EngineError or RefusedError."""
    files = locate(settings.engine)
    with first.measure("probe"), console.progress(f"probe of {files.binary.name}"):
        result = require_usable(probe(files))
    limits = Limits(timeout=settings.timeout, stall=settings.stall)
    return PreparedEngine(result, find_binding(), environment.scrubbed(), limits)


def prepare_model(ref: str, first: FirstTime) -> PreparedModel:
    """Fetch a model where needed, read its facts and its checksum; raises FetchError or InputFileError."""
    with first.measure("fetch"):
        files = fetch_model(ref)
    facts = read_model(files.path)
    if facts.is_vocab_only:
        raise InputFileError(f"{files.path} holds a vocabulary and no weights", "name a model with weights")
    stamps = tuple(file_stamp(path) for path in facts.parts)
    with first.measure("sha256"), console.progress(f"checksum of {facts.path.name}"):
        digest = model_sha256(facts)
    return PreparedModel(ref, facts, digest, stamps)


def check_health(
    engine: PreparedEngine, model: PreparedModel, settings: Settings, first: FirstTime
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the health check's record and its findings; the record says so when it was switched off."""
    if not settings.health_check:
        return {"checked": False, "reason": "--no-health-check"}, []
    with first.measure("health check"), console.progress(f"health check of {model.short_name}"):
        health: Health = health_check(
            engine.probe,
            model.facts,
            model.sha256,
            engine.binding,
            engine.environment.variables,
            settings.user_flags,
            engine.limits,
        )
    seen = {"checked": True, "right": health.right, "tasks": health.tasks, "p": health.p}
    return seen, health.findings()
