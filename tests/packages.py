"""Check of a release: `make check-packages` builds sdist and wheel, and installs, uses and removes them."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BUILT = (
    "labextensions/dask-workbench/static/remoteEntry.",
    "workbench/figures/scripts/",
    "workbench/views/page.",
    "workbench/help/",
)
"""Built files: the sidebar, scripts of figures, the page of notebooks; and the pages of documentation."""
_ELSEWHERE = "workbench/server/dask_workbench.json"
"""A wheel has it below etc/jupyter alone."""
_LEFT = (".config/dask/workbench.yaml", ".local/share/dask-workbench")
"""Files left in a home: settings, as Dask keeps them for all its packages, and the data folder."""
_RUN = ["run", "array_sum", "--on", "cpu", "-p", "shape=1000,1000", "-p", "chunks=500"]


def main() -> None:
    """Check all; an exception says what is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, help="where sdist and wheel are left; nowhere by default")
    into = parser.parse_args().into
    with tempfile.TemporaryDirectory(prefix="packages-") as name:
        folder = Path(name)
        with step("sdist and wheel are built, each from files as git knows them"):
            sdist = build(checkout(folder / "a"), folder / "sdist", "--sdist")
            wheel = build(checkout(folder / "b"), folder / "wheel", "--wheel")
        with step("a wheel is built from the sdist"):
            second = build(unpack(sdist, folder / "c"), folder / "second", "--wheel")
        with step("all have the same files, and the same sidebar byte by byte"):
            compare(sdist, wheel, second)
        with step("twine and check-wheel-contents find nothing"):
            run("uv", "tool", "run", "twine", "check", "--strict", str(sdist), str(wheel))
            run("uv", "tool", "run", "check-wheel-contents", str(wheel))
        with step("in an empty environment the wheel runs the main job from another folder"):
            environment = install(folder / "empty", str(wheel))
            use(environment, folder / "home")
        with step("after pip uninstall nothing of it is left"):
            uninstall(environment, folder / "home")
        with step("beside Notebook 7 its extensions are found"):
            beside_notebook(install(folder / "lab", f"{wheel}[lab]", "notebook>=7"), folder / "home")
        if into is not None:
            into.mkdir(parents=True, exist_ok=True)
            for path in (sdist, wheel):
                shutil.copy(path, into)


@contextmanager
def step(about: str) -> Iterator[None]:
    """Print what is checked, and how long that took."""
    start = time.monotonic()
    yield
    print(f"{time.monotonic() - start:5.0f} s  {about}", flush=True)


def run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Return what a command prints. Raises SystemExit with it where it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def checkout(folder: Path) -> Path:
    """Copy the files that git knows or would add, and nothing that was built."""
    for name in run("git", "ls-files", "-co", "--exclude-standard").splitlines():
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def build(source: Path, into: Path, what: str) -> Path:
    """Build as a release does."""
    run("uv", "build", "--quiet", what, "--out-dir", str(into), str(source))
    (built,) = into.glob("dask_workbench-*")
    return built


def unpack(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.iterdir())


def contents(path: Path) -> dict[str, bytes]:
    """Return name and content of each file, without the folder that names the version."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(path) as archive:
        files = ((each.name.partition("/")[2], archive.extractfile(each)) for each in archive.getmembers())
        return {name: file.read() for name, file in files if file is not None}


def compare(sdist: Path, wheel: Path, second: Path) -> None:
    """Exit where the wheels differ, or lack or change something of ours or of what node made."""
    first, again, source = contents(wheel), contents(second), contents(sdist)
    differing = sorted(name for name in first | again if first.get(name) != again.get(name))
    if differing:
        sys.exit(f"The wheel and that of the sdist differ: {differing}")
    tracked = [name for name in run("git", "ls-files", "workbench").splitlines() if (ROOT / name).exists()]
    tracked.remove(_ELSEWHERE)
    lacking = sorted(name for name in tracked if first.get(name) != (ROOT / name).read_bytes() != source.get(name))
    if lacking:
        sys.exit(f"Wheel or sdist lacks, or has otherwise: {lacking}")
    lacking = [each for each in _BUILT if not any(each in name for name in first)]
    if lacking:
        sys.exit(f"The wheel lacks {lacking}")


def install(folder: Path, *packages: str) -> Path:
    """Return the folder of programs of a new environment with these packages, in versions that CI tests."""
    run("uv", "venv", "--quiet", "--seed", "--python", sys.executable, str(folder))
    python = folder / "bin" / "python"
    run("uv", "pip", "install", "--quiet", "--python", str(python), "-c", "constraints.txt", *packages)
    return python.parent


def variables(programs: Path, home: Path) -> dict[str, str]:
    """Return the environment of somebody with this home, and no settings."""
    ours = ("DASK_", "JUPYTER", "PYTHON", "XDG_", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"}


def use(programs: Path, home: Path) -> None:
    """Run the main job from a folder where nothing of ours is, and end what it started."""
    (home / "elsewhere").mkdir(parents=True)
    for words in (_RUN, ["down", "--all"]):
        print(run(str(programs / "workbench"), *words, cwd=home / "elsewhere", env=variables(programs, home)))


def uninstall(programs: Path, home: Path) -> None:
    """Exit where uninstalling leaves a file of ours, apart from settings and data in the home."""
    run(str(programs / "python"), "-m", "pip", "uninstall", "--quiet", "--yes", "dask-workbench", cwd=home)
    left = [str(path) for path in programs.parent.rglob("*workbench*")]
    of_home = [path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()]
    left += [each for each in of_home if not each.startswith(_LEFT) and "workbench" in each]
    if left:
        sys.exit(f"pip uninstall left {left}")


def beside_notebook(programs: Path, home: Path) -> None:
    """Exit where JupyterLab or the server doesn't find its part."""
    for words in (("labextension", "list"), ("server", "extension", "list")):
        said = run(str(programs / "jupyter"), *words, cwd=home, env=variables(programs, home))
        ours = [line for line in said.splitlines() if "workbench" in line.lower()]
        good = [line for line in ours if "OK" in line]
        print(*ours, sep="\n")
        if not good:
            sys.exit(f"jupyter {' '.join(words)} says:\n{said}")


if __name__ == "__main__":
    main()
