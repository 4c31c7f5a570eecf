"""Principal components of genotypes, from their packed blocks, by a convention that is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import dask
import numpy as np

from workbench import formats
from workbench.errors import BadInputError, MissingError, install
from workbench.genotypes import choosing, fast
from workbench.genotypes.device import DEVICE
from workbench.genotypes.kernels import NUMPY, Kernel
from workbench.genotypes.operator import GenotypeOperator
from workbench.genotypes.reading import as_genotypes
from workbench.genotypes.scaling import CONVENTIONS, REASONS, Rule, Scaler
from workbench.genotypes.values import Genotypes, Variants
from workbench.linalg import arguments, krylov
from workbench.linalg.certificate import Certificate
from workbench.linalg.gpu import on_device
from workbench.sent_code import can_import, everywhere

if TYPE_CHECKING:
    from workbench.genotypes.projection import Projection

Matrix = np.ndarray[Any, Any]

# With fewer genotypes than this, NumPy is as fast.
LARGE = 2 * 10**7


@dataclass(frozen=True, eq=False)
class GenotypePCA:
    """Leading principal components of samples, and the data behind them."""

    scores: Matrix
    """Samples × components."""
    singular_values: Matrix
    explained_variance: Matrix
    explained_variance_ratio: Matrix
    """Share of the variance of all sites that were kept, exactly."""
    kept: Matrix
    """A mask of the variants that took part."""
    dropped: Mapping[str, int]
    """Number of excluded sites by reason; the first reason that applies to a site counts."""
    samples: Matrix
    """All samples; the scores of those in `unknown_samples` are NaN."""
    unknown_samples: Matrix
    """Names of the samples left out because no variant that took part is known of them."""
    sample_table: Mapping[str, Matrix]
    variants: Variants
    """Variants that were kept."""
    scaler: Scaler
    certificate: Certificate
    """Accuracy of the singular values."""
    _operator: GenotypeOperator = field(repr=False)
    _vectors: Matrix = field(repr=False)

    @property
    def convention(self) -> str:
        """Source of the centering and scaling, and the factors between the numbers and others'."""
        return CONVENTIONS[self.scaler].sentence

    @cached_property
    def loadings(self) -> Any:
        """Kept variants × components, of unit length, as a Dask array: computing it takes one more pass."""
        s = self.singular_values * (np.sqrt(self.kept.sum()) if CONVENTIONS[self.scaler].by_variants else 1.0)
        safe = np.where(s > 0, s, np.inf)
        return self._operator.projected(self._vectors / safe)

    @property
    def counted(self) -> Any:
        """Copies of the counted allele and samples that know it, for each kept variant: a Dask array, kept × 2."""
        return self._operator.counted()

    def anew(self) -> tuple[Matrix, Matrix]:
        """Make one more pass in double precision; return singular values, and ‖ÃᵀÃ v − σ² v‖ / σ₁²."""
        products = self._operator.normal(self._vectors, False)
        squares = (self._vectors * products).sum(axis=0)
        residuals = np.linalg.norm(products - squares * self._vectors, axis=0) / (squares[0] or 1.0)
        by = self.kept.sum() if CONVENTIONS[self.scaler].by_variants else 1
        return np.sqrt(np.maximum(squares, 0) / by), residuals

    def project(self, source: Any, *, correct: bool = False, ambiguous: bool = False) -> Projection:
        """Return scores of new samples on these components, as `genotypes.project` does."""
        from workbench.genotypes.projection import project

        return project(self, source, correct=correct, ambiguous=ambiguous)

    def __repr__(self) -> str:
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items()) or "none"
        without = formats.shortened(self.unknown_samples.tolist(), 5) or "none"
        return (
            f"GenotypePCA({self.scores.shape[1]} components of {len(self.samples)} samples, {int(self.kept.sum())} "
            f"variants, left out: {left_out}, samples without genotypes: {without}, scaler={self.scaler!r}, "
            f"{self.certificate.status})"
        )


