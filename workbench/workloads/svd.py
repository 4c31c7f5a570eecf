"""Singular value decompositions of random matrices and of arrays in files, their answers, and who did them before."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.base import wait

from workbench import formats
from workbench.formats import by, literal, size
from workbench.storage.formats.base import Found
from workbench.storage.reading import array_of
from workbench.storage.variables import dataset
from workbench.workloads import checks, estimates, fields
from workbench.workloads.alone import decomposed
from workbench.workloads.code import opening, random_code, to_host
from workbench.workloads.fields import Sized
from workbench.workloads.forms import refuse_more
from workbench.workloads.gaps import without_gaps
from workbench.workloads.inputs import checked, facts_of, found_in, imports_of
from workbench.workloads.presets import LARGE_SVDS, TEXTBOOK, UCX, Preset
from workbench.workloads.registry import Resolution, Template, arguments
from workbench.workloads.sizes import Wish, chunks_of, grown, random_array
from workbench.workloads.values import BadParameterError, Check, Surroundings

if TYPE_CHECKING:
    from distributed import Client

    from workbench.linalg import Certificate


READ = "seconds_to_read"
"""What seconds to make an array are called where that is to read a file."""


def random_matrix(shape: tuple[int, int], chunks: int | tuple[int, int] | str, dtype: str, seed: int) -> da.Array:
    """Numbers from 0 to 1, or 0, 1 and 2 like genotypes where they are whole."""
    if dtype == "uint8" and dask.config.get("array.backend", "numpy") == "cupy":
        from workbench.workloads.generators import counts

        return counts(da.core.normalize_chunks(chunks, shape, dtype=dtype), seed)
    rs = da.random.RandomState(seed)
    if dtype == "uint8":
        return rs.randint(0, 3, size=shape, chunks=chunks, dtype="uint8")
    return rs.random(size=shape, chunks=chunks).astype(dtype)


def held(*collections: Any) -> tuple[Any, ...]:
    """Collections in the memory of the workers, and the seconds that it took."""
    began = time.perf_counter()
    collections = dask.persist(*collections)
    wait(collections)
    if dask.config.get("array.backend", "numpy") == "cupy":
        # A task there ends when its kernels are launched.
        from workbench.linalg.backend import wait_for_gpus

        wait_for_gpus()
    return *collections, time.perf_counter() - began


def tall_skinny_svd(
    shape: Annotated[fields.Shape, Sized("tall", "512 MiB")],
    method: fields.Method = "workbench",
    chunks: fields.Chunks = "auto",
    dtype: fields.FloatType = "float64",
    seed: fields.Seed = 0,
    persist: fields.Persist = False,
) -> tuple[da.Array, da.Array, da.Array, float | None]:
    """Full SVD of a random matrix with many rows and few columns.

    The result is exact and takes one pass. Dask computes a QR decomposition of each block of rows, stacks the small
    factors and decomposes them. workbench.linalg uses Cholesky QR, which is several times faster and takes half the
    memory, and checks that this is numerically safe. The elements are uniform between 0 and 1. From the posts "Large
    SVDs" (2020), where the matrix is 10 000 000 × 20, and "Experiments in high performance networking with UCX and DGX"
    (2019), where it is 1 000 000 × 1000.
    """
    x, seconds_to_make = da.random.RandomState(seed).random(size=shape, chunks=chunks).astype(dtype), None
    if persist:
        x, seconds_to_make = held(x)
    if method == "workbench":
        from workbench.linalg import svd

        u, s, v = svd(x)
    else:
        u, s, v = da.linalg.svd(x)
    return u, s, v, seconds_to_make


def compressed_svd(
    shape: Annotated[fields.Shape, Sized("wide", "256 MiB")],
    k: fields.Components = 10,
    method: fields.Method = "workbench",
    tol: fields.Accuracy = 0.01,
    n_power_iter: fields.Iterations = 2,
    iterator: fields.Iterator = "QR",
    compute: fields.Recompute = False,
    chunks: fields.Chunks = "auto",
    dtype: fields.MatrixType = "uint8",
    seed: fields.Seed = 0,
    persist: fields.Persist = False,
) -> tuple[da.Array, da.Array, da.Array, Any, float | None]:
    """First k singular values and vectors of a large random matrix, approximately.

    The matrix is multiplied by a few random vectors, and the small product is decomposed. The values of Dask's own
    function can be far too small without a warning, so the check makes one more pass and reports how large the error
    may be. workbench.linalg continues until error bounds meet tol and returns a certificate; each of its passes
    computes a product and its transposed product. Random matrices are the hardest case, because their singular values
    lie close together. From the post "Large SVDs" (2020), where the matrix is 1 000 000 × 20 000 or ten times as high,
    k is 10 and there are no power iterations.
    """
    x, seconds_to_make = random_matrix(shape, chunks, dtype, seed), None
    if persist:
        x, seconds_to_make = held(x)
    if method == "workbench":
        from workbench.linalg import svd_compressed

        u, _, v = result = svd_compressed(x, k, tol=tol, seed=seed, keep=not compute)
        return u, da.from_array(result.values), v, result.certificate, seconds_to_make
    # A RandomState makes its numbers where x is, on the CPU or a GPU.
    rs = da.random.RandomState(seed)
    u, s, v = da.linalg.svd_compressed(x, k, iterator=iterator, n_power_iter=n_power_iter, seed=rs, compute=compute)
    return u, s, v, None, seconds_to_make


def _compressible(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    resolved, notes = random_array(values, given, around, workload="compressed_svd", layout="wide")
    shape = resolved["shape"]
    refuse_more("compressed_svd", "k", resolved["k"], min(shape), f": the array is {formats.by(shape)}")
    n_bytes = math.prod(resolved["shape"]) * np.dtype(resolved["dtype"]).itemsize
    compute, told = recomputed(resolved, n_bytes, around)
    if resolved["dtype"] == "uint8" and around.makes_on_gpu():
        notes = (
            *notes,
            "GPUs draw 0, 1 and 2 with a kernel of ours: for CuPy's randint each block would be waited for.",
        )
    return resolved | {"compute": compute}, (*notes, *told)


def recomputed(resolved: Mapping[str, Any], n_bytes: int, around: Surroundings) -> tuple[bool, tuple[str, ...]]:
    """Whether the array is made or read again at each pass, and why where nobody asked for it."""
    if resolved["compute"] or resolved["method"] == "dask" or resolved.get("persist") or around.keeps(n_bytes):
        return resolved["compute"], ()
    return True, (f"{formats.size(n_bytes)} are more than {around.too_much}: made or read again at each pass.",)


def matrix_of(resolved: Mapping[str, Any]) -> da.Array:
    """The matrix of such parameters."""
    return random_matrix(**arguments(random_matrix, resolved))


def uniform_code(resolved: Mapping[str, Any]) -> str:
    """Code that makes such a matrix."""
    if resolved["dtype"] == "uint8":
        return random_code(f'RandomState({resolved["seed"]}).randint(0, 3, dtype="uint8", ', resolved)
    return random_code(f"RandomState({resolved['seed']}).random(", resolved)


def imports_for(resolved: Mapping[str, Any], *names: str) -> str:
    """Code that imports what decomposes `x`, and these names of the package."""
    used = sorted((*(["linalg"] if resolved["method"] == "workbench" else []), *names))
    return "import dask.array as da\n" + (f"from workbench import {', '.join(used)}\n" if used else "")


def decomposing(resolved: Mapping[str, Any], on_gpu: bool) -> str:
    """Code that decomposes `x`."""
    ours, k, seed = resolved["method"] == "workbench", resolved.get("k"), resolved["seed"]
    if k is None:
        return f"u, s, v = {'linalg' if ours else 'da.linalg'}.svd(x)\ns{to_host(on_gpu)}"
    if ours:
        more = (", center=0" if resolved.get("center") else "") + (", keep=False" if resolved["compute"] else "")
        call = f"linalg.svd_compressed(x, {k}, tol={resolved['tol']}, seed={seed}{more})"
        return f"u, s, v = found = {call}\ns{to_host(on_gpu)}, found.certificate"
    names = ("iterator", "n_power_iter", "compute")
    more = ", ".join(f"{name}={literal(resolved[name])}" for name in names)
    call = f"da.linalg.svd_compressed(x, {k}, {more}, seed=da.random.RandomState({seed}))"
    return f"u, s, v = {call}\ns{to_host(on_gpu)}"


def made(results: Mapping[str, Any], called: str = "seconds_to_make") -> dict[str, Any]:
    """Seconds that it took to make the array, or to read it, where that isn't in the time."""
    seconds = results.get("seconds_to_make")
    return {} if seconds is None else {called: float(seconds)}


