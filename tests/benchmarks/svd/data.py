"""The data that the methods are measured on, each with its float64 reference, in a folder of its own.

`x.npy` is what the peers read; `reference.npz` has the true singular values `s` and right vectors `v`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

K, MANY = 10, 40
Matrix = np.ndarray[Any, Any]

# Drift of the first and of the last of 12 populations, at 3000 samples. "weak" makes n_power_iter=10 stop at an error
# of about 3e-4 and a sine of about 0.03, since the tenth component hardly stands out of the noise.
STRUCTURE = {"weak": (0.00625, 0.00175), "clear": (0.02, 0.006)}

# 0, 1 and 2 copies of A1, and none known, in a .bed file.
_BED_CODES = np.array([3, 2, 0, 1], np.uint8)


def simulated(rows: int, columns: int, structure: str) -> Any:
    """Packed genotypes of 12 populations, whose components are as distinct for any number of samples."""
    from workbench.genotypes import simulate

    first, last = (drift * 3000 / columns for drift in STRUCTURE[structure])
    return simulate(rows, columns, n_populations=12, fst=np.geomspace(first, last, 12).tolist(), seed=0)


def genotypes(folder: Path, rows: int, columns: int, structure: str, files: bool = False) -> None:
    """Write counts of alleles and the reference for centered ones; with `files`, also files scaled as by Patterson."""
    g = simulated(rows, columns, structure)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (rows, columns))
    g.counts().store(x, lock=False)
    grams = {name: np.zeros((columns, columns)) for name in ("", "_patterson")[: 1 + files]}
    for start in range(0, rows, 2000):
        part = x[start : start + 2000].astype(float)
        p = part.mean(axis=1, keepdims=True) / 2
        part -= 2 * p
        for name, gram in grams.items():
            if name:
                part /= np.sqrt(p * (1 - p))
            gram += part.T @ part
    found = {}
    for name, gram in grams.items():
        values, vectors = np.linalg.eigh(gram)
        found[f"s{name}"] = np.sqrt(values[::-1][:K])
        found[f"v{name}"] = vectors[:, ::-1][:, :K]
    np.savez(folder / "reference.npz", **found)
    if files:
        _write_files(folder, g, x)


def incomplete(folder: Path, rows: int, columns: int) -> None:
    """Write a .bed of 12 close populations, 1 % missing, with 10 and 40 components by Patterson's scaling."""
    from workbench.genotypes import simulate

    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (rows, columns))
    simulate(rows, columns, n_populations=12, fst=0.01, missing=0.01, seed=0).counts(missing=3).store(x, lock=False)
    gram = np.zeros((columns, columns))
    for start in range(0, rows, 2000):
        part = x[start : start + 2000].astype(float)
        known = part < 3
        mean = part.sum(axis=1, where=known, keepdims=True) / known.sum(axis=1, keepdims=True)
        scaled = np.where(known, part - mean, 0) / np.sqrt(mean / 2 * (1 - mean / 2))
        gram += scaled.T @ scaled
    values, vectors = np.linalg.eigh(gram)
    s, v = np.sqrt(values[::-1][:MANY]), vectors[:, ::-1][:, :MANY]
    np.savez(folder / "reference.npz", s_10=s[:K], v_10=v[:, :K], s_40=s, v_40=v)
    _write_bed(folder, x)


def _write_files(folder: Path, g: Any, x: Matrix) -> None:
    import zarr

    from workbench.genotypes import pack_to_zarr

    pack_to_zarr(g, folder / "two_bit.zarr")
    lz4 = zarr.codecs.BloscCodec(cname="lz4", clevel=3, shuffle="bitshuffle")
    g.counts().to_zarr(str(folder / "lz4.zarr"), compressors=lz4)
    _write_bed(folder, x)


def _write_bed(folder: Path, x: Matrix) -> None:
    rows, columns = x.shape
    with (folder / "x.bed").open("wb") as bed:
        bed.write(b"\x6c\x1b\x01")
        for start in range(0, rows, 2000):
            codes = np.zeros((min(2000, rows - start), -(-columns // 4) * 4), np.uint8)
            codes[:, :columns] = _BED_CODES[x[start : start + 2000]]
            bed.write((codes[:, ::4] | codes[:, 1::4] << 2 | codes[:, 2::4] << 4 | codes[:, 3::4] << 6).tobytes())
    (folder / "x.bim").write_text("".join(f"1\tv{i}\t0\t{i + 1}\tA\tC\n" for i in range(rows)))
    (folder / "x.fam").write_text("".join(f"f{i} i{i} 0 0 0 -9\n" for i in range(columns)))


def growing(folder: Path, rows: int, columns: int) -> None:
    """Write only a two-bit store: its reference would take longer than everything else."""
    from workbench.genotypes import pack_to_zarr

    pack_to_zarr(simulated(rows, columns, "clear"), folder / "two_bit.zarr")


def tall(folder: Path, rows: int, columns: int, condition: float) -> None:
    """Write normal numbers with singular values spread evenly in the logarithm."""
    rng = np.random.default_rng(0)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float64, (rows, columns))
    turn = np.linalg.qr(rng.standard_normal((columns, columns)))[0].T
    turn = np.logspace(0, -np.log10(condition), columns)[:, None] * turn
    for start in range(0, rows, 20_000):
        stop = min(start + 20_000, rows)
        x[start:stop] = rng.standard_normal((stop - start, columns)) @ turn
    _, s, vh = np.linalg.svd(np.linalg.qr(x, mode="r"))
    np.savez(folder / "reference.npz", s=s, v=vh.T)


def nothing(folder: Path) -> None:
    """For methods that make their own numbers."""
