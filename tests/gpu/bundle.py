"""Wheels for a GPU host without a network: what the experiments need and the host lacks.

    python -m tests.gpu.bundle [--python 3.12] [--into build/gpu-bundle] [--ours] [--ucx]

host-packages.txt lists what the host has. The dependencies of ROOTS are read from the packages installed here, so that
the bundle follows pyproject.toml and constraints.txt. The host receives the bundle together with the working tree, in
one transfer of at most MOST_BYTES, and tests/gpu/first-minutes.sh installs it there.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
HOST_PACKAGES = Path(__file__).with_name("host-packages.txt")
MOST_BYTES = 64 * 2**20
"""Size limit of one transfer: the wheels and the tree."""

ROOTS = (
    *("cryptography", "cupy-cuda13x", "dask", "dask-cuda", "distributed", "numba-cuda", "numpy", "nvidia-ml-py"),
    *("platformdirs", "psutil", "pyarrow", "pydantic", "pytest", "pytest-timeout", "rich", "rmm-cu13"),
    *("threadpoolctl", "watchfiles", "zarr"),
)
"""Modules that the experiments and the tests import."""
LEFT_OUT = {"bokeh", "xyzservices"}
"""Dependencies for dashboards, which nobody opens there."""

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "any")


def host_packages() -> set[str]:
    """Return the names of the packages that the host has."""
    lines = HOST_PACKAGES.read_text(encoding="utf-8").splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def on_host(python: str = "3.12") -> dict[str, str]:
    """Return what markers of requirements are evaluated with for the host."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.3",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "extra": "",
    }


def needed(python: str = "3.12") -> set[str]:
    """Return the packages among ROOTS and their dependencies that the host lacks."""
    environment = on_host(python)
    there, found, left = host_packages() | LEFT_OUT, set[str](), [canonicalize_name(each) for each in ROOTS]
    while left:
        name = left.pop()
        if name in there or name in found:
            continue
        found.add(name)
        for text in importlib.metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(environment):
                left.append(canonicalize_name(requirement.name))
    return found


def download(packages: list[str], python: str, folder: Path) -> None:
    """Fetch wheels of the versions in constraints.txt, without their dependencies."""
    platforms = [part for platform in _PLATFORMS for part in ("--platform", platform)]
    version = python.replace(".", "")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    kind = ["--python-version", python, "--implementation", "cp", "--only-binary=:all:"]
    abis = ["--abi", f"cp{version}", "--abi", "abi3", "--abi", "none"]
    limits = ["-c", str(ROOT / "constraints.txt"), "--dest", str(folder)]
    subprocess.run([*pip, *kind, *abis, *platforms, *limits, *packages], check=True)


def add_ours(folder: Path) -> None:
    """Build our wheel into `folder`, without the Lab extension, which nobody opens there."""
    env = {**os.environ, "HATCH_BUILD_NO_HOOKS": "true"}
    wheel = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)]
    subprocess.run(wheel, check=True, env=env)
    (folder / ".gitignore").unlink(missing_ok=True)


def tree_bytes(root: Path = ROOT) -> int:
    """Return the size of the files that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    return sum((root / name).stat().st_size for name in names if name and (root / name).is_file())


def check(folder: Path, tree: int) -> str:
    """Return the sizes of a bundle as a message. Raises SystemExit where one transfer can't take it with the tree."""
    wheels = sorted(folder.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels)
    message = f"{folder}: {len(wheels)} wheels, {size / 2**20:.1f} MiB, {(size + tree) / 2**20:.1f} MiB with the tree"
    if size + tree >= MOST_BYTES:
        sys.exit(f"{message}. One transfer takes less than {MOST_BYTES // 2**20} MiB: leave something out.")
    return message


def main() -> None:
    """Collect the wheels and print their size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default="3.12", help="version of the host (3.12)")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "gpu-bundle")
    parser.add_argument("--ours", action="store_true", help="only our own wheel, for a rehearsal")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.into, ignore_errors=True)
    arguments.into.mkdir(parents=True)
    if not arguments.ours:
        download(sorted(needed(python=arguments.python)), arguments.python, arguments.into)
    add_ours(arguments.into)
    print(check(arguments.into, tree_bytes()))


if __name__ == "__main__":
    main()
