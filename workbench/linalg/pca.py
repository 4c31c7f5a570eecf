"""Principal components of Dask arrays, with scikit-learn's names, and the normal distribution that they stand for.

References
----------
Tipping, Bishop: Probabilistic principal component analysis. J. R. Stat. Soc. B 61, 1999.
Minka: Automatic choice of dimensionality for PCA. NIPS 2000.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from math import lgamma, log, pi
from typing import Any, Self

import dask
import dask.array as da
import numpy as np

from workbench.linalg import asked, blocks
from workbench.linalg.blocks import ArrayError, beside
from workbench.linalg.certificate import Certificate
from workbench.linalg.compressed import SVD, svd_compressed
from workbench.linalg.passes import DaskOperator, View, factor_of, shifted

Matrix = np.ndarray[Any, Any]
_EPS = float(np.finfo(float).eps)


class NotFittedError(ArrayError, AttributeError):
    """A PCA that has seen no data yet."""


def pca(a: Any, n_components: int | float | str | None, **how: Any) -> PCA:
    """The principal components of samples × features: `PCA(n_components, **how)`, fitted to `a` now.

    Raises
    ------
    ArrayError
        A ValueError: fewer than two samples, a parameter out of its bounds, or NaN or infinity, with their place.
    """
    return PCA(n_components, **how).fit(a)


class PCA:
    """Principal component analysis of samples × features, without a centred copy of the data.

    An estimator as scikit-learn has them, for arrays and DataFrames of Dask (fitted at once, transformed lazily) or in
    memory, and for sparse matrices. Signs are scikit-learn's: the largest entry of each component is positive.

    Parameters
    ----------
    n_components
        How many; None for all, min(n_samples, n_features). A number between 0 and 1: as many as explain more than this
        share of the variance. "mle": as many as are likeliest, of which all have to be found first (Minka 2000).
    scale
        Divide each feature by its standard deviation, as StandardScaler does; constant ones stay.
    whiten
        Scores of unit variance.
    tol, max_passes, keep
        As `svd_compressed` has them.
    random_state
        Its seed. The result depends on it only within `tol`; where None drew one, it is in `certificate_.seed`.

    Attributes
    ----------
    components_ : (n_components_, n_features_in_) array
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components_,) arrays
    mean_ : (n_features_in_,) array, of the type of the components
    scale_ : (n_features_in_,) array, what features were divided by; None without `scale`
    noise_variance_ : mean variance of the components left out
    certificate_ : Certificate, how accurate the singular values are
    n_components_, n_samples_, n_features_in_ : int
    feature_names_in_ : names of the features, where `X` was a DataFrame whose columns all have names
    """

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        scale: bool = False,
        whiten: bool = False,
        tol: float = 1e-3,
        max_passes: int = 24,
        random_state: Any = None,
        keep: bool | None = None,
    ) -> None:
        self.n_components = n_components
        self.scale = scale
        self.whiten = whiten
        self.tol = tol
        self.max_passes = max_passes
        self.random_state = random_state
        self.keep = keep

    # --- what is computed ----------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Find the components; passes over `X` are made now."""
        asked.flags(self.keep, scale=self.scale, whiten=self.whiten)
        a = _samples(X)
        rows, columns = a.shape
        if rows < 2:
            raise ArrayError(f"Found array with {rows} sample(s) (shape={a.shape}) while a minimum of 2 is required.")
        found, k = self._found(a, min(a.shape))
        dtype = found.vh.real.dtype
        mean, factor = (
            (found.mean, found.factor) if found.mean is not None else _columns_of(a, self.scale, found.exponent)
        )
        s, components = map(blocks.host, dask.compute(found.s, found.vh))
        s, components = s[:k], components[:k]
        largest = np.abs(components).argmax(axis=1)
        self.components_ = components * np.sign(components[np.arange(k), largest])[:, None]
        self.singular_values_ = s
        with np.errstate(over="ignore", under="ignore"):
            variances = found.values[:k] ** 2 / (rows - 1)
        if not np.isfinite(variances).all():
            raise ArrayError(
                "The variances of these numbers are too large for float64. Divide the array by a constant first, such "
                "as 1e100."
            )
        self.explained_variance_ = blocks.fitting(variances, dtype)
        shares = found.shares[:k]
        left = min(rows, columns) - k
        total = found.squares / (rows - 1) if left else 0.0
        self.explained_variance_ratio_ = shares.astype(dtype)
        self.noise_variance_ = total * max(0.0, 1 - float(shares.sum())) / left if total else 0.0
        self.mean_ = np.asarray(mean, dtype)
        self.scale_ = None if not self.scale or factor is None else np.asarray(1 / factor, dtype)
        self.certificate_: Certificate = found.certificate
        self.n_components_, self.n_samples_, self.n_features_in_ = k, rows, columns
        self.__dict__.pop("feature_names_in_", None)
        names = _feature_names(X)
        if names is not None:
            self.feature_names_in_ = names
        return self

    def _found(self, a: Any, most: int) -> tuple[SVD, int]:
        """The components that were asked for, and how many they are; one where they are none."""
        if isinstance(self.n_components, asked.REAL) and 0 < self.n_components < 1:
            found, k = self._share(a, float(self.n_components), most)
        elif isinstance(self.n_components, str) and self.n_components == "mle":
            if a.shape[0] < a.shape[1]:
                raise ArrayError(f"n_components='mle' is only supported if n_samples >= n_features, not for {a.shape}.")
            found = self._leading(a, most)
            k = _likeliest(found.shares, a.shape[0])
        else:
            k = self._count(most)
            return self._leading(a, max(1, k)), k
        # The certificate is to speak of these and no others.
        return found if k == len(found.shares) else self._leading(a, k), k

    def _count(self, most: int) -> int:
        k = most if self.n_components is None else self.n_components
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not 0 <= k <= most:
            raise ArrayError(
                f"n_components={self.n_components!r} must be between 0 and min(n_samples, n_features)={most}; or None "
                "for all of them, a share of the variance between 0 and 1, or 'mle'."
            )
        return int(k)

    def _share(self, a: Any, share: float, most: int) -> tuple[SVD, int]:
        """At least as many components as explain more than this share of the variance, and how many do."""
        k = min(16, most)
        while True:
            found = self._leading(a, k)
            explained = found.shares.cumsum()
            if k == most or explained[-1] > share:
                return found, min(k, int(np.searchsorted(explained, share, side="right")) + 1)
            # The passes are made anew, so that few trials are better than close ones.
            k = min(4 * k, most)

    def _leading(self, a: Any, k: int) -> SVD:
        return svd_compressed(
            a,
            k,
            # Where all are asked for, no start could miss one.
            seed=0 if k == min(a.shape) else asked.start(self.random_state, "random_state"),
            coerce_signs=False,
            tol=self.tol,
            max_passes=self.max_passes,
            center=0,
            scale=self.scale,
            keep=self.keep,
        )

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The scores of `X`, samples × components: lazy if `X` is of Dask, and as `set_output` has said."""
        a = self._of_same_features(X)
        factor = np.ones(self.n_features_in_) if self.scale_ is None else 1 / self.scale_
        v = self.components_.T.astype(np.float64)
        if self.whiten:
            v = v / self._deviations()
        operator = DaskOperator(a, View("columns", self.scale, mean=self.mean_, factor=factor), "row", kept=True)
        return self._as_asked(X, _lazy_as(X, operator.projected(v)))

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        """`fit`, then the scores of the same samples."""
        return self.fit(X, y).transform(X)

    def inverse_transform(self, X: Any) -> Any:  # noqa: N803
        """What samples of these scores look like, without what the components left out leave out."""
        self._fitted()
        a = blocks.as_matrix(X, view=True)
        if a.shape[1] != self.n_components_:
            raise ArrayError(f"X has {a.shape[1]} columns, and there are {self.n_components_} components.")
        model = self._model()
        if self.whiten:
            model = replace(model, components=model.components * self._deviations()[:, None])
        dtype = np.promote_types(blocks.result_dtype(a.dtype), self.components_.dtype)
        return _lazy_as(X, _by_rows(_restored, a, model, dtype, self.n_features_in_))

    def _deviations(self) -> Matrix:
        deviations: Matrix = np.sqrt(self.explained_variance_)
        return np.maximum(deviations, np.finfo(deviations.dtype).eps)

    # --- the probabilistic model of it --------------------------------------------------------------------------

    def get_covariance(self) -> Matrix:
        """The covariance of the features by the model of Tipping and Bishop, features × features."""
        return blocks.fitting(_covariance(self._model()), self.components_.dtype)

    def get_precision(self) -> Matrix:
        """The inverse of the covariance."""
        return blocks.fitting(_precision(self._model()), self.components_.dtype)

    def score_samples(self, X: Any) -> Any:  # noqa: N803
        """The log-likelihood of each sample: lazy if `X` is of Dask."""
        a = self._of_same_features(X)
        dtype = blocks.result_dtype(a.dtype)
        return _lazy_as(X, _by_rows(_log_likelihood, a, self._model(), dtype, None))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The mean log-likelihood of the samples; computed now."""
        return float(self.score_samples(X).mean())

    def _model(self) -> _Model:
        self._fitted()
        return _Model.of(self.mean_, self.scale_, self.components_, self.explained_variance_, self.noise_variance_)

    # --- what scikit-learn asks of an estimator ------------------------------------------------------------------

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name."""
        for name, value in params.items():
            if name not in self._names():
                raise ArrayError(f"Invalid parameter {name!r} for PCA. Choose among: {', '.join(self._names())}.")
            setattr(self, name, value)
        return self

    def get_feature_names_out(self, input_features: Any = None) -> Matrix:
        """The names of the scores: pca0, pca1 and so on."""
        self._fitted()
        return np.asarray([f"pca{i}" for i in range(self.n_components_)], dtype=object)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Let `transform` give a "pandas" or "polars" DataFrame, or an array ("default"); None changes nothing.

        Of what is lazy, "pandas" makes a lazy DataFrame of Dask.
        """
        if transform not in (None, *OUTPUTS):
            raise ArrayError(f"transform={transform!r} is unknown. Choose one of: {', '.join(OUTPUTS)}.")
        if transform is not None:
            # Under this name scikit-learn's clone takes it along.
            self._sklearn_output_config = {"transform": transform}
        return self

    def _as_asked(self, X: Any, scores: Any) -> Any:  # noqa: N803
        output = getattr(self, "_sklearn_output_config", {}).get("transform") or _output_of_all()
        if output == "default":
            return scores
        names, index = self.get_feature_names_out(), getattr(X, "index", None)
        if not isinstance(scores, da.Array):
            frame = import_module(output).DataFrame
            return frame(scores, columns=names, index=index) if output == "pandas" else frame(scores, list(names))
        if output != "pandas":
            raise ArrayError(f"There is no lazy {output}: compute the scores first, or set_output(transform='pandas').")
        return import_module("dask.dataframe").from_dask_array(scores, columns=names, index=index)

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = {name: getattr(self, name) for name in self._names()}
        told = [f"{name}={value!r}" for name, value in given.items() if value is not defaults[name].default]
        found = getattr(self, "certificate_", None)
        return f"PCA({', '.join(told)}{'; accuracy not reached' if found and found.status == 'not reached' else ''})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float64", "float32"]),
            input_tags=InputTags(sparse=True),
        )

    def _fitted(self) -> None:
        if not hasattr(self, "components_"):
            raise NotFittedError("This PCA instance is not fitted yet. Call fit with some data first.")

    def _of_same_features(self, X: Any) -> Any:  # noqa: N803
        """Samples that have the features, and in the order, that the PCA was fitted to."""
        self._fitted()
        self._same_names(_feature_names(X))
        a = _samples(X)
        if a.shape[1] != self.n_features_in_:
            raise ArrayError(
                f"X has {a.shape[1]} features, but PCA is expecting {self.n_features_in_} features as input."
            )
        return a

    def _same_names(self, given: Matrix | None) -> None:
        fitted: Matrix | None = getattr(self, "feature_names_in_", None)
        if (given is None) != (fitted is None):
            what = (
                "has feature names, but PCA was fitted without"
                if fitted is None
                else "does not have valid feature names, but PCA was fitted with"
            )
            warnings.warn(f"X {what} feature names", UserWarning, stacklevel=4)
        elif given is not None and fitted is not None and list(given) != list(fitted):
            raise ArrayError(_other_names(set(given), set(fitted)))


