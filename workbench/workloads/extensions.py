"""Scientific fields: packages that bring workloads, and the extensions for their files and answers.

An entry point names the `Extension` of each, as in `workbench.climate` and `workbench.genotypes`:

    [project.entry-points."workbench.extensions"]
    climate = "workbench.climate.extension:EXTENSION"

Nothing else of this package knows a field: without its package and entry point, everything else works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from workbench.errors import FailedError
from workbench.packages import entry_points
from workbench.storage.formats.base import Format as Format
from workbench.threads import load_entry_point

if TYPE_CHECKING:
    import xarray as xr

    from workbench.workloads.registry import Template

GROUP = "workbench.extensions"


@dataclass(frozen=True)
class Pictures:
    """Pictures of an answer that only this field can draw."""

    draws: Callable[[xr.DataArray], bool]
    """Predicate of the arrays drawn here, and in no other way."""
    draw: Callable[[xr.Dataset], Iterator[Any]]
    """Function that returns the pictures of an answer's arrays, each a `workbench.figures.answers.Picture`."""


class Writer(Protocol):
    """Writer of answers for the programs of a field."""

    def __call__(self, arrays: xr.Dataset, /) -> Mapping[str, Iterator[str]]:
        """Return the lines of each file by its ending.

        Raises BadInputError if such files don't hold these arrays.
        """


@dataclass(frozen=True)
class Extension:
    """Workloads, formats, writers and pictures of a scientific field."""

    title: str
    """Title of its group in the list of workloads."""
    workloads: tuple[Template, ...] = ()
    formats: tuple[Format, ...] = ()
    writers: Mapping[str, Writer] = field(default_factory=dict)
    """Writers by the ending of a file that a run's answer is saved as."""
    pictures: Pictures | None = None


class Unusable(NamedTuple):
    """An entry point that can't be used, with the reason."""

    where: str
    why: str


@cache
def loaded() -> tuple[tuple[Extension, ...], tuple[Unusable, ...]]:
    """Return all extensions in the order of their names, and those that can't be used."""
    usable, unusable = [], []
    for point in entry_points(GROUP):
        try:
            extension = load_entry_point(point)
        except FailedError as err:
            unusable.append(Unusable(point.value, f"It can't be imported: {err}."))
            continue
        if isinstance(extension, Extension):
            usable.append(extension)
        else:
            unusable.append(Unusable(point.value, "It is no workbench.workloads.extensions.Extension."))
    return tuple(usable), tuple(unusable)


def extensions() -> tuple[Extension, ...]:
    """Return all installed extensions in the order of their names."""
    return loaded()[0]


def unusable() -> tuple[Unusable, ...]:
    """Return those that can't be used."""
    return loaded()[1]


def writers() -> Mapping[str, Writer]:
    """Return the writers of all extensions by file ending."""
    return {ending: write for each in extensions() for ending, write in each.writers.items()}


def format_of(name: str) -> Format | None:
    """Return the field's format for the ending of a file name; None for other endings."""
    lower = name.lower()
    matching = (each for extension in extensions() for each in extension.formats if lower.endswith(each.endings))
    return next(matching, None)
