from __future__ import annotations

import functools
import gzip
import http.server
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr

from tests.winds import winds_of
from workbench.cli import main
from workbench.errors import BadInputError, MissingError
from workbench.session import Session
from workbench.views.work import _choices, _holds
from workbench.workloads.contents import Contents, look


def _look(path: Path) -> Contents:
    return Session().look(str(path))


@pytest.mark.parametrize("kind", ["NetCDF 4", "NetCDF 3", "Zarr"])
def test_variables_are_told_with_dimensions_and_what_can_be_chosen(tmp_path: Path, kind: str) -> None:
    winds = winds_of()
    if kind == "Zarr":
        winds.to_zarr(tmp_path / "winds", zarr_format=2)
    else:
        winds.to_netcdf(tmp_path / "winds", engine={"NetCDF 4": "h5netcdf", "NetCDF 3": "scipy"}[kind])  # type: ignore[call-overload]

    found = _look(tmp_path / "winds")

    u = next(each for each in found.arrays if each.name == "u")
    assert (u.shape, u.dtype, u.dims, u.title) == ((120, 9, 12), "float64", ("time", "lat", "lon"), "m s-1")
    time = next(each for each in found.dimensions if each.name == "time")
    assert (time.length, time.first, time.last) == (120, "1980-01-01", "1989-12-01")
    assert set(found.choices["variable"]) == {"u", "v"}
    assert set(found.choices["samples"]) >= {"time", "lat", "lon", "time, lat"}
    assert time.calendar is None


def test_a_calendar_is_named_with_the_times_that_it_has(tmp_path: Path) -> None:
    winds_of().convert_calendar("360_day", align_on="date").to_netcdf(tmp_path / "winds.nc", engine="h5netcdf")

    (time,) = (each for each in _look(tmp_path / "winds.nc").dimensions if each.name == "time")

    assert time.line() == "120, 1980-01-01 to 1989-12-01, calendar 360_day"


def test_records_and_what_is_empty_are_told_and_not_offered(tmp_path: Path) -> None:
    records = np.zeros((3, 2), [("a", "<f8"), ("b", "i4")])
    apart = np.dtype({"names": ["a"], "formats": ["f8"], "offsets": [8]})
    np.save(tmp_path / "a.npy", records)
    np.savez(tmp_path / "a.npz", x=records, y=np.zeros(3, apart), z=np.zeros((0, 4)))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = records
        file.create_dataset("y", (2,), dtype="(3,)f8")
    zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2).create_array("x", data=records)

    for kind, count in (("npy", 1), ("npz", 3), ("h5", 2), ("zarr", 1)):
        found = _look(tmp_path / f"a.{kind}")
        assert (len(found.arrays), found.choices) == (count, {})
        assert found.arrays[0].line().startswith("3 × 2, [('a', '<f8'), ('b', '<i4')], 72 B")


def test_plain_arrays_are_told_with_chunks_shards_and_compression(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 4)))
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((3, 4)), y=np.zeros(3, "int8"))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("group/x", data=np.zeros((30, 40)), chunks=(10, 40), compression="gzip")
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((30, 40), "f4"), chunks=(10, 20))
    zarr.create_array(tmp_path / "b.zarr", data=np.ones((60, 80), "f4"), chunks=(10, 20), shards=(30, 40))
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((3, 64, 80), "u1"), tile=(16, 16), photometric="minisblack")

    lines = {
        name: [each.line() for each in _look(tmp_path / f"a.{name}").arrays] for name in ("npy", "npz", "h5", "zarr")
    }

    assert lines["npy"] == ["3 × 4, float64, 96 B"]
    assert lines["npz"] == ["3 × 4, float64, 96 B, deflate", "3, int8, 3 B, deflate"]
    assert lines["h5"] == ["30 × 40, float64, 9.38 kiB, chunks of 10 × 40, gzip"]
    assert lines["zarr"] == ["30 × 40, float32, 4.69 kiB, chunks of 10 × 20, zstd"]
    (sharded,), (tiled,) = (_look(tmp_path / name).arrays for name in ("b.zarr", "a.tif"))
    assert sharded.line() == "60 × 80, float32, 18.8 kiB, chunks of 10 × 20 in shards of 30 × 40, zstd"
    assert "chunks of 1 × 16 × 16" in tiled.line()
    assert _look(tmp_path / "a.h5").choices == {"array": ("group/x",)}


