"""Forecast of components of a biobank's genotypes, from slices timed on this machine: `--only biobank`.

A slice has all of the samples, or a part of them, and few variants: one pass over it is timed with the kernel `fast`,
twice, after a first one that counts the sites. What follows is a forecast. It takes that

- seconds of a pass are a · samples · variants + b · samples · blocks, fitted to all slices, where 20 threads work each
  as one of those timed here, and what one thread does once for a pass, which is timed by itself;
- the passes are those that a spectrum of `STRONG` components over noise as Marchenko and Pastur have it needs, asked
  for `TOL`, to come as near to the true values as PCAone comes by itself (`ERROR`, measured with k = 40 on the
  benchmark's genotypes), tried with some numbers of samples, and grow with the logarithm of that number, as
  Chebyshev's polynomials do;
- the disk gives `DISK` bytes a second, while other threads compute, so that the slower of both counts.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]
SAMPLES, VARIANTS, K, THREADS = 488_000, 6_100_000, 40, 20
HOURS, GB = 1.5, 20.0
TOL, ERROR, STRONG, DISK = 1.5e-2, 2.9e-3, 20, 3e9
PARTS = ((0.25, 4096), (0.25, 16384), (1.0, 8192), (1.0, 16384))
"""Of the samples, and variants."""
PER_VARIANT = 26 + 72
"""Bytes of a variant in the process that asks: three numbers, a mask and a reason, and names, place and alleles."""


class Spectrum:
    """An operator whose pass costs nothing: a diagonal."""

    is_complex = start_only = False
    single = True
    bytes_read, squares_error = 0, 0.0

    def __init__(self, n: int) -> None:
        rng, part = np.random.default_rng(0), SAMPLES / VARIANTS
        edges = (1 - part**0.5) ** 2, (1 + part**0.5) ** 2
        x = np.linspace(*edges, 100_001)[1:-1]
        density = np.cumsum(np.sqrt((edges[1] - x) * (x - edges[0])) / x)
        noise = np.interp(rng.random(n - STRONG), density / density[-1], x)
        self.theta = np.concatenate([np.geomspace(40, 2, STRONG), noise])
        self.shape, self.passes, self.squares = (n, n), 0, float(self.theta.sum())

    def normal(self, q: Matrix, single: bool) -> Matrix:
        self.passes += 1
        return self.theta[:, None] * q

    def triangle(self, v: Matrix) -> tuple[Matrix, Matrix]:
        self.passes += 1
        return np.linalg.qr(np.sqrt(self.theta)[:, None] * v, mode="r"), self.theta[:, None] * v

    def input_error(self, s: Matrix, single: bool) -> Matrix:
        return np.zeros_like(s)


def a_pass(samples: int, variants: int, columns: int, threads: int) -> tuple[float, float, int]:
    """Seconds, those of them that are one thread's, and in how many blocks."""
    import dask
    import dask.array as da

    from workbench.genotypes import Genotypes, fast
    from workbench.genotypes.kernels import Narrow
    from workbench.genotypes.operator import GenotypeOperator
    from workbench.genotypes.scaling import Rule

    rng = np.random.default_rng(0)
    # Of 256 variants, again and again: what they are changes no time but how many are unknown, here 1 in 128.
    bits, *more = rng.integers(0, 256, (6, 256, -(-samples // 4)), np.uint8)
    unknown = bits & bits >> 1 & 0x55
    bits &= ~(3 * (unknown & ~np.bitwise_and.reduce(more)))
    bits = da.from_array(np.resize(bits, (variants, bits.shape[1])), chunks=-1)
    genotypes = Genotypes(bits, np.arange(samples).astype(str))
    q, taken = rng.standard_normal((samples, columns)), []
    with dask.config.set(scheduler="threads", num_workers=threads):
        fast.warm_up()
        operator = GenotypeOperator(genotypes, Rule("center"), kernel=fast.FAST, keep=True)
        for _ in range(3):
            began = time.perf_counter()
            operator.normal(q, True)
            taken.append(time.perf_counter() - began)
        none, no_sites = np.zeros((0, bits.shape[1]), np.uint8), np.zeros((0, 3))
        began = time.perf_counter()
        narrow = Narrow.of(q, True)
        total = fast.normal(none, no_sites, fast.arranged(narrow)).astype(np.float64)
        fast.gathered(total, narrow)
        alone = time.perf_counter() - began
    return min(taken[1:]), alone, operator.packed.numblocks[0]


def passes_of(n: int) -> tuple[int, float, float]:
    """Return the passes to TOL, the seconds of computation between them, and the errors of the values."""
    from workbench.linalg import krylov

    spectrum, began = Spectrum(n), time.perf_counter()
    found = krylov.leading(spectrum, K, oversample=8, tol=TOL, max_passes=60, seed=0)
    took, true = time.perf_counter() - began, np.sqrt(np.sort(spectrum.theta)[::-1][:K])
    return found.certificate.passes, took, float(np.abs(found.s / true - 1).max())


def forecast(threads: int, quick: bool) -> str:
    """Slices, and what they say of all."""
    from workbench.genotypes import fast
    from workbench.genotypes.packing import at_most, block_rows
    from workbench.linalg.krylov import basis_bytes

    columns = K + fast.oversamples(K)
    load, samples = os.getloadavg()[0], SAMPLES // (8 if quick else 1)
    lines = [
        "**biobank**",
        "",
        "| samples | variants | blocks | seconds of a pass | of one thread | GF/s a thread |",
        "|---|---|---|---|---|---|",
    ]
    terms, times = [], []
    for part, variants in PARTS:
        n = int(part * samples)
        seconds, alone, blocks = a_pass(n, variants, columns, threads)
        terms.append((n * variants, n * blocks))
        times.append((seconds - alone) * threads)
        rate = 4 * n * variants * columns / times[-1] / 1e9
        lines.append(f"| {n} | {variants} | {blocks} | {seconds:.2f} | {alone:.2f} | {rate:.0f} |")
        print(lines[-1], flush=True)
    # Relative errors count: a small slice says as much as a large one.
    fit = np.array(terms) / np.array(times)[:, None]
    a, b = np.maximum(np.linalg.lstsq(fit, np.ones(len(times)), rcond=None)[0], 0)
    sizes = np.array([1_000, 2_000, 4_000] if quick else [3_000, 12_000, 24_000, 48_000])
    passes, between, off = zip(*(passes_of(int(n)) for n in sizes), strict=True)
    slope, start = np.polyfit(np.log(sizes), passes, 1)
    needed = int(np.ceil(max(max(passes), start + slope * np.log(SAMPLES))))
    row = -(-SAMPLES // 4)
    rows = min(block_rows(VARIANTS, SAMPLES), at_most(fast.FAST.largest_block, row) // row)
    computing = (a * SAMPLES * VARIANTS + b * SAMPLES * -(-VARIANTS // rows)) / THREADS
    reading, algebra = VARIANTS * row / DISK, alone * SAMPLES / n + between[-1] / passes[-1] * SAMPLES / sizes[-1]
    hours = needed * (max(computing, reading) + algebra) / 3600
    basis = min(basis_bytes(), 16 * SAMPLES * columns * needed)
    # Ritz vectors and their products have twice the columns. A thread holds its block and sums in float32, or two sums
    # in float64 that it adds; others wait to be added.
    column = SAMPLES * columns
    parts = {
        "basis": basis,
        "vectors": 48 * column,
        "Q": 16 * column,
        "threads": THREADS * max(rows * row + 4 * column, 16 * column),
        "waiting": 8 * column * np.log2(VARIANTS / rows),
        "sites and names": VARIANTS * PER_VARIANT,
    }
    memory = sum(parts.values()) / 1e9
    shown = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in parts.items())
    reached = (hours <= HOURS and max(off) <= ERROR, memory <= GB)
    verdict = [("pass" if each else "not reached") for each in reached]
    lines += [
        "",
        f"Forecast of {SAMPLES} × {VARIANTS}, k = {K}, {THREADS} threads (timed here: {threads}, load {load:.1f} at "
        f"the start): {needed} passes ({', '.join(map(str, passes))} of {', '.join(map(str, sizes))} samples, where "
        f"values are off by {max(off):.1e} at most; PCAone's by {ERROR:.1e} of 3000), each of "
        f"{computing:.0f} s of products, {reading:.0f} s of reading beside them at {DISK / 1e9:.0f} GB/s, "
        f"{algebra:.0f} s between passes: {hours:.1f} h, {verdict[0]} (≤ {HOURS} h). "
        f"Memory {memory:.0f} GB ({shown}), {verdict[1]} (≤ {GB:.0f} GB). PCAone's paper: 9 h, 20 GB.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    print(forecast(given.threads, given.quick))


if __name__ == "__main__":
    main()
