"""Profiles that break in what they are asked."""

from __future__ import annotations

from typing import Any, NoReturn

from somebodys_profile import Tea


class Unsummed(Tea):
    """Breaks where profiles are listed."""

    name = "unsummed"

    def summary(self, inventory: Any) -> NoReturn:
        """Raise it."""
        raise KeyError("cups")


class Unlisted(Tea):
    """Breaks where clusters that run are listed, and where it is planned."""

    name = "unlisted"

    def running(self) -> Any:
        """Raise it when the first is asked for."""
        yield from {}["cups"]

    def plan(self, given: Any, around: Any) -> NoReturn:
        """Raise it."""
        raise KeyError("cups")


class Wrong(Tea):
    """Answers otherwise than a profile should."""

    name = "wrong"

    def plan(self, given: Any, around: Any) -> Any:
        """Return no spec."""
        return {"n_workers": 1}

    def code(self, spec: Any) -> Any:
        """Return no text."""

    def unavailable(self, around: Any) -> Any:
        """Return no text."""
        return self._said

    _said: Any = None

    def engine(self, *_: Any) -> Any:
        """Return no engine."""


class Refuses(Wrong):
    """Says in no text why it can't be had."""

    name = "refuses"
    _said = False


class Unnamed(Tea):
    """Has a number as its title."""

    name = "unnamed"
    title: Any = 3


class Unlettered(Tea):
    """Forgot a comma."""

    name = "unlettered"
    options: Any = "kind"


class Unmodelled(Tea):
    """Takes no pydantic model for its choices."""

    name = "unmodelled"
    model: Any = dict
