"""Dask clusters under another minor version of Python than ours; run as a program, it prints the interpreter of one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

_ENVIRONMENT = Path(__file__).parents[1] / ".venv-other" / "bin" / "python"
_FOUND_NONE = (
    "There is no environment of another Python: `make test` makes .venv-other where it finds a Python 3.12, 3.13, "
    "3.11 or 3.14, from pyenv or on the PATH."
)
_OTHERS = tuple(f"3.{minor}" for minor in (12, 13, 11, 14) if minor != sys.version_info.minor)


def find() -> str | None:
    """Interpreter of another minor version, from pyenv or the PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for version in _OTHERS:
        of_pyenv = sorted(pyenv.glob(f"{version}.*/bin/python"))
        found = str(of_pyenv[-1]) if of_pyenv else shutil.which(f"python{version}")
        if found is not None:
            return found
    return None


def python_or_skip() -> str:
    """Interpreter with dask, distributed and NumPy and nothing of ours; skips the test where there is none."""
    if not (_ENVIRONMENT.parents[1] / ".installed").exists():
        pytest.skip(_FOUND_NONE)
    return str(_ENVIRONMENT)


@contextlib.contextmanager
def cluster(
    python: str,
    *options: str,
    n_workers: int = 2,
    environment: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
) -> Iterator[str]:
    """Address of the scheduler of a cluster whose processes another interpreter runs, all with these options."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        # Not the path by which these tests find the package.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            "OPENBLAS_NUM_THREADS": "1",
            **(environment or {}),
        }

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            log = running.enter_context(Path(folder, f"{arguments[0]}-{time.monotonic_ns()}.log").open("wb"))
            process = subprocess.Popen(
                [python, "-m", "dask", *arguments, *options, "--scheduler-file", f"{folder}/scheduler.json"],
                cwd=folder,
                env=environ,
                stdout=log,
                stderr=log,
            )
            running.callback(process.wait)
            running.callback(process.terminate)
            return process

        scheduler = start("scheduler", "--host", host, "--port", "0", "--no-dashboard")
        for _ in range(n_workers):
            # With its dashboard a worker imports Bokeh.
            alone = ("--no-nanny", "--no-dashboard", "--nthreads", "1")
            start("worker", *alone, "--host", host, "--local-directory", folder)
        yield _address(Path(folder), scheduler)


def _address(folder: Path, scheduler: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and scheduler.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads((folder / "scheduler.json").read_text())["address"])
        time.sleep(0.05)
    raise AssertionError(f"No scheduler: {[path.read_text()[-2000:] for path in folder.glob('*.log')]}")


if __name__ == "__main__":
    print(find() or sys.exit(_FOUND_NONE))
