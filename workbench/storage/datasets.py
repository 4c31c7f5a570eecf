"""Variables with named dimensions: NetCDF, Zarr groups and GRIB as xarray opens them, and selections of them.

Sources: "NetCDF Climate and Forecast (CF) Metadata Conventions" 1.11, chapter 4, for which coordinate is which.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from workbench import formats
from workbench.errors import BadInputError, BadParameterError
from workbench.storage import conventions, places, read_errors
from workbench.storage.cf import has_calendar, variables
from workbench.storage.conventions import Stored
from workbench.storage.places import Options, Place
from workbench.storage.selecting import parse, positions, shown
from workbench.storage.sources import FORMATS, Source, source_of
from workbench.storage.written_chunks import hdf5_name
from workbench.storage.zarrs import is_marked

_OF_OTHERS = ("bounds", "climatology", "coordinates", "grid_mapping", "formula_terms", "compress")
"""Attributes that name other variables."""
NETCDF = (".nc", ".nc4", ".nc3", ".cdf", ".netcdf")
"""Suffixes of NetCDF files, which hold HDF5 since version 4."""


@dataclass(frozen=True)
class Picked:
    """The selected part of a variable of a dataset. Dimensions with a single selected place are dropped."""

    source: Source
    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Type of the stored numbers, interpreted by `numbers`."""
    stored: tuple[int, ...]
    """Lengths of the chunks in which it is stored."""
    places: Mapping[str, Sequence[int] | int]
    """Selection by dimension of the file: one position, or start, stop and step."""
    coords: Any
    """Coordinates of the selection, as xarray returns them."""
    attrs: Mapping[str, Any]
    """All stored attributes, those of packing too."""
    fill: Any = None
    """Fill value where nothing was written, if it stands for "missing" and no attribute says so."""

    @property
    def numbers(self) -> Stored:
        """Recipe for the stored numbers."""
        recipe = conventions.stored(self.title, self.dtype, self.attrs, self.fill)
        if not self.source.packed_differently:
            return recipe
        return replace(recipe, remarks=("Each file is unpacked by its own attributes, which differ.", *recipe.remarks))

    def reader(self, dims: Sequence[str]) -> Callable[..., np.ndarray[Any, Any]]:
        """Return a function that reads a block as stored, given a slice for each of its dimensions in this order."""
        return partial(_read, name=self.name, recipe=self.recipe() | {"dims": list(dims)})

    def recipe(self) -> dict[str, Any]:
        """Return the other arguments of `read_part` besides the name, as JSON."""
        places = {dim: each if isinstance(each, int) else list(each) for dim, each in self.places.items()}
        return {"places": places, "dims": list(self.dims), "source": asdict(self.source)}

    def names(self, dims: Sequence[str], folded: Sequence[int]) -> Callable[[Sequence[int]], str]:
        """Return a function that describes an index, whose first number counts along `folded`, by coordinates."""
        coords = [self.coords[dim].values if dim in self.coords.variables else None for dim in dims]
        return partial(_in_words, tuple(dims), coords, tuple(folded))

    @property
    def variable(self) -> str:
        """Name, after its group's."""
        return f"{self.source.group}/{self.name}" if self.source.group else self.name

    @property
    def title(self) -> str:
        """Path and name."""
        return f"{self.source.path} ({self.name})"


