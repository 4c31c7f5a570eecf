"""SVD and PCA: ours and the peers in turn, with time, peak memory and accuracy of each in one table.

`python -m tests.benchmarks svd`, or this file with `--quick` (a tenth of the sizes), `--rounds N`, `--threads N`,
`--only WORD` (cases whose name holds it), `--large` (400 000 × 5 000 genotypes too) and `--write` (keep the table and
the numbers in results/svd-<date>.md and .json).

Each measurement is a process of its own: it maps the data from a file, runs the method once on a small piece as a
warm-up, and then once in full, until u, s and vh are there; of genotypes only s and vh, which the samples' scores are
made of. `genotypes.pca` is given two bits each, as its files hold them, the others bytes. Memory is the highest
resident size from then on, less what was resident just before, the data among it. BLAS has one thread for each of
Dask's, and as many as Dask has for scikit-learn and SciPy; on a busy machine the CPU seconds say more than the others.
Accuracy is against float64 LAPACK on the whole matrix.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

K = 10
Matrix = np.ndarray[Any, Any]
Factors = tuple[Any, Any, Any]


# --- the data ----------------------------------------------------------------------------------------------------


def genotypes(rows: int, columns: int, path: Path) -> dict[str, Any]:
    """Counts of alleles in 12 populations (Balding–Nichols, FST 0.004 of variants drawn between 0.05 and 0.95)."""
    rng, fst = np.random.default_rng(0), 0.004
    groups = np.sort(rng.integers(0, 12, columns))
    x = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, columns))
    gram = np.zeros((columns, columns))
    for start in range(0, rows, 2000):
        height = min(2000, rows - start)
        p = rng.uniform(0.05, 0.95, (height, 1))
        each = rng.beta(p * (1 - fst) / fst, (1 - p) * (1 - fst) / fst, (height, 12))
        x[start : start + height] = rng.binomial(2, each[:, groups])
        part = x[start : start + height].astype(float)
        part -= part.mean(axis=1, keepdims=True)
        gram += part.T @ part
    values, vectors = np.linalg.eigh(gram)
    return {"s": np.sqrt(values[::-1][:K]), "v": vectors[:, ::-1][:, :K]}


def tall(rows: int, columns: int, condition: float, path: Path) -> dict[str, Any]:
    """Normal numbers with singular values spread evenly in the logarithm."""
    rng = np.random.default_rng(0)
    x = np.lib.format.open_memmap(path, "w+", np.float64, (rows, columns))
    turn = np.linalg.qr(rng.standard_normal((columns, columns)))[0].T
    turn = np.logspace(0, -np.log10(condition), columns)[:, None] * turn
    for start in range(0, rows, 20_000):
        stop = min(start + 20_000, rows)
        x[start:stop] = rng.standard_normal((stop - start, columns)) @ turn
    _, s, vh = np.linalg.svd(np.linalg.qr(x, mode="r"))
    return {"s": s, "v": vh.T}


# --- the methods: from a mapped array to u, s, vh ----------------------------------------------------------------


def _blocks(x: Matrix) -> Any:
    """In four blocks where they're floats, which Dask's own default (128 MiB) would have fewer of; else of 8 MiB."""
    import dask.array as da

    rows = -(-len(x) // 4) if x.dtype.kind == "f" else 2**23 // x.shape[1]
    return da.from_array(x, chunks=(min(rows, -(-len(x) // 4)), x.shape[1]))


def _computed(factors: Any) -> Factors:
    """The factors in memory as blocks, as they'd be on a cluster: joining them would cost all methods alike."""
    import dask

    u, s, vh = dask.persist(*factors)
    return u, s, vh


def ours_tall(a: Any) -> Factors:
    from workbench.linalg import svd

    return _computed(svd(a))


def dask_tall(a: Any) -> Factors:
    import dask.array as da

    return _computed(da.linalg.svd(a))


def _vectors(factors: Any) -> Factors:
    """What a PCA's scores need: s and vh in memory."""
    import dask

    s, vh = dask.persist(factors[1], factors[2])
    return None, s, vh


def packed(tol: float, kernel: str) -> Callable[[Any], Factors]:
    """`genotypes.pca` on packed blocks."""

    def run(given: Any) -> Factors:
        from workbench.genotypes import pca

        result = pca(given, K, scaler="center", tol=tol, kernel=kernel)
        print(result.certificate.sentence, file=sys.stderr)
        return None, result.singular_values_, (result.scores / result.singular_values_).T

    return run


