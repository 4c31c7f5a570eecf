"""Pictures of an answer's arrays, as values that pages and files are drawn from.

No Bokeh here. The names of the arrays' dimensions decide what is drawn: `component` or `mode` counts the vectors of a
decomposition; the other dimensions are samples, time or a map. Other arrays become a line or a map. Extensions add the
pictures of their scientific field.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from workbench import formats
from workbench.labels import as_text, grouped
from workbench.runs.singular_values import bounds_of
from workbench.workloads.extensions import extensions

MOST_DOTS = 10_000
"""Largest number of dots in a picture. Of more, a subset spread evenly is drawn: the rest would overlap."""
_MOST_UNORDERED = 300
"""Largest number of values in a line over rows or columns without labels."""
MOST_VECTORS = 6
_MOST_LABELS = 40
_MOST_CELLS = 400
"""Largest number of rows and columns of a map, about one per pixel."""
_COUNTERS = ("component", "mode")

_UP, _ACROSS = "row", "column"
"""Directions of the images in the rows or columns of a matrix."""

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Line:
    """Numbers one after another, each with a lower and an upper bound if known."""

    x: Numbers
    y: Numbers
    name: str = ""
    low: Numbers | None = None
    high: Numbers | None = None


@dataclass(frozen=True)
class Dots:
    """Points, with the group and the name of each."""

    x: Numbers
    y: Numbers
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    label: str = ""
    """Title of the labels, such as population or chromosome."""


@dataclass(frozen=True)
class Map:
    """Values over two directions; missing ones are NaN."""

    x: Numbers
    y: Numbers
    values: Numbers
    from_top: bool = False
    """True if the first row is at the top, as in an image; otherwise `y` grows upward."""

    @property
    def range(self) -> tuple[float, float]:
        """Least and largest value of the color scale, symmetric about zero if there are values on both sides."""
        known = self.values[np.isfinite(self.values)]
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
        if low < 0 < high:
            low, high = -max(-low, high), max(-low, high)
        return low, high if high > low else low + 1


@dataclass(frozen=True)
class Picture:
    """One plot: its title, its axes and its content."""

    name: str
    title: str
    across: str
    up: str
    drawn: tuple[Line, ...] | Dots | Map


def top_of(lines: Sequence[Line]) -> float:
    """Return the upper end of an axis that begins at zero and has room for all values and their bounds."""
    return 1.05 * max(float(np.max(each.y if each.high is None else each.high)) for each in lines) or 1.0


@np.errstate(over="ignore", invalid="ignore")  # a record may hold any numbers
def pictures(arrays: xr.Dataset, result: Mapping[str, Any]) -> tuple[Picture, ...]:
    """Return all pictures of an answer, the most informative first. Only the drawn part of large arrays is read."""
    found = [*_falling(result, arrays)]
    fields = [each.pictures for each in extensions() if each.pictures is not None]
    for name, array in arrays.items():
        if any(each.draws(array) for each in fields):
            continue
        counter = counter_of(array)
        if counter is not None:
            found += _of_vectors(name, array, counter, result)
        else:
            found += _plain(name, array)
    for each in fields:
        found += each.draw(arrays)
    if not arrays and result.get("scatter"):
        found += _scattered(result)
    return tuple(found)


def _falling(result: Mapping[str, Any], arrays: xr.Dataset) -> Iterator[Picture]:
    """Yield the falling singular values, or shares of the variance if known, and the error that remains after each."""
    shares = _shares(result)
    values = 100 * shares if shares is not None else np.asarray(result.get("singular_values") or (), "float64")
    if not len(values):
        return
    certificate = result.get("certificate") or {}
    bounds = bounds_of(certificate)[0] if certificate.get("bound") else [0.0] * len(values)
    # A share is a square, and may be off by twice as much. A value indistinguishable from zero is a dot on the axis.
    off = (2 if shares is not None else 1) * np.array([bound or 0.0 for bound in bounds[: len(values)]]) * values
    up = "Share of the variance, %" if shares is not None else "Singular value"
    number = np.arange(1.0, len(values) + 1)
    yield Picture("scree", "Scree plot", "Component", up, (Line(number, values, "", values - off, values + off),))
    squares = _squares(result, arrays) if shares is None else shares
    if squares is not None and squares.sum() <= 1 + 1e-6:
        # Eckart and Young: the error of the first k components in the Frobenius norm.
        error = 100 * np.sqrt(np.clip(1 - np.cumsum(squares), 0, None))
        yield Picture(
            "error", "What so many components leave out", "Components", "Error, % of the array", (Line(number, error),)
        )


def _shares(result: Mapping[str, Any]) -> Numbers | None:
    ratios = result.get("explained_variance_ratio") or result.get("variance_fraction")
    return None if not ratios else np.asarray(ratios, "float64")


def _squares(result: Mapping[str, Any], arrays: xr.Dataset) -> Numbers | None:
    """Return each squared singular value as a share of the array's squared norm, or None if that is unknown."""
    shares = (result.get("certificate") or {}).get("shares")
    if shares and None not in shares:
        return np.asarray(shares, "float64")
    values = np.asarray(result["singular_values"], "float64")
    n_rows, n_columns = (arrays[name].data.shape if name in arrays else () for name in "uv")
    if not shares and n_rows and n_columns and len(values) == min(n_rows[0], n_columns[-1]) and values.any():
        return values**2 / (values**2).sum()
    return None


