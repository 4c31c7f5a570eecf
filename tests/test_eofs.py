"""The workload eofs against NumPy on the weighted anomalies, from files as xarray, eccodes and SciPy write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
import tifffile
import xarray as xr
import zarr

from tests.views import html_of
from tests.winds import LAT, LON, TIMES, winds_of
from workbench.climate import eofs
from workbench.climate.anomalies import Removed, anomalies
from workbench.climate.eofs import separated
from workbench.errors import BadInputError
from workbench.figures.answers import Map, pictures
from workbench.workloads import template
from workbench.workloads.values import BadParameterError

EOFS = template("eofs")
K = 4


POLES = np.linspace(90, -90, 13)


def _by_numpy(winds: xr.DataArray, *, seasonal: bool = False, weighted: bool = True) -> dict[str, Any]:
    """Modes of the weighted anomalies of a variable, the largest weighted value of each pattern positive."""
    x = winds.values.astype("float64")
    months = winds.time.dt.month.values if seasonal else np.zeros(len(x))
    for month in np.unique(months):
        x[months == month] -= x[months == month].mean(axis=0)
    weights = np.sqrt(np.cos(np.deg2rad(winds.lat.values)))[:, None] * np.ones(x.shape[2])
    weights = weights if weighted else np.ones_like(weights)
    there = np.isfinite(x).all(axis=0)
    u, s, v = np.linalg.svd((x * weights)[:, there], full_matrices=False)
    shares = (s**2 / (s**2).sum())[:K]
    u, s, v = u[:, :K], s[:K], v[:K]
    signs = np.sign(v[np.arange(K), np.abs(v).argmax(axis=1)])
    patterns = np.full((K, *x.shape[1:]), np.nan)
    patterns[:, there] = (v * signs[:, None]) * s[:, None] / np.sqrt(len(x) - 1) / weights[there]
    return {"patterns": patterns, "series": u * signs * np.sqrt(len(x) - 1), "s": s, "shares": shares}


def _run(**given: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Arrays by name, the answer and the check of a run in this process."""
    parameters = EOFS.validate({"k": K, **given})
    results = EOFS.build(parameters)
    results["s"] = results["s"].compute()
    arrays = {
        name: each.data.compute() if dask.is_dask_collection(each.data) else each.data
        for name, each in EOFS.arrays(results).items()
    }
    return arrays, EOFS.summarise(results), EOFS.check(parameters, results)


def _agrees(arrays: dict[str, Any], expected: dict[str, Any], tol: float = 1e-6) -> None:
    np.testing.assert_allclose(arrays["singular_values"], expected["s"], rtol=tol)
    np.testing.assert_allclose(arrays["explained_variance_ratio"], expected["shares"], rtol=tol)
    np.testing.assert_allclose(arrays["series"], expected["series"], atol=tol * np.abs(expected["series"]).max())
    largest = np.nanmax(np.abs(expected["patterns"]))
    np.testing.assert_allclose(arrays["patterns"], expected["patterns"], atol=tol * largest)


