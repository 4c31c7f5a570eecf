"""Code of this package, sent as source text to schedulers and workers that may lack it.

Bytecode of another Python crashes the process that runs it (dask/distributed#7017), and cloudpickle sends bytecode of
everything that a scheduler can't import. So a module is sent as text, and compiled on arrival, once in each process.
It may import only what is there: the standard library, NumPy, dask and distributed.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import platform
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import dask
import dask.threaded

from workbench import __version__, formats, remote
from workbench.errors import ConflictError, FailedError

if TYPE_CHECKING:
    from distributed import Client

_CONNECTING = 3.0
"""Seconds for a worker to connect to another."""
_PACKAGE = Path(__file__).parent
_SENT = (".py", ".json", ".yaml", ".cu", ".cuh")
_reached: WeakSet[Any] = WeakSet()
"""Clients whose clusters can run functions of this package."""

_importable: WeakKeyDictionary[Any, dict[tuple[frozenset[str], str], bool]] = WeakKeyDictionary()
"""Results of `can_import`, by client, workers and module."""

_ARRIVAL = """
import sys
from types import ModuleType

module = sys.modules.get(key)
if module is None:
    module = ModuleType(key)
    exec(compile(text, key, "exec"), module.__dict__)
    sys.modules[key] = module
arrived = module if name is None else getattr(module, name)
if arguments is not None:
    arrived = arrived(*arguments)
"""


class Travelling:
    """A function, class or module of ours, unpickled from the source text of its module.

    Parameters
    ----------
    what
        Defined at the top level of a module that can be sent.
    arguments
        Arguments to call it with on arrival, to send the result instead. Plain data, or other `Travelling` objects.
    """

    def __init__(self, what: Callable[..., Any] | ModuleType, arguments: tuple[Any, ...] | None = None) -> None:
        self.__name__ = what.__name__
        self._module = what if isinstance(what, ModuleType) else inspect.getmodule(what)
        self._name = None if isinstance(what, ModuleType) else what.__name__
        self._arguments = arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        key, text = _source(self._module)
        names = {"code": _ARRIVAL, "key": key, "text": text, "name": self._name, "arguments": self._arguments}
        return eval, ("(exec(code, globals()), arrived)[1]", names)


@cache
def _source(module: ModuleType) -> tuple[str, str]:
    """Return the name of a module on arrival, a different one for each text, and its text."""
    text = inspect.getsource(module)
    return f"{module.__name__.replace('.', '_')}_{zlib.crc32(text.encode()):08x}", text


class About(NamedTuple):
    """Environment and resources of a scheduler's or a worker's process."""

    role: str
    """'scheduler' or 'workers'."""
    python: str
    packages: dict[str, str]
    """Versions of Dask, distributed and NumPy by name."""
    gpus: list[tuple[str, str, int]]
    """UUID, name and bytes of memory of each GPU of its machine."""
    cupy: bool
    missing: list[str]
    """Modules of `remote.MODULES` that can't be imported there."""
    revision: str | None
    """Revision of this package there, see `remote.revision_of`; None without it."""
    loaded: bool
    """True if the package has been imported there."""
    host: str
    place: str
    """Boot and pid namespace, the same as ours if it runs next to this process."""
    processor: str | None
    cores: int
    """Number of cores that it may use."""
    memory: int
    """Bytes that it may use."""
    load: float
    """Cores of its host that were busy within the last minute."""

    @property
    def versions(self) -> tuple[str, dict[str, str]]:
        """Location, as in `apart`, and the versions of its Python and packages by name."""
        where = f"on {self.host}" if self.role == "workers" else "at the scheduler"
        return where, {"python": self.python, **self.packages}


def versions(abouts: Sequence[About] = ()) -> dict[str, str]:
    """Return the versions of the workers among these, or of this process; several versions are listed together."""
    by_package = {"python": platform.python_version(), "workbench": __version__, **remote.packages()}
    workers = [each.versions[1] for each in abouts if each.role == "workers"]
    for name in by_package:
        if versions_of := sorted({each[name] for each in workers if name in each}):
            by_package[name] = formats.listed(versions_of)
    return by_package


