"""What an approximation is asked for, checked before anything is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.linalg.blocks import ArrayError

REAL = (int, float, np.integer, np.floating)
"""Types of a real number, to ask isinstance for."""


def whole(name: str, value: Any, what: str = "", least: int = 1) -> int:
    """`value` as a whole number; `what` says of what, such as "variants".

    Raises
    ------
    ArrayError
        It is none, or below `least`.
    """
    if not isinstance(value, REAL) or isinstance(value, bool) or value != value // 1 or value < least:
        raise ArrayError(
            f"{name} is a whole number{f' of {what}' if what else ''} and at least {least}, not {value!r}."
        )
    return int(value)


def accuracy(tol: Any, max_passes: Any) -> tuple[float, int]:
    """A relative accuracy, and how many passes may be made to reach it.

    Raises
    ------
    ArrayError
        One of them is out of its bounds, or no number.
    """
    if not isinstance(tol, REAL) or not 0 < tol < 1:
        raise ArrayError(f"tol is a relative accuracy between 0 and 1, not {tol!r}.")
    return float(tol), whole("max_passes", max_passes)


def start(seed: Any) -> Any:
    """A seed that NumPy's default_rng takes, of whatever NumPy or Dask take; None is a seed too.

    Raises
    ------
    ArrayError
        No numbers can be drawn with it.
    """
    if seed is None:
        return 0
    for draw in ("randint", "integers"):
        if hasattr(seed, draw) and not isinstance(seed, np.random.Generator):
            return int(np.asarray(getattr(seed, draw)(2**31 - 1)))
    try:
        np.random.default_rng(seed)
    except (TypeError, ValueError) as err:
        raise ArrayError(f"seed is a whole number from 0 on, or a generator of random numbers, not {seed!r}.") from err
    return seed
