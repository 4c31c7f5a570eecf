"""Two bits each, without loss."""

from __future__ import annotations

import math
from typing import Any

import dask.array as da
import numpy as np
import pytest

import workbench.genotypes.packing
from workbench.errors import BadInputError
from workbench.genotypes import MISSING_CODES, Genotypes, fast, pack, unpack


def _counts(rows: int, columns: int, dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 3, (rows, columns)).astype(dtype)


@pytest.fixture(params=["numpy", "compiled"])
def packing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By which of the two ways bytes are packed."""
    way: str = request.param
    if way == "compiled":
        pytest.importorskip("numba")
        fast.warm_up()
        assert workbench.genotypes.packing.compiled is not None
    else:
        monkeypatch.setattr(workbench.genotypes.packing, "compiled", None)
    return way


@pytest.mark.usefixtures("packing")
@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u4", "i8", "f4", "f8"])
def test_what_is_packed_comes_back_with_every_missing_code_and_number_of_columns(dtype: str) -> None:
    rng = np.random.default_rng(1)
    for columns in (0, 1, 2, 3, 4, 5, 8, 31, 1001):
        for code in MISSING_CODES:
            counts = _counts(7, columns, dtype, columns)
            if counts.dtype.kind != "f" and (
                math.isnan(code) or not np.iinfo(counts.dtype).min <= code <= np.iinfo(counts.dtype).max
            ):
                continue
            lost = rng.random(counts.shape) < 0.3
            expected = np.where(lost, np.uint8(255), counts.astype(np.uint8))
            counts[lost] = code
            packed = pack(counts)
            assert packed.shape == (7, -(-columns // 4))
            np.testing.assert_array_equal(unpack(packed, columns), expected)
            np.testing.assert_array_equal(unpack(pack(counts, missing=code), columns), expected)


def test_the_posts_packer_fails_where_this_one_does_not() -> None:
    # int8 overflows under NumPy 2, a missing 255 spills into its neighbours, and 4 must divide the columns.
    for dtype, missing, columns in (("i1", -1, 8), ("u1", 255, 8), ("u1", 3, 7)):
        counts = _counts(5, columns, dtype)
        counts[:, 2] = missing
        expected = counts.astype(np.uint8)
        expected[:, 2] = 255
        np.testing.assert_array_equal(unpack(pack(counts), columns), expected)


def test_the_first_sample_sits_in_the_lowest_bits() -> None:
    assert pack(np.array([[1, 2, 0, 255, 2]], "u1")).tolist() == [[0b11_00_10_01, 0b10]]


@pytest.mark.usefixtures("packing")
def test_counts_are_packed_wherever_they_lie() -> None:
    bytes_ = np.random.default_rng(0).integers(0, 3, 8 * 12 + 3).astype("u1")
    for start in range(4):
        counts = bytes_[start : start + 96].reshape(8, 12)
        counts.flags.writeable = False
        for part in (counts, counts[::2], counts[:, 4:], counts[:0], np.asfortranarray(counts)):
            np.testing.assert_array_equal(unpack(pack(part), part.shape[1]), part)


@pytest.mark.parametrize("missing", [255, 3, 0, 9])
def test_every_number_for_missing_is_looked_up_as_a_table_would(missing: int) -> None:
    packed = np.random.default_rng(0).integers(0, 256, (300, 75)).astype(np.uint8)
    codes = np.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(300, 300)[:, :298]
    np.testing.assert_array_equal(unpack(packed, 298, missing=missing), np.array([0, 1, 2, missing], np.uint8)[codes])


@pytest.mark.usefixtures("packing")
def test_blocks_larger_than_a_tile_are_packed_whole() -> None:
    counts = _counts(2000, 1003, "u1")
    np.testing.assert_array_equal(unpack(pack(counts), 1003), counts)
    np.testing.assert_array_equal(unpack(pack(counts.T), 2000), counts.T)


@pytest.mark.usefixtures("packing")
@pytest.mark.parametrize(
    ("value", "missing", "hint"),
    [
        (4, None, "More than two copies mean a ploidy above 2"),
        (1.5, None, "Round dosages"),
        (-5, None, "Name what stands for a missing value as missing="),
        (3, -1, "Add 3 to missing= if it is PLINK's raw code"),
        (math.inf, None, "neither a count"),
        (math.nan, -1, "neither a count"),
        (300, None, "More than two"),
    ],
)
def test_a_value_that_is_neither_a_count_nor_missing_is_named_with_its_place(
    value: float, missing: int | None, hint: str
) -> None:
    counts = np.zeros((900, 800), "f4" if isinstance(value, float) else "i2")
    counts[700, 13] = value
    with pytest.raises(BadInputError, match="at variant 1700, sample 13 ") as caught:
        pack(counts, missing, first_row=1000)
    assert hint in str(caught.value)
    if -128 <= value < 128 and isinstance(value, int):
        with pytest.raises(BadInputError, match="at variant 700, sample 13 "):
            pack(counts.astype("i1"), missing)


def test_a_count_can_not_be_named_as_missing() -> None:
    with pytest.raises(BadInputError, match="missing=2 is a count"):
        pack(np.zeros((2, 2), "u1"), missing=(2, -1))


def test_text_and_cubes_are_refused() -> None:
    with pytest.raises(BadInputError, match="Counts are whole numbers"):
        pack(np.array([["0/1"]]))
    with pytest.raises(BadInputError, match="two dimensions"):
        pack(np.zeros((2, 2, 2), "u1"))
    with pytest.raises(BadInputError, match="5 samples take 2 bytes a row"):
        unpack(np.zeros((2, 3), "u1"), 5)


def test_genotypes_are_sliced_by_slices_masks_and_indices() -> None:
    counts = _counts(50, 7, "u1")
    packed = da.from_array(pack(counts), chunks=(8, -1))
    genotypes = Genotypes(packed, np.array([f"s{i}" for i in range(7)]))
    mask = np.random.default_rng(0).random(50) < 0.4
    for rows in (slice(3, 40, 7), slice(40, 3, -1), slice(5, 5), mask, [3, 1, 49], np.array([], int)):
        np.testing.assert_array_equal(genotypes[rows].counts().compute(), counts[rows])
    np.testing.assert_array_equal(genotypes[4].counts().compute(), counts[4:5])
    assert (genotypes.shape, genotypes.tail) == ((50, 7), 3)
    with pytest.raises(BadInputError, match="indexed by variant alone"):
        genotypes[:, 2]
    with pytest.raises(BadInputError, match="mask has 3 values for 50"):
        genotypes[np.ones(3, bool)]


def test_variants_that_stay_in_their_order_are_taken_from_their_own_blocks() -> None:
    counts = _counts(50, 7, "u1")
    genotypes = Genotypes(da.from_array(pack(counts), chunks=(8, -1)), np.arange(7).astype(str))
    chosen = genotypes[[9, 11, 30, 31]].packed
    assert chosen.chunks[0] == (2, 2)
    assert not any("shuffle" in name or "take" in name for name in chosen.dask.layers)
    assert sum(genotypes[np.arange(50) > 3].packed.chunks[0]) == 46


def test_genotypes_whose_parts_do_not_fit_are_refused() -> None:
    packed = da.zeros((5, 3), dtype="u1")
    with pytest.raises(BadInputError, match="13 samples take 4 bytes a row, and the packed genotypes have 3"):
        Genotypes(packed, np.arange(13).astype(str))
    with pytest.raises(BadInputError, match="matrix of uint8"):
        Genotypes(packed.astype("i4"), np.arange(12).astype(str))
    with pytest.raises(BadInputError, match="'sex' has 2 values for 12"):
        Genotypes(packed, np.arange(12).astype(str), sample_table={"sex": np.zeros(2)})
