from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

from workbench.errors import BadInputError
from workbench.storage.targets import target
from workbench.storage.writing import write
from workbench.workloads import reduce_file, template

REDUCE = template("reduce_file")
CUBE = np.random.default_rng(0).normal(size=(30, 8, 7)) * 3 + 1


def _file(folder: Path, kind: str, values: np.ndarray[Any, Any] = CUBE) -> str:
    path = str(folder / f"a.{kind}")
    if kind == "npy":
        np.save(path, values)
    elif kind == "npz":
        np.savez(path, x=values)
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=values, chunks=(7, 5, 7)[: values.ndim])
    elif kind == "zarr":
        zarr.create_array(path, shape=values.shape, chunks=(7, 5, 7)[: values.ndim], dtype=values.dtype)[:] = values
    else:
        coords = {"time": np.arange(values.shape[0]), "lat": np.linspace(-80, 80, values.shape[1])}
        xr.Dataset({"u": (("time", "lat", "lon")[: values.ndim], values)}, coords).to_netcdf(path, engine="h5netcdf")
    return path


def _computed(client: Any, **given: Any) -> tuple[dict[str, Any], Any]:
    checked = REDUCE.validate(given, threads=2)
    built = REDUCE.build(checked)
    results = built | dict(zip(lazy := REDUCE.collections(built), client.persist(list(lazy.values())), strict=True))
    results |= {name: results[name].compute() for name in REDUCE.gathered(lazy)}
    check = REDUCE.check(checked, results, client)
    assert check is not None
    assert check.passed, check.what
    return REDUCE.summarise(results), REDUCE.arrays(results)[given["what"]]


@pytest.mark.parametrize("kind", ["npy", "npz", "h5", "zarr", "nc"])
def test_any_array_is_reduced_along_any_dimensions_as_numpy_does(tmp_path: Path, quick_client: Any, kind: str) -> None:
    path = _file(tmp_path, kind)
    for what, over, axes in (
        ("mean", "0", 0),
        ("std", None, None),
        ("var", "0, 1", (0, 1)),
        ("max", "1, -1", (1, 2)),
        ("sum", "0", 0),
    ):
        summary, found = _computed(quick_client, path=path, what=what, over=over)
        expected = getattr(np, what)(CUBE, axis=axes)
        np.testing.assert_allclose(found.data.compute(), expected, rtol=1e-12)
        assert summary.get("value") == (float(found.data) if over is None else None)
    _, found = _computed(quick_client, path=path, what="percentile", over="0", percent=30)
    np.testing.assert_allclose(found.data.compute(), np.percentile(CUBE, 30, axis=0))
    _, found = _computed(quick_client, path=path, what="histogram", bins=12)
    np.testing.assert_array_equal(found.data.compute(), np.histogram(CUBE, 12)[0])
    edges = np.histogram(CUBE, 12)[1]
    np.testing.assert_allclose(found.coords["left"], edges[:-1])
    _, found = _computed(quick_client, path=path, what="histogram", bins=12, over="0, -1")
    expected = [np.histogram(CUBE[:, place], edges)[0] for place in range(CUBE.shape[1])]
    np.testing.assert_array_equal(found.data.compute(), expected)


def test_dimensions_are_reduced_by_name_and_those_left_keep_their_coordinates(
    tmp_path: Path, quick_client: Any
) -> None:
    path = _file(tmp_path, "nc")

    _, found = _computed(quick_client, path=path, what="mean", over="time, lon", select="time=10:19", persist=True)

    np.testing.assert_allclose(found.data.compute(), CUBE[10:20].mean(axis=(0, 2)))
    assert found.dims == ("lat",)
    np.testing.assert_allclose(found.coords["lat"], np.linspace(-80, 80, 8))


