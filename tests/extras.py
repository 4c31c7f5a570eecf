"""An extra alone in an empty environment, asked for what a CuPy block needs to be spilled and to travel.

    python -m tests.extras [cuda13] [cuda12] [--light]

All of an extra is 1.2 GB to fetch and 2.4 GB on the disk. `--light` leaves CUDA's own libraries out, which nothing
needs that only imports: a fifth of that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workbench.errors import PACKAGES

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"

QUESTIONS = """
import cupy
import numba.cuda
import rmm
import rmm.allocators.cupy
from distributed.protocol.cuda import cuda_serialize
from distributed.protocol.serialize import dask_deserialize, dask_serialize

for dispatch in (dask_serialize, dask_deserialize, cuda_serialize):
    print(dispatch.dispatch(cupy.ndarray).__name__)
"""
ANSWERS = ["dask_serialize_cupy_ndarray", "dask_deserialize_cupy_ndarray", "cuda_serialize_cupy_ndarray"]


class NoIndexError(Exception):
    """No package index could be asked."""


def resolved(extra: str) -> list[str]:
    """Return the packages of an extra, each as `name==version`. Raises ValueError if they conflict."""
    # The versions in constraints.txt are those of CUDA 13.
    limits = ["-c", str(CONSTRAINTS)] if extra == "cuda13" else []
    command = [*_UV, "pip", "compile", "--quiet", "--python", sys.executable, "--no-header", "--no-annotate", "-"]
    done = subprocess.run(
        [*command, *limits], input="\n".join(PACKAGES[extra]), env=_ENV, capture_output=True, text=True
    )
    if not done.returncode:
        return done.stdout.split("\n")[:-1]
    if "No solution found" in done.stderr:
        raise ValueError(done.stderr)
    raise NoIndexError(done.stderr.strip().splitlines()[-1])


def answers(packages: list[str], folder: Path) -> list[str]:
    """Return the answers to the questions in a new environment with only these packages."""
    python = folder / "bin" / "python"
    subprocess.run([*_UV, "venv", "--quiet", "--python", sys.executable, str(folder)], env=_ENV, check=True)
    install = [*_UV, "pip", "install", "--quiet", "--no-deps", "--python", str(python), *packages]
    subprocess.run(install, env=_ENV, check=True)
    # -P: the folder it is run in offers a package called tests, and on a developer's machine maybe more.
    done = subprocess.run([str(python), "-P", "-c", QUESTIONS], env=_ENV, capture_output=True, text=True)
    return done.stdout.split() if not done.returncode else [done.stderr.strip()]


def light(packages: list[str]) -> list[str]:
    """Return `packages` without CUDA's own libraries."""
    return [name for name in packages if not name.startswith("nvidia-") or name.startswith("nvidia-ml-py")]


_UV = [sys.executable, "-m", "uv"]
_ENV = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")} | {
    "UV_PYTHON_DOWNLOADS": "never"
}


def main() -> None:
    """Ask in an environment for each extra, and end with exit code 1 where an answer is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("extras", nargs="*", default=["cuda13"], metavar="EXTRA", help="cuda13 (default), cuda12")
    parser.add_argument("--light", action="store_true", help="without CUDA's own libraries")
    arguments = parser.parse_args()
    for extra in arguments.extras:
        began = time.monotonic()
        packages = resolved(extra)
        with tempfile.TemporaryDirectory() as folder:
            found = answers(light(packages) if arguments.light else packages, Path(folder))
        if found != ANSWERS:
            sys.exit("\n".join([f"{extra}: a CuPy block can neither be spilled nor travel.", *found]))
        print(f"{extra}: {', '.join(found)}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
