"""The vocabulary of workloads' signatures: types with their bounds, units and words, from which forms are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

try:
    from pydantic import Field as Field
except ImportError:  # on a worker, where tasks find their functions beside these fields and nobody fills in a form

    def Field(**_: Any) -> Any:  # type: ignore[no-redef]  # noqa: N802
        """Nothing."""


TITLES = {
    "k": "Components",
    "n_components": "Components",
    "tol": "Accuracy",
    "shape": "Rows × columns",
    "path": "File",
    "to": "Write to",
    "save": "Save the answer to",
    "array": "Array in the file",
    "chunks": "Block size",
    "dtype": "Type of numbers",
    "generator": "Random numbers by",
    "n_rows": "Rows",
    "n_variants": "Variants",
    "n_samples": "Samples",
    "n_populations": "Populations",
    "n_power_iter": "Power iterations",
    "compute": "Make again each pass",
    "persist": "Hold in memory first",
    "tolerance": "Check fails above",
    "missing_rate": "Missing share",
    "maf": "Least frequency",
    "max_missing": "Most unknown",
    "hwe": "Least p (HWE)",
    "leave_out": "Regions to leave out",
    "ld_window": "Thin out within",
    "ld_r2": "Thin out above r²",
    "ld_step": "Windows apart by",
    "ld_like": "Thin out like",
    "anon": "Without keys",
    "endpoint_url": "Server of the URL",
    "to_endpoint_url": "Server to write to",
    "token_variable": "Token in variable",
    "raw": "As stored",
    "fst": "F_ST",
}
"""What a form calls a parameter whose name is no word."""

T = TypeVar("T")
Layout = Literal["square", "tall", "wide"]

ALLOWED_SIZE = "a size such as '2GiB', or a fraction of the cluster's memory between 0 and 1 such as 0.25"
ALLOWED_CHUNKS = "'auto', a length such as 2000, two lengths such as 2000, 1000, or a size such as '128MiB'"


@dataclass(frozen=True)
class Words:
    """What the form says beside a field."""

    description: str = ""
    allowed: str = ""
    """What ends the sentence 'Give …' where a value can't be used, if type, bounds and the first example don't say."""
    unit: str | None = None
    examples: tuple[Any, ...] = ()
    only: str | None = None
    """Where it does something: 'method=dask', 'path' (where one is given), '!path' (where none is)."""
    instead: str | None = None
    """The parameter in whose place it is given: a form takes that one back."""
    title: str | None = None
    """What the form calls it; None for what `TITLES` says, or the parameter's name."""
    path: bool | Literal["new"] = False
    """Whether the text names a file or a folder, or one to be written: of the folder where it is given, if relative."""


@dataclass(frozen=True)
class Sized:
    """Marks a shape that may be given as a size: the form gets a field `size` with this default beside it."""

    layout: Layout
    size: str


@dataclass(frozen=True)
class Resolved:
    """Marks a parameter that is found out for the person and is no field of the form."""


Text = Annotated[str, Field(min_length=1)]
Length = Annotated[int, Field(ge=1, le=2**62)]

Size = Annotated[
    int | float | str,
    Words(
        "Size of the array: bytes, or a fraction of the cluster's memory.",
        allowed=ALLOWED_SIZE,
        unit="bytes or fraction",
        examples=("512 MiB", "2 GiB", "0.25"),
        instead="shape",
    ),
]

Shape = Annotated[
    tuple[Length, Length],
    Words(
        "Rows and columns of the array, in place of its size.",
        allowed="two whole numbers, each at least 1, such as 10000, 10000",
        unit="elements",
        examples=((10000, 10000),),
        instead="size",
    ),
]

Chunks = Annotated[
    int | tuple[Length, Length] | str,
    Words(
        "Size of the blocks in which the array is made and worked on.",
        allowed=ALLOWED_CHUNKS,
        unit="elements or bytes",
        examples=("auto", 2000, (2000, 1000), "128 MiB"),
    ),
]

