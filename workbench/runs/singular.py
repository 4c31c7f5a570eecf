"""Singular values of a run as a table: each with its error bound and its share of the variance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from workbench.formats import duration

MOST = 20
"""Limit of rows in a table; later ones are seldom inspected one by one."""
_DIGITS = (3, 10)


class Values(NamedTuple):
    """A table of texts: its header, its rows, and the number of values left out."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


_LISTS = ("singular_values", "explained_variance", "explained_variance_ratio", "separated")
"""Parts of a result that the table shows."""


def values(result: Mapping[str, Any]) -> Values | None:
    """Return the table of a result; None if no certificate bounds the error of its values."""
    certificate, singular = result.get("certificate") or {}, result.get("singular_values")
    if not singular or not certificate.get("bound"):
        return None
    bounds, absolute = bounds_of(certificate)
    columns = {
        "No.": [str(number) for number in range(1, len(singular) + 1)],
        "Singular value": [_digits(value, bound) for value, bound in zip(singular, bounds, strict=True)],
        "Relative error ≤": [_bound(*each) for each in zip(bounds, absolute, strict=True)],
    }
    variances, shares, apart = (result.get(name) for name in _LISTS[1:])
    if variances and shares:
        # A variance is a square, and may be off by twice as much.
        columns["Variance"] = [_digits(value, bound, 2) for value, bound in zip(variances, bounds, strict=True)]
        columns["Share"] = ["–" if share is None else f"{100 * share:.2f} %" for share in shares]
    if apart:
        columns["Apart"] = [{True: "yes", False: "no"}.get(each, "–") for each in apart]
    rows = tuple(zip(*columns.values(), strict=True))
    return Values(tuple(columns), rows[:MOST], len(rows[MOST:]))


def bounds_of(certificate: Mapping[str, Any]) -> tuple[list[float | None], list[float | None]]:
    """Return the error bounds of values, relative to themselves and to the largest; None if unknown."""
    bounds = certificate["bound"]
    if certificate.get("limit") == "constant":
        # All of them are rounding, of which records of older versions have bounds.
        bounds = [None] * len(bounds)
        return bounds, bounds
    return bounds, certificate.get("of_largest") or bounds


def counts(numbers: Mapping[str, int]) -> str:
    """Return the counts of each kind as text, such as variants that took no part in a PCA by the reason."""
    return ", ".join(f"{count} {kind}" for kind, count in numbers.items() if count) or "none"


def other_values(result: Mapping[str, Any], elsewhere: Sequence[str]) -> dict[str, Any]:
    """Return the texts of `in_words` for values neither in the table of a result nor shown elsewhere."""
    shown = elsewhere if values(result) is None else (*elsewhere, *_LISTS)
    return in_words({name: value for name, value in result.items() if name not in shown})


def in_words(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as text for users: seconds as 'time_to_make': '8.51 s', and counts by kind as one text."""
    return dict(_worded(name, value, result) for name, value in result.items())


def _worded(name: str, value: Any, result: Mapping[str, Any]) -> tuple[str, Any]:
    if isinstance(value, Mapping | list) and not value:
        return name, "none"
    if isinstance(value, Mapping) and all(isinstance(each, int) for each in value.values()):
        return name, counts(value)
    time = f"time_{name.removeprefix('seconds_')}"
    # Names in a user's function are its own, and so are their values.
    ours = name.startswith("seconds_") and time not in result and isinstance(value, float) and math.isfinite(value)
    return (time, duration(value)) if ours else (name, value)


def _bound(bound: float | None, absolute: float | None) -> str:
    """Return the error of a value, relative to itself or to the largest one; a dash if neither is known."""
    if bound is not None:
        return f"{bound:.1e}"
    return "–" if absolute is None else f"of the largest: {absolute:.1e}"


def _digits(value: float | None, bound: float | None, times: int = 1) -> str:
    """Return as many digits as are right, and one; few for values that can't be distinguished from zero."""
    if value is None:
        return "–"
    least, most = _DIGITS
    bound = 1.0 if bound is None else times * bound
    right = most if bound <= 0 else math.ceil(-math.log10(bound)) + 1
    return f"{value:#.{min(most, max(least, right))}g}"