def _netcdf(engine: str, dtype: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        winds_of(dtype).to_netcdf(folder / "winds.nc", engine=engine)  # type: ignore[call-overload]
        return folder / "winds.nc"

    return write


def _packed(folder: Path) -> Path:
    packing = {"dtype": "int16", "scale_factor": 2**-8, "add_offset": 256.0, "_FillValue": -32767, "zlib": True}
    chunked = {**packing, "chunksizes": (1, 9, 12)}
    winds_of().to_netcdf(folder / "winds.nc", engine="h5netcdf", encoding={"u": chunked})
    return folder / "winds.nc"


def _zarr(chunks: dict[str, int], **how: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        winds_of().chunk(chunks).to_zarr(folder / "winds.zarr", **how)
        return folder / "winds.zarr"

    return write


FILES: dict[str, Callable[[Path], Path]] = {
    "NetCDF 4 in float32": _netcdf("h5netcdf", "float32"),
    "NetCDF 3": _netcdf("scipy", "float64"),
    "NetCDF 4, packed, a chunk for each time": _packed,
    "Zarr 2, consolidated, uneven chunks": _zarr({"time": 50, "lat": 4}, zarr_format=2, consolidated=True),
    "Zarr 3": _zarr({"lat": 2, "lon": 5}, zarr_format=3, consolidated=False),
}


@pytest.fixture
def winds(tmp_path: Path) -> str:
    return str(_netcdf("h5netcdf", "float64")(tmp_path))


@pytest.mark.parametrize("file", FILES)
def test_modes_are_those_that_numpy_finds_in_the_weighted_anomalies(tmp_path: Path, file: str) -> None:
    path = FILES[file](tmp_path)
    how: dict[str, Any] = {"engine": "zarr", "consolidated": False} if path.suffix == ".zarr" else {}
    with xr.open_dataset(path, **how) as dataset:
        expected = _by_numpy(dataset.u.load())

    arrays, answer, check = _run(path=str(path), variable="u")

    _agrees(arrays, expected)
    assert check.passed, check.what
    assert answer["other_places"]["without values"] == np.isnan(expected["patterns"][0]).sum()


def test_the_seasonal_cycle_is_taken_off_by_months(winds: str) -> None:
    arrays, _, _ = _run(path=winds, variable="u", remove="seasonal cycle", weights="none")

    _agrees(arrays, _by_numpy(winds_of().u, seasonal=True, weighted=False))


def test_more_times_than_places_give_the_same_modes(winds: str) -> None:
    arrays, _, check = _run(path=winds, variable="u", select="lat=15:45, lon=30:120")

    _agrees(arrays, _by_numpy(winds_of().u.sel(lat=slice(45, 15), lon=slice(30, 120))))
    assert check.passed, check.what


def test_the_answer_is_a_dataset_with_the_coordinates_of_the_file(winds: str) -> None:
    parameters = EOFS.validate({"path": winds, "variable": "u", "k": K, "select": "time=1981:1984-06"})
    results = EOFS.build(parameters)
    arrays = EOFS.arrays(results | {"s": results["s"].compute()})

    dataset = xr.Dataset(
        {name: xr.DataArray(each.data, each.coords, each.dims, attrs=each.attrs) for name, each in arrays.items()}
    )

    assert dict(dataset.sizes) == {"mode": K, "lat": 9, "lon": 12, "time": 42}
    assert dataset.patterns.attrs["units"] == "m s-1"
    assert dataset.explained_variance.attrs == {
        "long_name": "squared singular value / (n - 1), n = 42",
        "units": "(m s-1)2",
    }
    np.testing.assert_array_equal(dataset.time, TIMES[12:54])
    expected = winds_of().u.sel(time=slice("1981", "1984-06"))
    expected = expected - expected.mean("time")
    np.testing.assert_allclose((dataset.patterns * dataset.series).sum("mode").std(), expected.std(), rtol=0.2)


def test_a_line_and_a_cycle_are_taken_off_together_by_least_squares() -> None:
    rng = np.random.default_rng(0)
    x, months, times = rng.normal(size=(30, 3)), np.arange(30) % 12, np.arange(30.0) ** 1.1
    design = np.column_stack([*(months == month for month in range(12)), times]).astype(float)
    expected = x - design @ np.linalg.lstsq(design, x, rcond=None)[0]

    removed = Removed.of(months, times)
    about = {0: {"array-location": [(0, 30), (0, 3)], "shape": (30, 3)}}
    how = {"missing": "mean", "as_type": "float64", "where": str, "title": "x"}
    found = anomalies(x, np.ones((1, 3)), about, removed=removed, **how)

    np.testing.assert_allclose(found[:-1], expected, atol=1e-12)
    assert removed.rank == 13


@pytest.fixture
def gappy(tmp_path: Path) -> str:
    """Winds with a value missing at two times of one place."""
    dataset = winds_of()
    place = np.argwhere(np.isfinite(dataset.u.values[0]))[5]
    dataset.u[[3, 7], place[0], place[1]] = np.nan
    dataset.to_netcdf(tmp_path / "gappy.nc", engine="h5netcdf")
    return str(tmp_path / "gappy.nc")


def test_values_that_are_missing_at_times_are_refused_with_place_and_count(gappy: str) -> None:
    with pytest.raises(ValueError, match=r"2 in 1 of the 108 places .* the first at time 1980-04-01, lat 80, lon"):
        _run(path=gappy, variable="u")


def test_values_that_are_missing_at_times_are_filled_or_their_places_left_out(gappy: str) -> None:
    with xr.open_dataset(gappy, engine="h5netcdf") as dataset:
        winds = dataset.u.load()

    left_out, answer, _ = _run(path=gappy, variable="u", missing="leave out")
    filled, of_filled, _ = _run(path=gappy, variable="u", missing="mean")

    _agrees(left_out, _by_numpy(winds))
    assert (answer["other_places"]["left out"], of_filled["other_places"]["filled"]) == (1, 1)
    _agrees(
        filled,
        _by_numpy(
            xr.where(winds.isnull().all("time"), np.nan, winds.fillna(winds.mean("time"))).transpose(
                "time", "lat", "lon"
            )
        ),
    )


def test_grib_is_read_by_cfgrib(tmp_path: Path) -> None:
    import eccodes

    values = np.random.default_rng(0).normal(size=(12, 7, 8)).round(3)
    with (tmp_path / "t.grib").open("wb") as file:
        for month, field in enumerate(values, 1):
            message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
            grid = {"Ni": 8, "Nj": 7, "latitudeOfFirstGridPointInDegrees": 60, "latitudeOfLastGridPointInDegrees": 0}
            grid |= {"longitudeOfFirstGridPointInDegrees": 0, "longitudeOfLastGridPointInDegrees": 70}
            grid |= {"iDirectionIncrementInDegrees": 10, "jDirectionIncrementInDegrees": 10, "dataTime": 0}
            for name, value in {
                **grid,
                "shortName": "2t",
                "dataDate": 20200001 + 100 * month,
                "bitsPerValue": 24,
            }.items():
                eccodes.codes_set(message, name, value)
            eccodes.codes_set_values(message, field.ravel())
            eccodes.codes_write(message, file)
            eccodes.codes_release(message)

    arrays, _, check = _run(path=str(tmp_path / "t.grib"), k=3)

    weighted = (values - values.mean(axis=0)) * np.sqrt(np.cos(np.deg2rad(np.arange(60, -1, -10))))[:, None]
    expected = np.linalg.svd(weighted.reshape(12, -1), compute_uv=False)[:3]
    np.testing.assert_allclose(arrays["singular_values"], expected, rtol=1e-5)
    assert check.passed
    assert [path.name for path in tmp_path.iterdir()] == ["t.grib"]


def test_modes_are_apart_by_norths_rule() -> None:
    variances = np.array([10.0, 5.0, 4.9, 1.0])

    assert separated(variances, variances / 22, 200) == [True, False, False, None]
    assert separated(variances, variances / 21, 200) == [True, False, False, True]


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"variable": "w"}, "variable", "There is no variable 'w' in .* Choose one of: u, v."),
    ({}, "variable", "holds 2 variables. Name one of them: u, v."),
    ({"variable": "u", "samples": "month"}, "samples", "was 'month', in .* each once, among: time, lat, lon."),
    ({"variable": "u", "samples": "time, lat, lon"}, "variable", "has the dimension time, lat, lon alone"),
    ({"variable": "u", "k": 110}, "k", "Give a whole number from 1 to 108: there are 120 samples"),
    (
        {"variable": "u", "remove": "seasonal cycle", "select": "time=1980"},
        "select",
        "12 samples, and as many are taken",
    ),
    ({"variable": "u", "select": "level=500"}, "select", "has no dimension 'level' to select. It has: time, lat, lon."),
    ({"variable": "u", "select": "time=2050"}, "select", "lies at time=2050. time goes from 1980-01-01"),
    ({"variable": "u", "select": "lat=91"}, "select", "lies at lat=91. lat goes from 80 to -80 in 9 steps"),
    ({"variable": "u", "select": "lat"}, "select", "Give dimensions with values or ranges"),
    ({"variable": "u", "select": "time=1980-02"}, "samples", "no dimension is one of times by CF"),
]


