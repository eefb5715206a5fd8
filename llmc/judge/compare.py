"""Runs set against a baseline, question by question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llmc.errors import ExitCode, UsageError
from llmc.judge import pairing
from llmc.judge.answers import Answers, Given
from llmc.judge.bootstrap import REPLICATES, Bootstrap, bootstrap
from llmc.judge.options import OptionChanges, option_changes
from llmc.judge.stats import (
    Estimate,
    McNemar,
    Pairs,
    clustered,
    design_effect,
    detectable,
    differences,
    holm,
    mcnemar,
    paired_difference,
    score_interval,
    score_statistic,
    stratified,
    unpaired_se,
    upper_tail,
    z_of,
)

Groups = Literal["none", "strata", "clusters"]
GROUPS: tuple[Groups, ...] = ("none", "strata", "clusters")
FEW_FLIPS = 10  # below it the normal interval of a difference is too short, and Tango's is shown


@dataclass(frozen=True)
class Options:
    """``groups`` says what a task's group is: a stratum of a fixed set, or a cluster of questions that hang together.

    ``axis`` names the settings that differ on purpose; ``replicates`` 0 leaves the bootstrap out, ``option_figures``
    False what changed below the level of right and wrong.
    """

    groups: Groups = "strata"
    axis: tuple[str, ...] = ()
    confidence: float = 0.95
    replicates: int = REPLICATES
    seed: int = 0
    option_figures: bool = True


@dataclass(frozen=True)
class GroupPair:
    name: str
    pairs: Pairs
    difference: Estimate


@dataclass(frozen=True)
class Pair:
    """One candidate against its baseline.

    ``difference`` is Miller's (by clusters, when groups are those), ``macro`` the mean over strata; ``score_low`` and
    ``score_high`` are Tango's interval. ``p`` is McNemar's mid-p; of clusters the normal test of their difference, or
    the score test where all of them changed alike, so that no error can be estimated;
    ``p_holm`` is it adjusted for all pairs of the call. ``detectable`` (with 80 % power) is None when no answer
    differs, since nothing is then known of how often they do, and when no difference would be found, however large.
    ``lost`` and ``gained`` list the tasks by their index in the benchmark file.
    """

    baseline: Answers
    candidate: Answers
    pairs: Pairs
    difference: Estimate
    score_low: float
    score_high: float
    unpaired_se: float
    mcnemar: McNemar
    p: float
    p_holm: float
    detectable: float | None
    bootstrap: Bootstrap | None
    macro: Estimate | None
    groups: tuple[GroupPair, ...]
    options: OptionChanges | None
    lost: tuple[int, ...]
    gained: tuple[int, ...]
    warnings: tuple[str, ...]

    @property
    def few_flips(self) -> bool:
        return self.pairs.discordant < FEW_FLIPS

    @property
    def by_score(self) -> bool:
        """Whether the score interval is to be read: few answers differ, or no error can be estimated."""
        return self.few_flips or not self.difference.se

    @property
    def interval(self) -> tuple[float, float]:
        """The interval to read: the normal one, or the score interval."""
        low, high = self.difference.low, self.difference.high
        if self.by_score or low is None or high is None:
            return self.score_low, self.score_high
        return low, high


@dataclass(frozen=True)
class Comparison:
    """All pairs of one call, in order; ``untrusted`` runs are shown and compared with nothing."""

    pairs: tuple[Pair, ...]
    untrusted: tuple[Given, ...]
    options: Options

    @property
    def exit_code(self) -> ExitCode:
        """What the table says and what the shell gets come from this one object."""
        codes = [ExitCode.UNTRUSTED] * bool(self.untrusted)
        return ExitCode.worst([*codes, ExitCode.OK if self.pairs else ExitCode.NOTHING])


def compare(baselines: Sequence[Given], candidates: Sequence[Given], options: Options) -> Comparison:
    """Pair every candidate with the baseline of its benchmark.

    Raises UsageError where a candidate cannot be paired and says which part differs, UntrustedError where its baseline
    is not trusted.
    """
    z_of(options.confidence)
    runs = [given.answers for given in (*baselines, *candidates) if given.answers]
    pairing.check_axis(options.axis, runs)
    pairs, untrusted = [], []
    for given in candidates:
        if given.answers is None:
            untrusted.append(given)
            continue
        a = baseline_of(given, baselines).required()
        pairs.append(pair(a, given.answers, options))
    return Comparison(tuple(adjusted(pairs)), tuple(untrusted), options)


def adjusted(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with their p values adjusted for each other, as one family."""
    return [replace(each, p_holm=p) for each, p in zip(pairs, holm([one.p for one in pairs]), strict=True)]


