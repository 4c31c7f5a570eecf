"""Arrays are written whole or not at all, in formats that other programs read, and nothing is written over unasked."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import aiohttp
import dask.array as da
import numpy as np
import pytest
import xarray
import zarr

import workbench
from workbench.errors import BadInputError, ConflictError, FailedError, NotFoundError, WorkbenchError
from workbench.storage import exports
from workbench.storage.exports import table
from workbench.storage.places import Place, full, writing_to
from workbench.storage.targets import Target, target
from workbench.storage.variables import combined, dataset
from workbench.storage.writing import Writer, write
from workbench.storage.zarrs import from_store
from workbench.workloads import template

X = np.arange(40.0).reshape(10, 4)
NAMES = [f"s{i}" for i in range(10)]
YEARS = np.array(["2001", "2002", "2003", "2004"], "datetime64[s]")


def answer() -> xarray.Dataset:
    """Return a matrix in uneven blocks with labels, dates and a second coordinate of the samples, and its first row."""
    coords = {"sample": NAMES, "time": YEARS, "population": ("sample", ["a", "b"] * 5)}
    scores = ("sample", "time"), da.from_array(X, chunks=((3, 5, 2), (4,))), {"units": "m"}
    return dataset({"scores": scores, "first": ("time", X[0])}, coords, {"workload": "mine", "bound": [1, 2]})


def saved(path: Path, arrays: xarray.Dataset | None = None, *, replace: bool = False) -> Path:
    write(answer() if arrays is None else arrays, target(path, replace=replace), mark="mine-1")
    return path


@pytest.mark.parametrize("name", ["out.zarr", "out.nc"])
@pytest.mark.parametrize(
    ("dates", "unit"),
    [
        (["3000-01-01", "NaT"], "s"),
        (["3000-01-01T00:00:00.5", "0001-01-01"], "us"),
        (["2000-01-01T00:00:00.000000001", "NaT"], "ns"),
    ],
)
def test_dates_that_are_missing_or_far_away_are_saved_as_they_are(
    name: str, dates: list[str], unit: Any, tmp_path: Path
) -> None:
    given = np.array(dates, f"datetime64[{unit}]")
    path = saved(tmp_path / name, dataset({"x": ("when", [1.0, 2.0])}, {"when": given}))
    engine, times = "h5netcdf" if name == "out.nc" else "zarr", xarray.coders.CFDatetimeCoder(time_unit=unit)
    with xarray.open_dataset(path, engine=engine, decode_times=times) as found:
        np.testing.assert_array_equal(found["when"].values, given)


@pytest.mark.parametrize("name", ["out.zarr", "out.nc", "folder"])
def test_what_is_saved_is_a_dataset_to_xarray(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path / name)
    with xarray.open_dataset(path, engine="h5netcdf" if name == "out.nc" else "zarr") as found:
        np.testing.assert_array_equal(found["scores"], X)
        np.testing.assert_array_equal(found["first"], X[0])
        assert list(found["sample"].values) == NAMES
        assert list(found["time"].values.astype("datetime64[s]")) == list(YEARS)
        assert found["scores"].coords["population"].dims == ("sample",)
        assert (found.attrs["workload"], json.loads(found.attrs["bound"])) == ("mine", [1, 2])
        assert found["scores"].attrs["units"] == "m"


def curved() -> xarray.Dataset:
    """Two arrays on a grid that isn't along meridians, with a place of no latitude; labels as xarray has them."""
    lat = np.linspace(-80, 80, 40).reshape(10, 4)
    lat[3, 2] = np.nan
    of_x = {"x": ("x", YEARS), "region": (("x",), ["a", "a", "b", "b"])}
    coords = {"lat": (("y", "x"), lat), "height": ((), 2.0), **of_x}
    one, again = (
        xarray.DataArray(each, coords | {"lat": (("y", "x"), lat.copy())}, ("y", "x"))
        for each in (da.from_array(X), X + 1)
    )
    return combined({"sst": one, "row": xarray.DataArray(X[0], of_x, ("x",)), "again": again})