def _packed(x: Matrix) -> Any:
    """`x` in two bits each, in memory."""
    import dask.array as da

    from workbench.genotypes import COUNTS, Genotypes, pack

    rows = max(1, 2**22 // x.shape[1])
    bits = np.concatenate([pack(x[i : i + rows]) for i in range(0, len(x), rows)])
    # Of one block: from_array copies what it cuts.
    return Genotypes(da.from_array(bits, chunks=-1), COUNTS, np.arange(x.shape[1]))


def ours(tol: float) -> Callable[[Any], Factors]:
    def run(a: Any) -> Factors:
        from workbench.linalg import svd_compressed

        result = svd_compressed(a, K, tol=tol, center=1)
        print(result.certificate.sentence, file=sys.stderr)
        return _vectors(result)

    return run


def dask_compressed(passes: int, dtype: str = "f8", **given: Any) -> Callable[[Any], Factors]:
    def run(a: Any) -> Factors:
        import dask.array as da

        a = a.astype(dtype)
        a = a - a.mean(axis=1, keepdims=True)
        a = a.persist() if dtype == "f4" else a
        return _vectors(da.linalg.svd_compressed(a, K, n_power_iter=passes, seed=0, **given))

    return run


def _centred(x: Matrix) -> Matrix:
    wide = x.astype(np.float32)
    wide -= wide.mean(axis=1, keepdims=True)
    return wide


def sklearn_randomized(x: Matrix) -> Factors:
    from sklearn.utils.extmath import randomized_svd

    u, s, vh = randomized_svd(_centred(x), K, n_iter=8, random_state=0)
    return u, s, vh


def scipy_arpack(x: Matrix) -> Factors:
    from scipy.sparse.linalg import svds

    u, s, vh = svds(_centred(x), K, v0=np.ones(x.shape[1], np.float32))
    return u[:, ::-1], s[::-1], vh[::-1]


TALL: dict[str, Callable[[Any], Factors]] = {"ours": ours_tall, "dask": dask_tall}
COMPRESSED: dict[str, Callable[[Any], Factors]] = {
    "genotypes.pca, NumPy, 1e-3": packed(1e-3, "numpy"),
    "genotypes.pca, NumPy, 2e-5": packed(2e-5, "numpy"),
    "genotypes.pca, fast, 1e-3": packed(1e-3, "fast"),
    "genotypes.pca, fast, 2e-5": packed(2e-5, "fast"),
    "ours, 1e-3": ours(1e-3),
    "ours, 1e-5": ours(1e-5),
    "ours, 1e-6": ours(1e-6),
    "dask f64, as in the post": dask_compressed(0),
    "dask f64, n_power_iter=2": dask_compressed(2),
    "dask f64, n_power_iter=4": dask_compressed(4),
    "dask f64, n_power_iter=10": dask_compressed(10),
    "dask f32, QR, n=8, persisted": dask_compressed(8, "f4", iterator="QR"),
    "scikit-learn randomized f32": sklearn_randomized,
    "SciPy ARPACK f32": scipy_arpack,
}
THREADED_BLAS = ("scikit-learn", "SciPy")


# --- one measurement, in its own process -------------------------------------------------------------------------


def measured(method: str, path: Path, threads: int) -> dict[str, Any]:
    """Seconds, bytes and errors of one method on one file."""
    import dask

    x, reference = np.load(path, mmap_mode="r"), np.load(path.with_suffix(".npz"))
    run = {**TALL, **COMPRESSED}[method]
    with dask.config.set(scheduler="threads", num_workers=threads):
        prepared = np.asarray if method.startswith(THREADED_BLAS) else _blocks
        prepared = _packed if method.startswith("genotypes.pca") else prepared
        run(prepared(np.array(x[: max(2000, 4 * x.shape[1])])))
        size, given = x.nbytes, prepared(np.array(x))
        Path("/proc/self/clear_refs").write_text("5")
        before = _resident("VmRSS")
        began, used = time.perf_counter(), time.process_time()
        u, s, vh = run(given)
        seconds, used = time.perf_counter() - began, time.process_time() - used
    peak = _resident("VmHWM") - before
    return {"seconds": seconds, "cpu": used, "peak": peak, "data": size, **errors(reference, u, s, vh)}


def _resident(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def errors(reference: Any, u: Matrix, s: Matrix, vh: Matrix) -> dict[str, float]:
    """The worst relative error of a value, or of all values relative to the largest where they are all there."""
    s, vh = (np.asarray(each, dtype=np.float64) for each in (s, vh))
    true = reference["s"]
    scale = true[0] if len(true) == vh.shape[1] else true
    narrow = vh.T if u is None else np.asarray(u, dtype=np.float64)
    gram = narrow.T @ narrow
    found = {
        "error": float((np.abs(s - true) / scale).max()),
        "orthogonality": float(np.linalg.norm(gram - np.eye(len(gram)), 2)),
    }
    if len(true) < vh.shape[1]:
        found["sine"] = float(np.linalg.norm(vh - vh @ reference["v"] @ reference["v"].T, 2))
    return found


# --- all of them, in turn ----------------------------------------------------------------------------------------


def cases(quick: bool, large: bool) -> dict[str, tuple[Callable[[Path], dict[str, Any]], dict[str, Any]]]:
    """What is measured: how each one's data are made, and the methods."""
    part = 10 if quick else 1
    found: dict[str, Any] = {}
    for rows, columns in ((300_000, 100), (2_000_000, 20)):
        for condition in (1e3, 1e8, 1e12):
            n = rows // part
            name = f"{n} × {columns}, condition {condition:.0e}"
            found[name] = (lambda path, n=n, c=columns, k=condition: tall(n, c, k, path), TALL)
    sizes = [(20_000, 1_000)] if quick else [(60_000, 3_000), *([(400_000, 5_000)] if large else [])]
    for rows, columns in sizes:
        name = f"genotypes {rows} × {columns}, k = {K}"
        found[name] = (lambda path, n=rows, c=columns: genotypes(n, c, path), COMPRESSED)
    return found


def measure(name: str, make: Any, methods: dict[str, Any], rounds: int, threads: int) -> list[dict[str, Any]]:
    """Every method once a round, in alternating order."""
    runs: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npy"
        np.savez(path.with_suffix(".npz"), **make(path))
        for turn in range(rounds):
            for method in list(methods)[:: -1 if turn % 2 else 1]:
                runs[method].append(_in_a_process(method, path, threads))
    return [_row(name, method, found) for method, found in runs.items()]


def _in_a_process(method: str, path: Path, threads: int) -> dict[str, Any]:
    blas = str(threads if method.startswith(THREADED_BLAS) else 1)
    env = os.environ | {"OPENBLAS_NUM_THREADS": blas, "OMP_NUM_THREADS": blas, "MKL_NUM_THREADS": blas}
    command = [sys.executable, __file__, "--one", method, "--data", str(path), "--threads", str(threads)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _row(name: str, method: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [run["failed"] for run in runs if "failed" in run]
    if failed:
        return {"case": name, "method": method, "failed": failed[0]}
    seconds = [run["seconds"] for run in runs]
    return {
        "case": name,
        "method": method,
        "seconds": statistics.median(seconds),
        "least": min(seconds),
        "most": max(seconds),
        "cpu": statistics.median(run["cpu"] for run in runs),
        "peak": statistics.median(run["peak"] for run in runs),
        "data": runs[0]["data"],
        **{field: max(run[field] for run in runs) for field in ("error", "orthogonality", "sine") if field in runs[0]},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown; `×` is how many times the seconds, and the memory, of the case's first method."""
    lines = [
        "| case | method | seconds | least–most | × | CPU s | peak MB | × | error of s | ‖UᵀU − I‖ | sine |",
        "|---" * 11 + "|",
    ]
    for row in rows:
        first = next(other for other in rows if other["case"] == row["case"])
        if "failed" in row:
            lines.append(f"| {row['case']} | {row['method']} | failed: {row['failed']} |" + " |" * 8)
            continue
        time_ratio, memory_ratio = row["seconds"] / first["seconds"], row["peak"] / max(1, first["peak"])
        sine = f"{row['sine']:.1e}" if "sine" in row else ""
        lines.append(
            f"| {row['case']} | {row['method']} | {row['seconds']:.2f} | {row['least']:.2f}–{row['most']:.2f} "
            f"| {time_ratio:.1f} | {row['cpu']:.2f} | {row['peak'] / 1e6:.0f} | {memory_ratio:.2f} "
            f"| {row['error']:.1e} | {row['orthogonality']:.1e} | {sine} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given.data, given.threads)))
        return
    rows: list[dict[str, Any]] = []
    for name, (make, methods) in cases(given.quick, given.large).items():
        if given.only in name:
            rows += measure(name, make, methods, given.rounds, given.threads)
            print(table(rows[-len(methods) :]), "\n", flush=True)
    if given.write and rows:
        stem = Path(__file__).parent / "results" / f"svd-{datetime.date.today()}"
        head = f"{given.rounds} rounds in turn, {given.threads} threads, {_versions()}.\n\n"
        stem.with_suffix(".md").write_text(head + table(rows) + "\n")
        facts = {"rounds": given.rounds, "threads": given.threads, "versions": _versions(), "rows": rows}
        stem.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")


def _versions() -> str:
    import dask
    import scipy
    import sklearn

    modules = (np, dask, scipy, sklearn)
    return f"Python {sys.version.split()[0]}, " + ", ".join(f"{m.__name__} {m.__version__}" for m in modules)


if __name__ == "__main__":
    main()
