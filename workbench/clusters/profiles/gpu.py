"""NVIDIA GPUs of this machine, with a worker each."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from workbench import formats
from workbench.clusters.choices import GpuChoices
from workbench.clusters.devices import check as check_devices, pick
from workbench.clusters.profiles import Around
from workbench.clusters.profiles.this_machine import (
    STARTED,
    Here,
    arguments,
    check_package,
    common,
    encrypted,
    extra_for,
)
from workbench.clusters.spec import ClusterSpec
from workbench.errors import BadInputError, install, quoted
from workbench.hardware import Inventory, inventory

if TYPE_CHECKING:
    from distributed.deploy.spec import SpecCluster
    from distributed.security import Security


CUDA_EXTRAS = ("cuda12", "cuda13")


class Gpus(Here):
    """A worker for each GPU."""

    name = "gpus"
    title = "All GPUs"
    line = "A worker for each NVIDIA GPU."
    model = GpuChoices

    def unavailable(self, around: Around) -> str | None:
        return _without_gpus(around.inventory, around.version)

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return a spec on the idle GPUs, or on the chosen ones."""
        choices = self.checked(given, self.model)
        fields: dict[str, Any] = {"profile": self.name, "protocol": encrypted(choices.encrypt)}
        return on_devices(choices, around, most=self.most_workers, **fields)

    def check(self, spec: ClusterSpec) -> None:
        super().check(spec)
        check_package(spec, ("dask-cuda",), CUDA_EXTRAS)
        check_devices(spec, inventory())

    async def start(self, spec: ClusterSpec, security: Security | None) -> SpecCluster:
        return await cuda_cluster(spec, security)


class Gpu(Gpus):
    """One GPU with its own worker."""

    name = "gpu"
    title = "One GPU"
    line = "One NVIDIA GPU with a worker of its own."
    most_workers = 1

    def plan(self, given: Mapping[str, Any], around: Around) -> ClusterSpec:
        """Return a spec on the idlest GPU, or on the chosen one."""
        choices = self.checked(given, self.model)
        if choices.devices is not None and "," in choices.devices:
            raise BadInputError(
                f"devices is {quoted(choices.devices)}, and the gpu profile has one GPU. Give one, or choose gpus."
            )
        if (choices.n_workers or 1) > 1:
            raise BadInputError(
                f"n_workers is {choices.n_workers}, and the gpu profile has one GPU and one worker. Choose gpus."
            )
        return super().plan(given, around)


async def cuda_cluster(spec: ClusterSpec, security: Security | None) -> SpecCluster:
    """Start Dask-CUDA's LocalCUDACluster with a scheduler and no worker yet."""
    from dask_cuda import LocalCUDACluster

    if importlib.util.find_spec("cupy") is None:
        # Planned where CuPy was installed; importing it here would end every worker.
        spec = spec.model_copy(update={"cupy": False})
    cluster = LocalCUDACluster(**arguments(spec), security=security, **STARTED)
    # It rejects n_workers=0, and would wait for the workers, which the host wants to count.
    cluster.scale(0)
    started: SpecCluster = await cluster
    return started


def on_devices(
    choices: GpuChoices,
    around: Around,
    why: tuple[str, ...] = (),
    most: int | None = None,
    **fields: Any,
) -> ClusterSpec:
    """Return the spec of a worker on each picked GPU, with these fields, and `why` after the other reasons."""
    inventory = around.inventory
    picked, picked_why = pick(inventory, choices.devices, choices.n_workers, most)
    threads = choices.threads_per_worker or 1
    shared = common(choices, around, len(picked))
    spec = ClusterSpec(
        **{**shared, **fields},
        threads_per_worker=threads,
        devices=tuple(device.uuid for device in picked),
        device_memory_limit=choices.device_memory_limit,
        rmm_pool_size=choices.rmm_pool_size,
        cupy=importlib.util.find_spec("cupy") is not None,
    )
    reasons = (picked_why, _gpu_threads(threads), *shared["why"], _device_memory(choices), *_without_cupy(), *why)
    spec = spec.model_copy(update={"why": reasons})
    check_devices(spec, inventory)
    return spec


def _without_gpus(inventory: Inventory, version: Callable[[str], str | None]) -> str | None:
    if not inventory.gpus:
        cause = inventory.missing.get("gpus", "No GPU was found.").rstrip(".")
        no_driver = cause.startswith("No NVIDIA driver")
        remedy = "install one if there is an NVIDIA GPU, or use cpu" if no_driver else "see what nvidia-smi says"
        return f"{cause}: {remedy}."
    if not inventory.visible_gpus():
        return "CUDA_VISIBLE_DEVICES hides every GPU: unset it, or name some in it."
    if version("dask-cuda") is None:
        return f"Needs dask-cuda: {install(extra_for(CUDA_EXTRAS, inventory))}."
    return None


def _gpu_threads(threads: int) -> str:
    if threads == 1:
        return "One thread for each GPU, which feeds it: more would compete for its memory."
    return f"{threads} threads for each GPU, as chosen: they share its memory, so blocks must be smaller."


def _device_memory(choices: GpuChoices) -> str:
    limit = choices.device_memory_limit
    limit_text = "0.8 of the card" if limit is None else f"{formats.size(limit)}, as chosen"
    pool = ""
    if choices.rmm_pool_size is not None:
        pool = f" RMM takes a pool of {formats.size(choices.rmm_pool_size)} on each GPU at the start, as chosen."
    return f"Blocks move from a GPU to the host's memory beyond {limit_text}.{pool}"


def _without_cupy() -> tuple[str, ...]:
    if importlib.util.find_spec("cupy") is not None:
        return ()
    return ("Warning: CuPy isn't installed, so arrays are NumPy's and nothing is computed on the GPUs.",)
