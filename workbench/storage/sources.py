"""Datasets and how xarray opens them: NetCDF, Zarr groups, GRIB and images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from workbench.errors import BadInputError, MissingError, install
from workbench.storage import places
from workbench.storage.cf import variables
from workbench.storage.decoding import decoded, images, with_coordinates
from workbench.storage.places import Place
from workbench.storage.zarrs import images_of, is_marked, opened_at, outdated

FORMATS = "NetCDF, a Zarr group as xarray writes it, GRIB, or images as TIFF or OME-Zarr"
IMAGES = "images"
"""Name of our reader for these: xarray has no engine for them."""
_STARTS = {b"CDF": "scipy", b"\x89HDF": "h5netcdf", b"GRIB": "cfgrib", b"PK": "zarr"}
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""First bytes of such a file."""
_STARTS |= dict.fromkeys(TIFF, IMAGES)
_NEEDED = {"cfgrib": ("cfgrib", "grib"), IMAGES: ("tifffile", "images")}
"""Package of an engine, and our extra that installs it."""


@dataclass(frozen=True)
class Source:
    """Location and opener of a dataset, as plain data, so that each worker opens it for itself."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "zarr"
    group: str | None = None
    consolidated: bool | None = None
    files: Sequence[str] = ()
    """NetCDF files that are read as one, in their order along the dimension `along`."""
    along: str = ""
    ends: Sequence[int] = ()
    """End of each file along it."""
    packed_differently: bool = False
    """True if each file's numbers are unpacked by its own attributes, which differ."""

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Open the dataset as stored; values of its variables are read on demand."""
        if self.engine == IMAGES:
            with images(Place(self.path, self.options)) as dataset:
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
                    f"{self.path} is cut short or damaged: its header describes more than its "
                    f"{Place(self.path, self.options).size()} bytes. Copy or write it again."
                ) from err
            with opened as dataset:
                yield dataset

    @contextmanager
    def decoded(self, raw: Any) -> Iterator[Any]:
        """Open the dataset with its coordinates and those of the groups above; dates are decoded, and gaps are NaN."""
        with ExitStack() as stack:
            parts = (self.group or "").split("/")
            for count in range(len(parts) - 1, -1, -1) if self.group else ():
                with suppress(BadInputError):
                    above = source_of(Place(self.path, self.options), "/".join(parts[:count]) or None)
                    raw = with_coordinates(raw, stack.enter_context(above.opened()))
            whole = decoded(raw)
            # xarray takes a variable with the name of a dimension for a coordinate, even if it has other dimensions.
            yield whole.reset_coords([name for name in whole.coords if whole[name].ndim > 1 and name in whole.dims])

    def in_groups(self) -> list[str]:
        """Return names of the variables in the groups below, "group/name"; none where they are unknown."""
        import xarray as xr

        with suppress(ValueError, OSError, LookupError, NotImplementedError), self._place() as (where, how):
            groups = xr.open_groups(where, **how)
            names = ([group.strip("/"), name] for group, each in groups.items() for name in variables(decoded(each)))
            return sorted(map("/".join, names))
        return []

    @contextmanager
    def _place(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield the object that xarray opens, and the arguments."""
        place = Place(self.path, self.options)
        how: dict[str, Any] = {"engine": self.engine, "chunks": None, "cache": False, "decode_cf": False}
        how |= {"phony_dims": "sort"} if self.engine == "h5netcdf" else {}
        # Write no index file next to the data: it pays only if the data are opened often.
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


_NO_NAMES = ("_ARRAY_DIMENSIONS", "dimension_names")
"""Attributes of Zarr's two formats that xarray's error names if an array lacks them."""


def source_of(place: Place, group: str | None = None) -> Source:
    """Return the source of the dataset at a place."""
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
                    content = "one array" if type(err).__name__ == "ContainsArrayError" else "a group with arrays"
                    raise BadInputError(
                        f"{place} is {content} whose dimensions have no names, which are needed here. Give them names: "
                        'xarray.DataArray(zarr.open_array(ARRAY), dims=("time", "x"), name="v").to_dataset()'
                        ".to_zarr(NEW). Or use svd_of_file with center=true, which needs no names."
                    ) from err
                if not consolidated:
                    raise
    return source


def _engine(place: Place) -> str:
    fs, root = place.storage()
    if fs.isdir(root) or (place.is_url and is_marked(place)):
        return "zarr"
    with place.open() as file:
        start = file.read(8)
    if start[:4] == b"CDF\x05":
        raise BadInputError(
            f"{place} is NetCDF of the kind CDF-5, which can't be read here. Convert it: nccopy -k nc4 OLD NEW."
        )
    engine = next((engine for magic, engine in _STARTS.items() if start.startswith(magic)), None)
    if engine is None:
        problem = "is empty" if not start else "is in no format that can be read here"
        raise BadInputError(f"{place} {problem}. Expected {FORMATS}.")
    if engine == "cfgrib" and place.is_url:
        raise BadInputError(f"{place} is GRIB at a URL, of which no parts can be read. Copy it to this machine.")
    package, extra = _NEEDED.get(engine, (engine, "files"))
    if find_spec(package) is None:
        raise MissingError(f"Reading {place} needs {package}: {install(extra)}.")
    return engine
