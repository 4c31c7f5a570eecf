"""Queries of schedulers and workers, as functions that run there.

This module is sent as source text (see `workbench.sent_code`), so that it runs on any Dask cluster, whether or not the
cluster has this package, and in any version of Python. It may import only packages of every scheduler and worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dask.system import CPU_COUNT

MODULES = (
    *("numba", "zarr", "xarray", "h5netcdf", "h5py", "scipy", "cfgrib", "tifffile", "imagecodecs", "pandas", "pyarrow"),
    *("aiohttp", "s3fs", "gcsfs", "adlfs"),
)
"""Modules that tasks of some workloads need in addition to Dask and NumPy."""


def about() -> dict[str, Any]:
    """Return the environment and resources of a process, and its revision of this package: None without the package."""
    from distributed.system import MEMORY_LIMIT

    return {
        "python": platform.python_version(),
        "packages": packages(),
        "gpus": gpus(),
        "cupy": find_spec("cupy") is not None,
        "missing": missing(MODULES),
        "revision": revision_here(),
        "loaded": "workbench" in sys.modules,
        "host": platform.node(),
        "place": place(),
        "processor": processor_in(_text("/proc/cpuinfo")) or platform.processor() or None,
        "cores": CPU_COUNT,
        "memory": MEMORY_LIMIT,
        "load": os.getloadavg()[0],
    }


def missing(modules: Sequence[str]) -> list[str]:
    """Return the modules that can't be imported here."""
    absent = []
    for name in modules:
        with contextlib.suppress(ImportError, ValueError):
            if find_spec(name) is not None:
                continue
        absent.append(name)
    return absent


@cache
def revision_of(origin: str | None) -> str | None:
    """Return a hash of this package's source, given its first file; None without one.

    It is the same however the package was installed: files that a build adds or leaves out are ignored.
    """
    if origin is None:
        return None
    folder, digest = Path(origin).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.*")):
        inside = path.relative_to(folder)
        if path.suffix in (".py", ".yaml", ".cu", ".cuh") and "labextension" not in inside.parts:
            digest.update(f"{inside.as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def revision_here() -> str | None:
    """Return the revision of this package in this process; if it was sent as a zip file, the file's name has it."""
    spec = find_spec("workbench")
    archive = None if spec is None else getattr(spec.loader, "archive", None)
    if archive is not None:
        return Path(archive).stem.removeprefix("workbench-")
    return revision_of(None if spec is None else spec.origin)


async def add_to_workers(plugin: bytes, name: str, own: str, dask_scheduler: Any = None) -> None:
    """Add a plugin to all present and future workers, until it is removed or the calling client leaves.

    The client may be killed.
    """
    from distributed.diagnostics.plugin import SchedulerPlugin

    class Leaving(SchedulerPlugin):
        def remove_client(self, scheduler: Any, client: str) -> None:
            if client == own:
                self.going = asyncio.ensure_future(remove_from_workers(name, scheduler))

    dask_scheduler.add_plugin(Leaving(), name=name)
    answers = {}
    for tries_left in (2, 1, 0):
        try:
            answers = await dask_scheduler.register_worker_plugin(None, plugin, name, idempotent=False)
            break
        except OSError:
            # A worker has ended: its replacement gets the plugin on arrival, but some of the others may lack it.
            if not tries_left:
                raise
            await asyncio.sleep(0.2)
    for answer in answers.values():
        if answer["status"] == "error":
            raise RuntimeError(answer["exception_text"])


async def remove_from_workers(name: str, dask_scheduler: Any = None) -> None:
    """Remove a plugin from all workers, and the import hook of the same name from the scheduler."""
    dask_scheduler.plugins.pop(name, None)
    finders: list[Any] = [each for each in sys.meta_path if getattr(each, "name", None) == name]
    for each in finders:
        each.teardown()
    with contextlib.suppress(ValueError):  # already removed
        await dask_scheduler.unregister_worker_plugin(None, name)


def look_in(folder: str) -> None:
    """Let this process import modules from a folder, after all other places."""
    if folder not in sys.path:
        sys.path.append(folder)


def looking_in(folder: str) -> Callable[[], None]:
    """Return a function that does so in the process that calls it."""
    return partial(look_in, folder)


def packages() -> dict[str, str]:
    """Return the versions of packages that must be the same for results to be sent."""
    versions = {}
    for name in ("dask", "distributed", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def gpus() -> list[tuple[str, str, int]]:
    """Return UUID, name and bytes of memory of each NVIDIA GPU of this machine, if NVML is available."""
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001  No package, no driver, no device: no GPU in any case.
        return []
    cards = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    queries = (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName, lambda card: nvml.nvmlDeviceGetMemoryInfo(card).total)
    return [tuple(ask(card) for ask in queries) for card in cards]


def unreadable(path: str) -> tuple[str, str] | None:
    """Return the name of this machine, and why it can't read a path; None if it can."""
    try:
        with os.scandir(path) if os.path.isdir(path) else open(path, "rb"):  # noqa: PTH112, PTH123
            return None
    except OSError as err:
        return platform.node(), err.strerror or str(err)


def unwritable_zarr(path: str) -> tuple[str, str] | None:
    """Return the name of this machine, and why it can't write to an existing Zarr store; None if it can."""
    try:
        import_module("zarr")
    except ImportError:
        return platform.node(), "zarr isn't installed there"
    return unwritable(path)


def unwritable(path: str) -> tuple[str, str] | None:
    """Return the name of this machine, and why it can't write to an existing folder; None if it can."""
    if "://" in path or os.access(path, os.W_OK):
        return None
    try:
        os.stat(path)  # noqa: PTH116  one call for each block that is written
    except FileNotFoundError:
        return platform.node(), "it doesn't have that folder"
    except OSError as err:
        return platform.node(), err.strerror or str(err)
    return platform.node(), "its workers may only read there"


async def unreachable(addresses: Sequence[str], seconds: float) -> list[tuple[str, str, str]]:
    """Return machine name, address and reason for each of these workers that can't be connected to from here."""

    async def why(address: str) -> str:
        host, _, port = address.partition("://")[2].rpartition(":")
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host.strip("[]"), int(port)), seconds)
        except TimeoutError:
            return f"nothing answered within {seconds:g} s"
        except OSError as err:
            return err.strerror or str(err)
        writer.close()
        return ""

    reasons = await asyncio.gather(*map(why, addresses))
    return [(platform.node(), address, reason) for address, reason in zip(addresses, reasons, strict=True) if reason]


