"""`pca` and its estimator against scikit-learn's."""

from __future__ import annotations

import tracemalloc
import warnings
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_array, csc_array, csr_array
from sklearn import decomposition
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency, estimator_checks_generator

from workbench.linalg import PCA, pca, svd, svd_compressed
from workbench.linalg.arrays import ArrayError, ArrayTypeError
from workbench.linalg.certificate import AccuracyWarning
from workbench.linalg.pca import NotFittedError

Matrix = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    with dask.config.set(scheduler="sync"):
        yield


def samples(rows: int, columns: int, mean: float = 5.0) -> Matrix:
    rng = np.random.default_rng(rows)
    spread = rng.standard_normal((rows, 6)) * [20, 15, 11, 8, 6, 4] @ rng.standard_normal((6, columns))
    return mean + spread + rng.standard_normal((rows, columns))


def same(ours: PCA, theirs: Any, digits: float) -> None:
    for name in ("singular_values_", "explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=digits, err_msg=name)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours.noise_variance_, theirs.noise_variance_, rtol=1e-3)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=np.sqrt(digits))
    assert (ours.n_components_, ours.n_samples_, ours.n_features_in_) == (
        theirs.n_components_,
        theirs.n_samples_,
        theirs.n_features_in_,
    )


@pytest.mark.parametrize("shape", [(900, 120), (120, 900), (300, 20)])
@pytest.mark.parametrize("scale", [False, True])
def test_it_finds_what_scikit_learn_finds(shape: tuple[int, int], scale: bool) -> None:
    x = samples(*shape)
    reference = StandardScaler().fit_transform(x) if scale else x
    theirs = decomposition.PCA(4, svd_solver="full").fit(reference)
    if scale:
        theirs.mean_ = x.mean(axis=0)
    ours = pca(da.from_array(x, chunks=(100, 60)), 4, scale=scale, tol=1e-9)
    same(ours, theirs, 1e-8)
    scores = ours.transform(da.from_array(x, chunks=(70, -1)))
    assert isinstance(scores, da.Array)
    theirs.mean_ = reference.mean(axis=0)
    np.testing.assert_allclose(scores.compute(), theirs.transform(reference), atol=1e-6)


def test_whole_numbers_are_centred_and_scaled_without_being_copied() -> None:
    x = np.random.default_rng(0).binomial(2, np.random.default_rng(1).uniform(0.05, 0.95, 100), (2000, 100))
    x[:, :5] += x[:, 5:10]
    theirs = decomposition.PCA(5, svd_solver="full").fit(StandardScaler().fit_transform(x))
    ours = pca(da.from_array(x.astype(np.uint8), chunks=(300, 100)), 5, scale=True)
    np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-3)
    assert ours.certificate_.status != "not reached"


@pytest.mark.parametrize("shape", [(60, 300), (300, 60)])
@pytest.mark.parametrize("scale", [False, True])
def test_half_precision_and_numbers_without_squares_lose_no_accuracy(shape: tuple[int, int], scale: bool) -> None:
    x = samples(*shape, 50).astype(np.float16)
    double = x.astype(np.float64)
    theirs = double - double.mean(axis=0)
    theirs = theirs / theirs.std(axis=0) if scale else theirs
    # Variances of 1e160 are beyond float64, and are refused by name: scaled ones have none.
    large = 1e160 if scale else 1e150
    for given, unit in ((x, 1.0), (double * large, large), (double * 1e-300, 1e-300)):
        ours = pca(da.from_array(given, chunks=(50, 60)), 3, scale=scale, tol=1e-6)
        np.testing.assert_allclose(ours.mean_ / unit, double.mean(axis=0), rtol=1e-12 if given is not x else 1e-7)
        scores = theirs @ ours.components_.T * (1 if scale else unit)
        np.testing.assert_allclose(ours.transform(given), scores, rtol=2e-3, atol=2e-3 * abs(scores).max())


@pytest.mark.parametrize("mean", [1e3, 1e6])
def test_a_mean_far_above_the_spread_costs_no_accuracy(mean: float) -> None:
    x = samples(2000, 100, mean)
    theirs = decomposition.PCA(3, svd_solver="full").fit(x)
    ours = pca(da.from_array(x, chunks=(500, 100)), 3)
    np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-3)
    assert (abs(ours.singular_values_ / theirs.singular_values_ - 1) <= ours.certificate_.bound).all()


