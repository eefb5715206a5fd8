"""The suites of a sweep: every file that one asks is a cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmc.errors import InputFileError, LlmcError
from llmc.runs.bench import Bench
from llmc.runs.settings import Settings
from llmc.runs.suite_plan import asked_name, asked_together, check_names, plan_part, rule_of
from llmc.runs.suite_tree import find
from llmc.runs.sweep_suites import PartKey, write_places
from llmc.scoring.job import Settings as Scoring
from llmc.sweep.config import SweepConfig
from llmc.yamlfile import Location, YamlFile

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class SuitePart:
    """The ``number``-th file of ``suite`` (a name, ``name:variant``, or the path of a file).

    ``rule`` is that of the cell's own score; ``definition`` changes when the suite's file does.
    """

    suite: str
    number: int
    name: str
    rule: str
    uncond: bool
    definition: str
    scoring: Mapping[str, str] = field(hash=False)

    @property
    def key(self) -> str:
        return f"{self.suite}#{self.number}"

    def overruled(self, common: Scoring, rule: str) -> dict[Location, tuple[str, str]]:
        """Return what the sweep sets otherwise than the suite, which decides it: key -> the sweep's and its own value.

        What a sweep leaves at its default it does not ask for.
        """
        plain = Scoring()
        asked = {name: str(getattr(common, name)) for name in self.scoring}
        found: dict[Location, tuple[str, str]] = {
            ("scoring", name): (value, self.scoring[name])
            for name, value in asked.items()
            if value not in (str(getattr(plain, name)), self.scoring[name])
        }
        return found | ({("rule",): (rule, self.rule)} if rule not in (Settings.rule, self.rule) else {})

    def over(self, common: Scoring) -> Scoring:
        """Return how the part is scored: as the suite says, and what it leaves open as the sweep does."""
        return replace(common, uncond=common.uncond or self.uncond, **self.scoring)  # type: ignore[arg-type]


def suites_of(config: SweepConfig, file: YamlFile) -> list[SuitePart]:
    """Return the parts of all suites; InputFileError names the line of one that there is not, or stands twice."""
    found: list[SuitePart] = []
    named: dict[str, str] = {}
    for number, text in enumerate(config.suites):
        where: Location = ("suites", number)
        ref = _beside(text, file)
        if any(part.suite == ref for part in found):
            raise InputFileError(f"{file.at(where)}: the suite {text} stands twice", "keep one of them")
        try:
            suite = find(ref)
            if suite.name in named:
                raise InputFileError(
                    f"the suites {named[suite.name]} and {text} are both called {suite.name}",
                    "give one of the files another name:",
                )
            named[suite.name] = text
            check_names(suite)
            for place, leaves in enumerate(asked_together(suite)):
                rule, uncond = rule_of(leaves)
                name = f"{suite.name}/{asked_name(leaves[0].questions)}"
                found.append(SuitePart(ref, place, name, rule, uncond, suite.definition, suite.scoring))
        except LlmcError as error:
            raise InputFileError(f"{file.at(where)}: {error.what}", error.remedy) from error
    return found


def _beside(text: str, file: YamlFile) -> str:
    """Return a suite's file as a path that does not depend on where llmc is started; a name as it is."""
    body, colon, variant = text.partition(":")
    if not body.endswith(_SUFFIXES):
        return text
    return f"{(file.path.parent / Path(body).expanduser()).resolve()}{colon}{variant}"


def open_part(part: SuitePart, settings: Settings, sweep: Path) -> Bench:
    """Return the questions of a part, built where they are missing; note in the sweep's folder whose they are.

    InputFileError when none of its tasks has questions; raises what building raises.
    """
    suite = find(part.suite)
    leaves = asked_together(suite)[part.number]
    cell, absent = plan_part(suite, leaves, settings)
    if cell is None:
        first = next(iter(absent.values()))
        raise InputFileError(f"{part.name}: {first.what}", first.remedy)
    key = PartKey(part.key, part.definition, cell.bench.facts.sha256)
    write_places(sweep, key, cell.places, absent)
    return cell.bench