@pytest.mark.parametrize(("given", "parameter", "sentence"), BAD)
def test_what_is_not_in_a_file_is_said_in_one_sentence(
    winds: str, given: dict[str, Any], parameter: str, sentence: str
) -> None:
    with pytest.raises(BadParameterError, match=sentence) as caught:
        EOFS.validate({"path": winds, **given})

    assert caught.value.parameter == parameter


def test_a_variable_without_any_value_is_refused(tmp_path: Path) -> None:
    (winds_of() * np.nan).to_netcdf(tmp_path / "nothing.nc", engine="h5netcdf")

    with pytest.raises(BadInputError, match=r"108 have none at all.* variable or selection\.$"):
        _run(path=str(tmp_path / "nothing.nc"), variable="u")


@pytest.mark.parametrize("kind", ["tiff", "ome zarr"])
def test_modes_of_a_stack_of_images_are_images(tmp_path: Path, kind: str) -> None:
    stack = np.random.default_rng(0).integers(0, 1000, (12, 9, 7)).astype("u2")
    path = str(tmp_path / "stack")
    if kind == "tiff":
        tifffile.imwrite(path, stack, metadata={"axes": "TYX"})
    else:
        axes, images = [{"name": each} for each in "tyx"], [{"path": "0"}, {"path": "1"}]
        said = {"ome": {"version": "0.5", "multiscales": [{"axes": axes, "datasets": images}]}}
        group = zarr.open_group(path, mode="w", attributes=said)
        group.create_array("0", data=stack, chunks=(5, 9, 7))
        group.create_array("1", data=stack[:, ::2, ::2])
    parameters = EOFS.validate({"path": path, "k": 3})
    results = EOFS.build(parameters)
    results["s"] = results["s"].compute()
    arrays, summary = EOFS.arrays(results), EOFS.summarise(results)
    rows = stack.reshape(12, -1) - stack.reshape(12, -1).mean(axis=0)
    np.testing.assert_allclose(summary["singular_values"], np.linalg.svd(rows, compute_uv=False)[:3], rtol=1e-6)
    assert parameters.resolved["samples"] == "t"
    assert arrays["patterns"].dims == ("mode", "y", "x")
    drawn = {each.name: each.drawn for each in pictures(arrays, summary)}
    assert isinstance(drawn["patterns-1"], Map)
    assert drawn["patterns-1"].from_top
    assert EOFS.validate({"path": path, "k": 2, "select": "t=2:8"}).resolved["shape"] == [7, 63]


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.nc").write_text("no NetCDF")
    np.save(tmp_path / "b.npy", np.zeros(3))

    for name in ("a.nc", "b.npy", "missing.nc"):
        with pytest.raises(BadParameterError, match="Expected NetCDF, a Zarr group as xarray writes it, GRIB"):
            EOFS.validate({"path": str(tmp_path / name)})


