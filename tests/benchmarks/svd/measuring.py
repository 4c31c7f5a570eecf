"""One measurement in a process of its own: `python -m tests.benchmarks.svd.measuring CASE METHOD FOLDER THREADS`."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.svd.methods import ROOT, Method

Row = dict[str, Any]


_MOST_DEVIATION = 6.0
"""Standard deviations by which a sum of random numbers may miss what is expected: chance exceeds it once in 5e8."""


def in_a_process(case: str, name: str, method: Method, folder: Path, threads: int, quick: bool) -> Row:
    """Return the results of `measured`, or the reason for its failure."""
    blas = str(threads if method.blas else 1)
    pinned = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), blas)
    env = os.environ | pinned | {"NUMBA_NUM_THREADS": str(threads), "BLOSC_NTHREADS": "1"}
    command = [
        method.python,
        "-W",
        "ignore",
        "-m",
        "tests.benchmarks.svd.measuring",
        case,
        name,
        folder,
        str(threads),
        str(int(quick)),
    ]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:200]}
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(method: Method, folder: Path, threads: int) -> Row:
    """Seconds, bytes and errors of one method on one data folder, after a warm-up on a small piece."""
    import dask

    with dask.config.set(scheduler="threads", num_workers=threads):
        if method.warm:
            method.run(method.given(folder, True))
        given = method.given(folder, False)
        if method.cold:
            _drop(folder / method.cold)
        if method.limit:
            _limit(method.limit)
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
        before, used = _status("VmRSS"), _cpu()
        began = time.perf_counter()
        found = method.run(given)
        seconds, used = time.perf_counter() - began, _cpu() - used
    if found.deviation is not None and found.deviation > _MOST_DEVIATION:
        raise AssertionError(f"The sum is {found.deviation:.1f} standard deviations from what it must be.")
    peak = _status("VmHWM")
    # Importing some modules starts processes too, so that is looked at only where a program does the work.
    outside = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 if method.program else 0
    row: Row = {"seconds": seconds, "cpu": used, "peak": max(peak - before, outside), "process": max(peak, outside)}
    for field in ("bound", "passes", "deviation"):
        if getattr(found, field) is not None:
            row[field] = getattr(found, field)
    reference = folder / "reference.npz"
    return row | (errors(np.load(reference), method.reference, *found[:3]) if reference.exists() else {})


def errors(reference: Any, which: str, u: Any, s: Any, vh: Any) -> dict[str, float]:
    """Return the worst error of a value, relative to it or, if all are computed, to the largest, and of the vectors."""
    s, vh = (np.asarray(each, dtype=np.float64) for each in (s, vh))
    true, v = reference["s" + which], reference["v" + which]
    scale = true[0] if len(true) == vh.shape[1] else true
    narrow = vh.T if u is None else np.asarray(u, dtype=np.float64)
    gram = narrow.T @ narrow
    found = {
        "error": float((np.abs(s - true) / scale).max()),
        "orthogonality": float(np.linalg.norm(gram - np.eye(len(gram)), 2)),
    }
    if len(true) < vh.shape[1]:
        found["sine"] = float(np.linalg.norm(vh - vh @ v @ v.T, 2))
    return found


def _status(field: str) -> int:
    line = next(
        line for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines() if line.startswith(field)
    )
    return int(line.split()[1]) * 1024


def _cpu() -> float:
    """CPU seconds of this process and of those that it started."""
    return sum(os.times()[:4])


def _drop(place: Path) -> None:
    """Let go of what the page cache holds of a file, or of all in a folder."""
    for path in [place, *place.rglob("*")] if place.is_dir() else [place]:
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _limit(more: int) -> None:
    """Allow so many more bytes of memory of the process's own; who asks for more gets a MemoryError."""
    allowed = _status("VmData") + more
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))


def main(case: str, name: str, folder: str, threads: str, quick: str) -> None:
    from tests.benchmarks.svd.cases import cases

    found = next(each for each in cases(bool(int(quick)), True) if each.name == case)
    print(json.dumps(measured(found.methods[name], Path(folder), int(threads))))


if __name__ == "__main__":
    main(*sys.argv[1:])
