"""Variables with named dimensions: NetCDF, Zarr groups and GRIB as xarray opens them, and what of them is meant.

Sources: "NetCDF Climate and Forecast (CF) Metadata Conventions" 1.11, chapter 4, for which coordinate is which.
"""

from __future__ import annotations

import math
import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from workbench import formats
from workbench.errors import BadInputError, BadParameterError, MissingError, install
from workbench.storage import conventions, places, unreadable
from workbench.storage.conventions import Stored
from workbench.storage.places import Options, Place
from workbench.storage.written import hdf5_name
from workbench.storage.zarrs import images_of, is_marked, opened_at, outdated

FORMATS = "NetCDF, a Zarr group as xarray writes it, GRIB, or images as TIFF or OME-Zarr"
IMAGES = "images"
"""What opens these: xarray has no engine for them."""
_STARTS = {b"CDF": "scipy", b"\x89HDF": "h5netcdf", b"GRIB": "cfgrib", b"PK": "zarr"}
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""Bytes with which such a file begins."""
_STARTS |= dict.fromkeys(TIFF, IMAGES)
_NORTH = {"degrees_north", "degree_north", "degree_n", "degrees_n", "degreen", "degreesn"}
_EAST = {each.replace("north", "east").replace("n", "e") for each in _NORTH}
_OF_OTHERS = ("bounds", "climatology", "coordinates", "grid_mapping", "formula_terms", "compress")
"""Attributes that name other variables."""
_RADIANS = {"radian", "radians", "rad"}
_TIMES = {"time", "t", "valid_time"}
_LATITUDES = {"lat", "latitude", "nav_lat", "xlat", "clat", "latcell"}
_LONGITUDES = {"lon", "longitude"}
_NEEDED = {"cfgrib": ("cfgrib", "grib"), IMAGES: ("tifffile", "images")}
"""The package that an engine is in, and our extra that brings it."""
_NETCDF = (".nc", ".nc4", ".nc3", ".cdf", ".netcdf")
_END = r"[^:]*[T ]\d{1,2}(?::\d\d){1,2}Z?|[^:]*"
_RANGE = re.compile(f"({_END})(?:(:)({_END}))?")
"""Two ends with a colon between them, which times of day have, too."""
_TIME = re.compile(r"(-?\d{1,4})(?:-?(\d\d)(?:-?(\d\d)(?:[T ](\d\d?)(?::(\d\d)(?::(\d\d))?)?Z?)?)?)?")
_FIRST = (-9999, 1, 1, 0, 0, 0)
_LAST = (9999, 12, 31, 23, 59, 59)


@dataclass(frozen=True)
class Source:
    """Where a dataset is and how it is opened: plain data, with which each worker opens it for itself."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "zarr"
    group: str | None = None
    consolidated: bool | None = None
    files: Sequence[str] = ()
    """NetCDF files that are read as one, in their order along the dimension `along`."""
    along: str = ""
    ends: Sequence[int] = ()
    """Where along it each file ends."""
    packed_apart: bool = False
    """Whether each file's numbers are unpacked by its own attributes, which differ."""

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """The dataset as it is stored; values of its variables are read when they are asked for."""
        if self.engine == IMAGES:
            with _images(Place(self.path, self.options)) as dataset:
                yield dataset
            return
        import xarray as xr

        with self._place() as (where, how):
            how |= {"group": self.group} if self.group else {}
            try:
                opened = xr.open_dataset(where, **how)
            except (ValueError, TypeError, IndexError, EOFError) as err:
                if self.engine != "scipy":
                    raise
                raise BadInputError(
                    f"{self.path} is cut short or damaged: its header tells of more than its "
                    f"{Place(self.path, self.options).size()} bytes. Copy or write it again."
                ) from err
            with opened as dataset:
                yield dataset

    @contextmanager
    def decoded(self, raw: Any) -> Iterator[Any]:
        """The same dataset with its coordinates, of the groups above it, too: dates are dates, and gaps NaN."""
        with ExitStack() as stack:
            parts = (self.group or "").split("/")
            for count in range(len(parts) - 1, -1, -1) if self.group else ():
                with suppress(BadInputError):
                    above = source_of(Place(self.path, self.options), "/".join(parts[:count]) or None)
                    raw = _with_coordinates(raw, stack.enter_context(above.opened()))
            found = _decoded(raw)
            # xarray takes a variable with the name of a dimension for a coordinate, even if it has other dimensions.
            yield found.reset_coords([name for name in found.coords if found[name].ndim > 1 and name in found.dims])

    def in_groups(self) -> list[str]:
        """Names of the variables in the groups below, "group/name"; none where that can't be told."""
        import xarray as xr

        with suppress(ValueError, OSError, LookupError, NotImplementedError), self._place() as (where, how):
            groups = xr.open_groups(where, **how)
            found = ([group.strip("/"), name] for group, each in groups.items() for name in variables(_decoded(each)))
            return sorted(map("/".join, found))
        return []

    @contextmanager
    def _place(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """What xarray opens, and how."""
        place = Place(self.path, self.options)
        how: dict[str, Any] = {"engine": self.engine, "chunks": None, "cache": False, "decode_cf": False}
        how |= {"phony_dims": "sort"} if self.engine == "h5netcdf" else {}
        # What cfgrib would write beside the file is for whoever opens it often.
        how |= {"indexpath": ""} if self.engine == "cfgrib" else {}
        with ExitStack() as stack:
            where: Any = self.path
            if self.engine == "h5netcdf":
                with suppress(ImportError):
                    import hdf5plugin  # noqa: F401  it registers the filters that it brings
            if self.engine == "zarr":
                where = stack.enter_context(opened_at(place))
                how |= {"consolidated": self.consolidated, **place.zarr_options}
            elif place.is_url:
                where = stack.enter_context(place.open())
            yield where, how


@dataclass(frozen=True)
class Picked:
    """A variable of a dataset, as far as it was selected. Dimensions of which one place was selected are gone."""

    source: Source
    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Of the stored numbers, which `numbers` says the meaning of."""
    stored: tuple[int, ...]
    """Lengths of the chunks in which it is stored."""
    places: Mapping[str, Sequence[int] | int]
    """By dimension of the file: one position, or start, stop and step."""
    coords: Any
    """Coordinates of the selection, as xarray has them."""
    attrs: Mapping[str, Any]
    """All that are stored, those of packing too."""
    fill: Any = None
    """What it is filled with where nothing was written, if that stands for "missing" and no attribute says so."""

    @property
    def numbers(self) -> Stored:
        """What the stored numbers mean."""
        found = conventions.stored(self.title, self.dtype, self.attrs, self.fill)
        if not self.source.packed_apart:
            return found
        return replace(found, remarks=("Each file is unpacked by its own attributes, which differ.", *found.remarks))

    def reader(self, dims: Sequence[str]) -> Callable[..., np.ndarray[Any, Any]]:
        """Function that reads a block for `dask.array.map_blocks`, its dimensions in this order, as it is stored."""
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
    def variable(self) -> str:
        """Its name with that of its group."""
        return f"{self.source.group}/{self.name}" if self.source.group else self.name

    @property
    def title(self) -> str:
        """Path and name."""
        return f"{self.source.path} ({self.name})"


def _read_block(block_info: Any, name: str, recipe: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return read_part(name, [slice(*bounds) for bounds in block_info[None]["array-location"]], recipe)


def read_part(name: str, where: Sequence[slice], recipe: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """Block of a variable as it was selected, of the numbers that are stored."""
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
            return str(unreadable.explained(err, source.path, stored, format, place.options, where))

        with unreadable.naming_chunks(explain):
            block = variable.isel(parts).transpose(*dims).values
    if source.packed_apart:
        attrs = variable.attrs
        fill = None if "_FillValue" in attrs else _fill(source, name, variable.dtype)
        return np.asarray(conventions.stored(f"{source.path} ({name})", variable.dtype, attrs, fill).numbers_of(block))
    return np.asarray(block, block.dtype.newbyteorder("="))


def _range_of(part: Any, length: int) -> slice:
    """The range that a part of a dimension lies in."""
    if isinstance(part, slice):
        start, stop, _ = part.indices(length)
        return slice(start, stop)
    return slice(part, part + 1) if isinstance(part, int) else slice(0, length)


def _of_files(source: Source, part: Any) -> Iterator[tuple[str, slice | int]]:
    """The files in which a part of the shared dimension lies, and which part of each."""
    if isinstance(part, np.ndarray):
        for each in (part[part < 0] + source.ends[-1], part[part >= 0]):
            yield from _of_files(source, slice(each[0], each[-1] + 1, 1)) if len(each) else ()
        return
    wanted = range(part, part + 1) if isinstance(part, int) else range(part.start, part.stop, part.step)
    for file, start, end in zip(source.files, (0, *source.ends), source.ends, strict=False):
        inside = wanted[bisect_left(wanted, start) : bisect_left(wanted, end)]
        if inside:
            first = inside[0] - start
            yield file, first if isinstance(part, int) else slice(first, inside[-1] - start + 1, inside.step)


def coords_of(name: str, recipe: Mapping[str, Any], dims: Sequence[str]) -> dict[str, Any]:
    """Coordinates of these dimensions of a variable as it was selected, as xarray takes them."""
    source = Source(**recipe["source"])
    if source.files:
        whole = pick(source.path, f"{source.group}/{name}" if source.group else name)
        return along(_part(whole.coords, recipe["places"]).coords, dims)
    with source.opened() as raw, source.decoded(raw) as dataset:
        return along(_part(dataset[name], recipe["places"]).coords, dims)


def along(coords: Any, dims: Sequence[str]) -> dict[str, Any]:
    """Coordinates along these dimensions, and those of one value; dates of other calendars than ours as text."""
    found: dict[str, Any] = {}
    for name, each in coords.variables.items():
        values = plain(each.values)
        # One value that is missing, or a word, tells nothing of the dimensions.
        if set(each.dims) <= set(dims) and (each.ndim or (values.dtype.kind in "iufM" and values == values)):
            found[str(name)] = each.dims, values, said(each.attrs)
    return found


def plain(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values as formats hold them: objects, such as dates of other calendars than ours, as text."""
    if values.dtype.kind != "O":
        return values
    texts = [getattr(value, "isoformat", value.__str__)() for value in values.flat]
    return np.array(texts, dtype="U").reshape(values.shape)


def said(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """What attributes tell of a coordinate by itself, as text and numbers of Python's."""
    known = {str(name): value.item() if isinstance(value, np.generic) else value for name, value in attrs.items()}
    return {
        name: value
        for name, value in known.items()
        if isinstance(value, (str, int, float)) and name not in (*conventions.ATTRIBUTES, *_OF_OTHERS)
    }


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
        where = positions(place, array, asked(select))
        picked = _part(array, where)
        stored = array.encoding.get("shards") or array.encoding.get("preferred_chunks") or array.encoding.get("chunks")
        held = raw.variables[array.name]
        return Picked(
            source,
            str(array.name),
            tuple(map(str, picked.dims)),
            tuple(picked.shape),
            held.dtype.newbyteorder("="),
            _chunks(array, stored, picked, where),
            where,
            picked.coords.to_dataset().load(),
            dict(held.attrs),
            None if "_FillValue" in held.attrs else _fill(source, str(array.name), held.dtype),
        )


def files_of(place: Place) -> list[str]:
    """The NetCDF files that a folder or a pattern such as series/*.nc means; none where it means something else.

    Raises
    ------
    BadInputError
        Nothing matches a pattern.
    """
    path = Path(place.path)
    if not place.is_url and path.is_dir() and not is_marked(place):
        return sorted(str(each) for each in path.iterdir() if each.suffix.lower() in _NETCDF and each.is_file())
    if place.is_url or path.exists() or not set(place.path) & set("*?["):
        return []
    found = places.matches(place.path)
    if not found:
        raise BadInputError(f"No file matches {place}. Expected NetCDF files, a year in each for example.")
    return found


def _together(place: Place, files: Sequence[str], variable: str | None, select: str | None) -> Picked:
    """The variable of several NetCDF files, one after the other along the dimension in which they differ."""
    import xarray as xr

    first = pick(files[0], variable)
    each = [first, *(pick(file, first.variable) for file in files[1:])]
    for other in each:
        if other.source.engine not in ("h5netcdf", "scipy"):
            raise BadInputError(f"{other.source.path} is no NetCDF, of which several files are read together.")
        _check_alike(first, other)
    dim = _shared(place, each)
    if len(each) > 1:
        each.sort(key=lambda one: one.coords[dim].values.min())
        _check_apart(each, dim)
    kept = [
        name
        for name, known in first.coords.variables.items()
        if dim in known.dims or all(name in one.coords and known.equals(one.coords.variables[name]) for one in each)
    ]
    coords = [one.coords.drop_vars(set(one.coords.variables) - set(kept)) for one in each]
    joined = (
        xr.concat(coords, dim, coords="minimal", compat="override", join="override") if len(each) > 1 else coords[0]
    )
    ends = np.cumsum([one.shape[first.dims.index(dim)] for one in each]).tolist()
    shape = [ends[-1] if name == dim else length for name, length in zip(first.dims, first.shape, strict=True)]
    nothing = np.broadcast_to(np.zeros((), first.dtype), shape)
    array = xr.DataArray(nothing, joined.coords, first.dims, first.name)
    where = positions(place, array, asked(select))
    picked = _part(array, where)
    recipes = [one.numbers.recipe(one.dtype) for one in each]
    apart = any(recipe != recipes[0] for recipe in recipes)
    source = replace(first.source, path=place.path, files=[one.source.path for one in each], along=dim, ends=ends)
    plain = {name: value for name, value in first.attrs.items() if name not in conventions.ATTRIBUTES}
    return replace(
        first,
        source=replace(source, packed_apart=apart),
        dtype=np.dtype("float64") if apart else first.dtype,
        attrs=plain if apart else first.attrs,
        fill=None if apart else first.fill,
        dims=tuple(map(str, picked.dims)),
        shape=tuple(picked.shape),
        stored=_chunks(array, first.stored, picked, where),
        places=where,
        coords=picked.coords.to_dataset(),
    )


def _check_alike(first: Picked, other: Picked) -> None:
    """Raise BadInputError where the same variable of two files can't be one after the other."""
    told = [
        {
            "dimensions": ", ".join(one.dims),
            "type": one.dtype.name,
            "engine": one.source.engine,
            "units": one.attrs.get("units"),
        }
        for one in (first, other)
    ]
    for name, value in told[0].items():
        if told[1][name] != value:
            raise BadInputError(
                f"{first.name} isn't the same in all files: its {name} is {value} in {first.source.path}, and "
                f"{told[1][name]} in {other.source.path}. Give files that were written alike."
            )


def _shared(place: Place, each: Sequence[Picked]) -> str:
    """The one dimension in which files differ."""
    first = each[0]

    def differs(dim: str, other: Picked) -> bool:
        if dim not in first.coords.variables or dim not in other.coords.variables:
            return first.shape[first.dims.index(dim)] != other.shape[first.dims.index(dim)]
        return not first.coords.variables[dim].equals(other.coords.variables[dim])

    found = [dim for dim in first.dims if any(differs(dim, other) for other in each[1:])]
    if len(each) == 1:
        return first.dims[0]
    if len(found) != 1:
        how = f"differ along {formats.shortened(found)}" if found else "have the same coordinates"
        raise BadInputError(
            f"The {len(each)} files of {place} {how}. Expected files that differ along one dimension, such as time."
        )
    units = {str(one.coords[found[0]].attrs.get("units")) for one in each if found[0] in one.coords.variables}
    if len(units) != 1 or not all(found[0] in one.coords.variables for one in each):
        why = f"counts from different times: {formats.shortened(sorted(units))}" if len(units) > 1 else "has no values"
        raise BadInputError(f"In the files of {place} {found[0]} {why}, so that their order can't be told.")
    return found[0]


def _check_apart(each: Sequence[Picked], dim: str) -> None:
    for before, after in pairwise(each):
        if not before.coords[dim].values.max() < after.coords[dim].values.min():
            raise BadInputError(
                f"{before.source.path} and {after.source.path} overlap: both have {dim} "
                f"{shown(after.coords[dim].values.min())}. Give files without what is there twice."
            )


def _fill(source: Source, name: str, dtype: np.dtype[Any]) -> Any:
    """What NetCDF fills such a variable with, where this one is filled so."""
    if source.engine == "scipy":
        return conventions.netcdf_default(dtype)
    if source.engine != "h5netcdf" or conventions.netcdf_default(dtype) is None:
        return None
    import h5py

    with Place(source.path, source.options).open() as file, h5py.File(file, "r") as opened:
        found = opened.get(hdf5_name(opened, f"{source.group or ''}/{name}".strip("/")))
        return conventions.netcdf_fill(dtype, found.fillvalue) if isinstance(found, h5py.Dataset) else None


def _with_coordinates(raw: Any, above: Any) -> Any:
    """A group's dataset with those coordinates that are in a group above it, where CF has readers look for them."""
    named = " ".join(str(each.attrs.get("coordinates", "")) for each in raw.variables.values()).split()
    wanted = {*raw.sizes, *(name.rpartition("/")[2] for name in named)} - set(raw.variables)
    found = {
        name: each
        for name, each in above.variables.items()
        if name in wanted and all(raw.sizes.get(dim) == length for dim, length in each.sizes.items())
    }
    return raw.assign_coords(found)


def _decoded(raw: Any) -> Any:
    """The dataset with coordinates, dates and gaps by CF; times that nobody can tell the dates of stay numbers."""
    import xarray as xr

    # Packing by words leaves no numbers to choose from: `conventions` refuses it by name.
    wordy = {
        name: (each.dims, each, {key: value for key, value in each.attrs.items() if key not in words})
        for name, each in raw.variables.items()
        if (words := {key for key in ("scale_factor", "add_offset") if isinstance(each.attrs.get(key), str)})
    }
    raw = raw.assign(wordy) if wordy else raw
    with warnings.catch_warnings():
        # That a variable has two fill values: `conventions` says which of its numbers are missing.
        warnings.simplefilter("ignore", xr.SerializationWarning)
        try:
            return xr.decode_cf(raw, decode_timedelta=False)
        except (ValueError, OverflowError):
            dateless = {name: each for name, each in raw.variables.items() if not _is_decodable(raw, name)}
            plain = {name: (each.dims, each, each.attrs | {"units": ""}) for name, each in dateless.items()}
            found = xr.decode_cf(raw.assign(plain), decode_timedelta=False)
            for name, each in dateless.items():
                found[name].attrs["units"] = each.attrs.get("units", "")
            return found


def _is_decodable(raw: Any, name: Any) -> bool:
    import xarray as xr

    with suppress(ValueError, OverflowError):
        xr.decode_cf(raw.drop_vars(set(raw.variables) - {name}), decode_timedelta=False)
        return True
    return False


@contextmanager
def _images(place: Place) -> Iterator[Any]:
    """The first images of a TIFF file, or the finest of OME-Zarr, with names of their dimensions."""
    import zarr
    from xarray import Dataset, Variable
    from xarray.backends import BackendArray
    from xarray.core.indexing import IndexingSupport, LazilyIndexedArray, explicit_indexing_adapter

    class Lazy(BackendArray):
        def __init__(self, array: Any) -> None:
            self.shape, self.dtype, self._array = array.shape, array.dtype, array

        def __getitem__(self, key: Any) -> Any:
            return explicit_indexing_adapter(key, self.shape, IndexingSupport.BASIC, self._array.__getitem__)

    def dataset(name: str, dims: Sequence[str], array: Any) -> Any:
        found = Variable(dims, LazilyIndexedArray(Lazy(array)), encoding={"chunks": array.chunks})
        return Dataset({name: found})

    if images := images_of(*place.storage(whole=True)):
        name, dims = next(iter(images.items()))
        yield dataset(name, dims, zarr.open_array(place.path, path=name, mode="r", **place.zarr_options))
        return
    from tifffile import TiffFile

    with place.open() as file, TiffFile(file) as pages:
        first = pages.series[0]
        yield dataset("0", tuple(first.axes.lower()), zarr.open_array(first.aszarr(level=0), mode="r"))


_NO_NAMES = ("_ARRAY_DIMENSIONS", "dimension_names")
"""Attributes of Zarr's two formats that xarray names where an array lacks them."""


def source_of(place: Place, group: str | None = None) -> Source:
    """How the dataset at a place is opened."""
    with places.sentences_about(place, FORMATS):
        source = Source(place.path, dict(place.options), _engine(place), group)
        if source.engine == "zarr" and group is None and images_of(*place.storage(whole=True)):
            return replace(source, engine=IMAGES)
        if source.engine != "zarr":
            return source
        for consolidated in (False,) if outdated(place, group) else (True, False):
            source = Source(place.path, dict(place.options), "zarr", group, consolidated)
            try:
                with source.opened():
                    return source
            except (ValueError, KeyError) as err:
                if type(err).__name__ == "ContainsArrayError" or any(each in str(err) for each in _NO_NAMES):
                    what = "one array" if type(err).__name__ == "ContainsArrayError" else "a group with arrays"
                    raise BadInputError(
                        f"{place} is {what} whose dimensions have no names, which are needed here. Give them names: "
                        'xarray.DataArray(zarr.open_array(ARRAY), dims=("time", "x"), name="v").to_dataset()'
                        ".to_zarr(NEW). Or use svd_of_file with center=true, which needs no names."
                    ) from err
                if not consolidated:
                    raise
    return source


def variables(dataset: Any) -> list[str]:
    """Names of the variables that hold numbers along some dimension, without bounds of cells."""
    bounds = {each.attrs.get("bounds") for each in dataset.variables.values()}
    sizes = {str(name): each.shape for name, each in dataset.variables.items()}
    return [
        str(name)
        for name, each in dataset.data_vars.items()
        if each.ndim and each.dtype.kind in "biuf" and name not in bounds and not is_bounds(str(name), sizes)
    ]


def is_bounds(name: str, sizes: Mapping[str, Any]) -> bool:
    """Return whether a variable has the bounds of another one's cells, by its name and both shapes."""
    of = re.sub("_(bnds|bounds|bnd)$", "", name)
    return of != name and sizes.get(of) is not None and tuple(sizes[name] or ())[:-1] == tuple(sizes[of])


def time_of(coords: Any, dims: Sequence[str]) -> str | None:
    """The dimension of the times, by CF; None where there is none, or several."""
    found = [dim for dim in dims if dim in coords.variables and _is_time(coords[dim])]
    found = found or [dim for dim in dims if dim.lower() in _TIMES]
    return found[0] if len(found) == 1 else None


def latitude_of(coords: Any, dims: Sequence[str]) -> Any | None:
    """The coordinate of latitudes along these dimensions, by CF, in degrees; None where there is none."""
    found = [
        each
        for name, each in coords.variables.items()
        if each.ndim and set(each.dims) <= set(dims) and each.dtype.kind in "iuf" and _is_latitude(str(name), each)
    ]
    # In degrees north of the equator: on a rotated grid, those along the dimensions are others.
    nearest: Any = min(found, key=lambda each: each.ndim) if found else None
    # As models on triangles have them: ICON, MPAS.
    in_radians = found and str(nearest.attrs.get("units", "")).lower() in _RADIANS
    return np.rad2deg(nearest) if in_radians else nearest


def _is_time(coord: Any) -> bool:
    if coord.attrs.get("axis") == "T" or coord.attrs.get("standard_name") == "time" or coord.dtype.kind == "M":
        return True
    return coord.dtype.kind == "O" and coord.size > 0 and hasattr(coord.values.flat[0], "calendar")


def _is_longitude(name: str, coord: Any) -> bool:
    said = [str(coord.attrs.get(each, "")).lower() for each in ("units", "standard_name")]
    return said[0] in _EAST or ((said[1] or name.lower()) in _LONGITUDES and said[0] not in _RADIANS)


def _is_latitude(name: str, coord: Any) -> bool:
    """Whether a coordinate of this name has latitudes, by CF."""
    if coord.attrs.get("standard_name") == "latitude" or str(coord.attrs.get("units", "")).lower() in _NORTH:
        return True
    return name.lower() in _LATITUDES and "rot" not in str(coord.attrs.get("standard_name", ""))


def _engine(place: Place) -> str:
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
    package, extra = _NEEDED.get(engine, (engine, "files"))
    if find_spec(package) is None:
        raise MissingError(f"Reading {place} needs {package}: {install(extra)}.")
    return engine


def _named(place: Place, dataset: Any, name: str | None, elsewhere: Sequence[str] = ()) -> str:
    """Name of the variable that is meant; those of groups are offered where there are no others."""
    names = variables(dataset) or elsewhere
    there = formats.shortened(names)
    if name is not None and name in dataset.variables:
        found = dataset[name]
        if found.dtype.kind not in "biuf" or not found.ndim:
            raise BadParameterError(
                f"The variable {name!r} of {place} holds no numbers along a dimension. "
                f"{f'Choose one of: {there}.' if names else 'No other one does.'}",
                "variable",
            )
        return name
    if not names:
        raise BadParameterError(f"{place} holds no variable of numbers. Expected {FORMATS}.", "path")
    if name is not None:
        raise BadParameterError(f"There is no variable {name!r} in {place}. Choose one of: {there}.", "variable")
    if len(names) > 1:
        raise BadParameterError(f"{place} holds {len(names)} variables. Name one of them: {there}.", "variable")
    return names[0]


def asked(select: str | None) -> dict[str, str]:
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


def positions(place: Place, array: Any, asked: Mapping[str, str]) -> dict[str, Sequence[int] | int]:
    """Where what is asked for lies along each dimension: one position, or start, stop and step."""
    dims = [str(dim) for dim in array.dims]
    if 0 in array.shape:
        lengths = formats.by(array.shape)
        raise BadParameterError(f"{place} ({array.name}) is empty ({lengths}). Give a variable with values.", "path")
    for name in asked:
        if name not in dims:
            raise BadParameterError(
                f"{place} ({array.name}) has no dimension {name!r} to select. It has: {formats.shortened(dims)}.",
                "select",
            )
    return {dim: _of_dimension(place, array, dim, asked.get(dim)) for dim in dims}


def _of_dimension(place: Place, array: Any, dim: str, asked: str | None) -> Sequence[int] | int:
    """One position, or start, stop and step of several; longitudes across the file's ends start below 0."""
    length = array.sizes[dim]
    if asked is None:
        return (0, length, 1)
    coordinate = array.coords.get(dim)
    values = np.arange(length) if coordinate is None else coordinate.values
    first, sign, last = _ends(asked)
    try:
        chosen = _chosen(array, dim, values, first, last, bool(sign))
    except BadParameterError:
        raise
    except (KeyError, ValueError, TypeError, OverflowError, AttributeError):
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
    found = _RANGE.fullmatch(asked)
    return (found[1].strip(), found[2] or "", (found[3] or "").strip()) if found else (asked, "", "")


def _chosen(
    array: Any, dim: str, values: np.ndarray[Any, Any], first: str, last: str | None, ranged: bool
) -> np.ndarray[Any, Any]:
    if values.dtype.kind in "biuf":
        low, high = float(first or -np.inf), float((last if ranged else first) or np.inf)
        if ranged and np.isfinite(high - low) and _goes_around(dim, array.coords.get(dim)):
            found = _eastwards(values, low, high)
            if found is not None:
                return found
        return _near(values, *_in_order(dim, values, low, high, low > high), ranged)
    if _is_time(array.coords[dim]):
        return _at_times(array.coords[dim], dim, first, last if ranged else first)
    import xarray as xr

    positions = xr.DataArray(np.arange(len(values)), coords={dim: array.coords[dim].variable}, dims=dim)
    wanted = slice(first or None, last or None) if ranged else first
    return np.atleast_1d(positions.sel({dim: wanted}).values)


def _in_order(dim: str, values: np.ndarray[Any, Any], first: Any, last: Any, falls: bool) -> tuple[Any, Any]:
    """Both ends of a range, the smaller first. It may fall as its dimension does, where nothing else can be meant."""
    if falls and not values[0] > values[-1]:
        raise BadParameterError(
            f"select has {dim} from the larger to the smaller, and {dim} goes from {shown(values[0])} to "
            f"{shown(values[-1])}. Give the smaller first.",
            "select",
        )
    return (last, first) if falls else (first, last)


def _goes_around(dim: str, coordinate: Any) -> bool:
    """Whether these are longitudes in degrees, in rising order, all around the earth."""
    if coordinate is None or not _is_longitude(dim, coordinate):
        return False
    steps, whole = np.diff(coordinate.values), np.ptp(coordinate.values)
    return bool(len(steps) and (steps > 0).all() and whole <= 360 < whole + 1.5 * steps.max())


def _eastwards(values: np.ndarray[Any, Any], first: float, last: float) -> np.ndarray[Any, Any] | None:
    """Where longitudes all around the earth lie from one to the other; None where no end of the file is between."""
    room = _room(values)
    if first <= last and values[0] - room[0] <= first and last <= values[-1] + room[-1]:
        return None
    off = (values.astype("float64") - first) % 360
    span = (last - first) % 360 if last - first < 360 else 360
    found = (off <= span + room) | (off >= 360 - room)
    others = np.flatnonzero(~found)
    if found[0] and found[-1] and len(others):
        return np.arange(others[-1] + 1 - len(values), others[0])
    return np.flatnonzero(found)


def _near(values: np.ndarray[Any, Any], low: float, high: float, ranged: bool) -> np.ndarray[Any, Any]:
    """Where numbers lie from one to another, or, of a single one, nearest to it."""
    numbers = values.astype("float64")
    off = np.maximum(low - numbers, numbers - high)
    found = np.flatnonzero(off <= _room(values))
    return found if ranged else found[np.argsort(off[found], kind="stable")][:1]


def _room(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How far what is asked for may be from each value: a thousandth of the way to its neighbour, or its rounding."""
    numbers = values.astype("float64")
    known, inverse = np.unique(numbers, return_inverse=True)
    with np.errstate(invalid="ignore"):
        gaps = np.diff(known, prepend=-np.inf, append=np.inf)
    gap = np.fmin(gaps[:-1], gaps[1:])[inverse]
    # One value alone has no neighbour: it is meant where five digits agree.
    room = np.where(np.isfinite(gap), 1e-3 * gap, 1e-5 * np.abs(numbers) + 1e-9)
    return np.maximum(room, np.spacing(np.abs(values)) / 2) if values.dtype.kind == "f" else room


def _at_times(times: Any, dim: str, first: str, last: str | None) -> np.ndarray[Any, Any]:
    """Where times lie from one to another, in any calendar and any order: "1990" is the whole year."""
    found = np.ones(times.size, dtype=bool)
    bounds = [_time(dim, each) for each in (first, last) if each]
    if first and last:
        early, late = ((*each, *_FIRST[len(each) :]) for each in bounds)
        bounds = list(_in_order(dim, times.values, bounds[0], bounds[1], early > late))
    if first:
        found &= _fields(times, len(bounds[0])) >= _whole(bounds[0])
    if last:
        found &= _fields(times, len(bounds[-1])) <= _whole(bounds[-1])
    return np.flatnonzero(found)


def _time(dim: str, text: str) -> tuple[int, ...]:
    """Year, month, day, hour, minute and second, as far as they are given."""
    found = _TIME.fullmatch(text)
    given = [int(each) for each in found.groups() if each is not None] if found else []
    if not given or any(not least <= each <= most for each, least, most in zip(given, _FIRST, _LAST, strict=False)):
        raise BadParameterError(
            f"{dim}={text} is no time. Give such as 1990, 1990-06, 1990-06-01 or 1990-06-01T12:00, or a range of two "
            "with a colon between them.",
            "select",
        )
    return tuple(given)


def _whole(parts: Sequence[int]) -> int:
    """Fields of a time as one number, by which times are in order."""
    return sum(each * 100**place for place, each in enumerate(reversed(parts)))


def _fields(times: Any, count: int) -> Any:
    """The first of the fields of each time, as `_whole` has them; NaN where there is no time."""
    there = [getattr(times.dt, name).values for name in ("year", "month", "day", "hour", "minute", "second")[:count]]
    return sum(each.astype("float64") * 100**place for place, each in enumerate(reversed(there)))


def shown(value: Any) -> str:
    """A coordinate's value as text, as one may give it back."""
    if isinstance(value, (float, np.floating)):
        # As many digits as its type has, but not those of rounding: 0.1 in float32, 20200131 of dates as numbers.
        return f"{float(str(value)):.10g}"
    return str(value)[:19].removesuffix("T00:00:00")


def _part(found: Any, places: Mapping[str, Sequence[int] | int]) -> Any:
    """What was selected of an array or of coordinates; longitudes across the file's ends go on rising."""
    parts = {dim: where for dim, where in _parts(places).items() if dim in found.sizes}
    part = (found if hasattr(found, "isel") else found.to_dataset()).isel(parts)
    for dim, where in parts.items():
        if isinstance(where, np.ndarray):
            turn = 360 * ((where >= 0) - int(found[dim].values.max() > 180))
            part = part.assign_coords({dim: part[dim].copy(data=part[dim].values + turn)})
    return part


def _parts(places: Mapping[str, Sequence[int] | int], where: Mapping[str, slice] | None = None) -> dict[str, Any]:
    """Positions in the file of what was selected, or of a part of that."""
    found: dict[str, Any] = {}
    for dim, each in places.items():
        if isinstance(each, int):
            found[dim] = each
        else:
            part = range(*each)[(where or {}).get(dim, slice(None))]
            whole = slice(part.start, part.stop, part.step)
            found[dim] = whole if part.start >= 0 else np.asarray(part)
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