FloatType = Annotated[Literal["float64", "float32"], Words("Type of the array's elements.")]

MatrixType = Annotated[
    Literal["float64", "float32", "uint8"],
    Words("Type of the array's elements. uint8 gives 0, 1 and 2, like genotypes; the others give numbers from 0 to 1."),
]

Generator = Annotated[
    Literal["default_rng", "RandomState", "tiles", "fast", "fused"],
    Words(
        "Who makes the random numbers. RandomState: as the post, slow. default_rng: NumPy's present one. "
        "tiles: NumPy's quickest, used tile by tile while it is in the cache. fast: the same, compiled by numba. GPUs "
        "have RandomState, and fused: made and added up in registers, none is stored."
    ),
]

Seed = Annotated[
    int, Field(ge=0, le=2**32 - 1), Words("The same seed gives the same array, as long as the blocks are the same.")
]

Scale = Annotated[
    Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None,
    Words(
        "How many times as large as in the text: 0.01 for a hundredth, in as many blocks where that can "
        "be. Of a preset only.",
        unit="×",
        examples=(0.01, 0.1),
    ),
]

Components = Annotated[
    int,
    Field(ge=1, le=100_000),
    Words(
        "How many singular values and vectors.",
        allowed="a whole number, at least 1 and at most the shorter side of the array",
    ),
]

Method = Annotated[
    Literal["workbench", "dask"],
    Words("Whose function decomposes the array: workbench.linalg's, or Dask's own as in the posts."),
]

Accuracy = Annotated[
    float,
    Field(gt=0, lt=1, allow_inf_nan=False),
    Words(
        "How far a singular value may be off: passes are made until bounds on the error say so, and a "
        "certificate tells how far they came. Of method=workbench only.",
        unit="relative",
        only="method=workbench",
        examples=(0.001,),
    ),
]

Iterations = Annotated[
    int,
    Field(ge=0, le=50),
    Words(
        "Power iterations: each goes through the array twice more and brings the values closer to the true "
        "ones. Of method=dask only; the other has tol.",
        only="method=dask",
    ),
]

Iterator = Annotated[
    Literal["QR", "power"],
    Words(
        "How to iterate. QR makes the vectors orthogonal again after each product; power is quicker and "
        "goes wrong where the singular values fall fast. Of method=dask only.",
        only="method=dask",
    ),
]

Tolerance = Annotated[
    float,
    Field(gt=0, le=1, allow_inf_nan=False),
    Words(
        "The check fails when a singular value may be off by more than this part of itself. Of method=dask "
        "only; the other has tol.",
        unit="relative",
        only="method=dask",
    ),
]

Recompute = Annotated[
    bool,
    Words(
        "Make or read the array again at each pass (true), or hold it in memory (false); method=workbench "
        "also makes it again where it would take more than half of the memory."
    ),
]

Persist = Annotated[
    bool, Words("Make the array first and hold it in memory, so that only what is done with it is timed.")
]

Center = Annotated[
    bool, Words("Take the mean off each column first, which makes the SVD a principal component analysis.")
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
        "Which array, where the file holds several; of a table, columns such as height,weight.",
        allowed="the name of an array in the file",
        examples=("x", "group/dataset"),
        only="path",
    ),
]

DatasetPath = Annotated[
    Text,
    Words(
        "File, folder or URL of the dataset: NetCDF, Zarr as xarray writes it, GRIB, or images as TIFF or OME-Zarr. "
        "Several NetCDF files, such as one a year, are read as one: a folder of them, or a pattern.",
        allowed="the path or URL of NetCDF, a Zarr group as xarray writes it, GRIB, TIFF or OME-Zarr; or files as *.nc",
        examples=("winds.nc", "winds/*.nc", "s3://bucket/era5.zarr"),
        path=True,
    ),
]

VariableName = Annotated[
    Text,
    Words(
        "Which variable, where the dataset holds several.",
        allowed="the name of a variable of the dataset",
        examples=("u10",),
    ),
]