OUTPUTS = ("default", "pandas", "polars")


def _output_of_all() -> str:
    """What scikit-learn is configured to give out, where somebody uses it."""
    sklearn = sys.modules.get("sklearn")
    return str(sklearn.get_config()["transform_output"]) if sklearn else "default"


def _samples(x: Any) -> Any:
    """`x` as a Dask array of samples × features."""
    a = blocks.as_matrix(x, view=True)
    if a.dtype.kind == "c":
        raise ArrayError("Complex data not supported: take the SVD, with svd_compressed(a, k, center=0).")
    if np.isnan(a.shape).any():
        raise ArrayError("Blocks of unknown size: call a.compute_chunk_sizes() first.")
    for count, what in zip(a.shape, ("sample", "feature"), strict=True):
        if not count:
            raise ArrayError(f"Found array with 0 {what}(s) (shape={a.shape}) while a minimum of 1 is required.")
    return a


def _lazy_as(given: Any, result: Any) -> Any:
    return result if dask.is_dask_collection(given) else result.compute(scheduler="sync")


def _by_rows(task: Callable[..., Any], a: Any, model: _Model, dtype: Any, width: int | None) -> Any:
    """`task` of each row of blocks and the model: a number for each row where `width` is None."""
    held = dask.delayed(model, pure=True, traverse=False)
    rows, meta = a.chunks[0], a._meta.astype(dtype)
    shape = {"drop_axis": 1, "meta": meta.reshape(-1)} if width is None else {"chunks": (rows, (width,)), "meta": meta}
    return a.rechunk({1: -1}).map_blocks(task, held, np.dtype(dtype).str, dtype=dtype, **shape)


