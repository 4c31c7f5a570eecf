"""`pca` and its estimator against scikit-learn's."""

from __future__ import annotations

import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from sklearn import decomposition
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from workbench.linalg import PCA, pca
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
    for given, unit in ((x, 1.0), (double * 1e160, 1e160), (double * 1e-300, 1e-300)):
        ours = pca(da.from_array(given, chunks=(50, 60)), 3, scale=scale, tol=1e-6)
        np.testing.assert_allclose(ours.mean_ / unit, double.mean(axis=0), rtol=1e-12)
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
    with pytest.raises(ValueError, match=r"n_components=11 must be a whole number between 1 and .*=10"):
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