def test_modes_of_noise_that_lie_near_to_each_other_are_found_and_pass_their_check(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).normal(size=(300, 12, 30)).astype("float32")
    coords = {"time": pd.date_range("1990-01-01", periods=300, freq="MS"), "lat": np.linspace(-50, 50, 12)}
    winds = xr.DataArray(noise, coords, ("time", "lat", "lon"))
    winds.to_dataset(name="u").to_netcdf(tmp_path / "noise.nc", engine="h5netcdf")
    arrays, told, check = _run(path=str(tmp_path / "noise.nc"), weights="none")
    assert check.passed, check.what
    _agrees(arrays, _by_numpy(winds, weighted=False), tol=1e-5)
    assert told["certificate"]["passes"] == 1


@pytest.mark.parametrize(("remove", "missing"), [("mean", "refuse"), ("seasonal cycle", "mean"), ("none", "leave out")])
def test_what_is_too_large_to_be_held_is_gone_through_by_time_with_the_same_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remove: str, missing: str
) -> None:
    winds = winds_of()
    if missing != "refuse":
        # Some gaps, and a month of a place of which nothing is known.
        there = np.argwhere(np.isfinite(winds.u.values[0]))
        for number, (i, j) in enumerate(there[:5]):
            winds.u.values[7 + number :: 20, i, j] = np.nan
        winds.u.values[3::12, *there[9]] = np.nan
    winds.chunk(time=10).to_zarr(tmp_path / "winds.zarr", zarr_format=2, consolidated=True)
    given = {"path": str(tmp_path / "winds.zarr"), "variable": "u", "remove": remove, "detrend": True}
    given |= {"missing": missing, "tol": 1e-5}
    held, told, _ = _run(**given)
    for name in ("_SLAB_BYTES", "_SMALLEST_SLAB", "_STREAMED_BYTES"):
        monkeypatch.setattr(eofs, name, 10_000)
    parameters = EOFS.validate({"k": K, **given}, threads=2, memory=60_000)
    assert parameters.resolved["slabs"] == [10, 9, 12]
    results = EOFS.build(parameters)
    results["s"] = results["s"].compute()
    for name, each in EOFS.arrays(results).items():
        np.testing.assert_allclose(each.data, held[name], atol=1e-5 * np.nanmax(np.abs(held[name])), err_msg=name)
    summary = EOFS.summarise(results)
    assert {name: summary[name] for name in summary if "places" in name} == {
        name: told[name] for name in told if "places" in name
    }
    assert EOFS.check(parameters, results).passed


