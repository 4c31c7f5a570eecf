"""How quickly this process does the kinds of work that array computations are made of, measured.

Each kind is a small piece of NumPy code of the shape that it has in a Dask task: blocks of 16 MB, results written to
fresh memory. Nothing here knows Dask; a calibration runs `measure` in every thread of every worker at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

Kind = Literal[
    "normal",
    "uniform",
    "integers",
    "write",
    "read",
    "gemm_f64",
    "gemm_f32",
    "thin_f64",
    "thin_f32",
    "thin_u8",
    "qr_20",
    "qr_100",
    "qr_400",
    "svd",
    "disk_write",
    "disk_read",
]
"""Kinds of work: random numbers drawn, bytes written to fresh memory or read, operations of square matrix products, of
products with 20 columns on one side, of QR decompositions of so many columns and of small SVDs, bytes to and from the
disk of spilled blocks."""

KINDS: tuple[Kind, ...] = get_args(Kind)
SERIAL: tuple[Kind, ...] = ("qr_20", "qr_100", "qr_400", "svd")
"""Kinds that also occur in one thread while the others wait."""
DISK: tuple[Kind, ...] = ("disk_write", "disk_read")
"""Kinds that one thread of a worker measures for all of them."""

_DRAWN, _BYTES, _OPERATIONS = "numbers", "bytes", "operations"
UNITS: Mapping[str, str] = {
    kind: _DRAWN
    if kind in ("normal", "uniform", "integers")
    else _BYTES
    if kind in ("write", "read", *DISK)
    else _OPERATIONS
    for kind in KINDS
}

_ELEMENTS = 2_000_000
_FILE_BYTES = 32_000_000

Piece = Callable[[], tuple[float, float]]
"""Does one piece of work; the amount of it, and the seconds that it took."""


def measure(kind: Kind, seconds: float, folder: str | Path = ".") -> float:
    """Amount of this kind done in a second, over about `seconds` and at least one piece.

    Parameters
    ----------
    folder
        Where the disk is measured.
    """
    piece = _pieces(Path(folder))[kind]()
    done = spent = 0.0
    ending = time.perf_counter() + seconds
    while True:
        amount, passed = piece()
        done, spent = done + amount, spent + passed
        if time.perf_counter() >= ending:
            return done / spent


def qr_operations(rows: float, columns: float) -> float:
    """Operations of a QR decomposition with its orthogonal factor: 4 m n² − 4/3 n³ (Golub and Van Loan, 5.2)."""
    long, short = max(rows, columns), min(rows, columns)
    return 4 * long * short**2 - 4 / 3 * short**3


def _pieces(folder: Path) -> Mapping[Kind, Callable[[], Piece]]:
    """What prepares a piece of each kind."""
    return {
        "normal": lambda: _drawing(lambda rs: rs.normal(10, 1, size=_ELEMENTS)),
        "uniform": lambda: _drawing(lambda rs: rs.random_sample(_ELEMENTS)),
        "integers": lambda: _drawing(lambda rs: rs.randint(0, 3, size=_ELEMENTS, dtype="uint8")),
        "write": _write,
        "read": _read,
        "gemm_f64": lambda: _gemm("float64"),
        "gemm_f32": lambda: _gemm("float32"),
        "thin_f64": lambda: _thin("float64"),
        "thin_f32": lambda: _thin("float32"),
        "thin_u8": lambda: _thin("uint8"),
        "qr_20": lambda: _qr(20),
        "qr_100": lambda: _qr(100),
        "qr_400": lambda: _qr(400),
        "svd": _svd,
        "disk_write": lambda: _disk(folder, reading=False),
        "disk_read": lambda: _disk(folder, reading=True),
    }


def _timed(amount: float, work: Callable[[], Any]) -> Piece:
    def piece() -> tuple[float, float]:
        began = time.perf_counter()
        work()
        return amount, time.perf_counter() - began

    return piece


def _drawing(draw: Callable[[np.random.RandomState], Any]) -> Piece:
    # Dask makes such a generator for each block.
    return _timed(_ELEMENTS, lambda: draw(np.random.RandomState(0)))


def _write() -> Piece:
    x = np.ones(_ELEMENTS)
    return _timed(x.nbytes, lambda: x + 1)


def _read() -> Piece:
    x = np.ones(_ELEMENTS)
    return _timed(x.nbytes, x.sum)


def _gemm(dtype: str) -> Piece:
    a = np.ones((768, 768), dtype)
    return _timed(2.0 * len(a) ** 3, lambda: a @ a)


def _thin(dtype: str) -> Piece:
    rows, columns, width = 2000, _ELEMENTS // 2000, 20
    a = np.ones((rows, columns), dtype)
    right = np.ones((columns, width), "float32" if dtype == "float32" else "float64")
    left = np.ones((rows, width), right.dtype)
    return _timed(4.0 * a.size * width, lambda: (a.dot(right), a.T.dot(left)))


def _qr(columns: int) -> Piece:
    a = np.random.default_rng(0).random((_ELEMENTS // columns, columns))
    return _timed(qr_operations(*a.shape), lambda: np.linalg.qr(a))


def _svd() -> Piece:
    a = np.random.default_rng(0).random((150, 150))
    return _timed(float(len(a)) ** 3, lambda: np.linalg.svd(a))


def _disk(folder: Path, *, reading: bool) -> Piece:
    data = bytes(_FILE_BYTES)

    def piece() -> tuple[float, float]:
        path = folder / f".calibration-{os.getpid()}"
        try:
            began = time.perf_counter()
            _write_through(path, data)
            written = time.perf_counter()
            path.read_bytes() if reading else None
            return _FILE_BYTES, time.perf_counter() - written if reading else written - began
        finally:
            path.unlink(missing_ok=True)

    return piece


def _write_through(path: Path, data: bytes) -> None:
    """Write a file to the disk itself, and let the system forget it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
