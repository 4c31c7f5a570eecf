"""Data that are partly missing, cut short, or can't be decompressed: never read as zeros, always reported."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr

from workbench.errors import BadInputError, MissingError, install_module
from workbench.genotypes import open_genotypes
from workbench.runs.failures import _lacking
from workbench.runs.run import Run
from workbench.storage import written_chunks, zarrs
from workbench.storage.finding import find_array
from workbench.storage.places import Place
from workbench.storage.zarrs import outdated
from workbench.workloads import template
from workbench.workloads.contents import look
from workbench.workloads.inputs import modules_of

REDUCE, SVD, EOFS = (template(name) for name in ("reduce_file", "svd_of_file", "eofs"))
VALUES = np.random.default_rng(0).normal(size=(64, 48))


def _half(path: Path, rows: int = 32, **how: Any) -> str:
    """Write a Zarr array of eight chunks, of which those of some rows are written."""
    told = {"zarr_format": 2, "fill_value": 0, "chunks": (16, 24)} | how
    zarr.create_array(path, shape=VALUES.shape, dtype="f8", **told)[:rows] = VALUES[:rows]
    return str(path)


def _lines(path: str) -> str:
    found = look(path)
    return " ".join([each.line() for each in found.arrays] + list(found.remarks))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"zarr_format": 3},
        {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
        {"zarr_format": 3, "chunk_key_encoding": {"name": "v2", "separator": "."}},
    ],
)
def test_chunks_that_do_not_exist_are_counted_and_refused_where_they_are_most(tmp_path: Path, how: Any) -> None:
    half, few, none = (_half(tmp_path / f"{rows}.zarr", rows, **how) for rows in (32, 16, 0))

    assert "4 of 8 chunks exist" in _lines(half)
    remarks = REDUCE.validate({"path": half}).notes
    assert remarks[0] == "4 of 8 chunks exist; the others were never written, or are lost, and count as 0."
    for path, count in ((few, 2), (none, 0)):
        for workload in (REDUCE, SVD):
            with pytest.raises(BadInputError, match=f"{count} of 8 chunks exist, and the others would count as 0"):
                workload.validate({"path": path})
        assert REDUCE.validate({"path": path, "missing_chunks": "fill"})
    # The part that is selected is written as a whole.
    assert not any("chunks exist" in note for note in REDUCE.validate({"path": few, "select": "0=0:15"}).notes)


def test_chunks_under_the_other_separator_or_without_a_fill_value_are_refused(tmp_path: Path) -> None:
    path = _half(tmp_path / "x.zarr", 64, chunk_key_encoding={"name": "v2", "separator": "/"})
    said = json.loads((tmp_path / "x.zarr/.zarray").read_text())
    del said["dimension_separator"]
    (tmp_path / "x.zarr/.zarray").write_text(json.dumps(said))

    sentence = (
        r'0 of 8 chunks exist. 8 lie under keys with the other separator, such as 0/0.*"dimension_separator": "/"'
    )
    with pytest.raises(BadInputError, match=sentence):
        SVD.validate({"path": path, "k": 2, "missing_chunks": "fill"})
    assert "8 lie under keys with the other separator" in _lines(path)

    path = _half(tmp_path / "null.zarr", fill_value=None)
    with pytest.raises(BadInputError, match="4 of 8 chunks exist, and its fill value is null"):
        REDUCE.validate({"path": path, "missing_chunks": "fill"})


def test_chunks_that_stand_for_missing_values_count_as_missing(tmp_path: Path) -> None:
    path = _half(tmp_path / "nan.zarr", 16, fill_value=np.nan)

    notes = REDUCE.validate({"path": path, "missing": "leave out"}).notes
    assert notes[0] == "2 of 8 chunks exist; the others were never written, or are lost, and count as missing."


def test_chunks_in_shards_in_zips_and_behind_urls_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is, no answer is kept.
    monkeypatch.setattr(zarrs, "_SLOW", np.inf)
    sharded = _half(tmp_path / "s.zarr", 40, zarr_format=3, chunks=(8, 8), shards=(32, 24))
    # Rows 0 to 39 of 64 are 5 × 6 of 8 × 6 chunks, although all shards exist.
    assert "30 of 48 chunks exist" in _lines(sharded)
    shutil.rmtree(tmp_path / "s.zarr/c/0")
    with pytest.raises(BadInputError, match="6 of 48 chunks exist"):
        REDUCE.validate({"path": sharded})

    half = _half(tmp_path / "h.zarr")
    shutil.make_archive(str(tmp_path / "h"), "zip", half)
    assert "4 of 8 chunks exist" in _lines(str(tmp_path / "h.zip"))
    memory = fsspec.filesystem("memory")
    memory.put(f"{half}/", "/h.zarr/", recursive=True)
    found = written_chunks.of_place(Place("memory://h.zarr"), "zarr", None)
    assert found is not None
    assert str(found) == "4 of 8 chunks exist"
    # As of a server that can't list what it has.
    memory.rm("/h.zarr/0.0")
    monkeypatch.setattr(type(memory), "find", lambda *_, **__: [])
    assert written_chunks.of_place(Place("memory://h.zarr"), "zarr", None) is None
    for name in ("0.1", "1.0", "1.1"):
        memory.rm(f"/h.zarr/{name}")
    assert "0 of " in str(written_chunks.of_place(Place("memory://h.zarr"), "zarr", None))


def test_parts_of_hdf5_and_tiff_that_were_never_written_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("chunked", shape=(64, 48), chunks=(16, 24), dtype="f8")[:16] = VALUES[:16]
        file.create_dataset("never", shape=(64, 48), dtype="f8")

    with pytest.raises(BadInputError, match=r"a.h5 \(chunked\): 2 of 8 chunks exist, and the others would count as 0"):
        REDUCE.validate({"path": path, "array": "chunked"})
    with pytest.raises(BadInputError, match=r"a.h5 \(never\): 0 of 1 block exists"):
        REDUCE.validate({"path": path, "array": "never"})
    tifffile.imwrite(tmp_path / "a.tif", VALUES.astype("f4"), tile=(16, 16))
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as pages:
        pages.pages[0].tags["TileByteCounts"].overwrite((1024,) * 2 + (0,) * 10)
    with pytest.raises(BadInputError, match="2 of 12 tiles exist"):
        REDUCE.validate({"path": tmp_path / "a.tif"})


def test_genotypes_of_which_chunks_are_gone_are_refused(tmp_path: Path) -> None:
    calls = np.random.default_rng(0).integers(0, 2, (80, 6, 2)).astype("i1")
    group = zarr.open_group(tmp_path / "v.zarr", mode="w", zarr_format=2)
    group.create_array("call_genotype", data=calls, chunks=(20, 6, 2))
    group.create_array("sample_id", data=np.array([f"s{i}" for i in range(6)]))
    assert open_genotypes(tmp_path / "v.zarr").remarks == ()
    (tmp_path / "v.zarr/call_genotype/2.0.0").unlink()

    sentence = r"\(call_genotype\): 3 of 4 chunks exist, expected all of them: 2.0.0 is missing"
    with pytest.raises(BadInputError, match=sentence):
        open_genotypes(tmp_path / "v.zarr")


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_all_readers_use_an_arrays_own_metadata_where_the_consolidated_are_out_of_date(
    tmp_path: Path, quick_client: Any, zarr_format: Any
) -> None:
    path = str(tmp_path / "old.zarr")
    xr.Dataset({"t": (("time", "x"), VALUES)}, {"time": np.arange(64)}).chunk(time=16).to_zarr(
        path, zarr_format=zarr_format, consolidated=True
    )
    assert outdated(Place(path)) == ()
    for name, shape in (("t", (80, 48)), ("time", (80,))):
        array = zarr.open_array(path, path=name)
        array.resize(shape)
        array[64:] = np.ones((16, *shape[1:]))

    remark = (
        f"The consolidated metadata of {path} are out of date (t, time): the metadata of each array itself are used"
    )
    found = look(path)
    assert (found.arrays[0].shape, found.dimensions[0].length) == ((80, 48), 80)
    assert any(each.startswith(remark) for each in found.remarks)
    for workload, given in ((REDUCE, {"array": "t"}), (EOFS, {"variable": "t", "k": 2})):
        parameters = workload.validate({"path": path, **given})
        assert parameters.resolved["shape"][0] == 80
        assert any(each.startswith(remark) for each in parameters.notes)
    total = REDUCE.compute(REDUCE.validate({"path": path, "array": "t", "what": "sum"}), quick_client)[0]
    np.testing.assert_allclose(total["value"], VALUES.sum() + 16 * 48)


def _zarr_cut(folder: Path) -> str:
    path = _half(folder / "c.zarr", 64)
    (folder / "c.zarr/1.0").write_bytes((folder / "c.zarr/1.0").read_bytes()[:50])
    return path


def _dataset_cut(folder: Path) -> str:
    path = str(folder / "d.zarr")
    data = xr.Dataset({"t": (("time", "x"), VALUES)}, {"time": np.arange(64)}).chunk(time=16, x=24)
    data.to_zarr(path, zarr_format=2)
    (folder / "d.zarr/t/1.0").write_bytes((folder / "d.zarr/t/1.0").read_bytes()[:50])
    return path


def _hdf5_cut(folder: Path) -> str:
    path = folder / "c.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(16, 24), compression="gzip")
        chunk = file["x"].id.get_chunk_info_by_coord((16, 0))
    with path.open("r+b") as raw:
        raw.seek(chunk.byte_offset)
        raw.write(bytes(chunk.size))
    return str(path)


def _tiff_cut(folder: Path) -> str:
    path = folder / "c.tif"
    tifffile.imwrite(path, VALUES.astype("f4"), tile=(16, 16), compression="zlib")
    with tifffile.TiffFile(path) as pages:
        start, size = pages.pages[0].dataoffsets[3], pages.pages[0].databytecounts[3]
    with path.open("r+b") as raw:
        raw.seek(start)
        raw.write(bytes(size))
    return str(path)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (_zarr_cut, r"Chunk 1.0 of .*c.zarr can't be decompressed \(50 bytes: .*\). Copy or write it again."),
        (_dataset_cut, r"Chunk 1.0 of .*d.zarr/t can't be decompressed \(50 bytes: .*\). Copy or write it again."),
        (_hdf5_cut, r"Chunk 1.0 of .*c.h5 \(x\) can't be decompressed \(\d+ bytes: .*\). Copy or write it again."),
        (_tiff_cut, r"Tile 1.0 of .*c.tif can't be decompressed \(.*\). Copy or write it again."),
    ],
)
def test_a_chunk_that_can_not_be_decompressed_is_named_by_the_run(
    tmp_path: Path, quick_client: Any, made: Any, sentence: str
) -> None:
    path = made(tmp_path)

    with pytest.raises(ValueError, match=sentence):
        REDUCE.compute(REDUCE.validate({"path": path}), quick_client)


def test_what_decompresses_is_asked_for_before_a_run(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "l.tif", VALUES.astype("f4"))
    with tifffile.TiffFile(tmp_path / "l.tif", mode="r+") as pages:
        pages.pages[0].tags["Compression"].overwrite(5)  # LZW
    for code, name in ((32015, "zstd.h5"), (32123, "own.h5")):
        with h5py.File(tmp_path / name, "w") as file:
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((64, 48))
            plist.set_filter(code, h5py.h5z.FLAG_OPTIONAL)
            space = h5py.h5s.create_simple((64, 48))
            h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F64LE, space, plist).write_direct_chunk((0, 0), b"x" * 50)

    for name, module in (("l.tif", "imagecodecs"), ("zstd.h5", "hdf5plugin")):
        path = str(tmp_path / name)
        found = find_array(path, None)
        assert modules_of(found)[-1] == module
        if find_spec(module) is None:
            sentence = f"needs {module}, which decompresses it: pip install {module}."
            assert sentence in _lines(path)
            with pytest.raises(MissingError, match=sentence):
                REDUCE.validate({"path": path})
    with pytest.raises(BadInputError, match=r"the HDF5 filter 32123 .*, which no package known here decodes"):
        REDUCE.validate({"path": tmp_path / "own.h5"})
    _half(tmp_path / "z.zarr", 64)
    said = json.loads((tmp_path / "z.zarr/.zarray").read_text()) | {"compressor": {"id": "pcodec"}}
    (tmp_path / "z.zarr/.zarray").write_text(json.dumps(said))
    with pytest.raises(MissingError, match="the codec 'pcodec', which needs pcodec: pip install pcodec"):
        REDUCE.validate({"path": tmp_path / "z.zarr"})


def test_no_package_is_suggested_by_the_name_of_an_unknown_module() -> None:
    assert install_module("PIL.Image") == "pip install pillow"
    assert install_module("compression") is None
    run = Run(id="svd-1", workload="svd_of_file", cluster="c", status="failed")
    told = _lacking(ModuleNotFoundError("No module named 'compression'", name="compression"), run)
    assert told is not None
    assert told.startswith("The module compression isn't installed where it was needed. Install what brings it")


@pytest.mark.parametrize("k", [2, None])
def test_an_answer_out_of_the_range_of_its_type_is_right_or_refused(
    tmp_path: Path, quick_client: Any, k: int | None
) -> None:
    np.save(tmp_path / "big.npy", (np.random.default_rng(0).normal(size=(2000, 40)) * 1e37).astype("f4"))
    parameters = SVD.validate({"path": tmp_path / "big.npy", "k": k})
    if k is None:
        with pytest.raises(BadInputError, match="out of the range of float32"):
            SVD.compute(parameters, quick_client)
        return
    summary, check = SVD.compute(parameters, quick_client)
    assert np.isfinite(summary["singular_values"]).all()
    assert summary["singular_values"][0] > float(np.finfo("f4").max)
    assert check is not None
    assert check.passed, check.what


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_sum_beyond_float64_fails_its_check_by_name(tmp_path: Path, quick_client: Any) -> None:
    np.save(tmp_path / "huge.npy", np.full((40, 10), 1e308))
    for what in ("sum", "std"):
        values = REDUCE.validate({"path": tmp_path / "huge.npy", "what": what, "over": "0"})
        check = REDUCE.compute(values, quick_client)[1]
        assert check is not None
        assert (check.passed, check.what[:33]) == (False, f"The {what} is too large for float64.")
    single = np.full((3, 2), [-3e38, 3e38], "f4").T.copy()
    np.save(tmp_path / "wide.npy", single)
    values = REDUCE.validate({"path": tmp_path / "wide.npy", "what": "percentile", "over": "0"})
    summary, check = REDUCE.compute(values, quick_client)
    assert (summary["first"], check is not None and check.passed) == ([0.0, 0.0, 0.0], True)


def test_values_in_other_files_are_read_where_they_are_and_refused_where_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, raw = str(tmp_path / "e.h5"), tmp_path / "e.raw"
    monkeypatch.chdir(tmp_path)
    with h5py.File(path, "w") as file:
        file.create_dataset("e", VALUES.shape, "f8", external=[("e.raw", 0, h5py.h5f.UNLIMITED)])[:] = VALUES
    monkeypatch.chdir("/")
    checked = REDUCE.validate({"path": path})
    assert REDUCE.build(checked)["value"].compute() == pytest.approx(VALUES.mean())

    raw.write_bytes(raw.read_bytes()[:900])
    with pytest.raises(BadInputError, match=rf"e\.raw, which is cut short: it has 900 bytes, expected {VALUES.nbytes}"):
        REDUCE.validate({"path": path})
    assert "cut short" in _lines(path)
    raw.unlink()
    with pytest.raises(BadInputError, match=r"e\.raw, which isn't there"):
        REDUCE.validate({"path": path})


def test_headers_that_tell_of_what_can_not_be_are_said_in_one_sentence(tmp_path: Path) -> None:
    xr.Dataset({"v": (("t", "x"), VALUES)}).to_netcdf(tmp_path / "v.nc", engine="scipy")
    (tmp_path / "v.nc").write_bytes((tmp_path / "v.nc").read_bytes()[:-900])
    np.save(tmp_path / "a.npy", VALUES[:4])
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes().replace(b"(4, 48)", b"(-4,48)"))

    for name, sentence in (("v.nc", "is cut short or damaged"), ("a.npy", "no length can be negative")):
        for read in (look, lambda path: REDUCE.validate({"path": path})):
            with pytest.raises(BadInputError, match=sentence):
                read(str(tmp_path / name))