def test_a_gap_is_refused_with_its_place_when_it_is_gone_through_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    winds = winds_of()
    place = np.argwhere(np.isfinite(winds.u.values[0]))[4]
    winds.u.values[13, *place] = np.nan
    winds.chunk(time=10).to_zarr(tmp_path / "winds.zarr", zarr_format=2, consolidated=True)
    for name in ("_SLAB_BYTES", "_SMALLEST_SLAB", "_STREAMED_BYTES"):
        monkeypatch.setattr(eofs, name, 10_000)
    parameters = EOFS.validate(
        {"k": K, "path": str(tmp_path / "winds.zarr"), "variable": "u"}, threads=2, memory=60_000
    )
    where = f"time 1981-02-01, lat {LAT[place[0]]:g}, lon {LON[place[1]]:g}"
    with pytest.raises(ValueError, match=rf"1 in 1 of the 108 places of the grid, the first at {where}"):
        EOFS.build(parameters)


@pytest.mark.parametrize(("samples", "memory"), [("time, member", None), ("member,time", 60_000)])
def test_times_and_members_of_an_ensemble_are_samples_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: str, memory: int | None
) -> None:
    of_all = winds_of(n_times=180).u.values.reshape(3, 60, len(LAT), len(LON))
    coords = {"member": ["a", "b", "c"], "time": TIMES[:60], "lat": LAT, "lon": LON}
    winds = xr.DataArray(of_all, coords, ("member", "time", "lat", "lon")).transpose("time", "lat", "member", "lon")
    path = str(tmp_path / "winds.zarr")
    winds.chunk(time=7, member=2).to_dataset(name="u").to_zarr(path, zarr_format=2, consolidated=True)
    dims = tuple(each.strip() for each in samples.split(","))
    # The same as one long series, whose months go round as those of the samples do.
    stacked = winds.transpose(*dims, "lat", "lon")
    times = xr.DataArray(winds.time).expand_dims(member=3).transpose(*dims).values.ravel()
    values = stacked.values.reshape(180, len(LAT), len(LON))
    flat = xr.DataArray(values, {"time": times, "lat": LAT, "lon": LON}, ("time", "lat", "lon"))
    expected = _by_numpy(flat, seasonal=True)
    if memory:
        for name in ("_SLAB_BYTES", "_SMALLEST_SLAB", "_STREAMED_BYTES"):
            monkeypatch.setattr(eofs, name, 10_000)
    given = {"path": path, "samples": samples, "remove": "seasonal cycle", "k": K, "tol": 1e-6}
    parameters = EOFS.validate(given, threads=2, memory=memory)
    assert (parameters.resolved["slabs"][0] < 180) == bool(memory)

    results = EOFS.build(parameters)
    results["s"] = results["s"].compute()
    arrays = EOFS.arrays(results)

    series = xr.DataArray(arrays["series"].data, arrays["series"].coords, arrays["series"].dims).compute()
    assert series.dims == (*dims, "mode")
    np.testing.assert_array_equal(series.member, ["a", "b", "c"])
    computed = {name: np.asarray(each.data) for name, each in arrays.items()}
    _agrees(computed | {"series": series.values.reshape(180, K)}, expected)
    assert EOFS.check(parameters, results).passed


def _with_poles(folder: Path, n_times: int, dtype: str = "float64") -> tuple[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_times, 3)) @ (rng.normal(size=(3, 13 * 48)) * np.array([[9], [6], [4]]))
    x = (x + rng.normal(size=x.shape)).reshape(n_times, 13, 48).astype(dtype)
    coords = {"time": ("time", np.arange(n_times), {"axis": "T"}), "lat": ("lat", POLES), "lon": np.arange(48)}
    xr.Dataset({"t": (("time", "lat", "lon"), x)}, coords).to_netcdf(folder / "poles.nc", engine="h5netcdf")
    return str(folder / "poles.nc"), x.astype("float64")


