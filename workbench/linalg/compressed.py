"""Leading part of the SVD of a large Dask array, to a requested accuracy, with bounds on the error."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np

from workbench.formats import size
from workbench.linalg import arguments, krylov, tall
from workbench.linalg.arrays import ArrayError, as_matrix, memory_of_host, result_dtype
from workbench.linalg.certificate import Certificate, warn
from workbench.linalg.gpu import device_memory, namespace, on_device, on_devices
from workbench.linalg.passes import Along, DaskOperator, View
from workbench.sent_code import cluster_client, scheduler, workers_of

Matrix = np.ndarray[Any, Any]

# A row of blocks should be at most this in one worker.
PANEL_BYTES = 2**28
# Share of a GPU's memory: Dask-CUDA spills blocks to the host from 0.8 on, and a pass needs some itself.
_OF_CARD = 0.6


class _Factors(NamedTuple):
    u: Any
    s: Any
    vh: Any


class SVD(_Factors):
    """`u, s, vh` as Dask arrays, with the `certificate` of their accuracy.

    The certificate covers the returned values: `values` in double precision, and `s` in the precision of
    `a`, or in double precision if that rounds them by more than the tolerance or is out of range.
    `squares` is ‖A‖²_F of the centered and scaled array: the sum of all its squared singular values (infinite
    or 0 if a square is out of range), and `shares` each value's share of it (NaN where it is 0).
    `mean` was subtracted from each column (row, if M < N), and `factor` multiplied it; None unless
    means are taken along the longer axis. `exponent` is that of the power of two by which numbers were divided
    when they were read, if their squares are out of range; else 0.
    """

    certificate: Certificate
    values: Matrix
    squares: float
    shares: Matrix
    mean: Matrix | None
    factor: Matrix | None
    exponent: int

    def __repr__(self) -> str:
        return f"SVD({len(self.s)} singular values of {len(self.u)} × {self.vh.shape[1]}, {self.certificate.status})"


def svd_compressed(
    a: Any,
    k: int,
    iterator: str = "power",
    n_power_iter: int = 0,
    n_oversamples: int = 10,
    seed: Any = None,
    compute: bool = False,
    coerce_signs: bool = True,
    *,
    tol: float = 1e-3,
    max_passes: int = 24,
    center: int | None = None,
    scale: bool = False,
    keep: bool | None = None,
    axis: int | None = None,
) -> SVD:
    """Compute the `k` largest singular values and their vectors, to the relative accuracy `tol`.

    Replaces `dask.array.linalg.svd_compressed`, with another method: a block Krylov space from one fused pass
    a step, which ends when the error bounds are met. With few columns it starts from the vectors of AᵀA of the first
    pass, and ends after two more. The passes are made at once, by Dask's current
    scheduler (`dask.config.set(scheduler=…)`, or the current `distributed.Client`). Singular vectors along the
    shorter axis are then at hand; those along the longer one are lazy, and take one more pass when computed.

    Parameters
    ----------
    a : (M, N) Array
        Any chunks; one block along the shorter axis is best. Whole numbers are never copied to floating point as a
        whole.
    k
        Number of singular values, at most min(M, N).
    iterator, n_power_iter
        As in Dask, but without effect: `tol` decides the number of passes.
    n_oversamples
        Columns beyond `k` in a block of the Krylov space, at least 16 in all.
    seed
        Seed of the random start: a whole number, or a random generator. None draws one; the certificate's `seed`
        repeats it.
    compute
        As in Dask: True makes blocks anew in each pass, which is `keep=False`.
    coerce_signs
        Singular vectors along the shorter axis have a sum ≥ 0: rows of `vh`, as in Dask, if M ≥ N, else columns of
        `u`, so that they are known without a pass.
    tol
        Largest error of each value, relative to the true one.
    max_passes
        Largest number of passes, one more if the arithmetic had to change; fewer if they turn out not to
        suffice. The certificate then says "not reached" and why, and an `AccuracyWarning` says so.
    center
        0 subtracts from each column its mean, 1 from each row; None leaves the numbers as they are. Without a copy.
    scale
        With `center`: also divide by the standard deviations (of the population). Constant rows or columns stay.
    keep
        True keeps blocks in memory between the passes. None does if they take less than half of it, or less than 0.6 of
        the GPUs' if they lie there.
    axis
        Blocks are read one after the other along this axis, and are needed whole along the other, whose vectors are
        then at hand. None is the longer axis, which takes least memory if blocks of any shape are possible.

    Returns
    -------
    SVD
        Unpacks as `u, s, vh`, of (M, k), (k,) and (k, N); `.certificate` has bounds, and a `sentence`.

    Raises
    ------
    ArrayError
        A ValueError: not two-dimensional, blocks of unknown size, a parameter out of bounds, or NaN or infinity, with
        their place.
    ArrayTypeError
        A TypeError: not an array, or not of numbers of at most 64 bits (128 if complex).

    Notes
    -----
    float32 is used for whole numbers of up to 16 bits, and for others after a first pass, as long as its rounding takes
    less than the tolerance; `certificate.dtype` names the final dtype. A space of singular vectors is only as
    sharp as the gap behind it: see `certificate.angle`.
    """
    a, k, (tol, max_passes) = as_matrix(a), arguments.whole("k", k), arguments.accuracy(tol, max_passes)
    n_oversamples = arguments.whole("n_oversamples", n_oversamples, least=0)
    arguments.whole("n_power_iter", n_power_iter, least=0)
    arguments.flags(keep, compute=compute, coerce_signs=coerce_signs, scale=scale)
    seed = arguments.start(seed)
    _check_centering(center, scale)
    if iterator not in ("power", "QR"):
        raise ArrayError(f"Unknown iterator '{iterator}'. Choose one of: power, QR.")
    if np.isnan(a.shape).any():
        raise ArrayError("Blocks of unknown size: call a.compute_chunk_sizes() first.")
    k = min(k, *a.shape)
    if not k:
        return _nothing(a, tol, seed)
    if axis not in (None, 0, 1) or isinstance(axis, bool):
        raise ArrayError(f"axis is 0, 1 or None, not {axis!r}.")
    wide = a.shape[1] > a.shape[0] if axis is None else axis == 1
    along: Along = None if center is None else "rows" if (center == 0) == wide else "columns"
    operator = _operator(a.T if wide else a, View(along, scale), "column" if wide else "row", keep, compute)
    leading = krylov.leading(operator, k, oversample=n_oversamples, tol=tol, max_passes=max_passes, seed=seed)
    return _factors(a, operator, leading, wide, coerce_signs)


def _check_centering(center: int | None, scale: bool) -> None:
    if center not in (None, 0, 1) or isinstance(center, bool):
        raise ArrayError(f"center is the axis along which means are taken, 0, 1 or None, not {center!r}.")
    if scale and center is None:
        raise ArrayError("scale divides by the deviation from the mean, so it needs center=0 or center=1.")


def _operator(a: Any, view: View, row_name: str, keep: bool | None, compute: bool) -> DaskOperator:
    """Return the tall array in rows of blocks of a fair size, in memory if it fits."""
    panel = max(a.chunks[0]) * a.shape[1] * a.dtype.itemsize
    if panel > PANEL_BYTES and a.shape[0] > 1:
        if a.numblocks[1] > 1:
            warnings.warn(
                f"A row of blocks takes {size(panel)} and is needed at once: blocks are cut smaller for it. "
                "One block along the shorter axis reads faster.",
                da.PerformanceWarning,
                stacklevel=4,
            )
        a = a.rechunk({0: max(1, int(max(a.chunks[0]) * PANEL_BYTES // panel))})
    if keep is None:
        keep = not compute and a.nbytes < most_in_memory(on_devices(a))
    return DaskOperator(for_passes(a, keep), view, row_name, keep)


def for_passes(a: Any, keep: bool) -> Any:
    """Return the array persisted on the workers, or in a form that is quick to make again.

    An array whose blocks are held already stays as it is: an optimized graph would lose them.
    """
    if not keep and cluster_client() is not None:
        from distributed import futures_of

        if futures_of(a):
            return a
    (ready,) = dask.persist(a, scheduler=scheduler()) if keep else dask.optimize(a)
    return ready


def most_in_memory(on_devices: bool) -> float:
    """Return the bytes that may stay between passes: half the free memory of the workers, this machine, or their GPUs.

    On a GPU little else is needed. Memory in use by Dask counts, not that allocated: a pool allocates it all at once.
    """
    client = cluster_client()
    if client is None:
        return _OF_CARD * device_memory() if on_devices else (memory_of_host().available or 0) / 2
    workers = workers_of(client).values()
    if on_devices:
        cards = (worker["metrics"] for worker in workers)
        return sum(max(0.0, _OF_CARD * card.get("gpu-memory-total", 0) - card["managed_bytes"]) for card in cards)
    return sum(max(0, worker["memory_limit"] - worker["metrics"].get("memory", 0)) for worker in workers) / 2


def _factors(a: Any, operator: DaskOperator, leading: krylov.Leading, wide: bool, coerce_signs: bool) -> SVD:
    dtype = result_dtype(a.dtype)
    exponent = operator.view.exponent
    s, v = leading.s, leading.v
    inverse = 1 / np.maximum(s, max(float(s[0]) * np.finfo(float).eps, np.finfo(float).tiny))
    if operator.only_rounding:
        # Rounding errors have no directions.
        inverse = np.zeros_like(s)
    if coerce_signs:
        v = v * np.where(v.sum(axis=0).real >= 0, 1.0, -1.0)
    u, _ = tall.orthonormal(operator.projected(v * inverse))
    right = _array(v.conj().T, a, dtype)
    # Scaled columns have no unit.
    unit = 0 if operator.view.scale else exponent
    with np.errstate(over="ignore", under="ignore"):
        values = np.ldexp(s, unit)
    certificate, rounded = _as_returned(leading.certificate, s, values, dtype, unit)
    rounded = _array(rounded, a, rounded.dtype)
    result = SVD(right.T, rounded, u.T) if wide else SVD(u, rounded, right)
    result.values = values
    result.certificate = certificate
    result.shares = leading.certificate.shares
    with np.errstate(over="ignore", under="ignore"):
        result.squares = float(np.ldexp(operator.squares, 2 * unit))
        result.mean, result.factor = operator.view.as_given()
    result.exponent = exponent
    return result


def _as_returned(
    certificate: Certificate, s: Matrix, values: Matrix, dtype: Any, unit: int
) -> tuple[Certificate, Matrix]:
    """Return the certificate after rounding to `dtype`, and the values: `s` · 2^`unit` in their final type."""
    if not np.isfinite(values).all():
        raise ArrayError(
            "The singular values of these numbers are too large for float64. Divide the array by a constant first, "
            "such as 1e100."
        )
    before, reached_before = certificate, certificate.bound <= certificate.tol
    off, rounded = np.zeros(len(s)), values
    for kind in (np.finfo(dtype).dtype, np.dtype(np.float64)):
        with np.errstate(over="ignore", under="ignore"):
            rounded = values.astype(kind)
            off = abs(np.ldexp(rounded.astype(np.float64), -unit) - s) / np.where(s > 0, s, 1)
        if np.isfinite(rounded).all() and (certificate.bound + off <= certificate.tol)[reached_before].all():
            break
    bound, eps = certificate.bound + off, float(np.finfo(dtype).eps) if np.finfo(dtype).dtype == np.float32 else 0.0
    reached = (bound <= certificate.tol)[reached_before].all()
    certificate = replace(
        certificate,
        bound=bound,
        of_largest=certificate.of_largest + off * s / (s[0] or 1.0),
        status=certificate.status if reached else "not reached",
        limit=certificate.limit if reached else "rounding",
        # 0 means the whole space.
        angle=min(1.0, certificate.angle + eps * len(s) ** 0.5) if certificate.angle else 0.0,
        groups=tuple(
            each._replace(angle=min(1.0, each.angle + eps * (each.last - each.first + 1) ** 0.5))
            if each.angle
            else each
            for each in certificate.groups
        ),
    )
    if certificate.status != before.status:
        warn(certificate)
    return certificate, rounded


def _array(matrix: Matrix, like: Any, dtype: Any) -> Any:
    array = da.from_array(matrix.astype(dtype), chunks=-1)
    if on_device(like._meta):
        return array.map_blocks(namespace(like._meta).asarray, meta=like._meta.astype(dtype))
    return array


def _nothing(a: Any, tol: float, seed: int) -> SVD:
    u, s, vh = tall.svd(a)
    result = SVD(u, s, vh)
    result.values = none = np.zeros(0)
    result.certificate = Certificate(tol, none, none, "proved", None, 0, 0.0, (), none, none, 0, 0, "float64", seed)
    result.squares, result.shares, result.mean, result.factor, result.exponent = 0.0, none, None, None, 0
    return result
