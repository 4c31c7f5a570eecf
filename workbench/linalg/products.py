"""Products of a tile with a few columns, in pieces that BLAS multiplies without packing them first.

OpenBLAS copies both factors into an order of its own, which for a few columns takes as long as the product. On
processors with AVX-512 it has kernels without the copy for products of up to a million multiplications; on others
pieces cost nothing (measured November 2026: 15 to 30 % less time with AVX-512, none with AVX2).
"""

from __future__ import annotations

from typing import Any

from workbench.linalg.gpu import namespace, on_device

SMALL = 800_000
"""Multiplications of a piece; with slightly fewer than a million the narrow factor stays in the first cache, too."""

ROWS, MANY = 64, 640
"""Largest number of rows of a tile: with more rows, pieces would have too few columns to be worth a call."""

_COLUMNS = 128
"""Least number of columns of a piece that is worth a call."""


def right(x: Any, q: Any, out: Any, room: Any) -> Any:
    """Put X Q, of (rows, columns) and (columns, width), into `out`; `room` is `room_for(x, width)`."""
    pieces, step = _cut(x, q.shape[1])
    if pieces == 1:
        return namespace(x).matmul(x, q, out=out)
    whole, parts = pieces * step, room[:pieces, : len(x)]
    namespace(x).matmul(_by_pieces(x, pieces, step), q[:whole].reshape(pieces, step, -1), out=parts)
    parts.sum(axis=0, out=out)
    if whole < x.shape[1]:
        out += x[:, whole:] @ q[whole:]
    return out


def room_for(x: Any, width: int) -> Any:
    """Return memory for the sums in `right`, for a tile no higher than `x`; None if it needs none."""
    pieces, _ = _cut(x, width)
    return namespace(x).empty((pieces, len(x), width), x.dtype) if pieces > 1 else None


def left(y: Any, x: Any, out: Any) -> Any:
    """Put YᵀX, of (rows, width) and (rows, columns), into `out`: it is computed faster than XᵀY."""
    pieces, step = _cut(x, y.shape[1])
    if pieces == 1:
        return namespace(x).matmul(y.T, x, out=out)
    whole = pieces * step
    parts = out[:, :whole].reshape(len(out), pieces, step).transpose(1, 0, 2)
    namespace(x).matmul(y.T, _by_pieces(x, pieces, step), out=parts)
    if whole < x.shape[1]:
        out[:, whole:] = y.T @ x[:, whole:]
    return out


def _cut(x: Any, width: int) -> tuple[int, int]:
    """Return the number of pieces, and the columns of each."""
    rows, columns = x.shape
    if on_device(x) or x.strides[1] != x.itemsize:
        return 1, columns
    pieces = max(1, min(-(-rows * columns * width // SMALL), columns // _COLUMNS))
    return pieces, columns // pieces


def _by_pieces(x: Any, pieces: int, step: int) -> Any:
    return x[:, : pieces * step].reshape(len(x), pieces, step).transpose(1, 0, 2)
