"""Descriptions of arrays in files, and functions shared by the formats."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from workbench import formats
from workbench.errors import BadInputError, BadParameterError
from workbench.storage import conventions
from workbench.storage.places import Place
from workbench.storage.written_chunks import of_place

_KINDS = {
    "c": "complex numbers",
    "O": "Python objects",
    "S": "text",
    "U": "text",
    "T": "text",
    "M": "dates",
    "m": "durations",
    "V": "records",
}


FORMATS = ".npy, .npz, HDF5, NetCDF, Zarr (a folder or a .zip), TIFF, Parquet (a file or a folder of them) or CSV"
COUNTING = 5.0
"""Time limit for counting existing chunks, in seconds."""
UNLISTED = "its server can't list what is in it: name the array."


@dataclass(frozen=True)
class Found:
    """An array in a file. `chunks` is its storage layout, None if any block reads equally well."""

    path: str
    array: str | None
    format: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None = None
    whole: bool = False
    """True if it can only be read as a whole."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fill: Any = None
    """Fill value where nothing was written, if that stands for "missing"."""
    hidden: int = 0
    """Number of values hidden by a separate mask."""
    unpack: Mapping[str, Any] | None = None
    """Recipe from stored numbers to their values, as `workbench.storage.reading.unpacked` takes it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options for fsspec about a URL's server."""
    remarks: tuple[str, ...] = ()
    """Messages about how the numbers are read, where that isn't plain."""
    recipe: Mapping[str, Any] | None = None
    """Selected part of a variable of a dataset, or other facts for its reader."""
    coords: Any = field(default=None, compare=False, repr=False)
    """Coordinates of a variable of a dataset, as xarray returns them."""
    dims: tuple[str, ...] | None = None
    """Names of its dimensions, where they have some."""
    rows: str | None = None
    """Dimension of a matrix's rows by default; None for the first."""
    lengths: tuple[int, ...] = ()
    axes: tuple[tuple[int, ...], ...] | None = None
    """Original shape of a matrix made from an array of more dimensions, and the dimensions of rows and columns."""

    def __str__(self) -> str:
        return f"{self.path} ({self.array})" if self.array else self.path

    @property
    def working_type(self) -> str:
        """Dtype for computations with its numbers."""
        return "float32" if self.dtype.kind == "f" and self.dtype.itemsize <= 4 else "float64"

    @property
    def number_type(self) -> str:
        """Dtype of the numbers as read: unpacked, in this machine's byte order."""
        return self.working_type if self.unpack else self.dtype.newbyteorder("=").name


@dataclass(frozen=True)
class Held:
    """An array in a file, described without reading its numbers."""

    name: str
    """Name; empty where a file holds one array without a name."""
    shape: tuple[int, ...]
    dtype: str
    n_bytes: int
    """Bytes in memory, as stored; compressed it takes fewer."""
    dims: tuple[str, ...] | None = None
    """Names of its dimensions, where they have some."""
    chunks: tuple[int, ...] | None = None
    """Lengths of the stored chunks; None if it is stored in one piece."""
    shards: tuple[int, ...] | None = None
    """Lengths of the part in one file, of several chunks each."""
    compression: str | None = None
    packing: str | None = None
    """Conversion from stored numbers to their values, applied when they are read."""
    title: str | None = None
    """Name and units, from its attributes."""
    written: str | None = None
    """Number of its chunks that exist, if not all: "4 of 8 chunks exist"."""

    @property
    def has_numbers(self) -> bool:
        """True if it holds some real numbers."""
        # The text of a dtype with fields can't be parsed.
        return self.n_bytes > 0 and self.dtype[0] not in "[{(" and np.dtype(self.dtype).kind in "biuf"

    def line(self) -> str:
        """Return everything but its name, on one line."""
        lengths = (
            (f"{dim} {formats.count(length)}" for dim, length in zip(self.dims, self.shape, strict=True))
            if self.dims
            else map(formats.count, self.shape)
        )
        pieces = {"chunks": self.chunks, "shards": self.shards}
        stored = [f"{name} of {formats.by(each)}" for name, each in pieces.items() if each and each != self.shape]
        shape = " × ".join(lengths) or "one value"
        parts = (
            f"{shape}, {self.dtype}",
            formats.size(self.n_bytes),
            " in ".join(stored),
            self.compression,
            self.packing,
            self.title,
            self.written,
        )
        return ", ".join(filter(None, parts))


def held_as(name: str, shape: Any, dtype: Any, **facts: Any) -> Held:
    """Describe an array of this shape and type; further facts are named as the fields are."""
    shape, kind = tuple(map(int, shape)), np.dtype(dtype)
    # The text of NumPy's StringDType can't be parsed.
    called = "str" if kind.kind == "T" else str(kind)
    return Held(name=name, shape=shape, dtype=called, n_bytes=math.prod(shape) * kind.itemsize, **facts)