def test_what_can_not_be_looked_into_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    for name in ("a.txt", "missing"):
        with pytest.raises(BadInputError, match=name):
            _look(tmp_path / name)
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInputError, match=r"There is no array in .*folder\."):
        _look(tmp_path / "folder")
    (tmp_path / "text.csv").write_text("name,a,b\nx,1,2\ny,3,4\n")
    told = _look(tmp_path / "text.csv")
    assert told.arrays[0].shape == (2, 2)
    assert told.remarks[:2] == ("Columns: a, b.", "Columns without numbers: name. Name as array those that are meant.")
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(b"1,2\n3,4\n"))
    (tmp_path / "table.txt").write_text("1,2\n3,4\n")
    with pytest.raises(BadInputError, match=r"table\.csv\.gz is compressed as a whole.*gunzip"):
        _look(tmp_path / "table.csv.gz")
    with pytest.raises(BadInputError, match=r"has a name that ends with \.csv or \.tsv"):
        _look(tmp_path / "table.txt")


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    winds_of().to_netcdf(tmp_path / "winds.nc", engine="scipy")
    monkeypatch.setattr("workbench.storage.sources.find_spec", lambda name: None)

    with pytest.raises(MissingError, match=r"needs scipy: pip install 'h5netcdf>=1.4' 'scipy>=1.13'"):
        _look(tmp_path / "winds.nc")


def test_the_terminal_looks_in_a_process_that_can_be_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xr.Dataset({"u": (("time", "x"), np.zeros((3, 4)))}).to_netcdf(tmp_path / "u.nc", engine="h5netcdf")
    loaded = set(sys.modules)

    assert main(["look", str(tmp_path / "u.nc"), "--json"]) == 0
    assert Contents.model_validate_json(capsys.readouterr().out).choices["variable"] == ("u",)
    assert "cfgrib" not in set(sys.modules) - loaded
    # No column in which nothing stands: these dimensions have no coordinates.
    assert main(["look", str(tmp_path / "u.nc")]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines() if "length" in line] == [
        ["dimension", "length"]
    ]


def test_a_form_offers_what_the_file_holds_and_keeps_what_was_typed(tmp_path: Path) -> None:
    winds_of().to_netcdf(tmp_path / "winds.nc", engine="h5netcdf")
    found = _look(tmp_path / "winds.nc")

    assert _choices(found, {"variable": "w"})["variable"] == [("u", "u"), ("v", "v"), ("w", "w")]
    assert "time 120 × lat 9 × lon 12, float64" in _holds(found)


def test_what_is_packed_and_what_is_cut_short_is_said(tmp_path: Path) -> None:

    data = xr.Dataset({"t": (("time", "lat"), np.full((4, 5), 281.5))})
    packing = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    data.to_netcdf(tmp_path / "p.nc", encoding={"t": packing})
    (held,) = look(str(tmp_path / "p.nc")).arrays
    assert held.packing == "packed (× 0.01 + 280)"
    assert "int16" in held.line()
    np.save(tmp_path / "whole.npy", np.zeros((100, 30)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:5000])
    with pytest.raises(BadInputError, match=r"is cut short: .* needs 24128 bytes and it has 5000"):
        look(str(tmp_path / "cut.npy"))


def test_text_in_zarr_is_listed_and_never_offered_as_numbers(tmp_path: Path) -> None:
    data = xr.Dataset({"s": (("x",), np.array(["a", "b"], dtype=object)), "n": (("y", "x"), np.eye(2))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.to_zarr(tmp_path / "s.zarr")
    found = _look(tmp_path / "s.zarr")
    assert {each.name: each.dtype for each in found.arrays} == {"n": "float64", "s": "str"}
    assert found.choices["variable"] == ("n",)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_group_on_a_server_that_lists_nothing_is_known_by_its_metadata(tmp_path: Path, zarr_format: Any) -> None:
    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def list_directory(self, path: Any) -> None:
            self.send_error(404)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of metadata that version 3 doesn't have yet
        winds_of().to_zarr(tmp_path / "w.zarr", zarr_format=zarr_format, consolidated=True)
    zarr.open_group(tmp_path / "bare.zarr", mode="w", zarr_format=zarr_format).create_array("x", data=np.ones((4, 3)))
    handler = functools.partial(Silent, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        found, bare, named = look(f"{url}/w.zarr"), look(f"{url}/bare.zarr"), look(f"{url}/bare.zarr/x")
        server.shutdown()
    here = look(str(tmp_path / "w.zarr"))
    assert [(each.name, each.shape, each.dims) for each in found.arrays] == [
        (each.name, each.shape, each.dims) for each in here.arrays
    ]
    assert found.choices == here.choices
    assert (bare.arrays, bare.remarks) == ((), ("Its server can't list what is in it: name the array.",))
    assert named.arrays[0].shape == (4, 3)


def test_no_name_in_a_file_begins_a_line_of_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x\nFAKE LINE.npz"
    np.savez(file, **{"a\nFAKE LINE\x1b[2J": np.zeros((2, 3)), "b": np.zeros(3)})
    assert main(["look", str(file)]) == 0
    said = capsys.readouterr().out
    # A long path is folded at the width of the terminal.
    assert " ".join(said.split()).count("FAKE LINE") >= 2
    assert not [line for line in said.splitlines() if line.lstrip().startswith("FAKE LINE")]
    assert "\x1b" not in said
