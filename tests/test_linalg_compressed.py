"""`svd_compressed` against NumPy in float64; first what Dask's own tests say of theirs, said again."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from workbench.errors import BadInputError
from workbench.hardware import Memory
from workbench.linalg import PCA, SVD, compressed, krylov, svd, svd_compressed, tall
from workbench.linalg.arrays import ArrayError
from workbench.linalg.passes import DaskOperator

Matrix = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    with dask.config.set(scheduler="sync"):
        yield


def decaying(rows: int, columns: int, seed: int = 0, dtype: str = "f8") -> Matrix:
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((rows, columns)) for _ in range(2 if dtype[0] == "c" else 1)]
    x = parts[0] + (1j * parts[1] if dtype[0] == "c" else 0)
    u, _, vh = np.linalg.svd(x, full_matrices=False)
    return ((u * 0.8 ** np.arange(min(rows, columns))) @ vh).astype(dtype)


def check(x: Matrix, result: SVD, k: int, tol: float = 1e-3, digits: float = 1e-12) -> None:
    u, s, vh = dask.compute(*result)
    true = np.linalg.svd(x, compute_uv=False)[:k]
    assert (u.shape, s.shape, vh.shape) == ((len(x), k), (k,), (k, x.shape[1]))
    assert (abs(s - true) <= tol * true + 1e-13 * true.max(initial=0)).all()
    assert np.linalg.norm(u.conj().T @ u - np.eye(k), 2) < digits
    assert np.linalg.norm(vh @ vh.conj().T - np.eye(k), 2) < digits
    sums = vh.sum(axis=1) if len(x) >= x.shape[1] else u.sum(axis=0)
    assert (sums.real > -100 * np.finfo(u.dtype).eps).all()
    # Each triplet is one of x, as near as the values are.
    for one, other in ((x @ vh.conj().T, u * s), (x.conj().T @ u, vh.conj().T * s)):
        assert np.linalg.norm(one - other, axis=0).max(initial=0) <= 3 * np.sqrt(tol) * true.max(initial=0)


# --- as Dask's tests have it -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [5, 10, 20])
@pytest.mark.parametrize("columns", [5, 10, 15])
@pytest.mark.parametrize("chunks", [(5, 10), (10, 5)])
def test_small_arrays_of_every_shape_have_what_there_is(rows: int, columns: int, chunks: tuple[int, int]) -> None:
    x = np.random.default_rng(0).random((rows, columns))
    result = svd_compressed(da.from_array(x, chunks=chunks), 7, n_power_iter=1, compute=True, seed=1)
    check(x, result, min(7, rows, columns))
    assert result.certificate.status == "proved"


@pytest.mark.parametrize("given", [{"iterator": "power", "n_power_iter": 2}, {"iterator": "QR"}, {"compute": True}])
def test_dasks_parameters_are_taken(given: dict[str, Any]) -> None:
    x = decaying(300, 150)
    check(x, svd_compressed(da.from_array(x, chunks=(50, 50)), 5, seed=4321, **given), 5)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "f2", "u1", "?"])
def test_types_are_kept_or_become_double(dtype: str) -> None:
    a = da.from_array((np.random.default_rng(0).random((50, 30)) * 3).astype(dtype), chunks=(20, 30))
    expected = {"f2": "f4", "u1": "f8", "?": "f8"}.get(dtype, dtype)
    result = svd_compressed(a, 1, seed=4321)
    assert [x.dtype for x in result] == [x.compute().dtype for x in result]
    assert [result.u.dtype, result.vh.dtype] == [np.dtype(expected)] * 2
    assert result.s.dtype == np.finfo(expected).dtype


@pytest.mark.parametrize("seed", [1234, None, np.random.RandomState(3), da.random.RandomState(3)])
def test_the_same_seed_gives_the_same_result(seed: Any) -> None:
    a = da.from_array(decaying(200, 100), chunks=(50, 50))
    first = svd_compressed(a, 3, seed=seed)
    again = svd_compressed(a, 3, seed=first.certificate.seed)
    for one, other in zip(dask.compute(*first), dask.compute(*again), strict=True):
        np.testing.assert_array_equal(one, other)


def test_low_rank_approximations_are_the_best_there_are() -> None:
    x = decaying(400, 120)
    u, s, vh = dask.compute(*svd_compressed(da.from_array(x, chunks=(100, 120)), 10))
    assert np.linalg.norm(x - (u * s) @ vh, 2) <= 1.01 * 0.8**10


# --- what Dask's don't say ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("shape", [(700, 150), (150, 700)])
@pytest.mark.parametrize("chunks", [(100, 40), (-1, 50), (200, -1), (-1, -1)])
def test_every_chunking_orientation_and_kind_of_number_is_right(
    dtype: str, shape: tuple[int, int], chunks: tuple[int, int]
) -> None:
    x = decaying(*shape, dtype=dtype)
    check(x, svd_compressed(da.from_array(x, chunks=chunks), 6, tol=1e-5), 6, tol=1e-5)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i8", "f4", "f8", "c16"])
@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("shape", [(600, 100), (100, 600)])
def test_centring_and_scaling_are_as_if_on_a_copy(dtype: str, center: int, scale: bool, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x = 8 * rng.random(shape) + 20 * rng.random((shape[0], 1)) * rng.random((1, shape[1])) + 9
    x = (x + 1j * x[::-1] if dtype == "c16" else x).astype(dtype)
    wide = x.astype(np.promote_types(dtype, float))
    wide = wide - wide.mean(axis=center, keepdims=True)
    wide = wide / x.astype(wide.dtype).std(axis=center, keepdims=True) if scale else wide
    a = da.from_array(x, chunks=(150, 60))
    result = svd_compressed(a, 4, center=center, scale=scale)
    check(wide, result, 4, digits=1e-12 if dtype != "f4" else 1e-6)
    assert abs(result.squares / np.linalg.norm(wide) ** 2 - 1) < 1e-5


def test_what_does_not_vary_stays_when_scaled() -> None:
    x = decaying(300, 90) + 3
    x[:, 4] = 0.1
    x[17] = 0.1
    for center in (0, 1):
        result = svd_compressed(da.from_array(x, chunks=(100, 90)), 3, center=center, scale=True)
        deviation = x.std(axis=center, keepdims=True)
        centred = (x - x.mean(axis=center, keepdims=True)) / np.where(deviation > 1e-12, deviation, 1)
        check(centred, result, 3)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_no_scale_loses_accuracy(scale: float) -> None:
    x = decaying(300, 90)
    result = svd_compressed(da.from_array(x * scale, chunks=(100, 90)), 4)
    s = result.s.compute()
    np.testing.assert_allclose(s / scale, np.linalg.svd(x, compute_uv=False)[:4], rtol=1e-3)


@pytest.mark.parametrize("unit", [1e-300, 1e-120, 1e120, 1e300])
@pytest.mark.parametrize("center", [0, 1])
def test_what_is_divided_by_its_deviation_has_no_unit_left(unit: float, center: int) -> None:
    x = decaying(300, 90) + 3
    x[:, 4] = x[17] = 0.1
    centred = x - x.mean(axis=center, keepdims=True)
    deviation = np.where(x.std(axis=center) > 1e-12, x.std(axis=center), 1 / unit)
    result = svd_compressed(da.from_array(x * unit, chunks=(100, 90)), 3, center=center, scale=True)
    check(centred / np.expand_dims(np.where(deviation == 1 / unit, 1, deviation), center), result, 3)
    assert abs(result.shares.sum() - (result.s.compute() ** 2).sum() / result.squares) < 1e-12
    if center == 0:
        assert result.mean is not None
        assert result.factor is not None
        np.testing.assert_allclose(result.mean, x.mean(axis=0) * unit)
        np.testing.assert_allclose(result.factor, 1 / (deviation * unit))


@pytest.mark.parametrize("shape", [(300, 90), (90, 300)])
@pytest.mark.parametrize("power", [40, 60])
def test_single_precision_is_not_used_where_it_has_no_room_for_what_is_scaled(
    shape: tuple[int, int], power: int
) -> None:
    x = decaying(*shape) + 3
    columns = x * 10.0 ** np.linspace(-power, power, shape[1])
    centred = x - x.mean(axis=0)
    check(centred / x.std(axis=0), svd_compressed(da.from_array(columns, chunks=50), 3, center=0, scale=True), 3)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "Infinity")])
def test_what_is_not_finite_is_named_with_its_place(value: float, word: str) -> None:
    x = np.ones((200, 90))
    x[157, 83] = value
    with pytest.raises(ValueError, match=rf"{word} at row 157, column 83, in the block of rows 150 to 199"):
        svd_compressed(da.from_array(x, chunks=(50, 40)), 2)
    with pytest.raises(ValueError, match=rf"{word} at column 157, row 83, in the block of columns 150 to 199"):
        svd_compressed(da.from_array(x.T, chunks=(40, 50)), 2)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_array_has_no_singular_values(shape: tuple[int, int]) -> None:
    result = svd_compressed(da.zeros(shape), 3)
    assert [x.compute().shape for x in result] == [(shape[0], 0), (0,), (0, shape[1])]
    assert "no singular values" in result.certificate.sentence


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"k": 0}, "k is a whole number and at least 1, not 0"),
        ({"k": 1.5}, "k is a whole number and at least 1, not 1.5"),
        ({"k": "ten"}, "k is a whole number and at least 1, not 'ten'"),
        ({"k": None}, "k is a whole number"),
        ({"k": float("nan")}, "k is a whole number"),
        ({"tol": "fine"}, "between 0 and 1, not 'fine'"),
        ({"max_passes": "few"}, "max_passes is a whole number"),
        ({"seed": -1}, "seed is a whole number from 0 on"),
        ({"n_oversamples": -1}, "n_oversamples is a whole number and at least 0"),
        ({"tol": 0}, "between 0 and 1"),
        ({"max_passes": 0}, "at least 1"),
        ({"center": 2}, "axis"),
        ({"center": False}, "axis along which means are taken, 0, 1 or None, not False"),
        ({"scale": True}, "needs center"),
        ({"iterator": "qr"}, "Choose one of: power, QR"),
        ({"n_power_iter": "x"}, "n_power_iter is a whole number and at least 0, not 'x'"),
        ({"keep": "x"}, "keep is True, False or None, not 'x'"),
        ({"compute": "x"}, "compute is True or False, not 'x'"),
        ({"coerce_signs": 1}, "coerce_signs is True or False, not 1"),
        ({"scale": "x", "center": 0}, "scale is True or False, not 'x'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        svd_compressed(da.ones((20, 10)), **{"k": 2, **given})


def test_unknown_sizes_are_refused_with_the_remedy() -> None:
    a = da.ones((20, 10), chunks=5)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        svd_compressed(a[a[:, 0] > 0], 2)


def test_blocks_are_made_once_if_kept_and_each_time_if_not() -> None:
    made: list[int] = []

    def make(block: Matrix) -> Matrix:
        made.append(1)
        return block

    a = da.from_array(decaying(400, 100), chunks=(100, 100)).map_blocks(make, meta=np.zeros((0, 0)))
    kept = svd_compressed(a, 3, keep=True, seed=0).certificate
    assert len(made) == 4
    made.clear()
    again = svd_compressed(a, 3, keep=False, seed=0).certificate
    assert len(made) == 4 * again.passes == 4 * kept.passes


@pytest.mark.parametrize("made_of_it", [False, True])
def test_what_the_workers_hold_already_is_used_where_there_is_no_room_to_keep_it(
    quick_client: Any, made_of_it: bool
) -> None:
    with dask.config.set(scheduler=None):
        x = decaying(400, 100)
        a = da.from_array(x, chunks=(100, 100)).persist()
        if made_of_it:
            # Nothing but its graph holds on to what it is made of.
            a = a * 2
        result = svd_compressed(a, 3, keep=False, seed=0)
        check(x * 2 if made_of_it else x, result, 3)


def test_the_largest_values_outlive_a_basis_that_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.linalg.krylov.basis_bytes", lambda: 2 * 8 * 600 * 50)
    x = np.random.default_rng(0).standard_normal((900, 600)) + decaying(900, 600) * 50
    check(x, svd_compressed(da.from_array(x, chunks=(300, 600)), 5, max_passes=60), 5)


def test_what_is_kept_fits_a_container_and_not_the_machine_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Memory(total=2**38, available=2**28, cgroup_limit=2**30, limit=2**30)
    monkeypatch.setattr("workbench.hardware.memory", lambda: inside)
    krylov.basis_bytes.cache_clear()
    try:
        assert krylov.basis_bytes() == 2**28
        with dask.config.set(scheduler="threads"):
            assert compressed.most_in_memory(on_devices=False) == 2**27
            assert tall._largest(on_devices=False) == 2**30
    finally:
        krylov.basis_bytes.cache_clear()


def test_large_rows_of_blocks_are_cut_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.linalg.compressed.PANEL_BYTES", 100 * 90 * 8)
    x = decaying(400, 90)
    with pytest.warns(da.PerformanceWarning, match="blocks are cut smaller"):
        check(x, svd_compressed(da.from_array(x, chunks=(400, 30)), 3), 3)


def test_no_more_than_a_tile_is_in_floating_point(monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    x = da.from_array(np.random.default_rng(0).integers(0, 3, (40_000, 200), dtype=np.uint8), chunks=(20_000, 200))
    seen: list[int] = []
    normal = DaskOperator.normal

    def measured(self: DaskOperator, q: Matrix, single: bool) -> Matrix:
        tracemalloc.start()
        product = normal(self, q, single)
        seen.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        return product

    monkeypatch.setattr(DaskOperator, "normal", measured)
    svd_compressed(x, 3, center=1, tol=0.1)
    assert max(seen) < x.nbytes


@pytest.mark.parametrize("in_graph", [0, 2**20])
def test_it_runs_on_a_cluster(quick_client: Any, in_graph: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.linalg.passes.GRAPH_BYTES", in_graph)
    with dask.config.set(scheduler=None):
        x = decaying(3000, 120)
        result = svd_compressed(da.from_array(x, chunks=(500, 120)), 5)
        u, s, vh = quick_client.gather(quick_client.compute(list(result)))
        assert np.linalg.norm(x @ vh.T - u * s) < 1e-2


@pytest.mark.parametrize("shape", [(60, 300), (300, 60)])
@pytest.mark.parametrize("center", [None, 0, 1])
def test_blocks_are_gone_through_along_either_axis(shape: tuple[int, int], center: int | None) -> None:
    x = np.random.default_rng(0).standard_normal(shape) * np.geomspace(1, 1e-3, shape[1]) + 3
    for axis in (0, 1):
        chunks = (20, -1) if axis == 0 else (-1, 20)
        u, s, v = svd_compressed(da.from_array(x, chunks=chunks), 4, axis=axis, center=center, tol=1e-8, seed=0)
        y = x if center is None else x - x.mean(axis=center, keepdims=True)
        expected = np.linalg.svd(y, full_matrices=False)
        np.testing.assert_allclose(s, expected[1][:4], rtol=1e-8)
        best = (expected[0][:, :4] * expected[1][:4]) @ expected[2][:4]
        np.testing.assert_allclose(((u * s) @ v).compute(), best, atol=1e-4 * np.abs(best).max())


def test_there_are_two_axes() -> None:
    with pytest.raises(BadInputError, match="axis is 0, 1 or None, not 2"):
        svd_compressed(da.ones((4, 4)), 2, axis=2)


# --- what is returned is what is certified -----------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("scale", "dtype", "tol", "returned"),
    [
        (1, "f4", 1e-3, "f4"),
        (1, "f4", 1e-9, "f8"),  # float32 rounds by more than that
        (3e37, "f4", 1e-3, "f8"),  # the largest is above 3.4e38
        (1e-43, "f4", 1e-3, "f4"),
        (1000, "f2", 1e-3, "f4"),
        (1e-310, "f8", 1e-3, "f8"),
        (2**60, "i8", 1e-9, "f8"),
        (2**60, "u8", 1e-9, "f8"),
    ],
)
def test_the_certificate_is_of_the_values_as_they_are_returned(
    scale: float, dtype: str, tol: float, returned: str
) -> None:
    x = np.random.default_rng(0).normal(size=(600, 100)) * 0.7 ** np.arange(100)
    x = ((abs(x) if dtype == "u8" else x) * scale).astype(dtype)
    exact = np.linalg.svd(x.astype(float) / scale, compute_uv=False)[:3]
    result = svd_compressed(da.from_array(x, chunks=(200, 100)), 3, tol=tol, seed=0)
    s = result.s.compute()
    assert (s.dtype, result.s.dtype) == (np.dtype(returned),) * 2
    for values in (s.astype(float), result.values):
        assert (abs(values / scale - exact) <= (result.certificate.bound + 1e-15) * exact).all()
    assert result.certificate.status != "not reached"


def test_values_beyond_the_range_of_their_type_are_refused_by_name() -> None:
    x = np.random.default_rng(0).normal(size=(600, 100))
    single, double = (da.from_array((x * scale).astype(dtype), chunks=(200, 100)) for scale, dtype in _BEYOND)
    with pytest.raises(ArrayError, match=r"The largest singular value, [\d.]+e\+3\d, is out of the range of float32"):
        svd(single)[1].compute()
    for decompose in (lambda: svd(double)[1].compute(), lambda: svd_compressed(double, 2)):
        with pytest.raises(ArrayError, match=r"float64.*Divide the array by a constant first"):
            decompose()
    with pytest.raises(ArrayError, match="variances of these numbers are too large for float64"):
        PCA(2).fit(da.from_array(x * 1e200, chunks=(200, 100)))
    ours = PCA(2).fit(single)
    assert np.isfinite([ours.singular_values_, ours.explained_variance_]).all()


_BEYOND = ((3e37, "f4"), (1e307, "f8"))
