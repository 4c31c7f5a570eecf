"""Meaning of stored numbers: packed data of NetCDF and of xarray's Zarr, as xarray and h5py write them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr

from workbench.errors import BadInputError
from workbench.genotypes import open_genotypes
from workbench.storage.finding import find_array
from workbench.workloads import template

SVD = template("svd_of_file")
_RANDOM = np.random.default_rng(0)
FIELD = 280 + _RANDOM.normal(size=(400, 6)) @ np.diag([9, 5, 3, 2, 1, 0.5]) @ _RANDOM.normal(size=(6, 50))
PACKED = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}

Writer = Callable[[xarray.Dataset, Path, dict[str, Any]], str]


def _netcdf(data: xarray.Dataset, folder: Path, encoding: dict[str, Any]) -> str:
    data.to_netcdf(folder / "t.nc", engine="h5netcdf", encoding={"t": encoding})
    return str(folder / "t.nc")


def _zarr(version: int) -> Writer:
    def write(data: xarray.Dataset, folder: Path, encoding: dict[str, Any]) -> str:
        data.to_zarr(folder / "t.zarr", mode="w", zarr_format=version, encoding={"t": encoding}, consolidated=False)  # type: ignore[call-overload]
        return str(folder / "t.zarr")

    return write


WRITERS = {"NetCDF": _netcdf, "Zarr 2": _zarr(2), "Zarr 3": _zarr(3)}


def _dataset(values: Any) -> xarray.Dataset:
    return xarray.Dataset({"t": (("time", "place"), values)})


def _values(path: str, **given: Any) -> Any:
    summary, check = SVD.compute(SVD.validate({"path": path, "array": "t"} | given))
    assert check.passed, check.what
    return summary["singular_values"], check.what


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_coordinates_are_not_offered_where_something_else_is_there(write: Writer, tmp_path: Path) -> None:
    coordinates = {"time": np.arange(30.0), "place": np.arange(8.0)}
    data = _dataset(np.ones((30, 8))).assign_coords(coordinates)
    path = write(data, tmp_path, {})
    assert find_array(path, None).array == "t"
    with pytest.raises(BadInputError, match=r"time\) has 1 dimension"):
        find_array(path, "time")
    path = write(data.assign(more=data.t), tmp_path, {})
    with pytest.raises(BadInputError, match=r"holds 2 arrays. Name one of them as array: more, t\."):
        find_array(path, None)
    with pytest.raises(BadInputError, match=r"no array 'x' in .* Choose one of: more, t\."):
        find_array(path, "x")


def test_a_file_of_coordinates_alone_offers_them(tmp_path: Path) -> None:
    xarray.Dataset(coords={"time": np.arange(30.0), "place": np.arange(8.0)}).to_zarr(
        tmp_path / "t.zarr", consolidated=False
    )
    with pytest.raises(BadInputError, match="Name one of them as array: place, time"):
        find_array(str(tmp_path / "t.zarr"), None)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_packed_numbers_are_unpacked_as_xarray_does_and_it_is_said(write: Writer, tmp_path: Path) -> None:
    path = write(_dataset(FIELD), tmp_path, PACKED)
    rounded = np.round((FIELD - 280) / 0.01) * 0.01 + 280
    found, said = _values(path)
    np.testing.assert_allclose(found, np.linalg.svd(rounded, compute_uv=False), rtol=1e-9)
    parameters = SVD.validate({"path": path, "array": "t"})
    note = "Unpacked by scale_factor 0.01 and add_offset 280."
    assert parameters.notes[0] == note
    assert note in said
    assert find_array(path, "t").unpack == {"missing": [-32768], "scale": 0.01, "offset": 280.0}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize(
    "encoding",
    [
        PACKED,
        {"dtype": "int16", "scale_factor": 0.01, "missing_value": -30000},
        {"dtype": "float32", "_FillValue": -9999.0},
        {"dtype": "float64", "_FillValue": 1e20},
        {"dtype": "int16", "_Unsigned": "true", "scale_factor": 0.01, "add_offset": -300.0, "_FillValue": -1},
    ],
    ids=["packed", "missing_value", "float32", "float64", "_Unsigned"],
)
def test_missing_values_are_refused_with_their_place_and_number(
    write: Writer, encoding: dict[str, Any], tmp_path: Path
) -> None:
    values = FIELD - 280
    values[7:9, 3:5] = np.nan
    parameters = SVD.validate({"path": write(_dataset(values), tmp_path, encoding), "array": "t", "chunks": [400, 50]})
    with pytest.raises(ValueError, match=r"are missing: 4 of the 20,000 in rows 0 to 399 .* row 7, column 3: "):
        SVD.compute(parameters)


def test_a_cell_unpacks(tmp_path: Path) -> None:
    for write in WRITERS.values():
        path = write(_dataset(FIELD), tmp_path, PACKED)
        found: dict[str, Any] = {"__name__": "__main__"}
        exec(SVD.cell(SVD.validate({"path": path, "array": "t", "method": "dask"})), found)
        np.testing.assert_allclose(found["s"].compute(), _values(path)[0], rtol=1e-9)


def _hdf5(folder: Path, data: Any, attributes: dict[str, Any], **how: Any) -> str:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("t", data=data, **how).attrs.update(attributes)
    return str(folder / "x.h5")


def _svd_of(path: str) -> Any:
    return _values(path)[0]


@pytest.mark.parametrize("attribute", [np.array([0.5]), np.float32(0.5), 0.5, np.array(0.5)])
def test_an_attribute_may_be_a_number_or_an_array_of_one(attribute: Any, tmp_path: Path) -> None:
    x = _RANDOM.integers(-300, 300, (40, 5)).astype("i2")
    found = _svd_of(_hdf5(tmp_path, x, {"scale_factor": attribute}))
    np.testing.assert_allclose(found, np.linalg.svd(x / 2, compute_uv=False))


def test_signed_bytes_that_are_called_unsigned_are_read_so(tmp_path: Path) -> None:
    x = _RANDOM.integers(0, 255, (40, 5)).astype("u1")
    said = {"_Unsigned": "true", "_FillValue": np.int8(-1), "valid_range": np.array([0, -2], "i1")}
    path = _hdf5(tmp_path, x.view("i1"), said)
    np.testing.assert_allclose(_svd_of(path), np.linalg.svd(x.astype(float), compute_uv=False))
    assert "Unpacked by _Unsigned, as uint8. 255 (_FillValue) stands for missing values" in " ".join(
        SVD.validate({"path": path}).notes
    )
    x[3, 4] = 255
    with pytest.raises(ValueError, match=r"1 of the 200 .* row 3, column 4: -1\."):
        _svd_of(_hdf5(tmp_path, x.view("i1"), said))


@pytest.mark.parametrize(
    ("attributes", "absent"),
    [
        ({"valid_range": np.array([0, 90], "i2")}, 2),
        ({"valid_min": np.int16(0)}, 1),
        ({"valid_max": np.int16(90), "scale_factor": 0.1}, 1),
        ({"valid_max": 9.0, "scale_factor": 0.1}, 1),
        ({"valid_max": -0.0, "valid_min": -9.0, "scale_factor": -0.1}, 2),
        ({"valid_range": np.array([0, 90], "i2"), "scale_factor": -0.1}, 2),
        ({"valid_min": np.int16(0), "valid_max": 0.1, "scale_factor": -0.1}, 1),
        ({"valid_range": np.array([-5, 95], "i2")}, 0),
    ],
)
def test_values_outside_a_valid_range_are_missing(attributes: dict[str, Any], absent: int, tmp_path: Path) -> None:
    x = _RANDOM.integers(0, 90, (40, 5)).astype("i2")
    x[1, 1:3] = -5, 95
    x[2, :2] = 0, 90
    path = _hdf5(tmp_path, x, attributes)
    if not absent:
        _svd_of(path)
    else:
        with pytest.raises(ValueError, match=rf"{absent} of the 200 .* row 1, column"):
            _svd_of(path)


def test_what_netcdf_fills_a_new_variable_with_is_missing_and_a_plain_hdf5_fill_is_not(tmp_path: Path) -> None:
    x = _RANDOM.normal(size=(40, 5)).astype("f4")
    x[5, 1] = 9.969209968386869e36
    with pytest.raises(ValueError, match=r"1 of the 200 .* row 5, column 1"):
        _svd_of(_hdf5(tmp_path, x, {}, fillvalue=np.float32(9.969209968386869e36)))
    x[5, 1] = 7
    found = _svd_of(_hdf5(tmp_path, x, {}, fillvalue=np.float32(7)))
    np.testing.assert_allclose(found, np.linalg.svd(x, compute_uv=False), rtol=1e-5)


@pytest.mark.parametrize(
    "stored", [{"scaleoffset": 0}, {"scaleoffset": 0, "dtype": "i4"}, {"dtype": ">i2"}, {"dtype": ">u4"}]
)
def test_hdf5s_own_packing_and_byte_order_change_no_number(stored: dict[str, Any], tmp_path: Path) -> None:
    x = _RANDOM.integers(1000, 1100, (64, 5))
    how = {"chunks": (32, 5)} | stored
    path = _hdf5(tmp_path, x.astype(how.get("dtype", "i8")), {}, **how)
    np.testing.assert_allclose(_svd_of(path), np.linalg.svd(x.astype(float), compute_uv=False))
    assert find_array(path, None).unpack is None


def test_decimals_of_hdf5s_scale_offset_filter_are_those_that_h5py_reads(tmp_path: Path) -> None:
    x = np.round(_RANDOM.normal(size=(64, 5)), 3)
    path = _hdf5(tmp_path, x, {}, scaleoffset=3, chunks=(32, 5))
    np.testing.assert_allclose(_svd_of(path), np.linalg.svd(x, compute_uv=False), rtol=1e-9)


@pytest.mark.parametrize("dtype", [">i2", ">f4", ">f8"])
def test_packed_numbers_of_the_other_byte_order_are_the_same(dtype: str, tmp_path: Path) -> None:
    x = _RANDOM.integers(0, 100, (40, 5)).astype(dtype)
    path = _hdf5(tmp_path, x, {"scale_factor": 0.1, "_FillValue": np.array(-1, dtype), "_Unsigned": "true"})
    np.testing.assert_allclose(_svd_of(path), np.linalg.svd(x / 10, compute_uv=False), rtol=1e-5)
    array = zarr.create_array(tmp_path / "x.zarr", shape=x.shape, dtype=dtype, zarr_format=2)
    array[:] = x
    found = SVD.compute(SVD.validate({"path": str(tmp_path / "x.zarr")}))[0]["singular_values"]
    np.testing.assert_allclose(found, np.linalg.svd(x.astype(float), compute_uv=False), rtol=1e-5)


def test_zeros_of_plain_zarr_are_zeros_and_those_that_xarray_calls_missing_are_missing(tmp_path: Path) -> None:
    x = _RANDOM.integers(0, 3, (40, 5)).astype("i2")
    for version in (2, 3):
        array = zarr.create_array(tmp_path / "x.zarr", data=x, zarr_format=version, fill_value=0, overwrite=True)
        _values(str(tmp_path / "x.zarr"), array=None)
        array.attrs["_ARRAY_DIMENSIONS"] = ["rows", "columns"]
        if version == 3:
            _values(str(tmp_path / "x.zarr"), array=None)
        else:
            with pytest.raises(ValueError, match=rf"are missing: {(x == 0).sum()} of the 200 "):
                _values(str(tmp_path / "x.zarr"), array=None)


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"scale_factor": "a tenth"}, "has the attribute scale_factor 'a tenth', expected a number"),
        ({"scale_factor": [0.1, 0.2]}, "scale_factor [0.1, 0.2], expected a number"),
        ({"scale_factor": 0.0}, "scale_factor 0.0, expected a number"),
        ({"add_offset": np.nan}, "add_offset nan, expected a number"),
        ({"missing_value": "none"}, "missing_value 'none', expected a number, so missing values are unknown"),
        ({"valid_range": [1, 2, 3]}, "valid_range [1, 2, 3], expected two numbers"),
        ({"_Unsigned": "maybe"}, "_Unsigned 'maybe', expected true or false"),
        ({"units": "days since 1970-01-01"}, "holds dates (days since 1970-01-01)"),
    ],
)
def test_attributes_that_nobody_can_follow_are_refused_with_another_way(
    attributes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    path = _hdf5(tmp_path, np.eye(5, dtype="i2"), attributes)
    with pytest.raises(BadInputError) as refused:
        SVD.validate({"path": path})
    assert sentence in str(refused.value)
    assert str(refused.value).endswith("Or open it in a function of your own, with xarray and decode_cf=False.")


def test_packing_by_other_names_is_left_aside_and_that_is_said(tmp_path: Path) -> None:
    notes = SVD.validate({"path": _hdf5(tmp_path, np.eye(5), {"ScaleFactor": 0.5, "MATLAB_class": b"double"})}).notes
    assert notes[:2] == (
        "The attributes ScaleFactor 0.5 are of no convention that is known here and were left aside.",
        "MATLAB wrote it: its rows are columns here, and its columns rows.",
    )


def test_complex_numbers_and_pairs_of_them_are_refused(tmp_path: Path) -> None:
    pairs = np.zeros((4, 5), [("r", "f8"), ("i", "f8")])
    for data in (pairs, np.zeros((4, 5), complex), np.zeros((4, 5), [("real", "f8"), ("imag", "f8")])):
        with pytest.raises(BadInputError, match=r"holds (complex numbers|records)"):
            SVD.validate({"path": _hdf5(tmp_path, data, {})})


def test_a_mask_saved_beside_an_array_is_not_passed_over(tmp_path: Path) -> None:
    x = np.ma.masked_greater(_RANDOM.normal(size=(40, 5)), 1)
    np.savez(tmp_path / "x.npz", data=x.data, mask=x.mask)
    path = str(tmp_path / "x.npz")
    with pytest.raises(BadInputError, match=rf"\(data\) comes with a mask, which hides {x.mask.sum()} of its values"):
        SVD.validate({"path": path})
    np.savez(tmp_path / "x.npz", data=x.data, mask=np.zeros((40, 5), bool))
    assert SVD.validate({"path": path}).resolved["array"] == "data"


def test_netcdf_3_without_a_variable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.nc").write_bytes(b"CDF\x01" + bytes(100))
    with pytest.raises(BadInputError, match=r"old.nc holds no variable of numbers"):
        SVD.validate({"path": str(tmp_path / "old.nc")})


def test_counts_that_attributes_call_missing_are_missing_and_packed_ones_are_no_counts(tmp_path: Path) -> None:
    counts = _RANDOM.integers(0, 3, (40, 5)).astype("i2")
    counts[3, 2] = 77
    for write in (_hdf5, _as_zarr):
        found = open_genotypes(write(tmp_path, counts, {"_FillValue": np.int16(77)})).counts().compute()
        np.testing.assert_array_equal(found, np.where(counts == 77, 255, counts))
        with pytest.raises(BadInputError, match=r"holds no counts: Unpacked by scale_factor 2\. Write the counts 0, 1"):
            open_genotypes(write(tmp_path, counts, {"scale_factor": 2.0}))


def _as_zarr(folder: Path, data: Any, attributes: dict[str, Any]) -> str:
    plain = {name: float(value) for name, value in attributes.items()}
    zarr.create_array(folder / "x.zarr", data=data, attributes=plain, overwrite=True)
    return str(folder / "x.zarr")


class _Runs:
    """Unpickled, it makes a file: what a store of somebody else's could do with whatever it liked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def _pickled(folder: Path, target: Path, of: str = "") -> Path:
    """Write an array of text as Zarr 2, with a filter that unpickles."""
    array = zarr.create_array(folder / of, shape=(3, 2), chunks=(3, 2), dtype=str, zarr_format=2, compressors=None)
    array[:] = "a"
    described = json.loads((folder / of / ".zarray").read_text())
    described["filters"].append({"id": "pickle", "protocol": 5})
    (folder / of / ".zarray").write_text(json.dumps(described))
    (folder / of / "0.0").write_bytes(pickle.dumps(_Runs(target)))
    return folder / of


