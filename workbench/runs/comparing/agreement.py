"""Agreement of the answers of several runs, number by number, as closely as the type of the data allows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from workbench.errors import quoted
from workbench.formats import listed
from workbench.runs.parts import most_off

_SUM = 64
"""Limit of the roundings in a pairwise sum: the logarithm of its length, which is below 64."""

_DECOMPOSITION = 10_000
"""Limit of the roundings of singular values: thousands, each relative to the largest value."""

_NOT_THE_ANSWER = ("bandwidth", "certificate", "scatter", "seconds_to_make", "seconds_to_read")
"""Keys of a result that aren't part of the answer: speed, certainty, and a figure."""

_ITEM = 8  # bytes of a number of unknown type

_DECLARE = "Have the workload's check return (passed, text, rounding) to decide it."

_EPS = {"float32": 2.0**-23, "float16": 2.0**-10}
_EPS_OF_FLOAT64 = 2.0**-52


class Answer(NamedTuple):
    """The answer of one run."""

    who: str
    data: str
    """The parameters as used, and the hardware; equal for runs that worked on the same numbers."""
    result: Mapping[str, Any] | None
    dtype: str
    passed: bool | None
    """True if the run's check passed; None without a check."""
    rounding: float | None = None
    """Largest error of its numbers by rounding, as its check states."""
    bytes: int | None = None
    """Size of the array that it was computed from."""


class Agreement(NamedTuple):
    """Result of comparing answers, with an explanation."""

    agree: bool | None
    """None if there is nothing to compare."""
    how: str


def agreement(answers: Sequence[Answer]) -> Agreement:
    """Compare the answers of runs with one another.

    If they worked on the same numbers, the answers must be the same up to rounding. If not (other blocks make other
    random numbers, and so does a GPU's generator), each must have passed its own check, and `how` says so.
    """
    answered = [answer for answer in answers if answer.result is not None]
    silent = list(dict.fromkeys(answer.who for answer in answers if answer.result is None))
    silent_message = f"{listed(silent)} kept no answer, so there is none to compare." if silent else ""
    if len(answered) < 2:
        return Agreement(None, silent_message or "There are not two answers to compare.")
    result = _among(answered)
    return result._replace(how=f"{result.how} {silent_message}".rstrip())


def _among(answers: Sequence[Answer]) -> Agreement:
    failed = list(dict.fromkeys(answer.who for answer in answers if answer.passed is False))
    if failed:
        return Agreement(False, f"The check of {listed(failed)} failed.")
    first: dict[str, Answer] = {}
    perhaps = ""
    for answer in answers:
        other = first.setdefault(answer.data, answer)
        where = _find_difference(other, answer)
        if where is not None and _find_difference(other, answer, _cancelled(other, answer)) is None:
            who = " and ".join(dict.fromkeys((other.who, answer.who)))
            perhaps = f"Whether the answers of {who} differ by more than rounding is undecided: {where}. {_DECLARE}"
        elif where is not None:
            if other.who == answer.who:
                return Agreement(False, f"The answers of {answer.who} differ from run to run: {where}.")
            return Agreement(False, f"The answers of {other.who} and {answer.who} differ: {where}.")
    return Agreement(None, perhaps) if perhaps else _between_groups(list(first.values()), answers)


def _between_groups(groups: Sequence[Answer], answers: Sequence[Answer]) -> Agreement:
    if all(_find_difference(groups[0], other) is None for other in groups[1:]):
        exactly = all(_alone(answer) == _alone(answers[0]) for answer in answers)
        surely = len({bool((answer.result or {}).get("certificate")) for answer in answers}) > 1
        how = "" if exactly else " as far as their certificates reach" if surely else " up to rounding"
        return Agreement(True, f"All answers are the same{how}.")
    if any(answer.passed is None for answer in answers):
        return Agreement(None, "Rows worked on different numbers, and not every answer was checked.")
    return Agreement(
        True,
        "Rows with another method, or with other blocks, sizes or devices and so other random numbers, don't give the "
        "same answer; each passed its own check, and rows that did the same gave the same answer.",
    )


def _find_difference(one: Answer, other: Answer, rounding: float = 0.0) -> str | None:
    """Return where two answers differ; if only one has a certificate, by more than that allows."""
    accuracies = [found for each in (one, other) if (found := most_off(each.result or {})) is not None]
    slack = accuracies[0] if len(accuracies) == 1 else 0.0
    rounding += sum(each.rounding or 0.0 for each in (one, other))
    return difference(_alone(one), _alone(other), other.dtype, slack=slack, rounding=rounding)


def _cancelled(one: Answer, other: Answer) -> float:
    """Estimate the rounding of a sum of all numbers, each of size one, if no check states it.

    Numbers that cancel leave a result near zero, whose size says nothing about its rounding.
    """
    declared = all(each.rounding is not None for each in (one, other))
    return 0.0 if declared else _SUM * _eps(other.dtype) * max(one.bytes or 0, other.bytes or 0) / _ITEM


def _alone(answer: Answer) -> dict[str, Any]:
    """Return the result with only the keys of the answer."""
    return {name: value for name, value in (answer.result or {}).items() if name not in _NOT_THE_ANSWER}


def difference(
    one: Any, other: Any, dtype: str, name: str = "answer", *, slack: float = 0.0, rounding: float = 0.0
) -> str | None:
    """Return where two answers differ by more than rounding explains, or None if they don't.

    `slack` is an additional tolerance for the numbers of a list, relative to the largest, and `rounding` an absolute
    one for any number.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = [*one, *(key for key in other if key not in one)]
        found = (
            difference(one.get(key), other.get(key), dtype, str(key).replace("_", " "), slack=slack, rounding=rounding)
            for key in names
        )
        return next((each for each in found if each is not None), None)
    if _is_list(one) and _is_list(other):
        return _difference_of_lists(one, other, dtype, name, slack, rounding)
    if _is_number(one) and _is_number(other):
        bound = max(rounding, _SUM * _eps(dtype) * max(abs(one), abs(other)))
        return None if _close(one, other, bound) else _message(name, one, other)
    return None if one == other else _message(name, one, other)


def _difference_of_lists(
    one: Sequence[Any], other: Sequence[Any], dtype: str, name: str, slack: float, rounding: float
) -> str | None:
    if len(one) != len(other):
        return f"{name} has {len(one)} values here and {len(other)} there"
    if not all(_is_number(each) for each in (*one, *other)):
        pairs = enumerate(zip(one, other, strict=True))
        found = (difference(*pair, dtype, f"{name} {index}", rounding=rounding) for index, pair in pairs)
        return next((each for each in found if each is not None), None)
    bound = (_DECOMPOSITION * _eps(dtype) + slack) * max((abs(each) for each in (*one, *other)), default=0)
    bound = max(bound, rounding)
    for index, (left, right) in enumerate(zip(one, other, strict=True)):
        if not _close(left, right, bound):
            return _message(f"{name}, number {index + 1},", left, right)
    return None


def data_of(resolved: Mapping[str, Any], *, on_gpu: bool) -> str:
    """Return a key that is equal for two runs that worked on the same numbers."""
    return json.dumps([resolved, on_gpu], sort_keys=True, default=str)


def _close(one: float, other: float, bound: float) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return one == other or (math.isfinite(one) and math.isfinite(other) and abs(one - other) <= bound)


def _message(name: str, one: Any, other: Any) -> str:
    return f"{name} is {_text(one)} here and {_text(other)} there"


def _text(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else f"{quoted(value)}"


def _eps(dtype: str) -> float:
    return _EPS.get(dtype, _EPS_OF_FLOAT64)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
