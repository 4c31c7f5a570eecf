"""The command that lists problems of an installation, and commands that solve them; safe to paste into an issue."""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from workbench import __version__, config, formats
from workbench.cli.answers import answer
from workbench.cli.parsing import add_command
from workbench.errors import PACKAGES, WorkbenchError, install
from workbench.packages import installed_version

if TYPE_CHECKING:
    from workbench.hardware import Inventory

_CORE = ("dask", "distributed", "numpy", "xarray", "zarr", "pyarrow", "bokeh")
_LAB = tuple(re.split(r"[^\w-]", each)[0] for each in PACKAGES["lab"])
_OTHERS = ("numba", "h5netcdf", "cupy-cuda12x", "cupy-cuda13x", "dask-cuda", "distributed-ucxx-cu13")
_OPEN_FILES = 4096
"""Number of open files that a scheduler with some hundred workers needs."""
_LITTLE_ROOM = 2**30
_LONG_PATH = 60
"""Length of a temporary folder's path beyond which sockets of some programs exceed the 107 characters of Linux."""
_SHARED = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "fuse.sshfs", "afs", "ceph", "9p")

State = Literal["good", "note", "wrong"]


class Finding(NamedTuple):
    """One line: the subject, the finding, and the remedy."""

    about: str
    state: State
    message: str
    remedy: str = ""


def find() -> Iterator[Finding]:
    """Yield the findings, area by area. A check that fails is itself a finding."""
    for check in _CHECKS:
        try:
            yield from check()
        except (OSError, WorkbenchError) as err:
            yield Finding(check.__name__.strip("_"), "wrong", f"could not be looked at: {err}")


def _python() -> Iterator[Finding]:
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield Finding("Python", "good", f"{platform.python_version()} on {system}; dask-workbench {__version__}")


def _packages() -> Iterator[Finding]:
    versions = {name: installed_version(name) for name in (*_CORE, *_LAB, *_OTHERS)}
    there = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    yield Finding("Packages", "good", there)
    if versions["dask"] != versions["distributed"]:
        message = f"dask is {versions['dask']} and distributed {versions['distributed']}: they must be the same"
        yield Finding("Packages", "wrong", message, f"pip install distributed=={versions['dask']}")
    missing = [name for name in _LAB if versions[name] is None]
    if missing:
        message = f"{', '.join(missing)} not installed: no sidebar, no figures in notebooks"
        yield Finding("Packages", "note", message, install("lab"))
    if versions["numba"] is None:
        yield Finding("Packages", "note", "numba not installed: some workloads are slower", install("fast"))


def _lab_extension() -> Iterator[Finding]:
    if installed_version("jupyterlab") is None:
        return
    folder = Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "dask-workbench"
    server = Path(sys.prefix) / "etc" / "jupyter" / "jupyter_server_config.d" / "dask_workbench.json"
    missing = [each.name for each in (folder / "package.json", server) if not each.exists()]
    if missing:
        message = f"the sidebar isn't installed in this environment ({', '.join(missing)} missing)"
        yield Finding(
            "JupyterLab", "wrong", message, "install dask-workbench with pip into the environment of JupyterLab"
        )
    else:
        yield Finding("JupyterLab", "good", "the sidebar and its server extension are installed")


