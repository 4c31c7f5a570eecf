"""Cost of the block size that a workload chooses, compared with the best of its neighbors: `make bench-regret`.

Each workload is computed at its default and with blocks of ½, 2, 4 and 8 times as many bytes, in turn on one cluster
of all cores. Time is that of the computation, as a run has it, without its check, which every variant has to pass
once. Where the numbers don't depend on the blocks, as of files, all variants have to give the same answer. Options:
`--rounds N`, `--only WORD`, `--scale F` (of the default size), `--write` keeps results/regret-<date>.md.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster, wait

from workbench.sent_code import workers_of
from workbench.workloads.lookup import template

RESULTS = Path(__file__).parent / "results"
FACTORS = (0.5, 1, 2, 4, 8)
_KNOWN = {"threads": "nthreads", "memory": "memory_limit"}
MADE: tuple[tuple[str, Mapping[str, Any], float], ...] = (
    ("array_sum", {}, 2**30),
    ("array_sum", {"dtype": "float32"}, 2**30),
    ("array_sum", {"reduction": "mean"}, 2**30),
    ("transpose_sum", {}, 2**30),
    ("tall_skinny_svd", {}, 2**29),
    ("tall_skinny_svd", {"dtype": "float32"}, 2**29),
    ("tall_skinny_svd", {"method": "dask"}, 2**29),
    ("compressed_svd", {}, 2**28),
    ("compressed_svd", {"dtype": "float32"}, 2**28),
    ("compressed_svd", {"dtype": "float64"}, 2**28),
    ("compressed_svd", {"method": "dask"}, 2**28),
)
"""Workloads of random arrays, and the bytes of their default."""
STORED: tuple[tuple[str, Mapping[str, Any]], ...] = (("svd_of_file", {"k": 5}),)
"""Workloads of a Zarr store whose blocks can be given."""


def scaled(chunks: tuple[int, ...], shape: tuple[int, ...], factor: float, square: bool) -> tuple[int, ...]:
    """Blocks of about `factor` times as many bytes: of all sides alike, or taller."""
    if square:
        return tuple(
            min(length, max(2, 2 * round(part * math.sqrt(factor) / 2)))
            for part, length in zip(chunks, shape, strict=True)
        )
    return min(shape[0], max(1, round(chunks[0] * factor))), *chunks[1:]


def variants(name: str, given: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by the factor of their blocks; only those whose blocks differ."""
    workload = template(name)
    chosen = workload.validate(given, **cluster)
    shape, chunks = tuple(chosen.resolved["shape"]), tuple(chosen.resolved["chunks"])
    square = len(set(chunks[-2:])) == 1 and chunks[-1] < shape[-1]
    found: dict[tuple[int, ...], tuple[str, Any]] = {chunks: ("1", chosen)}
    for factor in FACTORS:
        blocks = scaled(chunks, shape, factor, square)
        if blocks not in found:
            found[blocks] = f"{factor:g}", workload.validate({**given, "chunks": list(blocks)}, **cluster)
    return dict(sorted(found.values(), key=lambda each: float(each[0])))


def computed(name: str, parameters: Any, client: Client) -> float:
    """Seconds of the computation alone."""
    workload = template(name)
    began = time.perf_counter()
    collections = workload.collections(workload.build(parameters))
    wait(client.persist(list(collections.values())) if collections else [])
    return time.perf_counter() - began


def passed(name: str, parameters: Any, client: Client) -> dict[str, Any]:
    """Return the results of the run. Exits if its check fails."""
    summary: dict[str, Any]
    summary, check = template(name).compute(parameters, client)
    if check is not None and not check.passed:
        sys.exit(f"{name} with blocks of {parameters.resolved['chunks']}: {check.what}")
    return summary


def measured(name: str, given: Mapping[str, Any], client: Client, rounds: int) -> str:
    """Measure a workload, and return its line of the table."""
    workers = workers_of(client).values()
    cluster = {name: sum(each[key] for each in workers) for name, key in _KNOWN.items()}
    of = variants(name, given, cluster)
    told = {label: passed(name, parameters, client) for label, parameters in of.items()}
    if "path" in given:
        values = [np.ravel(each.get("singular_values", each.get("mean", 0))) for each in told.values()]
        for each in values[1:]:
            np.testing.assert_allclose(each, values[0], rtol=0.02)
    times: dict[str, list[float]] = {label: [] for label in of}
    for turn in range(rounds):
        if "path" not in given:
            # Other numbers are other keys: of the same the cluster would know results.
            of = variants(name, {**given, "seed": turn + 1}, cluster)
        for label in list(of)[:: -1 if turn % 2 else 1]:
            times[label].append(computed(name, of[label], client))
    middle = {label: statistics.median(each) for label, each in times.items()}
    best = min(middle, key=lambda label: middle[label])
    shown = ", ".join(f"{value}={given[value]}" for value in given if value != "path")
    cells = " | ".join(
        f"{middle[label]:.2f} ({min(times[label]):.2f}–{max(times[label]):.2f})" if label in middle else ""
        for label in (f"{factor:g}" for factor in FACTORS)
    )
    blocks = "×".join(map(str, of["1"].resolved["chunks"]))
    line = f"| {name} {shown} | {blocks} | {cells} | {middle['1'] / middle[best]:.2f} (best {best}) |"
    print(line, flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    lines = ["# Chosen blocks beside their neighbours", ""]
    lines += [f"| | blocks | {' | '.join(f'× {factor:g}' for factor in FACTORS)} | chosen ÷ best |"]
    lines += ["|---|---|" + "---|" * (len(FACTORS) + 1)]
    print("\n".join(lines[2:]), flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=cores, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        for name, given, n_bytes in MADE:
            if asked.only in name:
                size = f"{int(n_bytes * asked.scale)}B"
                lines.append(measured(name, {**given, "size": size}, client, asked.rounds))
        if any(asked.only in name for name, _ in STORED):
            path = stored(Path(folder), asked.scale)
            for name, given in STORED:
                if asked.only in name:
                    lines.append(measured(name, {**given, "path": path}, client, asked.rounds))
    lines += ["", f"Seconds: median of {asked.rounds} rounds in turn (least–most), on {cores} cores with a load of "]
    lines[-1] += f"{os.getloadavg()[1]:.1f} at the end."
    print(lines[-1])
    if asked.write:
        (RESULTS / f"regret-{datetime.date.today()}.md").write_text("\n".join([*lines, ""]))


def stored(folder: Path, scale: float) -> str:
    """Write a Zarr store of floats in small blocks."""
    import zarr

    rows, columns = int(60_000 * scale), 1000
    x = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    x += np.outer(np.linspace(-3, 3, rows), np.sin(np.arange(columns))).astype(np.float32)
    zarr.create_array(str(folder / "x.zarr"), data=x, chunks=(1000, 1000))
    return str(folder / "x.zarr")


if __name__ == "__main__":
    main()
