"""Files and folders, local or behind URLs: their locations, and the meaning of their numbers by their formats."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


def open(
    path: str | PathLike[str],
    *,
    anon: bool = False,
    endpoint_url: str | None = None,
    token_variable: str | None = None,
    missing_chunks: str = "refuse",
) -> xr.Dataset:
    """Open a file, a folder or a URL as a dataset whose arrays Dask reads when they are computed.

    Formats are those of all workloads: .npy, .npz, HDF5, NetCDF (a series of files, too), Zarr, GRIB, TIFF, OME-Zarr,
    Parquet and CSV. Blocks follow the stored chunks. Packed numbers are unpacked, and NaN where they are missing.
    An array without a name is called "array"; dimensions without names are called after their array: x_0, x_1. The
    columns of a table are arrays along "row". Arrays without numbers are left out, except for coordinates.

    Parameters
    ----------
    anon, endpoint_url, token_variable
        For a URL: access without keys; the S3 server; the environment variable that holds a token.
    missing_chunks
        "refuse" if most chunks of a store are missing, or "fill" to read them as its fill value.

    Raises
    ------
    BadInputError
        There is nothing readable, or the file is damaged.
    MissingError
        A package that reads it isn't installed.

    Examples
    --------
    >>> import numpy as np
    >>> from workbench import storage
    >>> np.save("numbers.npy", np.arange(6.0).reshape(2, 3))
    >>> storage.open("numbers.npy")["array"].sum("array_0").values
    array([3., 5., 7.])
    """
    from workbench.storage.opening import opened

    server_options = {"anon": anon, "endpoint_url": endpoint_url, "token_variable": token_variable}
    return opened(str(path), server_options, missing_chunks)
