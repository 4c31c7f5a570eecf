"""Start, cancel and await runs. Each is computed by a process of its own, so nobody who asks for one is blocked."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import psutil

from workbench.clusters import processes
from workbench.clusters.records import ClusterRecord
from workbench.errors import ConflictError
from workbench.runs import store
from workbench.runs.forecast import actual_spec
from workbench.runs.store import Run

_POLL = 0.05  # seconds between two looks at a run that somebody waits for


def submit(
    workload: str,
    parameters: Mapping[str, Any],
    record: ClusterRecord,
    *,
    inventory: Mapping[str, Any] | None = None,
) -> Run:
    """Start a run and return at once.

    Raises
    ------
    BadInputError
        A parameter can't be used; nothing was started.
    ConflictError
        The cluster isn't ready.
    """
    from workbench.workloads.registry import template

    chosen = template(workload)
    if record.status != "ready":
        raise ConflictError(
            f"The cluster {record.name} is {record.status}, and only a ready one can run something."
            + (f" {record.message}" if record.message else "")
        )
    spec = actual_spec(record)
    checked = chosen.validate(parameters, memory=spec.memory, threads=spec.threads)
    run = store.create(
        Run(
            id=store.new_id(workload),
            workload=workload,
            parameters=dict(checked.given),
            resolved=dict(checked.resolved),
            notes=tuple(checked.notes),
            cluster=record.name,
            spec=spec,
            inventory=dict(inventory) if inventory is not None else None,
            created=time.time(),
            place=processes.place(),
            needs=chosen.needs(checked).model_dump(mode="json"),
        )
    )
    return _start_runner(run, record.spec.python or sys.executable)


def cancel(run_id: str) -> Run:
    """Ask a run to end and return at once. Its runner frees the workers and writes the status "cancelled"."""
    run = store.get(run_id)
    if not run.active:
        raise ConflictError(f"The run {run_id} has ended already: it is {run.status}.")
    (store.folder(run_id) / "cancel").touch()
    if run.pid is not None and store.alive(run):
        os.kill(run.pid, signal.SIGTERM)
    return store.get(run_id)


async def wait(
    run_id: str,
    on_change: Callable[[Run], Awaitable[None] | None] | None = None,
    *,
    timeout: float | None = None,
) -> Run:
    """Run when it has ended, or as it is after `timeout` seconds. `on_change` hears of every change meanwhile."""
    deadline = None if timeout is None else time.monotonic() + timeout
    seen: Run | None = None
    while True:
        run = await asyncio.to_thread(store.get, run_id)
        if run != seen and on_change is not None:
            heard = on_change(run)
            if heard is not None:
                await heard
        seen = run
        if not run.active or (deadline is not None and time.monotonic() >= deadline):
            return run
        await asyncio.sleep(_POLL)


def _start_runner(run: Run, python: str) -> Run:
    # -P: a file of the user's called, say, random.py must not stand in for Python's own.
    command = [python, "-P", "-m", "workbench.runs.runner", run.id]
    with (store.folder(run.id) / "log.txt").open("ab") as log:
        try:
            # The runner outlives whoever asks: its own session, no terminal.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as err:
            return store.update(
                run.id,
                status="failed",
                stopped=time.time(),
                error=f"The Python of the cluster, {python}, can't be started ({err.strerror}).",
            )
    # Waiting for it in a thread takes the ended process out of the process table at once.
    threading.Thread(target=process.wait, name=f"reap {run.id}", daemon=True).start()
    try:
        created = psutil.Process(process.pid).create_time()
    except psutil.NoSuchProcess:
        created = time.time()
    return store.update(run.id, pid=process.pid, pid_created=created)