def singular_values(results: Mapping[str, Any], called: str = "seconds_to_make") -> dict[str, Any]:
    """Singular values, what is certified of them, and how long it took to make the array."""
    told: dict[str, Any] = {"singular_values": [float(value) for value in results["s"]]}
    if results.get("certificate") is not None:
        told["certificate"] = certificate_json(results["certificate"])
    return told | made(results, called)


def certificate_json(found: Certificate) -> dict[str, Any]:
    """What a certificate says, as JSON."""
    return {
        "sentence": found.sentence,
        "status": found.status,
        # JSON has no infinity: None for what can't be told from zero.
        "bound": [float(each) if np.isfinite(each) else None for each in found.bound],
        "of_largest": [float(each) for each in found.of_largest],
        "tol": float(found.tol),
        "limit": found.limit,
        "angle": float(found.angle),
        "groups": [list(group) for group in found.groups],
        "shares": [float(each) if np.isfinite(each) else None for each in found.shares],
        "passes": int(found.passes),
        "bytes_read": int(found.bytes_read),
        "dtype": found.dtype,
        "seed": found.seed,
    }


def factors(results: Mapping[str, Any]) -> xr.Dataset:
    """U, s and Vᵀ of an SVD: the array is nearest to (u * s) @ v among those of so few components."""
    dims = {"u": ("row", "component"), "s": ("component",), "v": ("component", "column")}
    return dataset({name: (named, results[name]) for name, named in dims.items()}, results.get("kept"))


