"""Actions on a running cluster: scale, adapt, restart, stop, read its logs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

import psutil

from workbench import config, formats
from workbench.clusters import records, security
from workbench.clusters.engine import Verb
from workbench.clusters.profiles import of_cluster
from workbench.clusters.reachability import asking
from workbench.clusters.records import ClusterRecord
from workbench.clusters.requests import ask
from workbench.errors import (
    BadInputError,
    ConflictError,
    FailedError,
    NotFoundError,
    WorkbenchError,
    named,
    on_one_line,
    quoted,
)
from workbench.jobs import folders
from workbench.threads import in_thread, load

_RPC_PATIENCE, _WORKER_PATIENCE, _RESTARTING = 5.0, 3.0, 60.0
_POLL = 0.03


async def scale(name: str, n_workers: int, *, force: bool = False) -> ClusterRecord:
    """Scale the cluster to `n_workers`; return when leaving workers have handed over their data.

    Ends adapting. Raises ConflictError if the workers exceed the memory budget, unless `force` is given.
    """
    record = records.read(name)
    _check_can(record, "scale")
    _check_most(record, "n_workers", n_workers, least=1)
    return await _ask(record, "scale", most=None if force else n_workers, n=n_workers)


async def adapt(name: str, minimum: int, maximum: int, *, force: bool = False) -> ClusterRecord:
    """Adapt the number of workers to the load, between two bounds. `minimum` may be zero."""
    record = records.read(name)
    _check_can(record, "adapt")
    _check_count("minimum", minimum, least=0)
    _check_most(record, "maximum", maximum, least=max(1, minimum))
    return await _ask(record, "adapt", most=None if force else maximum, minimum=minimum, maximum=maximum)


async def restart_workers(name: str) -> ClusterRecord:
    """Restart all workers, which lose their tasks and data. Return when they are back."""
    record = records.read(name)
    _check_can(record, "restart")
    return await _ask(record, "restart")


async def logs(name: str) -> dict[str, str]:
    """Return the logs of 'host', 'scheduler' and each worker, such as 'worker 0, tls://127.0.0.1:41007'.

    Only the host's if the cluster isn't up.
    """
    record = records.read(name)
    logs = {"host": await in_thread(records.log, name)}
    if record.status != "ready":
        return logs
    try:
        async with _scheduler(record) as scheduler:
            logs["scheduler"] = _text(await scheduler.get_logs())
            identities = (await scheduler.identity())["workers"]
            texts = await asyncio.gather(*(_worker_log(scheduler, address) for address in identities))
        for (address, each), text in zip(identities.items(), texts, strict=True):
            # Workers without a name are named after their address.
            label = address if each["name"] == address else f"worker {each['name']}, {address}"
            logs[on_one_line(label)] = text
    except FailedError as err:
        logs["scheduler" if "scheduler" not in logs else "workers"] = str(err)
    return logs


async def _worker_log(scheduler: Any, address: str) -> str:
    try:
        answers = await asyncio.wait_for(scheduler.worker_logs(workers=[address]), _WORKER_PATIENCE)
    except (OSError, TimeoutError):
        return f"It didn't answer within {formats.duration(_WORKER_PATIENCE)}."
    return _text(answers[address])


class Worker(NamedTuple):
    """A worker as its scheduler last reported it. None for values that it doesn't report."""

    address: str
    name: str
    threads: int
    cpu: float
    """Percent of one core."""
    memory: int
    memory_limit: int
    """0 without a limit."""
    spilled: int
    """Bytes on disk."""
    tasks: int
    """Number of tasks that run or are ready to run."""
    silent_for: float
    """Seconds since the worker's last message to the scheduler."""
    gpu: float | None = None
    """GPU utilization of the last moment, in percent."""
    gpu_memory: int | None = None


async def workers(name: str) -> list[Worker]:
    """Return the state of each worker, as last reported to the scheduler."""
    async with _scheduler(records.read(name)) as scheduler:
        identities = (await scheduler.identity())["workers"]
    return [_worker(address, each, each["metrics"]) for address, each in identities.items()]


def _worker(address: str, identity: Mapping[str, Any], metrics: Mapping[str, Any]) -> Worker:
    tasks = metrics.get("task_counts") or {}
    return Worker(
        address,
        str(identity["name"]),
        identity["nthreads"],
        metrics["cpu"],
        metrics["memory"],
        identity["memory_limit"],
        metrics["spilled_bytes"]["disk"],
        tasks.get("executing", 0) + tasks.get("ready", 0),
        max(0.0, time.time() - identity["last_seen"]),
        metrics.get("gpu_utilization"),
        metrics.get("gpu_memory_used"),
    )


