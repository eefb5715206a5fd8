"""A sweep's folder: its map, whole at any moment, and the claims of the processes that share it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from llmc.errors import InputFileError
from llmc.files import atomic_write, file_stamp, locked
from llmc.runs.store import now
from llmc.runs.sweep_map import FILE, CellState, SweepMap, load_map


class SweepFolder:
    """``out/sweeps/<name>``."""

    def __init__(self, out: Path, name: str) -> None:
        self.out, self.name = out, name
        self.path = out / "sweeps" / name
        self._claims: IO[bytes] | None = None
        self._known: tuple[tuple[int, int, int], SweepMap] | None = None  # what the file held when last seen
        self._lines: dict[str, tuple[CellState, str]] = {}

    @property
    def file(self) -> Path:
        return self.path / FILE

    def load(self) -> SweepMap:
        """Return the map; InputFileError when there is none or it is damaged."""
        try:
            stamp = file_stamp(self.file)
        except OSError:
            return load_map(self.path)  # says what is wrong
        if self._known is None or self._known[0] != stamp:
            self._known = (stamp, load_map(self.path))
        return self._known[1]

    def begin(self, config: dict[str, Any], cells: dict[str, CellState]) -> SweepMap:
        """Write the map of this configuration and return it.

        What is known of a cell stays while its definition does; cells that the configuration no longer has leave
        the map (their runs stay in the store).
        """
        with locked(self.path / ".lock"):
            known = self._cells_known()
            merged = {
                name: cell.model_copy(update=_results(known[name]))
                if name in known and known[name].definition == cell.definition
                else cell
                for name, cell in cells.items()
            }
            return self._write(SweepMap(name=self.name, updated=now(), config=config, cells=merged))

    def update(self, name: str, results: dict[str, Any], *, reused: bool) -> None:
        """Write how a cell ended into the map as it is now.

        A run that was found in the store changes nothing where the map has it already: its time and place stay. A cell
        that another configuration has taken out of the map does not come back.
        """
        with locked(self.path / ".lock"):
            current = self.load()
            before = current.cells.get(name)
            if before is None or (reused and (before.status, before.run) == (results["status"], results["run"])):
                return
            cell = CellState.model_validate({**before.model_dump(), **results})
            cells = {**current.cells, name: cell}
            self._write(current.model_copy(update={"updated": now(), "cells": cells}))

    def _cells_known(self) -> dict[str, CellState]:
        try:
            return self.load().cells if self.file.exists() else {}
        except InputFileError:
            return {}  # a damaged map is made anew: the store has the runs

    def _write(self, sweep: SweepMap) -> SweepMap:
        # One line a cell: quick to write for hundreds of cells, and readable in a diff.
        head = sweep.model_dump(mode="json", by_alias=True, exclude={"cells"})
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        cells = [self._line(name, cell) for name, cell in sweep.cells.items()]
        body = ",\n".join([*lines, ' "cells": {\n' + ",\n".join(cells) + "\n }"])
        with atomic_write(self.file, "w") as stream:
            stream.write("{\n" + body + "\n}\n")
        self._known = (file_stamp(self.file), sweep)  # under the lock: nobody has written since
        return sweep

    def _line(self, name: str, cell: CellState) -> str:
        known = self._lines.get(name)
        if known is None or known[0] is not cell:
            known = (cell, f"  {json.dumps(name)}: {cell.model_dump_json(exclude_none=True)}")
            self._lines[name] = known
        return known[1]

    @contextlib.contextmanager
    def claims(self) -> Iterator[None]:
        """Hold the file of claims open; it is what keeps two processes from running one cell at once."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".claims").open("ab") as self._claims:
            yield
        self._claims = None

    def claim(self, name: str) -> bool:
        """Return whether this process may run the cell; a claim ends with ``release`` or with the process."""
        assert self._claims is not None  # only called inside claims()
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(name))
        except OSError:
            return False
        return True

    def release(self, name: str) -> None:
        assert self._claims is not None
        fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, _place(name))


def _place(name: str) -> int:
    """A byte of the claims file that stands for a cell; nothing is ever written there."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:15], 16)


def _results(known: CellState) -> dict[str, Any]:
    return known.model_dump(include={"status", "run", "error", "seconds", "finished", "where"})
