"""Principal components of Dask arrays, with scikit-learn's names."""

from __future__ import annotations

import inspect
from typing import Any, Self

import dask
import dask.array as da
import numpy as np

from workbench.linalg import blocks
from workbench.linalg.blocks import ArrayError, ArrayTypeError
from workbench.linalg.certificate import Certificate
from workbench.linalg.compressed import svd_compressed
from workbench.linalg.passes import DaskOperator, View, shifted

Matrix = np.ndarray[Any, Any]


class NotFittedError(ArrayError, AttributeError):
    """A PCA that has seen no data yet."""


def pca(
    a: Any,
    n_components: int,
    *,
    scale: bool = False,
    whiten: bool = False,
    tol: float = 1e-3,
    max_passes: int = 24,
    random_state: Any = None,
    keep: bool | None = None,
) -> PCA:
    """The principal components of samples × features: `PCA(n_components, …)`, fitted to `a`.

    Parameters
    ----------
    a : (n_samples, n_features) array
        Of Dask, NumPy or CuPy; the passes over it are made now.
    n_components, scale, whiten, tol, max_passes, random_state, keep
        As `PCA` has them.

    Raises
    ------
    ArrayError
        A ValueError: fewer than two samples, a parameter out of its bounds, or NaN or infinity, with their place.
    """
    found = PCA(
        n_components,
        scale=scale,
        whiten=whiten,
        tol=tol,
        max_passes=max_passes,
        random_state=random_state,
        keep=keep,
    )
    return found.fit(a)


