"""Recorded output of real engines: complete runs are trusted to the last task, failures named by their cause.

The recordings are not part of this project; the folder with them is ``$LLMC_SHARED/transcripts``, or
``../shared/transcripts`` beside the project.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from llmc.__main__ import run
from llmc.engine.audit import Audit, audit
from llmc.engine.process import Outcome
from llmc.engine.transcript import parse
from llmc.errors import FormatError
from llmc.findings import finding
from llmc.mcbin import Reader

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("LLMC_SHARED", ROOT.parent / "shared")) / "transcripts"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"there are no recorded transcripts in {FOLDER}")

# Right and wrong per task, read off the recorded rows by hand.
COMPLETE = "100001000010"
WIDE = "000010"
SUBSET = "11001"
ABSENT = {"not-announced", "final-missing"}
# (engine, case): the answers of a run that is trusted, and the warnings it may have.
TRUSTED: dict[tuple[str, str], tuple[str, set[str]]] = {
    **{("b11434", case): (COMPLETE, set()) for case in ("complete", "verbosity-4", "jsonl", "colors", "no-prefix")},
    ("b11434", "verbosity-0"): (COMPLETE, ABSENT),
    ("b11434", "complete-wide"): (WIDE, set()),
    ("b11434", "one-task"): ("1", set()),
    ("b11434", "subset"): (SUBSET, set()),
    ("b11434", "text-options"): ("11101111", set()),
    ("b4748", "complete"): (COMPLETE, set()),
    ("b4748", "complete-wide"): (WIDE, set()),
    ("b4748", "np-too-small"): (WIDE, set()),  # -np did not limit the options yet
    ("b4748", "np-too-small-partial"): ("11000", set()),
    ("b4748", "one-task"): ("1", set()),
    ("b4748", "subset"): (SUBSET, set()),
    ("b4748", "text-options"): ("11101111", set()),
    ("ik4840", "complete"): (COMPLETE, set()),
    ("ik4840", "complete-wide"): (WIDE, set()),
    ("ik4840", "np-too-small"): (WIDE, set()),
    ("ik4840", "np-too-small-partial"): ("11000", set()),
    ("ik4840", "one-task"): ("1", set()),
    ("ik4840", "subset"): (SUBSET, set()),
    ("ik4840", "escape-on"): ("0000", set()),  # protects -bf data from escapes
    ("ik4840", "text-options"): ("11101010", set()),
}
# What the others are about, cause first.
FAILED: dict[tuple[str, str], list[str]] = {
    ("b11434", "np-too-small"): ["too-many-options", "error-line", "scored-fewer"],
    ("b11434", "np-too-small-partial"): ["too-many-options", "error-line", "scored-fewer"],
    **{(e, "context-too-small-partial"): ["context-too-small", "error-line", "scored-fewer"]
       for e in ("b11434", "b4748", "ik4840")},
    **{(e, case): ["bad-binary", "error-line", "scored-fewer"]
       for e in ("b11434", "b4748", "ik4840") for case in ("empty-option", "malformed-over-500", "truncated")},
    **{(e, case): ["bad-binary", "error-line"]
       for e in ("b11434", "b4748", "ik4840") for case in ("zero-tasks", "empty-file")},
    **{(e, "escape-on"): ["error-line", "scored-fewer"] for e in ("b11434", "b4748")},
    **{(e, "missing-file"): ["error-line", "exit-status"] for e in ("b11434", "b4748", "ik4840")},
    ("b11434", "missing-model"): ["exit-status", "no-output"],
    **{(e, "missing-model"): ["error-line", "exit-status"] for e in ("b4748", "ik4840")},
    ("b11434", "log-disable"): ["no-output"],
    ("b11434", "bare-fa"): ["error-line", "exit-status"],
    ("b11434", "np-300"): ["error-line", "exit-status"],
}  # fmt: skip


def recordings() -> list[tuple[str, dict[str, object]]]:
    indexes = sorted(FOLDER.glob("*/index.json"))
    return [(index.parent.name, entry) for index in indexes for entry in json.loads(index.read_text())]


RECORDINGS = recordings()
IDS = [f"{engine}-{entry['case']}" for engine, entry in RECORDINGS]


def judged(engine: str, entry: dict[str, object], combined: str = "") -> Audit:
    case = str(entry["case"])
    out, err = ((FOLDER / engine / f"{case}.{stream}").read_bytes() for stream in ("stdout", "stderr"))
    if combined == "":
        transcript = parse(stdout=out, stderr=err)
    else:
        transcript = parse(combined=out + err if combined == "stdout first" else err + out)
    facts, extra = None, []
    path = FOLDER / "bins" / str(entry["bin"])
    if path.exists():
        try:
            reader = Reader(path)
            list(reader)
            facts = reader.facts
        except FormatError as error:
            extra = [finding("bad-binary", error.what)]
    code = entry["returncode"]
    assert isinstance(code, int)
    outcome = Outcome(code, None, "itself", 0, 1.0, None)
    return audit(transcript, facts=facts, outcome=outcome, subset=5 if case == "subset" else None, extra=extra)


def test_every_recording_is_in_one_table() -> None:
    known = {(engine, str(entry["case"])) for engine, entry in RECORDINGS}
    assert known == set(TRUSTED) | set(FAILED)
    assert not set(TRUSTED) & set(FAILED)


@pytest.mark.parametrize(("engine", "entry"), RECORDINGS, ids=IDS)
@pytest.mark.parametrize("combined", ["", "stdout first", "stderr first"])
def test_recording(engine: str, entry: dict[str, object], combined: str) -> None:
    result = judged(engine, entry, combined)
    case = (engine, str(entry["case"]))
    errors = [f.slug for f in result.findings if f.severity == "error"]
    if case in FAILED:
        assert errors == FAILED[case]
        assert not result.trusted and result.accuracy is None
        return
    correct, warnings = TRUSTED[case]
    assert errors == []
    assert result.correct == correct
    assert result.trusted and result.accuracy == correct.count("1") / len(correct)
    assert {f.slug for f in result.findings} - {"below-majority"} == warnings


@pytest.mark.parametrize(("engine", "entry"), RECORDINGS, ids=IDS)
def test_recording_through_the_command(
    engine: str, entry: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = str(entry["case"])
    path = FOLDER / "bins" / str(entry["bin"])
    words = [str(FOLDER / engine / f"{case}.{stream}") for stream in ("stderr", "stdout")]
    if path.exists():
        words += ["--bin", str(path)]
    words += ["--exit-status", str(entry["returncode"]), "--out", str(tmp_path), "--json"]
    code = run(["audit", *words])
    body = json.loads(capsys.readouterr().out)["data"]
    assert code == (0 if (engine, case) in TRUSTED else 3)
    assert body["trusted"] == ((engine, case) in TRUSTED)
    if body["trusted"]:
        assert body["score"]["correct"] == TRUSTED[engine, case][0]