TALL = (
    Preset(
        name="textbook",
        title="10 000 × 1 000 in ten blocks",
        source=TEXTBOOK,
        parameters={"shape": [10_000, 1_000], "chunks": [1_000, 1_000], "method": "dask"},
    ),
    Preset(
        name="ucx",
        title="1 000 000 × 1 000 in a hundred blocks, made first and then timed",
        source=UCX,
        parameters={"shape": [1_000_000, 1_000], "chunks": [10_000, 1_000], "persist": True, "method": "dask"},
        profile="ucx",
    ),
    Preset(
        name="tall",
        title="10 000 000 × 20 in sixteen blocks, 1.6 GB",
        source=LARGE_SVDS,
        parameters={"shape": [10_000_000, 20], "chunks": [625_000, 20], "method": "dask"},
    ),
)


_AS_IN_THE_POST = {"k": 10, "method": "dask", "n_power_iter": 0, "tolerance": 1.0, "chunks": [20_000, 5_000]}
"""Without power iterations the values are rough, so that the check may only say how rough."""
_LAPTOP = {"shape": [1_000_000, 20_000], "compute": True, **_AS_IN_THE_POST}


COMPRESSED = (
    Preset(
        name="laptop",
        title="1 000 000 × 20 000 as the post's code has it, float64, 160 GB: 2 min 30 s on a laptop",
        source=LARGE_SVDS,
        parameters={"dtype": "float64", **_LAPTOP},
    ),
    Preset(
        name="laptop_uint8",
        title="1 000 000 × 20 000 of one byte each, the 20 GB that the post calls it: 2 min 30 s on a laptop",
        source=LARGE_SVDS,
        parameters={"dtype": "uint8", **_LAPTOP},
    ),
    Preset(
        name="dgx2",
        title="200 GB, 10 000 000 × 20 000 genotypes held in memory: 10 to 15 s on sixteen GPUs",
        source=LARGE_SVDS,
        parameters={"shape": [10_000_000, 20_000], "dtype": "uint8", "persist": True, **_AS_IN_THE_POST},
    ),
)


_of_random = partial(
    Template,
    small=("s",),
    checker=lambda resolved, *found: checks.svd_is_right(matrix_of(resolved), resolved, *found),
    summary_of=singular_values,
    arrays_of=factors,
    alone=decomposed(matrix_of),
    code=lambda resolved, on_gpu: f"{imports_for(resolved)}\n{uniform_code(resolved)}\n{decomposing(resolved, on_gpu)}",
)
"""An SVD of a random matrix."""

