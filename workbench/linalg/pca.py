"""Principal components of Dask arrays, with scikit-learn's names."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Self

import dask
import numpy as np

from workbench.linalg import arguments
from workbench.linalg.arrays import ArrayError, as_matrix, result_dtype, working_dtype
from workbench.linalg.certificate import Certificate
from workbench.linalg.compressed import SVD, svd_compressed
from workbench.linalg.gpu import host, to_device_of
from workbench.linalg.passes import DaskOperator, View, factor_of, shifted

Matrix = np.ndarray[Any, Any]


class NotFittedError(ArrayError, AttributeError):
    """A PCA that has not been fitted yet."""


def pca(a: Any, n_components: int | float | None, **how: Any) -> PCA:
    """Fit principal components to `a` (samples × features) now, as `PCA(n_components, **how)` does.

    Raises
    ------
    ArrayError
        A ValueError: fewer than two samples, a parameter out of its bounds, or NaN or infinity, with their place.
    """
    return PCA(n_components, **how).fit(a)


class PCA:
    """Principal component analysis of samples × features, without a centered copy of the data.

    An estimator like scikit-learn's, for arrays and DataFrames of Dask (fitted at once, transformed lazily) or in
    memory, and for sparse matrices. Signs are scikit-learn's: the largest entry of each component is positive.

    Parameters
    ----------
    n_components
        Number of components; None for all, min(n_samples, n_features). Between 0 and 1: as many as explain more than
        this share of the variance.
    scale
        Divide each feature by its standard deviation, as StandardScaler does; constant ones stay.
    whiten
        Scores of unit variance.
    tol, max_passes, keep
        As in `svd_compressed`.
    random_state
        Seed. The result depends on it only within `tol`; if None drew one, it is in `certificate_.seed`.

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
        n_components: int | float | None = None,
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

    # --- computation ---------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Find the components; passes over `X` are made now."""
        arguments.flags(self.keep, scale=self.scale, whiten=self.whiten)
        a = _samples(X)
        rows, columns = a.shape
        if rows < 2:
            raise ArrayError(f"Found array with {rows} sample(s) (shape={a.shape}) while a minimum of 2 is required.")
        result, k = self._found(a, min(a.shape))
        dtype = result.vh.real.dtype
        mean, factor = (
            (result.mean, result.factor) if result.mean is not None else _columns_of(a, self.scale, result.exponent)
        )
        s, components = map(host, dask.compute(result.s, result.vh))
        s, components = s[:k], components[:k]
        largest = np.abs(components).argmax(axis=1)
        self.components_ = components * np.sign(components[np.arange(k), largest])[:, None]
        self.singular_values_ = s
        with np.errstate(over="ignore", under="ignore"):
            variances = result.values[:k] ** 2 / (rows - 1)
        if not np.isfinite(variances).all():
            raise ArrayError(
                "The variances of these numbers are too large for float64. Divide the array by a constant first, such "
                "as 1e100."
            )
        self.explained_variance_ = _fitting(variances, dtype)
        shares = result.shares[:k]
        remaining = min(rows, columns) - k
        total = result.squares / (rows - 1) if remaining else 0.0
        self.explained_variance_ratio_ = shares.astype(dtype)
        self.noise_variance_ = total * max(0.0, 1 - float(shares.sum())) / remaining if total else 0.0
        self.mean_ = np.asarray(mean, dtype)
        self.scale_ = None if not self.scale or factor is None else np.asarray(1 / factor, dtype)
        self.certificate_: Certificate = result.certificate
        self.n_components_, self.n_samples_, self.n_features_in_ = k, rows, columns
        self.__dict__.pop("feature_names_in_", None)
        names = _feature_names(X)
        if names is not None:
            self.feature_names_in_ = names
        return self

    def _found(self, a: Any, most: int) -> tuple[SVD, int]:
        """Return the requested components and their number; one where there are none."""
        if isinstance(self.n_components, arguments.REAL) and 0 < self.n_components < 1:
            result, k = self._share(a, float(self.n_components), most)
        else:
            k = self._count(most)
            return self._leading(a, max(1, k)), k
        # Compute exactly k components, so that the certificate is about these.
        return result if k == len(result.shares) else self._leading(a, k), k

    def _count(self, most: int) -> int:
        k = most if self.n_components is None else self.n_components
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not 0 <= k <= most:
            raise ArrayError(
                f"n_components={self.n_components!r} must be between 0 and min(n_samples, n_features)={most}; or None "
                "for all of them, or a share of the variance between 0 and 1."
            )
        return int(k)

    def _share(self, a: Any, share: float, most: int) -> tuple[SVD, int]:
        """Return at least as many components as explain more than this share of the variance, and their number."""
        k = min(16, most)
        while True:
            result = self._leading(a, k)
            explained = result.shares.cumsum()
            if k == most or explained[-1] > share:
                return result, min(k, int(np.searchsorted(explained, share, side="right")) + 1)
            # Each trial starts over, so grow fast.
            k = min(4 * k, most)

    def _leading(self, a: Any, k: int) -> SVD:
        return svd_compressed(
            a,
            k,
            # If all are requested, no start can miss one.
            seed=0 if k == min(a.shape) else arguments.start(self.random_state, "random_state"),
            coerce_signs=False,
            tol=self.tol,
            max_passes=self.max_passes,
            center=0,
            scale=self.scale,
            keep=self.keep,
        )

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Return the scores of `X`, samples × components: lazy if `X` is a Dask array."""
        a = self._of_same_features(X)
        factor = np.ones(self.n_features_in_) if self.scale_ is None else 1 / self.scale_
        v = self.components_.T.astype(np.float64)
        if self.whiten:
            v = v / self._deviations()
        operator = DaskOperator(a, View("columns", self.scale, mean=self.mean_, factor=factor), "row", in_memory=True)
        return _lazy_as(X, operator.projected(v))

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        """Run `fit` and return the scores of the same samples."""
        return self.fit(X, y).transform(X)

    def inverse_transform(self, X: Any) -> Any:  # noqa: N803
        """Return the samples with these scores, without the part in the components left out."""
        self._fitted()
        a = as_matrix(X, view=True)
        if a.shape[1] != self.n_components_:
            raise ArrayError(f"X has {a.shape[1]} columns, and there are {self.n_components_} components.")
        components = self.components_.astype(np.float64)
        if self.whiten:
            components = components * self._deviations()[:, None]
        if self.scale_ is not None:
            components = components * self.scale_
        dtype = np.promote_types(result_dtype(a.dtype), self.components_.dtype)
        restored = a.rechunk({1: -1}).map_blocks(
            _restored,
            dask.delayed((self.mean_.astype(np.float64), components), pure=True, traverse=False),
            dtype.str,
            dtype=dtype,
            chunks=(a.chunks[0], (self.n_features_in_,)),
            meta=a._meta.astype(dtype),
        )
        return _lazy_as(X, restored)

    def _deviations(self) -> Matrix:
        deviations: Matrix = np.sqrt(self.explained_variance_)
        return np.maximum(deviations, np.finfo(deviations.dtype).eps)

    # --- scikit-learn's interface of an estimator ----------------------------------------------------------------

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name."""
        for name, value in params.items():
            if name not in self._names():
                raise ArrayError(f"Invalid parameter {name!r} for PCA. Choose among: {', '.join(self._names())}.")
            setattr(self, name, value)
        return self

    def get_feature_names_out(self, input_features: Any = None) -> Matrix:
        """Return the names of the scores: pca0, pca1 and so on."""
        self._fitted()
        return np.asarray([f"pca{i}" for i in range(self.n_components_)], dtype=object)

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        values = {name: getattr(self, name) for name in self._names()}
        changed = [f"{name}={value!r}" for name, value in values.items() if value is not defaults[name].default]
        proof = getattr(self, "certificate_", None)
        return f"PCA({', '.join(changed)}{'; accuracy not reached' if proof and proof.status == 'not reached' else ''})"

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
        """Return samples with the features that the PCA was fitted to, in the same order."""
        self._fitted()
        self._same_names(_feature_names(X))
        a = _samples(X)
        if a.shape[1] != self.n_features_in_:
            raise ArrayError(
                f"X has {a.shape[1]} features, but PCA is expecting {self.n_features_in_} features as input."
            )
        return a

    def _same_names(self, names: Matrix | None) -> None:
        fitted: Matrix | None = getattr(self, "feature_names_in_", None)
        if (names is None) != (fitted is None):
            problem = (
                "has feature names, but PCA was fitted without"
                if fitted is None
                else "does not have valid feature names, but PCA was fitted with"
            )
            warnings.warn(f"X {problem} feature names", UserWarning, stacklevel=4)
        elif names is not None and fitted is not None and list(names) != list(fitted):
            raise ArrayError(_other_names(set(names), set(fitted)))