def place() -> str:
    """Identify the pid namespace: this boot of this machine, and its container.

    Many machines or containers may share the disk of a data folder.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def machine() -> str:
    """Return the id of this boot of the machine, which its containers share."""
    return place().split()[0]


def processor_in(cpuinfo: str) -> str | None:
    """Return the name of the processor that Linux describes, such as 'AMD EPYC 9654 96-Core Processor'."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    # x86 and RISC-V, POWER, older ARM boards: the first one found in this order.
    facts = {key.strip(): value.strip() for key, _, value in lines if value.strip()}
    return next((facts[key] for key in ("model name", "cpu", "Model", "Hardware") if key in facts), None)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def clients(dask_scheduler: Any = None) -> list[str]:
    """Return the ids of the connected clients."""
    return [name for name in dask_scheduler.clients if name != "fire-and-forget"]


def worker_addresses(dask_scheduler: Any = None) -> list[str]:
    """Return the addresses of all workers."""
    return list(dask_scheduler.workers)


def executing_keys(dask_worker: Any) -> list[Any]:
    """Return the keys of the tasks in the worker's threads, including canceled ones."""
    return [task.key for task in (*dask_worker.state.executing, *dask_worker.state.long_running)]


def unwanted(executing: dict[str, list[Any] | None], client_id: str, dask_scheduler: Any = None) -> list[str] | None:
    """Release the keys that a client wants; return workers that run a task no longer assigned, or don't answer.

    Returns None if the client still wanted something. `Client.cancel` would keep keys that another client also wants,
    and fails if their dependents are no longer wanted.
    """
    client = dask_scheduler.clients.get(client_id)
    if client is not None and client.wants_what:
        dask_scheduler.client_releases_keys([task.key for task in client.wants_what], client_id)
        return None
    processing = {
        address: {task.key for task in worker.processing}
        for address, worker in dask_scheduler.workers.items()
        if address in executing
    }
    return [
        address
        for address, keys in executing.items()
        if keys is None or not processing.get(address, set()).issuperset(keys)
    ]


def now(dask_scheduler: Any = None) -> float:
    """Return the time of the scheduler's clock."""
    return time.time()


def fetched(since: float, least_bytes: int, dask_worker: Any = None) -> tuple[list[tuple[str, int, float]], int, bool]:
    """Return the fields of `transfers.Transfers`."""
    log = dask_worker.transfer_incoming_log
    recent = [each for each in log if each["stop"] >= since]
    large = [(each["who"], each["total"], each["bandwidth"]) for each in recent if each["total"] > least_bytes]
    return large, len(recent), len(recent) == len(log) == log.maxlen


def ucx_lanes(dask_worker: Any = None) -> list[str]:
    """Return the transports of the worker's connections, by `ucp_ep_query` (UCX 1.13 and later).

    Only UCX's transports and devices are reliable: `ucx_info -d` lists more than Dask's endpoints use.
    """

    class Entry(ctypes.Structure):
        _fields_ = (("transport", ctypes.c_char_p), ("device", ctypes.c_char_p))

    class Transports(ctypes.Structure):
        _fields_ = (("entries", ctypes.POINTER(Entry)), ("number", ctypes.c_uint), ("entry_size", ctypes.c_size_t))

    class Attributes(ctypes.Structure):  # ucp_ep_attr_t, ucp/api/ucp.h
        _fields_ = (
            ("field_mask", ctypes.c_uint64),
            ("name", ctypes.c_char * 32),
            ("addresses", ctypes.c_uint64 * 32),
            ("transports", Transports),
            ("user_data", ctypes.c_void_p),
        )

    def ask(library: Any, handle: int) -> list[str]:
        entries = (Entry * 16)()
        attributes = Attributes(field_mask=1 << 3, transports=Transports(entries, 16, ctypes.sizeof(Entry)))
        if library.ucp_ep_query(ctypes.c_void_p(handle), ctypes.byref(attributes)) != 0:
            return []
        lanes = [(entry.transport or b"", entry.device or b"") for entry in entries[: attributes.transports.number]]
        # The lane without a device made the connection.
        return [f"{transport.decode()} on {device.decode()}" for transport, device in lanes if transport and device]

    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        library = ctypes.CDLL(next(line.split(maxsplit=5)[-1] for line in maps if "libucp" in line))
        pools = (*dask_worker.rpc.available.values(), *dask_worker.rpc.occupied.values())
        handles = [comm._ep_handle for pool in pools for comm in pool if not comm.closed()]
        return sorted({lane for handle in handles for lane in ask(library, handle)})
    except (OSError, StopIteration, AttributeError):
        return []
