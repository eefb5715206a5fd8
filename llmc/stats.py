"""Intervals for shares."""

from __future__ import annotations

from math import sqrt

Z95 = 1.959963984540054  # the standard normal quantile at 0.975


def wilson(right: int, tasks: int, z: float = Z95) -> tuple[float, float]:
    """Return the Wilson score interval of ``right / tasks`` as two shares (0 to 1), 95 % by default.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927): the
    shares p that a score test at ``z`` does not reject. Unlike the +- that llama.cpp prints, it is
    never empty at 0 or 100 % nor undefined for one task. ValueError unless 0 <= right <= tasks and tasks > 0.
    """
    if not 0 <= right <= tasks or tasks == 0:
        raise ValueError(f"{right} right of {tasks} tasks")
    share = right / tasks
    scale = 1 + z * z / tasks
    centre = (share + z * z / (2 * tasks)) / scale
    half = z * sqrt(share * (1 - share) / tasks + z * z / (4 * tasks * tasks)) / scale
    # At the ends the interval touches 0 or 1 exactly; the subtraction may miss by a rounding.
    low = 0.0 if right == 0 else max(0.0, centre - half)
    high = 1.0 if right == tasks else min(1.0, centre + half)
    return low, high
