"""The names of built benchmarks: ``<benchmark>[-<config>]-<split>[@<protocol>][-<K>shot][.sample<N>s<seed>]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from llmc.benchmarks import manifest
from llmc.benchmarks import spec as specs
from llmc.benchmarks.manifest import ManifestEntry
from llmc.errors import InputFileError, UsageError, did_you_mean

_SAMPLE = re.compile(r"\.sample(?P<count>[1-9]\d*)s(?P<seed>\d+)$")
_SHOTS = re.compile(r"-(?P<shots>\d+)shot$")
# A path may hold what else would mean something in a name: all up to the suffix is the path.
_YAML = re.compile(
    r"(?P<path>.*\.ya?ml)(?P<rest>(@[^/]*?)?(-\d+shot)?(\.sample\d+s\d+|\.llama\d+)?)", re.DOTALL | re.IGNORECASE
)
_SUBSET = re.compile(r"\.(sample\d+s\d+|llama\d+)$")


@dataclass(frozen=True)
class Target:
    """One file to build. ``sample`` is (tasks, seed), None for all tasks; ``config`` is as the source spells it."""

    spec: specs.Benchmark
    split: str
    protocol: str
    sample: tuple[int, int] | None = None
    config: str | None = None
    shots: int = 0

    @property
    def full_name(self) -> str:
        """The name of all the tasks; the default protocol and 0 shots are not written."""
        config = f"-{config_name(self.config)}" if self.config else ""
        protocol = "" if self.protocol == self.spec.default_protocol else f"@{self.protocol}"
        shots = f"-{self.shots}shot" if self.shots else ""
        return f"{self.spec.name}{config}-{self.split}{protocol}{shots}"

    @property
    def name(self) -> str:
        return self.full_name + (sample_suffix(*self.sample) if self.sample else "")

    @property
    def expect(self) -> specs.Expect | None:
        """What the published rows come out as; of a single config only the number of tasks is known."""
        if self.config is None:
            return self.spec.expect.get(self.split)
        tasks = self.spec.expect_configs.get(self.split, {}).get(self.config)
        return None if tasks is None else specs.Expect(tasks=tasks)


def sample_suffix(count: int, seed: int) -> str:
    return f".sample{count}s{seed}"


def config_name(config: str) -> str:
    """Return how a config is written in names."""
    return config.lower().replace("_", "-")


def parse(
    name: str,
    *,
    split: str | None = None,
    protocol: str | None = None,
    shots: int | None = None,
    revision: str | None = None,
) -> Target:
    """Return what a name stands for; the other arguments fill in what it leaves open.

    The benchmark may be a YAML file, by its path. ``revision`` takes the place of the one that the spec names.
    Raises UsageError: an unknown benchmark, config, split or protocol (with the nearest known), a split without
    answers, more worked examples than there are, or an option that contradicts the name.
    """
    yaml = _YAML.fullmatch(name)
    rest, sample = yaml["rest"] if yaml else name, None
    if match := _SAMPLE.search(rest):
        sample = int(match["count"]), int(match["seed"])
        rest = rest[: match.start()]
    elif ".llama" in rest:
        raise UsageError(f"{name!r} is made by a run", "use `llmc run --like-llama N` with the benchmark's name")
    if match := _SHOTS.search(rest):
        shots = int(_agree("shots", match["shots"], None if shots is None else str(shots), name))
        rest = rest[: match.start()]
    body, at, named_protocol = rest.partition("@")
    spec, config, named_split = (_own(Path(yaml["path"])), None, None) if yaml else _benchmark(body)
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
    _require_shots(spec, protocol, shots or 0)
    return Target(at_revision(spec, revision), split, protocol, sample, config, shots or 0)


def built(entry: ManifestEntry) -> Target | None:
    """Return what a built benchmark stands for; None for a file that was not made from rows.

    Raises UsageError when the catalogue has changed and no longer knows it.
    """
    if entry.benchmark is None or entry.split is None or entry.protocol is None:
        return None
    try:
        spec = specs.find(entry.benchmark) if entry.spec is None else specs.Benchmark.model_validate(entry.spec)
    except ValidationError as error:
        raise UsageError(f"{entry.name} was built by another version of llmc", "build it again") from error
    return Target(spec, entry.split, entry.protocol, None, entry.config, entry.shots or 0)


def at_revision(spec: specs.Benchmark, revision: str | None) -> specs.Benchmark:
    """Return the spec with another revision of its source; unchanged for None."""
    if revision is None:
        return spec
    if spec.source.hf is None:
        raise UsageError(f"{spec.name} is made from files of your own, which have no revision", "drop --revision")
    if revision == spec.source.revision:
        return spec
    from llmc.hub import is_commit

    # What was counted for one revision says nothing of another, and so with rows that do not say theirs.
    mirrors = tuple(mirror for mirror in spec.source.mirrors if mirror.records_commit)
    changed = {"revision": revision, "pinned": is_commit(revision), "mirrors": mirrors}
    source = spec.source.model_copy(update=changed)
    return spec.model_copy(update={"source": source, "expect": {}, "expect_configs": {}})


def in_catalogue(name: str) -> bool:
    """Say whether a name is what `llmc build` calls a file of the catalogue's."""
    try:
        parse(name)
    except UsageError:
        return False
    return True


