"""Statistics of paired right-or-wrong answers. Pure: numbers in, numbers out, all shares between -1 and 1.

Throughout, A is the reference and B the candidate, ``n`` questions are shared, ``b`` of them A has right and B wrong
("lost"), ``c`` A has wrong and B right ("gained"); a question's difference d is B's mark minus A's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, erfc, exp, fsum, isfinite, lgamma, log, sqrt
from statistics import NormalDist

from llmc.stats import Z95

_EXACT_SUM = 1000  # discordant pairs up to which tail sums are made of whole numbers
_ROUNDING = 1e-12
_NORMAL = NormalDist()


def z_of(confidence: float) -> float:
    """Return the standard normal quantile of a two-sided confidence level, 1.96 for 0.95."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence level lies between 0 and 1: {confidence}")
    return Z95 if confidence == 0.95 else _NORMAL.inv_cdf((1 + confidence) / 2)


def upper_tail(z: float) -> float:
    """Return the probability that a standard normal variable exceeds ``z``, exact far out too."""
    return erfc(z / sqrt(2)) / 2


@dataclass(frozen=True)
class Pairs:
    """Counts of paired answers: ``both`` right, ``lost`` (b), ``gained`` (c), ``neither``."""

    both: int
    lost: int
    gained: int
    neither: int

    @classmethod
    def of(cls, a: str, b: str) -> Pairs:
        """Count two strings of 0 and 1 of equal length; ValueError otherwise."""
        if len(a) != len(b) or not a or not set(a) | set(b) <= {"0", "1"}:
            raise ValueError("two strings of 0 and 1 of equal length are needed")
        if a == b:
            return cls(a.count("1"), 0, 0, a.count("0"))
        counts = dict.fromkeys(("11", "10", "01", "00"), 0)
        for pair in map("".join, zip(a, b, strict=True)):
            counts[pair] += 1
        return cls(counts["11"], counts["10"], counts["01"], counts["00"])

    @property
    def n(self) -> int:
        return self.both + self.lost + self.gained + self.neither

    @property
    def discordant(self) -> int:
        return self.lost + self.gained

    @property
    def flip_rate(self) -> float:
        """Share of answers that changed between right and wrong: (b+c)/n.

        Dutta et al., "Accuracy is Not All You Need" (2024), arXiv:2407.09141: a compressed model may keep its accuracy
        while many answers flip both ways.
        """
        return self.discordant / self.n

    @property
    def difference(self) -> float:
        return (self.gained - self.lost) / self.n


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and a symmetric normal interval; ``se`` is None where it is undefined."""

    mean: float
    se: float | None
    low: float | None
    high: float | None


def estimate(mean: float, se: float | None, z: float = Z95) -> Estimate:
    if se is None or not isfinite(se):
        return Estimate(mean, None, None, None)
    return Estimate(mean, se, mean - z * se, mean + z * se)


def paired_difference(lost: int, gained: int, n: int, z: float = Z95) -> Estimate:
    """Return the mean difference (c-b)/n with its paired standard error.

    E. Miller, "Adding Error Bars to Evals" (2024), arXiv:2411.00640, section 4.2, for answers of 0 and 1:
    SE = sqrt(((b+c)/n - mean^2) / (n-1)). Pairing takes the covariance off the variance for nothing. The standard
    error is undefined for one question, and 0, which claims too much, when no answer differs: see ``score_interval``.
    """
    _check(lost, gained, n)
    mean = (gained - lost) / n
    if n == 1:
        return estimate(mean, None)
    return estimate(mean, sqrt(max(0.0, (lost + gained) / n - mean * mean) / (n - 1)), z)


def unpaired_se(share_a: float, share_b: float, n: int) -> float:
    """Return the standard error that the difference of two accuracies has when pairing is thrown away."""
    return sqrt((share_a * (1 - share_a) + share_b * (1 - share_b)) / n)


def mean_estimate(values: Sequence[float], z: float = Z95) -> Estimate:
    """Return the mean of independent values and its standard error sqrt(s^2/n), s^2 with n-1."""
    n = len(values)
    mean = fsum(values) / n
    if n == 1:
        return estimate(mean, None)
    return estimate(mean, _rounded_off(sqrt(fsum((v - mean) ** 2 for v in values) / (n - 1) / n), values), z)


def _rounded_off(se: float, values: Sequence[float]) -> float:
    """Return 0 for a standard error so small beside the values that it is what rounding left of 0."""
    return 0.0 if se < _ROUNDING * max(map(abs, values)) else se


@dataclass(frozen=True)
class McNemar:
    """Two-sided p values of the same null hypothesis: lost and gained are equally likely."""

    exact: float
    mid_p: float
    asymptotic: float
    corrected: float


def mcnemar(lost: int, gained: int) -> McNemar:
    """Test b against c.

    Q. McNemar, Psychometrika 12 (1947). Exact is twice the binomial tail at one half, capped at 1; mid-p takes half
    of the observed point off each tail and is the one to read: M. W. Fagerland, S. Lydersen, P. Laake, "The McNemar
    test for binary matched-pairs data: mid-p and asymptotic are better than exact conditional", BMC Med. Res.
    Methodol. 13:91 (2013). ``asymptotic`` is chi-squared (b-c)^2/(b+c), ``corrected`` Edwards' (|b-c|-1)^2/(b+c).
    """
    _check(lost, gained, lost + gained)
    m, k = lost + gained, min(lost, gained)
    if m == 0:
        return McNemar(1.0, 1.0, 1.0, 1.0)
    tail, point = _half_binomial(m, k)
    exact = min(1.0, 2 * tail)
    mid = 1 - point / 2 if lost == gained else 2 * tail - point
    distance = abs(lost - gained)
    plain = erfc(distance / sqrt(2 * m))
    corrected = erfc(max(0, distance - 1) / sqrt(2 * m))
    return McNemar(exact, min(1.0, mid), plain, corrected)


def _half_binomial(m: int, k: int) -> tuple[float, float]:
    """Return P(X <= k) and P(X = k) of a binomial with m trials of probability one half; 2k <= m."""
    if m <= _EXACT_SUM:
        whole = 2**m
        return float(Fraction(sum(comb(m, i) for i in range(k + 1)), whole)), float(Fraction(comb(m, k), whole))
    point = exp(lgamma(m + 1) - lgamma(k + 1) - lgamma(m - k + 1) - m * log(2))
    # Each term is i/(m-i+1) of the one above it: the sum is done when they no longer count.
    total = term = 1.0
    for i in range(k, 0, -1):
        term *= i / (m - i + 1)
        total += term
        if term < total * 1e-17:
            break
    return point * total, point


def score_statistic(lost: float, gained: float, n: float, difference: float) -> float:
    """Return Tango's score statistic for the hypothesis that the true difference is ``difference``.

    T. Tango, "Equivalence test and confidence interval for the difference in proportions for the paired-sample
    design", Stat. Med. 17 (1998): the observed less the supposed difference, over its standard error under that very
    hypothesis. Standard normal under it, and defined when no answer differs. Counts need not be whole (a design effect
    divides them). Falls as ``difference`` grows; infinite where the hypothesis forbids what was seen.
    """
    gap = gained - lost - n * difference
    if abs(difference) >= 1:
        return 0.0 if gap == 0 else gap * float("inf")
    linear = -lost - gained + (2 * n - gained + lost) * difference
    constant = -lost * difference * (1 - difference)
    # The probability of a loss that fits best among all with this difference.
    loss = (sqrt(max(0.0, linear * linear - 8 * n * constant)) - linear) / (4 * n)
    variance = n * (2 * loss + difference * (1 - difference))
    if variance <= n * 1e-15:
        return 0.0 if abs(gap) < 1e-9 else gap * float("inf")
    return gap / sqrt(variance)


def score_interval(lost: float, gained: float, n: float, z: float = Z95) -> tuple[float, float]:
    """Return the interval of all differences that Tango's score test does not reject at ``z``.

    Never empty: it is the one to read where few answers differ, or none (M. W. Fagerland, S. Lydersen, P. Laake,
    "Recommended tests and confidence intervals for paired binomial proportions", Stat. Med. 33, 2014).
    """
    _check(lost, gained, n)
    estimate_ = (gained - lost) / n
    low = -1.0 if lost == n else _cross(lambda d: score_statistic(lost, gained, n, d) > z, -1.0, estimate_)
    high = 1.0 if gained == n else _cross(lambda d: score_statistic(lost, gained, n, d) > -z, estimate_, 1.0)
    return low, high


def _cross(above: Callable[[float], bool], low: float, high: float) -> float:
    """Return where a falling statistic comes to its bound, between ``low`` (above) and ``high`` (not above)."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return (low + high) / 2