def test_constant_features_stay_when_scaled() -> None:
    x = samples(500, 80)
    x[:, 3] = 7.1
    ours = pca(da.from_array(x, chunks=(100, 80)), 2, scale=True)
    assert ours.scale_ is not None
    assert ours.scale_[3] == 1
    assert np.abs(ours.components_[:, 3]).max() < 1e-6


def test_scores_are_whitened_and_can_be_turned_back() -> None:
    x = samples(800, 90)
    whole = pca(x, 90, whiten=True, scale=True)
    scores = whole.transform(x)
    np.testing.assert_allclose(scores.var(axis=0, ddof=1), 1, rtol=1e-6)
    np.testing.assert_allclose(whole.inverse_transform(scores), x, rtol=1e-8)
    plain = pca(x, 3)
    np.testing.assert_allclose(plain.fit_transform(x), plain.transform(x))


def test_single_precision_stays() -> None:
    x = samples(800, 90).astype(np.float32)
    ours = pca(da.from_array(x, chunks=(200, 90)), 3)
    assert ours.components_.dtype == ours.transform(x).dtype == np.float32


def test_it_says_what_is_wrong() -> None:
    x = da.from_array(samples(20, 10), chunks=(5, 10))
    with pytest.raises(ValueError, match=r"n_components=11 must be between 0 and .*=10; or None for all"):
        PCA(11).fit(x)
    with pytest.raises(NotFittedError, match="Call fit"):
        PCA(2).transform(x)
    with pytest.raises(ValueError, match="X has 9 features, but PCA is expecting 10 features as input"):
        PCA(2).fit(x).transform(x[:, :9])
    with pytest.raises(ValueError, match="Invalid parameter 'n' for PCA"):
        PCA().set_params(n=3)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        PCA(1).fit(x[:1])


def test_it_is_shown_by_what_was_chosen() -> None:
    assert repr(PCA(3, scale=True)) == "PCA(n_components=3, scale=True)"
    assert list(pca(samples(20, 10), 2).get_feature_names_out()) == ["pca0", "pca1"]


# What of scikit-learn's checks is left out, and why: nothing at present. Those that need pandas it skips itself.
EXCLUDED: dict[str, str] = {}


def checks() -> list[Any]:
    with warnings.catch_warnings():
        # We don't inherit from BaseEstimator, since scikit-learn isn't needed to use PCA.
        warnings.simplefilter("ignore")
        found = list(estimator_checks_generator(PCA(1)))
    named = [(estimator, check, getattr(check, "func", check).__name__) for estimator, check in found]
    return [pytest.param(estimator, check, id=name) for estimator, check, name in named if name not in EXCLUDED]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), checks())
def test_it_is_an_estimator_to_scikit_learn(estimator: PCA, check: Any) -> None:
    check(estimator)


# --- the numbers' own habits -------------------------------------------------------------------------------------


def test_single_precision_stays_single_in_all_that_is_learned_and_given() -> None:
    x = samples(300, 20).astype(np.float32)
    ours = PCA(3, scale=True).fit(da.from_array(x, chunks=(100, 20)))
    learned = ("components_", "singular_values_", "explained_variance_", "explained_variance_ratio_", "mean_", "scale_")
    scores = ours.transform(x)
    given = ours.inverse_transform(scores)
    assert {getattr(ours, name).dtype for name in learned} | {given.dtype} == {np.dtype(np.float32)}


def test_a_share_of_the_variance_takes_no_more_components_than_it_needs() -> None:
    x = samples(600, 200)
    shares = decomposition.PCA(svd_solver="full").fit(x).explained_variance_ratio_.cumsum()
    a = da.from_array(x, chunks=(200, 200))
    for count in (1, 4, 6, 150):
        ours = PCA(float(shares[count - 1]) - 1e-9, tol=1e-7).fit(a)
        assert ours.n_components_ == count == len(ours.components_) == len(ours.certificate_.bound)
        assert (abs(ours.explained_variance_ratio_.cumsum() - shares[:count]) < 1e-6).all()
    few = PCA(0.9, keep=False).fit(a)
    assert few.certificate_.angle < 0.1
    assert few.n_components_ < 6