class PCA:
    """Principal component analysis of samples × features, without a centred copy of the data.

    An estimator as scikit-learn has them, for Dask arrays (fitted at once, transformed lazily) and for NumPy's. Signs
    are scikit-learn's: the largest entry of each component is positive.

    Parameters
    ----------
    n_components
        How many; None for all, min(n_samples, n_features).
    scale
        Divide each feature by its standard deviation, as StandardScaler does; constant ones stay.
    whiten
        Scores of unit variance.
    tol, max_passes, keep
        As `svd_compressed` has them.
    random_state
        Its seed. The result depends on it only within `tol`.

    Attributes
    ----------
    components_ : (n_components_, n_features_in_) array
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components_,) arrays
    mean_ : (n_features_in_,) array
    scale_ : (n_features_in_,) array, what features were divided by; None without `scale`
    noise_variance_ : mean variance of the components left out
    certificate_ : Certificate, how accurate the singular values are
    n_components_, n_samples_, n_features_in_ : int
    """

    def __init__(
        self,
        n_components: int | None = None,
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
        names = _feature_names(X)
        a = _samples(X)
        rows, columns = a.shape
        if rows < 2:
            raise ArrayError(f"Found array with {rows} sample(s) (shape={a.shape}) while a minimum of 2 is required.")
        k = self._count(min(rows, columns))
        found = svd_compressed(
            a,
            k,
            seed=self.random_state,
            coerce_signs=False,
            tol=self.tol,
            max_passes=self.max_passes,
            center=0,
            scale=self.scale,
            keep=self.keep,
        )
        mean, factor = (
            (found.mean, found.factor) if found.mean is not None else _columns_of(a, self.scale, found.exponent)
        )
        s, components = (np.asarray(x, dtype=x.dtype) for x in map(blocks.host, dask.compute(found.s, found.vh)))
        largest = np.abs(components).argmax(axis=1)
        self.components_ = components * np.sign(components[np.arange(len(s)), largest])[:, None]
        self.singular_values_ = s
        with np.errstate(over="ignore", under="ignore"):
            self.explained_variance_ = s**2 / (rows - 1)
        total = found.squares / (rows - 1)
        self.explained_variance_ratio_ = found.shares.astype(s.dtype)
        left = min(rows, columns) - k
        self.noise_variance_ = total * max(0.0, 1 - float(found.shares.sum())) / left if left and total else 0.0
        self.mean_ = np.asarray(mean)
        self.scale_ = None if not self.scale or factor is None else 1 / factor
        self.certificate_: Certificate = found.certificate
        self.n_components_, self.n_samples_, self.n_features_in_ = k, rows, columns
        if names is not None:
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def _count(self, most: int) -> int:
        k = most if self.n_components is None else self.n_components
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or not 1 <= k <= most:
            raise ArrayError(
                f"n_components={self.n_components!r} must be a whole number between 1 and "
                f"min(n_samples, n_features)={most}, or None for all of them."
            )
        return int(k)

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The scores of `X`, samples × components: lazy if `X` is a Dask array."""
        self._fitted()
        a = _samples(X)
        self._same_features(X, a)
        factor = np.ones(self.n_features_in_) if self.scale_ is None else 1 / self.scale_
        v = self.components_.T.conj().astype(blocks.working_dtype(self.components_.dtype))
        if self.whiten:
            v = v / self._deviations()
        operator = DaskOperator(a, View("columns", self.scale, mean=self.mean_, factor=factor), "row", kept=True)
        scores = operator.projected(v)
        return scores if isinstance(X, da.Array) else scores.compute(scheduler="sync")

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        """`fit`, then the scores of the same samples."""
        return self.fit(X, y).transform(X)

    def inverse_transform(self, X: Any) -> Any:  # noqa: N803
        """What samples of these scores look like, without what the components left out leave out."""
        self._fitted()
        scores = X if isinstance(X, da.Array) else np.asarray(X)
        components = self.components_ * self._deviations()[:, None] if self.whiten else self.components_
        back = scores @ components
        return (back if self.scale_ is None else back * self.scale_) + self.mean_

    def _deviations(self) -> Matrix:
        deviations: Matrix = np.sqrt(self.explained_variance_)
        return np.maximum(deviations, np.finfo(deviations.dtype).eps)

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

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = {name: getattr(self, name) for name in self._names()}
        told = [f"{name}={value!r}" for name, value in given.items() if value is not defaults[name].default]
        return f"PCA({', '.join(told)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float64", "float32"]),
            input_tags=InputTags(),
        )

    def _fitted(self) -> None:
        if not hasattr(self, "components_"):
            raise NotFittedError("This PCA instance is not fitted yet. Call fit with some data first.")

    def _same_features(self, given: Any, a: Any) -> None:
        if a.shape[1] != self.n_features_in_:
            raise ArrayError(
                f"X has {a.shape[1]} features, but PCA is expecting {self.n_features_in_} features as input."
            )


def _samples(x: Any) -> Any:
    """`x` as a Dask array of samples × features."""
    if hasattr(x, "toarray") or hasattr(x, "tocsr"):
        raise ArrayTypeError("Sparse input is not supported: centring would fill it. Use a dense array, X.toarray().")
    if isinstance(x, da.Array):
        a = x
    else:
        values = np.asarray(x)
        if values.dtype.kind in "OUS":
            values = values.astype(np.float64)
        if values.ndim == 1:
            raise ArrayError(f"Expected 2D array, got 1D array instead: array={values}. Reshape your data.")
        if values.ndim == 2 and values.dtype.kind == "c":
            raise ArrayError("Complex data not supported: take the SVD, with svd_compressed(a, k, center=0).")
        a = da.from_array(values, chunks=-1)
    a = blocks.as_matrix(a)
    if np.isnan(a.shape).any():
        raise ArrayError("Blocks of unknown size: call a.compute_chunk_sizes() first.")
    if not a.shape[0]:
        raise ArrayError(f"Found array with 0 sample(s) (shape={a.shape}) while a minimum of 1 is required.")
    if not a.shape[1]:
        raise ArrayError(f"Found array with 0 feature(s) (shape={a.shape}) while a minimum of 1 is required.")
    return a


def _columns_of(a: Any, scale: bool, exponent: int) -> tuple[Matrix | None, Matrix | None]:
    """Mean and factor of each feature where there are more features than samples: the passes only saw samples'."""
    wide = shifted(a.astype(blocks.working_dtype(a.dtype)), exponent)
    mean, deviation = dask.compute(wide.mean(axis=0), wide.std(axis=0) if scale else 0)
    mean = blocks.host(mean)
    if not scale:
        return shifted(mean, -exponent), None
    deviation = blocks.host(deviation)
    constant = deviation <= 10 * np.finfo(deviation.dtype).eps * np.abs(mean) * np.sqrt(a.shape[0])
    factor = 1 / np.where(constant, 1, deviation)
    return View("columns", True, exponent, mean, factor).as_given()


def _feature_names(x: Any) -> Matrix | None:
    columns = getattr(x, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return np.asarray(columns, dtype=object)