@pytest.mark.parametrize(
    ("what", "attributes"),
    [
        ("mean", {"long_name": "mean of wind", "units": "m s-1"}),
        ("percentile", {"long_name": "percentile 50 of wind", "units": "m s-1"}),
        ("var", {"long_name": "variance of wind"}),
    ],
)
def test_a_statistic_has_its_own_name_and_the_unit_of_what_is_reduced(
    tmp_path: Path, quick_client: Any, what: str, attributes: dict[str, str]
) -> None:
    wind = xr.DataArray(CUBE, dims=("time", "lat", "lon"), attrs={"long_name": "wind", "units": "m s-1"})
    wind.to_dataset(name="u").to_netcdf(tmp_path / "u.nc", engine="h5netcdf")

    _, found = _computed(quick_client, path=str(tmp_path / "u.nc"), what=what, over="time")

    assert found.attrs == attributes


@pytest.mark.parametrize(
    ("what", "over", "warns"), [("mean", "lat, lon", True), ("mean", "time", False), ("max", None, False)]
)
def test_a_mean_over_latitudes_says_that_it_is_not_weighted(tmp_path: Path, what: str, over: str, warns: bool) -> None:
    notes = REDUCE.validate({"path": _file(tmp_path, "nc"), "what": what, "over": over}).notes

    assert any("isn't weighted by area" in note for note in notes) == warns


def test_coordinates_that_number_no_dimension_stay_with_what_is_left(tmp_path: Path, quick_client: Any) -> None:
    lat = np.linspace(-80, 80, 56).reshape(8, 7)
    coords = {"lat": (("y", "x"), lat), "season": ("time", np.arange(30) % 4), "region": ("x", list("aabbccd"))}
    xr.Dataset({"sst": (("time", "y", "x"), CUBE)}, coords).to_netcdf(tmp_path / "curved.nc", engine="h5netcdf")

    _, found = _computed(quick_client, path=str(tmp_path / "curved.nc"), what="mean", over="time")
    write(found.compute().to_dataset(), target(tmp_path / "out.nc"), mark="mine-1")

    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as saved:
        np.testing.assert_allclose(saved["mean"], CUBE.mean(axis=0))
        assert set(saved["mean"].coords) == {"lat", "region"}
        np.testing.assert_array_equal(saved["lat"], lat)


