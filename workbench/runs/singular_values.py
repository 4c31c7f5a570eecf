"""Singular values of a run as a table and in plain words: their error bounds and shares of the variance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from workbench.formats import duration

FIRST = 10
"""Rows of a table that are shown at once."""
MOST = 100
"""Rows of a table; smaller values are in the record."""
_DIGITS = (3, 10)


class Values(NamedTuple):
    """A table of texts: its header, its rows, and the number of values left out."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


_LISTS = ("singular_values", "explained_variance", "explained_variance_ratio", "separated")
"""Parts of a result that the table shows."""


def values(result: Mapping[str, Any]) -> Values | None:
    """Return the table of a result; None for a result without singular values."""
    certificate, singular = result.get("certificate") or {}, result.get("singular_values")
    if not isinstance(singular, list) or not singular or not all(_is_value(each) for each in singular):
        return None
    columns = {"No.": [str(number) for number in range(1, len(singular) + 1)]}
    bounds: list[float | None] = [1e-5] * len(singular)
    if certificate.get("bound"):
        bounds, absolute = bounds_of(certificate)
    columns["Singular value"] = [_digits(value, bound) for value, bound in zip(singular, bounds, strict=True)]
    if certificate.get("bound"):
        columns["Right within"] = [_bound(*each) for each in zip(bounds, absolute, strict=True)]
    variances, shares, separated = (result.get(name) for name in _LISTS[1:])
    if variances and shares:
        # A variance is a square, and may be off by twice as much.
        columns["Variance"] = [_digits(value, bound, 2) for value, bound in zip(variances, bounds, strict=True)]
        columns["Share"] = ["–" if share is None else f"{100 * share:.2f} %" for share in shares]
    if separated:
        columns["Separated"] = [{True: "yes", False: "no"}.get(each, "–") for each in separated]
    rows = tuple(zip(*columns.values(), strict=True))
    return Values(tuple(columns), rows[:MOST], len(rows[MOST:]))


def bounds_of(certificate: Mapping[str, Any]) -> tuple[list[float | None], list[float | None]]:
    """Return the error bounds of values, relative to themselves and to the largest; None if unknown."""
    bounds = certificate["bound"]
    if certificate.get("limit") == "constant":
        # All values are rounding errors; records of older versions have bounds for them.
        bounds = [None] * len(bounds)
        return bounds, bounds
    return bounds, certificate.get("of_largest") or bounds


def _is_value(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_UNRELIABLE = 0.5
"""Sine of the angle to the true vectors from which on a vector is not reliable."""


def accuracy(result: Mapping[str, Any]) -> str:
    """Return in plain words how far values may be off and which vectors not to rely on; '' without a certificate."""
    certificate = result.get("certificate") or {}
    if not certificate.get("bound"):
        return ""
    bounds = bounds_of(certificate)[0]
    known = [bound for bound in bounds if bound is not None]
    likely = " very likely" if certificate.get("status") == "very likely" else ""
    parts = [f"Each value is{likely} within {_percent(max(known))}."] if known else []
    if known and len(known) < len(bounds):
        parts = [f"{parts[0][:-1]}, except for those that can't be distinguished from zero."]
    if not known:
        parts = ["The values can't be distinguished from zero."]
    if certificate.get("status") == "not reached":
        parts.append("The accuracy that was requested was not reached.")
    unreliable = [(first, last) for first, last, sine in certificate.get("groups") or () if sine >= _UNRELIABLE]
    if unreliable:
        names = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in unreliable)
        one = len(unreliable) == 1 and unreliable[0][0] == unreliable[0][1]
        parts.append(f"Vector{'' if one else 's'} {names} {'is' if one else 'are'} not reliable: others are as large.")
    return " ".join(parts)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def counts(numbers: Mapping[str, int]) -> str:
    """Return the counts of each kind as text, such as omitted variants by reason."""
    return ", ".join(f"{count} {kind}" for kind, count in numbers.items() if count) or "none"


def other_values(result: Mapping[str, Any], elsewhere: Sequence[str]) -> dict[str, Any]:
    """Return the texts of `in_words` for values neither in the table of a result nor shown elsewhere."""
    excluded = elsewhere if values(result) is None else (*elsewhere, *_LISTS)
    return in_words({name: value for name, value in result.items() if name not in excluded})


def in_words(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as text for users: seconds as 'time_to_make': '8.51 s', and counts by kind as one text."""
    return dict(_worded(name, value, result) for name, value in result.items())


def _worded(name: str, value: Any, result: Mapping[str, Any]) -> tuple[str, Any]:
    if isinstance(value, Mapping | list) and not value:
        return name, "none"
    if isinstance(value, Mapping) and all(isinstance(each, int) for each in value.values()):
        return name, counts(value)
    time = f"time_{name.removeprefix('seconds_')}"
    # A user's function may use the same names for its own values, which must stay unchanged.
    ours = name.startswith("seconds_") and time not in result and isinstance(value, float) and math.isfinite(value)
    return (time, duration(value)) if ours else (name, value)


def _bound(bound: float | None, absolute: float | None) -> str:
    """Return the error of a value, relative to itself or to the largest one; a dash if neither is known."""
    if bound is not None:
        return _percent(bound)
    return "–" if absolute is None else f"{_percent(absolute)} of the largest"


def _digits(value: float | None, bound: float | None, times: int = 1) -> str:
    """Return the correct digits and one more; few for values that can't be distinguished from zero."""
    if value is None:
        return "–"
    least, most = _DIGITS
    bound = 1.0 if bound is None else times * bound
    right = most if bound <= 0 else math.ceil(-math.log10(bound)) + 1
    return f"{value:#.{min(most, max(least, right))}g}".removesuffix(".")