TEMPLATES = (
    _of_random(
        tall_skinny_svd,
        title="SVD of a tall and skinny matrix",
        returns=("u", "s", "v", "seconds_to_make"),
        values=("seconds_to_make",),
        resolver=partial(random_array, workload="tall_skinny_svd", layout="tall"),
        estimate=partial(estimates.with_input, estimates.svd),
        presets=TALL,
    ),
    _of_random(
        compressed_svd,
        title="Compressed SVD",
        returns=("u", "s", "v", "certificate", "seconds_to_make"),
        values=("certificate", "seconds_to_make"),
        resolver=_compressible,
        estimate=partial(estimates.with_input, estimates.svd),
        presets=COMPRESSED,
        extra={"tolerance": (fields.Tolerance, 0.25)},
    ),
)


# --- of an array in a file -------------------------------------------------------------------------------------------

_LARGEST_SIDE = 5000
"""Of the small factor that a full SVD decomposes in one worker: 200 MB, and about a minute."""
_READ_BYTES = 32_000_000
_DIRECT_BYTES = 4 * _READ_BYTES


def svd_of_file(
    path: fields.Path,
    array: fields.ArrayName | None = None,
    k: fields.Components | None = None,
    center: fields.Center = False,
    rows: fields.Rows | None = None,
    select: fields.Selection | None = None,
    missing: fields.Gaps = "refuse",
    method: fields.Method = "workbench",
    tol: fields.Accuracy = 1e-3,
    n_power_iter: fields.Iterations = 4,
    iterator: fields.Iterator = "QR",
    compute: fields.Recompute = False,
    chunks: fields.Chunks = "auto",
    seed: fields.Seed = 0,
    persist: fields.Persist = False,
    anon: fields.Anonymous = False,
    endpoint_url: fields.Endpoint | None = None,
    token_variable: fields.TokenVariable | None = None,
) -> tuple[da.Array, da.Array, da.Array, Any, Any, float | None]:
    """SVD of your own array, from .npy, .npz, HDF5, NetCDF, Zarr, TIFF, Parquet or CSV.

    Without k, all singular values are computed exactly in one pass; the array must be narrow in one direction. With k,
    only the first k are computed: by workbench.linalg to the accuracy tol with a certificate, or by Dask approximately,
    and the check reports how large the error may be. Integers are converted to float64, packed values of NetCDF and
    Zarr are decoded, and variables with three or more dimensions become a matrix of rows and columns. Subtract the
    means of the columns (center) for a principal component analysis. With persist, the time to read the file is
    reported separately.
    """
    ours = method == "workbench"
    found = found_in("svd_of_file", locals(), rows=rows)
    x, kept = matrix_of_file(found, k, chunks, missing)
    if center and not (ours and k is not None):  # Ours takes the means off inside its products.
        x = x - means(x, compute)
    seconds_to_make = None
    if persist:
        x, seconds_to_make = held(x)
    if ours:
        from workbench.linalg import svd, svd_compressed

        if k is None:
            u, s, v = svd(x)
            return u, s, v, None, kept, seconds_to_make
        u, _, v = result = svd_compressed(x, k, tol=tol, seed=seed, center=0 if center else None, keep=not compute)
        s = da.from_array(result.values)
        return u, s, v, result.certificate, kept, seconds_to_make
    if k is None:
        u, s, v = da.linalg.svd(x)
        if x.npartitions == 1:
            # Dask's SVD of a single block doesn't keep hold of what its graph needs: means, or the block itself.
            u, s, v = dask.persist(u, s, v)
    else:
        # A RandomState makes its numbers where x is, on the CPU or a GPU.
        rs = da.random.RandomState(seed)
        u, s, v = da.linalg.svd_compressed(x, k, iterator=iterator, n_power_iter=n_power_iter, seed=rs, compute=compute)
    return u, s, v, None, kept, seconds_to_make


