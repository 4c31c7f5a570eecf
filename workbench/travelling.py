"""How code of ours gets to schedulers and workers that may have another Python, and nothing of ours: as source text.

Bytecode of another Python ends the process that runs it (dask/distributed#7017), and cloudpickle sends bytecode of all
that a scheduler can't import. So a module that travels is sent as its text, and is compiled where it arrives, once in
each process. It may import only what it finds there: the standard library, NumPy, dask and distributed.
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
"""Clients whose clusters can run functions of ours."""

_importable: WeakKeyDictionary[Any, dict[tuple[frozenset[str], str], bool]] = WeakKeyDictionary()
"""By client, whether these workers can all import a module."""

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
    """A function, class or module of ours, which arrives as that, made of the source text of its module.

    Parameters
    ----------
    what
        From the top of a module that travels.
    arguments
        What to call it with as it arrives: that is what arrives then. Plain data, or something that travels.
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
    """Name that a module has where it arrives, another one for each text, and its text."""
    text = inspect.getsource(module)
    return f"{module.__name__.replace('.', '_')}_{zlib.crc32(text.encode()):08x}", text


class About(NamedTuple):
    """What a scheduler, or a worker, says of the process that it runs in."""

    role: str
    """'scheduler' or 'workers'."""
    python: str
    packages: dict[str, str]
    """Versions of Dask, distributed and NumPy by their names."""
    gpus: list[tuple[str, str, int]]
    """UUID, name and bytes of memory of each GPU of its machine."""
    cupy: bool
    missing: list[str]
    """Those of `remote.MODULES` that can't be imported there."""
    revision: str | None
    """Of this package there, see `remote.revision_of`; None where it isn't."""
    loaded: bool
    """Whether something has imported it there."""
    host: str
    place: str
    """Boot and pid namespace: that of this process where it runs beside this one."""
    processor: str | None
    cores: int
    """That it may use."""
    memory: int
    """Bytes that it may use."""
    load: float
    """Cores of its host that were busy within the last minute."""

    @property
    def versions(self) -> tuple[str, dict[str, str]]:
        """Where it is, as `apart` takes it, and the versions of its Python and packages by name."""
        where = f"on {self.host}" if self.role == "workers" else "at the scheduler"
        return where, {"python": self.python, **self.packages}


def versions(found: Sequence[About] = ()) -> dict[str, str]:
    """Versions of what computes: of the workers among these, or here; of several one after another."""
    told = {"python": platform.python_version(), "workbench": __version__, **remote.packages()}
    workers = [each.versions[1] for each in found if each.role == "workers"]
    for name in told:
        if there := sorted({each[name] for each in workers if name in each}):
            told[name] = formats.listed(there)
    return told


def ask(client: Client) -> list[About]:
    """Ask the scheduler and all workers what they run on; the scheduler's answer is the first."""
    question = Travelling(remote.about)
    answers = [("scheduler", client.run_on_scheduler(question))]
    told = client.run(question, on_error="ignore")
    answers += [("workers", about) for about in told.values() if isinstance(about, dict)]
    return [About(role, **told) for role, told in answers]


def missing(found: Sequence[About]) -> dict[str, dict[str, int]] | None:
    """Return the modules that workers can't import, each with the number of such workers by host.

    None where no worker was asked.
    """
    workers = [each for each in found if each.role == "workers"]
    lists = [(each.host, each.missing) for each in workers]
    return _by_module(lists) if workers else None


