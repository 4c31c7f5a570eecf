"""A run whose every text tries to leave the place where it is shown: HTML, a script, JSON, an SVG, a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from tests.feeds import tasks_of
from workbench.clusters import records
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.hardware.gauges import GpuSample
from workbench.monitor.events import Batch, NoGpus, Progress, Task, WorkerSample
from workbench.monitor.record import Recorder
from workbench.runs import store
from workbench.runs.run import Run

TEXT = (
    "\x1b]0;title\x07</SCRIPT><script>globalThis.hostile = 1</script><img src=x onerror='hostile = 2'>"
    "\"'><wb-hostile onclick=x> <!--<script> ]]> $$\\href{javascript:hostile=3}{x}$$ @name{safe} {{x}} "
    "[link=file:///x]y[/link] [/z] \x1b]52;c;eA==\x07\x1b[2J\x1b]8;;file:///x\x1b\\ \x9b31m \r\x08 "
    "\u202egnp.exe\u2066 \x85 \u2028next\nFAKE LINE"
)
START = 1_700_000_000.0

_CELL = {"count": 3, "bandwidth": [1e8, 2e8, 3e8]}
_RUN: dict[str, Any] = {
    "id": "hostile-1",
    "workload": "array_sum",
    "cluster": "calm-otter",
    "status": "done",
    "created": START,
    "started": START,
    "stopped": START + 5,
    "seconds": 4.0,
    "bytes": 10**9,
    "bytes_per_second": 1e8,
    "error": "x",
    "parameters": {"x": "x", "y": ["x"], "z": {"x": "x"}},
    "resolved": {"x": "x", "shape": [4, 4]},
    "notes": ["x"],
    "spec": {
        "profile": "cpu",
        "n_workers": 2,
        "threads_per_worker": 1,
        "memory_limit": 2**30,
        "protocol": "tcp",
        "devices": ["x"],
        "why": ["x"],
        "options": {"x": "x"},
        "python": "x",
    },
    "inventory": {
        "gpus": [{"name": "SIMULATED x", "simulated": True}],
        "topology": {"gpus": ["x", "y"], "cards": ["x"], "rows": [["X", "NV2", "SYS"], ["NV2", "X", None]]},
    },
    "versions": {"x": "x"},
    "result": {
        "value": 1.0,
        "text": "x",
        "x": {"x": "x"},
        "words": ["x"],
        "sentence": "x",
        "singular_values": [2.0, 1.0],
        "certificate": {"sentence": "x", "bound": [1e-3, 1e-3], "of_largest": [1e-3, 1e-3]},
        "bandwidth": {
            "workers": ["x", "y"],
            "matrix": [[None, _CELL], [_CELL, None]],
            "n_messages": 6,
            "overall": [1e8, 2e8, 3e8],
            "transport": "x",
            "sentence": "x",
            "quantiles": [0.25, 0.5, 0.75],
        },
    },
    "check": {"passed": True, "what": "x", "detail": "x"},
    "progress": {"done": 1, "total": 2, "waits": "x", "by_name": {"x": {"done": 1, "total": 2}}},
    "energy": {"joules": 10.0, "seconds": 2.0, "n_gpus": 1, "source": "power"},
    "on_gpu": {
        "blocks": 1,
        "on_gpu": 1,
        "bytes": 1,
        "bytes_on_gpu": 1,
        "share": 1.0,
        "share_of_bytes": 1.0,
        "sentence": "x",
        "warning": "x",
        "devices": {"x": 1},
        "steps": [],
    },
    "diagnosis": {
        "seconds": 4.0,
        "threads": 2,
        "workers": 2,
        "sentence": "x",
        "shares": {"computing": 0.4, "idle": 0.4, "x": 0.2},
        "suggestions": [{"rule": "x", "share": 0.1, "found": "x", "change": "x"}] * 2,
        "peak": {"worker": "x", "task": "x", "bytes": 10, "limit": 20},
    },
    "forecast": {"verdict": "x", "seconds": {"low": 1.0, "high": 2.0}, "basis": "x"},
    "imported": {"machine": "x", "at": START},
    "preset": "x",
    "text": {"source": "x", "figures": [{"machine": "x", "seconds": [1.0, 2.0]}], "differs": ["x"]},
    "settings": {"x": "x"},
    "marks": {"name": "x", "note": "x", "star": True},
    "answers": {
        "arrays": {"x": {"shape": [3], "dtype": "float64", "dims": ["x"], "bytes": 24}},
        "saved": "s3://x",
        "remark": "x",
    },
}
_FIXED = ("id", "status")
"""Fields that name files or states."""


def _texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Yield the paths of strings in JSON, and whether each is the name of a field."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(each, str):
            yield (*path, key), False
        yield from _texts(each, (*path, key))
        if key == "x":
            yield (*path, key), True


def _replaced(run: dict[str, Any], path: tuple[Any, ...], is_name: bool) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(run))
    holder: Any = changed
    for key in path[:-1]:
        holder = holder[key]
    if is_name:
        holder[TEXT] = holder.pop(path[-1])
    else:
        text = TEXT[:200] if path == ("marks", "name") else TEXT
        holder[path[-1]] = text
    return changed


def hostile_run(**changes: Any) -> Run:
    """Return a run with the hostile text in all places where a record may have text."""
    run = _RUN | changes
    replaced = 0
    for path, is_name in list(_texts(run)):
        if path[0] in _FIXED:
            continue
        try:
            changed = _replaced(run, path, is_name)
            Run.model_validate_json(json.dumps(changed)).model_dump()
        except (ValidationError, LookupError):
            continue
        run, replaced = changed, replaced + 1
    assert replaced > 40, replaced
    return Run.model_validate_json(json.dumps(run))


def hostile_batch() -> Batch:
    """Return the record of such a run: names of tasks and workers, keys, sources."""
    kinds = ("compute", "transfer", "disk-read", "other")
    rows = [
        *(Task(TEXT, TEXT, TEXT, i, kind, START + i, START + i + 0.8, 8, "ok") for i, kind in enumerate(kinds)),
        Task("k", "sum", "tcp://a:1", 1, "compute", START, START + 3, 8, "erred", TEXT),
    ]
    samples = tuple(
        WorkerSample(worker, TEXT, START + i, 50.0, 2**30, 2**31, 0, 1, 1)
        for worker in (TEXT, "tcp://a:1")
        for i in range(3)
    )
    counts = {name: {"total": 4, "done": 3, "erred": 1, "processing": 0} for name in (TEXT, "sum")}
    readings = {"utilisation": 50.0, "memory_used": 2**30, "memory_total": 2**31, "absent": {"power": TEXT}}
    gpus = tuple(GpuSample(TEXT, f"SIMULATED {TEXT}", 0, TEXT, START + i, **readings) for i in range(3))
    more = {"gpus": gpus, "no_gpus": (NoGpus(TEXT, TEXT, True),)}
    return Batch(START + 5, tasks_of(rows), samples, Progress(START + 5, counts), recorded=True, **more)


def keep_hostile_cluster() -> None:
    """Put a cluster into the data folder that failed with a hostile message."""
    spec = ClusterSpec(profile="cpu", n_workers=2, threads_per_worker=1, memory_limit=2**29, why=(TEXT,))
    failed = {"status": "failed", "message": TEXT, "log_tail": (TEXT,), "created": START}
    records.create(ClusterRecord(name="calm-otter", spec=spec, **failed))


def keep_hostile_run(run_id: str = "hostile-1") -> Run:
    """Put the run into the data folder, with its events and a log."""
    run = store.create(hostile_run(id=run_id))
    with Recorder(store.folder(run.id) / "events.parquet") as recorder:
        recorder.write(hostile_batch())
    (store.folder(run.id) / "log.txt").write_text(f"before\n{TEXT}\nafter\n", encoding="utf-8")
    return run
