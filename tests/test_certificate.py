"""The bound on each singular value holds, on spectra that are easy, hard, degenerate and deceptive."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning

from workbench.genotypes import pca as genotypes_pca
from workbench.linalg import PCA, AccuracyWarning, krylov, passes, svd_compressed
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


@pytest.fixture(autouse=True)
def random_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass is one of the search, as of arrays of many columns."""
    monkeypatch.setattr(passes, "GRAM_COLUMNS", 0)


@pytest.fixture(params=[0, passes.GRAM_COLUMNS], ids=["random start", "start from the Gram matrix"])
def any_start(request: pytest.FixtureRequest, random_start: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test twice: as it is, and with the start for arrays of few columns."""
    monkeypatch.setattr(passes, "GRAM_COLUMNS", request.param)


def found(x: Matrix, seed: int, tol: float, **given: Any) -> tuple[Matrix, Certificate, Matrix, Matrix]:
    """Return the singular values found, their certificate, the error of each, and the true values."""
    with dask.config.set(scheduler="sync"), warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        result = svd_compressed(da.from_array(x, chunks=(max(1, len(x) // 3), -1)), K, tol=tol, seed=seed, **given)
        s = result.s.compute()
    x = x if given.get("center") is None else x - x.mean(axis=given["center"], keepdims=True)
    true = np.linalg.svd(x, compute_uv=False)[:K]
    return s, result.certificate, abs(s - true), true


def holds(certificate: Certificate, error: Matrix, true: Matrix) -> bool:
    """Return whether each value's error is within its bound, relative to the value and to the largest one."""
    # The reference is itself only good to rounding.
    itself = np.where(np.isinf(certificate.bound), np.inf, (certificate.bound + 2e-14) * true)
    return bool((error <= itself).all() and (error <= (certificate.of_largest + 2e-14) * true[0]).all())


def reached(certificate: Certificate, error: Matrix, true: Matrix) -> bool:
    """Return whether each value has the requested accuracy, or is only rounding error."""
    return bool(((error <= certificate.tol * true) | (true <= 1e-14 * true[0])).all())


@pytest.mark.usefixtures("any_start")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tol", [1e-3, 1e-7])
def test_the_bound_is_never_below_the_true_error_and_a_thousandth_is_reached(case: str, tol: float) -> None:
    for seed in range(2):
        given = {"center": 1} if case == "genotypes" else {}
        _, certificate, error, true = found(CASES[case](seed), seed, tol, **given)
        assert holds(certificate, error, true), (seed, certificate.sentence)
        if certificate.status != "not reached":
            assert reached(certificate, error, true), (seed, certificate.sentence)
        elif case != "1e6 before 1 to 0.1":
            assert tol < 1e-3, "a thousandth is reached"


def test_the_bound_is_not_far_above_the_true_error_on_genotypes() -> None:
    ratios = []
    for seed in range(6):
        _, certificate, error, true = found(genotypes(seed), seed, 1e-3, center=1)
        ratios.append(certificate.bound.max() / (error / true).max())
    assert 1 <= np.median(ratios) < 40


def test_pure_noise_is_honestly_not_reached() -> None:
    _, certificate, error, true = found(noise(0, 1200, 800), 0, 1e-4, max_passes=4)
    assert (certificate.status, certificate.limit) == ("not reached", "passes")
    assert certificate.bound.max() > 1e-4
    assert holds(certificate, error, true)
    assert "not reached" in certificate.sentence
    assert "in Python more passes (max_passes)" in certificate.sentence


@pytest.mark.usefixtures("any_start")
@pytest.mark.parametrize(("columns", "members", "width"), [(10, 60, 1e-6), (16, 100, 1e-4)])
def test_the_bound_holds_in_a_cluster_of_more_values_than_a_block_has_columns(
    columns: int, members: int, width: float
) -> None:
    for seed in range(2):
        inside = np.sort(1 - width * np.random.default_rng(seed).random(members))[::-1]
        true = np.r_[inside, np.linspace(0.5, 0.49, COLUMNS - members)]
        result = svd_compressed(da.from_array(spectrum(true, seed), chunks=(100, -1)), columns, tol=width, seed=seed)
        assert (abs(result.s.compute() / true[:columns] - 1) <= result.certificate.bound + 2e-14).all()


@pytest.mark.usefixtures("any_start")
@pytest.mark.parametrize("case", sorted(CASES))
def test_what_ends_before_two_passes_agree_has_a_bound_that_is_proved(case: str) -> None:
    _, certificate, error, true = found(CASES[case](0), 0, 1e-9, max_passes=1)
    assert holds(certificate, error, true), certificate.sentence


def dominated(kind: str, rows: int, columns: int) -> Matrix:
    rng = np.random.default_rng(1)
    if kind == "floats":
        return rng.standard_normal((rows, columns)) + 1000
    return rng.integers(int(kind), int(kind) + 3, (rows, columns)).astype(np.uint8)


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "tol", "gram_columns"),
    [
        ("100", 600, 600, 1e-2, 0),
        ("100", 2000, 300, 1e-6, passes.GRAM_COLUMNS),
        ("floats", 300, 2000, 1e-6, 0),
        ("floats", 600, 600, 1e-2, passes.GRAM_COLUMNS),
        # Only from this size does rounding the mean in float32 matter for these values.
        ("4", 3000, 3000, 1e-2, 0),
    ],
)
def test_a_dominant_mean_does_not_hide_what_is_beside_it(
    kind: str, rows: int, columns: int, tol: float, gram_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "GRAM_COLUMNS", gram_columns)
    x = dominated(kind, rows, columns)
    with dask.config.set(scheduler="sync"):
        result = svd_compressed(da.from_array(x, chunks=(-(-rows // 3), -(-columns // 3))), K, tol=tol, seed=0)
    x = x.astype(float) if rows >= columns else x.T.astype(float)
    true = np.sqrt(np.linalg.eigvalsh(x.T @ x)[::-1][:K])
    error = abs(result.values - true)
    assert result.certificate.status != "not reached", result.certificate.sentence
    assert (error <= (result.certificate.bound + 1e-9) * true).all()
    assert (error <= (tol + 1e-9) * true).all()


@pytest.mark.parametrize("columns", [K, 16, 20])
def test_a_block_may_have_no_more_columns_than_are_asked_for(columns: int) -> None:
    x = spectrum(1 / RANKS, 0)
    result = svd_compressed(da.from_array(x, chunks=(100, -1)), columns, n_oversamples=0, seed=0)
    assert result.certificate.status != "not reached"
    assert (abs(result.s.compute() * RANKS[:columns] - 1) <= result.certificate.bound + 2e-14).all()


@pytest.mark.usefixtures("any_start")
@pytest.mark.parametrize("most", [1, 3])
def test_bounds_far_from_convergence_hold(most: int) -> None:
    """Narrow clusters, of which the first passes have seen a part only."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        clusters = [1 + 1e-4 * rng.random(30), 0.9 + 1e-4 * rng.random(50), np.full(COLUMNS - 80, 0.2)]
        x, true = spectrum(np.concatenate(clusters), seed), np.sort(np.concatenate(clusters))[::-1][:20]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AccuracyWarning)
            result = svd_compressed(da.from_array(x, chunks=(100, -1)), 20, n_oversamples=2, max_passes=most, seed=seed)
        assert (abs(result.values - true) <= (result.certificate.bound + 2e-14) * true).all(), (seed, most)


def test_the_first_pass_alone_is_not_believed() -> None:
    x = spectrum(np.r_[np.ones(K), np.full(COLUMNS - K, 1e-3)], 0)
    assert found(x, 0, 0.05)[1].passes > 1
    assert found(x, 0, 0.05, max_passes=1)[1].status == "not reached"


def test_a_low_rank_is_proved_by_the_trace() -> None:
    certificate = found(low_rank(12, 0), 0, 1e-3)[1]
    assert certificate.status == "proved"
    assert certificate.sentence.startswith("It is proved that all 10 singular values are right to")


def test_an_angle_without_a_gap_is_not_told_as_a_bound() -> None:
    certificate = found(np.eye(40), 0, 1e-3)[1]
    assert certificate.angle >= 1
    assert certificate.sentence.endswith("; 1 to 10 together can't be separated from those that follow.")


@pytest.mark.parametrize("columns", [1, 80])
def test_where_all_values_are_asked_for_no_gap_is_spoken_of(columns: int) -> None:
    x = noise(0, 100, columns)
    certificate = svd_compressed(da.from_array(x, chunks=(40, -1)), columns).certificate
    assert certificate.angle == 0
    assert certificate.sentence.endswith(
        "span all there is along the shorter side, so that there is no gap to look for."
    )


def test_values_that_squaring_would_lose_are_found_by_a_qr_factorization() -> None:
    s = 10.0 ** -np.arange(COLUMNS)
    s, certificate, error, _ = found(spectrum(s, 0), 0, 1e-3)
    assert "QR" in certificate.dtype
    assert certificate.status != "not reached"
    assert (np.abs(s / 10.0 ** -np.arange(10) - 1) < 1e-3).all()
    assert error.max() < 1e-3


@pytest.mark.parametrize(("tol", "dtype"), [(1e-3, "float32"), (1e-10, "float64")])
def test_single_precision_is_used_only_where_the_tolerance_allows_it(tol: float, dtype: str) -> None:
    assert found(genotypes(0), 0, tol, center=1)[1].dtype.startswith(dtype)


@pytest.mark.parametrize(
    ("rows", "columns", "given"),
    [
        (2000, 300, {"dtype": "u1", "center": 0}),
        (300, 2000, {"dtype": "f4", "center": 0}),
        (2000, 300, {"dtype": "f8", "center": 1}),
    ],
)
def test_few_columns_take_three_passes_or_four(
    rows: int, columns: int, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).integers(4, 7, (rows, columns)).astype(given.pop("dtype"))
    monkeypatch.setattr(passes, "GRAM_COLUMNS", 4096)
    _, certificate, error, true = found(x, 0, 1e-4, **given)
    assert certificate.status == "very likely"
    assert certificate.passes <= 4  # one more where float32 is not enough
    assert holds(certificate, error, true)
    monkeypatch.setattr(passes, "GRAM_COLUMNS", 0)
    assert found(x, 0, 1e-4, **given)[1].passes > 5


def test_passes_and_bytes_are_counted() -> None:
    x = da.from_array(genotypes(0), chunks=(100, -1))
    once, again = (svd_compressed(x, 3, keep=keep, seed=0).certificate for keep in (True, False))
    assert once.passes == again.passes > 1
    assert once.bytes_read == x.nbytes
    assert again.bytes_read == x.nbytes * again.passes


def blocks_of_values(rng: np.random.Generator, count: int) -> Matrix:
    """Return a spectrum with clusters, repeated values, gaps, and a decay like that of noise."""
    parts: list[Matrix] = []
    top = 1.0
    while sum(map(len, parts)) < count:
        several = int(rng.integers(1, 12))
        new = (
            top
            * (
                np.ones(several),
                1 - 10.0 ** rng.uniform(-12, -2) * np.sort(rng.random(several)),
                10.0 ** (-rng.uniform(0.01, 0.5) * np.arange(several)),
                1 - rng.uniform(0.05, 0.5) * np.arange(several) / several,
                np.sort(rng.random(3 * several))[::-1] ** rng.uniform(0.05, 0.5),
            )[rng.integers(5)]
        )
        parts.append(new)
        top = new[-1] * rng.choice([1, 0.999, 0.9, 0.5, 0.1, 1e-3, 1e-6], p=[0.1, 0.2, 0.3, 0.25, 0.1, 0.03, 0.02])
    return np.concatenate(parts)[:count]


@pytest.mark.usefixtures("any_start")
@pytest.mark.filterwarnings("ignore::workbench.linalg.AccuracyWarning")
@pytest.mark.parametrize("seed", range(21))
def test_no_angle_and_no_value_is_further_off_than_is_said(seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(70, 160))
    x = spectrum(blocks_of_values(rng, columns), seed, columns + int(rng.integers(0, 150)))
    x, k = (x.T if seed % 3 == 2 else x), int(rng.integers(1, 25))
    asked = {"tol": float(rng.choice([0.1, 1e-2, 1e-3, 1e-5, 1e-8])), "max_passes": int(rng.choice([2, 4, 24]))}
    with dask.config.set(scheduler="sync"):
        result = svd_compressed(da.from_array(x, chunks=(100, -1)), k, seed=seed, **asked)
        u, s, vh = dask.compute(*result)
    left, true, right = np.linalg.svd(x, full_matrices=False)
    assert holds(result.certificate, abs(s - true[:k]), true[:k])
    groups = result.certificate.groups
    assert [group.first for group in groups] == [1, *(group.last + 1 for group in groups[:-1])]
    assert groups[-1].last == k
    for first, last, angle in (*groups, (1, k, result.certificate.angle)):
        nearest = min([true[first - 2] - true[first - 1]] * (first > 1) + [true[last - 1] - true[last]])
        # The reference's own vectors are right to its rounding over the gap.
        angle += 20 * np.finfo(float).eps / max(nearest, 1e-300) + 1e-13
        for found_, true_ in ((vh.T, right.T), (u, left)):
            mine, its = found_[:, first - 1 : last], true_[:, first - 1 : last]
            assert min(1, np.linalg.norm(mine - its @ (its.T @ mine), 2)) <= angle


def test_components_that_stand_alone_have_an_angle_of_their_own() -> None:
    x = noise(0, 3000, 400) + spectrum(np.r_[500, 400, 300, 250, np.zeros(396)], 0, 3000)
    certificate = found(x, 0, 1e-2)[1]
    assert certificate.angle > 0.1
    assert [(group.first, group.last) for group in certificate.groups[:4]] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert max(group.angle for group in certificate.groups[:4]) < 0.02
    assert "for 1 to 4" in certificate.sentence


@pytest.mark.parametrize(("tail", "limit"), [(8.9e-11, None), (1e-12, "rounding"), (1e-14, "rounding"), (0.0, None)])
def test_of_small_values_is_said_what_holds_of_each(tail: float, limit: str | None) -> None:
    values = np.r_[1, 0.5, 0.2, 0.1, tail * np.linspace(1, 0.5, 36)]
    # With so many rows, the rounding of a value is no larger.
    _, certificate, error, true = found(spectrum(values, 0, 20_000), 0, 1e-3)
    assert certificate.limit == limit
    assert holds(certificate, error, true)
    assert certificate.bound[:4].max() < 1e-13
    if limit:
        assert certificate.passes < 16
        assert "passes don't help" in certificate.sentence
        assert "ask for the first 4 alone" in certificate.sentence
    elif tail:
        assert reached(certificate, error, true)
        assert "all 10 singular values are right to" in certificate.sentence
    else:
        assert np.isinf(certificate.bound[4:]).all()
        assert certificate.of_largest[4:].max() < 1e-14
        assert "values 5 to 10 are too small to be distinguished from zero" in certificate.sentence


def test_a_tolerance_below_rounding_ends_soon_and_says_that_passes_do_not_help() -> None:
    certificate = found(spectrum(0.5**RANKS, 0), 0, 1e-15)[1]
    assert (certificate.status, certificate.limit) == ("not reached", "rounding")
    assert certificate.passes < 8
    assert "allow a tol of" in certificate.sentence
    assert "max_passes" not in certificate.sentence


class Diagonal:
    """An operator with these singular values, as large as one likes."""

    is_complex = single = only_rounding = False
    passes = bytes_read = 0

    def __init__(self, values: Matrix) -> None:
        self.values, self.shape = np.sort(values)[::-1], (2 * len(values), len(values))
        self.squares, self.squares_error = float(values @ values), 1e-14 * float(values @ values)

    def input_error(self, s: Matrix, single: bool) -> Matrix:
        return np.zeros_like(s)

    def started(self, q: Matrix, single: bool) -> Matrix:
        return q

    def normal(self, q: Matrix, single: bool) -> Matrix:
        self.passes += 1
        return (self.values**2)[:, None] * q


def of_noise(columns: int) -> Matrix:
    """Singular values of a Gaussian matrix of twice as many rows (Dumitriu, Edelman 2002), relative to its height."""
    rng, rows = np.random.default_rng(0), 2 * columns
    squares = rng.chisquare(rows - np.arange(columns))
    beside = rng.chisquare(columns - 1 - np.arange(columns - 1))
    diagonal = squares + np.r_[0, beside]
    roots = scipy.linalg.eigvalsh_tridiagonal(diagonal, np.sqrt(squares[:-1] * beside))
    return np.sqrt(np.maximum(roots, 0) / rows)


@pytest.mark.parametrize("spikes", [11, 0])
def test_noise_ends_passes_that_would_not_do_and_says_how_many_components_to_ask_for(spikes: int) -> None:
    values = of_noise(7500)
    values[:spikes] = np.linspace(9, 3, spikes)
    with pytest.warns(AccuracyWarning, match="not separated from noise"):
        found = krylov.leading(Diagonal(values), 20, oversample=10, tol=1e-3, max_passes=24, seed=0)
    certificate = found.certificate
    assert (certificate.status, certificate.limit) == ("not reached", "noise")
    assert certificate.passes < 12 < 24 <= certificate.needed
    first = spikes + 1
    assert f"Components {first} to 20 are not separated" in certificate.sentence
    assert (f"Ask for {spikes}, or" in certificate.sentence) == (spikes > 0)
    assert (certificate.bound[:spikes] <= 1e-3).all()
    assert (abs(found.s - np.sort(values)[::-1][:20]) <= certificate.bound * found.s).all()


@pytest.mark.parametrize("values", [of_noise(1500), 1 / np.sqrt(np.arange(1, 4001)), 0.97 ** np.arange(4000)])
def test_what_passes_can_reach_is_not_taken_for_noise(values: Matrix) -> None:
    found = krylov.leading(Diagonal(values), 20, oversample=10, tol=1e-3, max_passes=24, seed=0)
    assert found.certificate.status != "not reached"


def test_an_accuracy_that_is_not_reached_warns_whoever_called_and_shows() -> None:
    x = noise(0, 900, 500)
    given = {"tol": 1e-6, "max_passes": 2}
    for call in (
        lambda: svd_compressed(da.from_array(x, chunks=300), 5, **given),
        lambda: PCA(5, **given).fit(x),
        lambda: genotypes_pca(genotypes(0), 5, **given),
    ):
        with pytest.warns(AccuracyWarning, match="was not reached") as caught:
            result = call()
        assert [each.filename for each in caught] == [__file__]
        assert "not reached" in repr(result)
        # Filters for scikit-learn's warnings also filter this one.
        assert issubclass(caught[0].category, ConvergenceWarning)


def test_without_scikit_learn_the_warning_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sklearn.exceptions")
    with pytest.warns(AccuracyWarning) as caught:
        svd_compressed(da.from_array(noise(0, 900, 500), chunks=300), 5, tol=1e-6, max_passes=2)
    assert caught[0].category is AccuracyWarning


def test_a_seed_that_was_drawn_is_told_and_repeats_the_result() -> None:
    a = da.from_array(noise(0), chunks=100)
    one, other = (svd_compressed(a, 3, tol=0.1) for _ in range(2))
    assert one.certificate.seed != other.certificate.seed
    for call in (
        lambda seed: svd_compressed(a, 3, tol=0.1, seed=seed).s.compute(),
        lambda seed: PCA(3, tol=0.1, random_state=seed).fit(a).singular_values_,
        lambda seed: genotypes_pca(genotypes(0), 3, tol=0.1, seed=seed).singular_values,
    ):
        np.testing.assert_array_equal(call(5), call(5))
    again = svd_compressed(a, 3, tol=0.1, seed=one.certificate.seed)
    np.testing.assert_array_equal(again.s.compute(), one.s.compute())
    assert (again.s.compute() != other.s.compute()).any()
    assert genotypes_pca(genotypes(0), 3, seed=None).certificate.seed != PCA(3).fit(a).certificate_.seed
    assert svd_compressed(a, 3, seed=np.random.default_rng(1)).certificate.seed >= 0


@pytest.mark.parametrize("along", [None, "rows", "columns"])
@pytest.mark.parametrize(("dtype", "exact"), [("u1", True), ("f4", True), ("f8", False), ("i4", False)])
def test_numbers_rounded_as_they_are_read_are_counted(along: Any, dtype: str, exact: bool) -> None:
    # Both products of a pass use the same rounded numbers, so that no asymmetry could show it.
    x = (abs(noise(3)) * 30).astype(dtype)
    operator = DaskOperator(da.from_array(x, chunks=(100, -1)), View(along), "row", in_memory=True)
    with dask.config.set(scheduler="sync"):
        operator.normal(np.eye(COLUMNS, 3), False)
    half, s = np.linalg.norm(x.astype(float)) / 2, np.array([3.0, 0.0])
    if exact and along is None:
        assert not operator.input_error(s, True).any()
    else:
        np.testing.assert_allclose(operator.input_error(s, True), np.finfo(np.float32).eps * half)
    expected = 0 if along is None else np.finfo(np.float64).eps * half
    np.testing.assert_allclose(operator.input_error(s, False), expected)


@pytest.mark.usefixtures("any_start")
@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_a_mean_far_above_the_spread_is_in_the_bound(center: int, dtype: str) -> None:
    x = (noise(3) * np.linspace(3, 1, COLUMNS) * (1 if dtype == "f8" else 30) + 1e6).astype(dtype)
    with dask.config.set(scheduler="sync"):
        result = svd_compressed(da.from_array(x, chunks=(100, -1)), K, center=center, tol=1e-4)
        s = result.s.compute()
    true = np.linalg.svd(x - x.mean(axis=center, keepdims=True), compute_uv=False)[:K]
    assert (abs(s / true - 1) <= result.certificate.bound + 1e-14).all()
