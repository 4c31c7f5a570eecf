"""Cases to measure: data, and the methods on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.svd import data, methods
from tests.benchmarks.svd.methods import Method

WEAK, CLEAR, PATTERSON = "genotypes, weak structure", "genotypes, clear structure", "genotypes, Patterson's scaling"
PCAONE = {k: f"genotypes, beside PCAone, k = {k}" for k in (data.K, data.MANY)}
LARGE, DISK, GROWTH, SUM = f"large {WEAK}", "from disk", "growth", "array sum"
DASK_TEN, DASK_BEST = "dask f64, n_power_iter=10", "dask f32, QR, n=8, persisted"
SKLEARN, ARPACK, PLINK = "scikit-learn randomized f32, n_iter=8", "SciPy svds (ARPACK) f32", "plink2 --pca (exact)"
FIRST = "ours fast, 1e-3, first call of a process"
POST = "dask RandomState, 4000², as in the post"
GROWTH_LIMIT = 200 * 2**20  # bytes


@dataclass(frozen=True)
class Case:
    """Methods that are compared with each other."""

    name: str
    size: str
    make: Callable[[Path], None]
    """Makes the data, once for all cases with the same `size` and function that follow each other."""
    methods: dict[str, Method]
    share: float
    """Of the time that all cases have."""
    doubled: bool = False
    """True to double the rounds, since the case is short and the cost of fresh memory makes its times vary."""


def cases(quick: bool, large: bool) -> list[Case]:
    """All cases; `quick` makes them small, `large` adds 400 000 × 5 000 genotypes."""
    rows, columns = (12_000, 600) if quick else (60_000, 3_000)
    size = f"{rows} × {columns}"
    weak = partial(data.genotypes, rows=rows, columns=columns, structure="weak", files=True)
    clear = partial(data.genotypes, rows=rows, columns=columns, structure="clear")
    incomplete = partial(data.incomplete, rows=rows, columns=columns)
    found = [
        Case(WEAK, size, weak, _in_memory(), 0.18),
        Case(PATTERSON, size, weak, _patterson(), 0.42),
        Case(DISK, size, weak, _from_disk(), 0.10),
        Case(CLEAR, size, clear, _easier(), 0.09),
        *(Case(PCAONE[k], size, incomplete, _beside_pcaone(k), 0.1) for k in PCAONE),
        _growth(rows, columns, quick),
        *_tall(10 if quick else 1),
        _sums(4_000 if quick else 16_000),
    ]
    if large:
        big = partial(data.genotypes, rows=400_000, columns=5_000, structure="weak")
        found.append(Case(LARGE, "400000 × 5000", big, _large(), 1.0))
    return found


def _ours(tol: float, kernel: str, given: Any = methods.packed, scaler: Any = "center", **more: Any) -> Method:
    options = {"keep": False} if more.get("limit") else {}
    return Method(methods.pca(tol, kernel, scaler, **options), given, ours=True, **more)


def _peer(passes: int, dtype: str = "f8", given: Any = methods.blocks, **more: Any) -> Method:
    cold = "lz4.zarr" if given is methods.from_zarr else ""
    return Method(methods.dask_compressed(passes, dtype, **more), given, cold=cold)


def _in_memory() -> dict[str, Method]:
    return {
        "ours NumPy, packed, 2e-3": _ours(2e-3, "numpy"),
        "ours NumPy, packed, 1e-3": _ours(1e-3, "numpy"),
        "ours NumPy, packed, 1e-4": _ours(1e-4, "numpy"),
        # To compare with ARPACK's six digits.
        "ours NumPy, packed, 5e-6": _ours(5e-6, "numpy"),
        "ours NumPy, bytes, 2e-3": _ours(2e-3, "numpy", methods.counts),
        "ours NumPy, bytes, 1e-3": _ours(1e-3, "numpy", methods.counts),
        "ours NumPy, bytes, 1e-4": _ours(1e-4, "numpy", methods.counts),
        "ours fast, packed, 2e-3": _ours(2e-3, "fast"),
        "ours fast, packed, 1e-3": _ours(1e-3, "fast"),
        "ours fast, packed, 1e-4": _ours(1e-4, "fast"),
        "ours fast, packed, 5e-6": _ours(5e-6, "fast"),
        "ours fast, bytes, 2e-3": _ours(2e-3, "fast", methods.counts),
        "ours fast, bytes, 1e-3": _ours(1e-3, "fast", methods.counts),
        "ours fast, bytes, 1e-4": _ours(1e-4, "fast", methods.counts),
        "ours svd_compressed, bytes, 1e-3": Method(methods.compressed(1e-3), methods.blocks, ours=True),
        "dask f64, n_power_iter=0 (as in the post)": _peer(0, compute=True),
        "dask f64, n_power_iter=2": _peer(2, compute=True),
        "dask f64, n_power_iter=4": _peer(4, compute=True),
        DASK_TEN: _peer(10, compute=True),
        f"{DASK_TEN}, held": _peer(10),
        DASK_BEST: _peer(8, "f4", persist=True, iterator="QR"),
        SKLEARN: Method(methods.sklearn_randomized, methods.counts, blas=True),
        ARPACK: Method(methods.scipy_arpack, methods.counts, blas=True),
        "cuML TruncatedSVD f32": Method(methods.cuml_svd, methods.counts, missing=methods.no_cuml),
    }


def _patterson() -> dict[str, Method]:
    scaled: dict[str, Any] = {"scaler": "patterson", "reference": "_patterson"}
    plink: dict[str, Any] = {
        "given": methods.bed,
        "blas": True,
        "reference": "_patterson",
        "cold": "x.bed",
        "program": True,
    }
    peers: dict[str, Any] = {"python": methods.PEERS, "missing": methods.no_peers, "reference": "_patterson"}
    return {
        "ours NumPy, packed, 1e-3": _ours(1e-3, "numpy", **scaled),
        "ours NumPy, packed, 1e-4": _ours(1e-4, "numpy", **scaled),
        "ours NumPy, .bed, 1e-4": _ours(1e-4, "numpy", methods.opened("x.bed"), cold="x.bed", **scaled),
        "ours fast, packed, 1e-3": _ours(1e-3, "fast", **scaled),
        "ours fast, packed, 1e-4": _ours(1e-4, "fast", **scaled),
        "ours fast, .bed, 1e-4": _ours(1e-4, "fast", methods.opened("x.bed"), cold="x.bed", **scaled),
        # To the six digits that PLINK prints.
        "ours NumPy, .bed, 5e-6": _ours(5e-6, "numpy", methods.opened("x.bed"), cold="x.bed", **scaled),
        "ours fast, .bed, 5e-6": _ours(5e-6, "fast", methods.opened("x.bed"), cold="x.bed", **scaled),
        "scikit-allel randomized_pca, 4": Method(methods.allel_randomized, methods.counts, blas=True, **peers),
        "sgkit pca, randomized, n_iter=4": Method(methods.sgkit_randomized, methods.blocks, **peers),
        PLINK: Method(methods.plink2(), missing=methods.no_plink2, **plink),
        "plink2 --pca approx": Method(methods.plink2("approx"), missing=methods.no_plink2, **plink),
    }


def _beside_pcaone(k: int) -> dict[str, Method]:
    """From one .bed, out of the page cache, by Patterson's scaling."""
    few = k == data.K
    ours: dict[str, Any] = {"given": methods.opened("x.bed"), "ours": True, "cold": "x.bed", "reference": f"_{k}"}
    found = {
        f"ours fast, {tol}": Method(methods.pca(float(tol), "fast", "patterson", k), **ours)
        for tol in (("1e-3", "5e-6") if few else ("2.8e-2", "2e-2", "1e-2", "7e-4"))
    }
    if few:
        # Values are as good as PCAone's in as many passes with 16 columns; vectors need more columns.
        run = methods.pca(5e-6, "fast", "patterson", k, n_oversamples=22)
        found["ours fast, 5e-6, 32 columns"] = Method(run, **ours)
        found[FIRST] = Method(methods.pca(1e-3, "fast", "patterson", k), **ours, warm=False)
    peer: dict[str, Any] = {"given": methods.bed, "blas": True, "cold": "x.bed", "program": True, "reference": f"_{k}"}
    peer["missing"] = methods.no_pcaone
    found["PCAone"] = Method(methods.pcaone(k), **peer)
    if few:
        found["PCAone, out of core"] = Method(methods.pcaone(k, "-m", "0.05"), **peer)
    found["PCAone, Arnoldi"] = Method(methods.pcaone(k, "-d", "0"), **peer)
    return found


