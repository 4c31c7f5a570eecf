"""Vocabulary of workloads' signatures: types with bounds, units and texts, from which forms are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

try:
    from pydantic import Field as Field
except ImportError:  # on a worker, where tasks only need the functions next to these fields, and no form is shown

    def Field(**_: Any) -> Any:  # type: ignore[no-redef]  # noqa: N802
        """Return None: pydantic is missing."""


TITLES = {
    "k": "Components",
    "tol": "Accuracy",
    "shape": "Rows × columns",
    "path": "File",
    "to": "Output",
    "save": "Save the answer to",
    "array": "Array in the file",
    "chunks": "Block size",
    "dtype": "Data type",
    "generator": "Random generator",
    "n_power_iter": "Power iterations",
    "compute": "Recompute in each pass",
    "persist": "Load into memory first",
    "tolerance": "Check tolerance",
    "anon": "Anonymous access",
    "endpoint_url": "Endpoint URL",
    "to_endpoint_url": "Endpoint URL of the output",
    "token_variable": "Token variable",
}
"""Labels of parameters in a form, where the name isn't a word."""

T = TypeVar("T")
Layout = Literal["square", "tall", "wide"]

ALLOWED_SIZE = "a size such as '2GiB', or a fraction of the cluster's memory between 0 and 1 such as 0.25"
ALLOWED_CHUNKS = "'auto', a length such as 2000, two lengths such as 2000, 1000, or a size such as '128MiB'"


@dataclass(frozen=True)
class Words:
    """Texts of a form next to a field."""

    description: str = ""
    allowed: str = ""
    """End of the message 'Give …' for an invalid value, if type, bounds and the first example don't suffice."""
    unit: str | None = None
    examples: tuple[Any, ...] = ()
    if_empty: str | None = None
    """Meaning of an empty field, shown in it where the parameter has no default, such as 'all'."""
    only: str | None = None
    """Condition for an effect: 'path' (if one is given), '!path' (if none is), 'k and method=dask'."""
    instead: str | None = None
    """Parameter that it replaces: a form takes that one back."""
    title: str | None = None
    """Title in the form; None for that in `TITLES`, or the parameter's name."""
    path: bool | Literal["new"] = False
    """True if the text names a file or folder, "new" if one to be written; relative to the current folder."""
    only_asked: bool = False
    """True if the function doesn't get it: `prepare` replaces it by other parameters."""


@dataclass(frozen=True)
class Sized:
    """Marker of a shape that may be given as a size: the form gets an additional field `size` with this default."""

    layout: Layout
    size: str


Text = Annotated[str, Field(min_length=1)]
Length = Annotated[int, Field(ge=1, le=2**62)]

Size = Annotated[
    int | float | str,
    Words(
        "Size of the array, in bytes or as a fraction of the cluster's memory.",
        allowed=ALLOWED_SIZE,
        unit="bytes or fraction",
        examples=("512 MiB", "2 GiB", "0.25"),
        instead="shape",
        only_asked=True,
    ),
]

Shape = Annotated[
    tuple[Length, Length],
    Words(
        "Rows and columns of the array, instead of a size.",
        allowed="two whole numbers, each at least 1, such as 10000, 10000",
        unit="elements",
        examples=((10000, 10000),),
        instead="size",
    ),
]

Chunks = Annotated[
    int | tuple[Length, Length] | str,
    Words(
        "Size of the array's blocks. Each task processes one block.",
        allowed=ALLOWED_CHUNKS,
        unit="elements or bytes",
        examples=("auto", 2000, (2000, 1000), "128 MiB"),
    ),
]

FloatType = Annotated[Literal["float64", "float32"], Words("Data type of the elements.")]

MatrixType = Annotated[
    Literal["float64", "float32", "uint8"],
    Words(
        "Data type of the elements. uint8 contains 0, 1 and 2, like genotypes; the others contain numbers from 0 to 1."
    ),
]

Generator = Annotated[
    Literal["default_rng", "RandomState", "tiles", "fast", "fused"],
    Words(
        "Random number generator. RandomState: as in the post, slow. default_rng: NumPy's current generator. "
        "tiles: NumPy's fastest, processed in tiles that fit the cache. fast: the same, compiled by numba. On"
        " GPUs: RandomState, or fused, which generates and sums numbers in registers without storing them."
    ),
]

Seed = Annotated[
    int,
    Field(ge=0, le=2**32 - 1),
    Words("Seed of the random numbers. The same seed and the same blocks give the same array."),
]

Scale = Annotated[
    Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None,
    Words(
        "Size relative to the preset: 0.01 is a hundredth. The number of blocks stays the same unless blocks "
        "would be smaller than 8 MB.",
        unit="×",
        examples=(0.01, 0.1),
    ),
]

Components = Annotated[
    int,
    Field(ge=1, le=100_000),
    Words(
        "Number of singular values and vectors.",
        allowed="a whole number, at least 1 and at most the shorter side of the array",
        if_empty="all",
    ),
]

Method = Annotated[
    Literal["workbench", "dask"],
    Words("Implementation: workbench.linalg, or Dask's own function as in the posts."),
]

Accuracy = Annotated[
    float,
    Field(gt=0, lt=1, allow_inf_nan=False),
    Words(
        "Largest relative error of a singular value. Passes continue until error bounds meet it, and a "
        "certificate reports the bounds reached. Dask's own function doesn't use it.",
        unit="relative",
        only="k and method=workbench",
        examples=(0.001,),
    ),
]

