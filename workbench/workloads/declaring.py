"""Declarations about a workload besides its signature: `@workbench.workload(title=…, check=…)`.

Built-in workloads are declared in the same way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Declared:
    """Declarations about a function."""

    title: str | None = None
    prepare: Callable[..., Any] | None = None
    needs: Callable[..., Any] | None = None
    check: Callable[..., Any] | None = None
    code: Callable[..., Any] | None = None
    presets: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of those that are functions."""
        return tuple(name for name in ("prepare", "needs", "check", "code") if getattr(self, name) is not None)


@overload
def workload(function: F, /) -> F: ...
@overload
def workload(
    *,
    title: str | None = None,
    prepare: Callable[..., Any] | None = None,
    needs: Callable[..., Any] | None = None,
    check: Callable[..., Any] | None = None,
    code: Callable[..., Any] | None = None,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[F], F]: ...
def workload(
    function: F | None = None,
    /,
    *,
    title: str | None = None,
    prepare: Callable[..., Any] | None = None,
    needs: Callable[..., Any] | None = None,
    check: Callable[..., Any] | None = None,
    code: Callable[..., Any] | None = None,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
) -> F | Callable[[F], F]:
    """Declare a function as a workload, also without parentheses; it stays the function that it is.

    Each of the functions is called with those parameters of the workload that it names.

    Parameters
    ----------
    title
        Name in lists.
    prepare
        Called before anything runs, also with `cluster` and `given` if it names them: the cluster's `memory` in bytes,
        `threads`, `threads_per_worker` and `on_gpu`, if known, and the parameters that the user gave.
        It returns the parameters that it changes, such as {"chunks": 500}, or these and messages about them. Raise an
        error with one message for what cannot be computed.
    needs
        Called before anything runs, also with `threads_per_worker` if it names that. It returns the memory needed by
        all workers together: bytes, a text such as '2GiB', or `workbench.Needs`.
    check
        Called with the answer first, and with `client` if it names that. It returns True if the answer is right, or
        that and a message, or these and the largest effect of rounding on the numbers of the answer, which decides
        if answers near zero agree, or `workbench.Check`. A failing `assert` means that it is wrong.
    code
        Called also with `on_gpu` if it names that. It returns the text of a notebook cell that computes the same; by
        default the text of the file and a call.
    presets
        Parameters under a name in lower case, filled in by a click, or by `-p preset=NAME`.

    Examples
    --------
    >>> def is_even(value, n):
    ...     return value % 2 == 0, f"the sum of {n} even numbers is even"
    >>> @workbench.workload(title="Sum of even numbers", check=is_even, presets={"large": {"n": 10**9}})
    ... def total(n: int = 10):
    ...     return (2 * dask.array.arange(n)).sum()
    """

    def declare(function: F) -> F:
        function.__workbench__ = Declared(title, prepare, needs, check, code, presets)  # type: ignore[attr-defined]
        return function

    return declare if function is None else declare(function)


def declared(function: Callable[..., Any]) -> Declared:
    """Return the declarations about a function; none if it has no decorator."""
    found = getattr(function, "__workbench__", None)
    return found if isinstance(found, Declared) else Declared()


def called(function: Callable[..., Any], parameters: Mapping[str, Any], *first: Any, **around: Any) -> Any:
    """Call a function that was declared with a workload, with the parameters and other values that it names."""
    accepted = inspect.signature(function).parameters
    everything = any(each.kind is each.VAR_KEYWORD for each in accepted.values())
    given = {name: value for name, value in parameters.items() if everything or name in accepted}
    return function(*first, **{name: value for name, value in around.items() if name in accepted} | given)