def ask(client: Client) -> list[About]:
    """Return the environments of the scheduler, which is first, and of all workers."""
    question = Travelling(remote.about)
    answers = [("scheduler", client.run_on_scheduler(question))]
    reported = client.run(question, on_error="ignore")
    answers += [("workers", about) for about in reported.values() if isinstance(about, dict)]
    return [About(role, **about) for role, about in answers]


def missing(abouts: Sequence[About]) -> dict[str, dict[str, int]] | None:
    """Return the modules that workers can't import, with the number of such workers by host.

    None if there are no workers.
    """
    workers = [each for each in abouts if each.role == "workers"]
    lists = [(each.host, each.missing) for each in workers]
    return _by_module(lists) if workers else None


def _by_module(lists: Sequence[tuple[str, Sequence[str]]]) -> dict[str, dict[str, int]]:
    hosts_of: dict[str, dict[str, int]] = {}
    for host, modules in lists:
        for module in modules:
            hosts = hosts_of.setdefault(module, {})
            hosts[host] = hosts.get(host, 0) + 1
    return hosts_of


def missing_here(n_workers: int) -> dict[str, dict[str, int]]:
    """Return the result of `missing` for `n_workers` workers in this environment."""
    return {module: {platform.node(): n_workers} for module in remote.missing(remote.MODULES)}


def can_import(module: str) -> bool:
    """Return whether a module can be imported where Dask computes now: on all workers of a cluster, or here.

    Workers are queried once, and again when others have arrived.
    """
    client = cluster_client()
    if client is None or client.asynchronous or _in_task():
        return not remote.missing([module])
    workers = frozenset(workers_of(client))
    answers_known = _importable.setdefault(client, {})
    if (workers, module) not in answers_known:
        answers = client.run(Travelling(remote.missing), (module,), on_error="ignore")
        answers_known[workers, module] = not any(answers.values())
    return answers_known[workers, module]


def machine_elsewhere(abouts: Sequence[About]) -> dict[str, Any] | None:
    """Describe the machines of the workers, as in an inventory; None if they run on this machine."""
    workers = [each for each in abouts if each.role == "workers" and each.place != remote.place()]
    if not workers:
        return None
    # Containers on one machine have different names, and share its cores.
    hosts = {each.place.split()[0]: each for each in workers}
    models = sorted({each.processor or "unknown" for each in workers})
    cards = enumerate(card for each in hosts.values() for card in each.gpus)
    return {
        "host": ", ".join(sorted({each.host for each in hosts.values()})),
        "cpu": {"model": " and ".join(models), "usable": sum(each.cores for each in hosts.values())},
        "memory": {"total": sum(each.memory for each in hosts.values())},
        "load": sum(each.load for each in hosts.values()),
        "gpus": [{"index": n, "uuid": uuid, "name": name, "memory_total": size} for n, (uuid, name, size) in cards],
    }


def machine_words(machine: Mapping[str, Any]) -> str:
    """Return such a description in one line: 'node-1, node-2: AMD EPYC 9654, 64 cores, 251 GiB, 4 × NVIDIA H100'."""
    cards = Counter(each["name"] for each in machine.get("gpus", ()))
    parts = (
        machine["cpu"]["model"],
        formats.count(machine["cpu"]["usable"], "core"),
        formats.size(machine["memory"]["total"]),
        *(f"{n} × {name}" for name, n in cards.items()),
    )
    return f"{machine['host']}: {', '.join(parts)}"