@pytest.mark.parametrize("shape", [(200_000, 40), (40, 200_000)])
def test_an_array_in_memory_is_not_copied(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape)
    tracemalloc.start()
    try:
        scores = PCA(2, tol=0.5, max_passes=2).fit(x).transform(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert scores.shape == (shape[0], 2)
    assert peak < x.nbytes / 2


# --- DataFrames --------------------------------------------------------------------------------------------------


def frame(rows: int = 60) -> Any:
    return pd.DataFrame(samples(rows, 4), columns=["tall", "heavy", "old", "quick"])


def test_columns_are_known_by_their_names() -> None:
    x = frame()
    ours = PCA(2).fit(x)
    assert list(ours.feature_names_in_) == list(x.columns)
    with pytest.raises(ValueError, match="must be in the same order"):
        ours.transform(x[["old", "tall", "heavy", "quick"]])
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- slow\n.*now missing:\n- quick\n"):
        ours.transform(x.rename(columns={"quick": "slow"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        ours.transform(x.to_numpy())
    with pytest.warns(UserWarning, match="fitted without feature names"):
        PCA(2).fit(x.to_numpy()).transform(x)


def test_scikit_learn_finds_the_names_of_features_looked_after() -> None:
    check_dataframe_column_names_consistency("PCA", PCA(1))


# --- what can't be used is refused, wherever it comes from -------------------------------------------------------

TAKERS: dict[str, Any] = {
    "svd": svd,
    "svd_compressed": lambda x: svd_compressed(x, 2),
    "fit": PCA(2).fit,
    "transform": lambda x: PCA(2).fit(samples(60, 4)).transform(x),
    "inverse_transform": lambda x: PCA(4).fit(samples(60, 4)).inverse_transform(x),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_masked_values_are_refused_by_all(taker: str) -> None:
    x = np.ma.masked_greater(samples(60, 4), 20)
    for given in (x, da.from_array(x, chunks=(20, 4))):
        with pytest.raises(ArrayTypeError, match="A masked array has to be filled first"):
            TAKERS[taker](given)


@pytest.mark.parametrize("taker", TAKERS)
def test_all_take_frames_lists_and_sparse_matrices(taker: str) -> None:
    x = frame().round()

    def numbers(found: Any) -> Any:
        found = found.singular_values_ if isinstance(found, PCA) else found
        return dask.compute(found[1] if isinstance(found, tuple) else found)[0]

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X has feature names")
        expected = numbers(TAKERS[taker](x.to_numpy()))
        frames = [x, dd.from_pandas(x, npartitions=3), x.astype({"old": "Int64", "quick": "float32"})]
        for given in (*frames, x.to_numpy().tolist(), csr_array(x), csc_array(x), coo_array(x), csr_array(x.T).T):
            np.testing.assert_allclose(numbers(TAKERS[taker](given)), expected, rtol=1e-6)
        for words in (x.assign(old="many"), [["a", "b"], ["c", "d"]]):
            with pytest.raises(ArrayTypeError, match=r"read as numbers|needs numbers"):
                TAKERS[taker](words)


def test_complex_numbers_are_refused_of_numpy_and_of_dask() -> None:
    x = samples(60, 4) * (1 + 2j)
    for given in (x, da.from_array(x, chunks=(20, 4))):
        with pytest.raises(ValueError, match="Complex data not supported"):
            PCA(2).fit(given)


@pytest.mark.parametrize("name", ["keep", "whiten", "scale", "n_components", "tol", "max_passes", "random_state"])
def test_a_parameter_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(ArrayError, match=rf"^{name}.*'x'"):
        PCA(**{"n_components": 2, name: "x"}).fit(samples(60, 4))
    for value in (1.5, -1, True, 5) if name == "n_components" else ():
        with pytest.raises(ArrayError, match=r"n_components=.* must be between 0 and"):
            PCA(value).fit(samples(60, 4))


@pytest.mark.parametrize("shape", [(2000, 200), (300, 3000), (40, 30)])
@pytest.mark.parametrize(("dtype", "value"), [("float64", 3.7), ("float32", 3.7), ("uint8", 200)])
def test_constant_data_leave_nothing_but_rounding(shape: tuple[int, int], dtype: str, value: float) -> None:
    with pytest.warns(AccuracyWarning, match="After centering only rounding errors are left"):
        found = PCA(2).fit(da.full(shape, value, chunks=(500, 100), dtype=dtype))
    assert np.isnan(found.explained_variance_ratio_).all()
    assert np.isfinite(found.components_).all()
    assert np.isinf(found.certificate_.bound).all()
    assert (found.certificate_.of_largest >= 1).all()


def test_one_number_that_differs_is_more_than_rounding() -> None:
    x = np.full((1000, 400), 200, "uint8")
    x[3, 5] = 201
    found = PCA(1).fit(da.from_array(x, chunks=(100, 400)))
    np.testing.assert_allclose(found.singular_values_, np.sqrt(1 - 1 / 1000), rtol=1e-3)
