"""Pictures of answers on genotypes: quality, related pairs, and loadings along a genome."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import xarray as xr

from workbench import formats
from workbench.figures.answers import (
    MOST_DOTS,
    MOST_VECTORS,
    Dots,
    Line,
    Numbers,
    Picture,
    counter_of,
    labels_along,
    over,
    spread,
    vector,
)
from workbench.labels import as_text

_DIMENSIONS = {"variant", "sample", "pair", "removed"}
_BINS = 50
_POSITION = {"chromosome": "position", "contig": "position"}
"""Labels that together give a position on a genome."""


def draws(array: xr.DataArray) -> bool:
    """Return whether an array is drawn here: loadings of variants, or numbers of sites, samples and pairs."""
    counter = counter_of(array)
    if counter is None:
        return bool(_DIMENSIONS & set(array.dims))
    return len(array.dims) == 2 and ("variant" in array.dims or _contigs(array, counter) is not None)


def draw(arrays: xr.Dataset) -> Iterator[Picture]:
    """Draw the usual first plots of an analysis of genotypes."""
    for name, array in arrays.items():
        counter = counter_of(array)
        if counter is not None and draws(array):
            yield from _along_a_genome(name, array, counter)
    if {"frequency", "missing", "hwe_p", "sample_missing", "sample_heterozygosity"} <= arrays.keys():
        yield from _of_quality(arrays)
    if {"kinship", "ibs0"} <= arrays.keys():
        yield from _of_pairs(arrays["kinship"], arrays["ibs0"])


def _along(array: xr.DataArray, counter: str) -> str:
    (along,) = (dim for dim in array.dims if dim != counter)
    return along


def _contigs(array: xr.DataArray, counter: str) -> str | None:
    """Return the name of the labels with each row's contig, if contigs and positions are known."""
    labels = labels_along(array, _along(array, counter))
    return next((each for each in _POSITION if each in labels and _POSITION[each] in labels), None)


def _of_quality(arrays: xr.Dataset) -> Iterator[Picture]:
    """Draw samples by unknown and heterozygous shares, and histograms of the sites' frequency, p and unknown share."""
    missing, het = (vector(arrays[f"sample_{name}"]) for name in ("missing", "heterozygosity"))
    names, sampled = labels_along(arrays["sample_missing"], "sample").get("sample"), spread(len(missing))
    dots = Dots(
        100 * missing[sampled], het[sampled], tuple(map(str, np.asarray(names)[sampled])) if names is not None else ()
    )
    yield Picture("samples", formats.count(len(missing), "sample"), "Unknown, %", "Heterozygosity", dots)
    frequency, unknown = vector(arrays["frequency"]), vector(arrays["missing"])
    rarer = np.minimum(frequency, 1 - frequency)
    rarer = rarer[np.isfinite(rarer)]
    yield _histogram(
        "frequency",
        f"{formats.count(len(rarer), 'variant')} by frequency",
        "Frequency of the rarer allele",
        rarer,
        _BINS,
    )
    # Counts are whole numbers, so give each bin as many of them as the others.
    n_samples = max(1, len(missing))
    counts = np.rint(unknown * n_samples)
    low, high = float(counts.min(initial=n_samples)), float(counts.max(initial=0))
    step = max(1, (high - low) // _BINS)
    edges = np.arange(low, high + 2 * step, step) - 0.5
    shares = 100 * counts / n_samples, 100 * edges / n_samples
    yield _histogram("missing", f"{formats.count(len(unknown), 'variant')} by what is unknown", "Unknown, %", *shares)
    p = np.sort(np.maximum(vector(arrays["hwe_p"]), np.finfo(float).tiny))
    if n := int(np.isfinite(p).sum()):
        # All of the smallest p, and fewer of the larger ones.
        rank = np.unique(np.geomspace(1, n, min(n, MOST_DOTS // 10)).round()).astype(int)
        expected = -np.log10((rank - 0.5) / n)
        lines = Line(expected, -np.log10(p[rank - 1]), "variants"), Line(expected, expected, "in equilibrium")
        yield Picture("hwe", "Hardy–Weinberg equilibrium", "−log₁₀ p, expected", "−log₁₀ p", lines)


def _histogram(name: str, title: str, across: str, values: Numbers, bins: int | Numbers) -> Picture:
    counts, edges = np.histogram(values, bins)
    line = Line((edges[1:] + edges[:-1]) / 2, counts.astype("float64"))
    return Picture(name, title, across, "Variants", (line,))


def _of_pairs(kinship: xr.DataArray, ibs0: xr.DataArray) -> Iterator[Picture]:
    """Draw related pairs by kinship and by the share without a common allele, which separates kinds of relatives."""
    labels, sampled = labels_along(kinship, "pair"), spread(kinship.data.shape[0])
    if not len(sampled):
        return
    one, other, degree = (as_text(labels[name])[sampled].tolist() for name in ("sample_1", "sample_2", "degree"))
    names = tuple(f"{a}, {b}" for a, b in zip(one, other, strict=True))
    dots = Dots(vector(ibs0)[sampled], vector(kinship)[sampled], names, tuple(degree), "degree")
    yield Picture("pairs", formats.count(len(kinship.data), "related pair"), "No allele in common", "Kinship", dots)


def _along_a_genome(name: str, array: xr.DataArray, counter: str) -> Iterator[Picture]:
    """Draw the sizes of a vector's elements, contig after contig; if they are many, the largest of each stretch."""
    where, along = _contigs(array, counter), _along(array, counter)
    if where is None:
        yield over(name, array, counter, along)
        return
    labels = labels_along(array, along)
    contigs, positions = as_text(labels[where]), np.asarray(labels[_POSITION[where]], "float64")
    names, first = np.unique(contigs, return_index=True)
    order = names[np.argsort(first)]
    offset, start = np.empty(len(contigs)), 0.0
    for each in order:
        mine = contigs == each
        offset[mine] = start + positions[mine]
        start += float(positions[mine].max(initial=0.0))
    for number in range(min(MOST_VECTORS // 2, array.sizes[counter])):
        size = np.abs(vector(array, counter, number))
        tallest = _tallest(offset, size)
        dots = Dots(offset[tallest] / 1e6, size[tallest], (), tuple(contigs[tallest].tolist()), where)
        title = f"{name}: {counter} {number + 1} along the genome"
        yield Picture(f"{name}-{number + 1}", title, "Position, million bases", "Size of the loading", dots)


def _tallest(x: Numbers, y: Numbers) -> npt.NDArray[np.intp]:
    """Return the places of the largest values of all stretches, as many as a picture shows."""
    if len(x) <= MOST_DOTS:
        return np.arange(len(x))
    # Half of the dots are the tops of stretches, half are spread evenly, to show ordinary values as well.
    edges = np.linspace(0, len(x), MOST_DOTS // 2 + 1).astype(int)
    order = np.argsort(x, kind="stable")
    tops = [order[low:high][np.argmax(y[order[low:high]])] for low, high in pairwise(edges)]
    even = np.linspace(0, len(x) - 1, MOST_DOTS // 2).astype(int)
    return np.unique(np.concatenate([tops, even]))
