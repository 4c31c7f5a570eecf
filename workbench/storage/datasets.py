"""Variables with named dimensions: NetCDF, Zarr groups and GRIB as xarray opens them, and what of them is meant.

Sources: "NetCDF Climate and Forecast (CF) Metadata Conventions" 1.11, chapter 4, for which coordinate is which.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from workbench.errors import BadInputError, BadParameterError, MissingError, install
from workbench.storage import places
from workbench.storage.places import Options, Place
from workbench.storage.zarrs import is_marked

FORMATS = "NetCDF, a Zarr group as xarray writes it, or GRIB"
_STARTS = {b"CDF": "scipy", b"\x89HDF": "h5netcdf", b"GRIB": "cfgrib", b"PK": "zarr"}
_NORTH = {"degrees_north", "degree_north", "degree_n", "degrees_n", "degreen", "degreesn"}
_TIMES = {"time", "t", "valid_time"}
_LATITUDES = {"lat", "latitude", "nav_lat", "xlat"}
_NOT_FOUND = 20


@dataclass(frozen=True)
class Source:
    """Where a dataset is and how it is opened: plain data, with which each worker opens it for itself."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "zarr"
    group: str | None = None
    consolidated: bool | None = None

    @contextmanager
    def opened(self, **how: Any) -> Iterator[Any]:
        """The dataset; values of its variables are read when they are asked for."""
        xr, place = _xarray(self.path), Place(self.path, self.options)
        how = {"engine": self.engine, "chunks": None, "cache": False, **how}
        how |= {"group": self.group} if self.group else {}
        how |= {"phony_dims": "sort"} if self.engine == "h5netcdf" else {}
        # What cfgrib would write beside the file is for whoever opens it often.
        how |= {"indexpath": ""} if self.engine == "cfgrib" else {}
        with ExitStack() as stack:
            where: Any = self.path
            if self.engine == "zarr":
                where = stack.enter_context(_store(place))
                how |= {"consolidated": self.consolidated, **place.zarr_options}
            elif place.is_url:
                where = stack.enter_context(place.open())
            yield stack.enter_context(xr.open_dataset(where, **how))


@dataclass(frozen=True)
class Picked:
    """A variable of a dataset, as far as it was selected. Dimensions of which one place was selected are gone."""

    source: Source
    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored: tuple[int, ...]
    """Lengths of the chunks in which it is stored."""
    places: Mapping[str, Sequence[int] | int]
    """By dimension of the file: one position, or start, stop and step."""
    coords: Any
    """Coordinates of the selection, as xarray has them."""
    attrs: Mapping[str, Any]

    def reader(self, dims: Sequence[str]) -> Callable[..., np.ndarray[Any, Any]]:
        """Function that reads a block for `dask.array.map_blocks`, its dimensions in this order; NaN is missing."""
        return partial(_read_block, name=self.name, recipe=self.recipe() | {"dims": list(dims)})

    def recipe(self) -> dict[str, Any]:
        """What `read_part` needs beside the name, as JSON."""
        places = {dim: each if isinstance(each, int) else list(each) for dim, each in self.places.items()}
        return {"places": places, "dims": list(self.dims), "source": asdict(self.source)}

    def names(self, dims: Sequence[str], folded: Sequence[int]) -> Callable[[Sequence[int]], str]:
        """Function that says in words which place an index is, whose first number counts along all of `folded`."""
        known = [self.coords[dim].values if dim in self.coords.variables else None for dim in dims]
        return partial(_in_words, tuple(dims), known, tuple(folded))

    @property
    def title(self) -> str:
        """Path and name."""
        return f"{self.source.path} ({self.name})"


