"""`svd` of tall and wide arrays against NumPy in float64; first what Dask's own tests say of theirs, said again."""

from __future__ import annotations

import pickle
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from workbench.linalg import svd, tall
from workbench.linalg.arrays import ArrayError, ArrayTypeError
from workbench.linalg.threads import one_thread

Matrix = np.ndarray[Any, Any]


def computed(a: Any, **given: Any) -> tuple[Matrix, Matrix, Matrix]:
    u, s, vh = dask.compute(*svd(a, **given), scheduler="sync")
    return u, s, vh


def check(x: Matrix, u: Matrix, s: Matrix, vh: Matrix, digits: float = 1e-13) -> None:
    """Check that the factors are orthonormal and give x back, and that the values are LAPACK's."""
    k = min(x.shape)
    assert (u.shape, s.shape, vh.shape) == ((x.shape[0], k), (k,), (k, x.shape[1]))
    scale = max(np.linalg.norm(x, 2), np.finfo(float).tiny)
    assert np.linalg.norm(u.conj().T @ u - np.eye(k), 2) < digits
    assert np.linalg.norm(vh @ vh.conj().T - np.eye(k), 2) < digits
    assert np.linalg.norm((u * s) @ vh - x, 2) < digits * scale
    assert np.abs(s - np.linalg.svd(x, compute_uv=False)).max() < digits * scale
    assert (np.diff(s) <= 0).all()


def conditioned(rows: int, columns: int, condition: float) -> Matrix:
    rng = np.random.default_rng(rows)
    v = np.linalg.qr(rng.standard_normal((columns, columns)))[0]
    u = np.linalg.qr(rng.standard_normal((rows, columns)))[0]
    return (u * np.logspace(0, -np.log10(condition), columns)) @ v.T


