"""What can go wrong in a way that a person can mend.

Each face turns these into its own form in one place: the server into a status with `{"message"}`, the panels into
a line of text, the command line into an exit code and one line on stderr.
"""

from __future__ import annotations

import re

_LONGEST_WORD = 300
"""Characters: as long as a path is in earnest. A name of thousands of them is repeated in part only."""


class WorkbenchError(Exception):
    """A sentence for a person: what was given, what is allowed, what to do.

    `status` is the HTTP status it maps to, `exit_code` the command line's.
    """

    status = 400
    exit_code = 2

    def __init__(self, *sentence: object) -> None:
        super().__init__(*(_shortened(part) if isinstance(part, str) else part for part in sentence))


class BadInputError(WorkbenchError):
    """A parameter that can't be used; nothing was started."""


class NotFoundError(WorkbenchError):
    """A cluster, run or workload of a name that doesn't exist."""

    status = 404


class ConflictError(WorkbenchError):
    """A request that is well formed but clashes with what is running, such as a name in use."""

    status = 409


class MissingError(WorkbenchError):
    """A package, driver or program that the request needs isn't there; the sentence says how to get it."""

    status = 409


class FailedError(WorkbenchError):
    """A cluster or a run that was started and failed."""

    status = 409
    exit_code = 1


def _shortened(text: str) -> str:
    return re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda word: f"{word[0][:60]}…{word[0][-20:]}", text)
