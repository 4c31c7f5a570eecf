"""How quickly this process does the kinds of work that array computations are made of, measured.

Each kind is a small piece of array code of the shape that it has in a Dask task: blocks of 16 MB, results written to
fresh memory, NumPy's or CuPy's. Nothing here knows Dask; a calibration runs `measure` in every thread of every worker
at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SERIAL = ("qr_20", "qr_100", "qr_400", "svd")
"""Kinds that also occur in one thread while the others wait."""
DISK = ("disk_write", "disk_read")
"""Kinds that one thread of a worker measures for all of them."""
FAST = 10.0
"""How many times as fast as "normal" is "fast", tiles of numbers compiled by numba, which not every worker has; on two
cores of a Xeon in November 2026."""

_ELEMENTS = 2_000_000
_SIDE = 768
"""Of a square matrix."""
_FILE_BYTES = 32_000_000

Piece = Callable[[], tuple[float, float]]
"""Does one piece of work; the amount of it, and the seconds that it took."""


def measure(kind: str, seconds: float, folder: str | Path = ".", *, on_gpu: bool = False) -> float:
    """Amount of this kind done in a second, over about `seconds` and at least one piece; of disks, that of `folder`.

    `on_gpu` measures with CuPy, on this process's GPU, all but disks and tiles, which stay in a processor's cache.
    """
    _, prepare = _PIECES[kind]
    cpu = _Library(np, np.random.RandomState, _ELEMENTS, lambda: None)
    return repeated(prepare(_gpu() if on_gpu else cpu, Path(folder)), seconds)


def repeated(piece: Piece, seconds: float) -> float:
    """Amount in a second, of a piece that is done again and again for about `seconds`, once at least."""
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


class _Library(NamedTuple):
    """NumPy, or what stands for it on a GPU."""

    xp: Any
    """Module of array functions."""
    random_state: Callable[[int], Any]
    elements: int
    """Numbers in a block, enough to keep the device busy."""
    finish: Callable[[], Any]
    """Wait until all that was asked for is done."""

    @property
    def on_gpu(self) -> bool:
        return self.xp is not np


def _gpu() -> _Library:
    import cupy

    # A GPU is handed work without waiting for it, and is idle in between where blocks are small.
    return _Library(cupy, cupy.random.RandomState, 8 * _ELEMENTS, cupy.cuda.get_current_stream().synchronize)


def _timed(amount: float, work: Callable[[], Any], finish: Callable[[], Any] = lambda: None) -> Piece:
    def piece() -> tuple[float, float]:
        began = time.perf_counter()
        work()
        finish()
        return amount, time.perf_counter() - began

    return piece


def _drawing(on: _Library, draw: Callable[[Any, int], Any]) -> Piece:
    # Dask makes such a generator for each block.
    return _timed(on.elements, lambda: draw(on.random_state(0), on.elements), on.finish)


def _integers(on: _Library) -> Piece:
    if on.on_gpu:  # a kernel of ours draws them there, in about the time that they take to be written
        return _timed(on.elements, lambda: on.xp.full(on.elements, 1, "uint8"), on.finish)
    return _drawing(on, lambda rs, count: rs.randint(0, 3, size=count, dtype="uint8"))


def _tiles() -> Piece:
    # As workloads.generators makes them: a generator for each tile of 256 × 256, of which every other number is added.
    side = 256 if _ELEMENTS >= 2**18 else 32
    count = max(1, _ELEMENTS // side**2)
    tile = np.empty((side, side))

    def work() -> float:
        total = 0.0
        for each in range(count):
            bits = np.random.SFC64(np.random.SeedSequence(0, spawn_key=(each, 0)))
            np.random.Generator(bits).standard_normal(out=tile)
            np.add(tile, 10, out=tile)
            np.add(tile, 1, out=tile)
            total += float(tile[::2, ::2].sum())
        return total

    return _timed(count * side**2, work)


def _write(on: _Library) -> Piece:
    x = on.xp.ones(on.elements)
    return _timed(x.nbytes, lambda: x + 1, on.finish)


def _read(on: _Library) -> Piece:
    x = on.xp.ones(on.elements)
    return _timed(x.nbytes, lambda: x.sum(), on.finish)


def _gemm(on: _Library, dtype: str) -> Piece:
    # A GPU is only busy with larger ones.
    side = 4 * _SIDE if on.on_gpu else _SIDE
    a = on.xp.ones((side, side), dtype)
    return _timed(2.0 * side**3, lambda: a @ a, on.finish)


def _thin(on: _Library, dtype: str) -> Piece:
    rows, width = 2000, 20
    columns = on.elements // rows
    a = on.xp.ones((rows, columns), dtype)
    right = on.xp.ones((columns, width), "float32" if dtype == "float32" else "float64")
    left = on.xp.ones((rows, width), right.dtype)
    return _timed(4.0 * rows * columns * width, lambda: (a.dot(right), a.T.dot(left)), on.finish)


def _fused(on: _Library, dtype: str) -> Piece:
    # As linalg.passes goes through a block: tiles of 1.5 MB, each used for both products; on a GPU all at once.
    rows, width = 2000, 20
    columns = on.elements // rows
    height = rows if on.on_gpu else max(16, 1_500_000 // (4 * columns))
    a = on.xp.ones((rows, columns), dtype)
    q = on.xp.ones((columns, width), "float32")

    def work() -> Any:
        buffer = on.xp.empty((height, columns), "float32")
        total = on.xp.zeros((columns, width), "float32")
        for start in range(0, rows, height):
            tile = a[start : start + height]
            if dtype != "float32":
                buffer[: len(tile)] = tile
                tile = buffer[: len(tile)]
            total += tile.T @ (tile @ q)
        return total

    return _timed(4.0 * rows * columns * width, work, on.finish)


def _qr(on: _Library, columns: int) -> Piece:
    a = on.random_state(0).random_sample((on.elements // columns, columns))
    return _timed(qr_operations(*a.shape), lambda: on.xp.linalg.qr(a), on.finish)


def _svd(on: _Library) -> Piece:
    a = on.random_state(0).random_sample((150, 150))
    return _timed(float(len(a)) ** 3, lambda: on.xp.linalg.svd(a), on.finish)


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


_DRAWN, _BYTES, _OPERATIONS = "numbers", "bytes", "operations"
_PIECES: Mapping[str, tuple[str, Callable[[_Library, Path], Piece]]] = {
    "normal": (_DRAWN, lambda on, _: _drawing(on, lambda rs, count: rs.normal(10, 1, size=count))),
    "uniform": (_DRAWN, lambda on, _: _drawing(on, lambda rs, count: rs.random_sample(count))),
    "integers": (_DRAWN, lambda on, _: _integers(on)),
    "write": (_BYTES, lambda on, _: _write(on)),
    "read": (_BYTES, lambda on, _: _read(on)),
    "gemm_f64": (_OPERATIONS, lambda on, _: _gemm(on, "float64")),
    "gemm_f32": (_OPERATIONS, lambda on, _: _gemm(on, "float32")),
    "thin_f64": (_OPERATIONS, lambda on, _: _thin(on, "float64")),
    "thin_f32": (_OPERATIONS, lambda on, _: _thin(on, "float32")),
    "thin_u8": (_OPERATIONS, lambda on, _: _thin(on, "uint8")),
    "qr_20": (_OPERATIONS, lambda on, _: _qr(on, 20)),
    "qr_100": (_OPERATIONS, lambda on, _: _qr(on, 100)),
    "qr_400": (_OPERATIONS, lambda on, _: _qr(on, 400)),
    "svd": (_OPERATIONS, lambda on, _: _svd(on)),
    "disk_write": (_BYTES, lambda _, folder: _disk(folder, reading=False)),
    "disk_read": (_BYTES, lambda _, folder: _disk(folder, reading=True)),
    "tiles": (_DRAWN, lambda *_: _tiles()),
    "fused_f64": (_OPERATIONS, lambda on, _: _fused(on, "float64")),
    "fused_f32": (_OPERATIONS, lambda on, _: _fused(on, "float32")),
    "fused_u8": (_OPERATIONS, lambda on, _: _fused(on, "uint8")),
}
"""What is counted of each kind, and what prepares a piece of it."""

KINDS = tuple(_PIECES)
"""Kinds of work: random numbers drawn, bytes written to fresh memory or read, operations of square matrix products, of
products with 20 columns on one side, of QR decompositions of so many columns and of small SVDs, bytes to and from the
disk of spilled blocks. Tiles are numbers drawn and added up in the processor's cache; fused are operations of a product
with 20 columns and the transposed one, in float32, of tiles that are converted from what is stored."""
UNITS = {kind: unit for kind, (unit, _) in _PIECES.items()}
