"""Wheels for a GPU host without a network, in parts that are each small enough to be sent together with the tree.

    python -m tests.gpu.bundle [--python 3.12] [--into build/gpu-bundle]

The host has a Python with CuPy 14, numba-cuda and CUDA 13, such as come with PyTorch or JAX. `core` is enough for the
tests and the benchmark. `ucx` adds UCX, in a second transfer. On the host: sh core/offline.sh, which is in core.tar.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_BYTES = 64 * 2**20
"""Of one transfer: a part and the tree."""

# Without what the host has (CuPy, numba-cuda and what they bring) and what only Jupyter needs. What is small is here
# even if most hosts have it: offline.sh leaves it out where they do.
BUNDLES = {
    "core": (
        "dask distributed dask-cuda rapids-dask-dependency rmm-cu13 librmm-cu13 rapids-logger nvidia-ml-py click "
        "cloudpickle locket msgpack packaging partd fsspec psutil pyyaml sortedcontainers tblib toolz tornado urllib3 "
        "zict jinja2 markupsafe pydantic pydantic-core annotated-types typing-extensions typing-inspection "
        "platformdirs rich markdown-it-py mdurl pygments cryptography cffi pycparser watchfiles anyio idna sniffio "
        "threadpoolctl pytest pluggy iniconfig pytest-timeout importlib-metadata lazy-importer zipp"
    ),
    "ucx": "distributed-ucxx-cu13 ucxx-cu13 libucxx-cu13 libucx-cu13",
}
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64", "manylinux_2_17_x86_64", "any")


def main() -> None:
    """Collect the parts and print their sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default="3.12", help="of the host (3.12)")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "gpu-bundle")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.into, ignore_errors=True)
    for name, packages in BUNDLES.items():
        folder = arguments.into / name
        folder.mkdir(parents=True)
        download(packages.split(), arguments.python, folder)
        if name == "core":
            add_ourselves(folder)
        tell(pack(folder), tree_bytes())


def download(packages: list[str], python: str, folder: Path) -> None:
    """Fetch wheels of the versions in constraints.txt, without what they need in turn."""
    platforms = [part for platform in _PLATFORMS for part in ("--platform", platform)]
    version = python.replace(".", "")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    kind = ["--python-version", python, "--implementation", "cp", "--only-binary=:all:"]
    abis = ["--abi", f"cp{version}", "--abi", "abi3", "--abi", "none"]
    limits = ["-c", str(ROOT / "constraints.txt"), "--dest", str(folder)]
    subprocess.run([*pip, *kind, *abis, *platforms, *limits, *packages], check=True)


def add_ourselves(folder: Path) -> None:
    """Put our wheel into the folder, without the Lab extension, and the tests with the script that runs them."""
    # Jupyter's build hook would make the Lab extension, which nobody looks at there.
    env = {**os.environ, "HATCH_BUILD_NO_HOOKS": "true"}
    wheel = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)]
    subprocess.run(wheel, check=True, env=env)
    (folder / ".gitignore").unlink(missing_ok=True)
    shutil.copy(ROOT / "tests" / "gpu" / "offline.sh", folder)
    tests = ["git", "archive", "--format=tar.gz", "-o", str(folder / "tests.tar.gz"), "HEAD", "tests", "pyproject.toml"]
    subprocess.run(tests, check=True, cwd=ROOT)


def pack(folder: Path) -> Path:
    """One file of a part's folder."""
    packed = folder.with_suffix(".tar")
    with tarfile.open(packed, "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, arcname=f"{folder.name}/{path.name}")
    return packed


def tree_bytes(root: Path = ROOT) -> int:
    """Bytes of the files that git knows or would take in."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    return sum((root / name).stat().st_size for name in names if name and (root / name).is_file())


def tell(packed: Path, tree: int) -> None:
    """Print the size of a part, and end with exit code 1 where it can't be sent in one transfer with the tree."""
    size = packed.stat().st_size
    print(f"{packed.name}: {size / 2**20:.1f} MiB, {(size + tree) / 2**20:.1f} MiB with the tree")
    if size + tree >= MOST_BYTES:
        sys.exit(
            f"{packed} and the tree have {(size + tree) / 2**20:.1f} MiB, and one transfer takes less than "
            f"{MOST_BYTES // 2**20}. Leave something out, or make a part of it."
        )


if __name__ == "__main__":
    main()