def test_a_store_that_would_be_unpickled_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numcodecs import pickles

    from workbench.storage.formats import READERS

    # As numcodecs was before it refused by itself, so that it is seen who refuses.
    monkeypatch.setattr(pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True)
    target = tmp_path / "it-ran"
    path = _pickled(tmp_path / "x.zarr", target)
    with pytest.raises(BadInputError, match="written with the codec pickle, which runs what a file says"):
        SVD.validate({"path": str(path)})
    with pytest.raises(BadInputError, match="written with the codec pickle"):
        open_genotypes(path)
    with pytest.raises(ValueError, match="written with the codec pickle"):
        READERS["zarr"](str(path), None, {}, slice(0, 3), slice(0, 2))
    for member in ("sample_id", "variant_id", "contig_id", "variant_allele"):
        group = zarr.open_group(tmp_path / member, mode="w", zarr_format=2)
        group.create_array("call_genotype", data=np.zeros((3, 3, 2), "i1"))
        group.create_array("variant_contig", data=np.zeros(3, "i1"))
        group.create_array("sample_id", data=np.array(["a", "b", "c"], np.dtypes.StringDType()))
        if member == "sample_id":
            del group["sample_id"]
        _pickled(tmp_path / member, target, member)
        with pytest.raises(BadInputError, match=f"{member}.* is written with the codec pickle"):
            open_genotypes(tmp_path / member)
    assert not target.exists()
    # And the file would have been made, had anybody read it. From 3.4 on Zarr refuses by itself, too.
    with zarr.config.set({"array.allow_unsafe_pickle_decode": True}), pytest.raises(Exception, match=r"."):
        zarr.open_array(path, mode="r")[:]
    assert target.exists()


def test_objects_in_numpys_files_are_refused_not_unpickled(tmp_path: Path) -> None:
    target = tmp_path / "it-ran"
    objects = np.array([[_Runs(target)]], object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=objects, allow_pickle=True)
    np.savez(tmp_path / "mask.npz", x=np.eye(1), mask=objects, allow_pickle=True)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(BadInputError, match="holds Python objects"):
            SVD.validate({"path": str(tmp_path / name)})
    SVD.validate({"path": str(tmp_path / "mask.npz"), "array": "x"})
    with pytest.raises(BadInputError, match="holds Python objects"):
        open_genotypes(tmp_path / "x.npy")
    assert not target.exists()
