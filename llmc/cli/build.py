"""``llmc build``: benchmarks from their sources into files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmc import console
from llmc.cli.app import app
from llmc.cli.options import Json, Out
from llmc.errors import LlmcError, UsageError

if TYPE_CHECKING:
    from llmc.benchmarks.manifest import ManifestEntry
    from llmc.benchmarks.names import Target
    from llmc.benchmarks.own import Given


@app.command()
def build(
    benchmarks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="boolq, mmlu-anatomy-test, piqa@olmes-5shot, own.yaml, ..."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Build every benchmark of the catalogue.")] = False,
    split: Annotated[str | None, typer.Option("--split", help="Split to build, if not the default.")] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", help="Whose prompt: llama-mc, lm-eval, olmes.")] = None,
    shots: Annotated[
        int | None, typer.Option("--shots", min=0, help="Worked examples before each question, the protocol's own.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", help="Commit, tag or branch of the source, if not the pinned one.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Also write a sample of N tasks.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of --limit.")] = 0,
    source: Annotated[
        Path | None,
        typer.Option("--source", help="Rows to build from: a file or folder, in the Hub's columns."),
    ] = None,
    own: Annotated[
        Path | None,
        typer.Option("--from", help="A file of your own questions: JSON Lines, CSV, Parquet."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What to call them; else as the file.")] = None,
    question_column: Annotated[
        str | None, typer.Option("--question-column", help="Where the question is, with --from.")
    ] = None,
    choices_column: Annotated[
        list[str] | None,
        typer.Option("--choices-column", help="The list of options, or once for each option."),
    ] = None,
    answer_column: Annotated[str | None, typer.Option("--answer-column", help="Where the right answer is.")] = None,
    answer_as: Annotated[
        str | None,
        typer.Option("--answer-as", help="index, index-from-1, letter, small-letter, text or label."),
    ] = None,
    id_column: Annotated[str | None, typer.Option("--id-column", help="Where a question's id is.")] = None,
    group_column: Annotated[
        str | None, typer.Option("--group-column", help="Where its subject is, for figures by group.")
    ] = None,
    form: Annotated[str, typer.Option("--form", help="letter: options listed, letters scored; or text.")] = "letter",
    force: Annotated[bool, typer.Option("--force", help="Build again even if the files are up to date.")] = False,
    out: Out = Path("out"),
    json: Json = False,
) -> None:
    """Build benchmark files: NAME.bin for llama.cpp, NAME.items.parquet, and manifest.json."""
    from llmc.benchmarks.own import Given

    given = Given(question_column, tuple(choices_column or ()), answer_column, answer_as, id_column, group_column, form)
    if own is None:
        if name is not None or given != Given():
            raise UsageError("--name and the columns describe a file of your own", "name the file with --from")
        targets = _targets(benchmarks or [], every, split, protocol, shots, revision)
    else:
        refused = {
            "NAME": benchmarks,
            "--all": every,
            "--source": source,
            "--protocol": protocol,
            "--revision": revision,
        }
        if also := [word for word, value in refused.items() if value]:
            raise UsageError(f"--from and {also[0]} exclude each other", "drop one of them")
        targets = [_own_target(own, given, name, split, shots)]
    if source is not None and source.is_file() and len(targets) > 1:
        raise UsageError("one file of rows cannot be several benchmarks", "name one benchmark with --source")
    _build_all([_limited(target, limit, seed) for target in targets], out, source, force)


def _build_all(targets: list[Target], out: Path, source: Path | None, force: bool) -> None:
    from llmc.benchmarks.build import build as build_target

    built: list[ManifestEntry] = []
    failed: list[tuple[str, LlmcError]] = []
    for target in targets:
        try:
            built.append(build_target(target, out, source=source, force=force))
        except LlmcError as error:
            if len(targets) == 1:
                raise
            failed.append((target.name, error))
    _show(built, out)
    if failed:
        reasons = "; ".join(f"{name}: {error.what}" for name, error in failed)
        raise UsageError(f"{len(failed)} of {len(targets)} could not be built: {reasons}", failed[0][1].remedy)
    console.emit("build", {"out": str(out), "built": [e.model_dump(mode="json", by_alias=True) for e in built]})


def _own_target(path: Path, given: Given, name: str | None, split: str | None, shots: int | None) -> Target:
    from llmc.benchmarks import names, own

    if shots:
        raise UsageError("a file of questions has no worked examples", "describe it in a YAML file with shots")
    spec = own.spec_of(path, given, name=name, split=split or "test")
    return names.Target(spec, spec.default_split, spec.default_protocol)


def _targets(
    given: list[str], every: bool, split: str | None, protocol: str | None, shots: int | None, revision: str | None
) -> list[Target]:
    from llmc.benchmarks import names, spec

    if every and given:
        raise UsageError("--all and names exclude each other", "drop one of them")
    if every and revision is not None:
        raise UsageError("--revision is of one data set, --all builds many", "name the benchmarks of that data set")
    if not every and not given:
        raise UsageError("nothing to build", "name a benchmark (`llmc bench list`), or say --all or --from")
    if not every:
        return [names.parse(name, split=split, protocol=protocol, shots=shots, revision=revision) for name in given]
    fitting = []
    for name in spec.catalogue():
        found = spec.find(name)
        chosen = found.protocols.get(protocol or found.default_protocol)
        if split in (None, *found.splits) and chosen is not None and (not shots or chosen.shots is not None):
            fitting.append(names.parse(name, split=split, protocol=protocol, shots=shots))
    if not fitting:
        raise UsageError(
            f"no benchmark has split {split or '(any)'}, protocol {protocol or '(any)'} and {shots or 0} shots",
            "see `llmc bench list`",
        )
    return fitting


def _limited(target: Target, limit: int | None, seed: int) -> Target:
    from dataclasses import replace

    if limit is None:
        return target
    if target.sample is not None:
        raise UsageError(f"{target.name} names a sample already", "drop --limit")
    return replace(target, sample=(limit, seed))


def _show(built: list[ManifestEntry], out: Path) -> None:
    from llmc.files import readable
    from llmc.report.tables import plain_table

    if not built:
        return
    table = plain_table()
    table.add_column("benchmark", no_wrap=True)
    for name in ("tasks", "options", "chance", "majority"):
        table.add_column(name, justify="right")
    for name in ("form", "source"):
        table.add_column(name)
    for entry in built:
        widths = list(entry.options)
        table.add_row(
            entry.name,
            f"{entry.tasks}",
            str(widths[0]) if len(widths) == 1 else f"{widths[0]} to {widths[-1]}",
            f"{100 * entry.chance:.2f} %",
            f"{100 * entry.majority.share:.2f} %",
            entry.form,
            entry.source.via,
        )
    console.show(table)
    for entry in built:
        for warned in entry.warnings:
            text = warned.detail or f"{warned.count} items with {warned.kind.replace('-', ' ')}"
            console.show_text(f"{entry.name}: {text} (see {entry.name}.json)")
    console.show_text(readable(f"written to {out}/, described in {out}/manifest.json"))
