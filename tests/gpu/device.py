"""Checks of a device and its rates, for the steps of first-minutes.sh."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Report = dict[str, Any]
_SIDE = 4000
_ROUNDS = 5


def smoke(report: Report) -> None:
    """Serialize a block, spill one and read it back, and sum an array on the profile "GPU"."""
    import cupy
    import distributed.protocol.cupy  # noqa: F401  registers what follows
    from distributed.protocol import deserialize, serialize

    block = cupy.asarray(np.arange(12.0).reshape(3, 4))
    back = deserialize(*serialize(block, serializers=["dask"]))
    assert (cupy.asnumpy(back) == cupy.asnumpy(block)).all(), "a block was serialized and came back as another"
    _spilled(block)
    workbench("up", "gpu", "--name", "smoke")
    # It measures nothing, and is as large on simulated devices.
    report["run"] = run = workbench("run", "array_sum", "--cluster", "smoke", "-p", f"shape={_SIDE},{_SIDE}")
    assert run["check"]["passed"], run["check"]["what"]
    assert run["on_gpu"]["share"], run["on_gpu"]["sentence"]


def _spilled(block: Any) -> None:
    """Put two blocks into a store with room for one on the device: the first moves to the host and comes back."""
    import cupy
    from dask_cuda.device_host_file import DeviceHostFile

    with tempfile.TemporaryDirectory() as folder:
        store = DeviceHostFile(
            worker_local_directory=folder, device_memory_limit=int(1.5 * block.nbytes), memory_limit=2**20
        )
        store["first"], store["second"] = block, block + 1
        assert "first" not in store.device, "a store that is full kept both blocks on the device"
        assert (cupy.asnumpy(store["first"]) == cupy.asnumpy(block)).all(), (
            "a block was spilled and came back as another"
        )


def rates(report: Report) -> None:
    """Measure what the card reaches. A rate that fails is reported and holds up no other."""
    import cupy

    rs = cupy.random.RandomState(0)
    part = report["part"] / report["sides_divided_by"]
    small, large = int(1e4), int(1e8 * part)
    tall = rs.normal(size=(max(2, int(1e6 * part)), 100))
    side = max(64, int(4096 * min(1.0, part)))
    made = max(64, int(50_000 * min(1.0, part)))
    single, half = (cupy.asarray(rs.normal(size=(side, side)), dtype=kind) for kind in ("float32", "float16"))
    packed = {width: cupy.zeros((side, width), "uint8") for width in (5000, 5001, 5120)}
    report |= {
        "random numbers a second, 10 000 at once": rate(lambda: rs.normal(size=small), small),
        "random numbers a second, at once in a block": rate(lambda: rs.normal(size=large), large),
        "products of float32 a second": rate(lambda: single @ single, 2 * side**3),
        "products of float16 a second": rate(lambda: half @ half, 2 * side**3),
        "normal numbers a second, fused and summed": rate(lambda: _fused(made), made**2),
        "bytes a second, einsum of rows": rate(lambda: cupy.einsum("ij,ij->i", tall, tall), tall.nbytes),
        "bytes a second, a reduction of rows": rate(lambda: (tall * tall).sum(axis=1), tall.nbytes),
        **{
            f"bytes a second, planes of rows of {width}": rate(lambda rows=rows: (rows & 3) + (rows >> 2), rows.nbytes)
            for width, rows in packed.items()
        },
    }


def _fused(side: int) -> None:
    """Make `side` × `side` normal numbers and store none, as one block of array_sum with generator=fused does."""
    import cupy

    from workbench.linalg.cuda import THREADS, kernel

    grid = (16, 512)
    sums = cupy.empty((THREADS * grid[0] * grid[1], 2))
    kernel("sum_float64")(grid, (THREADS,), (0, side, 0, side, 10.0, 1.0, 0, sums))


def rate(work: Callable[[], Any], amount: float) -> Report:
    """Return the amount of work in a second: the median of some rounds after a first one, which compiles."""
    import cupy

    try:
        seconds = []
        for _ in range(_ROUNDS + 1):
            began = time.perf_counter()
            work()
            cupy.cuda.get_current_stream().synchronize()
            seconds.append(time.perf_counter() - began)
    except Exception as err:  # noqa: BLE001 - the others are measured all the same
        return {"rate": None, "error": f"{type(err).__name__}: {err}"}
    first, *rest = seconds
    return {"rate": amount / sorted(rest)[_ROUNDS // 2], "all_seconds": rest, "first_seconds": first}


def workbench(*words: str) -> Any:
    """Return the JSON that a command of ours prints. Raises RuntimeError with its complaint."""
    done = subprocess.run([sys.executable, "-m", "workbench", *words, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"workbench {' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout)
