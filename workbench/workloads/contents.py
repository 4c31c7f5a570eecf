"""Contents of a file, before anything runs on it: arrays with shape, dtype, chunks and compression, and dimensions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from pydantic import BaseModel

from workbench import formats
from workbench.errors import BadInputError, MissingError
from workbench.storage import datasets, places, sources
from workbench.storage.cf import has_calendar
from workbench.storage.decoders import check_decoders
from workbench.storage.formats import format_of
from workbench.storage.formats.base import FORMATS, Format, Held, check_any
from workbench.storage.places import Options, Place
from workbench.storage.selecting import shown
from workbench.workloads import extensions

_MOST = 500
"""Limit of listed arrays."""
_MOST_FILES = 100
"""Number of files that are opened for their coordinates, which takes about four seconds."""


class Dimension(BaseModel, frozen=True):
    """A named dimension; `first` and `last` are the values of its coordinate at both ends, where it has one."""

    name: str
    length: int
    first: str | None = None
    last: str | None = None
    calendar: str | None = None
    """Calendar of its times by CF's name, where NumPy's dates don't have it."""

    def line(self) -> str:
        """Return everything but its name, on one line."""
        ends = f", {self.first} to {self.last}" if self.first is not None else ""
        return f"{formats.count(self.length)}{ends}{f', calendar {self.calendar}' if self.calendar else ''}"


class Contents(BaseModel, frozen=True):
    """Contents of a file, folder or URL."""

    path: str
    format: str
    n_bytes: int | None
    """Bytes of the file, or of all files of a folder; None where a server doesn't say."""
    arrays: tuple[Held, ...]
    dimensions: tuple[Dimension, ...] = ()
    choices: dict[str, tuple[str, ...]]
    """Choices for a form, by the field's name: array, variable, time."""
    remarks: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return format, size and number of arrays, on one line."""
        size = "" if self.n_bytes is None else f", {formats.size(self.n_bytes)}"
        return f"{self.format}{size}: {formats.count(len(self.arrays), 'array')}"


def look(path: str, options: Options | None = None) -> Contents:
    """Return the contents of a path or URL; of the numbers, only coordinates are read.

    Raises
    ------
    BadInputError
        There is nothing, or nothing readable.
    MissingError
        The package that reads it isn't installed; the message has the command that installs it.
    """
    place = places.full(path, options)
    with places.sentences_about(place, FORMATS):
        format = extensions.format_of(place.name) or format_of(place)
        arrays, remarks = format.look(place)
    if not place.is_url:  # whose server may not list what it has
        check_any(place, arrays)
    dimensions: tuple[Dimension, ...] = ()
    if format.dims != "none" and any(each.dims for each in arrays):
        try:
            dimensions = _dimensions(place, arrays)
        except (BadInputError, MissingError) as err:
            remarks = (*remarks, f"Coordinates were not read: {err}")
    if len(arrays) > _MOST:
        remarks = (*remarks, f"It holds {formats.count(len(arrays), 'array')}, of which the first {_MOST} are listed.")
    remarks += _undecodable(place, format, arrays)
    return Contents(
        path=place.path,
        format="NetCDF" if place.name.lower().endswith(datasets.NETCDF) else format.title,
        n_bytes=_size(place),
        arrays=arrays[:_MOST],
        dimensions=dimensions,
        choices=_choices(arrays, dimensions),
        remarks=remarks,
    )


def _undecodable(place: Place, format: Format, arrays: tuple[Held, ...]) -> tuple[str, ...]:
    """Return a message if a package that decompresses the largest array is missing."""
    largest = max((each for each in arrays if each.has_numbers), key=lambda each: each.n_bytes, default=None)
    try:
        if largest is not None:
            check_decoders(place, next(iter(format.readers), ""), largest.name or None)
    except (BadInputError, MissingError) as err:
        return (str(err),)
    return ()


def _size(place: Place) -> int | None:
    with contextlib.suppress(OSError, ValueError, NotImplementedError, TypeError):
        return sum(map(os.path.getsize, datasets.files_of(place))) or place.size() or (None if place.is_url else 0)
    return None


def _choices(arrays: tuple[Held, ...], dimensions: tuple[Dimension, ...]) -> dict[str, tuple[str, ...]]:
    numbers = [each for each in arrays if each.has_numbers and each.name not in (each.dims or ())]
    choices = {
        "array": [each.name for each in numbers if len(each.shape) == 2 and each.name],
        "variable": [each.name for each in numbers if each.dims and len(each.dims) > 1],
        "samples": [", ".join(each.name for each in group) for n in (1, 2) for group in combinations(dimensions, n)],
    }
    return {name: tuple(values[:_MOST]) for name, values in choices.items() if values}


def _dimensions(place: Place, arrays: tuple[Held, ...]) -> tuple[Dimension, ...]:
    """Return named dimensions with the ends of their coordinates, from each group that has some."""
    if files := datasets.files_of(place):
        variables = [each for each in arrays if each.has_numbers and each.name not in (each.dims or ())]
        if not variables or len(files) > _MOST_FILES:
            return ()
        largest = max(variables, key=lambda each: len(each.dims or ()))
        picked = datasets.pick(place.path, largest.name)
        return tuple(_of_sizes(dict(zip(picked.dims, picked.shape, strict=True)), picked.coords))
    groups = dict.fromkeys(each.name.rpartition("/")[0] for each in arrays if each.dims)
    dimensions: dict[str, Dimension] = {}
    for group in list(groups)[:20]:
        source = sources.source_of(place, group or None)
        with places.sentences_about(place, sources.FORMATS), source.opened() as raw, source.decoded(raw) as dataset:
            dimensions |= {each.name: each for each in _of_sizes(dataset.sizes, dataset.coords)}
    return tuple(dimensions.values())


def _of_sizes(sizes: Mapping[Any, int], coords: Any) -> Iterator[Dimension]:
    for name, length in sizes.items():
        facts: dict[str, str] = {}
        if name in coords and length:
            values = coords[name].values
            facts = {end: shown(values[place]) for end, place in (("first", 0), ("last", -1))}
            facts |= {"calendar": values[0].calendar} if has_calendar(values) else {}
        yield Dimension(name=str(name), length=int(length), **facts)