def matrix_of_file(found: Found, k: int | None, chunks: Any, missing: str) -> tuple[da.Array, Any]:
    """Array in a file as a matrix in blocks that suit its SVD, and which rows or columns of it are kept.

    What is missing is refused, filled or left out; for the last two, the array is gone through once more, first.
    """
    chunks = tuple(chunks) if isinstance(chunks, list) else chunks
    blocks, chunks, _ = cut(found, k, chunks, Surroundings())
    # Onto the GPU where array.backend says so, else nowhere: as it is stored, which may be an eighth of the bytes.
    x = array_of(found, blocks, missing).to_backend().astype(found.working_type).rechunk(chunks)
    return without_gaps(x, missing, found.path)


def means(x: da.Array, compute: bool) -> da.Array:
    """Means of the columns."""
    mean = x.mean(axis=0)
    if compute:
        # Known beforehand, the means let each block pass by; otherwise all of them wait in memory for the means.
        mean = mean.persist()
        wait(mean)
    return mean


def _resolved(values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
    found = checked("svd_of_file", found_in("svd_of_file", values, rows=values["rows"]), values["missing_chunks"])
    blocks, chunks, notes = cut(found, values["k"], values["chunks"], around)
    facts = facts_of(found, values["select"]) | {
        "lengths": found.lengths,
        "axes": found.axes,
        "blocks": blocks,
        "chunks": chunks,
    }
    if found.dtype.name != found.working_type:
        notes = (*notes, f"The array holds {found.dtype.name} and is decomposed as {found.working_type}.")
    n_bytes = math.prod(found.shape) * np.dtype(found.working_type).itemsize
    compute, told = (values["compute"], ()) if values["k"] is None else recomputed(values, n_bytes, around)
    return values | facts | {"compute": compute}, (*found.remarks, *notes, *told)


def cut(
    found: Found, k: int | None, chunks: Any, around: Surroundings
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """Blocks in which the file is read, blocks in which it is decomposed, and the reasons."""
    refuse_impossible(found, k)
    wanted, notes = _wanted(found, k, chunks, around)
    if found.whole:
        parts = "one block" if wanted == found.shape else f"blocks of {by(wanted)}"
        note = f"{found.path} can only be read as a whole, by one worker; then it is cut into {parts}."
        return found.shape, wanted, (*notes, note)
    if found.chunks is None:
        return wanted, wanted, notes
    if chunks == "auto":
        direct = _aligned(found, wanted)
        if math.prod(direct) * 8 <= _DIRECT_BYTES:
            return direct, direct, _read_note(found, direct, k)
    elif all(part % stored == 0 or part == length for part, stored, length in _axes(found, wanted)):
        return wanted, wanted, notes
    # Several stored blocks as one where they are small.
    part = tuple(map(min, found.chunks, found.shape))
    read = grown(part, found.shape, max(1, _READ_BYTES // np.dtype(found.working_type).itemsize))
    why = "a full SVD needs whole rows or columns in each" if k is None else "as good for the products as for memory"
    note = f"Stored in blocks of {by(found.chunks)}, read in blocks of {by(read)} and rechunked to {by(wanted)}: {why}."
    return read, wanted, (*notes, note) if chunks != "auto" else (note,)


def refuse_impossible(found: Found, k: int | None) -> None:
    """Raise where the array has no such SVD."""
    rows, columns = found.shape
    small = min(rows, columns)
    if k is None and small > _LARGEST_SIDE:
        raise BadParameterError(
            f"k of svd_of_file is missing, and {found.path} ({rows} × {columns}) is too wide for a full SVD: one "
            f"worker would decompose a factor of {small} × {small} ({size(small * small * 8)}). "
            "Give k, such as 10.",
            "k",
        )
    if k is not None:
        refuse_more("svd_of_file", "k", k, small, f": {found.path} is {rows} × {columns}")


def _wanted(found: Found, k: int | None, chunks: Any, around: Surroundings) -> tuple[tuple[int, ...], tuple[str, ...]]:
    dtype = np.dtype(found.working_type)
    rows, columns = found.shape
    fat = k is None and rows < columns
    wish = Wish("svd_of_file", "wide" if k is not None else "tall", dtype, dtype, turned=fat)
    turned = chunks[::-1] if fat and isinstance(chunks, tuple) else chunks
    block, notes = chunks_of(wish, (columns, rows) if fat else (rows, columns), turned, around)
    return (block[::-1] if fat else block), notes


def _aligned(found: Found, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Nearest block that is made of whole stored blocks."""
    return tuple(
        min(length, max(stored, part // stored * stored)) if part < length else length
        for part, stored, length in _axes(found, wanted)
    )


def _axes(found: Found, wanted: tuple[int, ...]) -> list[tuple[int, int, int]]:
    assert found.chunks is not None
    return list(zip(wanted, found.chunks, found.shape, strict=True))


def _read_note(found: Found, direct: tuple[int, ...], k: int | None) -> tuple[str, ...]:
    assert found.chunks is not None
    if direct == found.chunks:
        return (f"Read in the blocks of {by(direct)} in which it is stored.",)
    whole = ", with whole rows or columns as a full SVD needs" if k is None else ""
    note = f"Stored in blocks of {by(found.chunks)}, read in blocks of {by(direct)}, which are made of them{whole}."
    return (note,)


def _matrix_of_file(resolved: Mapping[str, Any]) -> da.Array:
    found = found_in("svd_of_file", resolved, rows=resolved["rows"])
    x, _ = matrix_of_file(found, resolved["k"], resolved["chunks"], resolved["missing"])
    # The check goes over the blocks one by one, so none may wait for the means of the columns.
    return x - means(x, compute=True) if resolved["center"] else x


def _check(resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Whether the answer is right, and of which numbers it is."""
    checked = checks.svd_is_right(_matrix_of_file(resolved), resolved, results, client)
    gone = [
        f"{resolved['shape'][dim == 'column'] - len(kept)} of {resolved['shape'][dim == 'column']} {dim}s hold missing "
        "values and were left out."
        for dim, kept in (results.get("kept") or {}).items()
    ]
    return checked.model_copy(update={"what": " ".join((checked.what, *gone, *resolved["remarks"]))})


def _factors(results: Mapping[str, Any]) -> xr.Dataset:
    """U, s and Vᵀ, which say of rows or columns that go through two dimensions of the file how long these are."""
    found, lengths = factors(results), results.get("lengths") or ()
    for name, axes in zip(("u", "v"), results.get("axes") or (), strict=False):
        if len(axes) == 2 and not found[name].coords:
            rows, columns = (lengths[axis] for axis in axes)
            found[name].attrs.update(grid_rows=rows, grid_columns=columns)
    return found


def _code(resolved: Mapping[str, Any], on_gpu: bool) -> str:
    """Notebook cell of the SVD of an array in a file."""
    lines, axes = [opening(resolved)], resolved["axes"]
    folded = ".to_backend()" if on_gpu else ""
    if axes is not None:
        order = [axis for group in axes for axis in group]
        folded += "" if order == sorted(order) else f".transpose({order})"
        folded += f".reshape({list(resolved['shape'])})"
    lines.append(f'x = x.data{folded}.astype("{resolved["dtype"]}").rechunk({tuple(resolved["chunks"])})')
    lines += {
        "refuse": [],
        "mean": ["x = da.where(da.isnan(x), da.nanmean(x, axis=0), x)"],
        "rows": ["x = x[~da.isnan(x).any(axis=1).compute()]"],
        "columns": ["x = x[:, ~da.isnan(x).any(axis=0).compute()]"],
    }[resolved["missing"]]
    if resolved["center"] and (resolved["k"] is None or resolved["method"] == "dask"):
        lines.append("x = x - x.mean(axis=0)")
    if resolved["persist"]:
        lines.append("x = x.persist()")
    return "\n".join((imports_for(resolved, "storage"), *lines, decomposing(resolved, on_gpu)))


OF_FILE = Template(
    svd_of_file,
    imports=imports_of,
    title="SVD of your own array",
    returns=("u", "s", "v", "certificate", "kept", "seconds_to_make"),
    small=("s",),
    values=("certificate", "kept", "seconds_to_make"),
    resolver=_resolved,
    estimate=partial(estimates.with_input, estimates.svd_of_file),
    checker=_check,
    summary_of=partial(singular_values, called=READ),
    arrays_of=_factors,
    code=_code,
    alone=decomposed(lambda resolved: _matrix_of_file({**resolved, "center": False})),
    extra={
        "missing_chunks": (fields.MissingChunks, "refuse"),
        "tolerance": (fields.Tolerance, 0.1),
    },
)
