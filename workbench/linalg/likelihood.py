"""The normal distribution that principal components stand for: its covariance, its likelihood, its likeliest dimension.

References
----------
Tipping, Bishop: Probabilistic principal component analysis. J. R. Stat. Soc. B 61, 1999.
Minka: Automatic choice of dimensionality for PCA. NIPS 2000.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log, pi
from typing import Any

import numpy as np

from workbench.linalg import blocks
from workbench.linalg.blocks import beside

Matrix = np.ndarray[Any, Any]
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Samples are `mean` and `scale` times normal numbers: of these variances along the components, else of `noise`.

    Components are rows of unit length. A variance below the rounding of the largest counts as that rounding.
    """

    mean: Matrix
    scale: Matrix
    components: Matrix
    variances: Matrix
    noise: float

    @classmethod
    def of(cls, mean: Matrix, scale: Matrix | None, components: Matrix, variances: Matrix, noise: float) -> Model:
        """The model in double precision; `scale` is None where features were not divided by anything."""
        count, features = components.shape
        least = max(noise, EPS * float(variances.max(initial=0)), float(np.finfo(float).tiny))
        variances = np.maximum(variances.astype(float), least)
        # No direction is left where there are as many components as features; any number would do.
        noise = float(variances.min()) if count == features else least
        unit = np.ones(features) if scale is None else scale.astype(float)
        return cls(mean.astype(float), unit, components.astype(float), variances, noise)


def covariance(model: Model) -> Matrix:
    """Of the features, features × features."""
    return _spread(model, model.variances, model.noise, model.scale)


def precision(model: Model) -> Matrix:
    """The inverse of the covariance."""
    return _spread(model, 1 / model.variances, 1 / model.noise, 1 / model.scale)


def _spread(model: Model, along: Matrix, else_: float, unit: Matrix) -> Matrix:
    matrix: Matrix = model.components.T * (along - else_) @ model.components
    matrix[np.diag_indices_from(matrix)] += else_
    return unit[:, None] * matrix * unit


def log_likelihood(block: Any, model: Model, dtype: str, block_info: Any = None) -> Any:
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


def restored(block: Any, model: Model, dtype: str) -> Any:
    """The samples of which a block has the scores."""
    mean, scale, components = (beside(each, block) for each in (model.mean, model.scale, model.components))
    return (block @ components * scale + mean).astype(np.dtype(dtype))


def likeliest(variances: Matrix, samples: int) -> int:
    """How many components explain the data best, by Minka's evidence; `variances` are all of them, descending."""
    p = len(variances)
    least = max(EPS * float(variances[0]), float(np.finfo(float).tiny))
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
