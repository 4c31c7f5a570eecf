"""Checks of answers: each compares with a known property, reports the comparison, and can fail."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.workloads.values import Check

if TYPE_CHECKING:
    from distributed import Client


def svd_is_right(x: Any, resolved: Mapping[str, Any], results: Mapping[str, Any], client: Client | None) -> Check:
    """Run the check for the method and the requested number of components."""
    if resolved.get("k") is None:
        return svd_is_exact(x, results, client)
    if resolved["method"] == "workbench":
        return svd_is_certified(x, results, client)
    return svd_is_close(x, results, resolved["tolerance"], client)


def svd_is_exact(x: Any, results: Mapping[str, Any], client: Client | None) -> Check:
    """Compare A with U S V on sampled blocks, and check that U and V are orthonormal, up to rounding."""
    import dask.array as da

    u, v, s = results["u"].to_backend(), results["v"].to_backend(), np.asarray(results["s"])
    problem = _not_singular_values(s)
    if problem:
        return Check(passed=False, what=problem)
    eps, largest = float(np.finfo(x.dtype).eps), _largest(s)
    x, s = _in_range(x, largest), s.astype("float64")
    parts, values = _sampled_blocks(x), _on_cluster(s)[:, None]
    differences = [
        da.sum(((block - u[rows].dot(values * v[:, columns])) / largest) ** 2) for block, rows, columns in parts
    ]
    sizes = [da.sum((block / largest) ** 2) for block, _, _ in parts]
    grams = [u.T.dot(u), v.dot(v.T)]
    difference, size, gram_u, gram_v = computed(
        client, sum(differences[1:], differences[0]), sum(sizes[1:], sizes[0]), *grams
    )
    residual = math.sqrt(float(difference) / float(size)) if size > 0 else math.sqrt(float(difference))
    skew = max(_off_identity(gram_u), _off_identity(gram_v))
    # Rounding grows with the root of the number of summands; a wrong value is off by orders of magnitude more.
    bound = 1000 * eps * math.sqrt(max(1, min(x.shape)))
    passed = residual <= bound and skew <= bound
    words = "up to rounding" if passed else "only with errors that rounding doesn't explain"
    return Check(
        passed=bool(passed),
        what=f"The factors give the array back {words}, in {len(parts)} of its {x.npartitions} blocks.",
        detail=f"A and U S V differ by {residual:.1e} of A, UᵀU and VVᵀ from one by {skew:.1e} ({bound:.1e} allowed).",
    )


def svd_is_close(x: Any, results: Mapping[str, Any], tolerance: float, client: Client | None) -> Check:
    """Bound the errors of singular values by the residuals A v − s u and Aᵀ u − s v.

    Takes one more pass. With u and v of length one, a singular value of A lies within sqrt((‖A v − s u‖² +
    ‖Aᵀ u − s v‖²) / 2) of s: these are the residuals of an eigenvector of the symmetric matrix [[0, A], [Aᵀ, 0]].
    No singular value was missed if the rest of ‖A‖² after the found ones is smaller than the last of them squared.
    """
    u, v, s = results["u"], results["v"], np.asarray(results["s"], dtype="float64")
    problem = _not_singular_values(s)
    if problem:
        return Check(passed=False, what=problem)
    largest = _largest(s)
    x, s = _in_range(x, largest), s / largest
    w, z, values = x.dot(v.T) / largest, x.T.dot(u) / largest, _on_cluster(s)
    left, right, gram_u, gram_v, total = computed(
        client,
        ((w - u * values) ** 2).sum(axis=0),
        ((z - v.T * values) ** 2).sum(axis=0),
        u.T.dot(u),
        v.dot(v.T),
        ((x.astype("float64") / largest) ** 2).sum(),
    )
    skew = max(_off_identity(gram_u), _off_identity(gram_v))
    eps = float(np.finfo(u.dtype).eps)
    if not skew <= 1e4 * eps * math.sqrt(len(s)):
        return Check(passed=False, what=f"The singular vectors are not orthonormal: UᵀU or VVᵀ is off by {skew:.1e}.")
    off = np.sqrt((np.asarray(left, "float64") + np.asarray(right, "float64")) / 2)
    nothing = 1e4 * eps * s[0]  # smaller values, and smaller errors, are rounding
    relative = np.where(off <= nothing, 0.0, off / np.maximum(s, nothing or 1.0))
    worst = int(np.argmax(relative))
    proved = float(total) - float((s**2).sum()) <= max(float(s[-1]) ** 2, eps * float(total))
    return _verdict(len(s), float(relative[worst]), worst, tolerance, proved=proved)


def svd_is_certified(x: Any, results: Mapping[str, Any], client: Client | None, *, axis: int | None = None) -> Check:
    """Check the certificate, the orthonormality of U and V, and Aᴴ U = V S, in one more pass.

    U was made as A V / S, so these two agree for any V. Aᴴ U, by Dask's own product, shows more: along V it is
    S, as near as the certificate says; the rest is (AᴴA v − s² v) / s, whose length the certificate bounds. `axis` is
    that of `workbench.linalg.svd_compressed`.
    """
    certificate = results["certificate"]
    wide = x.shape[1] > x.shape[0] if axis is None else axis == 1
    # Compute with the small factors on the CPU, wherever the array is.
    u, v = results["u"].to_backend(), results["v"].to_backend()
    u, v = (v.T, u) if wide else (u, v.T)
    x = x.T if wide else x
    s = np.asarray(results["s"], dtype="float64")
    problem = _not_singular_values(s)
    if problem or certificate.status == "not reached":
        return Check(passed=False, what=problem or certificate.sentence)
    largest = _largest(s)
    s, z = s / largest, _in_range(x, largest).T.dot(u) / largest
    gram_u, gram_v, along, left = (
        np.asarray(each, "float64")
        for each in computed(
            client, u.T.dot(u), v.T.dot(v), (v * z).sum(axis=0), ((z - v * (v * z).sum(axis=0)) ** 2).sum(axis=0)
        )
    )
    skew = max(_off_identity(gram_u), _off_identity(gram_v))
    if not all(np.isfinite(each).all() for each in (gram_u, gram_v, along, left)):
        return Check(passed=False, what="Singular vectors, or products with them, are not all finite numbers.")
    eps = float(np.finfo(u.dtype).eps)
    bound = 1e4 * eps * math.sqrt(len(s))
    products = float(np.finfo(certificate.dtype.partition(",")[0]).eps)
    nonzero = np.isfinite(certificate.bound) & (s > 0)  # Values close to zero may have any vectors.
    shares = np.where(nonzero, s, np.inf)
    off, off_by = np.abs(along - s), np.where(nonzero, np.sqrt(left), 0.0)
    expected = (1.5 * certificate.residuals + 16 * products) / shares + 1e3 * eps
    passed = bool(skew <= bound and (off <= certificate.of_largest + 1e2 * eps).all() and (off_by <= expected).all())
    return Check(
        passed=passed,
        what="Read once more, the array agrees with the answer as closely as its error bounds say."
        if passed
        else "Read once more, the array doesn't agree with the answer: its error bounds are those of another array.",
        detail=f"Aᵀ U and V S differ by {off_by.max():.1e} of the largest value ({expected.max():.1e} expected), UᵀA V "
        f"and S by {off.max():.1e}, UᵀU and VVᵀ from one by {skew:.1e} ({bound:.1e} allowed).",
    )


def _verdict(count: int, worst: float, number: int, tolerance: float, *, proved: bool) -> Check:
    if not worst <= tolerance:
        return Check(
            passed=False,
            what=f"Singular value {number + 1} of {count} may be off by {_percent(worst)} (residual over one more "
            f"pass), more than the {_percent(tolerance)} allowed. Raise n_power_iter, or tolerance if that will do.",
        )
    missed = (
        "None was missed: what they leave of the array is smaller than the last of them."
        if proved
        else "That no larger one was missed is not proved."
    )
    return Check(
        passed=True,
        what=f"Each of the {count} singular values is within {_percent(worst)} of one of the array's (residual over "
        f"one more pass; {_percent(tolerance)} allowed). {missed}",
    )


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %" if part < 1 else f"{100 * part:.0f} %"


def _not_singular_values(s: np.ndarray[Any, Any]) -> str | None:
    if not np.isfinite(s).all():
        return (
            "The singular values are not all finite: such large numbers leave the range of their type. "
            "Choose method=workbench, or divide the array by a constant first."
        )
    if (s < 0).any() or (np.diff(s) > 0).any():
        return "The singular values are not in falling order from 0 on."
    return None


def _largest(s: np.ndarray[Any, Any]) -> float:
    """Return a divisor for numbers before they are squared: squares of 1e200 are infinite, of 1e-200 zero."""
    return float(s[0]) or 1.0


def _in_range(x: Any, largest: float) -> Any:
    """Return the array in double precision if its products would leave the range of single precision."""
    return x if x.dtype != np.float32 or 1e-20 < largest < 1e30 else x.astype("float64")


def _off_identity(gram: Any) -> float:
    return float(np.abs(np.asarray(gram) - np.eye(len(gram))).max())


def _sampled_blocks(x: Any) -> list[tuple[Any, slice, slice]]:
    """Return blocks of x spread over it, the first and the last among them, with their rows and columns."""
    rows, columns = (np.cumsum((0, *lengths)) for lengths in x.chunks)
    places = [(i, j) for i in range(x.numblocks[0]) for j in range(x.numblocks[1])]
    indices = sorted({round(index) for index in np.linspace(0, len(places) - 1, 4)})
    return [
        (x.blocks[i, j], slice(int(rows[i]), int(rows[i + 1])), slice(int(columns[j]), int(columns[j + 1])))
        for i, j in (places[index] for index in indices)
    ]


def _on_cluster(values: np.ndarray[Any, Any]) -> Any:
    """Return `values` as a Dask array where the others are: CuPy's don't mix with NumPy's."""
    import dask.array as da

    return da.from_array(values, chunks=-1).to_backend()


def computed(client: Client | None, *collections: Any) -> Any:
    """Return the values of collections, from the client's cluster or from Dask's scheduler of the moment."""
    import dask

    read = [collection.to_backend("numpy") for collection in collections]
    if client is None:
        return dask.compute(*read)
    return client.gather(client.compute(read))
