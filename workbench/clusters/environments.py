"""Python environments that a cluster can run in: this one, and those of the installed Jupyter kernels."""

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
from workbench.travelling import apart

PACKAGES = ("dask", "distributed", "dask-workbench", "numpy", "cloudpickle", "msgpack", "cryptography")
_PINNED = ("dask", "distributed")
"""Packages that an index has in the versions that are here."""
_SAME = (*_PINNED, "dask-workbench")
_TIMEOUT = 10.0
_SOURCE = str(Path(workbench.__file__).parents[1])
"""Folder of the clone, where this package is installed from one that can be edited."""

# Runs in any Python from 3.8 on, and asks the installed packages for their versions instead of importing them.
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
    """One Python environment; `problems` keep a cluster from running there."""

    python: str
    """Path of the interpreter."""
    name: str
    """Name of its kernelspec, or 'current'."""
    title: str
    versions: dict[str, str] = {}
    problems: tuple[str, ...] = ()


def own_versions() -> dict[str, str]:
    """Versions of this interpreter and of the packages that both ends of a cluster share."""
    found = {package: installed_version(package) for package in PACKAGES}
    # All revisions before a release have one version.
    found["dask-workbench"] = f"{workbench.__version__}+{revision_of(workbench.__file__)}"
    versions = {package: version for package, version in found.items() if version is not None}
    return {"python": ".".join(map(str, sys.version_info[:3])), **versions}


def environments(kernelspecs: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Environment, ...]:
    """Environments to choose from, this interpreter's first; those with problems are listed with them.

    `kernelspecs` are by name, as `KernelSpecManager.get_all_specs` gives them; the installed ones where None, of which
    there are none without Jupyter.
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
    """Return the environment of an interpreter that a cluster can run in; this one where None.

    Raises BadInputError for a path that isn't there or isn't a Python, and MissingError where it lacks what is needed,
    or its dask differs; the sentence says how to mend it.
    """
    if python is None or os.fspath(python) == sys.executable:
        found = _current()
    else:
        path = _interpreter(os.fspath(python))
        found = _described(path, "", path, _probe(path, timeout)[1])
    if found.problems:
        raise MissingError(" ".join(found.problems))
    return found


def installed(python: str | os.PathLike[str] | None, packages: Iterable[str]) -> dict[str, str]:
    """Versions of those of the packages that an interpreter has, this one where None. Raises BadInputError as above."""
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
    """(interpreter, name, title) of each kernelspec in Python, sorted by name."""
    kernels = []
    for name, entry in sorted(specs.items()):
        spec = entry["spec"]
        if str(spec.get("language", "")).lower() == "python" and spec.get("argv"):
            kernels.append((_named_by(spec["argv"][0]), name, str(spec.get("display_name") or name)))
    return kernels


def _named_by(argument: str) -> str:
    """Interpreter that Jupyter starts for the first argument of a kernelspec."""
    # jupyter_client puts its own interpreter in place of these names (KernelManager.format_kernel_cmd).
    if argument in ("python", "python3", "python{}.{}".format(*sys.version_info)):
        return sys.executable
    return shutil.which(argument) or argument


def _environment(python: str, name: str, title: str) -> tuple[str, Environment]:
    """Return an environment, and what tells it from others: two paths may lead to the same one."""
    try:
        prefix, versions = _probe(_interpreter(python), _TIMEOUT)
    except BadInputError as err:
        return python, Environment(python=python, name=name, title=title, problems=(str(err),))
    return _identity(prefix, versions["python"]), _described(python, name, title, versions)


def _distinct(found: Iterable[tuple[str, Environment]]) -> list[Environment]:
    kept: dict[str, Environment] = {}
    for identity, environment in found:
        if identity != _identity(sys.prefix, own_versions()["python"]):
            kept.setdefault(identity, environment)
    return list(kept.values())


def _identity(prefix: str, version: str) -> str:
    return f"{os.path.realpath(prefix)} {version}"


def _interpreter(python: str) -> str:
    """Path of an interpreter, its symbolic links unresolved: a virtual environment is known by them."""
    given = os.path.expanduser(python)  # noqa: PTH111
    path = shutil.which(given)
    if path is not None:
        return os.path.abspath(path)  # noqa: PTH100
    inside = Path(given) / "bin" / "python"
    if inside.exists():
        raise BadInputError(f"python is {python!r}, a folder. Give its interpreter: {inside}.")
    cause = "which can't be executed" if Path(given).exists() else "which isn't there"
    raise BadInputError(f"python is {python!r}, {cause}. Give the path of a Python interpreter.")


def _probe(python: str, timeout: float, packages: tuple[str, ...] = PACKAGES) -> tuple[str, dict[str, str]]:
    """Prefix of an environment, and versions of its Python and of those of these packages that it has."""
    # Only a program that calls itself Python is given code to run: a shell would take it for commands.
    if not _output([python, "-V"], timeout).startswith("Python "):
        raise BadInputError(f"{python} isn't a Python interpreter. Give the path of one, such as {sys.executable}.")
    output = _output([python, "-c", _PROBE, *packages], timeout)
    try:
        answer = json.loads(output.splitlines()[-1])
        return answer["prefix"], answer["versions"]
    except (ValueError, LookupError, TypeError) as err:
        shown = output.strip().splitlines()[-1:] or ["nothing"]
        raise BadInputError(f"{python} didn't tell its versions but said: {shown[0]:.200}") from err


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
    said = apart([(f"in {python}", theirs)], needed, loose=set(PACKAGES) - set(_SAME))
    if said is None:
        return ()
    pins = " ".join(f"{package}=={ours[package]}" for package in _PINNED if package in ours)
    command = f"{shlex.quote(python)} -m pip install {pins}"
    if theirs.get("dask-workbench") != ours["dask-workbench"]:
        # Not by its name, which is nobody's on PyPI yet.
        command += f" {shlex.quote(_SOURCE)}" if Path(_SOURCE, "pyproject.toml").exists() else " FOLDER_OF_ITS_CLONE"
    return (f"A cluster needs the same here and there: {said}. Run: {command}",)
