"""Counts over pairs of samples, by the bits of planes: 64 genotypes in two words.

A plane holds one bit of each genotype's code, or a bit derived from both. With the extra `fast`, numba compiles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from workbench.compiled import installed
from workbench.genotypes import kernels
from workbench.genotypes.packing import PER_BYTE

Matrix = np.ndarray[Any, Any]

_WORD = np.uint64
# Masks and shifts that transpose a matrix of 8 × 8 bits in three steps.
# Source: H. S. Warren, Hacker's Delight, 2nd edition, section 7-3.
_SWAPS = ((_WORD(7), _WORD(0x00AA00AA00AA00AA)), (_WORD(14), _WORD(0x0000CCCC0000CCCC)), (_WORD(28), _WORD(0xF0F0F0F0)))
_ROWS = 64
# Words that compiled loops process at a time; planes are padded to a multiple.
_SIDE_BY_SIDE = 16


def warm_up() -> None:
    """Compile now, or read what an earlier process has compiled, so that no task has to wait for it."""
    if installed():
        import_module("workbench.genotypes._bits")


def by_sample(packed: Matrix, n_samples: int) -> Matrix:
    """Return both bits of each genotype of a packed block, by sample: uint64 of (n_samples, 2, ⌈rows / 64⌉).

    Bits beyond the last row mean missing.
    """
    rows, width = packed.shape
    words = -(-rows // _ROWS)
    planes = np.empty((PER_BYTE * width, 2, 8 * words), np.uint8)
    step = _ROWS * max(1, kernels.TILE_BYTES // (2 * _ROWS * max(1, width)))
    for start in range(0, rows, step):
        tile = packed[start : start + step]
        eights = -(-len(tile) // _ROWS) * 8
        padded = np.full((8 * eights, width), 0xFF, np.uint8)
        padded[: len(tile)] = tile
        x = np.ascontiguousarray(padded.reshape(eights, 8, width).transpose(0, 2, 1)).view("<u8")[..., 0]
        for shift, mask in _SWAPS:
            moved = (x ^ x >> shift) & mask
            x ^= moved ^ moved << shift
        bits = x.view(np.uint8).reshape(eights, width, PER_BYTE, 2).transpose(1, 2, 3, 0)
        planes[:, :, start // 8 : start // 8 + eights] = bits.reshape(PER_BYTE * width, 2, eights)
    return planes[:n_samples].view("<u8")


def joined(planes: Sequence[Matrix]) -> Matrix:
    """Join the planes of the same samples in several blocks, filled up with missing genotypes."""
    words = sum(each.shape[2] for each in planes)
    whole = np.full((*planes[0].shape[:2], -(-words // _SIDE_BY_SIDE) * _SIDE_BY_SIDE), ~_WORD(0))
    np.concatenate(planes, axis=2, out=whole[:, :, :words])
    return whole


def pairs(one: Matrix, other: Matrix, same: bool) -> Matrix:
    """Count variants for all pairs of samples of two planes: (4, samples of `one`, samples of `other`).

    Where both are heterozygous, where they have no allele in common, where the first is heterozygous and the other
    known, and the other way round. For the `same` samples only the part above the diagonal counts.
    """
    counts = np.zeros((4, len(one), len(other)), np.int64)
    if installed():
        from workbench.genotypes import _bits

        _bits.pairs(np.ascontiguousarray(one), np.ascontiguousarray(other), same, counts)
        return counts
    low, high = other[:, 0], other[:, 1]
    het, unknown = low & ~high, low & high
    for i, (a, b) in enumerate(one):
        planes = (a & ~b & het, ~(a | low) & (b ^ high), a & ~b & ~unknown, het & ~(a & b))
        for which, bits in enumerate(planes):
            counts[which, i] = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return counts


def known_together(one: Matrix, other: Matrix) -> Matrix:
    """Return the number of variants in which both are known, sample by sample."""
    bits = ~(one[:, 0] & one[:, 1]) & ~(other[:, 0] & other[:, 1])
    return np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
