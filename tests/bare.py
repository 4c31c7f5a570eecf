"""Environments with Dask, distributed and NumPy, what these require, and nothing else but what is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

HIDING = """
import sys
from pathlib import Path

sys.path[:] = [path for path in sys.path if path.endswith(".zip") or not Path(path, "workbench").exists()]

class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

LACKING = "pydantic platformdirs cryptography bokeh pyarrow rich zarr h5py numba llvmlite threadpoolctl".split()
sys.meta_path.insert(0, Bare())
"""
"""Code of a sitecustomize.py that hides packages which are in the same environment."""

_STRICT = """
import sys

sys.path[:] = [path for path in sys.path if "site-packages" not in path and path != SOURCE]
"""


def environment(folder: Path, *also: str) -> dict[str, str]:
    """Return variables with which a Python like ours finds only these packages; the folder is filled with links."""
    source = str(Path(__file__).parents[1])
    (folder / "sitecustomize.py").write_text(f"SOURCE = {source!r}\n{_STRICT}")
    for name in _required("dask", "distributed", "numpy", *also):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(found.locate_file(top))).resolve())
    return {"PYTHONPATH": str(folder)}


def _required(*names: str) -> set[str]:
    """Names of these distributions and of all that they require here without any extra."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _requirements(name)
    return found


def _requirements(name: str) -> Iterator[str]:
    for line in distribution(name).requires or ():
        required = re.match(r"[A-Za-z0-9._-]+", line)
        if required is None or "extra" in line:
            continue
        try:
            yield distribution(required[0]).metadata["Name"]
        except PackageNotFoundError:  # of another system or Python
            continue
