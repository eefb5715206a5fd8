"""``llmc bench``: the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out

if TYPE_CHECKING:
    from llmc.benchmarks.item import Item
    from llmc.benchmarks.names import Target
    from llmc.benchmarks.spec import Benchmark, Protocol

bench = typer.Typer(help="The benchmarks llmc can build.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench, name="bench")


@bench.command("list")
def list_benchmarks(json: Json = False) -> None:
    """List every benchmark with its form, splits, source and licence."""
    from llmc.benchmarks import spec
    from llmc.report.tables import plain_table

    found = [spec.find(name) for name in spec.catalogue()]
    table = plain_table()
    table.add_column("benchmark", no_wrap=True)
    for column in ("form", "splits and tasks, default first", "protocols", "licence"):
        table.add_column(column, overflow="fold")
    for one in found:
        protocols = _default_first(one.protocols, one.default_protocol)
        form = one.protocols[one.default_protocol].form
        splits = ", ".join(_split_text(one, name) for name in _default_first(one.splits, one.default_split))
        table.add_row(one.name, form, splits, ", ".join(protocols), one.licence)
    console.show(table)
    console.emit("bench list", {"benchmarks": [_summary(one) for one in found]})


def _default_first(names: Any, default: str) -> list[str]:
    return [default, *(name for name in names if name != default)]


def _split_text(one: Benchmark, split: str) -> str:
    expect = one.expect.get(split)
    return f"{split} {expect.tasks}" if expect else split


def _summary(one: Benchmark) -> dict[str, Any]:
    data = one.model_dump(mode="json", exclude={"example"})
    return {**data, "form": one.protocols[one.default_protocol].form}


@bench.command()
def show(
    benchmark: Annotated[
        str, typer.Argument(metavar="NAME", help="A benchmark, benchmark-split@protocol, or a YAML file.")
    ],
    out: Out = Path("out"),
    json: Json = False,
) -> None:
    """Show one benchmark: its source, splits and protocols, and a question as the model sees it."""
    from llmc.benchmarks import names

    target = names.parse(benchmark)
    one = target.spec
    item, built = _example(target, out)
    lines = [f"{one.name}: {one.title}", one.description, ""]
    revision = one.source.revision if one.source.pinned else f"{one.source.revision} (not pinned)"
    config = f", config {one.source.config}" if one.source.config else ""
    mirrors = [f"{m.package} {m.version} ({', '.join(m.splits)}){_said(m.note)}" for m in one.source.mirrors]
    facts = {
        "source": f"{one.source.hf}{config} at {revision}" if one.source.hf else "files of your own",
        "mirrors": ", ".join(mirrors) or "none",
        "splits": ", ".join(_split_text(one, name) for name in _default_first(one.splits, one.default_split)),
        "unlabelled": ", ".join(one.unlabelled),
        "parts": _parts_text(one),
        "protocols": ", ".join(
            f"{name} ({one.protocols[name].form})" for name in _default_first(one.protocols, one.default_protocol)
        ),
        "shots": _shots_text(one.protocols[target.protocol]),
        "shuffled": f"options, with seed {one.choices.shuffle}" if one.choices.shuffle is not None else "",
        "licence": one.licence,
        "citation": one.citation,
        "homepage": one.homepage,
        "note": one.protocols[target.protocol].note,
    }
    lines += [f"{key:<11}{value}" for key, value in facts.items() if value]
    if item is not None:
        lines += ["", f"{'A question' if built else 'A made-up question'} of {target.full_name}, as the model sees it:"]
        lines += ["", *("    " + line for line in item.context.split("\n"))]
        lines += ["", "Continuations scored (* is right):", ""]
        lines += [f"  {'*' if i == item.gold else ' '} {text!r}" for i, text in enumerate(item.continuations)]
    console.show_text("\n".join(lines))
    data = {**_summary(one), "split": target.split, "protocol": target.protocol, "config": target.config}
    console.emit("bench show", {**data, "shots": target.shots, "example": _as_data(item, built)})


def _said(note: str) -> str:
    return f": {note}" if note else ""


def _parts_text(one: Benchmark) -> str:
    from llmc.benchmarks.names import config_name

    if one.source.configs is None:
        return ""
    parts = [config_name(config) for config in one.source.configs.names]
    return f"{len(parts)}, each to be built alone as {one.name}-PART-SPLIT: {', '.join(parts)}"


def _shots_text(protocol: Protocol) -> str:
    shots = protocol.shots
    if shots is None:
        return ""
    source = f"the first rows of the {shots.split} split" if shots.split else f"fixed documents ({shots.documents})"
    return f"with --shots K, from {source}{f'; {shots.usual} are usual' if shots.usual else ''}"


def _as_data(item: Item | None, built: bool) -> dict[str, Any] | None:
    if item is None:
        return None
    return {"context": item.context, "continuations": list(item.continuations), "gold": item.gold, "real": built}


def _example(target: Target, out: Path) -> tuple[Item | None, bool]:
    """Return a question of the built file where there is one, else the spec's made-up one, where it has one."""
    from llmc.benchmarks import manifest
    from llmc.benchmarks.item import items_path, read_items
    from llmc.benchmarks.render import example

    entry = manifest.read_sidecar(manifest.sidecar_path(out, target.full_name))
    if entry is not None and not manifest.mismatch(entry, out):
        return next(read_items(items_path(entry.bin_path(out)))), True
    return example(target.spec, target.protocol), False
