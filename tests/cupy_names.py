"""Writes down which names CuPy has and which arguments they take, for the stand-in to have no others.

    python tests/cupy_names.py > tests/standin/cupy/names.txt

A Python with CuPy runs it; no driver is needed. A line is a name, or a name with its parameters.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any


def parameters(found: Callable[..., Any], *, method: bool = False) -> str | None:
    """Text of the parameters, each default as None; None where nobody can tell."""
    if type(found).__name__ == "ufunc":
        # As its documentation says; other keywords are "Wrong arguments".
        return "(*args, out=None, dtype=None, casting=None)"
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return of_documentation(found.__doc__ or "", method)
    plain = [
        each.replace(annotation=inspect.Parameter.empty, default=each.empty if each.default is each.empty else None)
        for each in list(signature.parameters.values())[method:]
    ]
    return str(inspect.Signature(plain))


def of_documentation(text: str, method: bool) -> str | None:
    """Return the parameters from the first line of Cython's docstring."""
    head = re.match(r"[\w.]+\((.*)\)(?: -> .*)?$", text.partition("\n")[0])
    if head is None:
        return None
    told = []
    for part in re.split(r",\s*(?![^()\[\]]*[)\]])", head[1])[method:]:
        name = part.partition("=")[0].split(":")[0].split()[-1] if part.strip() else ""
        told.append(f"{name}=None" if "=" in part and not name.startswith("*") else name)
    return f"({', '.join(told)})"


def lines(prefix: str, owner: Any, *, methods: bool = False) -> Iterator[str]:
    """Yield the public names of a module or a class."""
    for name in sorted(dir(owner)):
        if name.startswith("_"):
            continue
        found = getattr(owner, name)
        told = parameters(found, method=methods) if callable(found) and not inspect.isclass(found) else None
        yield f"{prefix}{name}{told or ''}"


def main() -> None:
    """Print all names."""
    import cupy

    print(f"# CuPy {cupy.__version__}")
    for line in lines("", cupy):
        print(line)
    for name in ("linalg", "random", "cuda", "cuda.memory", "cuda.runtime"):
        owner = cupy
        for part in name.split("."):
            owner = getattr(owner, part)
        for line in lines(f"{name}.", owner):
            # Of the constants of the runtime there are hundreds.
            if name != "cuda.runtime" or "(" in line or "Error" in line:
                print(line)
    for name in ("ndarray", "random.RandomState", "cuda.Device", "cuda.Stream", "cuda.MemoryPool"):
        owner = cupy
        for part in name.split("."):
            owner = getattr(owner, part)
        for line in lines(f"{name}.", owner, methods=True):
            print(line)


if __name__ == "__main__":
    main()
