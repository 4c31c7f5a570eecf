"""Packages that decode a file, known from its description before anything is read."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from workbench.errors import BadInputError, MissingError, install_module
from workbench.storage.places import Place
from workbench.storage.written_chunks import hdf5_name

_TIFF_ALONE = frozenset((1, 8, 32773, 32946, 34925, 50013))
"""Compressions that tifffile decodes without imagecodecs: none, deflate, PackBits, LZMA and Pixtiff."""
_FLOATING_POINT = 3
"""Predictor of TIFF that needs imagecodecs, too."""
_HDF5_ALONE = frozenset((1, 2, 3, 4, 5, 6, 32000))
"""Filters that come with h5py: deflate, shuffle, Fletcher-32, SZIP, n-bit, scale and offset, LZF."""
_HDF5_PLUGINS = frozenset((307, 32001, 32004, 32008, 32010, 32013, 32015, 32017, 32018, 32022, 32024, 32026, 32028))
"""Filters in hdf5plugin: bzip2, Blosc, LZ4, bitshuffle, ZFP, Zstandard, SZ and others, by The HDF Group's registry."""


def check_decoders(place: Place, format: str, name: str | None) -> None:
    """Raise MissingError if a package that decompresses an array isn't installed here."""
    for module in decoders(place, format, name):
        if find_spec(module) is None:
            whose = f"{place} ({name})" if name else place
            raise MissingError(f"Reading {whose} needs {module}, which decompresses it: {install_module(module)}.")


def decoders(place: Place, format: str, name: str | None) -> tuple[str, ...]:
    """Return the modules that decompress an array, beyond those that read its format.

    Raises BadInputError if nothing known decodes it.
    """
    if format in ("hdf5", "h5netcdf"):
        return _of_hdf5(place, name or "")
    if format == "tiff":
        return _of_tiff(place, name)
    return ()


def _of_hdf5(place: Place, name: str) -> tuple[str, ...]:
    import h5py

    with place.open() as file, h5py.File(file, "r") as opened:
        plist = opened[hdf5_name(opened, name)].id.get_create_plist()
        filters = [plist.get_filter(number) for number in range(plist.get_nfilters())]
    strange = [(code, text) for code, _, _, text in filters if code not in _HDF5_ALONE]
    for code, text in strange:
        if code not in _HDF5_PLUGINS and not h5py.h5z.filter_avail(code):
            called = text.decode(errors="replace") or "without a name"
            raise BadInputError(
                f"{place} ({name}) is compressed with the HDF5 filter {code} ({called}), which no package known here "
                "decodes. Write it again with another one, such as gzip: h5repack -f GZIP=4 OLD NEW."
            )
    return ("hdf5plugin",) if any(code in _HDF5_PLUGINS for code, _ in strange) else ()


def _of_tiff(place: Place, name: str | None) -> tuple[str, ...]:
    if find_spec("tifffile") is None:
        return ()
    from tifffile import TiffFile

    with place.open() as file, TiffFile(file) as pages:
        is_known = all(_is_plain(page) for page in pages.series[int(name or 0)].pages[:1])
    return () if is_known else ("imagecodecs",)


def _is_plain(page: Any) -> bool:
    return int(page.compression) in _TIFF_ALONE and int(page.predictor) != _FLOATING_POINT
