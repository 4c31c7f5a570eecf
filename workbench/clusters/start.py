"""A cluster for a script or a notebook cell: started, waited for, and stopped at the end of a `with` block."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.clusters import control, records
from workbench.clusters.choices import choosing
from workbench.clusters.connect import connect
from workbench.clusters.launch import launch
from workbench.clusters.reachability import KEYS
from workbench.clusters.records import ClusterRecord
from workbench.clusters.spec import ClusterSpec
from workbench.credentials import by_command
from workbench.errors import BadInputError, quoted
from workbench.hardware import inventory
from workbench.threads import finish

if TYPE_CHECKING:
    from distributed import Client


class Cluster:
    """A started cluster. It outlives this object unless it is used in a `with` statement or stopped."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def record(self) -> ClusterRecord:
        """Current record of the cluster."""
        return records.read(self.name)

    @cached_property
    def client(self) -> Client:
        """Client of the cluster, made on first use."""
        return self.connect()

    def connect(self) -> Client:
        """Return a new client of the cluster."""
        return connect(self.name)

    def scale(self, n: int, *, force: bool = False) -> None:
        """Scale to `n` workers."""
        finish(control.scale(self.name, n, force=force))

    def adapt(self, minimum: int, maximum: int, *, force: bool = False) -> None:
        """Adapt the number of workers to the load, between two bounds."""
        finish(control.adapt(self.name, minimum, maximum, force=force))

    def stop(self) -> None:
        """Close this object's client and stop the cluster; nothing is left of it."""
        client = self.__dict__.pop("client", None)
        if client is not None:
            client.close()
        if self.name in records.names():
            finish(control.stop(self.record))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        own_records = [record for record in records.read_all() if record.name == self.name]
        state = f"{own_records[0].status}, {own_records[0].spec.describe()}" if own_records else "stopped"
        return f"<Cluster {self.name}: {state}>"


@choosing
@by_command()
def start(
    profile: str = "cpu",
    *,
    name: str | None = None,
    force: bool = False,
    agreed: bool = False,
    on_change: Callable[[ClusterRecord], None] | None = None,
    timeout: float | None = None,
    **choices: Any,
) -> Cluster:
    """Start a cluster that matches `profile` and the choices, and wait until it is ready.

    Parameters
    ----------
    profile
        cpu, gpu, gpus, ucx, or another of `workbench.clusters.profiles`.
    **choices
        As in `AllChoices`.
    name
        Name of the cluster; a readable name by default.
    force
        Start it even though it promises more memory than is left.
    agreed
        Accept the plan's warning, such as UCX that listens on all network interfaces.
    on_change
        Called with the record at each stage.
    timeout
        Seconds to wait.

    Examples
    --------
    >>> with workbench.start("cpu", n_workers=2, memory="1GiB") as cluster:
    ...     cluster.client.submit(sum, [1, 2]).result()
    3
    """
    from workbench.clusters.budget import budget
    from workbench.clusters.plan import plan

    hardware = inventory()
    available = budget(hardware, records.read_all())
    spec = plan(profile, hardware, promised=available.promised, held=available.held, **choices)
    return start_spec(spec, name=name, force=force, agreed=agreed, on_change=on_change, timeout=timeout)


def attach(
    address: str | os.PathLike[str] | Client, *, name: str | None = None, **files: str | os.PathLike[str] | None
) -> Cluster:
    """Attach to a scheduler that already runs. It is never stopped from here: `stop()` detaches.

    Parameters
    ----------
    address
        Such as tcp://host:8786, tls://host:8786, the path of a scheduler file that ends in .json, or a `Client` of it.
    name
        Name of the cluster; a readable name by default.
    **files
        For tls://, paths of PEM files: `ca`, and if the scheduler requires them `cert` and `key`.

    Raises
    ------
    BadInputError
        No scheduler answers there within 10 s, or what answers isn't a scheduler: the message says which.

    Examples
    --------
    >>> from distributed import LocalCluster
    >>> somebodys = LocalCluster(n_workers=1)
    >>> there = workbench.attach(somebodys.scheduler_address)
    >>> there.client.submit(sum, [1, 2]).result()
    3
    >>> there.stop()
    >>> somebodys.close()
    """
    from workbench.clusters.profiles.address import spec_of

    if isinstance(address, os.PathLike):
        address = os.fspath(address)
    elif not isinstance(address, str):
        client, address = address, str(getattr(getattr(address, "scheduler", None), "address", ""))
        if not address:
            raise BadInputError(
                f"address is {quoted(client)}. Give a scheduler's address, its file, or a Client that is connected."
            )
        files = {**(_keys_of(client) if address.startswith("tls") else {}), **files}
    return start_spec(spec_of(address, **files), name=name)


def _keys_of(client: Client) -> dict[str, str]:
    """Return the paths of a client's key files. Raises BadInputError if it has the keys in memory only."""
    paths = {ours: getattr(client.security, theirs) for ours, theirs in KEYS.items()}
    for ours, key in paths.items():
        if key and "\n" in key:
            raise BadInputError(f"{ours} of this Client is in memory only. Give the address, and its keys as files.")
    return {ours: path for ours, path in paths.items() if path}


def start_spec(
    spec: ClusterSpec,
    *,
    name: str | None = None,
    force: bool = False,
    agreed: bool = False,
    on_change: Callable[[ClusterRecord], None] | None = None,
    timeout: float | None = None,
) -> Cluster:
    """Start the cluster that `spec` describes, and wait until it is ready; interrupting the wait cancels the start."""
    record = launch(spec, name=name, force=force, agreed=agreed)
    try:
        finish(control.wait(record.name, on_change, timeout))
    except BaseException:
        if any(each.name == record.name and not each.is_over for each in records.read_all()):
            finish(control.stop(record))
        raise
    return Cluster(record.name)


def record_of(cluster: str | ClusterRecord | Cluster | Client) -> ClusterRecord:
    """Return the record of a cluster, given its name, a `Cluster` or a client of it."""
    if isinstance(cluster, ClusterRecord):
        return cluster
    if isinstance(cluster, str | Cluster):
        return records.read(cluster if isinstance(cluster, str) else cluster.name)
    address = getattr(getattr(cluster, "scheduler", None), "address", None)
    by_address = {record.scheduler_address: record for record in records.read_all() if record.scheduler_address}
    if address in by_address:
        return by_address[address]
    description = "a Client of no cluster that is known here" if address else f"{quoted(cluster)}, which is no cluster"
    raise BadInputError(
        f"cluster is {description}. Give the name of one, or what workbench.start or workbench.attach returned."
    )


def client_of(value: Any) -> Any:
    """Return the client of a cluster from `start`, and any other value unchanged."""
    return value.client if isinstance(value, Cluster) else value
