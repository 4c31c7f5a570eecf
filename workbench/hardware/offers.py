"""The four profiles, always all of them: one that can't be had says why, and what would help."""

from __future__ import annotations

from collections.abc import Callable

from workbench.hardware.sources import installed_version
from workbench.hardware.values import Inventory, Profile

# Holds for every GPU and UCX profile of this release: better said than found out after an installation.
_LATER = "its launcher comes with the next release."


def profiles(inventory: Inventory, *, version: Callable[[str], str | None] = installed_version) -> tuple[Profile, ...]:
    """Profiles cpu, gpu, gpus and ucx, each available here or with the reason why not.

    Parameters
    ----------
    version
        Version of an installed package by its name, None where it is missing.
    """
    return (
        _profile("cpu", "CPU", "The cores of this machine, as threads, processes or a mix.", None),
        _profile("gpu", "One GPU", "One NVIDIA GPU with a worker of its own.", _without_gpus(inventory, version, 1)),
        _profile("gpus", "All GPUs", "A worker for each NVIDIA GPU.", _without_gpus(inventory, version, 2)),
        _profile("ucx", "UCX", _ucx_summary(inventory), _without_ucx(inventory)),
    )


def _ucx_summary(inventory: Inventory) -> str:
    if inventory.gpus:
        return "A worker for each NVIDIA GPU; data move over NVLink, InfiniBand or what else UCX finds."
    return "Workers on the cores of this machine that speak UCX: slower than TCP without GPUs, good for trying."


def _profile(name: str, title: str, summary: str, reason: str | None) -> Profile:
    return Profile.model_validate(
        {"name": name, "title": title, "summary": summary, "available": reason is None, "reason": reason}
    )


def _without_gpus(inventory: Inventory, version: Callable[[str], str | None], needed: int) -> str:
    if not inventory.gpus:
        cause = inventory.missing.get("gpus", "No GPU was found.").rstrip(".")
        return f"{cause}: {_remedy(cause)}."
    if len(inventory.gpus) < needed:
        return f"Needs two GPUs, and one was found: choose gpu for that one; {_LATER}"
    if version("dask-cuda") is None:
        return f"Needs dask-cuda: pip install 'dask-workbench[cuda13]', and {_LATER}"
    found = "1 GPU was found" if len(inventory.gpus) == 1 else f"{len(inventory.gpus)} GPUs were found"
    return f"{found}, but {_LATER}"


def _remedy(cause: str) -> str:
    if cause.startswith("No NVIDIA driver"):
        return "install one if there is an NVIDIA GPU, or use cpu"
    return "pip install nvidia-ml-py" if cause.startswith("nvidia-ml-py") else "see what nvidia-smi says"


def _without_ucx(inventory: Inventory) -> str | None:
    return None if inventory.ucx.installed else "Needs distributed-ucxx: pip install 'dask-workbench[ucx]'."