def clustered(values: Sequence[float], clusters: Sequence[Hashable], z: float = Z95) -> Estimate:
    """Return the mean with a standard error that lets answers of one cluster (a passage, say) hang together.

    Miller (2024), appendix A, with the correction for a finite number C of clusters:
    SE = sqrt(C/(C-1) * sum over clusters of (sum of (d - mean))^2) / n. Undefined for a single cluster, and exactly 0
    where all of them have the same mean: whole numbers are added as such, and of others a trace of rounding is dropped.
    """
    n = len(values)
    mean = fsum(values) / n
    members: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value)
    count = len(members)
    if count < 2:
        return estimate(mean, None)
    if all(isinstance(value, int) for value in values):
        total = sum(values)
        # n times each cluster's sum of (d - mean).
        whole = sum((n * sum(own) - len(own) * total) ** 2 for own in members.values())
        se = sqrt(count * whole / (count - 1)) / n / n
    else:
        squares = fsum(fsum(value - mean for value in own) ** 2 for own in members.values())
        se = _rounded_off(sqrt(count / (count - 1) * squares) / n, values)
    return estimate(mean, se, z)


def stratified(means: Sequence[tuple[float, float | None]], z: float = Z95) -> Estimate:
    """Return the mean of S stratum means (macro average) from each one's mean and standard error.

    Strata are fixed, as MMLU's subjects are, so their errors add up: SE = sqrt(sum of SE^2) / S. Undefined when a
    stratum's is (it holds one question).
    """
    size = len(means)
    mean = fsum(m for m, _ in means) / size
    errors = [se for _, se in means if se is not None]
    if len(errors) < size:
        return estimate(mean, None)
    return estimate(mean, sqrt(fsum(se * se for se in errors)) / size, z)


