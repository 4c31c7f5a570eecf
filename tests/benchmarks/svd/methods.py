"""The methods: what each is given, which isn't timed, and what it does with that, which is.

Nothing of workbench is imported here but in the methods that are ours: scikit-allel and sgkit run this file in an
environment that doesn't have it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.benchmarks.svd.data import K

Matrix = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[3]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
PCAONE = ROOT / "build" / "pcaone" / "PCAone"
SMALL = 4096  # rows of the warm-up


class Found(NamedTuple):
    """Factors, as far as a method gives them, and what it says of them."""

    u: Any = None
    s: Any = None
    vh: Any = None
    bound: float | None = None
    passes: int | None = None
    deviation: float | None = None
    """Of a sum of random numbers from what is expected, in standard deviations."""


@dataclass(frozen=True)
class Method:
    """One way to compute what a case asks for."""

    run: Callable[[Any], Found]
    given: Callable[[Path, bool], Any]
    """Function that makes the method's input from a data folder; True asks for a small piece."""
    ours: bool = False
    blas: bool = False
    """True if BLAS has all threads, as in methods without Dask's threads."""
    python: Path = Path(sys.executable)
    program: bool = False
    """True if another program does the work, so that its memory counts."""
    cold: str = ""
    """Files in the folder to drop from the page cache before."""
    warm: bool = True
    """True if a small piece goes first; else the call is the first of its process."""
    limit: int = 0
    """Bytes that it may allocate."""
    reference: str = ""
    missing: Callable[[], str | None] = lambda: None
    """Function that returns why the method is unavailable."""


# --- what is given -----------------------------------------------------------------------------------------------


def counts(folder: Path, small: bool) -> Matrix:
    """Return the data in memory, in the layout of x.npy."""
    x = np.load(folder / "x.npy", mmap_mode="r")
    return np.array(x[: max(SMALL, 4 * x.shape[1])] if small else x)


