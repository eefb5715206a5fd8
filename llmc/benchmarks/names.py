"""The names of built benchmarks: ``<benchmark>[-<split>][@<protocol>][.sample<N>s<seed>]``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmc.benchmarks import spec as specs
from llmc.errors import UsageError, did_you_mean

_SAMPLE = re.compile(r"\.sample(?P<count>[1-9]\d*)s(?P<seed>\d+)$")


@dataclass(frozen=True)
class Target:
    """One file to build. ``sample`` is (tasks, seed), None for all tasks."""

    spec: specs.Benchmark
    split: str
    protocol: str
    sample: tuple[int, int] | None = None

    @property
    def full_name(self) -> str:
        """The name of the whole split; the default protocol is not written."""
        suffix = "" if self.protocol == self.spec.default_protocol else f"@{self.protocol}"
        return f"{self.spec.name}-{self.split}{suffix}"

    @property
    def name(self) -> str:
        return self.full_name + (sample_suffix(*self.sample) if self.sample else "")


def sample_suffix(count: int, seed: int) -> str:
    return f".sample{count}s{seed}"


def parse(name: str, *, split: str | None = None, protocol: str | None = None) -> Target:
    """Return what a name stands for; ``split`` and ``protocol`` fill in what it leaves open.

    Raises UsageError: an unknown benchmark, split or protocol (with the nearest known), a split without
    answers, or an option that contradicts the name.
    """
    rest, sample = name, None
    if match := _SAMPLE.search(rest):
        sample = int(match["count"]), int(match["seed"])
        rest = rest[: match.start()]
    elif ".llama" in rest:
        raise UsageError(f"{name!r} is made by a run", "use `llmc run --like-llama N` with the benchmark's name")
    body, at, named_protocol = rest.partition("@")
    spec, named_split = _benchmark(body)
    if at:
        protocol = _agree("protocol", named_protocol, protocol, name)
    if named_split is not None:
        split = _agree("split", named_split, split, name)
    split = spec.default_split if split is None else split
    protocol = spec.default_protocol if protocol is None else protocol
    _require_split(spec, split)
    if protocol not in spec.protocols:
        raise UsageError(
            f"{spec.name} has no protocol {protocol!r}{did_you_mean(protocol, spec.protocols)}",
            f"it has {', '.join(spec.protocols)}",
        )
    return Target(spec, split, protocol, sample)


def _benchmark(body: str) -> tuple[specs.Benchmark, str | None]:
    known = specs.catalogue()
    for name in sorted(known, key=len, reverse=True):
        if body == name or body.startswith(name + "-"):
            return specs.find(name), None if body == name else body[len(name) + 1 :]
    everything = [*known, *(f"{n}-{s}" for n in known for s in specs.find(n).splits)]
    raise UsageError(f"unknown benchmark {body!r}{did_you_mean(body, everything)}", "see `llmc bench list`")


def _agree(what: str, named: str, asked: str | None, name: str) -> str:
    if asked is not None and asked != named:
        raise UsageError(f"{name} names the {what} {named!r}, --{what} asks for {asked!r}", f"drop --{what}")
    return named


def _require_split(spec: specs.Benchmark, split: str) -> None:
    if split in spec.unlabelled:
        raise UsageError(
            f"the {split} split of {spec.name} is published without answers and cannot be scored",
            f"use {', '.join(spec.splits)}",
        )
    if split not in spec.splits:
        raise UsageError(
            f"{spec.name} has no split {split!r}{did_you_mean(split, spec.splits)}",
            f"it has {', '.join(spec.splits)}",
        )