def entry(given: str, out: Path) -> tuple[str, ManifestEntry]:
    """Return what is built in a folder under a name, as it stands or as `llmc build` completes it, with that name.

    Raises UsageError with the nearest name, built or of the catalogue, and InputFileError for a damaged record.
    """
    if "/" not in given and (found := manifest.intact_sidecar(out, given)) is not None:
        return given, found
    subset = _SUBSET.search(given)
    suffix = subset[0] if subset else ""
    try:
        name = parse(given.removesuffix(suffix)).full_name + suffix
    except UsageError:
        if near := did_you_mean(given, manifest.names_in(out)):
            raise UsageError(f"{given!r} is not built in {out}{near}", f"see what is there: {out}/*.json") from None
        raise
    if (found := manifest.intact_sidecar(out, name)) is not None:
        return name, found
    return name, manifest.lookup(out, name)


def _own(path: Path) -> specs.Benchmark:
    """Return the spec in a YAML file; InputFileError when its files would have the names of the catalogue's."""
    spec = specs.load_own(path)
    configs = spec.source.configs.names if spec.source.configs else ()
    starts = [spec.name, *(f"{spec.name}-{config_name(config)}" for config in configs)]
    for name in (f"{start}-{split}" for start in starts for split in spec.splits):
        if in_catalogue(name):
            raise InputFileError(f"{path}: {name} is a benchmark of the catalogue", "choose another name")
    return spec


def _benchmark(body: str) -> tuple[specs.Benchmark, str | None, str | None]:
    """Return spec, config and split of a name's first part, each None where it says nothing."""
    known = specs.catalogue()
    for name in sorted(known, key=len, reverse=True):
        if body == name:
            return specs.find(name), None, None
        if body.startswith(name + "-"):
            spec = specs.find(name)
            return spec, *_config(spec, body[len(name) + 1 :])
    everything = [*known, *(f"{n}-{s}" for n in known for s in specs.find(n).splits)]
    raise UsageError(f"unknown benchmark {body!r}{did_you_mean(body, everything)}", "see `llmc bench list`")


def _config(spec: specs.Benchmark, rest: str) -> tuple[str | None, str | None]:
    if spec.source.configs is None or rest in (*spec.splits, *spec.unlabelled):
        return None, rest
    by_name = {config_name(config): config for config in spec.source.configs.names}
    for name in sorted(by_name, key=len, reverse=True):
        if rest == name:
            return by_name[name], None
        if rest.startswith(name + "-"):
            return by_name[name], rest[len(name) + 1 :]
    near = did_you_mean(rest, [*spec.splits, *by_name, *(f"{n}-{s}" for n in by_name for s in spec.splits)])
    raise UsageError(f"{spec.name} has no part or split {rest!r}{near}", f"see `llmc bench show {spec.name}`")


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


def _require_shots(spec: specs.Benchmark, protocol: str, shots: int) -> None:
    if shots == 0:
        return
    source = spec.protocols[protocol].shots
    if source is None:
        others = [name for name, other in spec.protocols.items() if other.shots is not None]
        raise UsageError(
            f"{protocol} asks {spec.name} without worked examples",
            f"use protocol {' or '.join(others)}, or drop --shots" if others else "drop --shots",
        )
    if source.documents is not None:
        from llmc.benchmarks.fixed_shots import documents

        have = len(documents(source.documents).documents)
        if shots > have:
            raise UsageError(f"{protocol} has {have} worked examples of {spec.name}, not {shots}", "ask for fewer")