Listed = tuple[tuple[Held, ...], tuple[str, ...]]


Reader = Callable[..., np.ndarray[Any, Any]]
"""Task that reads a block: it takes path, array, options and a slice for each dimension."""


@dataclass(frozen=True)
class Format:
    """A file format: detection, listing, and reading of arrays."""

    title: str
    look: Callable[[Place], Listed]
    """Return the arrays in such a file, and messages about them."""
    endings: tuple[str, ...] = ()
    """Endings of its files' names, in lower case, if they identify it."""
    starts: Callable[[bytes, Place], bool] = lambda start, place: False
    """True for the first eight bytes of a file in this format."""
    find: Callable[[Place, str | None], Found] | None = None
    """Describe one array; None where only workloads of a scientific field read the format."""
    readers: Mapping[str, Reader] = field(default_factory=dict)
    """By `Found.format`."""
    modules: tuple[str, ...] = ()
    """Modules with which tasks read it."""
    files: Callable[[str], Sequence[str]] = lambda path: (path,)
    """Return the paths of all files that are read with one."""
    dims: Literal["none", "some", "all"] = "none"
    """Dimensions with names, which xarray knows."""
    is_table: bool = False
    """True if its arrays are columns."""


def check_any(place: Place, arrays: Sequence[Any]) -> None:
    """Raise BadParameterError if there is no array."""
    if not arrays:
        raise bad(f"There is no array in {place}. Give the path of {FORMATS}.")


def choose(
    place: Place, array: str | None, names: Sequence[str], is_coordinate: Callable[[str], bool] = lambda _: False
) -> str:
    """Return the name of the array meant; coordinates of a dimension (lat, time) count only if named."""
    check_any(place, names)
    if array is not None and array.strip("/") in names:
        return array.strip("/")
    offered = names if len(names) == 1 else [name for name in names if not is_coordinate(name)] or names
    if array is None and len(offered) == 1:
        return offered[0]
    choices = formats.shortened(offered)
    if array is None:
        raise bad(f"{place} holds {len(offered)} arrays. Name one of them as array: {choices}.", "array")
    raise bad(f"There is no array {array!r} in {place}. Choose one of: {choices}.", "array")


def check(place: Place, array: str | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise BadParameterError if an array holds no real numbers, or none at all."""
    whose = f"{place} ({array})" if array else place
    if dtype.kind not in "biuf":
        kind = _KINDS.get(dtype.kind, str(dtype))
        raise bad(f"{whose} holds {kind} ({dtype}). Give an array of real numbers: whole numbers or floats.")
    if 0 in shape:
        raise bad(f"{whose} is empty ({formats.by(shape)}). Give an array with at least one row and one column.")


def lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    """Return lengths as plain integers."""
    return tuple(map(int, lengths))


def bad(sentence: str, parameter: str = "path") -> BadParameterError:
    """Return an error about a parameter."""
    return BadParameterError(sentence, parameter)


def count_written(place: Place, format: str, name: str, until: float) -> dict[str, Any]:
    """Return the number of existing chunks, if not all exist and there is time left to count them."""
    try:
        count = None if time.monotonic() > until else of_place(place, format, name)
    except BadInputError as err:
        return {"written": str(err)}
    if count is None or count.is_complete:
        return {}
    return {"written": f"{count} ({count.misplaced.partition(', which')[0]})" if count.misplaced else str(count)}


def described(dtype: Any, attributes: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what attributes say about an array: its packing, title and units."""
    packing = None
    # Unreadable attributes raise an error when the numbers are computed.
    with contextlib.suppress(BadInputError):
        recipe = conventions.stored("it", np.dtype(dtype), attributes)
        packing = f"packed (× {recipe.scale:.6g} + {recipe.offset:.6g})" if recipe.is_packed else None
    return {"packing": packing, "title": title(attributes)}


def title(attributes: Mapping[str, Any]) -> str | None:
    """Return the title of an array by its attributes, with its units."""
    name, units = (text_of(attributes.get(each)) for each in ("long_name", "units"))
    name = name or text_of(attributes.get("standard_name"))
    return f"{name} ({units})" if name and units else name or units or None


def text_of(value: Any) -> str:
    """Return an attribute as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value) if value is not None else ""


def known(path: str, options: dict[str, Any], *, whole: bool = False) -> dict[str, Any]:
    """Return the options for fsspec about a URL's server, with the token from an environment variable."""
    if "token_variable" not in options and not path.startswith(("http://", "https://", "s3://", "s3a://")):
        return options
    from workbench.storage.places import with_token

    return with_token(path, options, whole=whole)