async def restart_worker(name: str, address: str) -> ClusterRecord:
    """Restart one worker; its data is computed again if needed."""
    record = records.read(name)
    _check_can(record, "restart")
    async with _scheduler(record, _RESTARTING) as scheduler:
        if address not in (workers := (await scheduler.identity())["workers"]):
            raise NotFoundError(f"{name} has no worker {address:.80}. It has: {', '.join(workers)}.")
        done = await scheduler.restart_workers(
            workers=[address], on_error="return", stimulus_id=f"workbench-restart-{time.time()}"
        )
    if done.get(address) not in ("OK", "removed"):
        raise FailedError(f"{address} was not restarted: {done.get(address)}.")
    return records.read(name)


async def stop(record: ClusterRecord, *, timeout: float = 10.0) -> None:
    """Stop the cluster, detach from an external one, cancel a start, or dismiss a failed one.

    Asks the host, then sends SIGTERM, then SIGKILL; returns when no process and no record is left.

    Raises FailedError if it keeps running elsewhere because the engine there doesn't end it. Its record stays, so that
    the user can try again, or give it up with `forget`.
    """
    record = await in_thread(_reread, record)
    if record.status == "unknown":
        raise ConflictError(f"Cluster {record.name} is left as it is. {record.message}")
    if record.status == "ready":
        with contextlib.suppress(WorkbenchError, TimeoutError):
            await asyncio.wait_for(_ask(record, "stop"), timeout)
            await _ended(record, timeout)
    host = records.host_process(record)
    if host is not None:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            host.terminate()
        if not await _ended(record, timeout) and record.spec.elsewhere and "stop" in record.can:
            await in_thread(records.end_processes, record)
            raise FailedError(
                f"The process that owns {record.name} didn't end it within {formats.duration(2 * timeout)}, and what "
                f"it started elsewhere may go on. See its log: workbench logs {record.name}. {_again(record.name)}"
            )
    remaining = await in_thread(_reread, record)
    # A cluster lost earlier is dismissed. On this machine nothing keeps running, whatever the message says.
    if remaining.status == "lost" and record.status != "lost" and remaining.spec.elsewhere and remaining.message:
        raise FailedError(f"{remaining.message}\n{_again(record.name)}")
    if remaining.ending == "stopped" and remaining.is_over:
        await _end(remaining)
    await in_thread(_clear, record)


async def stop_all() -> tuple[str, ...]:
    """Stop every cluster that is known here, and return their names.

    Raises FailedError, after all others are stopped, if some keep running elsewhere.
    """
    known = [record for record in await in_thread(records.read_all) if record.status != "unknown"]
    ended = await asyncio.gather(*map(stop, known), return_exceptions=True)
    errors = [each for each in ended if isinstance(each, BaseException)]
    for error in errors:
        if not isinstance(error, WorkbenchError):
            raise error
    if errors:
        raise FailedError(" ".join(map(str, errors)))
    return tuple(record.name for record in known)


async def forget(record: ClusterRecord) -> str | None:
    """Stop the cluster as far as possible from here, and remove its record; return why it may still run, or None.

    A live owner on another machine ends the cluster as soon as it finds its record gone.
    """
    record = await in_thread(_reread, record)
    why = None
    try:
        if record.status != "unknown":
            await stop(record)
        elif record.ending == "stopped" and record.called and folders.silence(record, records.folder(record.name)):
            await _end(record)
        else:
            why = f"If its process still runs{record.node and f' on {record.node}'}, that ends it when it notices this."
    except WorkbenchError as err:
        why = str(err).replace(f"\n{_again(record.name)}", "")
    await in_thread(records.remove, record.name)
    return why


def _again(name: str) -> str:
    return (
        f"Try again: workbench down {name}. Or remove its record, whatever goes on there: workbench down {name} "
        "--forget"
    )


async def _end(record: ClusterRecord) -> None:
    """End what still runs elsewhere without its owner. Raises FailedError if that fails for any reason."""
    try:
        await of_cluster(record.spec.profile).end(record.spec, record.called)
    except Exception as err:  # from a server, or from a third-party profile
        why = str(err) if isinstance(err, WorkbenchError) else f"It could not be ended ({named(err)})."
        raise FailedError(f"{record.name} is still there. {why}\n{_again(record.name)}") from err


async def wait(
    name: str, on_change: Callable[[ClusterRecord], None] | None = None, timeout: float | None = None
) -> ClusterRecord:
    """Return the cluster's record once it is ready; call `on_change` with each stage on the way.

    Raises FailedError with the last lines of the log if it doesn't become ready, or not within `timeout` seconds.
    Also raises if the host process, which itself ends a start that takes too long, gives no sign of life.
    """
    began = changed = looked = time.monotonic()
    limit = config.seconds("start-timeout")
    last = sign = None
    while True:
        try:
            record = records.read(name)
        except NotFoundError as err:
            raise FailedError(f"Cluster {name} was stopped before it was ready.") from err
        if record != last and on_change is not None:
            on_change(record)
        last = record
        if record.status == "ready":
            return record
        if record.status != "starting":
            raise FailedError("\n    ".join((f"Cluster {record.status_message}", *record.log_tail)))
        if timeout is not None and time.monotonic() > began + timeout:
            raise FailedError(f"Cluster {name} is still starting after {formats.duration(timeout)} ({record.stage}).")
        # Don't count time in which this process was suspended, perhaps along with the host.
        paused, looked = time.monotonic() - looked > folders.HEARTBEAT, time.monotonic()
        if paused or sign != (sign := (record, _heartbeat(name))):
            changed = looked
        elif limit is not None and time.monotonic() > changed + limit + 2 * folders.HEARTBEAT:
            raise FailedError(
                f"Cluster {name} can't start: its process has said nothing for "
                f"{formats.duration(round(time.monotonic() - changed))}. See its log, or stop it: workbench down {name}"
            )
        await asyncio.sleep(_POLL)


