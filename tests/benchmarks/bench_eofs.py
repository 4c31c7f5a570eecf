"""EOFs of one Zarr store: `eofs` compared with xeofs and SVD-ROM, with time, peak memory and error of each.

`make bench-svd ARGS="--only eofs"`, or `python -m tests.benchmarks.bench_eofs` with
`--times N`, `--grid LAT LON`, `--rounds N`, `--modes K`, `--threads N`.
Both read the same store of float32, written by xarray in blocks of some times, and find K patterns and series of the
anomalies weighted by the root of cos(latitude). Each measurement is a process of its own, in turns; imports and a
small piece first are not counted. Memory is the process's most less what it held before. Errors are against NumPy's
decomposition of the matrix of all times in float64: the worst singular value, and the worst sine of the angle between
a mode's pattern and the true one. Peers that aren't installed, or fail, are named.

SVD-ROM is on no package index (November 2026): SVDROM_SOURCE=a folder with its source, which make installs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np

Found = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Singular values, and patterns by mode, weighted or not."""


def write_winds(path: Path, n_times: int, n_lat: int, n_lon: int) -> None:
    """Red noise whose patterns fall off as those of a climate do, with land where nothing is known."""
    import pandas as pd
    import xarray as xr

    rng = np.random.default_rng(0)
    lat, lon = np.linspace(89, -89, n_lat), np.arange(n_lon) * 360 / n_lon
    land = np.add.outer(np.sin(3 * np.deg2rad(lat)), np.cos(2 * np.deg2rad(lon))) > 1.2
    values = rng.standard_normal((n_times, n_lat, n_lon), "float32")
    for number in range(1, 41):
        series = rng.standard_normal(n_times, "float32") * 30 / number
        up, across = np.sin(number * np.deg2rad(lat) + number), np.cos((number % 7 + 1) * np.deg2rad(lon) + number**2)
        values += (series[:, None, None] * up[:, None] * across).astype("float32")
    values[:, land] = np.nan
    times = pd.date_range("1980-01-01", periods=n_times, freq="D")
    coords = {"time": times, "lat": ("lat", lat, {"units": "degrees_north"}), "lon": lon}
    winds = xr.DataArray(values + 280, coords, ("time", "lat", "lon"), name="u")
    winds.chunk(time=100).to_dataset().to_zarr(path, zarr_format=2, consolidated=True)


def ours(path: Path, k: int, n_times: int, tol: float, memory: int = 4 * 2**30) -> Found:
    """By the workload, as a notebook's cell calls it where so much memory is to be had."""
    from workbench.workloads import template

    eofs = template("eofs")
    given = {"path": str(path), "k": k, "select": f"time=1980-01-01:{_day(n_times)}", "tol": tol}
    parameters = eofs.validate(given, threads=dask.config.get("num_workers", 2), memory=memory)
    results = eofs.build(parameters)
    arrays = eofs.arrays(results | {"s": results["s"].compute()})
    patterns, _ = dask.compute(arrays["patterns"].data, arrays["series"].data)
    return arrays["singular_values"].data, patterns


def xeofs(path: Path, k: int, n_times: int, iterations: int, *, load: bool = False) -> Found:
    """As its documentation does it."""
    import xarray as xr
    from xeofs.single import EOF

    winds = xr.open_zarr(path).u.isel(time=slice(n_times))
    # By powers alone (Dask's default) eight iterations in float32 lost the last modes: off by 0.8 of themselves.
    kwargs = {"n_iter": iterations} if load else {"n_power_iter": iterations, "iterator": "QR"}
    model = EOF(n_modes=k, use_coslat=True, random_state=0, solver="randomized", solver_kwargs=kwargs)
    model.fit(winds.load() if load else winds, dim="time")
    patterns, _, s = dask.compute(model.components(), model.scores(), model.singular_values())
    # Its coordinates come back sorted.
    return s.values, patterns.sel(lat=winds.lat, lon=winds.lon).transpose("mode", "lat", "lon").values


def svdrom(path: Path, k: int, n_times: int, iterations: int) -> Found:
    """Its randomized algorithm, of anomalies that xarray makes: places where all is known, by times."""
    import xarray as xr
    from svdrom.svd import TruncatedSVD

    winds = xr.open_zarr(path).u.isel(time=slice(n_times))
    there = np.isfinite(winds[0].values)
    weighted = (winds - winds.mean("time")) * np.sqrt(np.cos(np.deg2rad(winds.lat)))
    x = weighted.stack(place=("lat", "lon")).isel(place=np.flatnonzero(there)).drop_vars(("place", "lat", "lon"))
    model = TruncatedSVD(k, algorithm="randomized")
    model.fit(x.transpose("place", "time"), n_power_iter=iterations, iterator="QR", seed=0)
    patterns = np.full((k, *there.shape), np.nan)
    patterns[:, there] = model.u.values.T
    return model.s, patterns


def _day(number: int) -> str:
    return str(np.datetime64("1980-01-01") + (number - 1))


METHODS: dict[str, Callable[[Path, int, int], Found]] = {
    "eofs, tol=1e-6": lambda path, k, n: ours(path, k, n, 1e-6),
    "eofs, tol=1e-3": lambda path, k, n: ours(path, k, n, 1e-3),
    "eofs, tol=1e-2": lambda path, k, n: ours(path, k, n, 1e-2),
    "eofs, tol=1e-3, 256 MiB to be had": lambda path, k, n: ours(path, k, n, 1e-3, 2**28),
    "eofs, tol=1e-2, 256 MiB to be had": lambda path, k, n: ours(path, k, n, 1e-2, 2**28),
    "xeofs, by Dask, QR, n_power_iter=4": lambda path, k, n: xeofs(path, k, n, 4),
    "xeofs, by Dask, QR, n_power_iter=8": lambda path, k, n: xeofs(path, k, n, 8),
    "SVD-ROM, randomized, QR, n_power_iter=4": lambda path, k, n: svdrom(path, k, n, 4),
    "SVD-ROM, randomized, QR, n_power_iter=8": lambda path, k, n: svdrom(path, k, n, 8),
    "xeofs, loaded, n_iter=4": lambda path, k, n: xeofs(path, k, n, 4, load=True),
    "xeofs, loaded, n_iter=8": lambda path, k, n: xeofs(path, k, n, 8, load=True),
}


