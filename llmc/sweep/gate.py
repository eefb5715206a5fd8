"""The gate of a sweep, checked before anything runs: what is wrong with it is better known now than hours later."""

from __future__ import annotations

from pathlib import Path

from llmc.errors import InputFileError, LlmcError, did_you_mean
from llmc.judge.inputs import open_runs
from llmc.scoring.job import Settings as Scoring
from llmc.sweep.config import SweepConfig
from llmc.yamlfile import YamlFile


def check_demands(config: SweepConfig, file: YamlFile, *, compared: bool) -> None:
    """Raise InputFileError for a gate that asks for nothing, or names a setting that no run has.

    ``compared`` says that some cell has another one as its baseline.
    """
    gate = config.gate
    if gate is None:
        return
    if gate.baseline is None and not gate.has_floors and not compared:
        raise InputFileError(
            f"{file.at(('gate',))}: the gate asks for nothing: no cell has a baseline, and there is no floor",
            "give the sweep a baseline:, or the gate baseline: or min_accuracy:",
        )
    known = ("engine_flavour", "engine_version", "backend", "layout", "arguments", *Scoring().computed())
    for number, name in enumerate(gate.axis):
        if name.split(".")[0] not in known:
            raise InputFileError(
                f"{file.at(('gate', 'axis', number))}: no run has a setting called {name!r}{did_you_mean(name, known)}",
                f"axis: takes {', '.join(known)}, or one of the arguments, as arguments.-ctk",
            )


def check_baseline(config: SweepConfig, file: YamlFile, out: Path) -> None:
    """Raise InputFileError when the baseline that the gate names cannot be opened."""
    if config.gate is None or config.gate.baseline is None:
        return
    try:
        open_runs(config.gate.baseline, out)
    except LlmcError as error:
        raise InputFileError(f"{file.at(('gate', 'baseline'))}: {error.what}", error.remedy) from error