def pca(
    source: Any,
    n_components: int = 10,
    *,
    scaler: Scaler | None = "patterson",
    tol: float = 1e-3,
    max_passes: int = 24,
    maf: float = 0.0,
    max_missing: float = 1.0,
    hwe: float = 0.0,
    keep_samples: choosing.Names | None = None,
    remove: choosing.Names | None = None,
    leave_out: choosing.Regions | None = None,
    ld_prune: tuple[int, float] | Mapping[str, Any] | None = None,
    kept: Any = None,
    autosomes_only: bool = False,
    n_oversamples: int | None = None,
    seed: Any = 0,
    keep: bool | None = None,
    kernel: Literal["auto", "numpy", "fast", "device"] = "auto",
) -> GenotypePCA:
    """Compute the `n_components` leading principal components of the samples, to the relative accuracy `tol`.

    Works on packed blocks, with Dask's current scheduler; genotypes are converted to floating point only a tile
    at a time. A missing value counts as its site's mean. Sites without variation, or where nothing is
    known, are left out and counted.

    Parameters
    ----------
    source
        `Genotypes`, a path or URL that `open_genotypes` reads, or an array of counts (variants × samples).
    n_components
        Number of components, at most that of samples, or of sites with variation.
    scaler
        "patterson" (as scikit-allel and sgkit), "hail", "plink", "standard" or "center"; None is "center", too.
    tol, max_passes, n_oversamples, seed
        As in `linalg.svd_compressed` (n_oversamples=None is the kernel's own choice): values are accurate to `tol`,
        or the certificate says that they aren't.
    maf
        Sites whose rarer allele is less frequent are left out.
    max_missing
        Sites that are unknown in a larger part of the samples are left out.
    hwe
        Sites where the exact test of Hardy-Weinberg equilibrium has a smaller p are left out. It assumes two copies in
        each sample, and doesn't apply to sites on X, Y and mitochondria.
    keep_samples, remove
        Samples to keep (None: all), and to leave out: names, or a file with a name, or a family and a name, on each
        line. Limits on sites (`maf`, `hwe` and so on) apply to the samples left.
    leave_out
        Regions whose variants are left out, such as "6:25000000-35000000", or a BED file.
    ld_prune
        (window, r²): of linked sites only some are taken, as the function `ld_prune` does; or its parameters by name.
    kept
        A mask of the variants that may take part.
    autosomes_only
        True leaves out variants elsewhere than on one of the 22 human autosomes. PLINK leaves out those on X, Y
        and mitochondria, and keeps those that aren't placed (0) or are on both X and Y (25).
    keep
        True keeps the packed blocks in memory between passes; None does if they take less than half of it.
    kernel
        "numpy", "fast" (numba: `pip install numba`), "device" (on GPUs, where Dask's array.backend is "cupy"), or
        "auto": "device" there, else "fast" where it is installed. Blocks on a device are always multiplied
        there.

    Returns
    -------
    GenotypePCA
        With `scores` of samples × components.

    Raises
    ------
    BadInputError
        The source can't be read, a parameter is out of its bounds, or the samples don't differ at the sites that take
        part.

    References
    ----------
    Patterson, Price, Reich: Population structure and eigenanalysis. PLoS Genetics 2, 2006.
    """
    genotypes = choosing.of_chosen_samples(as_genotypes(source), keep_samples, remove)
    rule = Rule("center" if scaler is None else scaler, maf, max_missing, hwe)
    k = _count(n_components, genotypes)
    tol, max_passes = arguments.accuracy(tol, max_passes)
    arguments.flags(keep)
    barred = choosing.barred(genotypes, kept=kept, autosomes_only=autosomes_only, leave_out=leave_out)
    mask = choosing.rest(barred)
    if ld_prune is not None:
        mask = _pruned(genotypes, ld_prune, rule, mask)
    chosen = _kernel(kernel, genotypes)
    if chosen is DEVICE and not on_device(genotypes.packed._meta):
        genotypes = replace(genotypes, packed=genotypes.packed.to_backend("cupy"))
    operator = GenotypeOperator(genotypes, rule, kernel=chosen, allowed_rows=mask, keep=keep, at_least=k)
    more = chosen.oversamples(k) if n_oversamples is None else arguments.whole("n_oversamples", n_oversamples, least=0)
    start = arguments.start(seed)
    leading = krylov.leading(operator, k, oversample=more, tol=tol, max_passes=max_passes, seed=start)
    if not operator.squares:
        raise BadInputError(
            f"All {genotypes.n_samples} samples are alike in the {int(operator.used_sites.sum())} variants that take "
            "part, and components tell how samples differ."
        )
    return _result(genotypes, operator, leading, barred)


