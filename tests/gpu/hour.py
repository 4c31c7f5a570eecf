"""Steps of first-hour.sh that are neither tests nor the benchmark: `python -m tests.gpu.hour STEP --into FOLDER`.

Nothing of it has run on a device yet. On simulated ones it is as small as the benchmark is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import bench_gpu

Told = dict[str, Any]
_SIDE = 4000
_ROUNDS = 5


def smoke(told: Told) -> None:
    """What all else rests on: blocks that can be spilled and come back, and a cluster that sums."""
    import cupy
    import distributed.protocol.cupy  # noqa: F401  registers what follows
    from distributed.protocol import deserialize, serialize

    block = cupy.asarray(np.arange(12.0).reshape(3, 4))
    back = deserialize(*serialize(block, serializers=["dask"]))
    assert (cupy.asnumpy(back) == cupy.asnumpy(block)).all(), "a block was serialized and came back as another"
    _spilled(block)
    workbench("up", "gpu", "--name", "smoke")
    # It measures nothing, and is as large on simulated devices.
    told["run"] = run = workbench("run", "array_sum", "--cluster", "smoke", "-p", f"shape={_SIDE},{_SIDE}")
    assert run["check"]["passed"], run["check"]["what"]
    assert run["on_gpu"]["share"], run["on_gpu"]["sentence"]


def _spilled(block: Any) -> None:
    """Let a store that holds one block on the device take two: the first moves to the host and comes back."""
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


def rates(told: Told) -> None:
    """What the card can do. Each is told by itself: one that fails holds up no other."""
    import cupy

    rs = cupy.random.RandomState(0)
    part = told["part"] / told["sides_divided_by"]
    small, large = int(1e4), int(1e8 * part)
    tall = rs.normal(size=(max(2, int(1e6 * part)), 100))
    side = max(64, int(4096 * min(1.0, part)))
    made = max(64, int(50_000 * min(1.0, part)))
    single, half = (cupy.asarray(rs.normal(size=(side, side)), dtype=kind) for kind in ("float32", "float16"))
    packed = {width: cupy.zeros((side, width), "uint8") for width in (5000, 5001, 5120)}
    told |= {
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


def cores(told: Told) -> None:
    """The same sum on the GPU and on cores: energy, and how many of them equal it."""
    # As much as the card holds where CuPy makes it in one piece, beside what it makes of that.
    most = min(64 * 2**30, (told["memory_total"] or 64 * 2**30) // 6)
    size = int(most * told["part"]) // told["sides_divided_by"] ** 2
    lines = [word for line in ("gpu", "cupy", "cpu") for word in ("--on", line)]
    told["comparison"] = workbench("compare", "array_sum", "-p", f"size={size}B", *lines, *_times(told, 3))


def ucx(told: Told) -> None:
    """TCP, TLS and UCX between workers with GPUs; with one of them nothing travels, and it tells which start."""
    plain = "gpus" if len(told["devices"]) > 1 else "gpu"
    lines = [word for line in (f"{plain} --no-encrypt", plain, "ucx") for word in ("--on", line)]
    size = int(8 * 2**30 * told["part"]) // told["sides_divided_by"] ** 2
    words = ("-p", f"size={size}B", "-p", "persist=true", *_times(told, 5))
    told["comparison"] = workbench("compare", "transpose_sum", *words, *lines, "--yes")
    left_out = [f"{row['on']}: {row['reason']}" for row in told["comparison"]["rows"] if row["reason"] is not None]
    assert not left_out, "; ".join(left_out)


def _times(told: Told, repeats: int) -> tuple[str, ...]:
    """How often each row is measured: once where nothing that is measured says anything."""
    return ("--repeats", "1", "--warmup", "0") if told["simulated"] else ("--repeats", str(repeats))


STEPS: dict[str, Callable[[Told], None]] = {each.__name__: each for each in (smoke, rates, cores, ucx)}


def rate(work: Callable[[], Any], amount: float) -> Told:
    """Amount of work in a second: the median of some rounds after a first one, which compiles."""
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
    """What a command of ours tells as JSON. Raises RuntimeError with what it complains of."""
    done = subprocess.run([sys.executable, "-m", "workbench", *words, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"workbench {' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main() -> None:
    """Do one step, and write what it tells, whatever becomes of it, with device, driver, versions and date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--into", type=Path, default=Path())
    parser.add_argument("--part", type=float, default=1.0)
    chosen = parser.parse_args()
    told = bench_gpu.head(chosen.part, 60.0)
    began = time.perf_counter()
    try:
        STEPS[chosen.step](told)
    except Exception as err:
        told["error"] = f"{type(err).__name__}: {err}"
        raise
    finally:
        told["seconds"] = time.perf_counter() - began
        (chosen.into / f"{chosen.step}.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
