"""Sizes, times and counts as text, for every interface and every message."""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_ROUGH = ((_DAY, "d", 1.5), (_HOUR, "h", 1.5), (_MINUTE, "min", 1.5), (1, "s", 0.9995), (1e-3, "ms", 0))
"""Units of time, their names, and the smallest number of each."""


def size(n_bytes: float, digits: int = 3) -> str:
    """Format bytes in three or more digits and Dask's units, which `parse_bytes` reads: '2 GiB', '14.1 GiB', '0 B'."""
    value, unit = float(round(n_bytes)), "B"
    for larger in ("kiB", "MiB", "GiB", "TiB", "PiB"):
        # Above this, three digits would show 1000.
        if abs(value) < 999.5:
            break
        value, unit = value / 1024, larger
    return f"{value:.{digits}g} {unit}" if abs(value) < 999.5 else f"{value:.0f} {unit}"


def distinct_sizes(one: float, other: float) -> tuple[str, str]:
    """Format two different sizes in enough digits to show the difference: '13.04 GiB', '13.01 GiB'."""
    pairs = ((size(one, digits), size(other, digits)) for digits in range(3, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (size(one), size(other)))


def rate(bytes_per_second: float) -> str:
    """Format a rate: '1.5 GiB/s'."""
    return f"{size(bytes_per_second)}/s"


def duration(seconds: float) -> str:
    """Format a duration in three digits, or two units from a minute on: '45 µs', '250 ms', '1.3 s', '3 min 55 s'.

    Callers that show a running clock round it first.
    """
    if seconds < 59.95:
        for length, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if seconds >= 0.9995 * length:
                return f"{seconds / length:.3g} {unit}"
        return "0 s"
    if round(seconds) < _HOUR:
        return _two_units(round(seconds), 60, "min", "s")
    minutes = round(seconds / _MINUTE)
    return _two_units(minutes, 60, "h", "min") if minutes < 1440 else _two_units(round(seconds / _HOUR), 24, "d", "h")


def _two_units(number: int, length: int, large: str, small: str) -> str:
    whole, remainder = divmod(number, length)
    return f"{whole} {large} {remainder} {small}" if remainder else f"{whole} {large}"


def span(low: float, high: float) -> str:
    """Format an estimated range of time in two digits: '3.1 to 4.5 s', '50 s to 2 min', 'about 12 s'."""
    (first, unit), (second, other) = _roughly(low), _roughly(high)
    if (first, unit) == (second, other):
        return f"about {first} {unit}"
    return f"{first} to {second} {unit}" if unit == other else f"{first} {unit} to {second} {other}"


def _roughly(seconds: float) -> tuple[str, str]:
    length, unit = next((length, unit) for length, unit, least in _ROUGH if seconds >= least * length)
    number = seconds / length
    return f"{number:.2g}" if number < 10 else f"{number:.0f}", unit


def ago(epoch: float, now: float) -> str:
    """Format a time in the past: 'just now', '5 min ago', '3 h ago', or a date."""
    seconds = max(0.0, now - epoch)
    if seconds < _MINUTE:
        return "just now"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min ago"
    if seconds < _DAY:
        return f"{int(seconds // _HOUR)} h ago"
    return time.strftime("%Y-%m-%d", time.localtime(epoch))


def moment(epoch: float, now: float | None = None) -> str:
    """Format the time of day, with the date if it isn't today: '14:20', '2026-11-24 14:20'."""
    day, today = (time.strftime("%Y-%m-%d", time.localtime(each)) for each in (epoch, now))
    return time.strftime("%H:%M" if day == today else "%Y-%m-%d %H:%M", time.localtime(epoch))


def iso(epoch: float) -> str:
    """Format a time for programs, in UTC: '2026-11-24T14:20:00Z'."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def count(number: float, noun: str = "") -> str:
    """Format a count: '1 worker', '3 workers', '2 processes', '40,000 tasks', '40,000'."""
    text = f"{number:,.15g}"
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{text} {noun}{ending}" if noun else text


def percent(share: float) -> str:
    """Format a fraction as '23 %'."""
    return f"{100 * share:.0f} %"


def by(lengths: Sequence[int]) -> str:
    """Format a shape: '1,000 × 20'."""
    return " × ".join(map(count, lengths))


def shortened(names: Sequence[str], most: int = 20) -> str:
    """Join names to 'a, b, c', or to 'a, b, c and 2 more' if there are more than `most`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def shorten_middle(text: str, most: int = 44) -> str:
    """Return a long text, such as a path, with its middle replaced by an ellipsis: files differ at their end."""
    return text if len(text) <= most else f"{text[: most // 3]}…{text[-(most - most // 3 - 1) :]}"


def meant(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean …?' with a similar known name, or '' if there is none."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def listed(words: Sequence[str]) -> str:
    """Join words: 'use', 'use and power', 'use, memory and power'."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def literal(value: Any) -> str:
    """Return the Python source of a plain value, such as 'True', '["a", None]' or '{"b": 1}'.

    JSON isn't Python: it has true and null, and writes a character beyond U+FFFF as two halves.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f'"{value}"' if isinstance(value, str) and value.isprintable() and not {*'"\\'} & {*value} else repr(value)
