"""``out/sweeps/<name>/cells.json``: which run stands for which cell of a sweep.

The map is convenience, the store is truth: a trusted run is found again by its content even if the map is lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmc import __version__
from llmc.errors import InputFileError, UsageError, did_you_mean, os_error

FILE = "cells.json"
Status = Literal["pending", "trusted", "untrusted", "failed", "interrupted"]


class CellState(BaseModel):
    """One cell of the map. ``run`` is the name of its folder below ``out/runs``.

    ``flags`` are what the axes add to the engine's command; ``definition`` hashes what the configuration said of the
    cell; ``baseline`` names the cell it is compared with. ``failed`` means that no run could be made, and ``error``
    says why. ``seconds`` is the cell's wall time, ``finished`` when it ended (UTC), ``where`` the GPU or machine.
    ``suite`` and ``suite_part``: whose questions they are, see ``sweep_suites``; ``suite_definition`` is that of the
    suite's file, as the sweep read it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    benchmark: str
    axes: dict[str, str] = Field(default_factory=dict)
    flags: tuple[str, ...] = ()
    definition: str
    baseline: str | None = None
    status: Status = "pending"
    run: str | None = None
    error: dict[str, str] | None = None
    seconds: float | None = None
    finished: str | None = None
    where: str | None = None
    suite: str | None = None
    suite_part: int | None = None
    suite_definition: str | None = None


class SweepMap(BaseModel):
    """The whole map. ``config`` is the configuration as it was read."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["llmc.sweep/1"] = Field(default="llmc.sweep/1", alias="schema")
    name: str
    llmc_version: str = __version__
    updated: str
    config: dict[str, Any]
    cells: dict[str, CellState]


def load_map(path: Path) -> SweepMap:
    """Read the map in a sweep's folder; InputFileError when there is none or it is damaged."""
    file = path / FILE
    try:
        return SweepMap.model_validate_json(file.read_bytes())
    except OSError as error:
        raise os_error(error, "read", "name a sweep, or its folder under out/sweeps") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputFileError(
            f"{file} is not a sweep of this version of llmc: {where}: {first['msg']}", "run `llmc sweep` again"
        ) from error


def find_sweep(name: str, out: Path) -> Path:
    """Return a sweep's folder from its name, its folder, or its map; UsageError with the nearest name."""
    path = Path(name)
    for folder in (path.parent if path.name == FILE else path, out / "sweeps" / name):
        if (folder / FILE).is_file():
            return folder
    known = sorted(path.parent.name for path in (out / "sweeps").glob(f"*/{FILE}"))
    raise UsageError(
        f"there is no sweep called {name!r} in {out / 'sweeps'}{did_you_mean(name, known)}",
        f"known: {', '.join(known)}" if known else "make one with `llmc sweep CONFIG.yaml`",
    )


def runs_folder(sweep: Path) -> Path:
    """Return the folder of the runs that a sweep's map names: ``out/runs`` for ``out/sweeps/<name>``."""
    return sweep.resolve().parent.parent / "runs"
