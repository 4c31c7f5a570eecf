"""An array with the names of its dimensions: what workloads answer with, and what is saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dask
import numpy as np


@dataclass(frozen=True)
class Labelled:
    """One array of an answer, NumPy's or Dask's, with the names of its dimensions (as xarray.DataArray has them)."""

    data: Any
    dims: tuple[str, ...]
    coords: Mapping[str, Any] = field(default_factory=dict)
    """Values along dimensions, as xarray has them: by the dimension's name (samples, years, latitudes), or of another
    name as a pair of the dimension, or several, and the values: `{"population": ("sample", names)}`."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What else belongs to it, as JSON: units, a certificate."""

    @property
    def placed(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """Dimensions and values of each coordinate, however it was given."""
        pairs = {name: given if isinstance(given, tuple) else (name, given) for name, given in self.coords.items()}
        return {name: ((of,) if isinstance(of, str) else tuple(of), values) for name, (of, values) in pairs.items()}

    @property
    def is_lazy(self) -> bool:
        """Whether Dask has its data."""
        return dask.is_dask_collection(self.data)


def equal(one: Any, other: Any) -> bool:
    """Whether arrays hold the same; grids on a sphere have places without a latitude, which is NaN in both."""
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind in "fc")