@pytest.mark.parametrize("name", ["out.zarr", "out.nc", "folder"])
def test_coordinates_along_several_dimensions_are_saved_as_coordinates(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path / name, curved())
    with xarray.open_dataset(path, engine="h5netcdf" if name == "out.nc" else "zarr") as found:
        np.testing.assert_array_equal(found["sst"].coords["lat"], curved()["lat"])
        assert found["sst"].coords["lat"].dims == ("y", "x")
        assert list(found["row"].coords["region"].values) == ["a", "a", "b", "b"]
        assert set(found.coords) == {"lat", "height", "x", "region"}
        assert float(found["height"]) == 2
    with np.load(saved(tmp_path / "out.npz", curved())) as found:
        assert found["lat"].shape == (10, 4)
    assert next(table(curved())) == "\t".join(("y", *map(str, YEARS)))
    assert next(table(curved()[["sst"]].transpose())).split("\t")[:3] == ["x", "region", "y1"]


def test_numpy_reads_what_is_saved_without_running_anything(tmp_path: Path) -> None:
    with np.load(saved(tmp_path / "out.npz")) as found:
        np.testing.assert_array_equal(found["scores"], X)
        assert list(found["population"]) == ["a", "b"] * 5
    path = saved(tmp_path / "out.npy", answer()[["scores"]])
    np.testing.assert_array_equal(np.load(path), X)


def test_a_table_has_labels_along_its_rows_and_names_of_its_columns() -> None:
    head, first, *rest = table(answer())
    assert head.split("\t") == ["sample", "population", *map(str, YEARS)]
    assert first == "s0\ta\t0.0\t1.0\t2.0\t3.0"
    assert len(rest) == 9
    beside = answer().assign(weight=("sample", np.ones(10)), whole=(("sample", "time"), X))
    assert [line.split("\t")[-1] for line in table(beside)] == ["weight", *["1.0"] * 10]
    with pytest.raises(BadInputError, match="x has 3 dimensions, a table two"):
        list(table(dataset({"x": (("a", "b", "c"), np.ones((2, 2, 2)))})))
    assert list(table(dataset({"s": ("component", X[0])})))[:2] == ["component\ts", "0\t0.0"]


def test_a_file_of_one_array_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="one array, and there are 2: scores, first"):
        saved(tmp_path / "out.npy")
    assert list(tmp_path.iterdir()) == []


def test_blocks_of_no_size_and_of_unknown_length_are_saved(tmp_path: Path) -> None:
    x = da.from_array(X, chunks=(3, 4))
    arrays = dataset({"some": (("row", "column"), x[x[:, 0] > 14]), "none": (("none", "column"), x[:0])})
    found = zarr.open(saved(tmp_path / "out.zarr", arrays))
    np.testing.assert_array_equal(found["some"][...], X[4:])
    assert found["none"].shape == (0, 4)


@pytest.mark.parametrize("name", ["out.zarr", "out.npz", "out.nc"])
def test_what_is_there_stays_unless_it_is_to_be_replaced(name: str, tmp_path: Path) -> None:
    saved(tmp_path / name)
    with pytest.raises(ConflictError, match="is there already"):
        saved(tmp_path / name)
    saved(tmp_path / name, dataset({"other": ("row", np.ones(3))}), replace=True)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert names_in(tmp_path / name) == {"other"}


def names_in(path: Path) -> set[str]:
    if path.suffix == ".zarr":
        return set(zarr.open_group(path, mode="r").array_keys())
    with np.load(path) if path.suffix == ".npz" else xarray.open_dataset(path, engine="h5netcdf") as found:
        return set(found)


def test_what_came_to_be_meanwhile_is_left_alone(tmp_path: Path) -> None:
    to = target(tmp_path / "out.npz")
    (tmp_path / "out.npz").write_text("somebody's")
    with pytest.raises(ConflictError, match="was created meanwhile"):
        write(answer(), to, mark="mine-1")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("out.npz", "somebody's")]


def test_a_folder_that_is_no_store_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(ConflictError, match="no Zarr store"):
        target(tmp_path / "home", replace=True)
    with pytest.raises(ConflictError, match="npz doesn't replace"):
        target(tmp_path / "home", "npz", replace=True)


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_only_files_and_stores_are_replaced(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(BadInputError, match=f"{name} is a FIFO"):
        target(tmp_path / name, "npz", replace=True)
    meanwhile = Target(full(tmp_path / name), "npz", replace=True)
    with pytest.raises(BadInputError, match=f"{name} is a FIFO"):
        write(answer(), meanwhile, mark="mine-1")
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "link"}
    assert (tmp_path / name).is_fifo()


