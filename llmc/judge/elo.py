"""Elo of a model on items of fixed rating and weight. Pure: answers in, a rating out.

With weight w, rating e and y = 1 for a right answer, 0 for a wrong one, a model of rating R is expected to get
E(R, e) = 1 / (1 + 10^((e - R) / 400)) of an item (A. E. Elo, "The Rating of Chessplayers", 1978, in its logistic
form). The rating is the one that makes the answers likeliest, with four drawn games against 1000 that keep it finite:

    maximise  sum of w [y ln E(R, e) + (1 - y) ln (1 - E(R, e))]  +  4 [ln E(R, 1000) / 2 + ln (1 - E(R, 1000)) / 2]

Its derivative, but for the factor ln 10 / 400, is F(R) = sum of w (y - E(R, e)) + 4 (1/2 - E(R, 1000)): strictly
falling, positive far down and negative far up, so that there is one root, found by bisection. Weights count as they
are: doubling them all halves what the prior counts for. The equation is that of BananaMind Base Bench 1.1 (its dataset
card, "Elo calculation", and its official reports, which it reproduces in every category).

The root cannot lie outside the bracket. Let p be the weighted share of points with the prior's, and lo and hi the
lowest and highest of all ratings, the prior's too: the points scored, p (W + 4), are the points expected, which lie
between (W + 4) E(R, hi) and (W + 4) E(R, lo). Hence lo + d <= R <= hi + d with d = 400 log10(p / (1 - p)).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, fsum, isfinite, log, log10, sqrt

SCALE = 400.0  # ten times the odds for every so many points
PRIOR_RATING, PRIOR_WEIGHT = 1000.0, 4.0
TOLERANCE = 1e-9  # width of the bracket at the end, in Elo points


@dataclass(frozen=True)
class Game:
    """One answer: the item's ``weight`` (above 0) and ``rating`` in Elo points, and whether it is right."""

    weight: float
    rating: float
    right: bool


@dataclass(frozen=True)
class Elo:
    """A rating in Elo points with its standard error, and what it rests on: answers, weight won, and all weight.

    The rating depends on the answers through ``won`` alone and rises with it.
    """

    rating: float
    standard_error: float
    games: int
    won: float
    weight: float

    @property
    def weighted_accuracy(self) -> float:
        """Share of the weight won, 0 to 1."""
        return self.won / self.weight


def expected(rating: float, item: float) -> float:
    """Return the share of points that a model of this rating is expected to get of an item, 0 to 1."""
    x = (rating - item) * log(10) / SCALE
    if x >= 0:
        return 1 / (1 + exp(-x))
    odds = exp(x)
    return odds / (1 + odds)


def elo(games: Iterable[Game], *, prior_rating: float = PRIOR_RATING, prior_weight: float = PRIOR_WEIGHT) -> Elo:
    """Return the likeliest rating of a model with these answers; see the module. No answers give the prior's rating.

    The standard error is the sandwich one, sqrt(sum of w^2 E(1-E)) / (ln 10 / 400 * (sum of w E(1-E) + prior's)): a
    weight makes an answer count more, and does not make more answers of it. E is taken at the rating found, so that it
    is not 0 when all answers are alike. 0 without answers.

    ValueError for a weight that is not above 0, a rating that is not a number, and without a prior.
    """
    played = list(games)
    _check(played, prior_rating, prior_weight)
    won = fsum(game.weight for game in played if game.right)
    lost = fsum(game.weight for game in played if not game.right)
    root = _root(played, won, lost, prior_rating, prior_weight)
    return Elo(root, _standard_error(played, root, prior_rating, prior_weight), len(played), won, won + lost)


def balance(games: Sequence[Game], rating: float, prior_rating: float, prior_weight: float) -> float:
    """Return F: points won less points expected at a rating, those of the prior included."""
    # 1 - E(R, e) as E(e, R): the difference would lose its digits where E is nearly 1.
    points = (
        game.weight * (expected(game.rating, rating) if game.right else -expected(rating, game.rating))
        for game in games
    )
    return fsum((*points, prior_weight * (0.5 - expected(rating, prior_rating))))


def _root(games: Sequence[Game], won: float, lost: float, prior_rating: float, prior_weight: float) -> float:
    shift = SCALE * (log10(won + prior_weight / 2) - log10(lost + prior_weight / 2))
    ratings = [prior_rating, *(game.rating for game in games)]
    low, high = min(ratings) + shift, max(ratings) + shift
    while high - low > TOLERANCE:
        middle = low + (high - low) / 2
        if middle in (low, high):
            break  # ratings so large that neighbouring numbers lie further apart than the tolerance
        if balance(games, middle, prior_rating, prior_weight) > 0:
            low = middle
        else:
            high = middle
    return low + (high - low) / 2


def _standard_error(games: Sequence[Game], rating: float, prior_rating: float, prior_weight: float) -> float:
    spreads = [(game.weight, _spread(rating, game.rating)) for game in games]
    information = fsum((*(w * v for w, v in spreads), prior_weight * _spread(rating, prior_rating)))
    if not information:
        return float("inf")  # every expectation is 0 or 1 to the last digit: the answers pin nothing down
    return sqrt(fsum(w * w * v for w, v in spreads)) / information * SCALE / log(10)


def _spread(rating: float, item: float) -> float:
    return expected(rating, item) * expected(item, rating)


def _check(games: Sequence[Game], prior_rating: float, prior_weight: float) -> None:
    for weight, rating in ((prior_weight, prior_rating), *((game.weight, game.rating) for game in games)):
        if not (isfinite(weight) and weight > 0):
            raise ValueError(f"a weight is above 0, not {weight}")
        if not isfinite(rating):
            raise ValueError(f"a rating is a number, not {rating}")