def differing_versions(
    there: Sequence[tuple[str, Mapping[str, str]]], own: Mapping[str, str], *, loose: Container[str] = ()
) -> str | None:
    """Describe versions that differ from `own`: 'dask is 2026.1.0 on node-2, and 2026.7.1 here'; None if none differ.

    `there` has places, such as 'on node-2', with the versions at each. For Python the minor version counts; packages in
    `loose` need only be present.
    """
    lacking = [(place, [name for name in own if name not in theirs]) for place, theirs in there]
    differences = [f"no {formats.listed(names)} {place}" for place, names in lacking if names]
    for name, ours in own.items():
        part, others = minor if name == "python" else str, dict[str, dict[str, None]]()
        for place, theirs in there:
            if name not in loose and part(theirs.get(name, ours)) != part(ours):
                others.setdefault(theirs[name], {})[place] = None
        where = " and ".join(f"{version} {formats.listed([*places])}" for version, places in others.items())
        differences += [f"{name} is {where}, and {ours} here"] if where else []
    return "; ".join(dict.fromkeys(differences)) or None


def differences(abouts: Sequence[About]) -> str | None:
    """Return a message on packages with other versions there than here; None if there are none."""
    text = differing_versions([each.versions for each in abouts], remote.packages())
    return text and f"Versions differ, so that results may fail to travel or differ: {text}."


def without_dasks_table() -> None:
    """Suppress the table of versions of Dask's clients in this process: `differences` is one sentence."""
    warnings.filterwarnings("ignore", message=r"\s*Mismatched versions found")


def one_of_each(client: Client) -> list[str]:
    """Return the address of one worker on each machine."""
    return list({each["host"]: address for address, each in workers_of(client).items()}.values())


def unconnected(client: Client) -> str | None:
    """Return a message if a machine with workers can't reach another one, checking one worker of each.

    Dask retries forever: each worker reaches the scheduler, so that none counts as lost.
    """
    import asyncio

    there = [each for each in one_of_each(client) if each.startswith(("tcp:", "tls:"))]
    if len(there) < 2:
        return None

    async def answered() -> dict[str, Any]:
        asking = client.run(Travelling(remote.unreachable), there, _CONNECTING, workers=there, on_error="ignore")
        return await asyncio.wait_for(asking, 2 * _CONNECTING)

    try:
        answers = client.sync(answered)
    except (TimeoutError, OSError):
        return None  # Other checks report workers that don't answer.
    for host, address, reason in (each for found in answers.values() if isinstance(found, list) for each in found):
        return (
            f"{host} can't reach the worker at {address} ({reason}), so no block can travel between them. Let the "
            "machines connect to each other (a firewall between them? the right interface?), or take one of them."
        )
    return None


def standstill(client: Client) -> str | None:
    """Return a message on why this client's tasks don't progress; None if no reason is found."""
    if not one_of_each(client):
        return "The cluster has no workers. This goes on once it has one."
    return unconnected(client)


def check_readable(client: Client, path: str | None) -> None:
    """Raise FailedError if a worker can't read the local file or folder of a path; None means no path.

    All workers are checked, since even those of one machine may have different disks.
    """
    if path is None or not (os.path.isfile(path) or os.path.isdir(path)):  # noqa: PTH112, PTH113  may be any text
        return
    if (failure := unable(client, remote.unreadable, path)) is not None:
        host, reason = failure
        raise FailedError(
            f"{host} can't read {path} ({reason}). Its workers read it themselves: have it on a disk that all machines "
            "share, under the same path, or give a URL."
        )


def unable(client: Client, question: Callable[[str], tuple[str, str] | None], path: str) -> tuple[str, str] | None:
    """Return a machine whose workers fail a check of `remote` for a path, and the reason; None if all pass."""
    answers = client.run(Travelling(question), path, on_error="ignore")
    return next(filter(None, answers.values()), None)


def refuse_unwritable(failure: tuple[str, str] | None, path: str) -> None:
    """Raise FailedError if the result of `remote.unwritable` says that a worker can't write to a folder."""
    if failure is not None:
        host, reason = failure
        raise FailedError(
            f"{host} can't write to {path} ({reason}). Its workers write there themselves: have it on a disk that all "
            "workers share, under the same path, or give a URL."
        )


