"""Check that every extra can be installed: `make check-resolution` asks uv and pip, for each supported Python.

Nothing is installed. uv is asked for the newest versions and for the lowest that are allowed, pip for the newest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
PYTHONS = ("3.11", "3.12", "3.13")
_APART = ("cu", "ucx", "docs", "test")
"""Extras that exclude each other or need CUDA, and those that are for us alone."""
_ENV = os.environ | {"UV_PYTHON_DOWNLOADS": "never"}


def requirements(extra: str) -> list[str]:
    """Return the requirements of the package with an extra; of the package alone for ''."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else ())]


def extras() -> list[str]:
    """Return the names of the extras, with '' for none."""
    return ["", *tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]]


def by_uv(extra: str, python: str, resolution: str) -> str | None:
    """Return why uv finds no versions, or takes one that is not released; None where all is well."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "-"]
    command += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28", "--resolution", resolution]
    text = "\n".join(requirements(extra))
    done = subprocess.run(command, input=text, env=_ENV, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    return next((f"takes {line}" for line in done.stdout.splitlines() if line.startswith("numba==0.63.0b")), None)


def lowest(python: str) -> list[str]:
    """Return the lowest versions allowed of what we use ourselves, one a line; what those use in turn may be new."""
    asked = "\n".join(each for extra in extras() if not extra.startswith(_APART) for each in requirements(extra))
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "-"]
    command += ["--python-version", python, "--resolution", "lowest-direct"]
    done = subprocess.run(command, input=asked, env=_ENV, stdout=subprocess.PIPE, text=True, check=True)
    names = {_name(each) for each in asked.splitlines()}
    return [line for line in done.stdout.splitlines() if _name(line) in names]


def _name(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0].replace("_", "-").lower()


def by_pip(extra: str, python: str) -> str | None:
    """Return why pip finds no versions; None where it does."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--disable-pip-version-check"]
        command += ["--ignore-installed", "--target", folder, "--python-version", python, "--only-binary=:all:"]
        command += [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)] + [
            "--platform=manylinux2014_x86_64"
        ]
        done = subprocess.run([*command, *requirements(extra)], env=_ENV, capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else None


def problems(names: list[str], pythons: list[str], *, pip: bool) -> Iterator[str]:
    """Yield a line for each combination that fails."""
    for extra in names:
        for python in pythons:
            found = {f"uv, {which}": by_uv(extra, python, which) for which in ("highest", "lowest-direct")}
            found |= {"pip": by_pip(extra, python)} if pip else {}
            print(f"{extra or 'no extra'}, Python {python}: {'fails' if any(found.values()) else 'good'}", flush=True)
            yield from (f"{extra or 'no extra'}, Python {python}, {how}: {why}" for how, why in found.items() if why)


def main() -> None:
    """Ask for all extras or those named; the exit code is 1 where one can't be installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("extras", nargs="*", help="all by default")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="all by default")
    parser.add_argument("--no-pip", action="store_true", help="ask uv only, which is quick")
    parser.add_argument("--lowest", action="store_true", help="print the lowest versions for this Python, and end")
    chosen = parser.parse_args()
    if chosen.lowest:
        print(*lowest(f"3.{sys.version_info.minor}"), sep="\n")
        return
    failed = list(problems(chosen.extras or extras(), chosen.python or list(PYTHONS), pip=not chosen.no_pip))
    print(*failed, sep="\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
