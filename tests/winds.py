"""Winds of a climate that is known, for tests of files and of their modes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

LAT, LON = np.linspace(80, -80, 9), np.arange(0.0, 360, 30)
TIMES = pd.date_range("1980-01", periods=480, freq="MS")


def winds_of(dtype: str = "float64", n_times: int = 120) -> xr.Dataset:
    """Monthly winds of six modes, noise and a seasonal cycle, with land that has no values."""
    rng = np.random.default_rng(0)
    u = rng.normal(scale=0.3, size=(n_times, len(LAT), len(LON))) + 280
    u += 10 * np.cos(2 * np.pi * np.arange(n_times) / 12)[:, None, None]
    for number in range(1, 7):
        pattern = np.outer(np.sin(number * np.deg2rad(LAT) + 1), np.cos(number * np.deg2rad(LON)))
        u += rng.normal(scale=8 / number, size=n_times)[:, None, None] * pattern
    u[:, rng.random((len(LAT), len(LON))) < 0.2] = np.nan
    coords = {"time": TIMES[:n_times], "lat": ("lat", LAT, {"units": "degrees_north"}), "lon": LON}
    winds = xr.DataArray(u.astype(dtype), coords, ("time", "lat", "lon"), attrs={"units": "m s-1"})
    return xr.Dataset({"u": winds, "v": 2 * winds})