def routes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that fills with the routes that the graph takes."""
    taken: list[str] = []
    last = tall._last
    monkeypatch.setattr(tall, "_last", lambda step, *rest: (taken.append(step.route), last(step, *rest))[1])
    return taken


# --- as Dask's tests have it -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "columns", "chunks"),
    [
        (20, 10, 10),
        (20, 10, (3, 10)),
        (20, 10, ((8, 4, 8), 10)),
        (40, 10, ((15, 5, 5, 8, 7), 10)),
        (131, 2, (16, 2)),
        (300, 10, (20, 10)),
        (10, 5, 10),
        (5, 10, 10),
        (10, 10, 10),
        (10, 40, (10, 10)),
        (10, 40, (10, 15)),
        (10, 40, (10, (15, 5, 5, 8, 7))),
        (10, 5, ((4, 0, 1, 0, 5), 5)),
        (10, 100, (9, -1)),
        (100, 10, (-1, 9)),
        (10, 10, (9, -1)),
        (1, 1, 1),
        (1, 7, (1, 3)),
        (7, 1, (3, 1)),
    ],
)
def test_every_shape_and_chunking_along_one_axis_gives_numpys_svd(rows: int, columns: int, chunks: Any) -> None:
    x = np.random.default_rng(0).random((rows, columns))
    check(x, *computed(da.from_array(x, chunks=chunks)))


def test_the_same_array_gives_the_same_keys() -> None:
    a = da.ones((20, 10), chunks=(10, 10))
    assert [set(x.dask) for x in svd(a)] == [set(x.dask) for x in svd(a)]
    assert svd(a)[0].name != svd(a, coerce_signs=False)[0].name


@pytest.mark.parametrize("shape", [(10, 20), (15, 15), (20, 10)])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "i4", "u1", "?"])
def test_shapes_types_and_chunks_are_as_promised_before_computing(shape: tuple[int, int], dtype: str) -> None:
    a = da.from_array(
        (np.random.default_rng(0).random(shape) * 9).astype(dtype), chunks=(3, 20) if shape[0] == 20 else -1
    )
    for lazy in svd(a):
        value = lazy.compute(scheduler="sync")
        assert (lazy.shape, lazy.dtype) == (value.shape, value.dtype)
        assert lazy.dtype.itemsize == {"f2": 4, "f4": 4, "c8": 8 if lazy.dtype.kind == "c" else 4}.get(
            dtype, 16 if lazy.dtype.kind == "c" else 8
        )


def test_unknown_numbers_of_rows_are_worked_with() -> None:
    x = np.random.default_rng(0).random((100, 10))
    a = da.from_array(x, chunks=(10, 10))
    check(x[x[:, 0] > 0.5], *computed(a[a[:, 0] > 0.5]))


def test_too_few_of_an_unknown_number_of_rows_are_refused() -> None:
    a = da.from_array(np.random.default_rng(0).random((30, 10)), chunks=(10, 10))
    with pytest.raises(ArrayError, match=r"compute_chunk_sizes"):
        computed(a[a[:, 0] > 0.9])


@pytest.mark.parametrize("shape", [(20, 10), (10, 20), (10, 10)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_signs_are_dasks(shape: tuple[int, int], dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype == "c16" else 0)).astype(dtype)
    _, _, vh = computed(da.from_array(x, chunks=(5, -1) if shape[0] > 10 else (-1, 5)))
    assert (vh.sum(axis=1).real >= 0).all()


def test_without_coercing_signs_the_factors_still_fit() -> None:
    x = np.random.default_rng(0).standard_normal((50, 4))
    check(x, *computed(da.from_array(x, chunks=(9, 4)), coerce_signs=False))


def test_chunks_along_both_axes_are_joined_and_it_is_said() -> None:
    x = np.random.default_rng(0).random((20, 10))
    with pytest.warns(da.PerformanceWarning, match="joins the 2 blocks along axis 1"):
        factors = computed(da.from_array(x, chunks=(5, 5)))
    check(x, *factors)


@pytest.mark.parametrize("ndim", [0, 1, 3])
def test_other_than_two_dimensions_are_refused(ndim: int) -> None:
    with pytest.raises(ValueError, match="Array must be 2D"):
        svd(da.ones((10,) * ndim, chunks=-1))


def test_full_matrices_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="full_matrices"):
        svd(da.ones((10, 10)), full_matrices=True)


@pytest.mark.parametrize("name", ["coerce_signs", "full_matrices"])
def test_flags_are_true_or_false(name: str) -> None:
    with pytest.raises(ArrayError, match=f"{name} is True or False, not 'no'"):
        svd(da.ones((10, 10)), **{name: "no"})


@pytest.mark.parametrize("thing", [3, "a", None])
def test_what_is_no_array_is_refused(thing: Any) -> None:
    with pytest.raises(ArrayTypeError, match="An array is needed"):
        svd(thing)


@pytest.mark.parametrize("dtype", ["M8[s]", "U3", np.longdouble])
def test_what_are_no_common_numbers_is_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match="An SVD needs numbers"):
        svd(da.from_array(np.empty((3, 2), dtype=dtype)))


# --- what Dask's don't say ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [1e3, 1e8, 1e12, 1e15, 1e20, 1e300])
@pytest.mark.parametrize("wide", [False, True])
def test_no_conditioning_loses_accuracy(condition: float, wide: bool) -> None:
    x = conditioned(3000, 40, condition)
    a = da.from_array(x, chunks=(400, 40))
    check(*((x.T, *computed(a.T)) if wide else (x, *computed(a))))


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
def test_no_scale_loses_accuracy(scale: float) -> None:
    x = conditioned(500, 10, 1e6) * scale
    check(x, *computed(da.from_array(x, chunks=(70, 10))))


def test_columns_of_very_different_scale_keep_their_factors_orthonormal() -> None:
    x = np.random.default_rng(0).standard_normal((2000, 12)) * np.logspace(0, -150, 12)
    check(x, *computed(da.from_array(x, chunks=(300, 12))))


@pytest.mark.parametrize("rank", [0, 1, 75, 99])
def test_a_rank_below_the_columns_still_gives_orthonormal_factors(rank: int) -> None:
    rng = np.random.default_rng(rank)
    x = rng.standard_normal((3000, rank)) @ rng.standard_normal((rank, 100))
    check(x, *computed(da.from_array(x, chunks=(500, 100))), digits=1e-12)


def test_zero_and_equal_columns_still_give_orthonormal_factors() -> None:
    x = np.random.default_rng(0).standard_normal((3000, 8))
    x[:, 3] = 0
    x[:, 5] = x[:, 1]
    check(x, *computed(da.from_array(x, chunks=(500, 8))))


@pytest.mark.parametrize("fan_in", [2, 16])
def test_columns_without_rank_need_no_second_way(fan_in: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tall, "FAN_IN", fan_in)
    rng, taken = np.random.default_rng(0), routes(monkeypatch)
    full = rng.standard_normal((3000, 40))
    zeros, equal, nothing, square = full.copy(), full.copy(), np.zeros((500, 8)), rng.standard_normal((40, 40))
    zeros[:, [3, 17]] = square[:, 5] = 0
    equal[:, 5] = equal[:, 1]
    for x in (zeros, equal, nothing, square, zeros + 1j * zeros[::-1], full[:, :30] @ full[:30]):
        check(x, *computed(da.from_array(x, chunks=(130, -1))))
        check(x.T, *computed(da.from_array(x.T, chunks=(-1, 130))))
    assert set(taken) == {"done"}


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e-13])
def test_what_the_sketch_does_not_see_is_seen_in_the_array(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # Rows that meet in one bucket with other signs leave nothing of themselves there.
    taken, first, buckets = routes(monkeypatch), tall._first, tall._buckets(20)

    def blind(sketch: tall.Total) -> tall.Step:
        matrix = sketch.matrix.copy()
        matrix[:, 19] = 0
        return first(tall.Total(matrix, sketch.sums, sketch.rows))

    x = np.random.default_rng(0).standard_normal((3 * buckets, 20))
    x[:, 19] = 0
    x[[5, buckets + 5], 19] = size
    monkeypatch.setattr(tall, "_first", blind)
    check(x, *computed(da.from_array(x, chunks=(300, 20))))
    assert taken == ["tsqr" if size > 1e-12 else "done"]


def test_small_factors_are_joined_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tall, "_second", lambda step, gram: tall._given_up(step))
    monkeypatch.setattr(tall, "FAN_IN", 3)
    joined: list[int] = []
    join = tall._joined_triangles
    monkeypatch.setattr(tall, "_joined_triangles", lambda parts: (joined.append(len(parts)), join(parts))[1])
    x = conditioned(3000, 12, 1e9)
    x[:, 4] = 0
    check(x, *computed(da.from_array(x, chunks=(71, 12))))
    assert max(joined) == 3
    assert len(joined) > 43 / 3


def test_a_sketch_takes_no_more_than_the_rows_that_are_in_it() -> None:
    block = np.random.default_rng(0).standard_normal((100, 2000))
    assert tall._sketch(block, 0, 0.0, tall._buckets(2000), "row").matrix.nbytes == block.nbytes


def test_an_exact_svd_that_no_worker_can_hold_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(da.PerformanceWarning, match=r"one task needs about 3\.22 GiB for it.*svd_compressed\(a, k\)"):
        svd(da.zeros((10**6, 6000), chunks=(1000, 6000)))
    with pytest.raises(ValueError, match=r"matrices of 400,000 × 400,000: .* and the largest worker has"):
        svd(da.zeros((10**6, 400_000), chunks=(100, 400_000)))


def test_rows_that_all_meet_in_one_bucket_of_the_sketch_are_caught() -> None:
    x = np.zeros((40 * tall._buckets(20), 20))
    x[:: tall._buckets(20)] = np.random.default_rng(0).standard_normal((40, 20))
    check(x, *computed(da.from_array(x, chunks=(3 * tall._buckets(20), 20))))


def test_a_sketch_that_is_somewhat_off_is_mended_by_one_round_more(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = routes(monkeypatch)
    multipliers: list[int] = []
    polished = tall._polished
    monkeypatch.setattr(tall, "_polished", lambda s, *r: (multipliers.append(len(s.multipliers)), polished(s, *r))[1])
    first = tall._first

    def off(sketch: tall.Total) -> tall.Step:
        return first(tall.Total(sketch.matrix @ np.diag(np.logspace(0, -4, 20)), sketch.sums, sketch.rows))

    monkeypatch.setattr(tall, "_first", off)
    x = np.random.default_rng(0).standard_normal((4000, 20))
    check(x, *computed(da.from_array(x, chunks=(900, 20))))
    assert (taken, multipliers) == (["done"], [2])


@pytest.mark.parametrize("wide", [False, True])
def test_householders_way_is_right_on_its_own(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tall, "_second", lambda step, gram: tall._given_up(step))
    x = conditioned(3000, 40, 1e9)
    a = da.from_array(x, chunks=((1000, 7, 0, 1993), 40))
    u, s, vh = computed(a.T if wide else a)
    check(x.T if wide else x, u, s, vh)
    assert (vh.sum(axis=1) >= 0).all()


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "Infinity"), (-np.inf, "Infinity")])
def test_what_is_not_finite_is_named_with_its_place(value: float, word: str) -> None:
    x = np.ones((100, 5))
    x[57, 3] = value
    with pytest.raises(ValueError, match=rf"{word} at row 57, column 3, in the block of rows 50 to 74"):
        computed(da.from_array(x, chunks=(25, 5)))
    with pytest.raises(ValueError, match=rf"{word} at column 57, row 3, in the block of columns 50 to 74"):
        computed(da.from_array(x.T, chunks=(5, 25)))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_an_empty_array_has_no_singular_values(shape: tuple[int, int]) -> None:
    u, s, vh = computed(da.zeros(shape, dtype="f4"))
    assert (u.shape, s.shape, vh.shape) == ((shape[0], 0), (0,), (0, shape[1]))
    assert u.dtype == s.dtype == np.float32


def test_single_precision_is_as_exact_as_it_can_be() -> None:
    x = conditioned(5000, 20, 1e4).astype(np.float32)
    u, s, vh = computed(da.from_array(x, chunks=(700, 20)))
    assert np.abs(s - np.linalg.svd(x.astype(float), compute_uv=False)).max() < 1e-7
    check(x.astype(float), u.astype(float), s.astype(float), vh.astype(float), digits=2e-6)


def test_sparse_blocks_are_written_out_tile_by_tile() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    x = np.random.default_rng(0).random((60, 4))
    x[x < 0.5] = 0
    a = da.from_array(x, chunks=(20, 4))
    for each in (a.map_blocks(sparse.csr_array, meta=a._meta), a.map_blocks(sparse.csr_matrix)):
        check(x, *computed(each))
        assert isinstance(svd(each)[0]._meta, np.ndarray)


def test_masked_arrays_are_refused_with_the_remedy() -> None:
    a = da.ma.masked_less(da.from_array(np.random.default_rng(0).random((20, 3)), chunks=(5, 3)), 0.1)
    with pytest.raises(TypeError, match=r"da.ma.filled"):
        computed(a)


def test_orthonormal_keeps_the_order_of_the_columns() -> None:
    x = conditioned(500, 6, 1e5)
    q, r = dask.compute(*tall.orthonormal(da.from_array(x, chunks=(90, 6))))
    assert np.abs(q @ r - x).max() < 1e-14
    assert np.abs(np.tril(r, -1)).max() == 0
    assert (np.diagonal(r) >= 0).all()
    assert np.linalg.norm(q.T @ q - np.eye(6), 2) < 1e-14


def test_it_runs_on_a_cluster(quick_client: Any) -> None:
    x = np.random.default_rng(0).standard_normal((1000, 5))
    u, s, vh = quick_client.gather(quick_client.compute(list(svd(da.from_array(x, chunks=(100, 5))))))
    check(x, u, s, vh)


def test_what_came_from_another_worker_gives_the_same_bits() -> None:
    def sent(value: Any) -> Any:
        """Return a value as Dask makes it on another worker, where arrays start anywhere in the message."""
        buffers: list[pickle.PickleBuffer] = []
        text = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        return pickle.loads(text, buffers=[memoryview(b"-" + bytes(each))[1:] for each in buffers])

    block = np.random.default_rng(0).random((288, 100))
    first = tall._first(tall._sketch(block, 0, 0.0, tall._buckets(100), "row"))
    here, there = (tall._gram(block, step, 0, False) for step in (first, sent(first)))
    assert here.matrix.tobytes() == there.matrix.tobytes()


def test_of_calls_that_overlap_the_last_gives_blas_its_threads_back() -> None:
    def used() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(limits=2, user_api="blas"):
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert used() == {1}
        second.__exit__(None, None, None)
        assert used() == {2}
