"""A join of two random dataframes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import dask
import dask.array as da
import numpy as np
from pydantic import Field

from workbench import formats
from workbench.workloads.checks import computed
from workbench.workloads.declaring import workload
from workbench.workloads.fields import Persist, Seed, Words
from workbench.workloads.generators import joined, table
from workbench.workloads.presets import DASK_CUDA, Preset
from workbench.workloads.registry import Resolution, Template
from workbench.workloads.svd import held, made
from workbench.workloads.values import Check, Needs, Surroundings

if TYPE_CHECKING:
    from distributed import Client

Rows = Annotated[int, Field(ge=1, le=2**40), Words("Number of rows of each dataframe.", unit="rows")]

Partition = Annotated[
    int, Field(ge=1, le=2**31), Words("Rows per partition. Each task processes one partition.", unit="rows")
]

Matching = Annotated[
    float,
    Field(gt=0, le=1, allow_inf_nan=False),
    Words("Fraction of the left rows whose key exists on the right.", unit="relative"),
]

_ROW = 16  # bytes: a key and a value


def dataframe_join(
    n_rows: Rows = 5_000_000,
    partition: Partition = 500_000,
    matching: Matching = 0.3,
    seed: Seed = 0,
    persist: Persist = True,
) -> tuple[da.Array, da.Array, float | None]:
    """Join two random dataframes on a key column: the number of matching rows, and the sum of their products.

    Each key occurs once on the right, so nearly all rows move between workers. This tests the network and pandas, or
    cuDF on GPUs. It is the dataframe experiment of "Experiments in high performance networking with UCX and DGX"
    (2019), with the sizes of Dask-CUDA's benchmark local_cudf_merge.
    """
    import dask.dataframe as dd
    import pandas as pd

    library = "cudf" if dask.config.get("array.backend", "numpy") == "cupy" else "pandas"
    n_parts, seconds_to_make = -(-n_rows // partition), None
    frames = []
    for side, value in (("left", "x"), ("right", "y")):
        # Describe the partitions by pandas: this process may have no cuDF.
        like = pd.DataFrame({"key": np.array([], "int64"), value: np.array([], "int64")})
        shared = (n_parts, n_rows, matching, seed, side, library)
        frames.append(dd.from_map(table, range(n_parts), args=shared, meta=like, enforce_metadata=False))
    left, right = frames
    if persist:
        left, right, seconds_to_make = held(left, right)
    # Shuffle by tasks: Dask reports their transfers, and cuDF supports them.
    joined = left.merge(right, on="key", shuffle_method="tasks")[["x", "y"]].to_dask_array()
    return (joined[:, 0] >= 0).sum(), (joined[:, 0] * joined[:, 1]).sum(), seconds_to_make


def _resolved(given: Mapping[str, Any], cluster: Surroundings, **values: Any) -> Resolution:
    """Limit the partition to the number of rows."""
    on_gpu = cluster.makes_on_gpu()
    partition = min(values["partition"], values["n_rows"])
    notes = ("Processors make the rows, and cuDF takes them to the GPUs: with persist that isn't timed.",)
    return values | {"partition": partition}, notes if on_gpu else ()


def _needs(threads_per_worker: int, **resolved: Any) -> Needs:
    """Estimate memory: both dataframes wait until the rows of each key have met."""
    frames = 2 * _ROW * resolved["n_rows"]
    # Measured with 500,000 to 8,000,000 rows: pandas itself, and the rows being split, concatenated or joined.
    held = 60 * 2**20 + 64 * resolved["partition"] * threads_per_worker
    # Rows already sent wait together with those still to be sent.
    kept = int(frames * (3.25 if resolved["persist"] else 2.25))
    return Needs.of(
        input_bytes=frames,
        held=held,
        kept=kept,
        received=2 * _ROW * resolved["partition"],
        sentence=f"Makes {formats.size(frames)} of rows, of which nearly all travel, and joins them: about "
        f"{formats.size(kept + held)} on all workers together.",
    )


def _check(results: Mapping[str, Any], client: Client | None, **resolved: Any) -> Check:
    """Compare rows and sum with those computed from the left keys and values alone, made once more and never joined."""
    n_rows, n_parts = resolved["n_rows"], -(-resolved["n_rows"] // resolved["partition"])

    arguments = {"n_parts": n_parts, "n_rows": n_rows, "matching": resolved["matching"], "seed": resolved["seed"]}
    expected = da.arange(n_parts, chunks=1).map_blocks(
        joined, **arguments, new_axis=1, chunks=((1,) * n_parts, (2,)), dtype="int64", meta=np.empty((0, 0))
    )
    rows, total = (int(each) for each in computed(client, expected.sum(axis=0))[0])
    counts = int(results["rows"]), int(results["total"])
    words = "as" if counts == (rows, total) else f"and not {formats.count(rows)} and {formats.count(total)}, as"
    message = f"{formats.count(counts[0])} rows match and their products come to {formats.count(counts[1])}"
    return Check(
        passed=counts == (rows, total),
        what=f"{message}, {words} the keys on the left predict.",
    )


def _summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of rows that matched, and the sum of their products."""
    return {"rows": int(results["rows"]), "value": int(results["total"])} | made(results)


PRESETS = (
    Preset(
        name="dask_cuda",
        title="16,000,000 rows in partitions of 1,000,000, 3 in 10 of which match: its defaults, for sixteen workers",
        source=DASK_CUDA,
        parameters={"n_rows": 16_000_000, "partition": 1_000_000, "matching": 0.3},
    ),
)

TEMPLATE = Template(
    workload(title="Join of two dataframes", prepare=_resolved, needs=_needs, check=_check)(dataframe_join),
    imports=lambda resolved: dict.fromkeys(("pandas", "pyarrow"), ""),
    returns=("rows", "total", "seconds_to_make"),
    small=("rows", "total"),
    values=("seconds_to_make",),
    summary_of=_summary,
    presets=PRESETS,
    on_gpus=("cudf", "cudf13"),
    reports_bandwidth=True,
)
