"""Small example files, written where the user has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workbench import config
from workbench.errors import BadInputError, ConflictError, quoted

_FUNCTION = '''"""A workload of your own: change it, and run it again."""

import dask.array as da


def spread(n: int = 4000, chunks: int = 1000):
    """Standard deviation of a random square array."""
    x = da.random.default_rng(0).random((n, n), chunks=chunks)
    return x.std()
'''


def _array() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Make 2000 × 60 numbers whose first four singular values stand out."""
    rng = np.random.default_rng(0)
    structure = rng.normal(size=(2000, 4)) * (8, 4, 2, 1) @ rng.normal(size=(4, 60))
    return (structure + rng.normal(size=(2000, 60))).astype("float32")


def write_example(path: str) -> None:
    """Write `example.npy` or `example.py` at this path; a file that is there stays as it is.

    Raises
    ------
    BadInputError
        The name is another one, or its folder doesn't exist.
    ConflictError
        The file exists already.
    """
    place = Path(path)
    if place.name not in ("example.npy", "example.py") or not place.parent.is_dir():
        raise BadInputError(f"path is {quoted(path)}. Give example.npy or example.py in a folder that is there.")
    with config.writing(place):
        try:
            with place.open("xb") as file:
                if place.suffix == ".py":
                    file.write(_FUNCTION.encode())
                else:
                    np.save(file, _array())
        except FileExistsError as err:
            raise ConflictError(f"{path} is there already. Choose it, or give it another name.") from err
