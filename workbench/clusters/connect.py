"""Dask clients of clusters, by the cluster's name."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import platform
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import dask

from workbench import remote
from workbench.clusters import cuda, records, security
from workbench.clusters.profiles import of_cluster
from workbench.clusters.reachability import check_answers
from workbench.clusters.records import ClusterRecord
from workbench.errors import ConflictError, FailedError, NotFoundError
from workbench.sent_code import Travelling, differing_versions, without_dasks_table
from workbench.threads import finish, load

if TYPE_CHECKING:
    from distributed import Client


def connect(name: str, *, asynchronous: bool = False, client_name: str | None = None, timeout: float = 10.0) -> Client:
    """Return a Dask client of the cluster called `name`; with `asynchronous=True`, await it.

    Workers on this machine import modules from this process's working folder, if this process does so too.

    The scheduler has `timeout` seconds to answer; it is silent while it takes in a large graph. In a notebook the
    client is named after the kernel, so that the sidebar can show which notebook is connected to which cluster.

    Raises
    ------
    NotFoundError
        There is no such cluster; the message lists those that exist.
    ConflictError
        It is still starting, or being stopped.
    FailedError
        It failed, was lost, or does not answer.
    MissingError
        A package that its protocol needs isn't installed here.
    """
    record = records.read(name)
    if record.status != "ready":
        raise (FailedError if record.is_over else ConflictError)(f"Cluster {record.status_message}")
    if client_name is None:
        # Our own connections report differences to the user in another way.
        _compare_versions(record)
    of_cluster(record.spec.profile).connecting(record.spec, record.name)
    if record.spec.devices and not asynchronous:
        _prepare_backend()
    load("distributed")
    from distributed import Client

    keys = security.load(record)
    try:
        if not asynchronous and record.spec.protocol == "tcp":
            # A client waits forever for a server that accepts the connection and is silent; with TLS it has a time-out.
            finish(check_answers(record.scheduler_address or "", keys, timeout))
        with warnings.catch_warnings():
            without_dasks_table()
            # The dashboard is at a socket; Dask would show a link that leads nowhere.
            hidden = (record.dashboard_address or "unix:").startswith("unix:")
            kind = type("Client", (Client,), {"dashboard_link": None}) if hidden else Client
            client = kind(
                record.scheduler_address,
                security=keys,
                name=client_name or kernel(),
                asynchronous=asynchronous,
                timeout=timeout,
            )
        if client_name is None and not asynchronous:
            if not record.spec.elsewhere:
                _bring_folder(client)
            _report_end(name, client)
        return client
    except OSError as err:
        raise FailedError(
            f"Cluster {name} does not answer at {record.scheduler_address} ({str(err) or 'it says nothing'}). "
            f"{'Stop' if 'stop' in record.can else 'Detach from'} it: workbench down {name}"
        ) from err


def _report_end(name: str, client: Client) -> None:
    """Let the next cell of a notebook report that the cluster has ended: Dask would compute locally in silence."""
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython

    if (shell := get_ipython()) is None:
        return

    def report(*_: object) -> None:
        if client.status == "running":
            return
        try:
            is_over = records.read(name).is_over
        except NotFoundError:
            is_over = True
        if is_over:
            shell.events.unregister("pre_run_cell", report)
            print(
                f"Cluster {name} has ended. Until you connect to another one, Dask computes in this kernel.",
                file=sys.stderr,
            )

    shell.events.register("pre_run_cell", report)


def _bring_folder(client: Client) -> None:
    """Let workers import modules from the working folder, if this process does."""
    with contextlib.suppress(FileNotFoundError):  # the folder was removed
        folder = str(Path.cwd())
        if not {"", folder}.isdisjoint(sys.path):
            # The scheduler, too: it unpickles graphs. A worker that replaces another one gets the folder as well.
            client.run_on_scheduler(Travelling(remote.look_in), folder)
            with contextlib.suppress(OSError):
                client.register_worker_callbacks(Travelling(remote.looking_in, (folder,)))


def _prepare_backend() -> None:
    """Let `array.backend = "cupy"` work in this process if it has no GPU."""
    if cuda.problem() is None:
        return
    from workbench.linalg import backend

    backend.register()
    if importlib.util.find_spec("cupy") is None:
        # It would warn for every block that its type can't be looked up here, though nothing needs it.
        logging.getLogger("distributed.protocol.pickle").setLevel(logging.WARNING)


def _compare_versions(record: ClusterRecord) -> None:
    ours = {"dask": dask.__version__, "python": platform.python_version()}
    shared = {name: version for name, version in ours.items() if record.versions.get(name)}
    if diff := differing_versions([(f"on {record.name}", record.versions)], shared):
        other = "" if record.spec.elsewhere else f", or start the cluster with python={sys.executable!r}"
        warnings.warn(
            f"Results may fail to travel, and functions that you send from here may end its workers: {diff}. Work in "
            f"the cluster's environment{other}.",
            stacklevel=3,
        )


def kernel() -> str | None:
    """Return 'kernel-<id>' in a Jupyter kernel, None elsewhere."""
    if "ipykernel.kernelapp" not in sys.modules:
        return None
    from ipykernel.kernelapp import IPKernelApp

    if not IPKernelApp.initialized():
        return None
    # Jupyter names the file kernel-<id>.json.
    stem = Path(IPKernelApp.instance().connection_file).stem
    return stem if stem.startswith("kernel-") else f"kernel-{stem}"
