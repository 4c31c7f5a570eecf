"""Singular value decompositions of random matrices: the functions, their answers and their presets."""

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
from workbench.formats import literal
from workbench.storage.variables import dataset
from workbench.workloads import checks, estimates, fields
from workbench.workloads.code import random_code, to_host
from workbench.workloads.declaring import workload
from workbench.workloads.fields import Sized
from workbench.workloads.forms import refuse_more
from workbench.workloads.presets import LARGE_SVDS, TEXTBOOK, UCX, Preset
from workbench.workloads.registry import Resolution, Template, arguments
from workbench.workloads.sizes import random_array
from workbench.workloads.values import Check, Surroundings
from workbench.workloads.without_dask import decomposed

if TYPE_CHECKING:
    from distributed import Client

    from workbench.linalg import Certificate


READ = "seconds_to_read"
"""Name of the seconds to make an array, if that is to read a file."""


def random_matrix(shape: tuple[int, int], chunks: int | tuple[int, int] | str, dtype: str, seed: int) -> da.Array:
    """Return numbers from 0 to 1, or 0, 1 and 2 like genotypes if they are whole."""
    if dtype == "uint8" and dask.config.get("array.backend", "numpy") == "cupy":
        from workbench.workloads.generators import counts

        return counts(da.core.normalize_chunks(chunks, shape, dtype=dtype), seed)
    rs = da.random.RandomState(seed)
    if dtype == "uint8":
        return rs.randint(0, 3, size=shape, chunks=chunks, dtype="uint8")
    return rs.random(size=shape, chunks=chunks).astype(dtype)


def held(*collections: Any) -> tuple[Any, ...]:
    """Persist collections in the workers' memory; return them and the seconds it took."""
    began = time.perf_counter()
    collections = dask.persist(*collections)
    wait(collections)
    if dask.config.get("array.backend", "numpy") == "cupy":
        # A task on a GPU ends when its kernels are launched.
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
    """Compute the full SVD of a random matrix with many rows and few columns.

    The result is exact and takes one pass. Dask computes a QR decomposition of each block of rows, stacks the small
    factors and decomposes them. workbench.linalg uses Cholesky QR, which is several times faster and takes half the
    memory, and checks that this is numerically safe. The elements are uniform between 0 and 1. From the posts "Large
    SVDs" (2020), where the matrix is 10,000,000 × 20, and "Experiments in high performance networking with UCX and DGX"
    (2019), where it is 1,000,000 × 1,000.
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
    """Compute the first k singular values and vectors of a large random matrix, approximately.

    The matrix is multiplied by a few random vectors, and the small product is decomposed. The values of Dask's own
    function can be far too small without a warning, so the check makes one more pass and reports how large the error
    may be. workbench.linalg continues until error bounds meet tol and returns a certificate; each of its passes
    computes a product and its transposed product. Random matrices are the hardest case, because their singular values
    lie close together. From the post "Large SVDs" (2020), where the matrix is 1,000,000 × 20,000 or ten times as high,
    k is 10 and there are no power iterations.
    """
    x, seconds_to_make = random_matrix(shape, chunks, dtype, seed), None
    if persist:
        x, seconds_to_make = held(x)
    if method == "workbench":
        from workbench.linalg import svd_compressed

        u, _, v = result = svd_compressed(x, k, tol=tol, seed=seed, keep=not compute)
        return u, da.from_array(result.values), v, result.certificate, seconds_to_make
    # A RandomState draws its numbers where x is, on the CPU or a GPU.
    rs = da.random.RandomState(seed)
    u, s, v = da.linalg.svd_compressed(x, k, iterator=iterator, n_power_iter=n_power_iter, seed=rs, compute=compute)
    return u, s, v, None, seconds_to_make


def _compressible(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    resolved, notes = random_array(given, cluster, workload="compressed_svd", layout="wide", **values)
    shape = resolved["shape"]
    refuse_more("compressed_svd", "k", resolved["k"], min(shape), f": the array is {formats.by(shape)}")
    n_bytes = math.prod(resolved["shape"]) * np.dtype(resolved["dtype"]).itemsize
    compute, reasons = recomputed(resolved, n_bytes, cluster)
    if resolved["dtype"] == "uint8" and cluster.makes_on_gpu():
        notes = (
            *notes,
            "GPUs draw 0, 1 and 2 with a kernel of ours: for CuPy's randint each block would be waited for.",
        )
    return resolved | {"compute": compute}, (*notes, *reasons)


def recomputed(resolved: Mapping[str, Any], n_bytes: int, around: Surroundings) -> tuple[bool, tuple[str, ...]]:
    """Return whether the array is made or read again at each pass, and the reason if the user didn't choose."""
    if resolved["compute"] or resolved["method"] == "dask" or resolved.get("persist") or around.keeps(n_bytes):
        return resolved["compute"], ()
    return True, (f"{formats.size(n_bytes)} are more than {around.too_much}: made or read again at each pass.",)