def _samples(x: Any) -> Any:
    """Return `x` as a Dask array of samples × features."""
    a = as_matrix(x, view=True)
    if a.dtype.kind == "c":
        raise ArrayError("Complex data not supported: take the SVD, with svd_compressed(a, k, center=0).")
    if np.isnan(a.shape).any():
        raise ArrayError("Blocks of unknown size: call a.compute_chunk_sizes() first.")
    for count, what in zip(a.shape, ("sample", "feature"), strict=True):
        if not count:
            raise ArrayError(f"Found array with 0 {what}(s) (shape={a.shape}) while a minimum of 1 is required.")
    return a


def _lazy_as(original: Any, result: Any) -> Any:
    return result if dask.is_dask_collection(original) else result.compute(scheduler="sync")


def _columns_of(a: Any, scale: bool, exponent: int) -> tuple[Matrix | None, Matrix | None]:
    """Return the mean and factor of each feature, after passes that saw the samples' means only."""
    wide = a.astype(working_dtype(a.dtype))
    wide = shifted(wide, exponent) if exponent else wide
    mean, deviation = dask.compute(wide.mean(axis=0), wide.std(axis=0) if scale else 0)
    mean = host(mean)
    if not scale:
        return shifted(mean, -exponent), None
    factor = factor_of(host(deviation), mean, a.shape[0])
    return View("columns", True, exponent, mean, factor).as_given()


def _feature_names(x: Any) -> Matrix | None:
    columns = getattr(x, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return np.asarray(columns, dtype=object)


def _other_names(given: set[str], fitted: set[str]) -> str:
    """Return an error about the features' names, in scikit-learn's words."""
    lines = ["The feature names should match those that were passed during fit."]
    for what, names in (("unseen at fit time", given - fitted), ("seen at fit time, yet now missing", fitted - given)):
        if names:
            lines += [f"Feature names {what}:", *(f"- {name}" for name in sorted(names))]
    if given == fitted:
        lines.append("Feature names must be in the same order as they were in fit.")
    return "\n".join(lines) + "\n"


def _restored(block: Any, model: tuple[Matrix, Matrix], dtype: str) -> Any:
    """Return the samples from a block of scores."""
    mean, components = (to_device_of(each, block) for each in model)
    return (block @ components + mean).astype(np.dtype(dtype))


def _fitting(values: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """Return `values` in a smaller dtype, or unchanged where that would overflow or round them to zero."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(dtype)
    size = abs(rounded)
    lost = (values != 0) & ((size < np.finfo(rounded.dtype).tiny) | ~np.isfinite(size))
    return values if lost.any() else rounded