Iterations = Annotated[
    int,
    Field(ge=0, le=50),
    Words(
        "Number of power iterations. Each makes two more passes over the array and improves the accuracy. For"
        " method=dask.",
        only="k and method=dask",
    ),
]

Iterator = Annotated[
    Literal["QR", "power"],
    Words(
        "Iteration scheme. QR orthogonalizes the vectors after each product; power is faster but inaccurate "
        "where the singular values decay fast. For method=dask.",
        only="k and method=dask",
    ),
]

Tolerance = Annotated[
    float,
    Field(gt=0, le=1, allow_inf_nan=False),
    Words(
        "Largest relative error of a singular value with which the check passes. For method=dask.",
        unit="relative",
        only="method=dask",
    ),
]

Recompute = Annotated[
    bool,
    Words(
        "Recompute or reread the array in each pass (true), or keep it in memory (false). What would take more than "
        "half of the memory is recomputed, except by Dask's own function."
    ),
]

Persist = Annotated[
    bool, Words("Load the array into memory first. The measured time then excludes creating or reading it.")
]

Center = Annotated[
    bool, Words("Subtract the mean of each column first, which makes the SVD a principal component analysis.")
]

Path = Annotated[
    Text,
    Words(
        "File, folder or URL of the array: .npy, .npz, HDF5, NetCDF, Zarr (a folder or a .zip, "
        "also of microscopy), TIFF, Parquet, CSV.",
        allowed="the path or URL of a .npy, .npz, HDF5, NetCDF, Zarr, TIFF, Parquet or CSV file",
        examples=("data/measurements.npy", "results.zarr", "s3://bucket/array.zarr"),
        path=True,
    ),
]

ArrayName = Annotated[
    Text,
    Words(
        "Name of the array, if the file contains several. For a table, its columns, such as height,weight.",
        allowed="the name of an array in the file",
        examples=("x", "group/dataset"),
        only="path",
    ),
]

DatasetPath = Annotated[
    Text,
    Words(
        "File, folder or URL of the dataset: NetCDF, Zarr as written by xarray, GRIB, or images as TIFF or "
        "OME-Zarr. A folder or pattern of NetCDF files, such as one per year, is read as one dataset.",
        allowed="the path or URL of NetCDF, a Zarr group as xarray writes it, GRIB, TIFF or OME-Zarr; or files as *.nc",
        examples=("winds.nc", "winds/*.nc", "s3://bucket/era5.zarr"),
        path=True,
    ),
]

VariableName = Annotated[
    Text,
    Words(
        "Name of the variable, if the dataset contains several.",
        allowed="the name of a variable of the dataset",
        examples=("u10",),
    ),
]

Selection = Annotated[
    Text,
    Words(
        "Select a part by coordinate values, or by positions where a dimension has no coordinate. Both ends "
        "of a range are included. time=:1% is the first hundredth.",
        allowed="dimensions with a value or a range each, such as time=1990:2020, level=500",
        examples=("time=1990:2020, level=500", "latitude=20:70"),
    ),
]

Rows = Annotated[
    Text,
    Words(
        "Dimensions that become the rows; all others become the columns. By default the time dimension, or the first.",
        allowed="dimensions of the array by name or number, such as time or 0",
        examples=("time", "0"),
        only="path",
    ),
]

Gaps = Annotated[
    Literal["refuse", "mean", "rows", "columns"],
    Words(
        "Missing values: refuse them and report where they are, fill them with the mean of their column, or "
        "drop the rows or columns that contain one."
    ),
]

MissingChunks = Annotated[
    Literal["refuse", "fill"],
    Words(
        "Missing chunks of a Zarr or HDF5 array: refuse the array if most chunks are missing, or fill them "
        "with its fill value, for arrays that are sparse on purpose."
    ),
]

Anonymous = Annotated[
    bool,
    Words(
        "Read public data at s3, gs or abfs URLs without credentials. Otherwise credentials come from the "
        "environment, such as AWS_ACCESS_KEY_ID or GOOGLE_APPLICATION_CREDENTIALS.",
        only="path",
    ),
]

Endpoint = Annotated[
    Text,
    Words(
        "Server of an s3 or gs URL, if it is not Amazon or Google.",
        allowed="the address of a server, such as https://minio.example.org:9000",
        examples=("https://minio.example.org:9000",),
        only="path",
    ),
]

TokenVariable = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_]\w*$"),
    Words(
        "Environment variable, here and on the workers, that contains a token for https, hf or abfs. Its "
        "value is never stored.",
        allowed="the name of a variable, such as EARTHDATA_TOKEN",
        examples=("EARTHDATA_TOKEN",),
        only="path",
    ),
]


NewPath = Annotated[
    Text,
    Words(
        "Path of the packed store.",
        allowed="the path or URL of the store to be written",
        examples=("study.zarr",),
        path="new",
    ),
]

Save = Annotated[
    Text,
    Words(
        "Path where the arrays of the answer are saved. If empty, small arrays are stored with the run.",
        allowed="a path or URL that ends with .zarr, .npz, .npy or .nc",
        examples=("answer.zarr", "answer.npz"),
        path="new",
    ),
]

Replace = Annotated[bool, Words("Replace an existing file or store.", only="save")]
