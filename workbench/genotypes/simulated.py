"""Simulated genotypes of populations that drifted apart, to use without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import dask.array as da
import numpy as np

from workbench.errors import BadInputError
from workbench.genotypes.packing import block_rows, pack, packed_array, packed_width
from workbench.genotypes.values import Genotypes
from workbench.linalg import arguments, cuda
from workbench.linalg.arrays import row_blocks
from workbench.linalg.keys import fresh

# Sites drawn together from a random stream of their own, so that the result doesn't depend on the blocks.
_TILE = 256
_FREQUENCIES = (0.05, 0.95)
_LEVELS = 2**16
# Levels of the GPU kernel, and packed bytes that it draws in a task.
_DEVICE_LEVELS = 2**31
_DEVICE_BYTES = 2**28


def simulate(
    n_variants: int,
    n_samples: int,
    *,
    n_populations: int = 3,
    fst: float | Sequence[float] = 0.1,
    missing: float = 0.0,
    monomorphic: float = 0.0,
    all_missing: float = 0.0,
    seed: int = 0,
    rows: int | Literal["auto"] = "auto",
    on_device: bool = False,
) -> Genotypes:
    """Return unlinked sites of Balding–Nichols populations, generated where they are needed.

    Each site's ancestral frequency p is uniform in 0.05 to 0.95; in a population with F_ST = F it is Beta distributed
    with parameters p(1 − F)/F and (1 − p)(1 − F)/F; a genotype is two draws with that frequency. The result depends
    on all parameters but `rows`.

    Parameters
    ----------
    n_variants, n_samples
        Any size: only the requested part is generated.
    n_populations
        Samples are divided among them evenly, in order; `sample_table["population"]` names them.
    fst
        Drift of each population, or of all.
    missing
        Share of the genotypes that are not known.
    monomorphic, all_missing
        Share of the sites where all have the same genotype, or none is known.
    seed
        Seed of the streams; each 256 sites have their own.
    rows
        Variants in a block.
    on_device
        True draws the genotypes on the workers' GPUs and leaves them there: other ones from the same frequencies.

    Notes
    -----
    Source: D. J. Balding and R. A. Nichols, Genetica 96 (1995) 3–12.
    """
    drifts = np.broadcast_to(np.asarray(fst, float), (n_populations,)) if np.ndim(fst) == 0 else np.asarray(fst, float)
    _check(n_variants, n_samples, n_populations, drifts)
    for name, share in (("missing", missing), ("monomorphic", monomorphic), ("all_missing", all_missing)):
        if not isinstance(share, arguments.REAL) or not 0 <= share <= 1:
            raise BadInputError(f"{name}={share!r} is a share of them: give a number from 0 to 1.")
    draw = _Draw(n_samples, tuple(drifts.tolist()), missing, monomorphic, all_missing, seed)
    height = block_rows(n_variants, n_samples, rows, multiple=_TILE)
    packed = _on_devices(draw, n_variants) if on_device else packed_array(draw, n_variants, n_samples, height)
    samples = np.char.add("sample ", np.arange(n_samples).astype(str))
    population = np.char.add("population ", (_population(n_samples, n_populations) + 1).astype(str))
    return Genotypes(packed, samples, sample_table={"population": population})


def _on_devices(draw: _Draw, n_variants: int) -> da.Array:
    width = packed_width(draw.n_samples)
    heights = row_blocks(n_variants, max(1, _DEVICE_BYTES // width // _TILE) * _TILE)
    return da.map_blocks(
        draw.on_device,
        chunks=(heights or (0,), (width,)),
        dtype=np.uint8,
        meta=np.empty((0, 0), np.uint8),
        name=fresh("genotypes"),
    )


def _check(n_variants: int, n_samples: int, n_populations: int, drifts: np.ndarray[Any, Any]) -> None:
    for name, number in (("n_variants", n_variants), ("n_samples", n_samples), ("n_populations", n_populations)):
        arguments.whole(name, number)
    if drifts.shape != (n_populations,):
        raise BadInputError(f"fst has {drifts.size} values for {n_populations} populations: give one, or one for each.")
    if not ((drifts > 0) & (drifts < 1)).all():
        raise BadInputError("fst lies between 0 and 1, both excluded; 0.1 is that between continents.")


def _population(n_samples: int, n_populations: int) -> np.ndarray[Any, Any]:
    return np.arange(n_samples) * n_populations // n_samples


@dataclass(frozen=True)
class _Draw:
    """Generator of packed rows, whole tiles at a time."""

    n_samples: int
    drifts: tuple[float, ...]
    missing: float
    monomorphic: float
    all_missing: float
    seed: int

    def __call__(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        packed = np.empty((stop - start, packed_width(self.n_samples)), np.uint8)
        for tile in range(start // _TILE, -(-stop // _TILE)):
            first = tile * _TILE
            low, high = max(start, first), min(stop, first + _TILE)
            packed[low - start : high - start] = pack(self._tile(tile)[low - first : high - first])
        return packed

    def on_device(self, block_info: Any = None) -> Any:
        """Return a block's packed rows, drawn by the calling worker's GPU from frequencies made on the host."""
        (start, stop), _ = block_info[None]["array-location"]
        xp, n_bytes = import_module("cupy"), packed_width(self.n_samples)
        tiles = range(start // _TILE, -(-stop // _TILE))
        first = tiles.start * _TILE
        levels = np.concatenate([self._levels(tile) for tile in tiles])[start - first : stop - first]
        population = _population(self.n_samples, len(self.drifts)).astype(np.int32)
        packed = xp.empty((stop - start, n_bytes), np.uint8)
        cuda.kernel("draw")(
            cuda.grid(n_bytes, stop - start),
            (cuda.THREADS,),
            (
                start,
                stop - start,
                self.n_samples,
                xp.asarray(np.ascontiguousarray(levels)),
                xp.asarray(population),
                len(self.drifts),
                int(self.seed % 2**32),
                packed,
                n_bytes,
            ),
        )
        return packed

    def _levels(self, tile: int) -> np.ndarray[Any, Any]:
        """Return thresholds by site and population for draws of no copy, at most one, and a known genotype."""
        _, frequency, unknown = self._frequencies(tile)
        chances = np.stack([(1 - frequency) ** 2, 1 - frequency**2, np.ones_like(frequency)], axis=2)
        return np.round(chances * ~unknown[:, :, None] * (1 - self.missing) * _DEVICE_LEVELS).astype(np.uint32)

    def _frequencies(self, tile: int) -> tuple[np.random.Generator, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the frequencies of a tile's sites in all populations, and the unknown sites; draws come after."""
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence([self.seed, tile])))
        ancestral = rng.uniform(*_FREQUENCIES, (_TILE, 1))
        odds = (1 - np.array(self.drifts)) / np.array(self.drifts)
        frequency = rng.beta(ancestral * odds, (1 - ancestral) * odds)
        fixed, unknown = rng.random((2, _TILE, 1)) < np.reshape([self.monomorphic, self.all_missing], (2, 1, 1))
        return rng, np.where(fixed, np.round(ancestral), frequency), unknown

    def _tile(self, tile: int) -> np.ndarray[Any, Any]:
        rng, frequency, unknown = self._frequencies(tile)
        # Compare one 16-bit draw for each genotype with the probabilities of at most one copy and of none.
        at_most_one = np.round((1 - frequency**2) * _LEVELS)
        none = np.round((1 - frequency) ** 2 * _LEVELS)
        drawn = rng.integers(0, _LEVELS, (_TILE, self.n_samples), dtype=np.uint16)
        counts = np.empty((_TILE, self.n_samples), np.uint8)
        ends = np.searchsorted(_population(self.n_samples, len(self.drifts)), np.arange(len(self.drifts) + 1))
        for k in range(len(self.drifts)):
            part = slice(ends[k], ends[k + 1])
            np.add(
                _reaches(drawn[:, part], none[:, k, None]),
                _reaches(drawn[:, part], at_most_one[:, k, None]),
                out=counts[:, part],
                dtype=np.uint8,
                casting="unsafe",
            )
        if self.missing:
            # Draw the positions of missing values: they are few.
            lost = rng.binomial(counts.size, self.missing)
            counts.ravel()[rng.choice(counts.size, lost, replace=False, shuffle=False)] = 3
        counts[unknown[:, 0]] = 3
        return counts


def _reaches(drawn: np.ndarray[Any, Any], level: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return whether a draw reaches a level. The highest level doesn't fit into 16 bits."""
    return (drawn >= np.minimum(level, _LEVELS - 1).astype(np.uint16)) & (level < _LEVELS)