def _of_vectors(name: str, array: xr.DataArray, counter: str, result: Mapping[str, Any]) -> Iterator[Picture]:
    others = tuple(dim for dim in array.dims if dim != counter)
    if "grid_rows" in array.attrs:
        yield from _maps(name, _on_grid(array, counter), counter, (_UP, _ACROSS))
    elif len(others) == 2:
        yield from _maps(name, array, counter, others)
    elif len(others) == 1:
        along = others[0]
        if _is_ordered(array, along):
            yield over(name, array, counter, along)
        elif array.sizes[counter] > 1 and along not in ("row", "column"):
            yield from _pairs(name, array, counter, along, result)
        else:
            yield over(name, array, counter, along)


def _plain(name: str, array: xr.DataArray) -> Iterator[Picture]:
    """Yield an array of numbers as a line or a map; skip arrays with other dimensions."""
    dims, shape = array.dims, array.data.shape
    if array.data.dtype.kind not in "biuf" or min(shape, default=0) < 2:
        return
    if len(dims) == 1:
        yield over(name, array, "", dims[0])
    elif len(dims) == 2:
        yield Picture(name, name, dims[1], dims[0], _map(array, (dims[0], dims[1])))


def spread(n: int) -> npt.NDArray[np.intp]:
    """Return the positions that a picture shows, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(MOST_DOTS, n)).round().astype(int))


def _on_grid(array: xr.DataArray, counter: str) -> xr.DataArray:
    """Return the vectors along the rows, or columns, of a matrix as images of the file's grid."""
    up, across = int(array.attrs["grid_rows"]), int(array.attrs["grid_columns"])
    data = array.data if array.dims[0] == counter else array.data.T
    return xr.DataArray(data[:MOST_VECTORS].reshape(-1, up, across), dims=(counter, _UP, _ACROSS))


def vector(array: xr.DataArray, counter: str = "", number: int = 0, step: int = 1) -> Numbers:
    """Return one vector of the array, or all of it, with every `step`-th value along each direction."""
    place = tuple(number if dim == counter else slice(None, None, step) for dim in array.dims)
    return np.asarray(array.data[place], "float64")


def counter_of(array: xr.DataArray) -> str | None:
    """Return the dimension that numbers the vectors of a decomposition, or None for other arrays."""
    return next((dim for dim in array.dims if dim in _COUNTERS), None)


def labels_along(array: xr.DataArray, dim: str) -> dict[str, Any]:
    """Return the coordinates along a dimension, by name."""
    return {str(name): each.values for name, each in array.coords.items() if each.dims == (dim,)}


def _is_ordered(array: xr.DataArray, dim: str) -> bool:
    """Return whether the values along a dimension are ordered, as times or numbers are, so that a line fits."""
    values = labels_along(array, dim).get(dim)
    return dim in ("t", "time") if values is None else np.asarray(values).dtype.kind in "MmifO"