def _from_disk() -> dict[str, Method]:
    found = {}
    for kernel, shown in (("numpy", "NumPy"), ("fast", "fast")):
        for name, place in (("lz4", "lz4.zarr"), ("2-bit", "two_bit.zarr"), (".bed", "x.bed")):
            for tol in ("2e-3", "1e-3"):
                found[f"ours {shown}, {name}, {tol}"] = _ours(float(tol), kernel, methods.opened(place), cold=place)
    found[f"from_zarr, {DASK_TEN}"] = _peer(10, given=methods.from_zarr, compute=True)
    return found


def _easier() -> dict[str, Method]:
    some = ("packed, 1e-3", "packed, 1e-4", "NumPy, packed, 5e-6", DASK_TEN, DASK_BEST, SKLEARN, ARPACK)
    return {name: method for name, method in _in_memory().items() if name.endswith(some)}


def _large() -> dict[str, Method]:
    """Less than all: each round of the peers takes minutes."""
    some = ("packed, 2e-3", "packed, 1e-3", "packed, 5e-6", "svd_compressed, bytes, 1e-3")
    some += (DASK_TEN, DASK_BEST, SKLEARN, ARPACK)
    return {name: method for name, method in _in_memory().items() if name.endswith(some)}


def _growth(rows: int, columns: int, quick: bool) -> Case:
    times = {}
    for factor in (1, 2, 4, 8):
        given = methods.opened("two_bit.zarr", factor * rows)
        limit = GROWTH_LIMIT // (4 if quick else 1)
        for kernel, shown in (("numpy", "NumPy"), ("fast", "fast")):
            times[f"ours {shown}, rows × {factor}"] = _ours(1e-3, kernel, given, cold="two_bit.zarr", limit=limit)
    make = partial(data.growing, rows=8 * rows, columns=columns)
    held = -(-columns // 4) * 8 * rows / 2**20
    size = f"{rows} to {8 * rows} × {columns}, {held:.0f} MiB, of {limit >> 20} MiB to allocate"
    return Case(GROWTH, size, make, times, 0.08)


def _tall(part: int) -> list[Case]:
    both = {"ours": Method(methods.tall, methods.blocks, ours=True), "dask": Method(methods.dask_tall, methods.blocks)}
    found = []
    for rows, columns in ((300_000 // part, 100), (2_000_000 // part, 20)):
        for condition in (1e3, 1e8, 1e12):
            make = partial(data.tall, rows=rows, columns=columns, condition=condition)
            name = f"tall, {columns} columns, condition {condition:.0e}"
            found.append(Case(name, f"{rows} × {columns}", make, both, 0.025, doubled=True))
    return found


def _sums(n: int) -> Case:
    given = methods.side(n)
    return Case(
        SUM,
        f"{n} × {n}",
        data.nothing,
        {
            "ours NumPy, fused tiles": Method(methods.tiled_sum("numpy"), given, ours=True),
            "ours fast, fused tiles": Method(methods.tiled_sum("fast"), given, ours=True),
            "ours fast, in an ordinary array": Method(methods.tiled_sum("fast", False), given, ours=True),
            POST: Method(methods.random_sum("RandomState", 4000), given),
            "dask default_rng, 4000²": Method(methods.random_sum("default_rng", 4000), given),
            "dask default_rng, 1000²": Method(methods.random_sum("default_rng", 1000), given),
        },
        0.06,
    )