def _heartbeat(name: str) -> float | None:
    try:
        return (records.folder(name) / "heartbeat").stat().st_mtime
    except OSError:
        return None


def _check_can(record: ClusterRecord, verb: Verb) -> None:
    if verb in record.can:
        return
    if record.can:
        raise ConflictError(f"{record.name} can't {verb}. It can: {', '.join(record.can)}.")
    raise ConflictError(
        f"{record.name} can't {verb}: it was started elsewhere, and its workers belong to the user who started it. "
        "Change them there."
    )


def _check_count(parameter: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInputError(f"{parameter} is {quoted(value)}. Give a whole number, {least} or more.")


def _check_most(record: ClusterRecord, parameter: str, value: int, *, least: int) -> None:
    """Refuse more workers than the cluster has GPUs."""
    _check_count(parameter, value, least=least)
    devices = len(record.spec.devices)
    if devices and value > devices:
        raise BadInputError(
            f"{parameter} is {value}, and {record.name} has {formats.count(devices, 'GPU')}, a worker for "
            f"each. Give at most {devices}, or start a cluster with more GPUs."
        )


async def _ask(record: ClusterRecord, verb: Verb, *, most: int | None = None, **arguments: Any) -> ClusterRecord:
    """Ask the owner to do it, and return the new record. Raises a WorkbenchError if that is impossible or fails.

    `most` is the number of workers that the cluster may then have. Raises ConflictError if that exceeds the memory
    budget; None, or fewer than now, are always allowed.
    """
    _check_ready(record)
    allowed = max(record.n_workers_expected, record.adaptive[1] if record.adaptive else 0)
    try:
        if most is None or most <= allowed or record.spec.elsewhere:
            await ask(records.folder(record.name), verb, **arguments)
        else:
            await in_thread(asyncio.run, _ask_in_turn(record, verb, most, arguments))
    except OSError as err:
        why = str(err) or "it is stuck"
        raise FailedError(
            f"Nothing was done: the process that owns {record.name} doesn't answer ({why}). See its log, or stop it: "
            f"workbench down {record.name}"
        ) from err
    return await in_thread(_reread, record)


async def _ask_in_turn(record: ClusterRecord, verb: Verb, most: int, arguments: Mapping[str, Any]) -> None:
    """Ask the owner for a change that needs more memory, while no other cluster is promised any.

    Runs in a thread with its own event loop, since other coroutines here may wait for the same lock.
    """
    from workbench.clusters.budget import check_budget, without
    from workbench.hardware import inventory

    hardware = inventory()
    with contextlib.ExitStack() as stack:
        stack.enter_context(records.lock())
        others = without(records.read_all(locked=True), record.name)
        check_budget(record.spec.model_copy(update={"n_workers": most}), hardware, others, group=record.group)
        # The owner first writes the promise into its record.
        await ask(records.folder(record.name), verb, on_read=stack.close, **arguments)


def _check_ready(record: ClusterRecord) -> None:
    if record.status != "ready":
        raise ConflictError(f"Cluster {record.status_message}")


@contextlib.asynccontextmanager
async def _scheduler(record: ClusterRecord, patience: float = _RPC_PATIENCE) -> AsyncIterator[Any]:
    """Open Dask's RPC to the cluster's scheduler. Raises FailedError if it doesn't answer within `patience` seconds."""
    await in_thread(load, "distributed")
    keys = security.load(record)
    try:
        # A suspended process accepts connections, and never answers.
        async with asyncio.timeout(patience), asking(record.contact or "", keys, _RPC_PATIENCE) as scheduler:
            yield scheduler
    except OSError as err:
        why = str(err) or f"within {formats.duration(patience)}"
        raise FailedError(f"The scheduler of {record.name} does not answer at {record.contact} ({why}).") from err


def _text(lines: list[tuple[str, str]]) -> str:
    # Text from another process may be of any length.
    return "\n".join(line for _, line in reversed(lines))[-config.LOG_TAIL :]


def _reread(record: ClusterRecord) -> ClusterRecord:
    try:
        return records.read(record.name)
    except NotFoundError:
        # Gone already, or on another machine: the given record is all that is known.
        return record


async def _ended(record: ClusterRecord, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if records.host_process(record) is None:
            return True
        await asyncio.sleep(_POLL)
    return False


def _clear(record: ClusterRecord) -> None:
    records.end_processes(record)
    records.remove(record.name)