Selection = Annotated[
    Text,
    Words(
        "Only a part of it: values of coordinates, positions where there are none; both ends of a range included.",
        allowed="dimensions with a value or a range each, such as time=1990:2020, level=500",
        examples=("time=1990:2020, level=500", "latitude=20:70"),
    ),
]

Rows = Annotated[
    Text,
    Words(
        "Dimensions that the rows go through, and the columns through all others; where none is given, the times, "
        "or the first.",
        allowed="dimensions of the array by name or number, such as time or 0",
        examples=("time", "0"),
        only="path",
    ),
]

Gaps = Annotated[
    Literal["refuse", "mean", "rows", "columns"],
    Words(
        "Missing values: refuse them and say where, fill them with the mean of their column, or leave out "
        "the rows or the columns that hold one."
    ),
]

Raw = Annotated[
    bool,
    Words(
        "Use the numbers as they are stored, where attributes (scale_factor, _FillValue) say that they "
        "stand for others."
    ),
]

MissingChunks = Annotated[
    Literal["refuse", "fill"],
    Words(
        "Chunks of a Zarr or HDF5 array that don't exist: refuse the array if they are most of it, or use its fill "
        "value for them, as for arrays that are mostly empty on purpose."
    ),
]

Anonymous = Annotated[
    bool,
    Words(
        "Read a URL of s3, gs or abfs without keys, as public data allow. Else keys and tokens are those of the "
        "environment: AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS.",
        only="path",
    ),
]

Endpoint = Annotated[
    Text,
    Words(
        "Who serves an s3 or gs URL, where that isn't Amazon or Google.",
        allowed="the address of a server, such as https://minio.example.org:9000",
        examples=("https://minio.example.org:9000",),
        only="path",
    ),
]

TokenVariable = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_]\w*$"),
    Words(
        "Variable of the environment, of workers too, that holds a token for https, hf or abfs. Its value is never "
        "written down.",
        allowed="the name of a variable, such as EARTHDATA_TOKEN",
        examples=("EARTHDATA_TOKEN",),
        only="path",
    ),
]

GenotypePath = Annotated[
    Text,
    Words(
        "Genotypes: PLINK .bed (with .bim and .fam), VCF Zarr, a packed store, or an array of counts.",
        allowed="the path or URL of a PLINK .bed file, VCF Zarr, a packed store, or counts in Zarr, .npy or HDF5",
        examples=("study.bed", "study.vcz", "s3://bucket/study.zarr"),
        path=True,
    ),
]

NewPath = Annotated[
    Text,
    Words(
        "Where the packed store is written.",
        allowed="the path or URL of the store to be written",
        examples=("study.zarr",),
        path="new",
    ),
]

Save = Annotated[
    Text,
    Words(
        "Where the arrays of the answer are saved. Without it, small ones are kept with the run.",
        allowed="a path or URL that ends with .zarr, .npz, .npy or .nc",
        examples=("answer.zarr", "answer.npz"),
        path="new",
    ),
]

Replace = Annotated[bool, Words("Replace what is there under that name.", only="save")]

Labels = Annotated[
    Text,
    Words(
        "Table of further columns on the samples, such as their population, by which they are coloured.",
        allowed="the path of a text table with a header and a column of sample names",
        examples=("populations.tsv",),
        only="path",
        path=True,
    ),
]

Orientation = Annotated[
    Literal["variants×samples", "samples×variants"],
    Words("How an array of counts lies, where it doesn't say so itself.", only="path"),
]

MissingCode = Annotated[
    float,
    Words(
        "Value that stands for 'not known' in an array of counts; those in common use are understood.",
        only="path",
        examples=(-1,),
    ),
]

Scaler = Annotated[
    Literal["patterson", "hail", "plink", "standard", "center"],
    Words("Whose centring and scaling: eigenvalues differ by known factors, which the result names."),
]

Codec = Annotated[Literal["2-bit", "blosc"], Words("Two bits for each genotype, or a byte compressed by Blosc.")]