@pytest.mark.parametrize("name", ["out.zarr", "out.npz", "out.npy", "out.nc"])
def test_a_block_that_fails_leaves_nothing(name: str, tmp_path: Path) -> None:
    def fail(block: Any) -> Any:
        raise ValueError("no such number")

    x = da.ones((4, 4), chunks=2)
    broken = dataset({"x": (("row", "column"), x.map_blocks(fail, meta=x._meta))})
    with pytest.raises(ValueError, match="no such number"):
        saved(tmp_path / name, broken)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.zarr", "out.npz", "out.npy", "out.nc"])
def test_a_file_that_does_not_fit_leaves_one_sentence_and_nothing_else(name: str, tmp_path: Path) -> None:
    x = da.random.default_rng(0).random((300, 100), chunks=(100, 100))
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
    try:
        with pytest.raises(FailedError, match=rf"{name} can't be written \(.*\)\. Make room there"):
            saved(tmp_path / name, dataset({"x": (("row", "column"), x)}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


class _Remote(Writer):
    """Writes as workers do: a store, from which this process makes the file."""

    is_local = False


@pytest.mark.parametrize("piece", [1, 50, 2**26])
@pytest.mark.parametrize("writer", [Writer, _Remote])
@pytest.mark.parametrize("name", ["out.npz", "out.nc"])
def test_numbers_of_all_types_and_blocks_of_all_shapes_are_where_they_belong(
    writer: type[Writer], piece: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_PIECE", piece)
    generator = np.random.default_rng(0)
    wanted = {
        "first": generator.random((7, 3, 5)),
        "big": generator.integers(0, 9, (4, 6)).astype(">i4"),
        "short": generator.random(11).astype("float32"),
        "flags": generator.random((5, 2)) > 0.5,
        "days": np.arange("2001-01-01", "2001-01-06", dtype="M8[D]"),
        "none": np.empty((0, 3)),
        "in memory": np.asfortranarray(generator.random((3, 4))),
    }
    arrays = {
        key: (tuple(f"{key}-{axis}" for axis in range(x.ndim)), x if key == "in memory" else da.from_array(x, chunks=2))
        for key, x in wanted.items()
    }
    to = target(tmp_path / name)
    write(dataset(arrays), to, mark="mine-1", writer=writer())
    assert [each.name for each in tmp_path.iterdir()] == [name]
    with (
        np.load(to.place.path) if name == "out.npz" else xarray.open_dataset(to.place.path, engine="h5netcdf") as found
    ):
        for key, x in wanted.items():
            np.testing.assert_array_equal(found[key], x)


@pytest.mark.parametrize("name", ["out.npy", "out.npz", "out.nc"])
def test_an_array_in_blocks_of_columns_is_converted_without_all_of_it_in_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_PIECE", 2**20)
    x = da.random.default_rng(0).random((1000, 2000), chunks=(250, 250))
    store = tmp_path / "x.zarr"
    write(dataset({"x": (("a", "b"), x)}), target(store), mark="mine-1")
    tracemalloc.start()
    try:
        stored = from_store(zarr.open_array(store / "x"))
        write(dataset({"x": (("a", "b"), stored)}), target(tmp_path / name), mark="mine-1")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < x.nbytes / 2
    np.testing.assert_array_equal(read(tmp_path / name), x.compute())


def read(path: Path) -> Any:
    if path.suffix == ".nc":
        with xarray.open_dataset(path, engine="h5netcdf") as found:
            return found["x"].values
    found = np.load(path)
    return found if path.suffix == ".npy" else found["x"]


def test_text_and_a_single_number_in_blocks_are_saved_in_files(tmp_path: Path) -> None:
    names = da.from_array(np.array(NAMES), chunks=4)
    arrays = dataset({"names": ("row", names), "one": ((), da.from_array(X, chunks=5).sum())})
    with np.load(saved(tmp_path / "out.npz", arrays)) as found:
        assert (list(found["names"]), found["one"], found["one"].shape) == (NAMES, X.sum(), ())
    with xarray.open_dataset(saved(tmp_path / "out.nc", arrays), engine="h5netcdf") as found:
        assert (list(found["names"].values), found["one"]) == (NAMES, X.sum())


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ("out.docx", BadInputError, r"an unknown ending.*\.zarr.*\.npz.*\.npy.*\.nc"),
        ("gone/out.npz", NotFoundError, "There is no folder .*gone. Make it first"),
        ("https://example.org/out.npz", BadInputError, "can be read, but not written to"),
        ("memory://mine/out.zarr", BadInputError, "would be lost with the process"),
    ],
)
def test_where_nothing_can_be_written_is_said_before_anything_runs(
    given: str, kind: type[WorkbenchError], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=sentence):
        target(given)
    with pytest.raises(BadInputError, match=f"save of tall_skinny_svd: .*{sentence}"):
        template("tall_skinny_svd").validate({"shape": [100, 5], "save": given})


def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write where others may not.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BadInputError, match=f"{tmp_path} may not be written to"):
        target(tmp_path / "out.zarr")


