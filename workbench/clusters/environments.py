"""Python environments for clusters: this one, and those of the installed Jupyter kernels."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import workbench
from workbench.errors import BadInputError, MissingError
from workbench.formats import duration
from workbench.packages import installed_version
from workbench.remote import revision_of
from workbench.sent_code import differing_versions

PACKAGES = ("dask", "distributed", "dask-workbench", "numpy", "cloudpickle", "msgpack", "cryptography")
_PINNED = ("dask", "distributed")
"""Packages that a package index has in the versions installed here."""
_SAME = (*_PINNED, "dask-workbench")
_TIMEOUT = 10.0
_SOURCE = str(Path(workbench.__file__).parents[1])
"""Folder of the clone, if this package is an editable install."""

# Runs in Python 3.8 and later; reads versions from package metadata instead of importing.
_PROBE = f"""
from __future__ import annotations
import sys
if sys.path and sys.path[0] == "": del sys.path[0]
import hashlib, importlib.util, json
from importlib import metadata
from pathlib import Path
{inspect.getsource(revision_of).partition("@cache")[2]}
found = {{}}
for package in sys.argv[1:]:
    try: found[package] = metadata.version(package)
    except metadata.PackageNotFoundError: pass
there = importlib.util.find_spec("workbench")
if there and "dask-workbench" in found: found["dask-workbench"] += "+" + str(revision_of(there.origin))
found["python"] = ".".join(map(str, sys.version_info[:3]))
print(json.dumps(dict(prefix=sys.prefix, versions=found)))
"""


class Environment(BaseModel, frozen=True):
    """A Python environment; with `problems`, no cluster can run in it."""

    python: str
    """Path of the interpreter."""
    name: str
    """Name of its kernelspec, or 'current'."""
    title: str
    versions: dict[str, str] = {}
    problems: tuple[str, ...] = ()


def own_versions() -> dict[str, str]:
    """Return the versions of this interpreter and of the packages that both ends of a cluster share."""
    installed_versions = {package: installed_version(package) for package in PACKAGES}
    # All revisions before a release have the same version.
    installed_versions["dask-workbench"] = f"{workbench.__version__}+{revision_of(workbench.__file__)}"
    versions = {package: version for package, version in installed_versions.items() if version is not None}
    return {"python": ".".join(map(str, sys.version_info[:3])), **versions}


def environments(kernelspecs: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Environment, ...]:
    """Return the environments to choose from, this interpreter's first, including those with problems.

    `kernelspecs` are by name, as returned by `KernelSpecManager.get_all_specs`. By default they are the installed
    ones; without Jupyter there are none.
    """
    if kernelspecs is None:
        try:
            from jupyter_client.kernelspec import KernelSpecManager
        except ImportError:
            return (_current(),)
        kernelspecs = KernelSpecManager().get_all_specs()
    others = [spec for spec in _python_kernels(kernelspecs) if spec[0] != sys.executable]
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(lambda spec: _environment(*spec), others))
    return (_current(), *_distinct(found))


def check_environment(python: str | os.PathLike[str] | None, *, timeout: float = _TIMEOUT) -> Environment:
    """Return the environment of an interpreter for a cluster; this one if None.

    Raises BadInputError for a path that doesn't exist or isn't a Python, and MissingError if it lacks packages or its
    dask differs; the message says how to fix it.
    """
    if python is None or os.fspath(python) == sys.executable:
        environment = _current()
    else:
        path = _interpreter(os.fspath(python))
        environment = _described(path, "", path, _probe(path, timeout)[1])
    if environment.problems:
        raise MissingError(" ".join(environment.problems))
    return environment


def installed(python: str | os.PathLike[str] | None, packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed packages among `packages`; of this interpreter if `python` is None."""
    if python is None or os.fspath(python) == sys.executable:
        found = {package: installed_version(package) for package in packages}
        return {package: version for package, version in found.items() if version is not None}
    _, versions = _probe(_interpreter(os.fspath(python)), _TIMEOUT, tuple(packages))
    return {package: version for package, version in versions.items() if package != "python"}


def _current() -> Environment:
    versions = own_versions()
    return _described(sys.executable, "current", f"This Python ({versions['python']})", versions)


def _described(python: str, name: str, title: str, versions: dict[str, str]) -> Environment:
    problems = _problems(python, versions)
    return Environment(python=python, name=name, title=title, versions=versions, problems=problems)