def matrix_of(resolved: Mapping[str, Any]) -> da.Array:
    """Return the matrix of such parameters."""
    return random_matrix(**arguments(random_matrix, resolved))


def uniform_code(resolved: Mapping[str, Any]) -> str:
    """Return code that makes such a matrix."""
    if resolved["dtype"] == "uint8":
        return random_code(f'RandomState({resolved["seed"]}).randint(0, 3, dtype="uint8", ', resolved)
    return random_code(f"RandomState({resolved['seed']}).random(", resolved)


def imports_for(resolved: Mapping[str, Any], *names: str) -> str:
    """Return code that imports what decomposes `x`, and these names of the package."""
    used = sorted((*(["linalg"] if resolved["method"] == "workbench" else []), *names))
    return "import dask.array as da\n" + (f"from workbench import {', '.join(used)}\n" if used else "")


def decomposing(resolved: Mapping[str, Any], on_gpu: bool) -> str:
    """Return code that decomposes `x`."""
    ours, k, seed = resolved["method"] == "workbench", resolved.get("k"), resolved["seed"]
    if k is None:
        return f"u, s, v = {'linalg' if ours else 'da.linalg'}.svd(x)\ns{to_host(on_gpu)}"
    if ours:
        options = (", center=0" if resolved.get("center") else "") + (", keep=False" if resolved["compute"] else "")
        call = f"linalg.svd_compressed(x, {k}, tol={resolved['tol']}, seed={seed}{options})"
        return f"u, s, v = found = {call}\ns{to_host(on_gpu)}, found.certificate"
    names = ("iterator", "n_power_iter", "compute")
    options = ", ".join(f"{name}={literal(resolved[name])}" for name in names)
    call = f"da.linalg.svd_compressed(x, {k}, {options}, seed=da.random.RandomState({seed}))"
    return f"u, s, v = {call}\ns{to_host(on_gpu)}"


def made(results: Mapping[str, Any], called: str = "seconds_to_make") -> dict[str, Any]:
    """Return the seconds that it took to make the array, or to read it, where that isn't in the time."""
    seconds = results.get("seconds_to_make")
    return {} if seconds is None else {called: float(seconds)}


def singular_values(results: Mapping[str, Any], called: str = "seconds_to_make") -> dict[str, Any]:
    """Return singular values, their certificate, and the seconds that it took to make the array."""
    answer: dict[str, Any] = {"singular_values": [float(value) for value in results["s"]]}
    if results.get("certificate") is not None:
        answer["certificate"] = certificate_json(results["certificate"])
    return answer | made(results, called)