def _read(*where: slice, name: str, recipe: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return read_part(name, where, recipe)


def read_part(name: str, where: Sequence[slice], recipe: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """Read a block of the selected part of a variable, as stored."""
    parts = _parts(recipe["places"], dict(zip(recipe["dims"], where, strict=True)))
    source, dims = Source(**recipe["source"]), recipe["dims"]
    if not source.files:
        return _block(source, name, parts, dims)
    blocks = [
        _block(replace(source, path=file, files=()), name, parts | {source.along: inside}, dims)
        for file, inside in _of_files(source, parts[source.along])
    ]
    return np.concatenate(blocks, axis=dims.index(source.along)) if len(blocks) > 1 else blocks[0]


def _block(source: Source, name: str, parts: Mapping[str, Any], dims: Sequence[str]) -> np.ndarray[Any, Any]:
    place, stored = Place(source.path, source.options), f"{source.group}/{name}" if source.group else name
    with source.opened() as dataset:
        variable = dataset[name].variable

        def explain(err: Exception) -> str:
            where = [_range_of(parts.get(dim, slice(None)), length) for dim, length in variable.sizes.items()]
            format = {"zarr": "zarr", "h5netcdf": "hdf5"}.get(source.engine, source.engine)
            return str(read_errors.explained(err, source.path, stored, format, place.options, where))

        with read_errors.naming_chunks(explain):
            block = variable.isel(parts).transpose(*dims).values
    if source.packed_differently:
        attrs = variable.attrs
        fill = None if "_FillValue" in attrs else _fill(source, name, variable.dtype)
        return np.asarray(conventions.stored(f"{source.path} ({name})", variable.dtype, attrs, fill).numbers_of(block))
    return np.asarray(block, block.dtype.newbyteorder("="))


def _range_of(part: Any, length: int) -> slice:
    """Return the range of a part of a dimension."""
    if isinstance(part, slice):
        start, stop, _ = part.indices(length)
        return slice(start, stop)
    return slice(part, part + 1) if isinstance(part, int) else slice(0, length)


def _of_files(source: Source, part: Any) -> Iterator[tuple[str, slice | int]]:
    """Yield the files that contain a part of the shared dimension, and the part of each."""
    if isinstance(part, np.ndarray):
        for each in (part[part < 0] + source.ends[-1], part[part >= 0]):
            yield from _of_files(source, slice(each[0], each[-1] + 1, 1)) if len(each) else ()
        return
    indices = range(part, part + 1) if isinstance(part, int) else range(part.start, part.stop, part.step)
    for file, start, end in zip(source.files, (0, *source.ends), source.ends, strict=False):
        inside = indices[bisect_left(indices, start) : bisect_left(indices, end)]
        if inside:
            first = inside[0] - start
            yield file, first if isinstance(part, int) else slice(first, inside[-1] - start + 1, inside.step)


def along(coords: Any, dims: Sequence[str]) -> dict[str, Any]:
    """Return coordinates along these dimensions, and those of one value."""
    coordinates: dict[str, Any] = {}
    for name, each in coords.variables.items():
        values = plain(each.values)
        # A missing scalar, or a text, says nothing about the dimensions.
        if set(each.dims) <= set(dims) and (each.ndim or (values.dtype.kind in "iufMO" and values == values)):
            coordinates[str(name)] = each.dims, values, said(each.attrs)
    return coordinates


def plain(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return values as `storage.variables.encoded` takes them: objects as text, except dates of any calendar."""
    if values.dtype.kind != "O" or has_calendar(values):
        return values
    texts = [getattr(value, "isoformat", value.__str__)() for value in values.flat]
    return np.array(texts, dtype="U").reshape(values.shape)


def said(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a coordinate's own attributes as Python text and numbers."""
    plain = {str(name): value.item() if isinstance(value, np.generic) else value for name, value in attrs.items()}
    return {
        name: value
        for name, value in plain.items()
        if isinstance(value, (str, int, float)) and name not in (*conventions.ATTRIBUTES, *_OF_OTHERS)
    }


def _in_words(dims: Sequence[str], coords: Sequence[Any], folded: Sequence[int], place: Sequence[int]) -> str:
    whole = (*map(int, np.unravel_index(place[0], folded)), *place[1:])
    values = (index if each is None else each[index] for each, index in zip(coords, whole, strict=True))
    return ", ".join(f"{dim} {shown(value)}" for dim, value in zip(dims, values, strict=True))


def pick(path: Any, variable: str | None = None, select: str | None = None, options: Options | None = None) -> Picked:
    """Return the named variable of a dataset, and the selected part of it.

    Parameters
    ----------
    variable
        Name, in a group as "group/name"; None if the dataset has only one variable.
    select
        Places along dimensions: "time=1990:2020, level=500". Both ends of a range belong to it; they are values of
        coordinates, or positions if a dimension has none.

    Raises
    ------
    BadInputError
        There is no such variable or part; BadParameterError if the file itself is in order.
    MissingError
        A package that reads it isn't installed.
    """
    place = places.full(path, options)
    if files := files_of(place):
        return _together(place, files, variable, select)
    group, name = None, variable
    if variable is not None and "/" in variable.strip("/"):
        group, _, name = variable.strip("/").rpartition("/")
    source = source_of(place, group)
    with places.sentences_about(place, FORMATS), source.opened() as raw, source.decoded(raw) as dataset:
        elsewhere = [] if variables(dataset) or (name or "") in dataset.variables else source.in_groups()
        if len(elsewhere) == 1 and name is None:
            return pick(path, elsewhere[0], select, options)
        array = dataset[_named(place, dataset, name, elsewhere)]
        where = positions(place, array, parse(select))
        picked = _part(array, where)
        stored = array.encoding.get("shards") or array.encoding.get("preferred_chunks") or array.encoding.get("chunks")
        raw_array = raw.variables[array.name]
        return Picked(
            source,
            str(array.name),
            tuple(map(str, picked.dims)),
            tuple(picked.shape),
            raw_array.dtype.newbyteorder("="),
            _chunks(array, stored, picked, where),
            where,
            picked.coords.to_dataset().load(),
            dict(raw_array.attrs),
            None if "_FillValue" in raw_array.attrs else _fill(source, str(array.name), raw_array.dtype),
        )


def files_of(place: Place) -> list[str]:
    """Return the NetCDF files of a folder or a pattern such as series/*.nc; none for anything else.

    Raises
    ------
    BadInputError
        Nothing matches a pattern.
    """
    path = Path(place.path)
    if not place.is_url and path.is_dir() and not is_marked(place):
        return sorted(str(each) for each in path.iterdir() if each.suffix.lower() in NETCDF and each.is_file())
    if place.is_url or path.exists() or not set(place.path) & set("*?["):
        return []
    paths = places.matches(place.path)
    if not paths:
        raise BadInputError(f"No file matches {place}. Expected NetCDF files, a year in each for example.")
    return paths


def _together(place: Place, files: Sequence[str], variable: str | None, select: str | None) -> Picked:
    """Return the variable of several NetCDF files, one after the other along the dimension in which they differ."""
    import xarray as xr

    first = pick(files[0], variable)
    each = [first, *(pick(file, first.variable) for file in files[1:])]
    for other in each:
        if other.source.engine not in ("h5netcdf", "scipy"):
            raise BadInputError(f"{other.source.path} is no NetCDF file; only NetCDF files can be read together.")
        _check_alike(first, other)
    dim = _shared(place, each)
    if len(each) > 1:
        each.sort(key=lambda one: one.coords[dim].values.min())
        _check_order(each, dim)
    shared = [
        name
        for name, coord in first.coords.variables.items()
        if dim in coord.dims or all(name in one.coords and coord.equals(one.coords.variables[name]) for one in each)
    ]
    coords = [one.coords.drop_vars(set(one.coords.variables) - set(shared)) for one in each]
    joined = (
        xr.concat(coords, dim, coords="minimal", compat="override", join="override") if len(each) > 1 else coords[0]
    )
    ends = np.cumsum([one.shape[first.dims.index(dim)] for one in each]).tolist()
    shape = [ends[-1] if name == dim else length for name, length in zip(first.dims, first.shape, strict=True)]
    nothing = np.broadcast_to(np.zeros((), first.dtype), shape)
    array = xr.DataArray(nothing, joined.coords, first.dims, first.name)
    where = positions(place, array, parse(select))
    picked = _part(array, where)
    recipes = [one.numbers.recipe(one.dtype) for one in each]
    differ = any(recipe != recipes[0] for recipe in recipes)
    source = replace(first.source, path=place.path, files=[one.source.path for one in each], along=dim, ends=ends)
    plain = {name: value for name, value in first.attrs.items() if name not in conventions.ATTRIBUTES}
    return replace(
        first,
        source=replace(source, packed_differently=differ),
        dtype=np.dtype("float64") if differ else first.dtype,
        attrs=plain if differ else first.attrs,
        fill=None if differ else first.fill,
        dims=tuple(map(str, picked.dims)),
        shape=tuple(picked.shape),
        stored=_chunks(array, first.stored, picked, where),
        places=where,
        coords=picked.coords.to_dataset(),
    )


def _check_alike(first: Picked, other: Picked) -> None:
    """Raise BadInputError if the same variable of two files can't be one after the other."""
    facts = [
        {
            "dimensions": ", ".join(one.dims),
            "type": one.dtype.name,
            "engine": one.source.engine,
            "units": one.attrs.get("units"),
        }
        for one in (first, other)
    ]
    for name, value in facts[0].items():
        if facts[1][name] != value:
            raise BadInputError(
                f"{first.name} isn't the same in all files: its {name} is {value} in {first.source.path}, and "
                f"{facts[1][name]} in {other.source.path}. Give files of equal structure."
            )


def _shared(place: Place, each: Sequence[Picked]) -> str:
    """Return the one dimension in which files differ."""
    first = each[0]

    def differs(dim: str, other: Picked) -> bool:
        if dim not in first.coords.variables or dim not in other.coords.variables:
            return first.shape[first.dims.index(dim)] != other.shape[first.dims.index(dim)]
        return not first.coords.variables[dim].equals(other.coords.variables[dim])

    differing = [dim for dim in first.dims if any(differs(dim, other) for other in each[1:])]
    if len(each) == 1:
        return first.dims[0]
    if len(differing) != 1:
        how = f"differ along {formats.shortened(differing)}" if differing else "have the same coordinates"
        raise BadInputError(
            f"The {len(each)} files of {place} {how}. Expected files that differ along one dimension, such as time."
        )
    units = {str(one.coords[differing[0]].attrs.get("units")) for one in each if differing[0] in one.coords.variables}
    if len(units) != 1 or not all(differing[0] in one.coords.variables for one in each):
        why = f"counts from different times: {formats.shortened(sorted(units))}" if len(units) > 1 else "has no values"
        raise BadInputError(f"In the files of {place} {differing[0]} {why}, so that their order is unknown.")
    return differing[0]


def _check_order(each: Sequence[Picked], dim: str) -> None:
    for before, after in pairwise(each):
        if not before.coords[dim].values.max() < after.coords[dim].values.min():
            raise BadInputError(
                f"{before.source.path} and {after.source.path} overlap: both have {dim} "
                f"{shown(after.coords[dim].values.min())}. Give files that do not overlap."
            )


def _fill(source: Source, name: str, dtype: np.dtype[Any]) -> Any:
    """Return NetCDF's default fill value of such a variable, if this one is filled so."""
    if source.engine == "scipy":
        return conventions.netcdf_default(dtype)
    if source.engine != "h5netcdf" or conventions.netcdf_default(dtype) is None:
        return None
    import h5py

    with Place(source.path, source.options).open() as file, h5py.File(file, "r") as opened:
        dataset = opened.get(hdf5_name(opened, f"{source.group or ''}/{name}".strip("/")))
        return conventions.netcdf_fill(dtype, dataset.fillvalue) if isinstance(dataset, h5py.Dataset) else None


def _named(place: Place, dataset: Any, name: str | None, elsewhere: Sequence[str] = ()) -> str:
    """Return the name of the variable meant; those in groups are offered only if there are no others."""
    names = variables(dataset) or elsewhere
    choices = formats.shortened(names)
    if name is not None and name in dataset.variables:
        named_variable = dataset[name]
        if named_variable.dtype.kind not in "biuf" or not named_variable.ndim:
            raise BadParameterError(
                f"The variable {name!r} of {place} holds no numbers along a dimension. "
                f"{f'Choose one of: {choices}.' if names else 'No other one does.'}",
                "variable",
            )
        return name
    if not names:
        raise BadParameterError(f"{place} holds no variable of numbers. Expected {FORMATS}.", "path")
    if name is not None:
        raise BadParameterError(f"There is no variable {name!r} in {place}. Choose one of: {choices}.", "variable")
    if len(names) > 1:
        raise BadParameterError(f"{place} holds {len(names)} variables. Name one of them: {choices}.", "variable")
    return names[0]


def _part(array: Any, places: Mapping[str, Sequence[int] | int]) -> Any:
    """Return the selected part of an array or of coordinates; longitudes across the file's ends keep rising."""
    parts = {dim: where for dim, where in _parts(places).items() if dim in array.sizes}
    part = (array if hasattr(array, "isel") else array.to_dataset()).isel(parts)
    for dim, where in parts.items():
        if isinstance(where, np.ndarray):
            turn = 360 * ((where >= 0) - int(array[dim].values.max() > 180))
            part = part.assign_coords({dim: part[dim].copy(data=part[dim].values + turn)})
    return part


def _parts(places: Mapping[str, Sequence[int] | int], where: Mapping[str, slice] | None = None) -> dict[str, Any]:
    """Return positions in the file of the selected part, or of a part of that."""
    parts: dict[str, Any] = {}
    for dim, each in places.items():
        if isinstance(each, int):
            parts[dim] = each
        else:
            part = range(*each)[(where or {}).get(dim, slice(None))]
            whole = slice(part.start, part.stop, part.step)
            parts[dim] = whole if part.start >= 0 else np.asarray(part)
    return parts


def _chunks(array: Any, stored: Any, picked: Any, where: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the lengths of stored chunks along the remaining dimensions; of a contiguous variable the last read."""
    dims = [str(dim) for dim in array.dims]
    if stored is None:
        stored = dict(zip(dims, (1,) * (len(dims) - 1) + array.shape[-1:], strict=True))
    lengths = stored if isinstance(stored, Mapping) else dict(zip(dims, stored, strict=True))
    longest = {dim: max(each) if isinstance(each, tuple) else int(each) for dim, each in lengths.items()}
    return tuple(
        min(picked.sizes[dim], max(1, math.ceil(longest.get(dim, 1) / where[dim][2]))) for dim in map(str, picked.dims)
    )