def _python_kernels(specs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return (interpreter, name, title) of each Python kernelspec, sorted by name."""
    kernels = []
    for name, entry in sorted(specs.items()):
        spec = entry["spec"]
        if str(spec.get("language", "")).lower() == "python" and spec.get("argv"):
            kernels.append((_named_by(spec["argv"][0]), name, str(spec.get("display_name") or name)))
    return kernels


def _named_by(argument: str) -> str:
    """Return the interpreter that Jupyter starts for the first argument of a kernelspec."""
    # jupyter_client replaces these names with its own interpreter (KernelManager.format_kernel_cmd).
    if argument in ("python", "python3", "python{}.{}".format(*sys.version_info)):
        return sys.executable
    return shutil.which(argument) or argument


def _environment(python: str, name: str, title: str) -> tuple[str, Environment]:
    """Return an environment and its identity, since two paths may lead to the same environment."""
    try:
        prefix, versions = _probe(_interpreter(python), _TIMEOUT)
    except BadInputError as err:
        return python, Environment(python=python, name=name, title=title, problems=(str(err),))
    return _identity(prefix, versions["python"]), _described(python, name, title, versions)


def _distinct(environments: Iterable[tuple[str, Environment]]) -> list[Environment]:
    unique: dict[str, Environment] = {}
    for identity, environment in environments:
        if identity != _identity(sys.prefix, own_versions()["python"]):
            unique.setdefault(identity, environment)
    return list(unique.values())


def _identity(prefix: str, version: str) -> str:
    return f"{os.path.realpath(prefix)} {version}"


def _interpreter(python: str) -> str:
    """Return the path of an interpreter with symbolic links unresolved: they identify a virtual environment."""
    expanded = os.path.expanduser(python)  # noqa: PTH111
    path = shutil.which(expanded)
    if path is not None:
        return os.path.abspath(path)  # noqa: PTH100
    inside = Path(expanded) / "bin" / "python"
    if inside.exists():
        raise BadInputError(f"python is {python!r}, a folder. Give its interpreter: {inside}.")
    cause = "which can't be executed" if Path(expanded).exists() else "which isn't there"
    raise BadInputError(f"python is {python!r}, {cause}. Give the path of a Python interpreter.")


def _probe(python: str, timeout: float, packages: tuple[str, ...] = PACKAGES) -> tuple[str, dict[str, str]]:
    """Return the prefix of an environment, and the versions of its Python and of the installed ones of `packages`."""
    # Send code only to a program that identifies itself as Python: a shell would run it as commands.
    if not _output([python, "-V"], timeout).startswith("Python "):
        raise BadInputError(f"{python} isn't a Python interpreter. Give the path of one, such as {sys.executable}.")
    output = _output([python, "-c", _PROBE, *packages], timeout)
    try:
        answer = json.loads(output.splitlines()[-1])
        return answer["prefix"], answer["versions"]
    except (ValueError, LookupError, TypeError) as err:
        last_line = output.strip().splitlines()[-1:] or ["nothing"]
        raise BadInputError(f"{python} didn't report its versions. It printed: {last_line[0]:.200}") from err


def _output(command: list[str], timeout: float) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired as err:
        raise BadInputError(
            f"{command[0]} didn't answer within {duration(timeout)}. Give another interpreter."
        ) from err
    except OSError as err:
        raise BadInputError(f"{command[0]} can't be run ({err.strerror}). Give another interpreter.") from err
    return done.stdout


def _problems(python: str, theirs: Mapping[str, str]) -> tuple[str, ...]:
    ours = own_versions()
    needed = {package: ours.get(package, "") for package in PACKAGES}
    diff = differing_versions([(f"in {python}", theirs)], needed, loose=set(PACKAGES) - set(_SAME))
    if diff is None:
        return ()
    pins = " ".join(f"{package}=={ours[package]}" for package in _PINNED if package in ours)
    command = f"{shlex.quote(python)} -m pip install {pins}"
    if theirs.get("dask-workbench") != ours["dask-workbench"]:
        # Not by name, since the name isn't on PyPI yet.
        command += f" {shlex.quote(_SOURCE)}" if Path(_SOURCE, "pyproject.toml").exists() else " FOLDER_OF_ITS_CLONE"
    return (f"A cluster needs the same here and there: {diff}. Run: {command}",)