def measure(name: str, path: Path, k: int, n_times: int, threads: int, out: Path) -> None:
    """Run one method in this process, which is then over."""
    import psutil

    most, over = [0], threading.Event()

    def watch() -> None:
        process = psutil.Process()
        while not over.wait(0.005):
            most[0] = max(most[0], process.memory_info().rss)

    with dask.config.set(scheduler="threads", num_workers=threads):
        METHODS[name](path, k, 4 * k)
        before = psutil.Process().memory_info().rss
        watching = threading.Thread(target=watch)
        watching.start()
        began = time.perf_counter()
        s, patterns = METHODS[name](path, k, n_times)
        seconds = time.perf_counter() - began
        over.set()
        watching.join()
    np.savez(out, s=s, patterns=patterns)
    print(json.dumps({"seconds": seconds, "bytes": max(0, most[0] - before)}))


def truth(path: Path, k: int, n_times: int) -> Found:
    """Singular values and weighted patterns by NumPy, through the matrix of all times."""
    import xarray as xr

    winds = xr.open_zarr(path).u.isel(time=slice(n_times))
    weights = np.sqrt(np.cos(np.deg2rad(winds.lat.values)))[:, None] * np.ones(winds.sizes["lon"])
    x = winds.values.reshape(n_times, -1)
    x = x[:, np.isfinite(x[0])].astype("float64")
    there = np.isfinite(winds.values[0])
    x = (x - x.mean(axis=0)) * weights[there]
    values, vectors = np.linalg.eigh(x @ x.T)
    s = np.sqrt(values[::-1][:k])
    patterns = np.full((k, *there.shape), np.nan)
    patterns[:, there] = (x.T @ vectors[:, ::-1][:, :k] / s).T
    return s, patterns


def errors(found: Found, true: Found, lat: np.ndarray[Any, Any], *, weighted: bool) -> tuple[float, float]:
    """Return the worst relative error of a singular value, and the worst sine of the angle of a pattern."""
    (s, patterns), (s_true, true_patterns) = found, true
    there = np.isfinite(true_patterns[0])
    assert (np.isfinite(patterns[0]) == there).all(), "Not the same places are left out."
    weights = 1.0 if weighted else np.sqrt(np.cos(np.deg2rad(lat)))[:, None]
    a, b = ((each * w)[:, there] for each, w in ((patterns, weights), (true_patterns, 1.0)))
    a = a / np.linalg.norm(a, axis=1, keepdims=True)
    apart = a - (a * b).sum(axis=1, keepdims=True) * b
    return float(np.abs(s / s_true - 1).max()), float(np.linalg.norm(apart, axis=1).max())


def main(given: list[str] | None = None) -> None:
    """Measure all in turns and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=3000)
    parser.add_argument("--grid", type=int, nargs=2, default=(121, 240))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs=2, metavar=("METHOD", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    if asked.only:
        folder = Path(asked.only[1])
        measure(asked.only[0], folder / "winds.zarr", asked.modes, asked.times, asked.threads, folder / "found.npz")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_winds(folder / "winds.zarr", asked.times, *asked.grid)
        true = truth(folder / "winds.zarr", asked.modes, asked.times)
        _all(asked, folder, true)


def _all(asked: argparse.Namespace, folder: Path, true: Found) -> None:
    lat = np.linspace(89, -89, asked.grid[0])
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in METHODS}
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    for turn in range(asked.rounds):
        for name in list(METHODS)[:: -1 if turn % 2 else 1]:
            options = [f"--times={asked.times}", f"--modes={asked.modes}", f"--threads={asked.threads}"]
            command = [sys.executable, "-m", "tests.benchmarks.bench_eofs", *options, "--only", name, str(folder)]
            # SVD-ROM writes its log where it runs.
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
            if done.returncode:
                print(f"{name} is skipped: {done.stderr.strip().splitlines()[-1][:150]}", flush=True)
                continue
            told = json.loads(done.stdout.splitlines()[-1])
            with np.load(folder / "found.npz") as arrays:
                found = arrays["s"], arrays["patterns"]
            off = errors(found, true, lat, weighted=not name.startswith("eofs"))
            assert off[0] < 0.1, f"{name} has computed something else: {off[0]:.1e}"
            rows[name].append((told["seconds"], told["bytes"], *off))
    size = asked.times * asked.grid[0] * asked.grid[1] * 4
    print(f"{asked.times} × {asked.grid[0]} × {asked.grid[1]} float32 ({size / 2**20:.0f} MiB), {asked.modes} modes, ")
    print(f"{asked.threads} threads, medians of {asked.rounds}; this machine's load is not ours alone.\n")
    print("| | seconds | memory | values off by | patterns off by |\n|---|---|---|---|---|")
    for name, measured in rows.items():
        if measured:
            seconds, held, value, sine = (statistics.median(column) for column in zip(*measured, strict=True))
            print(f"| {name} | {seconds:.2f} | {held / 2**20:.0f} MiB | {value:.1e} | {sine:.1e} |")


if __name__ == "__main__":
    main()
