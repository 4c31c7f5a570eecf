"""Names and arguments of CuPy's functions, as recorded by tests/cupy_names.py."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import Any

_LINES = Path(__file__).with_name("names.txt").read_text().splitlines()
VERSION = _LINES[0].split()[-1]
NAMES = {line.partition("(")[0]: line for line in _LINES[1:]}


def known(prefix: str, name: str) -> str:
    """Return the name with its module or class. Raises AttributeError if CuPy lacks it."""
    full = f"{prefix}{name}"
    if full not in NAMES:
        raise AttributeError(f"CuPy {VERSION} has no {full}, though NumPy may.")
    return full


def fits(full: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise TypeError as CuPy does where it doesn't take these arguments."""
    signature = _signature(full)
    if signature is not None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as err:
            raise TypeError(f"cupy.{NAMES[full]}: {err}, though NumPy may take it.") from None


@cache
def _signature(full: str) -> inspect.Signature | None:
    _, opened, parameters = NAMES[full].partition("(")
    return inspect.signature(eval(f"lambda {parameters[:-1]}: None")) if opened else None