def test_missing_values_are_refused_with_their_place_or_left_out_and_counted(tmp_path: Path, quick_client: Any) -> None:
    holed = CUBE.copy()
    holed[3, 4, 5] = np.nan
    holed[:, 0, 0] = np.nan
    path = _file(tmp_path, "npy", holed)
    with pytest.raises(ValueError, match=r"31 of the 1,680 .* the first at \[0, 0, 0\]: nan.*leave out"):
        REDUCE.compute(REDUCE.validate({"path": path}), quick_client)

    _, found = _computed(quick_client, path=path, what="histogram", over="0", missing="leave out")
    np.testing.assert_array_equal(found.data.sum(axis=-1), (~np.isnan(holed)).sum(axis=0))
    for what in ("mean", "std", "var", "min", "percentile"):
        summary, found = _computed(quick_client, path=path, what=what, over="0", missing="leave out")
        values = found.data.compute()
        assert summary["missing"] == 31
        assert summary["first"][0] is None
        assert np.isnan(values[0, 0])
        expected = np.nanpercentile(holed[:, 4], 50, axis=0) if what == "percentile" else None
        np.testing.assert_allclose(
            values[4], getattr(np, f"nan{what}")(holed[:, 4], axis=0) if expected is None else expected
        )
    assert REDUCE.compute(REDUCE.validate({"path": path, "what": "sum", "missing": "leave out"}), quick_client)[0][
        "value"
    ] == pytest.approx(np.nansum(holed))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_percentile_is_the_one_of_numpy_or_refused_where_its_values_do_not_fit(
    tmp_path: Path, quick_client: Any, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    outlier, rounding = np.abs(CUBE), 10 * float(np.finfo(dtype).eps)
    outlier[3, 4, 5] = 1e20
    for values in (CUBE, outlier, np.where(CUBE < 1, -0.0, CUBE), np.full(CUBE.shape, -7.5), np.sign(CUBE)):
        values = values.astype(dtype)
        path = _file(tmp_path, "npy", values)
        for percent in (0, 37.3, 50, 100):
            summary, _ = _computed(quick_client, path=path, what="percentile", percent=percent)
            expected = np.percentile(values.astype("float64"), percent)
            assert summary["value"] == pytest.approx(expected, rel=rounding, abs=rounding)
    holed = np.where(CUBE < 0, np.nan, CUBE)
    path = _file(tmp_path, "npy", holed)
    summary, _ = _computed(quick_client, path=path, what="percentile", percent=90, missing="leave out")
    assert summary["value"] == pytest.approx(np.nanpercentile(holed, 90), rel=1e-14)
    monkeypatch.setattr(reduce_file, "WHOLE_BYTES", 8 * 200)
    sentence = r"A percentile over axis_0, axis_1 of .*a\.npy needs 1.88 kiB in one worker's memory, and 1.56 kiB are"
    with pytest.raises(BadInputError, match=sentence):
        REDUCE.validate({"path": path, "what": "percentile", "over": "0, 1"})


def test_a_percentile_that_is_not_the_one_asked_for_fails_its_check(tmp_path: Path, quick_client: Any) -> None:
    values = np.sort(CUBE, axis=None)
    checked = REDUCE.validate({"path": _file(tmp_path, "npy"), "what": "percentile"})
    right = REDUCE.build(checked)["value"].compute()
    for value, passes in ((right, True), (values[839], False), (values[838], False), (9.54e13, False)):
        check = REDUCE.check(checked, {"value": da.asarray(value), "gaps": 0, "edges": None}, quick_client)
        assert check is not None
        assert check.passed == passes, check.what


@pytest.mark.parametrize("what", ["sum", "mean", "std", "var", "min", "max", "percentile", "histogram"])
def test_where_nothing_is_left_to_reduce_one_sentence_says_so(tmp_path: Path, quick_client: Any, what: str) -> None:
    path = _file(tmp_path, "npy", np.full((30, 8), np.nan))
    with pytest.raises(ValueError, match=r"^All values of .*/a\.npy are missing\.$"):
        REDUCE.compute(REDUCE.validate({"path": path, "what": what, "missing": "leave out"}), quick_client)


def test_a_spread_around_a_large_mean_is_the_one_of_numpy(tmp_path: Path, quick_client: Any) -> None:
    holed = np.where(CUBE < 0, np.nan, CUBE) + 1e6
    holed[:, 0] = np.nan
    path = _file(tmp_path, "zarr", holed)
    for over, axes in ((None, None), ("0", 0), ("1, 2", (1, 2))):
        _, found = _computed(quick_client, path=path, what="std", over=over, missing="leave out")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.nanstd(holed, axis=axes)
        np.testing.assert_allclose(found.data.compute(), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("what", "over"), [("percentile", None), ("percentile", "0"), ("std", "0"), ("histogram", None)]
)
def test_a_notebook_cell_of_it_runs_as_it_stands(tmp_path: Path, what: str, over: str | None) -> None:
    parameters = REDUCE.validate({"path": _file(tmp_path, "npy"), "what": what, "over": over, "missing": "leave out"})
    names: dict[str, Any] = {}
    # Annotations of this file are not evaluated, those of a notebook are.
    exec(compile(REDUCE.cell(parameters), "cell", "exec", dont_inherit=True), names)
    asked = {"percentile": (CUBE, 50), "std": (CUBE,), "histogram": (CUBE, 100)}[what]
    expected = np.histogram(*asked)[0] if what == "histogram" else getattr(np, what)(*asked, axis=0 if over else None)
    found = names["value"].compute()
    found = found.sum(axis=(0, 1)) if what == "histogram" and over else found
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("over", [None, "0"])
@pytest.mark.parametrize("what", ["min", "max"])
@pytest.mark.parametrize("missing", ["refuse", "leave out"])
def test_extremes_of_whole_numbers_are_exact_and_their_check_can_fail(
    tmp_path: Path, quick_client: Any, what: str, over: str | None, missing: str
) -> None:
    for dtype, numbers in (("int64", [-(2**63), 3, 2**62 - 3]), ("uint64", [0, 3, 2**64 - 3]), ("uint8", [0, 9, 255])):
        values = np.array([numbers, numbers], dtype)
        given = {"path": _file(tmp_path, "npy", values), "what": what, "over": over, "missing": missing}
        summary, found = _computed(quick_client, **given)
        expected = getattr(values, what)(axis=None if over is None else 0)
        np.testing.assert_array_equal(np.asarray(found.data), expected)
        assert found.data.dtype == dtype
        assert (summary["value"] if over is None else summary["first"]) == expected.tolist()
        checked = REDUCE.validate(given, threads=2)
        wrong = da.asarray(expected + np.array(-1 if what == "max" else 1).astype(dtype))
        check = REDUCE.check(checked, REDUCE.build(checked) | {"value": wrong}, quick_client)
        assert check is not None
        assert not check.passed


def test_infinity_is_no_missing_value(tmp_path: Path, quick_client: Any) -> None:
    endless = CUBE.copy()
    endless[3, 4, 5], endless[2, 1, 0] = np.nan, -np.inf
    path = _file(tmp_path, "npy", endless)
    for missing in ("refuse", "leave out"):
        with pytest.raises(
            ValueError, match=r"infinite, which is not missing: 1 .* \[2, 1, 0\]: -inf\. Replace them\.$"
        ):
            REDUCE.compute(REDUCE.validate({"path": path, "what": "max", "missing": missing}), quick_client)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"over": "3"}, r"over of reduce_file is '3'\. Name some of the dimensions of .*a\.npy: 0, 1, 2"),
        ({"over": "time"}, r"Name some of the dimensions of .*: 0, 1, 2"),
        ({"select": "time=3"}, "has no dimension 'time' to select. It has: 0, 1, 2"),
        ({"select": "0=30"}, "0 goes from 0 to 29 in 30 steps"),
        ({"what": "median"}, "sum, mean, std, var, min, max, percentile or histogram"),
    ],
)
def test_what_can_not_be_reduced_is_said_in_one_sentence(tmp_path: Path, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        REDUCE.validate({"path": _file(tmp_path, "npy"), **more})


@pytest.mark.parametrize("kind", ["npy", "npz", "h5", "zarr"])
def test_a_part_of_an_array_without_names_is_selected_by_positions(
    tmp_path: Path, quick_client: Any, kind: str
) -> None:
    _, found = _computed(quick_client, path=_file(tmp_path, kind), what="sum", select="2=3:5, 0=20:29, 1=4", over="0")
    np.testing.assert_allclose(found.data.compute(), CUBE[20:30, 4, 3:6].sum(axis=0))


@pytest.mark.parametrize(("kind", "chunk"), [("npy", 1), ("nc", 1), ("zarr", 7)])
def test_the_first_part_of_a_dimension_is_selected_up_to_the_end_of_a_chunk(
    tmp_path: Path, quick_client: Any, kind: str, chunk: int
) -> None:
    path = _file(tmp_path, kind)
    if kind == "zarr":
        xr.Dataset({"t": (("time", "lat", "lon"), CUBE)}).chunk(time=7).to_zarr(path, mode="w", consolidated=False)
    for select in ("0=:8%", *(["time=:8%"] if kind != "npy" else [])):
        _, found = _computed(quick_client, path=path, what="sum", select=select, over="0")
        np.testing.assert_allclose(found.data.compute(), CUBE[: max(3, chunk)].sum(axis=0))
    with pytest.raises(BadInputError, match=r"twice|no dimension"):
        REDUCE.validate({"path": path, "select": "0=:8%, time=:8%"})


def test_dimensions_have_their_names_where_all_of_a_variable_is_reduced(tmp_path: Path, quick_client: Any) -> None:
    holed = CUBE.copy()
    holed[3, 4, 5] = np.nan
    path = _file(tmp_path, "nc", holed)
    assert "mean over time, lat, lon: one number." in REDUCE.validate({"path": path}).notes
    with pytest.raises(ValueError, match="the first at position 3 of time, 4 of lat, 5 of lon: nan"):
        REDUCE.compute(REDUCE.validate({"path": path}), quick_client)