def baseline_of(candidate: Given, baselines: Sequence[Given]) -> Given:
    """Return the run that a sweep compares the candidate with, else the one that answered the same by the same rule.

    UsageError says what differs from the nearest one: the baseline of that benchmark's name, or the only one.
    """
    answers = candidate.required()
    own = [b for b in baselines if candidate.against is not None and b.origin == candidate.against]
    found = own or [b for b in baselines if b.answers and b.answers.key == answers.key]
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} baselines fit {answers.label} on {answers.benchmark}: "
            + ", ".join(f"{b.label} ({b.origin})" for b in found),
            "name the one to compare with: --baseline RUN",
        )
    if found:
        return found[0]
    named = [b for b in baselines if b.benchmark == answers.benchmark] or list(baselines)
    if untrusted := [b for b in named if not b.trusted]:
        return untrusted[0]
    if len(named) == 1:
        pairing.refuse_unless_pairable(named[0].required(), answers)
    files = [f"{b.benchmark}, sha256 {b.required().benchmark_sha256}" for b in named]
    raise UsageError(
        f"no baseline answered the questions that {answers.label} ({answers.origin}) did: {answers.benchmark}, "
        f"sha256 {answers.benchmark_sha256}",
        f"the baselines are of {'; '.join(files)}" if files else "name a baseline",
    )


def pair(a: Answers, b: Answers, options: Options) -> Pair:
    """Compare one candidate with its baseline; ``p_holm`` is ``p`` until it is adjusted."""
    pairing.refuse_unless_pairable(a, b)
    z = z_of(options.confidence)
    counts = Pairs.of(a.correct, b.correct)
    values = differences(a.correct, b.correct)
    labels = pairing.groups_of(a, b)
    clusters = labels if options.groups == "clusters" else None
    strata = labels if options.groups == "strata" else None
    groups = _groups(a.correct, b.correct, labels, z) if labels and options.groups != "none" else ()
    test = mcnemar(counts.lost, counts.gained)
    difference, effect, p = paired_difference(counts.lost, counts.gained, counts.n, z), 1.0, test.mid_p
    if clusters:
        difference, effect = clustered(values, clusters, z), design_effect(values, clusters)
        lost, gained, n = counts.lost / effect, counts.gained / effect, counts.n / effect
        statistic = difference.mean / difference.se if difference.se else score_statistic(lost, gained, n, 0.0)
        p = 2 * upper_tail(abs(statistic))
    low, high = score_interval(counts.lost / effect, counts.gained / effect, counts.n / effect, z)
    shown = detectable(counts.flip_rate, counts.n / effect, confidence=options.confidence)
    return Pair(
        baseline=a,
        candidate=b,
        pairs=counts,
        difference=difference,
        score_low=low,
        score_high=high,
        unpaired_se=unpaired_se(a.accuracy, b.accuracy, counts.n),
        mcnemar=test,
        p=p,
        p_holm=p,
        detectable=shown if counts.discordant and shown <= 1 else None,
        bootstrap=bootstrap(
            values,
            clusters=clusters,
            replicates=options.replicates,
            seed=options.seed,
            confidence=options.confidence,
        )
        if options.replicates
        else None,
        macro=stratified([(g.difference.mean, g.difference.se) for g in groups], z) if strata and groups else None,
        groups=groups,
        options=option_changes(a, b, clusters, z) if options.option_figures and a.items and b.items else None,
        lost=tuple(a.task_index(i) for i, d in enumerate(values) if d < 0),
        gained=tuple(a.task_index(i) for i, d in enumerate(values) if d > 0),
        warnings=(*pairing.warnings(a, b, options.axis), *pairing.without_clusters(a, b, options.groups)),
    )


def _groups(a: str, b: str, labels: Sequence[str | None], z: float) -> tuple[GroupPair, ...]:
    marks: dict[str | None, tuple[list[str], list[str]]] = {}
    for label, one, other in zip(labels, a, b, strict=True):
        mine = marks.setdefault(label, ([], []))
        mine[0].append(one)
        mine[1].append(other)
    found = []
    for name in sorted(marks, key=str):
        counts = Pairs.of("".join(marks[name][0]), "".join(marks[name][1]))
        found.append(GroupPair(str(name), counts, paired_difference(counts.lost, counts.gained, counts.n, z)))
    return tuple(found)
