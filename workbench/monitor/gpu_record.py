"""Samples of GPUs on disk, next to the other events of a run: `gpus.parquet`, one row for each sample.

A run on a cluster without GPUs has no such file. Any reader of Parquet can use it. Columns are the fields of
`workbench.hardware.gauges.GpuSample`: bytes, watts, joules, °C, MHz and bytes per second; `throttle` is words joined by
', ', and `absent` is JSON. A row with a `reason` stands for a host whose GPUs couldn't be read.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from workbench.hardware.gauges import GpuSample
from workbench.monitor.events import Batch, NoGpus

_OTHERS = ("uuid", "name", "index", "host", "time", "processes", "throttle", "absent", "simulated")
_NUMBERS = {
    name: pa.int64() if name.startswith("memory") else pa.float64()
    for name in GpuSample.__slots__
    if name not in _OTHERS
}

SCHEMA = pa.schema(
    [
        ("uuid", pa.string()),
        ("name", pa.string()),
        ("index", pa.int32()),
        ("host", pa.string()),
        ("time", pa.float64()),
        *_NUMBERS.items(),
        ("throttle", pa.string()),
        ("absent", pa.string()),
        ("reason", pa.string()),
        ("expected", pa.bool_()),
        ("simulated", pa.bool_()),
    ]
)

ADDED = ("simulated",)
"""Columns that older files lack."""

_FIELDS = tuple(name for name in GpuSample.__slots__ if name in SCHEMA.names)


def gpu_path(events: Path) -> Path:
    """Return the path of the GPU samples that belong to the events at `events`."""
    return events.with_name("gpus.parquet")


def gpu_table(batch: Batch) -> pa.Table | None:
    """Return the rows of a batch, or None if it has nothing on GPUs; hosts without a GPU don't count."""
    reasons = [each for each in batch.no_gpus or () if each.expected]
    rows = [*map(_sample_row, batch.gpus), *(dataclasses.asdict(each) | {"time": batch.time} for each in reasons)]
    return pa.Table.from_pylist(rows, SCHEMA) if rows else None


def with_gpus(batch: Batch, table: pa.Table) -> Batch:
    """Add the GPU samples in a table to a recorded batch."""
    # A row that lacks any of these is damaged and left out.
    rows = [row for row in table.to_pylist() if row["host"] and row["time"] and (row["uuid"] or row["reason"])]
    reasons = {row["host"]: NoGpus(row["host"], row["reason"], row["expected"]) for row in rows if row["reason"]}
    return replace(
        batch,
        gpus=tuple(_samples(row for row in rows if not row["reason"])),
        no_gpus=tuple(reasons.values()) if reasons else None,
    )


def _sample_row(sample: GpuSample) -> dict[str, Any]:
    row = {name: getattr(sample, name) for name in _FIELDS}
    row["throttle"] = None if sample.throttle is None else ", ".join(sample.throttle)
    row["absent"] = json.dumps(dict(sample.absent), sort_keys=True)
    return row


def _samples(rows: Iterable[dict[str, Any]]) -> Iterable[GpuSample]:
    # Reasons hardly ever change, so samples share the parsed ones.
    load = cache(json.loads)
    for row in rows:
        throttle = None if row["throttle"] is None else tuple(filter(None, row["throttle"].split(", ")))
        values = {name: row.get(name) for name in _FIELDS} | {"throttle": throttle}
        yield GpuSample(**values | {"absent": load(row["absent"] or "{}"), "simulated": bool(row.get("simulated"))})
