"""Is the answer right? Each check compares with what must hold, says what it compared, and can fail."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.workloads.values import Check

if TYPE_CHECKING:
    from distributed import Client

_SIGMAS = 6.0
"""A right answer falls outside this many standard deviations once in 500 million runs."""


def sum_is_expected(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Sum of n normal elements of mean 11 and deviation 1 against 11 n."""
    count = _every_other(resolved["shape"])
    return _statistical(
        float(results["value"]), 11.0 * count, math.sqrt(count), resolved["dtype"], "11 for each element"
    )


def mean_is_expected(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Mean of n normal elements of mean 11 and deviation 1 against 11."""
    count = _every_other(resolved["shape"])
    return _statistical(float(results["value"]), 11.0, 1 / math.sqrt(count), resolved["dtype"], "the mean of 10 plus 1")


def transpose_sum_is_expected(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Twice the sum of n uniform elements against n, with deviation 2 sqrt(n / 12)."""
    count = math.prod(resolved["shape"])
    return _statistical(
        float(results["value"]), float(count), math.sqrt(count / 3), resolved["dtype"], "twice a half for each element"
    )


def _every_other(shape: list[int]) -> int:
    return math.prod(math.ceil(length / 2) for length in shape)


def _statistical(value: float, expected: float, deviation: float, dtype: str, why: str) -> Check:
    # Sums are made pairwise, so rounding grows with the logarithm of their length, which is below 64.
    bound = _SIGMAS * deviation + 64 * float(np.finfo(dtype).eps) * abs(expected)
    off = abs(value - expected)
    passed = bool(off <= bound)
    words = "within" if passed else "outside"
    range_ = f"{expected:.10g} ± {bound:.3g}"
    return Check(
        passed=passed,
        what=f"{value:.10g} is {words} {range_}: {why}, and {_SIGMAS:g} standard deviations of chance.",
    )
