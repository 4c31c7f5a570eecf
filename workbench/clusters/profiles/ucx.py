"""Workers that use UCX: one for each GPU if Dask-CUDA is installed, else on the cores."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import dask
from pydantic import BeforeValidator, Field, WithJsonSchema

from workbench.clusters.choices import ClusterChoices, GpuChoices, Interface, allowed_values, blank_is_none
from workbench.clusters.devices import check as check_devices
from workbench.clusters.profiles import Around
from workbench.clusters.profiles.cpu import local_cluster, on_cores
from workbench.clusters.profiles.gpu import CUDA_EXTRAS, cuda_cluster, on_devices
from workbench.clusters.profiles.this_machine import Here, check_package, extra_for
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, MissingError, install
from workbench.hardware import Inventory, inventory
from workbench.hardware.reading import UCX_PACKAGES
from workbench.packages import installed_version

if TYPE_CHECKING:
    from distributed.deploy.spec import SpecCluster
    from distributed.security import Security

UCX_MEASURED = (
    "UCX is slower than TCP between workers without GPUs: Dask's connections over UCX handle errors, which rules out "
    "its shared memory, so all goes over the loopback interface. Measured elsewhere (autumn 2026, another machine, two "
    "workers, not here): (x + x.T).sum() at 8000 × 8000 took 2.53 s against 1.02 s, at 0.44 of TCP's bandwidth. "
    "Measure it here: workbench compare transpose_sum --preset post --scale 0.02"
)
"""From experiments of autumn 2026 with distributed 2026.7.1 and distributed-ucxx 0.52.0."""

_EXTRAS = ("ucx12", "ucx")

UCX_OPEN = (
    "Warning: no encryption and no password over UCX, which listens on all network interfaces of this machine (ucxx "
    "takes no address to listen at): start it only where the network is trusted, or behind a firewall."
)


_Transports = Annotated[
    Annotated[str, Field(pattern=r"^\^?\\?\w+(,\\?\w+)*$")] | None,
    BeforeValidator(blank_is_none),
    WithJsonSchema({"type": "string", "examples": ["tcp,cuda_copy,cuda_ipc", "all"]}),
    allowed_values(
        "names of UCX transports with commas between them, such as 'tcp,cuda_copy,cuda_ipc' (see: ucx_info -d)",
    ),
]


class UcxChoices(ClusterChoices):
    """Choices for a cluster that uses UCX."""

    ucx_tls: _Transports = Field(
        None,
        title="UCX transports",
        description="Transports that UCX may use, such as tcp,cuda_copy. Left out: as UCX_TLS says, or UCX chooses.",
    )
    interface: Interface = Field(
        None,
        title="Interface",
        description="Network interface or port of a card that UCX uses, such as ib0. "
        "Left out: as UCX_NET_DEVICES says, or lo, or with GPUs what UCX chooses.",
    )


class UcxGpuChoices(GpuChoices, UcxChoices):
    """Choices for a cluster with GPUs that uses UCX."""


class Ucx(Here):
    """Workers that use UCX."""

    name = "ucx"
    title = "UCX"
    group = "more"
    model = UcxChoices
    divides_cores = True
    protocol = "ucx"
    options = ("ucx_tls",)

    def summary(self, inventory: Inventory) -> str:
        if inventory.gpus:
            return "A worker for each NVIDIA GPU; data move over NVLink, InfiniBand or what else UCX finds."
        return "Workers on the cores of this machine that speak UCX: slower than TCP without GPUs, good for trying."

    def unavailable(self, around: Around) -> str | None:
        if around.inventory.ucx.installed:
            return None
        return f"Needs distributed-ucxx: {install(extra_for(_EXTRAS, around.inventory))}."

    def choices(self, inventory: Inventory, given: Mapping[str, Any] = {}) -> type[ClusterChoices]:
        return UcxGpuChoices if has_devices(inventory) else UcxChoices

    def usual_lines(self, inventory: Inventory) -> tuple[str, ...]:
        """Return two workers over TCP, TLS and UCX each."""
        plain = "gpus" if has_devices(inventory) else "cpu"
        return tuple(f"{each} --workers 2" for each in (f"{plain} --no-encrypt", plain, self.name))

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return a spec on GPUs if there are any, else on cores."""
        inventory = around.inventory
        choices = self.checked(given, UcxGpuChoices if has_devices(inventory, around.version) else UcxChoices)
        if choices.encrypt:
            raise BadInputError(
                "encrypt is True, and there is no TLS over UCX. Leave it out, or choose another profile than ucx."
            )
        # The environment may set what isn't chosen.
        tls = choices.ucx_tls or os.environ.get("UCX_TLS")
        interface = choices.interface or os.environ.get("UCX_NET_DEVICES")
        if not isinstance(choices, UcxGpuChoices):
            interface = interface or "lo"
        options = {name: value for name, value in (("ucx_tls", tls), ("interface", interface)) if value}
        fields: dict[str, Any] = {"profile": self.name, "protocol": "ucx", "options": options}
        if isinstance(choices, UcxGpuChoices):
            return on_devices(choices, around, (_summary(tls, interface), UCX_OPEN), **fields)
        return on_cores(choices, around, (_summary(tls, interface), UCX_MEASURED, UCX_OPEN), **fields)

    def check(self, spec: ClusterSpec) -> None:
        super().check(spec)
        if spec.devices:
            check_package(spec, ("dask-cuda",), CUDA_EXTRAS)
        check_package(spec, UCX_PACKAGES, _EXTRAS)
        if spec.devices:
            check_devices(spec, inventory())

    def consent(self, spec: ClusterSpec) -> str | None:
        """Return the warning that everyone who reaches this machine can use the cluster."""
        return UCX_OPEN

    def environment(self, spec: ClusterSpec) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the variables of UCX, which workers inherit."""
        # ucxx sets a variable that its own UCX then warns about.
        defaults = {"UCX_WARN_UNUSED_ENV_VARS": "n"}
        if not spec.devices:
            defaults |= {"DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT": "False", "UCX_NET_DEVICES": "lo"}
        return defaults, _variables(spec)

    def connecting(self, spec: ClusterSpec, name: str) -> None:
        """Prepare UCX, which initializes once in a process, at the first connection."""
        if importlib.util.find_spec("distributed_ucxx") is None:
            raise MissingError(
                f"Cluster {name} speaks UCX, and {sys.executable} lacks distributed-ucxx: "
                f"{install('ucx')}, or work in the cluster's environment."
            )
        # Blocks on a GPU arrive on one.
        dask.config.set({"distributed-ucxx.create-cuda-context": bool(spec.devices)})
        os.environ.update(_variables(spec))
        # ucxx sets a variable that its own UCX then warns about.
        os.environ.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")

    async def start(self, spec: ClusterSpec, security: Security | None) -> SpecCluster:
        cluster = await (cuda_cluster if spec.devices else local_cluster)(spec, security)
        cluster.new_spec = {**cluster.new_spec, "cls": _tcp_nanny_class()}
        # UCX belongs to one event loop of a process. Processes that stop or watch a cluster, such as the Jupyter
        # server, need not load it: they use this address.
        await cluster.scheduler.listen("tcp://127.0.0.1:0")
        return cluster


def has_devices(inventory: Inventory, version: Callable[[str], str | None] = installed_version) -> bool:
    """Return whether each worker has a GPU: without Dask-CUDA, workers use UCX on the cores alone."""
    return bool(inventory.visible_gpus()) and version("dask-cuda") is not None


def _tcp_nanny_class() -> Any:
    """Return a nanny that listens over TCP, on this machine alone, to a worker over UCX.

    UCX 1.21 crashes the whole process, scheduler included, if a listener is closed during a connection to it (in
    ucp_cm_server_conn_request_cb), as from a worker to its nanny while both end.
    """
    from distributed import Nanny

    class TcpNanny(Nanny):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._protocol, self._start_host = "tcp", "127.0.0.1"

    return TcpNanny


def _variables(spec: ClusterSpec) -> dict[str, str]:
    """Return the environment variables that set the choices for UCX."""
    names = {"ucx_tls": "UCX_TLS", "interface": "UCX_NET_DEVICES"}
    return {names[choice]: value for choice, value in spec.options.items()}


def _summary(tls: str | None, interface: str | None) -> str:
    transports = f"UCX_TLS={tls}" if tls else "no UCX_TLS, so that UCX chooses its transports"
    return f"UCX is given {transports}, and {f'UCX_NET_DEVICES={interface}' if interface else 'no interface'}."