@pytest.mark.parametrize(("n_times", "dtype", "small"), [(60, "float32", True), (150, "float64", False)])
def test_patterns_at_the_poles_are_what_the_series_have_in_common_with_the_anomalies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_times: int, dtype: str, small: bool
) -> None:
    path, x = _with_poles(tmp_path, n_times, dtype)
    if small:
        for name in ("_SLAB_BYTES", "_SMALLEST_SLAB", "_STREAMED_BYTES"):
            monkeypatch.setattr(eofs, name, 50_000)
    parameters = EOFS.validate({"path": path, "k": 3, "tol": 1e-5}, threads=2, memory=100_000 if small else None)
    results = EOFS.build(parameters)
    results["s"] = results["s"].compute()
    arrays = {name: np.asarray(each.data) for name, each in EOFS.arrays(results).items()}

    anomalies = (x - x.mean(axis=0)).reshape(n_times, -1)
    weights = np.repeat(np.sqrt(np.clip(np.cos(np.deg2rad(POLES)), 0, None)), 48)
    u = np.linalg.svd(anomalies * weights, full_matrices=False)[0][:, :3]
    u *= np.sign((arrays["series"] * u).sum(axis=0))
    expected = (u.T @ anomalies / np.sqrt(n_times - 1)).reshape(3, 13, 48)
    np.testing.assert_allclose(arrays["patterns"], expected, atol=1e-4 * np.abs(expected).max())
    assert EOFS.check(parameters, results).passed


def test_latitudes_in_radians_give_the_weights_of_those_in_degrees(tmp_path: Path) -> None:
    winds = winds_of()
    turned = winds.assign_coords(lat=("lat", np.deg2rad(LAT), {"units": "radian", "standard_name": "latitude"}))
    turned.to_netcdf(tmp_path / "winds.nc", engine="h5netcdf")

    arrays, _, _ = _run(path=str(tmp_path / "winds.nc"), variable="u")

    _agrees(arrays, _by_numpy(winds.u))


def test_places_without_a_latitude_count_as_missing(tmp_path: Path) -> None:
    winds = winds_of().u
    lat = np.repeat(LAT[:, None], len(LON), axis=1)
    lat[2:4, 5] = np.nan
    grid = winds.values.copy()
    coords = {"time": winds.time, "nav_lat": (("y", "x"), lat, {"units": "degrees_north"})}
    data = xr.Dataset({"u": (("time", "y", "x"), grid)}, coords)
    data.to_netcdf(tmp_path / "nemo.nc", engine="h5netcdf")
    parameters = EOFS.validate({"path": str(tmp_path / "nemo.nc"), "k": K, "tol": 1e-6}, threads=2)
    results = EOFS.build(parameters)
    results["s"] = results["s"].compute()

    winds.values[:, 2:4, 5] = np.nan
    _agrees({name: np.asarray(each.data) for name, each in EOFS.arrays(results).items()}, _by_numpy(winds))
    assert "Of 2 places the latitude is unknown: their values count as missing." in parameters.notes
    assert EOFS.summarise(results)["other_places"]["without values"] == np.isnan(winds.values[0]).sum()


@pytest.mark.parametrize(("remove", "memory"), [("mean", None), ("seasonal cycle", 60_000)])
def test_what_does_not_vary_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remove: str, memory: int | None
) -> None:
    rng = np.random.default_rng(0)
    same = 300 * rng.random((len(LAT), len(LON))) + 0.1
    cycle = np.cos(np.arange(48) % 12)[:, None, None] if remove == "seasonal cycle" else 0
    winds = winds_of(n_times=48)[["u"]]
    days = (TIMES[:48] - TIMES[0]).days.values[:, None, None]
    winds.u.values[:] = same + cycle + 1e-3 * days
    winds.to_netcdf(tmp_path / "same.nc", engine="h5netcdf")
    if memory:
        for name in ("_SLAB_BYTES", "_SMALLEST_SLAB", "_STREAMED_BYTES"):
            monkeypatch.setattr(eofs, name, 10_000)
    given = {"path": str(tmp_path / "same.nc"), "k": K, "remove": remove, "detrend": True}

    with pytest.raises(BadInputError, match=r"doesn't vary: once what is removed is taken off, nothing but rounding"):
        EOFS.build(EOFS.validate(given, threads=2, memory=memory))


def _sampled(path: Path, times: Any, dims: tuple[str, ...] = ("time", "lat", "lon")) -> str:
    noise = np.random.default_rng(2).normal(size=(len(times), len(LAT), len(LON)))
    xr.Dataset({"u": (dims, noise)}, {"time": (dims[0], times)}).to_netcdf(path, engine="h5netcdf")
    return str(path)