def detectable(flip_rate: float, n: float, power: float = 0.8, confidence: float = 0.95) -> float:
    """Return the smallest difference that a paired comparison finds with the given power (MDE80 by default).

    (z_0.975 + z_0.8) * sqrt(psi/n) with psi = (b+c)/n, the variance of a difference near 0. As for an unpaired
    comparison, with the sum of both variances p(1-p) for psi.
    """
    return (z_of(confidence) + _NORMAL.inv_cdf(power)) * sqrt(flip_rate / n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number, in the order given.

    S. Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Stat. 6 (1979): whatever is at most
    alpha afterwards may be rejected, with the chance of even one false rejection held at alpha.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def differences(a: str, b: str) -> list[int]:
    """Return B's mark minus A's for every question: -1 lost, 0 equal, 1 gained."""
    return [int(y) - int(x) for x, y in zip(a, b, strict=True)]


def design_effect(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """Return how many times fewer independent questions the clustered ones are worth, at least 1.

    The ratio of the clustered to the ordinary variance of the mean (L. Kish, "Survey Sampling", 1965). Where no value
    differs from another nothing can be estimated, and the worst is assumed: a cluster counts as one question.
    """
    count = len(set(clusters))
    within = clustered(values, clusters).se
    plain = mean_estimate(values).se
    if not within or not plain:
        return len(values) / max(1, count)
    return max(1.0, (within / plain) ** 2)


def _check(lost: float, gained: float, n: float) -> None:
    if lost < 0 or gained < 0 or lost + gained > n * (1 + 1e-12):
        raise ValueError(f"{lost} lost and {gained} gained of {n} questions")


def quantile(values: Iterable[float], share: float) -> float:
    """Return the quantile by linear interpolation between order statistics (R. Hyndman, Y. Fan, type 7)."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