def _read_block(block_info: Any, name: str, recipe: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return read_part(name, [slice(*bounds) for bounds in block_info[None]["array-location"]], recipe)


def read_part(name: str, where: Sequence[slice], recipe: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """Block of a variable as it was selected; NaN is missing."""
    parts = _parts(recipe["places"], dict(zip(recipe["dims"], where, strict=True)))
    # Times and coordinates stay as they are stored: decoding them takes longer than reading a block.
    with Source(**recipe["source"]).opened(decode_times=False, decode_coords=False) as dataset:
        return np.asarray(dataset[name].isel(parts).transpose(*recipe["dims"]).values)


def coords_of(name: str, recipe: Mapping[str, Any], dims: Sequence[str]) -> dict[str, Any]:
    """Coordinates of these dimensions of a variable as it was selected, as `Labelled` has them."""
    with Source(**recipe["source"]).opened() as dataset:
        return along(dataset[name].isel(_parts(recipe["places"])).coords, dims)


def along(coords: Any, dims: Sequence[str]) -> dict[str, Any]:
    """Coordinates along these dimensions; dates of other calendars than ours as text."""
    found: dict[str, Any] = {}
    for name, each in coords.variables.items():
        if each.ndim and set(each.dims) <= set(dims):
            values = plain(each.values)
            found[str(name)] = values if each.dims == (name,) else (each.dims, values)
    return found


def plain(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values as formats hold them: objects, such as dates of other calendars than ours, as text."""
    if values.dtype.kind != "O":
        return values
    texts = [getattr(value, "isoformat", value.__str__)() for value in values.flat]
    return np.array(texts, dtype="U").reshape(values.shape)


def _in_words(dims: Sequence[str], known: Sequence[Any], folded: Sequence[int], place: Sequence[int]) -> str:
    whole = (*map(int, np.unravel_index(place[0], folded)), *place[1:])
    values = (index if each is None else each[index] for each, index in zip(known, whole, strict=True))
    return ", ".join(f"{dim} {shown(value)}" for dim, value in zip(dims, values, strict=True))


def pick(path: Any, variable: str | None = None, select: str | None = None, options: Options | None = None) -> Picked:
    """The variable of a dataset that is meant, and the part of it that is selected.

    Parameters
    ----------
    variable
        Its name, of a variable in a group "group/name"; None where the dataset has but one.
    select
        Places along dimensions: "time=1990:2020, level=500". Both ends of a range belong to it; values of coordinates
        are meant, positions where a dimension has none.

    Raises
    ------
    BadInputError
        There is no such thing, in one sentence; BadParameterError where the file itself is in order.
    MissingError
        A package that reads it isn't installed.
    """
    place = places.full(path, options)
    group, name = None, variable
    if variable is not None and "/" in variable.strip("/"):
        group, _, name = variable.strip("/").rpartition("/")
    source = source_of(place, group)
    with places.sentences_about(place, FORMATS), source.opened() as dataset:
        array = dataset[_named(place, dataset, name)]
        where = _positions(place, array, _asked(select))
        picked = array.isel(_parts(where))
        stored = array.encoding.get("shards") or array.encoding.get("preferred_chunks") or array.encoding.get("chunks")
        return Picked(
            source,
            str(array.name),
            tuple(map(str, picked.dims)),
            tuple(picked.shape),
            np.dtype(array.dtype),
            _chunks(array, stored, picked, where),
            where,
            picked.coords.to_dataset().load(),
            dict(array.attrs),
        )


def source_of(place: Place, group: str | None = None) -> Source:
    """How the dataset at a place is opened."""
    with places.sentences_about(place, FORMATS):
        source = Source(place.path, dict(place.options), _engine(place), group)
        if source.engine != "zarr":
            return source
        for consolidated in (True, False):
            source = Source(place.path, dict(place.options), "zarr", group, consolidated)
            try:
                with source.opened(decode_times=False, decode_coords=False):
                    return source
            except (ValueError, KeyError):
                if not consolidated:
                    raise
    return source


def variables(dataset: Any) -> list[str]:
    """Names of the variables that hold numbers along some dimension, without bounds of cells."""
    bounds = {each.attrs.get("bounds") for each in dataset.variables.values()}
    return [
        str(name)
        for name, each in dataset.data_vars.items()
        if each.ndim and each.dtype.kind in "biuf" and name not in bounds
    ]


def time_of(coords: Any, dims: Sequence[str]) -> str | None:
    """The dimension of the times, by CF; None where there is none, or several."""
    found = [dim for dim in dims if dim in coords.variables and _is_time(coords[dim])]
    found = found or [dim for dim in dims if dim.lower() in _TIMES]
    return found[0] if len(found) == 1 else None


def latitude_of(coords: Any, dims: Sequence[str]) -> Any | None:
    """The coordinate of latitudes along these dimensions, by CF; None where there is none."""
    found = [
        each
        for name, each in coords.variables.items()
        if each.ndim and set(each.dims) <= set(dims) and each.dtype.kind in "iuf" and _is_latitude(str(name), each)
    ]
    # In degrees north of the equator: on a rotated grid, those along the dimensions are others.
    return min(found, key=lambda each: each.ndim) if found else None


def _is_time(coord: Any) -> bool:
    if coord.attrs.get("axis") == "T" or coord.attrs.get("standard_name") == "time" or coord.dtype.kind == "M":
        return True
    return coord.dtype.kind == "O" and coord.size > 0 and hasattr(coord.values.flat[0], "calendar")


def _is_latitude(name: str, coord: Any) -> bool:
    if coord.attrs.get("standard_name") == "latitude" or str(coord.attrs.get("units", "")).lower() in _NORTH:
        return True
    return name.lower() in _LATITUDES and "rot" not in str(coord.attrs.get("standard_name", ""))


def _xarray(path: str) -> Any:
    if find_spec("xarray") is None:
        raise MissingError(f"Reading {path} needs xarray: {install('files')}.")
    import xarray

    return xarray


def _engine(place: Place) -> str:
    _xarray(place.path)
    fs, root = place.storage()
    if fs.isdir(root) or (place.is_url and is_marked(place)):
        return "zarr"
    with place.open() as file:
        start = file.read(8)
    if start[:4] == b"CDF\x05":
        raise BadInputError(
            f"{place} is NetCDF of the kind CDF-5, which can't be read here. Make one that can: nccopy -k nc4 OLD NEW."
        )
    engine = next((engine for magic, engine in _STARTS.items() if start.startswith(magic)), None)
    if engine is None:
        what = "is empty" if not start else "is in no format that can be read here"
        raise BadInputError(f"{place} {what}. Expected {FORMATS}.")
    if engine == "cfgrib" and place.is_url:
        raise BadInputError(f"{place} is GRIB at a URL, of which no parts can be read. Copy it to this machine.")
    if engine != "zarr" and find_spec(engine) is None:
        raise MissingError(f"Reading {place} needs {engine}: {install('grib' if engine == 'cfgrib' else 'files')}.")
    return engine


@contextmanager
def _store(place: Place) -> Iterator[Any]:
    if place.is_url or Path(place.path).is_dir():
        yield place.path
        return
    import zarr

    with zarr.storage.ZipStore(place.path, mode="r") as store:
        yield store


def _named(place: Place, dataset: Any, name: str | None) -> str:
    names = variables(dataset)
    if name is not None and name in dataset.variables:
        found = dataset[name]
        if found.dtype.kind not in "biuf" or not found.ndim:
            raise BadParameterError(
                f"The variable {name!r} of {place} holds no numbers along a dimension. Choose one of: {_list(names)}.",
                "variable",
            )
        return name
    if not names:
        raise BadParameterError(f"{place} holds no variable of numbers. Expected {FORMATS}.", "path")
    if name is not None:
        raise BadParameterError(f"There is no variable {name!r} in {place}. Choose one of: {_list(names)}.", "variable")
    if len(names) > 1:
        raise BadParameterError(f"{place} holds {len(names)} variables. Name one of them: {_list(names)}.", "variable")
    return names[0]


def _asked(select: str | None) -> dict[str, str]:
    """What is asked for of each dimension: "time=1990:2020, level=500"."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, re.split(r"[,;]", select or ""))):
        name, sign, value = map(str.strip, part.partition("="))
        if not name or not sign or not value:
            raise BadParameterError(
                f"select is {part!r}. Give dimensions with values or ranges, such as time=1990:2020, level=500.",
                "select",
            )
        found[name] = value
    return found


def _positions(place: Place, array: Any, asked: Mapping[str, str]) -> dict[str, Sequence[int] | int]:
    dims = [str(dim) for dim in array.dims]
    for name in asked:
        if name not in dims:
            raise BadParameterError(
                f"{place} ({array.name}) has no dimension {name!r} to select. It has: {_list(dims)}.", "select"
            )
    return {dim: _of_dimension(place, array, dim, asked.get(dim)) for dim in dims}


def _of_dimension(place: Place, array: Any, dim: str, asked: str | None) -> Sequence[int] | int:
    """One position, or start, stop and step of several."""
    length = array.sizes[dim]
    if asked is None:
        return (0, length, 1)
    coordinate = array.coords.get(dim)
    values = np.arange(length) if coordinate is None else coordinate.values
    first, sign, last = _ends(asked)
    try:
        chosen = _chosen(array, dim, values, first, last if sign else None, bool(sign))
    except (KeyError, ValueError, TypeError, OverflowError):
        chosen = np.arange(0)
    if not len(chosen):
        raise BadParameterError(
            f"Nothing of {place} lies at {dim}={asked}. {dim} goes from {shown(values[0])} to "
            f"{shown(values[-1])} in {length} steps.",
            "select",
        )
    if not sign and len(chosen) == 1:
        return int(chosen[0])
    step = int(chosen[1] - chosen[0]) if len(chosen) > 1 else 1
    if (np.diff(chosen) != step).any() or step < 1:
        raise BadParameterError(
            f"{dim}={asked} lies in several pieces of {place}, as {dim} is in no order. Sort it first.",
            "select",
        )
    return (int(chosen[0]), int(chosen[-1]) + 1, step)


def _ends(asked: str) -> tuple[str, str, str]:
    """Both ends of a range, which may be times of day with colons of their own."""
    parts = asked.split(":")
    if len(parts) % 2:
        return asked, "", ""
    middle = len(parts) // 2
    return ":".join(parts[:middle]).strip(), ":", ":".join(parts[middle:]).strip()


def _chosen(
    array: Any, dim: str, values: np.ndarray[Any, Any], first: str, last: str | None, ranged: bool
) -> np.ndarray[Any, Any]:
    if values.dtype.kind in "biuf":
        if not ranged:
            near = np.flatnonzero(np.isclose(values, float(first), rtol=1e-5, atol=1e-9))
            return near[np.argsort(np.abs(values[near] - float(first)), kind="stable")][:1]
        ends = [float(first) if first else -np.inf, float(last) if last else np.inf]
        low, high = sorted(ends)
        room = 1e-5 * np.maximum(np.abs(values), 1e-4)
        return np.flatnonzero((values >= low - room) & (values <= high + room))
    # Times, by pandas' and cftime's rules: "1990" is the whole year.
    import xarray as xr

    positions = xr.DataArray(np.arange(len(values)), coords={dim: array.coords[dim].variable}, dims=dim)
    wanted = slice(first or None, last or None) if ranged else first
    return np.atleast_1d(positions.sel({dim: wanted}).values)


def shown(value: Any) -> str:
    """A coordinate's value as text."""
    return f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)[:19].removesuffix("T00:00:00")


def _parts(places: Mapping[str, Sequence[int] | int], where: Mapping[str, slice] | None = None) -> dict[str, Any]:
    """Positions in the file of what was selected, or of a part of that."""
    found: dict[str, Any] = {}
    for dim, each in places.items():
        if isinstance(each, int):
            found[dim] = each
        else:
            part = range(*each)[(where or {}).get(dim, slice(None))]
            found[dim] = slice(part.start, part.stop, part.step)
    return found


def _chunks(array: Any, stored: Any, picked: Any, where: Mapping[str, Any]) -> tuple[int, ...]:
    """Lengths of stored chunks along the dimensions that are left; of a contiguous variable the last one's are read."""
    dims = [str(dim) for dim in array.dims]
    if stored is None:
        stored = dict(zip(dims, (1,) * (len(dims) - 1) + array.shape[-1:], strict=True))
    lengths = stored if isinstance(stored, Mapping) else dict(zip(dims, stored, strict=True))
    longest = {dim: max(each) if isinstance(each, tuple) else int(each) for dim, each in lengths.items()}
    return tuple(
        min(picked.sizes[dim], max(1, math.ceil(longest.get(dim, 1) / where[dim][2]))) for dim in map(str, picked.dims)
    )


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NOT_FOUND} more" if len(names) > _NOT_FOUND else ""
    return ", ".join(names[:_NOT_FOUND]) + more
