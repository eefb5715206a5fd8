from __future__ import annotations

import json
from pathlib import Path

from helpers import Cli
from llmc.__main__ import GROUPS
from made_runs import SHA, answers, record, write


def test_save_and_show(cli: Cli, tmp_path: Path) -> None:
    runs = [write(tmp_path / name, record(answers(200, 120), model="smol", bench=name)) for name in ("boolq", "arc")]
    file = tmp_path / "base" / "line.json"
    called = cli("baseline", "save", *runs, "-o", file)
    assert called.code == 0 and "2 benchmarks" in called.out
    first = file.read_bytes()
    assert cli("baseline", "save", *runs[::-1], "--output", file, "--json").data["bytes"] == len(first)
    assert file.read_bytes() == first and json.loads(first)["schema"] == "llmc.baseline/1"
    called = cli("baseline", "show", file)
    assert called.code == 0
    for words in ("smol", "60.00 %", SHA["arc"], SHA["boolq"], "scored by mainline"):
        assert words in called.out
    shown = cli("baseline", "show", file, "--json").data["entries"]
    assert [entry["benchmark"] for entry in shown] == ["arc", "boolq"] and shown[0]["correct"] == 120


def test_what_cannot_be_saved(cli: Cli, tmp_path: Path) -> None:
    good = write(tmp_path / "good", record("1011"))
    bad = write(tmp_path / "bad", record("1011", trusted=False))
    file = tmp_path / "b.json"
    called = cli("baseline", "save", good, bad, "-o", file)
    assert called.code == 3 and "scored-fewer" in called.err and not file.exists()
    called = cli("baseline", "save", good, good, "-o", file)
    assert called.code == 2 and "one run for each benchmark" in called.err and not file.exists()
    assert cli("baseline", "save", tmp_path / "none", "-o", file).code == 2
    called = cli("baseline", "save", good, "-o", good / "record.json" / "b.json")
    assert called.code == 2 and "cannot write" in called.err


def test_what_cannot_be_shown(cli: Cli, tmp_path: Path) -> None:
    run = write(tmp_path / "run", record("1011"))
    called = cli("baseline", "show", run / "record.json", "--json")
    assert called.code == 2 and "its schema is 'llmc.run/1'" in called.error["message"]
    assert cli("baseline", "show", tmp_path / "none.json").code == 2
    assert cli("baseline", "show", tmp_path).code == 2


def test_errors_and_results_name_the_command_alike(cli: Cli, tmp_path: Path) -> None:
    run = write(tmp_path / "run", record("1011"))
    assert cli("baseline", "save", run, "-o", tmp_path / "b.json").code == 0
    for name in ("b.json", "nope.json"):
        called = cli("baseline", "show", tmp_path / name, "--json")
        assert json.loads(called.out)["command"] == "baseline show"
    (tmp_path / "deep.json").write_text("[" * 200_000)
    called = cli("baseline", "show", tmp_path / "deep.json", "--json")
    assert called.code == 2 and "not a whole JSON file" in called.error["message"]


def test_every_group_of_commands_is_known_as_one() -> None:
    """The name in the JSON envelope of an error comes from this list."""
    import typer

    from llmc.cli.app import app

    command = typer.main.get_command(app)
    groups = {name for name, each in command.commands.items() if hasattr(each, "commands")}  # type: ignore[attr-defined]
    assert groups == set(GROUPS)
