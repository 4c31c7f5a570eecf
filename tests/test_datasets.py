"""NetCDF and Zarr files as other programs write them, read by the names of dimensions."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from workbench.storage import cf, datasets
from workbench.storage.datasets import Picked, pick
from workbench.storage.finding import find_array
from workbench.storage.targets import target
from workbench.storage.writing import write
from workbench.workloads import template
from workbench.workloads.contents import look
from workbench.workloads.values import BadParameterError

REDUCE, EOFS, SVD = map(template, ("reduce_file", "eofs", "svd_of_file"))
FIELD = np.random.default_rng(0).normal(size=(40, 6, 5)).astype("float32")
TIMES = pd.date_range("1980-01", periods=40, freq="MS")
COORDS = {"time": TIMES, "lat": ("lat", np.linspace(60, 10, 6), {"units": "degrees_north"}), "lon": np.arange(5.0)}
DEFAULT = np.float32(9.969209968386869e36)


def _written(folder: Path, engine: str, values: Any = FIELD, coords: Any = COORDS, **attrs: Any) -> str:
    """Write the variable q, with these attributes unchanged, and no other _FillValue."""
    data = xr.Dataset({"q": (("time", "lat", "lon"), values, attrs)}, coords)
    encoding = {} if "_FillValue" in attrs else {"q": {"_FillValue": None}}
    data.to_netcdf(folder / "q.nc", engine=engine, encoding=encoding)  # type: ignore[call-overload]
    return str(folder / "q.nc")


def _reduced(**given: Any) -> dict[str, Any]:
    checked = REDUCE.validate(given)
    results = REDUCE.build(checked)
    results |= {name: results[name].compute() for name in ("value", "head", "gaps")}
    return REDUCE.summarise(results)


def _with_netcdf_fill(folder: Path, engine: str) -> str:
    values = FIELD.copy()
    values[3, 2, 1:3] = DEFAULT
    path = _written(folder, engine, values)
    if engine == "h5netcdf":  # netCDF4-python says so in HDF5's own header, and in no attribute.
        with h5py.File(path, "r+") as file:
            scales, attributes = [dim[0].name for dim in file["q"].dims], dict(file["q"].attrs)
            del file["q"]
            q = file.create_dataset("q", data=values, fillvalue=DEFAULT)
            for axis, name in enumerate(scales):
                q.dims[axis].attach_scale(file[name])
            q.attrs.update({key: value for key, value in attributes.items() if not key.startswith(("DIM", "REF"))})
    return path


def _with_missing_value(folder: Path, engine: str) -> str:
    values = FIELD.copy()
    values[3, 2, 1:3] = 1e20
    return _written(folder, engine, values, missing_value=np.float64(1e20))


def _with_valid_range(folder: Path, engine: str) -> str:
    values = FIELD.copy()
    values[3, 2, 1:3] = 200, -300
    return _written(folder, engine, values, valid_min=np.float32(-100), valid_max=np.float32(100))


def _with_two_fills(folder: Path, engine: str) -> str:
    values = FIELD.copy()
    values[3, 2, 1:3] = -888, -999
    return _written(folder, engine, values, missing_value=np.float32(-888), _FillValue=np.float32(-999))


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
@pytest.mark.parametrize("write", [_with_netcdf_fill, _with_missing_value, _with_valid_range, _with_two_fills])
def test_what_is_missing_is_the_same_whether_dimensions_are_named_or_not(
    tmp_path: Path, engine: str, write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, engine)
    expected = FIELD.astype("float64")
    expected[3, 2, 1:3] = np.nan

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for over in ("0, 1, 2", "time, lat, lon"):
            summary = _reduced(path=path, array="q", over=over, missing="leave out")
            np.testing.assert_allclose(summary["value"], np.nanmean(expected), rtol=1e-6)
            assert summary["missing"] == 2
        with pytest.raises(ValueError, match="2 in 2 of the 30 places"):
            EOFS.build(EOFS.validate({"path": path, "k": 2}))
        filled = EOFS.validate({"path": path, "k": 2, "missing": "mean", "weights": "none", "tol": 1e-7})
        s = EOFS.build(filled)["s"].compute()
    assert not [each for each in heard if issubclass(each.category, xr.SerializationWarning)]
    anomalies = np.nan_to_num(expected - np.nanmean(expected, axis=0)).reshape(40, -1)
    np.testing.assert_allclose(s, np.linalg.svd(anomalies, compute_uv=False)[:2], rtol=1e-6)
    assert any("missing" in note for note in filled.notes)


def test_packed_numbers_and_unsigned_ones_are_the_same_whether_dimensions_are_named_or_not(tmp_path: Path) -> None:
    stored = np.round(FIELD * 100).astype("int16")
    stored[1, 1, 1] = -32767
    attrs = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-32767)}
    with h5py.File(_written(tmp_path, "h5netcdf", stored), "r+") as file:
        file["q"].attrs.update(attrs)
    path = str(tmp_path / "q.nc")
    expected = np.where(stored == -32767, np.nan, stored * 0.5 + 10)
    for over in ("0", "time"):
        summary = _reduced(path=path, array="q", over=over, missing="leave out")
        np.testing.assert_allclose(summary["first"], np.nanmean(expected, axis=0).ravel()[:20], rtol=1e-13)


def test_a_number_that_plain_hdf5_holds_is_no_fill_value_of_netcdf(tmp_path: Path) -> None:
    whole = np.arange(40 * 30).reshape(40, 6, 5).astype("int16")
    whole[0, 0, 0] = -32767
    path = _written(tmp_path, "h5netcdf", whole)

    assert _reduced(path=path, array="q", over="time, lat, lon", what="min")["value"] == -32767
    assert pick(path).numbers.missing == ()
    assert pick(_written(tmp_path, "scipy", whole)).numbers.missing == (-32767,)


def _grouped(folder: Path, *, two: bool = False) -> str:
    """As CF has it: coordinates in the root, the variable in a group."""
    path = folder / "grouped.nc"
    xr.Dataset(coords=COORDS).to_netcdf(path, engine="h5netcdf")
    with h5py.File(path, "r+") as file:
        for name in ("t2m", "d2m")[: 1 + two]:
            q = file.create_dataset(f"obs/{name}", data=FIELD)
            for axis, dim in enumerate(("time", "lat", "lon")):
                q.dims[axis].attach_scale(file[dim])
    return str(path)


def test_coordinates_of_a_group_are_those_of_the_groups_above_it(tmp_path: Path) -> None:
    path = _grouped(tmp_path)

    picked = pick(path, "obs/t2m", "time=1981, lat=20:40")

    assert picked.shape == (12, 3, 5)
    np.testing.assert_allclose(cf.latitude_of(picked.coords, ["lat", "lon"]), [40, 30, 20])
    checked = EOFS.validate({"path": path, "variable": "obs/t2m", "k": 2, "tol": 1e-7})
    anomalies = (FIELD - FIELD.mean(axis=0)) * np.sqrt(np.cos(np.deg2rad(np.linspace(60, 10, 6))))[:, None]
    expected = np.linalg.svd(anomalies.reshape(40, -1).astype("float64"), compute_uv=False)[:2]
    np.testing.assert_allclose(EOFS.build(checked)["s"].compute(), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["NetCDF", "Zarr"])
def test_the_only_variable_of_all_groups_is_found_and_several_are_named(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "a.zarr")
    if kind == "NetCDF":
        path = _grouped(tmp_path)
        assert find_array(path, None, rows="time").array == "t2m"
        several, names = _grouped(tmp_path, two=True), "obs/d2m, obs/t2m"
    else:
        data = xr.Dataset({"sst": (("time", "lat", "lon"), FIELD)}, COORDS)
        data.to_zarr(path, group="a/b", consolidated=False)
        assert pick(path).name == "sst"
        assert pick(path, "a/b/sst", "lat=20:40").shape == (40, 3, 5)
        checked = EOFS.validate({"path": path, "k": 2})
        assert checked.resolved["variable"] == "a/b/sst"
        EOFS.build(checked)
        data.to_zarr(path, group="c", consolidated=False)
        several, names = path, "a/b/sst, c/sst"
    with pytest.raises(BadParameterError, match=f"Name one of them: {names}"):
        pick(several)


def test_times_counted_in_months_are_numbers_and_their_cycle_is_refused_with_the_reason(tmp_path: Path) -> None:
    times = ("time", np.arange(40.0), {"units": "months since 1980-01-01", "axis": "T"})
    path = _written(tmp_path, "h5netcdf", coords=COORDS | {"time": times})

    assert pick(path, None, "time=12:23").shape == (12, 6, 5)
    assert EOFS.validate({"path": path, "k": 2}).resolved["samples"] == "time"
    with pytest.raises(BadParameterError, match="are numbers of 'months since 1980-01-01', which are no dates"):
        EOFS.validate({"path": path, "k": 2, "remove": "seasonal cycle"})


def _picked(folder: Path, coords: Any, select: str) -> Picked:
    return pick(_written(folder, "h5netcdf", coords=COORDS | coords), None, select)


@pytest.mark.parametrize("order", ["backwards", "shuffled", "twice"])
def test_the_seasonal_cycle_is_one_of_months_in_whatever_order_they_are(tmp_path: Path, order: str) -> None:
    months = pd.date_range("1980-01", periods=40, freq="ME")
    times = {"backwards": months[::-1], "shuffled": np.random.default_rng(0).permutation(months)}
    times["twice"] = months[:20].repeat(2)
    path = _written(tmp_path, "h5netcdf", coords=COORDS | {"time": times[order]})

    checked = EOFS.validate({"path": path, "k": 2, "remove": "seasonal cycle", "weights": "none", "tol": 1e-7})

    assert "The seasonal cycle is the mean of each of 12 calendar months." in checked.notes
    anomalies, number = FIELD.astype("float64"), pd.DatetimeIndex(times[order]).month
    for month in range(1, 13):
        anomalies[number == month] -= anomalies[number == month].mean(axis=0)
    expected = np.linalg.svd(anomalies.reshape(40, -1), compute_uv=False)[:2]
    np.testing.assert_allclose(EOFS.build(checked)["s"].compute(), expected, rtol=1e-6)


def test_years_have_no_seasonal_cycle_backwards_either(tmp_path: Path) -> None:
    years = pd.date_range("1980", periods=40, freq="YS")[::-1]
    path = _written(tmp_path, "h5netcdf", coords=COORDS | {"time": years})

    with pytest.raises(BadParameterError, match="are years"):
        EOFS.validate({"path": path, "k": 2, "remove": "seasonal cycle"})


DAYS = pd.date_range("2020-01-01", periods=40)
AS_NUMBERS = [float(each.strftime("%Y%m%d")) for each in DAYS]
BY_NUMBER: list[tuple[str, Any, str, list[int]]] = [
    ("time", AS_NUMBERS, "20200101:20200131", list(range(31))),
    ("time", AS_NUMBERS, "20200201", [31]),
    ("time", 20200000 + np.arange(1, 41), "20200010", [9]),
    ("time", [each + 0.25 for each in AS_NUMBERS], "20200102.25:20200103.25", [1, 2]),
    ("time", 5_000_000.0 - 10 * np.arange(40), "4999900:4999950", [5, 6, 7, 8, 9, 10]),
    ("time", 5_000_000.0 - 10 * np.arange(40), "4999955", []),
    ("time", 1e5 + 1e-3 * np.arange(40), "100000.005:100000.007", [5, 6, 7]),
    ("time", np.arange(40) * np.float32(0.1), "0.3:0.7", [3, 4, 5, 6, 7]),
    ("time", np.arange(40)[::-1] * 0.1, "0.7:0.3", [32, 33, 34, 35, 36]),
    ("time", 10.0 ** np.arange(-20, 20), "0.001:1", [17, 18, 19, 20]),
    ("time", np.where(np.arange(40) == 39, np.nan, np.arange(40.0)), "37:", [37, 38]),
]


@pytest.mark.parametrize(("dim", "values", "asked", "expected"), BY_NUMBER)
def test_numbers_are_selected_as_near_as_their_own_steps_are(
    tmp_path: Path, dim: str, values: Any, asked: str, expected: list[int]
) -> None:
    def picked() -> Any:
        return _picked(tmp_path, {dim: np.asarray(values)}, f"{dim}={asked}").places[dim]

    if not expected:
        with pytest.raises(BadParameterError, match=r"time goes from 5000000 to 4999610 in 40 steps"):
            picked()
    else:
        found = picked()
        assert ([found] if isinstance(found, int) else list(range(*found))) == expected


MONTHS = pd.date_range("1980-01", periods=40, freq="MS")
BY_TIME: list[tuple[Any, str, list[int]]] = [
    (MONTHS, "1980:1981-02", list(range(14))),
    (MONTHS[::-1], "1981:1980", list(range(16, 40))),
    (MONTHS[::-1], "1980", list(range(28, 40))),
    (MONTHS[::-1], "1980:1981", list(range(16, 40))),
    (MONTHS[::-1], "1983-02:", [0, 1, 2]),
    (MONTHS[::-1], "1980-06", [34]),
    (MONTHS, "1980-06-01T00:00", [5]),
    (MONTHS, "1980-06-01T00:00:1980-08-01 00:00:00", [5, 6, 7]),
    (MONTHS, ":1980-02-01T00", [0, 1]),
    (MONTHS.repeat(2)[:40], "1980-02:1980-03", [2, 3, 4, 5]),
    (MONTHS.repeat(2)[:40], "1980-02", [2, 3]),
    (np.r_[MONTHS[20:], MONTHS[:20]], "1980-02:1980-03", [21, 22]),
    (xr.date_range("1980-01", periods=40, freq="MS", calendar="360_day", use_cftime=True)[::-1], "1980-02-30", []),
    (xr.date_range("1980-01-30", periods=40, freq="D", calendar="360_day", use_cftime=True), "1980-01-30", [0]),
    (xr.date_range("0850", periods=40, freq="YS", calendar="noleap", use_cftime=True), "0860:0862", [10, 11, 12]),
]


@pytest.mark.parametrize(("times", "asked", "expected"), BY_TIME)
def test_times_are_selected_in_any_order_and_calendar(
    tmp_path: Path, times: Any, asked: str, expected: list[int]
) -> None:
    def picked() -> Any:
        return _picked(tmp_path, {"time": times}, f"time={asked}").places["time"]

    if not expected:
        with pytest.raises(BadParameterError, match="Nothing of"):
            picked()
    else:
        found = picked()
        assert ([found] if isinstance(found, int) else list(range(*found))) == expected


@pytest.mark.parametrize("select", [None, "time=1980"])
def test_a_variable_without_values_is_refused_in_a_sentence(tmp_path: Path, select: str | None) -> None:
    path = _written(tmp_path, "h5netcdf", FIELD[:0], COORDS | {"time": TIMES[:0]})
    for workload in (EOFS, REDUCE):
        with pytest.raises(BadParameterError, match=r"is empty \(0 × 6 × 5\)"):
            workload.validate({"path": path, "select": select})


def test_times_in_pieces_and_what_is_no_time_are_told(tmp_path: Path) -> None:
    mixed = np.r_[MONTHS[::2], MONTHS[1::2]]
    with pytest.raises(BadParameterError, match="lies in several pieces"):
        _picked(tmp_path, {"time": mixed}, "time=1980-02:1980-05")
    with pytest.raises(BadParameterError, match=r"time=June is no time\. Give such as 1990"):
        _picked(tmp_path, {}, "time=June")
    for wrong in ("1990-13:1991", "1990-00:", "1990-99", "1990-01-32", "1990-01-01T24:00", "1990-01-01T10:60"):
        with pytest.raises(BadParameterError, match="is no time"):
            _picked(tmp_path, {}, f"time={wrong}")


@pytest.mark.parametrize(("dim", "asked"), [("time", "1983:1981"), ("lon", "3:0"), ("lat", "5:1")])
def test_a_range_that_falls_where_its_dimension_rises_is_refused(tmp_path: Path, dim: str, asked: str) -> None:
    with pytest.raises(BadParameterError, match=f"{dim} from the larger to the smaller.* Give the smaller first"):
        _picked(tmp_path, {"lat": np.arange(6.0)}, f"{dim}={asked}")


WRAPPED: list[tuple[Any, str, list[float]]] = [
    (np.arange(0, 360, 10), "350:10", [-10, 0, 10]),
    (np.arange(0, 360, 10), "-15:10", [-10, 0, 10]),
    (np.arange(0, 360, 10), "340:350", [340, 350]),
    (np.arange(0, 360, 10), "340:355", [340, 350]),
    (np.arange(0, 360, 10), "-20:-10", [340, 350]),
    (np.arange(0, 360, 10), "-180:180", list(range(0, 360, 10))),
    (np.arange(0, 360, 10), "30:10", list(range(-330, 20, 10))),
    (np.arange(-180, 180, 10.0), "165:-170", [170, 180, 190]),
    (np.arange(-180, 180, 10.0), "170:190", [170, 180, 190]),
    (np.arange(-180, 180, 10.0), "350:10", [-10, 0, 10]),
]


@pytest.mark.parametrize("engine", ["h5netcdf", "zarr", "files"])
@pytest.mark.parametrize(("longitudes", "asked", "expected"), WRAPPED)
def test_longitudes_go_on_across_the_end_of_the_file(
    quick_client: Any, tmp_path: Path, longitudes: Any, asked: str, expected: list[float], engine: str
) -> None:
    data = np.cos(np.deg2rad(longitudes)) + np.arange(4.0)[:, None]
    coords = {"time": MONTHS[:4], "lon": ("lon", longitudes, {"units": "degrees_east"})}
    whole = xr.Dataset({"q": (("time", "lon"), data)}, coords)
    path = tmp_path / "q"
    if engine == "zarr":
        whole.to_zarr(path, zarr_format=2)
    elif engine == "files":
        path.mkdir()
        whole.isel(lon=slice(0, 17)).to_netcdf(path / "a.nc", engine="h5netcdf")
        whole.isel(lon=slice(17, None)).to_netcdf(path / "b.nc", engine="h5netcdf")
    else:
        whole.to_netcdf(path, engine="h5netcdf")
    parameters = REDUCE.validate({"path": str(path), "over": "time", "select": f"lon={asked}"})
    found = REDUCE.arrays(REDUCE.build(parameters))["mean"]
    np.testing.assert_allclose(found.data.compute(), np.cos(np.deg2rad(expected)) + 1.5)
    np.testing.assert_array_equal(found.coords["lon"], expected)


@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_what_is_saved_has_the_coordinates_of_the_file_with_their_attributes(tmp_path: Path, name: str) -> None:
    level = ("level", np.array([500.0, 850.0]), {"units": "hPa", "positive": "down"})
    place = np.add.outer(np.arange(6.0), np.arange(5.0))
    coords = {"time": ("time", TIMES, {"standard_name": "time"}), "level": level, "lat": COORDS["lat"]}
    coords |= {"place": (("lat", "lon"), place, {"units": "km", "flags": np.arange(3)}), "height": 2.0}
    data = xr.Dataset({"q": (("time", "level", "lat", "lon"), np.stack([FIELD, 2 * FIELD], axis=1))}, coords)
    data.to_netcdf(tmp_path / "q.nc", engine="h5netcdf")
    parameters = EOFS.validate({"path": str(tmp_path / "q.nc"), "k": 2, "select": "level=500"})
    results = EOFS.build(parameters)

    write(EOFS.arrays(results | {"s": results["s"].compute()}), target(tmp_path / name), mark="1")

    with xr.open_dataset(tmp_path / name, engine="h5netcdf" if name == "out.nc" else "zarr") as found:
        assert found.lat.attrs["units"] == "degrees_north"
        assert found.time.attrs["standard_name"] == "time"
        np.testing.assert_array_equal(found.time, TIMES)
        assert (float(found.level), found.level.attrs) == (500.0, {"units": "hPa", "positive": "down"})
        assert float(found.patterns.height) == 2.0
        np.testing.assert_array_equal(found.patterns.place, place)
        assert found.place.attrs == {"units": "km"}
    reduced = REDUCE.validate({"path": str(tmp_path / "q.nc"), "over": "time", "select": "level=850"})
    found = REDUCE.arrays(REDUCE.build(reduced) | {"edges": None})["mean"]
    np.testing.assert_allclose(found, 2 * FIELD.mean(axis=0), rtol=1e-5)
    assert (float(found.level), found.lat.attrs["units"]) == (850.0, "degrees_north")


def _series(folder: Path, engine: str = "h5netcdf", names: str = "cbda") -> xr.Dataset:
    """Write a file for every ten months, with names in another order; return all of the data."""
    attrs = {"units": "K"}
    whole = xr.Dataset({"q": (("time", "lat", "lon"), FIELD, attrs), "p": (("time", "lat", "lon"), -FIELD)}, COORDS)
    (folder / "series").mkdir(exist_ok=True)
    for number, name in enumerate(names):
        part = whole.isel(time=slice(10 * number, 10 * number + 10)).assign_coords(made=float(number))
        # Each counts from a time of its own.
        encoding = {"time": {"units": f"days since {1980 + number}-01-01"}, "q": {"chunksizes": (3, 6, 5)}}
        how: dict[str, Any] = {"encoding": encoding if engine == "h5netcdf" else {"time": encoding["time"]}}
        part.to_netcdf(folder / "series" / f"{name}.nc", engine=engine, **how)
    return whole


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_files_of_a_series_are_read_as_one_in_the_order_of_their_times(tmp_path: Path, engine: str) -> None:
    _series(tmp_path, engine)
    for path in (str(tmp_path / "series"), str(tmp_path / "ser*" / "?.nc")):
        picked = pick(path, "q")
        assert (picked.shape, dict(picked.coords.sizes)["time"]) == ((40, 6, 5), 40)
        np.testing.assert_array_equal(picked.coords.time, TIMES)
        assert "made" not in picked.coords
        checked = EOFS.validate({"path": path, "variable": "q", "k": 2, "weights": "none", "tol": 1e-7})
        expected = np.linalg.svd((FIELD - FIELD.mean(axis=0)).reshape(40, -1).astype("float64"), compute_uv=False)
        np.testing.assert_allclose(EOFS.build(checked)["s"].compute(), expected[:2], rtol=1e-6)

        for select, part in (("time=1980-05:1982-06, lat=20:40", FIELD[4:30, 2:5]), ("lat=60", FIELD[:, 0])):
            reduced = REDUCE.build(REDUCE.validate({"path": path, "array": "q", "over": "time", "select": select}))
            np.testing.assert_allclose(reduced["value"].compute(), part.astype("float64").mean(axis=0), rtol=1e-5)
        one = {"path": path, "array": "q", "over": "lon", "select": "time=1981-03"}
        found = REDUCE.arrays(REDUCE.build(REDUCE.validate(one)) | {"edges": None})["mean"]
        np.testing.assert_allclose(found.data.compute(), FIELD[14].astype("float64").mean(axis=1), rtol=1e-5)
        assert (found.time.dims, found.time) == ((), np.datetime64("1981-03-01"))
        told = look(path)
        assert told.n_bytes == sum(each.stat().st_size for each in (tmp_path / "series").iterdir())
        assert ("q", (10, 6, 5)) in {(each.name, each.shape) for each in told.arrays}
        assert told.dimensions[0].line() == "40, 1980-01-01 to 1983-04-01"
        assert "the first of 4 files. They are read as one if they differ along one" in told.remarks[0]


def test_each_block_of_a_series_is_what_lies_in_its_files(tmp_path: Path) -> None:
    _series(tmp_path)
    picked = pick(str(tmp_path / "series"), "q", "time=1980-02:1983-03, lon=1:3")
    where = [slice(3, 31), slice(1, 4), slice(0, 2)]
    found = datasets.read_part("q", where, picked.recipe())
    np.testing.assert_array_equal(found, FIELD[4:32, 1:4, 1:3])


def test_a_file_of_a_series_that_is_read_is_not_saved_over(tmp_path: Path) -> None:
    _series(tmp_path)
    for path in ("series", "series/*.nc"):
        given = {"path": str(tmp_path / path), "variable": "q", "k": 2}
        with pytest.raises(BadParameterError, match="would be written over while it is read"):
            EOFS.validate({**given, "save": str(tmp_path / "series" / "b.nc"), "replace": True})
        EOFS.validate({**given, "save": str(tmp_path / "b.nc")})


def test_a_folder_of_one_file_is_that_file(tmp_path: Path) -> None:
    _series(tmp_path, names="a")
    assert pick(str(tmp_path / "series"), "q", "time=1980-02").shape == (6, 5)


def _with_other(change: Any) -> Any:
    def write(folder: Path) -> None:
        path = folder / "series" / "b.nc"
        with xr.open_dataset(path, engine="h5netcdf") as found:
            data = found.load()
        path.unlink()
        change(data).to_netcdf(path, engine="h5netcdf")

    return write


def _lacks_a_file(folder: Path) -> None:
    for path in (folder / "series").iterdir():
        path.unlink()


OTHERS: list[tuple[Any, str]] = [
    (_with_other(lambda data: data.drop_vars("q")), r"There is no variable 'q' in .*/b\.nc\. Choose one of: p"),
    (_with_other(lambda data: data.isel(lat=slice(1, None))), "differ along time, lat"),
    (_with_other(lambda data: data.assign_coords(time=TIMES[5:15])), r"a?c?\.nc and .*\.nc overlap: both have time"),
    (_with_other(lambda data: data.astype("float64")), r"its type is float64 in .*b\.nc|its type is float32 in"),
    (_with_other(lambda data: data.transpose("lat", "time", "lon")), "its dimensions is"),
    (_with_other(lambda data: data.drop_vars("time")), "time has no values, so that their order is unknown"),
    (lambda folder: (folder / "series" / "b.nc").write_bytes(b"no file of NetCDF"), r"b\.nc is in no format"),
    (lambda folder: (folder / "series" / "b.nc").write_bytes(b""), r"b\.nc is empty"),
    (_lacks_a_file, "No file matches"),
]


@pytest.mark.parametrize(("change", "sentence"), OTHERS)
def test_files_that_are_not_alike_are_told_in_one_sentence(tmp_path: Path, change: Any, sentence: str) -> None:
    _series(tmp_path)
    change(tmp_path)
    for path in (str(tmp_path / "series" / "*.nc"), str(tmp_path / "series"))[: 1 if "matches" in sentence else 2]:
        with pytest.raises(BadParameterError, match=sentence):
            EOFS.validate({"path": path, "variable": "q", "k": 2})
        with pytest.raises(BadParameterError, match=sentence):
            REDUCE.validate({"path": path, "array": "q"})


def test_each_file_of_a_series_is_unpacked_by_its_own_attributes(tmp_path: Path) -> None:
    for number, (scale, fill) in enumerate(((0.01, -32767), (0.02, -1))):
        part = xr.Dataset(
            {"q": (("time", "lat", "lon"), FIELD[:10].copy())}, COORDS | {"time": TIMES[number * 10 :][:10]}
        )
        part.q[3, 1, 2] = np.nan
        packing = {"dtype": "int16", "scale_factor": scale, "add_offset": 1.0, "_FillValue": fill}
        part.to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf", encoding={"q": packing})
    files = sorted(tmp_path.glob("*.nc"))
    expected = xr.concat([xr.load_dataset(each, engine="h5netcdf") for each in files], "time").q
    checked = REDUCE.validate({"path": str(tmp_path), "array": "q", "missing": "leave out"})

    assert any("unpacked by its own attributes" in each for each in checked.notes)
    found = _reduced(path=str(tmp_path), array="q", missing="leave out")
    assert found["value"] == pytest.approx(float(expected.astype("float64").mean()), rel=1e-6)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_a_variable_may_have_the_name_of_one_of_its_dimensions(tmp_path: Path, engine: str) -> None:
    path = str(tmp_path / "x.nc")
    if engine == "scipy":
        from scipy.io import netcdf_file

        with netcdf_file(path, "w") as file:
            file.createDimension("time", 40)
            file.createDimension("x", 30)
            file.createVariable("x", "d", ("time", "x"))[:] = FIELD.reshape(40, 30)
    else:  # as netCDF4 writes it: the plain name is the dimension's
        with h5py.File(path, "w") as file:
            for name, length in (("time", 40), ("x", 30)):
                file.create_dataset(name, data=np.zeros(length)).make_scale(
                    f"This is a netCDF dimension but not a netCDF variable.{length:10d}"
                )
            stored = file.create_dataset("_nc4_non_coord_x", data=FIELD.reshape(40, 30).astype("float64"))
            for axis, name in enumerate(("time", "x")):
                stored.dims[axis].attach_scale(file[name])
    for given in ({}, {"array": "x"}):
        assert _reduced(path=path, **given)["value"] == pytest.approx(float(FIELD.astype("float64").mean()))
    assert EOFS.validate({"path": path, "k": 2, "samples": "time"}).resolved["shape"] == [40, 30]


def test_bounds_of_cells_are_not_taken_for_the_variable(tmp_path: Path) -> None:
    bounds = np.arange(80.0).reshape(40, 2)
    data = xr.Dataset({"time_bnds": (("time", "bnds"), bounds)}, {"time": np.arange(40)})
    data.to_netcdf(tmp_path / "alone.nc", engine="h5netcdf")
    data.assign(q=(("time", "x"), FIELD[:, 0])).to_netcdf(tmp_path / "q.nc", engine="h5netcdf")

    assert pick(str(tmp_path / "q.nc")).name == "q"
    assert find_array(str(tmp_path / "q.nc"), None).array == "q"
    assert pick(str(tmp_path / "q.nc"), "time_bnds").shape == (40, 2)
    with pytest.raises(BadParameterError, match="no variable of numbers"):
        pick(str(tmp_path / "alone.nc"))


def test_a_scalar_has_a_mean_and_no_modes(tmp_path: Path) -> None:
    path = str(tmp_path / "s.nc")
    encoding = {"s": {"_FillValue": None}}
    xr.Dataset({"s": ((), 3.5, {"missing_value": -999.0})}).to_netcdf(path, engine="h5netcdf", encoding=encoding)
    with h5py.File(tmp_path / "e.h5", "w") as file:
        file["e"] = h5py.Empty("f8")

    assert _reduced(path=path)["value"] == 3.5
    with pytest.raises(BadParameterError, match=r"no numbers along a dimension\. No other one does\."):
        EOFS.validate({"path": path, "variable": "s"})
    with pytest.raises(BadParameterError, match=r"\(e\) holds no value \(h5py\.Empty\)"):
        REDUCE.validate({"path": str(tmp_path / "e.h5")})
