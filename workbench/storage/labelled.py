"""An array with the names of its dimensions: what workloads answer with, and what is saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dask


@dataclass(frozen=True)
class Labelled:
    """One array of an answer, NumPy's or Dask's, with the names of its dimensions (as xarray.DataArray has them)."""

    data: Any
    dims: tuple[str, ...]
    coords: Mapping[str, Any] = field(default_factory=dict)
    """Values along dimensions, as xarray has them: by the dimension's name (samples, years, latitudes), or of another
    name as a pair of the dimension and the values: `{"population": ("sample", names)}`."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """What else belongs to it, as JSON: units, a certificate."""

    @property
    def is_lazy(self) -> bool:
        """Whether Dask has its data."""
        return dask.is_dask_collection(self.data)