def certificate_json(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as JSON."""
    return {
        "sentence": certificate.sentence,
        "status": certificate.status,
        # JSON has no infinity: None for values that can't be distinguished from zero.
        "bound": [float(each) if np.isfinite(each) else None for each in certificate.bound],
        "of_largest": [float(each) for each in certificate.of_largest],
        "tol": float(certificate.tol),
        "limit": certificate.limit,
        "angle": float(certificate.angle),
        "groups": [list(group) for group in certificate.groups],
        "shares": [float(each) if np.isfinite(each) else None for each in certificate.shares],
        "passes": int(certificate.passes),
        "bytes_read": int(certificate.bytes_read),
        "dtype": certificate.dtype,
        "seed": certificate.seed,
    }


def factors(results: Mapping[str, Any]) -> xr.Dataset:
    """Return U, s and Vᵀ of an SVD: the array is nearest to (u * s) @ v among those of so few components."""
    dims = {"u": ("row", "component"), "s": ("component",), "v": ("component", "column")}
    return dataset({name: (dims_of, results[name]) for name, dims_of in dims.items()}, results.get("kept"))


TALL = (
    Preset(
        name="textbook",
        title="10,000 × 1,000 in ten blocks",
        source=TEXTBOOK,
        parameters={"shape": [10_000, 1_000], "chunks": [1_000, 1_000], "method": "dask"},
    ),
    Preset(
        name="ucx",
        title="1,000,000 × 1,000 in a hundred blocks, made first and then timed",
        source=UCX,
        parameters={"shape": [1_000_000, 1_000], "chunks": [10_000, 1_000], "persist": True, "method": "dask"},
        profile="ucx",
    ),
    Preset(
        name="tall",
        title="10,000,000 × 20 in sixteen blocks, 1.6 GB",
        source=LARGE_SVDS,
        parameters={"shape": [10_000_000, 20], "chunks": [625_000, 20], "method": "dask"},
    ),
)


_AS_IN_THE_POST = {"k": 10, "method": "dask", "n_power_iter": 0, "tolerance": 1.0, "chunks": [20_000, 5_000]}
"""Tolerance without power iterations: the values are rough, so the check only says how rough."""
_LAPTOP = {"shape": [1_000_000, 20_000], "compute": True, **_AS_IN_THE_POST}


COMPRESSED = (
    Preset(
        name="laptop",
        title="1,000,000 × 20,000 as the post's code has it, float64, 160 GB: 2 min 30 s on a laptop",
        source=LARGE_SVDS,
        parameters={"dtype": "float64", **_LAPTOP},
    ),
    Preset(
        name="laptop_uint8",
        title="1,000,000 × 20,000 of one byte each, the 20 GB that the post calls it: 2 min 30 s on a laptop",
        source=LARGE_SVDS,
        parameters={"dtype": "uint8", **_LAPTOP},
    ),
    Preset(
        name="dgx2",
        title="200 GB, 10,000,000 × 20,000 genotypes held in memory: 10 to 15 s on sixteen GPUs",
        source=LARGE_SVDS,
        parameters={"shape": [10_000_000, 20_000], "dtype": "uint8", "persist": True, **_AS_IN_THE_POST},
    ),
)


def _check(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    return checks.svd_is_right(matrix_of(resolved), resolved, results, client)


def _code(on_gpu: bool, **resolved: Any) -> str:
    return f"{imports_for(resolved)}\n{uniform_code(resolved)}\n{decomposing(resolved, on_gpu)}"


_of_random = partial(Template, small=("s",), summary_of=singular_values, arrays_of=factors, alone=decomposed(matrix_of))
"""An SVD of a random matrix."""
_declared = partial(workload, needs=partial(estimates.with_input, estimates.svd), check=_check, code=_code)

TEMPLATES = (
    _of_random(
        _declared(
            title="SVD of a tall and skinny matrix",
            prepare=partial(random_array, workload="tall_skinny_svd", layout="tall"),
        )(tall_skinny_svd),
        returns=("u", "s", "v", "seconds_to_make"),
        values=("seconds_to_make",),
        presets=TALL,
    ),
    _of_random(
        _declared(title="Compressed SVD", prepare=_compressible)(compressed_svd),
        returns=("u", "s", "v", "certificate", "seconds_to_make"),
        values=("certificate", "seconds_to_make"),
        presets=COMPRESSED,
        extra={"tolerance": (fields.Tolerance, 0.25)},
    ),
)