def _columns_of(a: Any, scale: bool, exponent: int) -> tuple[Matrix | None, Matrix | None]:
    """Mean and factor of each feature where there are more features than samples: the passes only saw samples'."""
    wide = a.astype(blocks.working_dtype(a.dtype))
    wide = shifted(wide, exponent) if exponent else wide
    mean, deviation = dask.compute(wide.mean(axis=0), wide.std(axis=0) if scale else 0)
    mean = blocks.host(mean)
    if not scale:
        return shifted(mean, -exponent), None
    factor = factor_of(blocks.host(deviation), mean, a.shape[0])
    return View("columns", True, exponent, mean, factor).as_given()


def _feature_names(x: Any) -> Matrix | None:
    columns = getattr(x, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return np.asarray(columns, dtype=object)


def _other_names(given: set[str], fitted: set[str]) -> str:
    """What is wrong with the features' names, in scikit-learn's words."""
    lines = ["The feature names should match those that were passed during fit."]
    for what, names in (("unseen at fit time", given - fitted), ("seen at fit time, yet now missing", fitted - given)):
        if names:
            lines += [f"Feature names {what}:", *(f"- {name}" for name in sorted(names))]
    if given == fitted:
        lines.append("Feature names must be in the same order as they were in fit.")
    return "\n".join(lines) + "\n"


# --- the normal distribution that components stand for ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """Samples are `mean` and `scale` times normal numbers: of these variances along the components, else of `noise`.

    Components are rows of unit length. A variance below the rounding of the largest counts as that rounding.
    """

    mean: Matrix
    scale: Matrix
    components: Matrix
    variances: Matrix
    noise: float

    @classmethod
    def of(cls, mean: Matrix, scale: Matrix | None, components: Matrix, variances: Matrix, noise: float) -> _Model:
        """The model in double precision; `scale` is None where features were not divided by anything."""
        count, features = components.shape
        least = max(noise, _EPS * float(variances.max(initial=0)), float(np.finfo(float).tiny))
        variances = np.maximum(variances.astype(float), least)
        # No direction is left where there are as many components as features; any number would do.
        noise = float(variances.min()) if count == features else least
        unit = np.ones(features) if scale is None else scale.astype(float)
        return cls(mean.astype(float), unit, components.astype(float), variances, noise)


def _covariance(model: _Model) -> Matrix:
    """Of the features, features × features."""
    return _spread(model, model.variances, model.noise, model.scale)


def _precision(model: _Model) -> Matrix:
    """The inverse of the covariance."""
    return _spread(model, 1 / model.variances, 1 / model.noise, 1 / model.scale)


def _spread(model: _Model, along: Matrix, else_: float, unit: Matrix) -> Matrix:
    matrix: Matrix = model.components.T * (along - else_) @ model.components
    matrix[np.diag_indices_from(matrix)] += else_
    return unit[:, None] * matrix * unit


def _log_likelihood(block: Any, model: _Model, dtype: str, block_info: Any = None) -> Any:
    """The logarithm of the density at each sample of a block."""
    block = blocks.dense(block)
    blocks.check_finite(block, block_info[0]["array-location"][0][0])
    mean, scale, components, variances = (
        beside(each, block) for each in (model.mean, model.scale, model.components, model.variances)
    )
    count, features = model.components.shape
    volume = 2 * np.log(model.scale).sum() + np.log(model.variances).sum() + (features - count) * log(model.noise)
    found = blocks.namespace(block).empty(block.shape[0], np.dtype(dtype))
    for part in blocks.tiles(block, blocks.tile_rows(features)):
        x = (block[part] - mean) / scale
        scores = x @ components.T
        apart = ((x - scores @ components) ** 2).sum(axis=1)
        squares = (scores**2 / variances).sum(axis=1) + apart / model.noise
        found[part] = -(squares + volume + features * log(2 * pi)) / 2
    return found


def _restored(block: Any, model: _Model, dtype: str) -> Any:
    """The samples of which a block has the scores."""
    mean, scale, components = (beside(each, block) for each in (model.mean, model.scale, model.components))
    return (block @ components * scale + mean).astype(np.dtype(dtype))


def _likeliest(variances: Matrix, samples: int) -> int:
    """How many components explain the data best, by Minka's evidence; `variances` are all of them, descending."""
    p = len(variances)
    least = max(_EPS * float(variances[0]), float(np.finfo(float).tiny))
    v, k = np.maximum(variances, least), np.arange(1, p)
    # What lies behind the first k has one variance.
    rest = v.sum() - v.cumsum()[:-1]
    rest = np.maximum(rest / (p - k), least)
    logs = np.log(v).cumsum()[:-1]
    half = (p - k + 1) / 2
    prior = np.cumsum([lgamma(each) for each in half] - half * log(pi)) - k * log(2)
    # Curvature: of each pair (i, j), i ≤ k < j or i < j ≤ k, the log of (λᵢ − λⱼ)(1/λⱼ − 1/λᵢ)·samples, with the
    # common variance in the second factor where j > k.
    gaps = np.triu(np.log(np.maximum(v[:, None] - v, least)), 1)
    inverse = np.triu(gaps - np.log(v) - np.log(v)[:, None], 1)
    to_rest = np.array([np.log(np.maximum(v[:i] - r, least) / (v[:i] * r)).sum() for i, r in zip(k, rest, strict=True)])
    m = p * k - k * (k + 1) / 2
    curvature = gaps.sum(axis=1).cumsum()[:-1] + inverse.sum(axis=0).cumsum()[:-1] + (p - k) * to_rest
    evidence = (
        prior
        - samples / 2 * (logs + (p - k) * np.log(rest))
        + (m + k) / 2 * log(2 * pi)
        - (curvature + m * log(samples) + k * log(samples)) / 2
    )
    return 1 + int(np.argmax(np.where(v[:-1] > least, evidence, -np.inf))) if p > 1 else 1