def _folders() -> Iterator[Finding]:
    data = config.data_folder()
    yield Finding("Home folder", "good", f"on {_file_system(Path.home())}")
    for about, folder in (("Data folder", data), ("Temporary folder", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(folder).free
        kind = _file_system(folder)
        message = f"{_short(folder)} on {kind}, {formats.size(free)} free"
        if free < _LITTLE_ROOM:
            yield Finding(about, "wrong", f"{message}: too little", "delete runs in the sidebar, or set another folder")
        elif kind in _SHARED and folder == data:
            remedy = "export DASK_WORKBENCH__DATA_FOLDER=/a/folder/on/a/local/disk"
            yield Finding(
                about, "note", f"{message}: a network file system, slower and without locks in places", remedy
            )
        elif folder != data and len(str(folder)) > _LONG_PATH:
            yield Finding(about, "note", f"{message}: its path is long, and sockets may not fit", "export TMPDIR=/tmp")
        else:
            yield Finding(about, "good", message)


def _network() -> Iterator[Finding]:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=2).close()
        yield Finding("Network", "good", "this machine can connect to itself (127.0.0.1)")
    except OSError as err:
        yield Finding("Network", "wrong", f"no connection to 127.0.0.1: {err}", "check the firewall of this machine")
    proxies = [
        name
        for name in ("http_proxy", "https_proxy", "all_proxy")
        if os.environ.get(name, os.environ.get(name.upper()))
    ]
    without = os.environ.get("no_proxy", os.environ.get("NO_PROXY", ""))
    if proxies and not {"localhost", "127.0.0.1", "*"} & set(without.replace(" ", "").split(",")):
        message = f"{', '.join(proxies)} set, and no_proxy names neither localhost nor 127.0.0.1"
        yield Finding("Network", "note", message, 'export no_proxy="localhost,127.0.0.1"')


def _limits() -> Iterator[Finding]:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _OPEN_FILES:
        yield Finding(
            "Limits", "note", f"{files} open files: too few for hundreds of workers", f"ulimit -n {_OPEN_FILES}"
        )
    else:
        yield Finding("Limits", "good", "open files: enough")


def _hardware() -> Iterator[Finding]:
    from workbench.clusters import cuda
    from workbench.hardware import inventory

    there = inventory()
    cores = f"{there.cpu.usable} of {there.cpu.threads} hardware threads usable"
    limit = there.memory.limit
    memory = f"{formats.size(limit)} of memory" + ("" if limit == there.memory.total else ", by a limit")
    yield Finding("Hardware", "good", f"{cores}, {memory}")
    yield _gpus(there, cuda.problem())
    if there.ucx.installed:
        state: State = "good" if there.ucx.reason is None else "wrong"
        yield Finding("UCX", state, there.ucx.reason or f"distributed-ucxx {there.ucx.version}")


def _gpus(there: Inventory, problem: str | None) -> Finding:
    if not there.gpus:
        return Finding("GPUs", "note", problem or "none")
    names = ", ".join(gpu.name or "a GPU" for gpu in there.gpus)
    what = f"{names}; driver {there.cuda.driver_version}, CUDA {there.cuda.version}"
    if problem is None:
        return Finding("GPUs", "good", what)
    extra = "cuda12" if (there.cuda.version or "").startswith("12") else "cuda13"
    return Finding("GPUs", "wrong", f"{what}: {problem}", install(extra))


def _clusters() -> Iterator[Finding]:
    from workbench.clusters import records

    there = records.read_all()
    for record in there:
        if record.status in ("lost", "failed"):
            remedy = f"workbench logs {record.name}, then workbench down {record.name}"
            yield Finding("Clusters", "wrong", f"{record.name} ({record.spec.profile}) is {record.status}", remedy)
    yield Finding("Clusters", "good", formats.count(len(there), "cluster"))


_CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _packages,
    _lab_extension,
    _folders,
    _network,
    _limits,
    _hardware,
    _clusters,
)


def _short(path: Path) -> str:
    """Return a path without the user's name, which is part of most home folders."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _file_system(folder: Path) -> str:
    """Return the type of the file system of a folder, such as ext4."""
    import psutil

    mounts = [each for each in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(each.mountpoint)]
    return max(mounts, key=lambda each: len(each.mountpoint)).fstype if mounts else "an unknown file system"


def _doctor(arguments: argparse.Namespace) -> int:
    findings = list(find())
    marks = {"good": "ok   ", "note": "note ", "wrong": "WRONG"}
    lines = []
    for each in findings:
        lines.append(f"{marks[each.state]}  {each.about}: {each.message}")
        if each.remedy:
            lines.append(f"       Try: {each.remedy}")
    answer(arguments, [each._asdict() for each in findings], "\n".join(lines))
    return 1 if any(each.state == "wrong" for each in findings) else 0


def add_doctor(commands: Any) -> None:
    """Add the command that lists problems."""
    add_command(commands, "doctor", _doctor, "list what is wrong here and what to do; exit code 1 where something is")
