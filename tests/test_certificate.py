"""The bound on each singular value holds, on spectra that are easy, hard, degenerate and deceptive."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from workbench.linalg import svd_compressed
from workbench.linalg.certificate import Certificate
from workbench.linalg.passes import DaskOperator, View

Matrix = np.ndarray[Any, Any]
ROWS, COLUMNS, K = 300, 160, 10


def spectrum(s: Matrix, seed: int, rows: int = ROWS) -> Matrix:
    rng = np.random.default_rng(seed)
    u = np.linalg.qr(rng.standard_normal((rows, len(s))))[0]
    return (u * s) @ np.linalg.qr(rng.standard_normal((len(s), len(s))))[0].T


def repeated(times: int) -> Matrix:
    return np.r_[np.ones(times), 0.5 * 0.9 ** np.arange(COLUMNS - times)]


def genotypes(seed: int) -> Matrix:
    rng = np.random.default_rng(seed)
    frequency = rng.uniform(0.05, 0.95, (ROWS, 1))
    populations = np.clip(frequency + 0.15 * rng.standard_normal((ROWS, 6)), 0.01, 0.99)
    return rng.binomial(2, populations[:, rng.integers(0, 6, COLUMNS)]).astype(np.uint8)


def noise(seed: int, rows: int = ROWS, columns: int = COLUMNS) -> Matrix:
    return np.random.default_rng(seed).standard_normal((rows, columns))


def low_rank(rank: int, seed: int) -> Matrix:
    return noise(seed, ROWS, rank) @ noise(seed + 1, rank, COLUMNS)


RANKS = np.arange(1, COLUMNS + 1)
CLUSTER = np.r_[2, 1.5, 1 + 1e-6 * np.arange(12)[::-1], 0.3 * 0.95 ** np.arange(COLUMNS - 14)]
CASES: dict[str, Any] = {
    "10^(-i/2)": lambda seed: spectrum(10 ** (-(RANKS - 1) / 2), seed),
    "1/i": lambda seed: spectrum(1 / RANKS, seed),
    "noise": noise,
    "centred noise": lambda seed: noise(seed) - noise(seed).mean(axis=0),
    "spike and noise": lambda seed: noise(seed) + 9 * np.outer(noise(seed + 1, ROWS, 1), noise(seed + 2, COLUMNS, 1)),
    "3 equal": lambda seed: spectrum(repeated(3), seed),
    "15 equal": lambda seed: spectrum(repeated(15), seed),
    "40 equal": lambda seed: spectrum(repeated(40), seed),
    "cluster": lambda seed: spectrum(CLUSTER, seed),
    "rank 5": lambda seed: low_rank(5, seed),
    "rank 10": lambda seed: low_rank(10, seed),
    "rank 12": lambda seed: low_rank(12, seed),
    "zero": lambda seed: np.zeros((ROWS, COLUMNS)),
    "identity": lambda seed: np.eye(COLUMNS),
    "flat": lambda seed: spectrum(np.ones(COLUMNS), seed),
    "wide": lambda seed: spectrum(1 / RANKS, seed).T,
    "7 x 5": lambda seed: noise(seed, 7, 5),
    "1 x 1": lambda seed: noise(seed, 1, 1),
    "5 x 30": lambda seed: noise(seed, 5, 30),
    "times 1e20": lambda seed: spectrum(1 / RANKS, seed) * 1e20,
    "times 1e-25": lambda seed: spectrum(1 / RANKS, seed) * 1e-25,
    "1e6 before 1 to 0.1": lambda seed: spectrum(np.r_[1e6, np.linspace(1, 0.1, COLUMNS - 1)], seed),
    "genotypes": genotypes,
}


def found(x: Matrix, seed: int, tol: float, **given: Any) -> tuple[Matrix, Certificate, Matrix]:
    """The singular values found, their certificate, and how far each is from the true one, as the bound counts."""
    with dask.config.set(scheduler="sync"):
        result = svd_compressed(da.from_array(x, chunks=(max(1, len(x) // 3), -1)), K, tol=tol, seed=seed, **given)
        s = result.s.compute()
    x = x if given.get("center") is None else x - x.mean(axis=given["center"], keepdims=True)
    true = np.linalg.svd(x, compute_uv=False)[:K]
    whole = np.where(true > 4 * max(x.shape) * np.finfo(float).eps * true[0], true, max(true[0], 1e-300))
    return s, result.certificate, abs(s - true) / whole


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tol", [1e-3, 1e-7])
def test_the_bound_is_never_below_the_true_error(case: str, tol: float) -> None:
    for seed in range(4):
        given = {"center": 1} if case == "genotypes" else {}
        _, certificate, error = found(CASES[case](seed), seed, tol, **given)
        # The reference is itself only good to rounding.
        assert (error <= certificate.bound + 2e-14).all(), (seed, certificate.sentence)
        if certificate.status != "not reached":
            assert error.max() <= tol, (seed, certificate.sentence)


@pytest.mark.parametrize("case", sorted(CASES.keys() - {"1e6 before 1 to 0.1"}))
def test_a_thousandth_is_reached(case: str) -> None:
    assert found(CASES[case](1), 1, 1e-3)[1].status != "not reached"


def test_the_bound_is_not_far_above_the_true_error_on_genotypes() -> None:
    ratios = []
    for seed in range(6):
        _, certificate, error = found(genotypes(seed), seed, 1e-3, center=1)
        ratios.append(certificate.bound.max() / error.max())
    assert 1 <= np.median(ratios) < 40


def test_pure_noise_is_honestly_not_reached() -> None:
    _, certificate, error = found(noise(0, 1200, 800), 0, 1e-4, max_passes=4)
    assert certificate.status == "not reached"
    assert certificate.bound.max() > 1e-4
    assert (error <= certificate.bound).all()
    assert "not reached" in certificate.sentence
    assert "max_passes" in certificate.sentence


@pytest.mark.parametrize(("columns", "members", "width"), [(10, 60, 1e-6), (16, 60, 1e-4), (16, 100, 1e-4)])
def test_the_bound_holds_in_a_cluster_of_more_values_than_a_block_has_columns(
    columns: int, members: int, width: float
) -> None:
    for seed in range(3):
        inside = np.sort(1 - width * np.random.default_rng(seed).random(members))[::-1]
        true = np.r_[inside, np.linspace(0.5, 0.49, COLUMNS - members)]
        result = svd_compressed(da.from_array(spectrum(true, seed), chunks=(100, -1)), columns, tol=width, seed=seed)
        assert (abs(result.s.compute() / true[:columns] - 1) <= result.certificate.bound + 2e-14).all()


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_ends_before_two_passes_agree_has_a_bound_that_is_proved(case: str) -> None:
    for seed in range(2):
        _, certificate, error = found(CASES[case](seed), seed, 1e-9, max_passes=1)
        assert (error <= certificate.bound + 2e-14).all(), (seed, certificate.sentence)


def test_the_first_pass_alone_is_not_believed() -> None:
    x = spectrum(np.r_[np.ones(K), np.full(COLUMNS - K, 1e-3)], 0)
    assert found(x, 0, 0.05)[1].passes > 1
    assert found(x, 0, 0.05, max_passes=1)[1].status == "not reached"


def test_a_low_rank_is_proved_by_the_trace() -> None:
    _, certificate, _ = found(low_rank(12, 0), 0, 1e-3)
    assert certificate.status == "proved"
    assert certificate.sentence.startswith("It is proved that all 10 singular values are right to")


def test_an_angle_without_a_gap_is_not_told_as_a_bound() -> None:
    _, certificate, _ = found(np.eye(40), 0, 1e-3)
    assert certificate.angle >= 1
    assert certificate.sentence.endswith(
        "the next value is too near to the last to bound the angle to the true vectors."
    )


@pytest.mark.parametrize("columns", [1, 8, 80])
def test_where_all_values_are_asked_for_no_gap_is_spoken_of(columns: int) -> None:
    x = noise(0, 100, columns)
    certificate = svd_compressed(da.from_array(x, chunks=(40, -1)), columns).certificate
    assert certificate.angle == 0
    assert certificate.sentence.endswith(
        "span all there is along the shorter side, so that there is no gap to look for."
    )


def test_values_that_squaring_would_lose_are_found_by_a_qr_factorization() -> None:
    s = 10.0 ** -np.arange(COLUMNS)
    s, certificate, error = found(spectrum(s, 0), 0, 1e-3)
    assert "QR" in certificate.dtype
    assert certificate.status != "not reached"
    assert (np.abs(s / 10.0 ** -np.arange(10) - 1) < 1e-3).all()
    assert error.max() < 1e-3


@pytest.mark.parametrize(("tol", "dtype"), [(1e-3, "float32"), (1e-10, "float64")])
def test_single_precision_is_used_only_where_the_tolerance_allows_it(tol: float, dtype: str) -> None:
    assert found(genotypes(0), 0, tol, center=1)[1].dtype.startswith(dtype)


def test_passes_and_bytes_are_counted() -> None:
    x = da.from_array(genotypes(0), chunks=(100, -1))
    once, again = (svd_compressed(x, 3, keep=keep).certificate for keep in (True, False))
    assert once.passes == again.passes > 1
    assert once.bytes_read == x.nbytes
    assert again.bytes_read == x.nbytes * again.passes


def test_the_angle_is_bounded_where_there_is_a_gap() -> None:
    x = spectrum(np.r_[np.linspace(3, 2, K), 0.7 ** np.arange(COLUMNS - K)], 3)
    with dask.config.set(scheduler="sync"):
        result = svd_compressed(da.from_array(x, chunks=(100, -1)), K, tol=1e-4)
        vh = result.vh.compute()
    true = np.linalg.svd(x)[2][:K]
    sine = np.linalg.norm(vh - vh @ true.T @ true, 2)
    assert sine <= result.certificate.angle < 0.1


@pytest.mark.parametrize("along", [None, "rows", "columns"])
@pytest.mark.parametrize(("dtype", "exact"), [("u1", True), ("f4", True), ("f8", False), ("i4", False)])
def test_numbers_rounded_as_they_are_read_are_counted(along: Any, dtype: str, exact: bool) -> None:
    # Both products of a pass use the same rounded numbers, so that no asymmetry could show it.
    x = (abs(noise(3)) * 30).astype(dtype)
    operator = DaskOperator(da.from_array(x, chunks=(100, -1)), View(along), "row", kept=True)
    with dask.config.set(scheduler="sync"):
        operator.normal(np.eye(COLUMNS, 3), False)
    half, s = np.linalg.norm(x.astype(float)) / 2, np.array([3.0, 0.0])
    if exact and along is None:
        assert not operator.input_error(s, True).any()
    else:
        np.testing.assert_allclose(operator.input_error(s, True), np.finfo(np.float32).eps * half)
    expected = 0 if along is None else np.finfo(np.float64).eps * half
    np.testing.assert_allclose(operator.input_error(s, False), expected)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_a_mean_far_above_the_spread_is_in_the_bound(center: int, dtype: str) -> None:
    x = (noise(3) * np.linspace(3, 1, COLUMNS) * (1 if dtype == "f8" else 30) + 1e6).astype(dtype)
    with dask.config.set(scheduler="sync"):
        result = svd_compressed(da.from_array(x, chunks=(100, -1)), K, center=center, tol=1e-4)
        s = result.s.compute()
    true = np.linalg.svd(x - x.mean(axis=center, keepdims=True), compute_uv=False)[:K]
    assert (abs(s / true - 1) <= result.certificate.bound + 1e-14).all()
