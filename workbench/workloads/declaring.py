"""What a person may say of a function beside its signature, by `@workbench.workload(title=…, check=…)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Declared:
    """What was said of a function."""

    title: str | None = None
    check: Callable[..., Any] | None = None
    needs: Callable[..., Any] | None = None
    presets: Mapping[str, Mapping[str, Any]] | None = None


@overload
def workload(function: F, /) -> F: ...
@overload
def workload(
    *,
    title: str | None = None,
    check: Callable[..., Any] | None = None,
    needs: Callable[..., Any] | None = None,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[F], F]: ...
def workload(
    function: F | None = None,
    /,
    *,
    title: str | None = None,
    check: Callable[..., Any] | None = None,
    needs: Callable[..., Any] | None = None,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
) -> F | Callable[[F], F]:
    """Declare a function as a workload, also without parentheses; it stays the function that it is.

    Parameters
    ----------
    title
        What lists call it.
    check
        Called with the answer, and with those parameters of the workload that it names. It returns whether the answer
        is right, or that and a sentence, or these and by how much rounding may put the numbers of the answer off, which
        decides whether answers near zero agree. An `assert` that fails says that it isn't right.
    needs
        Called with those parameters that it names, before anything runs. It returns what all workers together must
        hold: bytes, or a text such as '2GiB'.
    presets
        Parameters under a name in lower case, which a click, or `-p preset=NAME`, fills in.

    Examples
    --------
    >>> def is_even(value, n):
    ...     return value % 2 == 0, f"the sum of {n} even numbers is even"
    >>> @workbench.workload(title="Sum of even numbers", check=is_even, presets={"large": {"n": 10**9}})
    ... def total(n: int = 10):
    ...     return (2 * dask.array.arange(n)).sum()
    """

    def declare(function: F) -> F:
        function.__workbench__ = Declared(title, check, needs, presets)  # type: ignore[attr-defined]
        return function

    return declare if function is None else declare(function)


def declared(function: Callable[..., Any]) -> Declared:
    """What was said of a function; nothing of one that wasn't declared."""
    found = getattr(function, "__workbench__", None)
    return found if isinstance(found, Declared) else Declared()