@pytest.mark.parametrize(("step", "count", "unit"), [("7D", 520, "month"), ("5D", 730, "month"), ("D", 2192, "day")])
def test_a_seasonal_cycle_is_of_months_where_days_have_few_samples(
    tmp_path: Path, step: str, count: int, unit: str
) -> None:
    path = _sampled(tmp_path / "t.nc", pd.date_range("1990-01-01", periods=count, freq=step))
    note = next(each for each in EOFS.validate({"path": path, "remove": "seasonal cycle"}).notes if "cycle" in each)
    assert f"calendar {unit}s" in note
    assert ("as calendar days have" in note) == (unit == "month")


@pytest.mark.parametrize("given", [{"remove": "seasonal cycle"}, {"detrend": True}])
def test_a_missing_time_is_named_where_times_count(tmp_path: Path, given: dict[str, Any]) -> None:
    times = pd.date_range("1990-01", periods=60, freq="MS").to_numpy().copy()
    times[17] = np.datetime64("NaT", "ns")
    path = _sampled(tmp_path / "t.nc", times)
    with pytest.raises(BadParameterError, match=r"t\.nc \(u\) has no date in row 17 of time \(1 of 60 are missing\)"):
        EOFS.validate({"path": path, **given})
    assert EOFS.validate({"path": path, "samples": "time"}).resolved["shape"][0] == 60


@pytest.mark.parametrize("name", ["mode", "series", "patterns"])
def test_a_dimension_called_as_what_is_found_is_refused_beforehand(tmp_path: Path, name: str) -> None:
    path = _sampled(tmp_path / "t.nc", pd.date_range("1990-01", periods=60, freq="MS"), ("time", name, "lon"))
    with pytest.raises(BadParameterError, match=f"has {name}, as eofs calls what it finds. Rename it there"):
        EOFS.validate({"path": path})


def test_a_date_without_any_value_is_counted_and_named(tmp_path: Path) -> None:
    winds = winds_of()
    winds.u[7] = np.nan
    winds.to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    given: dict[str, Any] = {"path": str(tmp_path / "u.nc"), "variable": "u"}

    _, answer, _ = _run(**given, missing="mean")

    assert answer["samples_without_values"] == {"count": 1, "first": ["time 1980-08-01"]}
    assert "No place has a value at 1 sample, the first at time 1980-08-01." in answer["certificate"]["sentence"]
    with pytest.raises(ValueError, match="At 1 of the 120 times no place of the grid has a value"):
        _run(**given)
    with pytest.raises(BadInputError, match="No place has a value at 1 sample, the first at time 1980-08-01"):
        _run(**given, missing="leave out")


def test_what_eofs_can_not_read_is_refused_with_what_helps_here(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "b.zarr", data=np.eye(6))
    with pytest.raises(BadParameterError, match="is one array whose dimensions have no names"):
        EOFS.validate({"path": str(tmp_path / "b.zarr"), "k": 2})
    for zarr_format in (2, 3):
        zarr.open_group(tmp_path / f"g{zarr_format}.zarr", mode="w", zarr_format=zarr_format)["a"] = np.eye(6)
        with pytest.raises(BadParameterError, match="is a group with arrays whose dimensions have no names"):
            EOFS.validate({"path": str(tmp_path / f"g{zarr_format}.zarr"), "k": 2})
    for scale in (np.nan, "0.01"):
        packed = xr.Dataset({"t": (("time", "x"), np.arange(40, dtype="i2").reshape(8, 5), {"scale_factor": scale})})
        packed.to_netcdf(tmp_path / "t.nc", engine="h5netcdf")
        with pytest.raises(BadInputError, match=r"scale_factor .*, expected a number"):
            EOFS.validate({"path": str(tmp_path / "t.nc"), "k": 2})


def test_a_form_asks_which_variable_is_meant_before_anything_is_wrong(tmp_path: Path, data_folder: Path) -> None:
    winds_of().to_netcdf(tmp_path / "winds.nc", engine="h5netcdf")
    chosen = {"workload": "eofs", "run.eofs.path": f"{tmp_path}/winds.nc"}
    asked = html_of("work", chosen)
    assert re.search(r'class="wb-Field-hint">[^<]*Name one of them: u, v\.<', asked)
    assert "wb-mod-wrong" not in asked
