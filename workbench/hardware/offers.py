"""The four profiles, always all of them: one that can't be had says why, and what would help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from workbench.errors import install
from workbench.hardware.sources import installed_version
from workbench.hardware.values import Inventory, Profile


def profiles(inventory: Inventory, *, version: Callable[[str], str | None] = installed_version) -> tuple[Profile, ...]:
    """Profiles cpu, gpu, gpus and ucx, each available here or with the reason why not.

    Parameters
    ----------
    version
        Version of an installed package by its name, None where it is missing.
    """
    lacking = _without_gpus(inventory, version)
    return (
        _profile("cpu", "CPU", "The cores of this machine, as threads, processes or a mix.", None),
        _profile("gpu", "One GPU", "One NVIDIA GPU with a worker of its own.", lacking),
        _profile("gpus", "All GPUs", "A worker for each NVIDIA GPU.", lacking),
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


def _without_gpus(inventory: Inventory, version: Callable[[str], str | None]) -> str | None:
    if not inventory.gpus:
        cause = inventory.missing.get("gpus", "No GPU was found.").rstrip(".")
        return f"{cause}: {_remedy(cause)}."
    if not inventory.visible_gpus():
        return "CUDA_VISIBLE_DEVICES hides every GPU: unset it, or name some in it."
    if version("dask-cuda") is None:
        return f"Needs dask-cuda: {install(extra_for('cuda', inventory))}."
    return None


def extra_for(kind: Literal["cuda", "ucx"], inventory: Inventory) -> str:
    """Return the extra that fits the driver: one older than CUDA 13 can't run what is built for that."""
    major = (inventory.cuda.version or "").partition(".")[0]
    old = major.isdecimal() and int(major) < 13
    if kind == "ucx":
        return "ucx12" if old else "ucx"
    return "cuda12" if old else "cuda13"


def _remedy(cause: str) -> str:
    if cause.startswith("No NVIDIA driver"):
        return "install one if there is an NVIDIA GPU, or use cpu"
    return "pip install nvidia-ml-py" if cause.startswith("nvidia-ml-py") else "see what nvidia-smi says"


def _without_ucx(inventory: Inventory) -> str | None:
    if inventory.ucx.installed:
        return None
    return f"Needs distributed-ucxx: {install(extra_for('ucx', inventory))}."
