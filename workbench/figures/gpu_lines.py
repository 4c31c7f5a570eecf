"""Activity of a cluster's GPUs over time, as columns to draw. No Bokeh here.

Use has a lane for each GPU, as tasks have one for each thread: eight overlapping lines would be indistinguishable.
The other quantities are lines in one plot each, in the color of their GPU.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from workbench.figures.colors import Theme, gpu_color, swatch
from workbench.figures.gpus import HELD_BACK, absences, numbered
from workbench.figures.patch import Patch, columns, room_for
from workbench.figures.samples import Segments, extremes, line
from workbench.hardware.gauges import GpuSample
from workbench.hardware.sampling import NOT_YET
from workbench.markup import fragment, tag
from workbench.monitor.events import Batch, NoGpus

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Quantity:
    """Content of one plot of GPUs: one or two fields of `GpuSample`, in the unit of the plot."""

    name: str
    title: str
    fields: Mapping[str, str]
    """Name of each field in the tooltip; the second field is drawn paler."""
    unit: str
    scale: float
    top: float
    """Smallest upper end of its axis."""
    limit: str | None = None
    """Field that is drawn as a dashed line."""

    @property
    def label(self) -> str:
        """Name on a button."""
        name = self.title.partition(",")[0].removeprefix("GPU ")
        return name[0].upper() + name[1:]


USE = Quantity("use", "GPU use, %", {"utilisation": "busy"}, "%", 1.0, 100.0)

QUANTITIES = (
    Quantity(
        "memory",
        "GPU memory, GiB",
        {"memory_used": "used", "memory_ours": "used by our workers"},
        "GiB",
        2.0**30,
        1e-3,
        "memory_total",
    ),
    Quantity("power", "Power, W", {"power": "drawn"}, "W", 1.0, 1.0, "power_limit"),
    Quantity("temperature", "Temperature, °C", {"temperature": ""}, "°C", 1.0, 60.0),
    Quantity("clock", "SM clock, MHz", {"clock": ""}, "MHz", 1.0, 1.0, "clock_max"),
    Quantity("pcie", "PCIe, GB/s", {"pcie_rx": "received", "pcie_tx": "sent"}, "GB/s", 1e9, 1e-3),
    Quantity("nvlink", "NVLink, GB/s", {"nvlink_rx": "received", "nvlink_tx": "sent"}, "GB/s", 1e9, 1e-3),
)
"""Quantities drawn as lines, from top to bottom."""

PLOTS = (USE, *QUANTITIES)

_LINE_COLUMNS = ("x0", "x1", "y0", "y1", "color", "alpha", "gpu", "text")
COLUMNS = {
    "gpu_use": ("left", "right", "bottom", "top", "color", "gpu", "text"),
    **{f"gpu_{each.name}": _LINE_COLUMNS for each in QUANTITIES},
    "gpu_lanes": ("label", "foot"),
    "gpu_axes": ("shown", "height"),
    "gpu_limits": tuple(each.name for each in QUANTITIES if each.limit),
}
"""Columns of each source; `gpu_axes` has a row for each plot: whether it has data, and its height in pixels."""

LINES_HEIGHT = 104
_ROOM = 34
"""Pixels of a plot in addition to its lanes: the title."""

DRAWN = ("gpu_use", *(f"gpu_{each.name}" for each in QUANTITIES))
"""Sources that grow."""

_MOST = 3_000
"""Largest number of segments of one plot that are sent at once."""

_GAP = 3.0
_FOOT, _HEIGHT = 0.44, 0.84
"""Start of a lane, and the height within it of a GPU that is always busy."""
_PALE = 0.45
_MOST_NAMED = 16

_FIELDS = tuple(field for quantity in PLOTS for field in quantity.fields)


class GpuLines:
    """Samples of all GPUs so far, including those that weren't sent to the screen yet."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._series: dict[str, GpuSeries] = {}
        self._nothing: tuple[NoGpus, ...] = ()
        self._sent: dict[str, int] = {}
        self._n_sent = 0

    def feed(self, batch: Batch) -> None:
        """Add a batch's samples of GPUs."""
        for sample in batch.gpus:
            self._series.setdefault(sample.uuid, GpuSeries()).add(sample)
        if batch.no_gpus is not None:
            self._nothing = batch.no_gpus

    def patches(self, window: tuple[float, float], pinned: tuple[float, float, int] | None) -> Iterator[Patch]:
        """Yield the changes since the last call; `window` is the visible range while following, in seconds."""
        new = {uuid: len(series) - self._sent.get(uuid, 0) for uuid, series in self._series.items()}
        if any(new.values()):
            if set(new) != set(self._sent) or self._n_sent + max(new.values()) * len(new) > _MOST:
                yield from self.replaced(window, pinned)
            else:
                self._n_sent += sum(new.values())
                parts = {uuid: [self._series[uuid].since(self._sent[uuid])] for uuid in new if new[uuid]}
                self._note_sent()
                for source, grown in self._columns(parts).items():
                    yield Patch(source, "stream", grown, 4 * _MOST)
        if not self._series and not any(each.expected for each in self._nothing):
            return
        yield from self._lanes()
        yield from self._axes()
        yield self._limits()
        words = self._words()
        yield Patch("gpu_words", "set", {"text": words})
        yield Patch("gpu_choice", "set", {"visible": bool(self._series)})
        yield Patch("gpus", "set", {"visible": words != ""})

    def replaced(self, window: tuple[float, float], pinned: tuple[float, float, int] | None) -> Iterator[Patch]:
        """Yield all lines again: in detail within the view, thinned elsewhere."""
        self._note_sent()
        self._n_sent = 0
        each = max(30, _MOST // (2 * max(1, len(self._series))))
        start = window[0]
        parts = {}
        for uuid, series in self._series.items():
            parts[uuid] = [series.thinned(-math.inf, start, each), series.thinned(start, math.inf, each)]
            if pinned is not None:
                parts[uuid].append(series.thinned(pinned[0], pinned[1], min(each, pinned[2])))
        for source, drawn in self._columns(parts).items():
            yield Patch(source, "replace", drawn)

    # -- columns

    def _note_sent(self) -> None:
        self._sent = {uuid: len(series) for uuid, series in self._series.items()}

    def _columns(self, parts: Mapping[str, Sequence[_Part]]) -> dict[str, dict[str, list[object]]]:
        rows: dict[str, list[tuple[object, ...]]] = {source: [] for source in DRAWN}
        for place, uuid in enumerate(self._order()):
            label, color = self.label(uuid), gpu_color(place, self._theme)
            for part in parts.get(uuid, ()):
                rows["gpu_use"].extend(self._bars(part, place, color, label))
                for quantity in QUANTITIES:
                    rows[f"gpu_{quantity.name}"].extend(_lines(part, quantity, color, label))
        return {source: columns(COLUMNS[source], found) for source, found in rows.items()}

    def _bars(self, part: _Part, lane: int, color: str, label: str) -> Iterator[tuple[object, ...]]:
        foot = lane + _FOOT
        for x0, _, x1, busy in part.lines["utilisation"]:
            top = round(foot - _HEIGHT * busy / 100, 4)
            yield _ms(x0), _ms(x1), foot, top, color, label, f"{busy:.0f} % busy"
        for x0, x1, why in part.held_back:
            text = f"held back: {why}"
            yield _ms(x0), _ms(x1), foot, round(foot - 0.12, 4), self._theme.limit, label, text

    def _lanes(self) -> Iterator[Patch]:
        order = self._order()
        lost = {uuid for uuid in order if self._series[uuid].is_lost}
        labels = [f"{self.label(uuid)} lost" if uuid in lost else self.label(uuid) for uuid in order]
        feet = [place + _FOOT for place in range(len(order))]
        yield Patch("gpu_lanes", "replace", {"label": labels, "foot": feet})
        yield Patch("gpu_use_ticks", "set", {"ticks": list(range(len(order)))})
        yield room_for(len(order), "gpu_use_range")

    def _axes(self) -> Iterator[Patch]:
        all_series = self._series.values()
        latest = [series.latest for series in all_series]
        model = _model([sample.name for sample in latest])
        shown = []
        for quantity in PLOTS:
            values = [series.most(field) for series in all_series for field in quantity.fields]
            known = [value for value in values if value is not None]
            limits = [getattr(sample, quantity.limit) or 0.0 for sample in latest] if quantity.limit else []
            top = round(1.1 * max([quantity.top, *(value / quantity.scale for value in (*known, *limits))]), 3)
            if quantity is not USE:
                yield Patch(f"gpu_{quantity.name}_range", "set", {"end": top})
            title = f"{quantity.title} · {model}" if model else quantity.title
            yield Patch(f"gpu_{quantity.name}_title", "set", {"text": title})
            first = next(iter(quantity.fields))
            # A pale line of zeros has no information, such as our workers' memory on chips with unified memory.
            shown.append(any(known) or any(series.most(first) is not None for series in all_series))
        heights = [lanes_height(len(self._series)), *[LINES_HEIGHT] * len(QUANTITIES)]
        yield Patch("gpu_axes", "replace", {"shown": shown, "height": heights})

    def _limits(self) -> Patch:
        latest = [series.latest for series in self._series.values()]
        limits = {}
        for quantity in QUANTITIES:
            if quantity.limit:
                distinct = {getattr(sample, quantity.limit) for sample in latest} - {None}
                limits[quantity.name] = sorted(round(value / quantity.scale, 3) for value in distinct)[-3:]
        # All columns of a source are equally long; values below the axis are invisible.
        length = max(map(len, limits.values()))
        padded = {name: [*values, *[-1.0] * length][:length] for name, values in limits.items()}
        return Patch("gpu_limits", "replace", padded)

    # -- words

    def _order(self) -> list[str]:
        return sorted(self._series, key=lambda uuid: (self._series[uuid].latest.host, self._series[uuid].place))

    def label(self, uuid: str) -> str:
        """Return the label of a GPU, or '' before its first sample."""
        if uuid not in self._series:
            return ""
        sample, latest = self._series[uuid].latest, [series.latest for series in self._series.values()]
        name, several = f"GPU {numbered(sample, latest)}", len({each.host for each in latest}) > 1
        return f"{sample.host[:9]} {name}" if several else name

    def _words(self) -> Markup:
        parts = [tag("div", self._names())] if self._series else []
        return fragment(*parts, *(tag("div", sentence) for sentence in self._reasons()))

    def _names(self) -> Markup:
        order = self._order()
        if len(order) > _MOST_NAMED:
            names = fragment(f"{len(order)} GPUs. Point at a line to see whose it is. ")
        else:
            colors = (gpu_color(place, self._theme) for place in range(len(order)))
            names = fragment(*map(swatch, colors, map(self.label, order)))
        all_series = self._series.values()
        ours = any(series.most("memory_ours") is not None for series in all_series)
        pale = "our workers' share of memory, and what is sent" if ours else "what is sent"
        held_back = any(series.ever_held_back for series in all_series)
        more = fragment(" · ", swatch(self._theme.limit, "clock held back")) if held_back else ""
        return fragment(names, f"dashed: limit · pale: {pale}", more)

    def _reasons(self) -> Iterator[str]:
        """Yield what is unavailable, and why, grouped by reason."""
        yield from (f"{each.host}: {each.reason}" for each in self._nothing if each.expected)
        lost = [uuid for uuid in self._order() if self._series[uuid].is_lost]
        alone = len(self._series) == 1
        for uuid in lost:
            reason = next(iter(self._series[uuid].latest.absent.values()), "it reports no values")
            yield f"{self.label(uuid)}: {reason}{'' if alone else '; the others go on'}."
        missing = {uuid: self._series[uuid].latest.reasons(_NAMES) for uuid in self._order() if uuid not in lost}
        yield from absences(
            {
                self.label(uuid): {name: reason for name, reason in reasons.items() if reason != NOT_YET}
                for uuid, reasons in missing.items()
            }
        )


_NAMES = {
    "utilisation": "use",
    "memory_used": "memory",
    "memory_ours": "memory of our workers",
    "power": "power",
    "energy": "energy",
    "temperature": "temperature",
    "clock": "clock",
    "throttle": "reasons for lower clocks",
    "pcie_rx": "PCIe throughput",
    "nvlink_rx": "NVLink throughput",
}
"""Names of values that may be missing; each other field is missing together with one of these."""


class GpuSeries:
    """Samples of one GPU, in columns; missing values are NaN."""

    def __init__(self) -> None:
        self.latest: GpuSample
        self.ever_held_back = False
        self._time = array("d")
        self._values = {field: array("d") for field in _FIELDS}
        self._most: dict[str, float] = {}
        self._held_back: list[str] = []

    def __len__(self) -> int:
        return len(self._time)

    @property
    def place(self) -> tuple[int, str]:
        """Order on its host."""
        return self.latest.index, self.latest.uuid

    @property
    def is_lost(self) -> bool:
        """True if the latest sample has no values."""
        return all(math.isnan(column[-1]) for column in self._values.values())

    def add(self, sample: GpuSample) -> None:
        """Add a sample, unless it is a repetition."""
        if len(self) and sample.time <= self._time[-1]:
            return
        self.latest = sample
        self._time.append(sample.time)
        for field, column in self._values.items():
            value = getattr(sample, field)
            column.append(math.nan if value is None else value)
            if value is not None:
                self._most[field] = max(value, self._most.get(field, value))
        reasons = [each for each in sample.throttle or () if each in HELD_BACK]
        self.ever_held_back |= bool(reasons)
        self._held_back.append(", ".join(reasons))

    def most(self, field: str) -> float | None:
        """Return the largest value so far, or None without any."""
        return self._most.get(field)

    def since(self, n_known: int) -> _Part:
        """Return the samples after the first `n_known`."""
        return self._part(max(0, n_known - 1), len(self), len(self))

    def thinned(self, start: float, end: float, most: int) -> _Part:
        """Return the samples from `start` to `end`, in about `most` segments for each line."""
        time = np.array(self._time)
        # One sample before, so that the line reaches the left edge.
        first = max(0, int(np.searchsorted(time, start)) - 1)
        return self._part(first, int(np.searchsorted(time, end)), most)

    def _part(self, first: int, last: int, most: int) -> _Part:
        time = np.array(self._time[first:last])
        lines = {}
        for field, column in self._values.items():
            values = np.array(column[first:last])
            known = ~np.isnan(values)
            thin = _means if field == "utilisation" else extremes
            times, thinned = thin(time[known], values[known], most)
            lines[field] = line(times, thinned, _GAP)
        return _Part(lines, list(self._stretches(first, last)))

    def _stretches(self, first: int, last: int) -> Iterator[tuple[float, float, str]]:
        """Yield the times in which the clock was held back, and why; adjacent ones with the same reason are merged."""
        start: int | None = None
        for place in range(first + 1, last + 1):
            why = self._held_back[place] if place < last else None
            if start is not None and why != self._held_back[start]:
                yield self._time[start - 1], self._time[place - 1], self._held_back[start]
                start = None
            if start is None and why:
                start = place


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of time of one GPU."""

    lines: dict[str, Segments]
    held_back: list[tuple[float, float, str]]


def lanes_height(n_gpus: int) -> int:
    """Return the height in pixels of a plot with the lanes of this many GPUs."""
    return round(n_gpus * min(60.0, max(10.0, 176.0 / max(n_gpus, 1)))) + _ROOM


def _lines(part: _Part, quantity: Quantity, color: str, label: str) -> Iterator[tuple[object, ...]]:
    for index, (field, words) in enumerate(quantity.fields.items()):
        alpha = _PALE if index else 1.0
        for x0, y0, x1, y1 in part.lines[field]:
            text = f"{y1 / quantity.scale:.4g} {quantity.unit} {words}".strip()
            yield _ms(x0), _ms(x1), _rounded(y0, quantity), _rounded(y1, quantity), color, alpha, label, text


def _model(names: Sequence[str]) -> str:
    """Return the common beginning of all GPUs' names, in whole words: 'NVIDIA H100 80GB HBM3'."""
    words = zip(*(name.split() for name in names), strict=False)
    return " ".join(each[0] for each in takewhile(lambda each: len(set(each)) == 1, words))


def _means(time: Floats, values: Floats, most: int) -> tuple[Floats, Floats]:
    """Return the means of `most` groups of neighbors, each at the time of its last."""
    if len(time) <= most:
        return time, values
    edges = np.linspace(0, len(time), most + 1).astype(int)
    return time[edges[1:] - 1], np.add.reduceat(values, edges[:-1]) / np.diff(edges)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


def _rounded(value: float, quantity: Quantity) -> float:
    return round(value / quantity.scale, 4)
