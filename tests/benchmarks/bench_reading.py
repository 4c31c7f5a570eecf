"""Overhead of `storage.open` over plain xarray: a Zarr store, a NetCDF-4 file of 10 000 chunks, a store on S3.

`python -m tests.benchmarks reading`, with `--rounds N` and `--write` (keep results/reading-<date>.md). Both open the
data, and compute the sum of all values with Dask's threads, in turn in one process. S3 is moto's on this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import dask
import numpy as np
import xarray as xr

from workbench import storage

RESULTS = Path(__file__).parent / "results"
S3 = "s3://data/x.zarr"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    lines = [
        f"# Reading on {datetime.date.today()}",
        "",
        f"{given.rounds} rounds in turn after one to warm up, {os.cpu_count()} processors, load "
        f"{os.getloadavg()[0]:.1f} at the start, xarray {xr.__version__}, dask {dask.__version__}.",
        "Seconds to open and add up all values: median (least–most). Both gave the same sum.",
        "",
        "| data | storage.open | xarray | ratio of medians |",
        "|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder, s3() as address:
        for name, ours, theirs in cases(Path(folder), address):
            times = measured(ours, theirs, given.rounds)
            shown = [f"{statistics.median(each):.3f} ({min(each):.3f}–{max(each):.3f})" for each in times]
            ratio = statistics.median(times[0]) / statistics.median(times[1])
            lines.append(f"| {name} | {' | '.join(shown)} | {ratio:.2f} |")
            print(lines[-1], flush=True)
    print("\n".join(lines))
    if given.write:
        (RESULTS / f"reading-{datetime.date.today()}.md").write_text("\n".join(lines) + "\n")


Case = tuple[str, Callable[[], xr.Dataset], Callable[[], xr.Dataset]]


def cases(folder: Path, address: str) -> Iterator[Case]:
    """Name of the data, and how each opens them."""
    values = np.random.default_rng(0).random((8000, 8000), dtype="float32")
    whole = xr.Dataset({"x": (("row", "column"), values)})
    path = str(folder / "x.zarr")
    whole.to_zarr(path, encoding={"x": {"chunks": (1000, 1000)}}, consolidated=False)
    yield (
        "Zarr, 256 MB in 64 chunks",
        lambda: storage.open(path),
        lambda: xr.open_dataset(path, engine="zarr", chunks="auto", consolidated=False),
    )
    small, netcdf = whole.isel(row=slice(5000), column=slice(5000)), str(folder / "x.nc")
    small.to_netcdf(netcdf, engine="h5netcdf", encoding={"x": {"chunksizes": (50, 50)}})
    yield (
        "NetCDF-4, 100 MB in 10 000 chunks",
        lambda: storage.open(netcdf),
        lambda: xr.open_dataset(netcdf, engine="h5netcdf", chunks="auto"),
    )
    told = {"endpoint_url": address}
    small.to_zarr(S3, storage_options=told, encoding={"x": {"chunks": (500, 500)}}, consolidated=False)
    yield (
        "Zarr on S3, 100 MB in 100 chunks",
        lambda: storage.open(S3, endpoint_url=address),
        lambda: xr.open_dataset(S3, engine="zarr", chunks="auto", consolidated=False, storage_options=told),
    )


def measured(
    ours: Callable[[], xr.Dataset], theirs: Callable[[], xr.Dataset], rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds of each in all rounds. Raises AssertionError where sums differ."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 1):
        sums = {}
        for which in (0, 1) if turn % 2 else (1, 0):
            began = time.perf_counter()
            sums[which] = float((ours, theirs)[which]()["x"].sum(dtype="float64").compute(scheduler="threads"))
            times[which].append(time.perf_counter() - began)
        assert np.isclose(sums[0], sums[1], rtol=1e-12), sums
    return times[0][1:], times[1][1:]


@contextlib.contextmanager
def s3() -> Iterator[str]:
    """Start an S3 server on this machine with an empty bucket, and put its keys into the environment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    # Those of the environment may go to the server that it names.
    os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": address}
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(URLError, ConnectionError):
                urlopen(f"{address}/moto-api/", timeout=5).close()
                break
            time.sleep(0.1)
        import boto3

        # s3fs' own mkdir is refused: it names no region.
        boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(Bucket="data")
        yield address
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
