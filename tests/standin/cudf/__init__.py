"""A stand-in for cuDF on machines without a GPU: pandas, whose values are arrays of the stand-in for CuPy."""

from __future__ import annotations

from typing import Any

import cupy
import pandas as pd


class DataFrame(pd.DataFrame):
    """A dataframe on a device that isn't there."""

    @property
    def _constructor(self) -> type[DataFrame]:
        return DataFrame

    @property
    def values(self) -> Any:
        """The numbers, on the device."""
        return cupy.asarray(self.to_numpy())


# Dask, distributed and Dask-CUDA have code for dataframes of a module called cudf, which this is none of.
DataFrame.__module__ = "standin"
cupy.DataFrame = DataFrame


def set_option(name: str, value: Any) -> None:
    """As each worker of Dask-CUDA calls it."""