def blocks(folder: Path, small: bool) -> Any:
    """In four blocks where they're floats, which Dask's own default (128 MiB) would have fewer of; else of 8 MiB."""
    import dask.array as da

    x = counts(folder, small)
    quarter = -(-len(x) // 4)
    rows = quarter if x.dtype.kind == "f" else min(quarter, 2**23 // x.shape[1])
    return da.from_array(x, chunks=(rows, x.shape[1]))


def packed(folder: Path, small: bool) -> Any:
    """Two bits each, in memory."""
    import dask.array as da

    from workbench.genotypes import Genotypes, pack

    x = counts(folder, small)
    rows = max(1, 2**22 // x.shape[1])
    bits = np.concatenate([pack(x[i : i + rows]) for i in range(0, len(x), rows)])
    # Of one block: from_array copies what it cuts.
    return Genotypes(da.from_array(bits, chunks=-1), np.arange(x.shape[1]))


def opened(name: str, rows: int | None = None) -> Callable[[Path, bool], Any]:
    """Genotypes of a file, or the first of them."""

    def given(folder: Path, small: bool) -> Any:
        from workbench.genotypes import open_genotypes

        found = open_genotypes(folder / name)
        return found[: SMALL if small else rows] if small or rows else found

    return given


def from_zarr(folder: Path, small: bool) -> Any:
    import dask.array as da

    found = da.from_zarr(str(folder / "lz4.zarr"))
    return found[:SMALL] if small else found


# --- ours --------------------------------------------------------------------------------------------------------


def pca(tol: float, kernel: str, scaler: Any = "center", k: int = K, **more: Any) -> Callable[[Any], Found]:
    def run(given: Any) -> Found:
        from workbench.genotypes import pca

        result = pca(given, k, scaler=scaler, tol=tol, kernel=kernel, **more)
        s, says = result.singular_values, result.certificate
        return Found(None, s, (result.scores / s).T, float(says.bound.max()), says.passes)

    return run


def compressed(tol: float) -> Callable[[Any], Found]:
    def run(a: Any) -> Found:
        from workbench.linalg import svd_compressed

        result = svd_compressed(a, K, tol=tol, center=1)
        says = result.certificate
        return vectors(result)._replace(bound=float(says.bound.max()), passes=says.passes)

    return run


def tall(a: Any) -> Found:
    from workbench.linalg import svd

    return held(svd(a))


def vectors(factors: Any) -> Found:
    """Return what a PCA's scores need: s and vh in memory."""
    import dask

    s, vh = dask.persist(factors[1], factors[2])
    return Found(None, s, vh)


def held(factors: Any) -> Found:
    """Return the factors in memory as blocks, as on a cluster: joining them would cost all methods the same."""
    import dask

    return Found(*dask.persist(*factors))


# --- the peers ---------------------------------------------------------------------------------------------------


def dask_tall(a: Any) -> Found:
    import dask.array as da

    return held(da.linalg.svd(a))


def dask_compressed(passes: int, dtype: str = "f8", persist: bool = False, **given: Any) -> Callable[[Any], Found]:
    """As in the post where `compute` is True: blocks are made anew in each pass instead of being held."""

    def run(a: Any) -> Found:
        import dask.array as da

        a = a.astype(dtype)
        a = a - a.mean(axis=1, keepdims=True)
        a = a.persist() if persist else a
        return vectors(da.linalg.svd_compressed(a, K, n_power_iter=passes, seed=0, **given))

    return run


def _centred(x: Matrix) -> Matrix:
    wide = x.astype(np.float32)
    wide -= wide.mean(axis=1, keepdims=True)
    return wide


def sklearn_randomized(x: Matrix) -> Found:
    from sklearn.utils.extmath import randomized_svd

    return Found(*randomized_svd(_centred(x), K, n_iter=8, random_state=0))


def scipy_arpack(x: Matrix) -> Found:
    from scipy.sparse.linalg import svds

    u, s, vh = svds(_centred(x), K, v0=np.ones(x.shape[1], np.float32))
    return Found(u[:, ::-1], s[::-1], vh[::-1])


def _of_scores(scores: Matrix) -> Found:
    """Scores are samples × components, each as long as its singular value."""
    s = np.linalg.norm(np.asarray(scores, dtype=float), axis=0)
    return Found(None, s, (scores / s).T)


def allel_randomized(x: Matrix) -> Found:
    import allel

    return _of_scores(allel.randomized_pca(x.view(np.int8), K, iterated_power=4, random_state=0)[0])


def sgkit_randomized(a: Any) -> Found:
    import sgkit
    import xarray

    ds = xarray.Dataset({"call_alternate_allele_count": (("variants", "samples"), a.astype(np.int8))})
    found = sgkit.pca(ds, K, ploidy=2, algorithm="randomized", n_iter=4, random_state=0, merge=False)
    return _of_scores(found.sample_pca_projection.values)


def plink2(*how: str) -> Callable[[Any], Found]:
    def run(given: tuple[Path, int]) -> Found:
        import os
        import subprocess
        import tempfile

        if given[1] < SMALL:
            return Found()
        bed, m, threads = given[0], given[1], os.environ.get("OPENBLAS_NUM_THREADS", "1")
        with tempfile.TemporaryDirectory() as folder:
            command = ["plink2", "--bed", bed, "--bim", bed.with_suffix(".bim"), "--fam", bed.with_suffix(".fam")]
            command += ["--pca", str(K), *how, "--threads", threads, "--out", f"{folder}/found"]
            subprocess.run(command, check=True, capture_output=True)
            values = np.loadtxt(f"{folder}/found.eigenval")
            found = np.loadtxt(f"{folder}/found.eigenvec", usecols=range(2, 2 + K))
        # Eigenvalues of PLINK's relationship matrix are 1 / (2m) of Patterson's.
        return Found(None, np.sqrt(2 * m * values), found.T / np.linalg.norm(found.T, axis=1, keepdims=True))

    return run


def pcaone(k: int, *how: str) -> Callable[[Any], Found]:
    """By the program's own tolerances; its files have six digits."""

    def run(given: tuple[Path, int]) -> Found:
        import os
        import subprocess
        import tempfile

        if not given[1]:
            return Found()
        with tempfile.TemporaryDirectory() as folder:
            # Out of core it also writes the variants in another order.
            threads = os.environ.get("OPENBLAS_NUM_THREADS", "1")
            command = [PCAONE, "-b", given[0].with_suffix(""), "-k", str(k), "-n", threads, *how, "-o", "found"]
            subprocess.run(command, check=True, capture_output=True, cwd=folder)
            s, u = np.loadtxt(f"{folder}/found.sigvals"), np.loadtxt(f"{folder}/found.eigvecs")
        # It divides by √(2p(1 − p)), Patterson by √(p(1 − p)).
        return Found(None, np.sqrt(2) * s, u.T)

    return run


def no_pcaone() -> str | None:
    found = "PCAone is not built: PCAONE_SOURCE=its source sh tests/benchmarks/svd/pcaone.sh"
    return None if PCAONE.exists() else found


def cuml_svd(x: Matrix) -> Found:
    import cuml
    import cupy

    wide = cupy.asarray(x, cupy.float32)
    wide -= wide.mean(axis=1, keepdims=True)
    found = cuml.decomposition.TruncatedSVD(n_components=K).fit(wide)
    return Found(None, cupy.asnumpy(found.singular_values_), cupy.asnumpy(found.components_))


def no_cuml() -> str | None:
    from importlib.util import find_spec

    if not Path("/dev/nvidia0").exists():
        return "there is no GPU"
    return None if find_spec("cuml") else "cuML is not installed: pip install cuml-cu13"


def bed(folder: Path, small: bool) -> tuple[Path, int]:
    """Return the .bed file and its number of variants."""
    return folder / "x.bed", 0 if small else np.load(folder / "x.npy", mmap_mode="r").shape[0]


def no_plink2() -> str | None:
    return None if shutil.which("plink2") else "plink2 is not installed: sh tests/apt-install.sh plink2"


def no_peers() -> str | None:
    return None if PEERS.exists() else "the environment .venv-peers is missing: make .venv-peers/.installed"


# --- sums --------------------------------------------------------------------------------------------------------


def side(n: int) -> Callable[[Path, bool], int]:
    return lambda _, small: min(n, 4000) if small else n


def _deviation(total: Any, n: int) -> Found:
    """x + 1 has the mean 11, and every other row and column is summed."""
    summed = (n // 2) ** 2
    return Found(deviation=abs(float(total.compute()) - 11 * summed) / np.sqrt(summed))


def random_sum(generator: str, chunk: int) -> Callable[[int], Found]:
    """Return the post's code, with any of NumPy's generators."""

    def run(n: int) -> Found:
        import dask.array as da

        x = getattr(da.random, generator)(0).normal(10, 1, size=(n, n), chunks=(chunk, chunk))
        return _deviation((x + 1)[::2, ::2].sum(), n)

    return run


def tiled_sum(engine: Any, fused: bool = True) -> Callable[[int], Found]:
    def run(n: int) -> Found:
        import dask.array as da

        from workbench.workloads import generators
        from workbench.workloads.lookup import template

        chunks: Any = (2048, 2048)
        if fused:
            # The blocks that the template chooses for two threads.
            given = {"shape": (n, n), "generator": "fast" if engine == "fast" else "tiles"}
            checked = template("array_sum").validate(given, memory=2**34, threads=2, threads_per_worker=2)
            chunks = checked.resolved["chunks"]
        chunks = da.core.normalize_chunks(chunks, (n, n), dtype="f8")
        if fused:
            return _deviation(generators.sum_every_other(10, 1, chunks=chunks, engine=engine), n)
        return _deviation((generators.normal(10, 1, chunks=chunks, engine=engine) + 1)[::2, ::2].sum(), n)

    return run