def make_ready(client: Client) -> list[About]:
    """Let functions of ours run on any cluster, and return what its processes reported.

    If this package is missing there, or another revision of it isn't imported yet, the package is sent, in a fraction
    of a second. It stays until scheduler and workers end.

    Raises
    ------
    ConflictError
        They run another minor version of Python, or have imported another revision of this package. Nothing was sent.
    FailedError
        This package isn't there, and can't be sent.
    """
    abouts, ours = ask(client), revision()
    own = {"python": platform.python_version(), "dask-workbench": f"revision {ours}"}
    versions_of = [each.versions for each in abouts]
    for each, (_, theirs) in zip(abouts, versions_of, strict=True):
        # A revision that isn't imported yet is replaced by the one that is sent.
        fixed = each.loaded and each.revision
        theirs["dask-workbench"] = f"revision {fixed or ours}"
    if text := differing_versions(versions_of, own):
        raise ConflictError(
            f"Code of the one can't run in the other, so nothing was sent: {text}. Restart scheduler and workers in an "
            "environment like this one, or work in one like theirs."
        )
    if any(each.revision != ours for each in abouts):
        _send(client, to_scheduler=abouts[0].revision != ours)
    return abouts


def _send(client: Client, *, to_scheduler: bool) -> None:
    """Send this package to all workers, and to the scheduler unless its process has it."""
    from distributed.diagnostics.plugin import SchedulerUploadFile, UploadFile

    with tempfile.TemporaryDirectory() as folder:
        path = _packed(Path(folder))
        try:
            if to_scheduler:
                client.register_plugin(SchedulerUploadFile(path), name=Path(path).name)
            client.register_plugin(UploadFile(path), name=Path(path).name)
        except (OSError, RuntimeError, ImportError) as err:
            raise FailedError(
                f"Scheduler or workers have no dask-workbench, and it could not be sent there ({err}). Install it in "
                "their environment: in a clone of its repository, `pip install .`"
            ) from err


def scheduler() -> Any:
    """Return the scheduler argument of `compute`: None lets Dask choose.

    To choose, Dask loads distributed, in a third of a second; if it isn't loaded, there can be no client.
    """
    threads = (dask.config.get("scheduler", None) or "threads") in ("threads", "threading")
    return dask.threaded.get if threads and "distributed" not in sys.modules else None


def cluster_client() -> Any:
    """Return the `distributed.Client` that Dask computes with now, or None."""
    client = getattr(scheduler() or dask.base.get_scheduler(), "__self__", None)
    return client if hasattr(client, "scheduler_info") else None


def workers_of(client: Client) -> dict[str, Any]:
    """Return the scheduler's information on each worker, by address.

    `Client.scheduler_info` shows no workers just after the client's own periodic request, which asks for none.
    """
    workers: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return workers


def everywhere(function: Callable[[], None]) -> None:
    """Call a function in each worker of the cluster that Dask computes with now, or here if there is none."""
    client = cluster_client()
    if client is None:
        function()
    else:
        for answer in client.run(function, on_error="return").values():
            # Ignore workers that ended meanwhile.
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                raise answer


def reach_cluster() -> None:
    """Let functions of ours run on the cluster that Dask computes with now, if any: see `make_ready`.

    Each cluster is queried once, before the first graph with functions of ours is made for it.
    """
    client = cluster_client()
    if client is None or client in _reached or client.asynchronous or _in_task():
        return
    # A scheduler may be set to accept no functions; then its owner has to install the packages.
    with contextlib.suppress(ValueError):
        make_ready(client)
    _reached.add(client)


def _in_task() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def minor(python: str) -> str:
    """Return '3.12' for '3.12.1', since bytecode depends on the minor version."""
    return ".".join(python.split(".")[:2])


def _packed(folder: Path) -> str:
    """Write this package as source text to a zip file named by its hash; return the path."""
    path = folder / f"workbench-{revision()}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for source in _sources():
            file.write(source, source.relative_to(_PACKAGE.parent))
    return str(path)


def _sources() -> list[Path]:
    return sorted(each for each in _PACKAGE.rglob("*") if each.suffix in _SENT)


def revision() -> str:
    """Return a hash of this package's source here."""
    return remote.revision_of(str(_PACKAGE / "__init__.py")) or ""
