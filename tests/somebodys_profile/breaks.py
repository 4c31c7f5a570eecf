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