def test_a_workload_saves_neither_over_what_it_reads_nor_three_arrays_as_one(tmp_path: Path) -> None:
    path = tmp_path / "d.npy"
    np.save(path, X)
    svd = template("svd_of_file")
    given = {"path": str(path), "save": str(path), "replace": True}
    with pytest.raises(BadInputError, match="the answer has u, s, v"):
        svd.validate(given)
    zarr.save_array(str(tmp_path / "d.zarr"), X)
    (tmp_path / "link.zarr").symlink_to(tmp_path / "d.zarr")
    zarr.open_group(str(tmp_path / "group.zarr")).create_array("a", data=X)
    for read, save in (("d", "d"), ("link", "d"), ("d", "link"), ("group.zarr/a", "group")):
        path = str(tmp_path / (read if "/" in read else f"{read}.zarr"))
        given = {"path": path, "save": str(tmp_path / f"{save}.zarr"), "replace": True}
        with pytest.raises(BadInputError, match=r"and path reads .*written over while it is read"):
            svd.validate(given)
    project = {"path": str(tmp_path / "d.zarr"), "components": str(tmp_path / "group.zarr")}
    given = {**project, "save": str(tmp_path / "group.zarr"), "replace": True}
    with pytest.raises(BadInputError):
        template("genotype_project").validate(given)


def test_where_an_answer_is_saved_is_no_part_of_what_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = template("tall_skinny_svd").validate({"shape": [100, 5], "save": "out.npz"})
    assert (found.save, found.given["save"]) == (str(tmp_path / "out.npz"), str(tmp_path / "out.npz"))
    assert not {"save", "replace"} & found.resolved.keys()
    assert "save" not in template("array_sum").schema()["properties"]


def test_numbers_of_a_zip_are_stored_as_they_are(tmp_path: Path) -> None:
    with zipfile.ZipFile(saved(tmp_path / "out.npz")) as archive:
        assert {each.compress_type for each in archive.infolist()} == {zipfile.ZIP_STORED}


def test_an_id_is_no_run_and_the_sentence_says_how_to_get_one(tmp_path):
    with pytest.raises(BadInputError, match=r"run is 'last'\. Give the run itself, such as .*show\('last'\)"):
        workbench.save("last", tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("to", "error", "told"),
    [
        ("gs://data/x.zarr", aiohttp.ServerDisconnectedError(), "gs://data/x.zarr can't be written (Server disco"),
        ("gs://data/x.zarr", ValueError("a function's own"), None),
        # A server is read from where a disk is written to, and this error of it is an OSError too.
        ("/data/x.zarr", aiohttp.ClientOSError(104, "Connection reset by peer"), None),
        ("/data/x.zarr", OSError(28, "No space left on device"), "left on device). Make room there, or choose another"),
    ],
)
def test_what_a_server_says_is_about_writing_only_where_one_is_written_to(
    to: str, error: Exception, told: str | None
) -> None:
    raised = pytest.raises(FailedError if told else type(error), match=re.escape(told or str(error)))
    with raised, writing_to(Place(to)):
        raise error
