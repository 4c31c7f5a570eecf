"""From a cluster's name to a Dask client."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import dask

from workbench.clusters import cuda, records
from workbench.clusters import security as keys
from workbench.clusters.records import ClusterRecord
from workbench.errors import ConflictError, FailedError, MissingError

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

_PATIENCE = 10.0


def connect(name: str, *, asynchronous: bool = False, client_name: str | None = None) -> Client:
    """Dask client of the cluster called `name`; with `asynchronous=True` it is still to be awaited.

    In a notebook the client is named after the kernel, so that the sidebar can tell which notebook is on which cluster.

    Raises
    ------
    NotFoundError
        There is no such cluster; the sentence lists those that exist.
    ConflictError
        It is still starting, or being stopped.
    FailedError
        It failed, was lost, or does not answer.
    MissingError
        It speaks UCX, and distributed-ucxx isn't installed here.
    """
    record = records.read(name)
    _check_ready(record)
    _compare_versions(record)
    if record.spec.protocol == "ucx":
        _prepare_ucx(record)
    if record.spec.devices and not asynchronous:
        _prepare_backend()
    from distributed import Client

    try:
        return Client(
            record.scheduler_address,
            security=security(record),
            name=client_name or _kernel(),
            asynchronous=asynchronous,
            timeout=_PATIENCE,
        )
    except OSError as err:
        raise FailedError(
            f"Cluster {name} does not answer at {record.scheduler_address} ({err}). Stop it: workbench down {name}"
        ) from err


def security(record: ClusterRecord) -> Security | None:
    """Keys with which to talk to the cluster, None when it isn't encrypted."""
    return keys.load(record)


def _prepare_ucx(record: ClusterRecord) -> None:
    if importlib.util.find_spec("distributed_ucxx") is None:
        raise MissingError(
            f"Cluster {record.name} speaks UCX, and {sys.executable} lacks distributed-ucxx: "
            "pip install 'dask-workbench[ucx]', or work in the cluster's environment."
        )
    # UCX initialises once in a process, at the first connection; blocks on a GPU arrive on one.
    dask.config.set({"distributed-ucxx.create-cuda-context": bool(record.spec.devices)})
    # ucxx sets a variable that its own UCX then complains of.
    os.environ.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")


def _prepare_backend() -> None:
    """Let `array.backend = "cupy"` do without a GPU in this process where there is none."""
    if cuda.problem() is None:
        return
    from workbench.linalg import backend

    backend.register()
    if importlib.util.find_spec("cupy") is None:
        # It would tell of every block that its type can't be looked up here, where nobody asks for it.
        logging.getLogger("distributed.protocol.pickle").setLevel(logging.WARNING)


def _check_ready(record: ClusterRecord) -> None:
    if record.status == "starting":
        raise ConflictError(
            f"Cluster {record.name} is still starting ({record.stage}, {record.n_workers} of "
            f"{record.n_workers_expected} workers). Try again in a moment."
        )
    if record.status == "stopping":
        raise ConflictError(f"Cluster {record.name} is being stopped.")
    if record.status == "failed":
        raise FailedError(f"Cluster {record.name} failed to start. {record.message or ''}".strip())
    if record.status == "lost":
        raise FailedError(f"Cluster {record.name} was lost. {record.message or ''}".strip())


def _compare_versions(record: ClusterRecord) -> None:
    theirs = record.versions.get("dask")
    if theirs is not None and theirs != dask.__version__:
        warnings.warn(
            f"Cluster {record.name} runs dask {theirs}, this Python has dask {dask.__version__}. Results may "
            "fail to travel between them. Work in the cluster's environment, or start the cluster with "
            f"python={sys.executable!r}.",
            stacklevel=3,
        )


def _kernel() -> str | None:
    """'kernel-<id>' in a Jupyter kernel, None elsewhere."""
    if "ipykernel.kernelapp" not in sys.modules:
        return None
    from ipykernel.kernelapp import IPKernelApp

    if not IPKernelApp.initialized():
        return None
    # Jupyter names the file kernel-<id>.json.
    stem = Path(IPKernelApp.instance().connection_file).stem
    return stem if stem.startswith("kernel-") else f"kernel-{stem}"