def _count(n_components: Any, genotypes: Genotypes) -> int:
    most = min(genotypes.shape)
    of = f"there are {genotypes.n_variants} variants of {genotypes.n_samples} samples."
    if not most:
        raise BadInputError(f"There is nothing to find components of: {of}")
    if genotypes.n_samples == 1:
        raise BadInputError("Components tell how samples differ, and there is one sample: give two or more.")
    whole = isinstance(n_components, (int, np.integer)) and not isinstance(n_components, bool)
    if not whole or not 1 <= n_components <= most:
        raise BadInputError(f"n_components={n_components!r} must be a whole number from 1 to {most}: {of}")
    return int(n_components)


def _pruned(genotypes: Genotypes, given: Any, rule: Rule, mask: Matrix | None) -> Matrix:
    from workbench.genotypes.prune import ld_prune

    try:
        options = dict(given if isinstance(given, Mapping) else zip(("window", "r2"), given, strict=True))
        is_valid = options.keys() <= {"window", "r2", "step", "unit"}
    except (TypeError, ValueError):
        is_valid = False
    if not is_valid or "window" not in options:
        raise BadInputError(
            "ld_prune is a window in variants and the r² from which on two are linked, such as (500, 0.2), or window, "
            f"r2, step and unit by name, not {given!r}."
        )
    return ld_prune(genotypes, rule=rule, kept=mask, **options)


def _kernel(name: str, genotypes: Genotypes) -> Kernel:
    """Return the kernel of that name, ready to be used by every worker."""
    if name not in ("auto", "numpy", "fast", "device"):
        raise BadInputError(f"Unknown kernel {name!r}. Choose one of: auto, numpy, fast, device.")
    large = genotypes.n_variants * genotypes.n_samples >= LARGE
    lies_there = on_device(genotypes.packed._meta)
    if name in ("auto", "device") and (lies_there or dask.config.get("array.backend", "numpy") == "cupy"):
        return DEVICE
    if name == "device":
        raise BadInputError("kernel='device' is for GPUs: set Dask's array.backend to 'cupy', or leave it out.")
    if name == "numpy" or lies_there or (name == "auto" and not (large and can_import("numba"))):
        return NUMPY
    if not can_import("numba"):
        raise MissingError(f"The fast kernel needs numba where it computes: {install('fast')}, or leave kernel out.")
    everywhere(fast.warm_up)
    return fast.FAST


def _result(
    genotypes: Genotypes, operator: GenotypeOperator, leading: krylov.Leading, barred: Mapping[str, Matrix]
) -> GenotypePCA:
    convention = CONVENTIONS[operator.rule.scaler]
    used = operator.used_sites
    scale = 1 / np.sqrt(used.sum()) if convention.by_variants else 1.0
    s, total = leading.s * scale, operator.squares * scale**2
    v = leading.v * _signs(leading.v)
    unknown = operator.unknown_samples()
    variance = s**2 if convention.eigenvalues else s**2 / (genotypes.n_samples - len(unknown))
    scores = v if convention.unit_scores else v * s
    scores[unknown] = np.nan
    return GenotypePCA(
        scores=scores,
        singular_values=s,
        explained_variance=variance,
        explained_variance_ratio=s**2 / total if total else np.full_like(s, np.nan),
        kept=used,
        dropped=_dropped(operator.verdict.copy(), barred),
        samples=genotypes.samples,
        unknown_samples=genotypes.samples[unknown],
        sample_table=genotypes.sample_table,
        variants=genotypes.variants if used.all() else genotypes.variants[used],
        scaler=operator.rule.scaler,
        certificate=leading.certificate,
        _operator=operator,
        _vectors=v,
    )


def _signs(v: Matrix) -> Matrix:
    """Return signs that make the largest entry of each vector positive."""
    return np.where(v[np.abs(v).argmax(axis=0), np.arange(v.shape[1])] < 0, -1.0, 1.0)


def _dropped(reasons: Matrix, barred: Mapping[str, Matrix]) -> dict[str, int]:
    for reason, mask in barred.items():
        reasons[mask] = REASONS.index(reason)
    numbers = np.bincount(reasons, minlength=len(REASONS))
    return {reason: int(n) for reason, n in zip(REASONS, numbers, strict=True) if n and reason != "kept"}
