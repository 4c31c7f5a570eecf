"""Parquet, CSV, TIFF and Zarr of microscopy, as svd_of_file, reduce_file and look open them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tifffile
import zarr
from pyarrow import parquet

from tests.test_svd_of_file import served
from workbench.errors import BadInputError, MissingError
from workbench.storage.finding import find_array
from workbench.storage.formats import READERS, csv, tiff
from workbench.workloads import template
from workbench.workloads.contents import look

__all__ = ["served"]

SVD, REDUCE = template("svd_of_file"), template("reduce_file")
TABLE = np.random.default_rng(0).normal(size=(200, 4)) * (4, 3, 2, 1)
STACK = np.random.default_rng(1).integers(0, 200, (6, 20, 16)).astype("uint16")


def _parquet(path: Path, **more: Any) -> str:
    columns = {name: TABLE[:, index] for index, name in enumerate("abcd")}
    parquet.write_table(pa.table(columns | more), path, row_group_size=70)
    return str(path)


def _parts(folder: Path) -> str:
    """As Dask names them; the last but one has no rows."""
    folder.mkdir()
    for number, (start, stop) in enumerate(
        [(0, 30), *((at, at + 15) for at in range(30, 180, 15)), (180, 180), (180, 200)]
    ):
        columns = {name: TABLE[start:stop, index] for index, name in enumerate("abcd")}
        parquet.write_table(pa.table(columns), folder / f"part.{number}.parquet", row_group_size=7)
    (folder / "_metadata").write_text("of no part")
    return str(folder)


def _csv(path: Path, head: str = "a,b,c,d\n") -> str:
    path.write_text(head + "".join(",".join(map(repr, row)) + "\n" for row in TABLE.tolist()), encoding="utf-8")
    return str(path)


def _in_memory(path: str) -> str:
    fsspec.filesystem("memory").put(path, "memory://table/t", recursive=True)
    return "memory://table/t"


def _ome(path: Path, said: dict[str, Any]) -> str:
    group = zarr.open_group(path, mode="w", attributes=said)
    group.create_array("0", shape=STACK.shape, chunks=(1, 20, 16), dtype="u2")[:] = STACK
    group.create_array("1", shape=(6, 10, 8), chunks=(1, 10, 8), dtype="u2")[:] = STACK[:, ::2, ::2]
    return str(path)


OME = {
    "version": "0.5",
    "multiscales": [{"axes": [{"name": each} for each in "zyx"], "datasets": [{"path": "0"}, {"path": "1"}]}],
}


@pytest.mark.parametrize("kind", ["parquet", "folder", "folder at a URL", "csv", "bare csv"])
def test_a_table_of_numbers_is_decomposed_and_reduced(
    tmp_path: Path, quick_client: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "_PIECE_BYTES", 3000)  # several pieces of one small table
    path = {
        "parquet": lambda: _parquet(tmp_path / "t.parquet"),
        "folder": lambda: _parts(tmp_path / "t"),
        "folder at a URL": lambda: _in_memory(_parts(tmp_path / "t")),
        "csv": lambda: _csv(tmp_path / "t.csv"),
        "bare csv": lambda: _csv(tmp_path / "t.csv", ""),
    }[kind]()

    answer, check = SVD.compute(SVD.validate({"path": path}), quick_client)
    means, right = REDUCE.compute(REDUCE.validate({"path": path, "over": "0"}), quick_client)

    np.testing.assert_allclose(answer["singular_values"], np.linalg.svd(TABLE, compute_uv=False))
    np.testing.assert_allclose(means["first"], TABLE.mean(axis=0))
    assert (check.passed, right.passed) == (True, True)
    found = find_array(path, None)
    part = READERS[found.format](path, None, dict(found.recipe or {}), slice(65, 150), slice(1, 3))
    np.testing.assert_array_equal(part, TABLE[65:150, 1:3])


@pytest.mark.parametrize("kind", ["tiff", "ome zarr", "ome zarr in a zip", "ome zarr over http"])
def test_a_stack_of_images_is_decomposed_by_page_and_reduced(
    tmp_path: Path, quick_client: Any, kind: str, served: str
) -> None:
    if kind == "tiff":
        tifffile.imwrite(path := str(tmp_path / "s.tif"), STACK, metadata={"axes": "ZYX"})
    else:
        path = _ome(tmp_path / "s.ome.zarr", {"ome": OME})
    if kind == "ome zarr in a zip":
        path = shutil.make_archive(path, "zip", path)
    if kind == "ome zarr over http":
        path = f"{served}/s.ome.zarr"

    answer, check = SVD.compute(checked := SVD.validate({"path": path}), quick_client)
    most, _ = REDUCE.compute(REDUCE.validate({"path": path, "what": "max", "over": "y, x"}), quick_client)

    assert "Rows are z, columns y × x." in checked.notes
    np.testing.assert_allclose(answer["singular_values"], np.linalg.svd(STACK.reshape(6, -1) * 1.0, compute_uv=False))
    assert most["first"] == STACK.max(axis=(1, 2)).tolist()
    assert check.passed


def test_each_level_of_an_image_has_its_axes(tmp_path: Path) -> None:
    path = _ome(tmp_path / "s.ome.zarr", {"ome": OME})
    assert [each.dims for each in look(path).arrays] == [("z", "y", "x")] * 2
    for array in ("0", "1"):
        assert find_array(path, array, as_matrix=False).dims == ("z", "y", "x")
        assert find_array(path, array, select="z=1").shape == (STACK[1].shape if array == "0" else (10, 8))
        assert find_array(path, array, rows="y").shape[0] == (20 if array == "0" else 10)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_labels_of_rows_that_pandas_writes_are_no_numbers_of_a_table(tmp_path: Path, suffix: str) -> None:
    path = str(tmp_path / f"table.{suffix}")
    frame = pd.DataFrame(TABLE, columns=list("abcd"), index=np.arange(200) * 7)
    frame.to_csv(path) if suffix == "csv" else frame.to_parquet(path)
    parameters = SVD.validate({"path": path})
    told, check = SVD.compute(parameters)
    np.testing.assert_allclose(told["singular_values"], np.linalg.svd(TABLE, compute_uv=False))
    assert check is not None
    assert check.passed
    assert any("row labels that pandas wrote" in note for note in parameters.notes)


@pytest.mark.parametrize(
    "index", [pd.date_range("1990", periods=50, name="day"), pd.Index(np.arange(50) * 3, name="station")]
)
def test_an_index_with_a_name_is_no_column_of_a_parquet_table(tmp_path: Path, index: Any) -> None:
    frame = pd.DataFrame(TABLE[:50], columns=list("abcd"), index=index)
    frame.to_parquet(path := str(tmp_path / "t.parquet"))
    found = find_array(path, None)
    assert (found.shape, found.array) == ((50, 4), "a,b,c,d")
    part = READERS["parquet"](path, found.array, dict(found.recipe or {}), slice(0, 50), slice(0, 4))
    np.testing.assert_array_equal(part, frame.to_numpy())
    if index.name == "station":
        assert find_array(path, "station,a").shape == (50, 2)


def test_a_stack_of_images_is_selected_by_positions(tmp_path: Path, quick_client: Any) -> None:
    tifffile.imwrite(tmp_path / "s.tif", STACK, metadata={"axes": "ZYX"})
    ome = _ome(tmp_path / "s.ome.zarr", {"ome": OME})
    assert [each.dims for each in look(ome).arrays] == [("z", "y", "x")] * 2
    for path, array, step in ((ome, None, 1), (ome, "0", 1), (ome, "1", 2), (str(tmp_path / "s.tif"), None, 1)):
        parameters = SVD.validate({"path": path, "array": array, "k": 2, "select": "z=1", "rows": "x"})
        answer, check = SVD.compute(parameters, quick_client)
        expected = np.linalg.svd(STACK[1, ::step, ::step].astype(float), compute_uv=False)[:2]
        np.testing.assert_allclose(answer["singular_values"], expected, rtol=1e-3)
        assert check is not None
        assert check.passed, check.what
        names: dict[str, Any] = {}
        exec(compile(SVD.cell(parameters), "cell", "exec", dont_inherit=True), names)
        np.testing.assert_allclose(names["s"].compute(), expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("first", "names"), [("0,1,2", False), (",1,2", False), ("0.1,-2,3e4", False), ("a,b,c", True), ("a,1,2", True)]
)
def test_a_first_line_holds_names_unless_all_of_it_are_numbers_which_is_said(
    tmp_path: Path, first: str, names: bool
) -> None:
    below = ["0.5,1.5,2.5", "3.5,4.5,5.5"]
    (tmp_path / "t.csv").write_text("\n".join([first, *below]))
    found = find_array(str(tmp_path / "t.csv"), None)
    assert found.shape == (len(below) + (not names), 3)
    sentence = "The first line holds numbers, so it is a row and the columns have no names."
    assert (sentence in found.remarks) == (not names)
    read = READERS["csv"](found.path, None, dict(found.recipe or {}), slice(0, found.shape[0]), slice(0, 3))
    np.testing.assert_array_equal(read, np.genfromtxt(below if names else [first, *below], delimiter=","))


def test_every_block_of_a_table_in_text_has_its_rows_wherever_pieces_end(tmp_path: Path, monkeypatch: Any) -> None:
    path = _csv(tmp_path / "t.csv")
    for piece in (1, 100, 1000, 10**6):
        monkeypatch.setattr(csv, "_PIECE_BYTES", piece)
        found = find_array(path, None)
        for start, stop in ((0, 200), (0, 1), (7, 93), (199, 200)):
            read = READERS["csv"](path, None, dict(found.recipe or {}), slice(start, stop), slice(1, 3))
            np.testing.assert_allclose(read, TABLE[start:stop, 1:3])
    with Path(path).open("a", encoding="utf-8") as more:
        more.write("\n1,2,3,4\n")
    with pytest.raises(ValueError, match="has empty lines below row"):
        REDUCE.compute(REDUCE.validate({"path": path}))


@pytest.mark.parametrize("rows", [[[1, 5, 9], [3.5, 4, 2]], [[0, 1], [3.5, 4]], [[1, 2], [3, 4]], [[1, 2, 3]]])
def test_a_first_row_of_whole_numbers_is_not_lost(tmp_path: Path, rows: Any) -> None:
    (tmp_path / "t.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    told, check = REDUCE.compute(REDUCE.validate({"path": str(tmp_path / "t.csv")}))
    assert check is not None
    assert (told["value"], check.passed) == (np.mean(rows), True)


def test_comments_above_a_table_and_names_in_latin_1_are_said(tmp_path: Path) -> None:
    for text, sentence in (("# by me\n# twice\na,b\n1,2\n", "begins with a comment"), ("caf\xe9,b\n1,2\n", "UTF-8")):
        (tmp_path / "t.csv").write_text(text, encoding="latin-1")
        with pytest.raises(BadInputError, match=sentence):
            find_array(str(tmp_path / "t.csv"), None)
    # As numpy.savetxt writes names.
    np.savetxt(tmp_path / "t.csv", TABLE, delimiter=",", header="a,b,c,d")
    assert find_array(str(tmp_path / "t.csv"), None).shape == (200, 4)


def test_names_of_columns_may_be_quoted_and_stand_twice(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text('"t, K",b,a,a,a.1\n1,2,3,4,9\n5,6,7,8,9\n')
    found = find_array(str(tmp_path / "q.csv"), None)
    assert found.shape == (2, 5)
    assert any("with the same name are numbered, as pandas does: a, a.2." in each for each in found.remarks)
    found = find_array(str(tmp_path / "q.csv"), '"t, K", a.2')
    read = READERS["csv"](found.path, found.array, dict(found.recipe or {}), slice(0, 2), slice(0, 2))
    np.testing.assert_array_equal(read, [[1, 4], [5, 8]])
    assert [each.name for each in look(str(tmp_path / "q.csv")).arrays]
    table = pa.Table.from_arrays([pa.array([1.0])] * 2, names=["a", "a"])
    parquet.write_table(table, tmp_path / "q.parquet")
    with pytest.raises(BadInputError, match=r"several columns called 'a'\. Give each a name of its own"):
        find_array(str(tmp_path / "q.parquet"), None)


def test_a_kind_of_netcdf_that_nobody_reads_here_says_what_helps(tmp_path: Path) -> None:
    (tmp_path / "x.nc").write_bytes(b"CDF\x05" + bytes(60))
    with pytest.raises(BadInputError, match=r"of the kind CDF-5, .* nccopy -k nc4"):
        find_array(str(tmp_path / "x.nc"), None)


def test_look_lists_columns_pages_and_scales(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "s.tif", STACK, metadata={"axes": "ZYX"}, compression="zlib")
    held = look(_parquet(tmp_path / "t.parquet", name=["x"] * 200))

    assert [each.name for each in held.arrays] == ["a", "b", "c", "d", "name"]
    assert look(_csv(tmp_path / "t.csv")).arrays[0].shape == (200, 4)
    parts = look(_parts(tmp_path / "parts"))
    assert ([each.shape for each in parts.arrays], parts.remarks) == ([(200,)] * 4, ("39 groups of rows in 13 files.",))
    (stack,) = look(str(tmp_path / "s.tif")).arrays
    assert (stack.dims, stack.compression, stack.dtype) == (("z", "y", "x"), "adobe_deflate", "uint16")


def test_what_is_no_table_or_image_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sentence(path: str, **more: Any) -> str:
        with pytest.raises((BadInputError, MissingError)) as caught:
            SVD.validate({"path": path, **more})
        return str(caught.value)

    named = _parquet(tmp_path / "t.parquet", name=["x"] * 200)
    assert "'name' of" in sentence(named)
    assert "holds no numbers. Name columns of numbers as array: a,b,c,d." in sentence(named)
    assert "'z' of" in sentence(named, array="a,z")
    assert SVD.validate({"path": named, "array": "b,d"}).resolved["shape"] == [200, 2]
    (tmp_path / "w.csv").write_text("a,b\n1,x\n2,y\n")
    assert "'b' of" in sentence(str(tmp_path / "w.csv"))
    (tmp_path / "e.csv").write_text("a,b\n")
    assert "has no rows" in sentence(str(tmp_path / "e.csv"))

    folder = Path(_parts(tmp_path / "parts"))
    (folder / "part.3.parquet").write_text("not a table")
    assert f"{folder}/part.3.parquet" in sentence(str(folder))
    _parquet(folder / "part.3.parquet", e=TABLE[:, 0])
    other = f"The columns of {folder}/part.3.parquet aren't those of part.0.parquet: a, b, c, d, e."
    assert sentence(str(folder)).endswith(other)
    (tmp_path / "hive" / "year=2020").mkdir(parents=True)
    assert "is a table in folders, such as year=2020. Give one of them" in sentence(str(tmp_path / "hive"))

    tifffile.imwrite(tmp_path / "s.tif", STACK)
    (tmp_path / "cut.tif").write_bytes((tmp_path / "s.tif").read_bytes()[:-500])
    assert "is cut short" in sentence(str(tmp_path / "cut.tif"))
    monkeypatch.setattr(tiff, "find_spec", lambda name: None)
    assert "needs tifffile: pip install" in sentence(str(tmp_path / "s.tif"))


def test_true_and_false_are_1_and_0_and_decimal_commas_are_named(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("a,b\n" + "True,1\nFalse,0\n,2\n" * 2)
    built = REDUCE.build(REDUCE.validate({"path": str(tmp_path / "b.csv"), "what": "sum", "missing": "leave out"}))
    assert built["value"].compute() == 8
    assert look(str(tmp_path / "b.csv")).arrays[0].shape == (6, 2)

    (tmp_path / "e.csv").write_text("a;b\n1,5;2,5\n3;-4,5\n")
    for read in (look, lambda path: REDUCE.validate({"path": path})):
        with pytest.raises(BadInputError, match=r"has decimal commas, such as 1,5 in the column 'a'\. Write it"):
            read(str(tmp_path / "e.csv"))
