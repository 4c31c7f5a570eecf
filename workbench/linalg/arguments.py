"""Arguments of an approximation, checked before anything is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.linalg.arrays import ArrayError

REAL = (int, float, np.integer, np.floating)
"""Types of real numbers, for isinstance."""


def whole(name: str, value: Any, what: str = "", least: int = 1) -> int:
    """Return `value` as a whole number; `what` says of what, such as "variants".

    Raises ArrayError if it is none, or below `least`.
    """
    if not isinstance(value, REAL) or isinstance(value, bool) or value != value // 1 or value < least:
        raise ArrayError(
            f"{name} is a whole number{f' of {what}' if what else ''} and at least {least}, not {value!r}."
        )
    return int(value)


def flags(keep: Any = None, **given: Any) -> None:
    """Check that each is a bool; `keep` may be None, too.

    Raises ArrayError if one of them is something else.
    """
    for name, value in {"keep": False if keep is None else keep, **given}.items():
        if not isinstance(value, (bool, np.bool_)):
            raise ArrayError(
                f"{name} is {'True, False or None' if name == 'keep' else 'True or False'}, not {value!r}."
            )


def accuracy(tol: Any, max_passes: Any) -> tuple[float, int]:
    """Return a relative accuracy and the number of passes allowed to reach it.

    Raises ArrayError if one of them is out of bounds or isn't a number.
    """
    if not isinstance(tol, REAL) or not 0 < tol < 1:
        raise ArrayError(f"tol is a relative accuracy between 0 and 1, not {tol!r}.")
    return float(tol), whole("max_passes", max_passes)


def start(seed: Any, name: str = "seed") -> int:
    """Return a seed from anything NumPy or Dask take as one; None and a random generator draw it.

    Raises ArrayError if no numbers can be drawn with it.
    """
    for draw in ("randint", "integers"):
        if hasattr(seed, draw):
            return int(np.asarray(getattr(seed, draw)(2**31 - 1)))
    try:
        drawn = int(np.random.default_rng(seed).integers(2**32))
    except (TypeError, ValueError) as err:
        raise ArrayError(
            f"{name} is a whole number from 0 on, or a generator of random numbers, not {seed!r}."
        ) from err
    return int(seed) if isinstance(seed, int | np.integer) else drawn