def _by_module(lists: Sequence[tuple[str, Sequence[str]]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for host, modules in lists:
        for module in modules:
            hosts = found.setdefault(module, {})
            hosts[host] = hosts.get(host, 0) + 1
    return found


def missing_here(n_workers: int) -> dict[str, dict[str, int]]:
    """Return what `missing` does of so many workers that run in this environment."""
    return {module: {platform.node(): n_workers} for module in remote.missing(remote.MODULES)}


def can_import(module: str) -> bool:
    """Return whether a module can be imported where Dask computes now: on all workers of a cluster, or here.

    Workers are asked once, and again when others have come.
    """
    client = cluster_client()
    if client is None or client.asynchronous or _in_task():
        return not remote.missing([module])
    workers = frozenset(workers_of(client))
    known = _importable.setdefault(client, {})
    if (workers, module) not in known:
        answers = client.run(Travelling(remote.missing), (module,), on_error="ignore")
        known[workers, module] = not any(answers.values())
    return known[workers, module]


def machine_elsewhere(found: Sequence[About]) -> dict[str, Any] | None:
    """What is known of the machines that workers run on, as an inventory says it; None where they are beside us."""
    workers = [each for each in found if each.role == "workers" and each.place != remote.place()]
    if not workers:
        return None
    # Containers on one machine have names of their own, and share its cores.
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
    """Such a description in one line: 'node-1, node-2: AMD EPYC 9654, 64 cores, 251 GiB, 4 × NVIDIA H100'."""
    cards = Counter(each["name"] for each in machine.get("gpus", ()))
    parts = (
        machine["cpu"]["model"],
        formats.count(machine["cpu"]["usable"], "core"),
        formats.size(machine["memory"]["total"]),
        *(f"{n} × {name}" for name, n in cards.items()),
    )
    return f"{machine['host']}: {', '.join(parts)}"


def apart(
    there: Sequence[tuple[str, Mapping[str, str]]], own: Mapping[str, str], *, loose: Container[str] = ()
) -> str | None:
    """'dask is 2026.1.0 on node-2, and 2026.7.1 here', of all that has another version than `own`; None where nothing.

    `there` are places, such as 'on node-2', with the versions at each. Of Python the minor version counts, and of what
    is `loose` only that it is there.
    """
    lacking = [(place, [name for name in own if name not in theirs]) for place, theirs in there]
    said = [f"no {formats.listed(names)} {place}" for place, names in lacking if names]
    for name, ours in own.items():
        part, others = minor if name == "python" else str, dict[str, dict[str, None]]()
        for place, theirs in there:
            if name not in loose and part(theirs.get(name, ours)) != part(ours):
                others.setdefault(theirs[name], {})[place] = None
        where = " and ".join(f"{version} {formats.listed([*places])}" for version, places in others.items())
        said += [f"{name} is {where}, and {ours} here"] if where else []
    return "; ".join(dict.fromkeys(said)) or None


def differences(found: Sequence[About]) -> str | None:
    """One sentence on packages that have another version there than here; None where there are none."""
    said = apart([each.versions for each in found], remote.packages())
    return said and f"Versions differ, so that results may fail to travel or differ: {said}."


def without_dasks_table() -> None:
    """Have Dask's clients print no table of versions, from here on in this process: `differences` is one sentence."""
    warnings.filterwarnings("ignore", message=r"\s*Mismatched versions found")


def one_of_each(client: Client) -> list[str]:
    """Address of one worker on each machine."""
    return list({each["host"]: address for address, each in workers_of(client).items()}.values())


def unconnected(client: Client) -> str | None:
    """Return which machine with workers can't reach another one, in a sentence; one worker of each is asked.

    Dask tries again for ever: each worker reaches the scheduler, so that none counts as lost.
    """
    import asyncio

    there = [each for each in one_of_each(client) if not each.startswith("ucx")]
    if len(there) < 2:
        return None

    async def asked() -> dict[str, Any]:
        asking = client.run(Travelling(remote.unreachable), there, _CONNECTING, workers=there, on_error="ignore")
        return await asyncio.wait_for(asking, 2 * _CONNECTING)

    try:
        told = client.sync(asked)
    except (TimeoutError, OSError):
        return None  # Who doesn't answer is told of elsewhere.
    for host, address, reason in (each for found in told.values() if isinstance(found, list) for each in found):
        return (
            f"{host} can't reach the worker at {address} ({reason}), so no block can travel between them. Let the "
            "machines connect to each other (a firewall between them? the right interface?), or take one of them."
        )
    return None


def standstill(client: Client) -> str | None:
    """Return why nothing that this client wants goes on, in a sentence; None where no reason is found."""
    if not one_of_each(client):
        return "The cluster has no workers. This goes on once it has one."
    return unconnected(client)


def check_readable(client: Client, path: str | None) -> None:
    """Raise FailedError where a worker can't read the file or folder that is here under a path; None is no path.

    All are asked: workers of one machine, too, may have disks of their own.
    """
    if path is None or not (os.path.isfile(path) or os.path.isdir(path)):  # noqa: PTH112, PTH113  may be any text
        return
    if (told := unable(client, remote.unreadable, path)) is not None:
        host, reason = told
        raise FailedError(
            f"{host} can't read {path} ({reason}). Its workers read it themselves: have it on a disk that all machines "
            "share, under the same path, or give a URL."
        )


def unable(client: Client, question: Callable[[str], tuple[str, str] | None], path: str) -> tuple[str, str] | None:
    """A machine whose workers can't do with a path what a question of `remote` asks, and why; None where all can."""
    told = client.run(Travelling(question), path, on_error="ignore")
    return next(filter(None, told.values()), None)


def refuse_unwritable(told: tuple[str, str] | None, path: str) -> None:
    """Raise FailedError where a worker was told by `remote.unwritable` that it can't write to a folder."""
    if told is not None:
        host, reason = told
        raise FailedError(
            f"{host} can't write to {path} ({reason}). Its workers write there themselves: have it on a disk that all "
            "workers share, under the same path, or give a URL."
        )


def make_ready(client: Client) -> list[About]:
    """Have functions of ours run on any cluster, and return what its processes said of themselves.

    Where this package isn't installed, or another revision of it that nothing has imported yet, it is sent there, in a
    part of a second, and stays there until scheduler and workers end.

    Raises
    ------
    ConflictError
        They run under another minor version of Python, or have imported another revision of this package. Nothing was
        sent.
    FailedError
        This package isn't there, and can't be sent.
    """
    found, ours = ask(client), revision()
    own = {"python": platform.python_version(), "dask-workbench": f"revision {ours}"}
    there = [each.versions for each in found]
    for each, (_, theirs) in zip(found, there, strict=True):
        # What nothing has imported gives way to what is sent.
        fixed = each.loaded and each.revision
        theirs["dask-workbench"] = f"revision {fixed or ours}"
    if said := apart(there, own):
        raise ConflictError(
            f"Code of the one can't run in the other, so nothing was sent: {said}. Restart scheduler and workers in an "
            "environment like this one, or work in one like theirs."
        )
    if any(each.revision != ours for each in found):
        _send(client, to_scheduler=found[0].revision != ours)
    return found


def _send(client: Client, *, to_scheduler: bool) -> None:
    """Send this package to all workers, and to the scheduler, which may run in a process that has it."""
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
    """Return what `compute` is given as its scheduler: None lets Dask choose.

    To choose, Dask loads distributed, in a third of a second; where nobody has loaded it no client can be.
    """
    threads = (dask.config.get("scheduler", None) or "threads") in ("threads", "threading")
    return dask.threaded.get if threads and "distributed" not in sys.modules else None


def cluster_client() -> Any:
    """The `distributed.Client` that Dask computes with now, or None."""
    client = getattr(scheduler() or dask.base.get_scheduler(), "__self__", None)
    return client if hasattr(client, "scheduler_info") else None


def workers_of(client: Client) -> dict[str, Any]:
    """Return what the scheduler says of each worker, by address.

    `Client.scheduler_info` says that there are none where the client's own question, which it asks every few seconds
    for no workers, is answered in between.
    """
    found: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return found


def everywhere(function: Callable[[], None]) -> None:
    """Call a function in each worker of the cluster that Dask computes with now, or here where there is none."""
    client = cluster_client()
    if client is None:
        function()
    else:
        for answer in client.run(function, on_error="return").values():
            # A worker that ended meanwhile is no reason to.
            if isinstance(answer, Exception) and not isinstance(answer, OSError):
                raise answer


def reach_cluster() -> None:
    """Have functions of ours run on the cluster that Dask computes with now, where it is one: see `make_ready`.

    Each cluster is asked once, before the first graph with functions of ours is made for it.
    """
    client = cluster_client()
    if client is None or client in _reached or client.asynchronous or _in_task():
        return
    # A scheduler may be set to take in no functions; then it is for its owner to install what they need.
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
    """'3.12' of '3.12.1': what bytecode belongs to."""
    return ".".join(python.split(".")[:2])


def _packed(folder: Path) -> str:
    """Write this package as source text into a zip file that is named by its hash; return the path."""
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