def _pairs(name: str, array: xr.DataArray, counter: str, along: str, result: Mapping[str, Any]) -> Iterator[Picture]:
    """Yield plots of components against each other, two by two, colored by label."""
    n_along, n_vectors = array.sizes[along], min(MOST_VECTORS, array.sizes[counter])
    positions = spread(n_along)
    coords = labels_along(array, along)
    names = tuple(str(each) for each in np.asarray(coords[along])[positions]) if along in coords else ()
    label, labels = _groups({key: value for key, value in coords.items() if key != along}, positions, n_along)
    total = formats.count(n_along, along)
    of = total if len(positions) == n_along else f"{formats.count(len(positions))} of {total}, spread evenly"
    shares = _shares(result)
    axes = [
        f"{counter.capitalize()} {i + 1}"
        + (f" ({100 * shares[i]:.2g} % of the variance)" if shares is not None and i < len(shares) else "")
        for i in range(n_vectors)
    ]
    vectors = [vector(array, counter, i)[positions] for i in range(n_vectors)]
    for first in range(0, n_vectors - 1, 2):
        dots = Dots(vectors[first], vectors[first + 1], names, labels, label)
        yield Picture(f"{name}-{first + 1}-{first + 2}", f"{name}: {of}", axes[first], axes[first + 1], dots)


def _scattered(result: Mapping[str, Any]) -> Iterator[Picture]:
    """Yield plots of the samples' components from a run's record, used if its arrays weren't saved."""
    scatter = result["scatter"]
    scores = np.asarray(scatter["scores"], "float64").T
    coords = {"sample": scatter["samples"]} | (
        {scatter["label"]: ("sample", scatter["labels"])} if scatter["labels"] else {}
    )
    array = xr.DataArray(scores, coords, ("sample", "component"))
    yield from _pairs("scores", array, "component", "sample", result)


def _groups(labels: Mapping[str, Any], positions: npt.NDArray[Any], n_along: int) -> tuple[str, tuple[str, ...]]:
    """Return the label that separates groups, preferably a population; the smallest groups become "other"."""
    for name in sorted(labels, key=lambda each: "pop" not in each.lower()):
        values = as_text(labels[name])
        if 1 < len(np.unique(values)) < max(2, min(n_along, 200)):
            return name, tuple(grouped(values, _MOST_LABELS)[positions].tolist())
    return "", ()


def over(name: str, array: xr.DataArray, counter: str, along: str) -> Picture:
    """Return the first vectors as lines over a dimension; without a counter, the only vector."""
    n_along = array.sizes[along]
    labels = labels_along(array, along)
    # Unordered neighbors aren't more alike than other values, and a line through all of them is a solid area.
    most = MOST_DOTS if _is_ordered(array, along) or labels or not counter else _MOST_UNORDERED
    step = max(1, -(-n_along // most))
    positions = labels.get(along)
    if positions is None and {"left", "right"} <= labels.keys():
        positions = (np.asarray(labels["left"]) + np.asarray(labels["right"])) / 2
    x = np.arange(0, n_along, step) if positions is None else np.asarray(positions)[::step]
    x = x if x.dtype.kind in "Mif" else np.arange(0, n_along, step)
    count = array.sizes[counter] if counter else 1
    lines = tuple(
        Line(x, vector(array, counter, number, step), f"{counter} {number + 1}" if counter else "")
        for number in range(min(3, count))
    )
    title = name if count == len(lines) else f"{name}: the first {len(lines)} of {count}"
    if step > 1:
        title += f", {formats.count(len(x))} of {formats.count(n_along)} {along}s, spread evenly"
    return Picture(name, title, along, "", lines)


def _maps(name: str, array: xr.DataArray, counter: str, others: tuple[str, ...]) -> Iterator[Picture]:
    up, across = others
    for number in range(min(MOST_VECTORS, array.sizes[counter])):
        drawn = _map(array, (up, across), counter, number)
        yield Picture(f"{name}-{number + 1}", f"{name}: {counter} {number + 1}", across, up, drawn)


def _map(array: xr.DataArray, others: tuple[str, str], counter: str = "", number: int = 0) -> Map:
    up, across = others
    step = max(1, math.ceil(max(array.sizes[up], array.sizes[across]) / _MOST_CELLS))
    sides: dict[str, Numbers] = {}
    for dim in (across, up):
        values = labels_along(array, dim).get(dim)
        numbers = values is not None and np.asarray(values).dtype.kind in "if"
        sides[dim] = np.asarray(values if numbers else np.arange(array.sizes[dim]), "float64")[::step]
    from_top = up not in labels_along(array, up)
    return Map(sides[across], sides[up], vector(array, counter, number, step), from_top)
