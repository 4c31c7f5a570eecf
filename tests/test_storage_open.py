"""`workbench.storage.open` on each format, compared with NumPy and xarray."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

from workbench import storage
from workbench.errors import BadInputError

CUBE = np.random.default_rng(0).normal(size=(12, 5, 7))
COORDS = {"time": pd.date_range("2000-01-01", periods=12), "lat": np.linspace(-60, 60, 5), "lon": np.arange(7.0)}


def _packed() -> xr.Dataset:
    values = CUBE.copy()
    values[3, 2, 1] = np.nan
    found = xr.Dataset(
        {"t": (("time", "lat", "lon"), values, {"units": "K"}), "mean": ("time", CUBE.mean((1, 2)))}, COORDS
    )
    found["t"].encoding = {"dtype": "int16", "scale_factor": 1e-3, "add_offset": 0.5, "_FillValue": -32768}
    return found


@pytest.mark.parametrize("name", ["t.nc", "t3.nc", "t.zarr", "t2.zarr"])
def test_a_dataset_is_what_xarray_reads_with_its_coordinates(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith(".nc"):
        _packed().to_netcdf(path, engine="scipy" if name == "t3.nc" else "h5netcdf")
    else:
        _packed().to_zarr(path, zarr_format=2 if name == "t2.zarr" else 3, consolidated=name == "t2.zarr")
    found = storage.open(path)
    how = {"t.nc": {"engine": "h5netcdf"}, "t3.nc": {"engine": "scipy"}}.get(name, {"engine": "zarr"})
    expected = xr.open_dataset(path, **how, **({"consolidated": False} if name == "t.zarr" else {}))
    assert isinstance(found["t"].data, da.Array)
    assert found["t"].attrs == {"units": "K"}
    xr.testing.assert_allclose(found.drop_attrs(), expected.drop_attrs(), rtol=1e-6)
    one = {"time": "2000-01-05", "lat": 0, "lon": 2}
    assert float(found["t"].sel(one)) == pytest.approx(CUBE[4, 2, 2], abs=6e-4)


def test_files_of_a_series_are_one_dataset(tmp_path: Path) -> None:
    whole = _packed()[["t"]]
    for number in range(3):
        whole.isel(time=slice(4 * number, 4 * number + 4)).to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf")
    found = storage.open(tmp_path)
    assert found.sizes == {"time": 12, "lat": 5, "lon": 7}
    np.testing.assert_allclose(found["t"], whole["t"], atol=6e-4)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.h5", "x.zarr", "x.zip"])
def test_arrays_without_names_of_dimensions_are_numpys(tmp_path: Path, name: str) -> None:
    import h5py

    path, called = tmp_path / name, "array" if name in ("x.npy", "x.zarr", "x.zip") else "x"
    if name == "x.npy":
        np.save(path, CUBE)
    elif name == "x.npz":
        np.savez(path, x=CUBE, y=CUBE[0])
    elif name == "x.h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=CUBE, chunks=(5, 5, 7))
            file["deep/y"] = CUBE[0]
            file["text"] = "none"
    elif name == "x.zarr":
        zarr.create_array(path, data=CUBE, chunks=(5, 5, 7))
    else:
        with zarr.storage.ZipStore(path, mode="w") as store:
            zarr.create_array(store, data=CUBE, chunks=(5, 5, 7))
    found = storage.open(path)
    np.testing.assert_array_equal(found[called], CUBE)
    assert found[called].dims == (f"{called}_0", f"{called}_1", f"{called}_2")
    assert set(found) == {called} | {"x.npz": {"y"}, "x.h5": {"deep/y"}}.get(name, set())


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_columns_of_numbers_are_arrays_along_the_rows(tmp_path: Path, name: str) -> None:
    table = pd.DataFrame({"a": np.arange(50), "b": np.linspace(0, 1, 50), "words": ["x"] * 50})
    table.to_csv(tmp_path / name, index=False) if name == "t.csv" else table.to_parquet(tmp_path / name)
    found = storage.open(tmp_path / name)
    assert set(found) == {"a", "b"}
    np.testing.assert_array_equal(found["a"], table["a"])
    np.testing.assert_allclose(found["b"], table["b"])
    assert found["a"].dims == ("row",)


def test_a_matrix_along_one_dimension_twice_has_names_of_its_own(tmp_path: Path) -> None:
    import h5netcdf

    with h5netcdf.File(tmp_path / "c.nc", "w") as file:
        file.dimensions = {"x": 3}
        file.create_variable("c", ("x", "x"), data=np.eye(3))
    found = storage.open(tmp_path / "c.nc")
    assert found["c"].dims == ("c_0", "c_1")
    np.testing.assert_array_equal(found["c"], np.eye(3))


def test_blocks_are_of_whole_stored_chunks(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=np.ones((90, 40)), chunks=(15, 10))
    import dask

    with dask.config.set({"array.chunk-size": "10kiB"}):
        chunks = storage.open(tmp_path / "x.zarr")["array"].chunks
    assert chunks is not None
    assert all(length % stored == 0 for lengths, stored in zip(chunks, (15, 10), strict=True) for length in lengths)
    assert max(map(len, chunks)) > 1


def test_what_is_no_data_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("words")
    with pytest.raises(BadInputError, match=r"x\.txt is in no format that can be read here"):
        storage.open(tmp_path / "x.txt")
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    with pytest.raises(BadInputError, match=r"There is no array in .*words\.npy"):
        storage.open(tmp_path / "words.npy")
    with pytest.raises(BadInputError, match="anon of open is for s3://"):
        storage.open(tmp_path / "x.txt", anon=True)
    half = zarr.create_array(tmp_path / "half.zarr", shape=(100, 10), chunks=(10, 10), dtype="f8")
    half[:10] = 1
    with pytest.raises(BadInputError, match="1 of 10 chunks exist"):
        storage.open(tmp_path / "half.zarr")
    assert float(storage.open(tmp_path / "half.zarr", missing_chunks="fill")["array"].sum()) == 100
