"""Every task of a record within a page that has neither server nor kernel, thinned there to what a plot can show.

The columns are held as bytes, compressed: four to eight bytes for each task. What `Timeline.view` does in Python the
page does for the stretch of time in view: tasks wider than a pixel column as they are, the others one rectangle for
each lane, column and category.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.figures.colors import ERRED, N_CATEGORIES, TRANSFER, Theme, category_colors
from workbench.monitor.events import KINDS, Tasks

WITH_KEYS = 20_000
"""Tasks up to which a page holds their keys too: they take more room than all else."""

_WIDTHS = {"delta": 4, "length": 4, "nbytes": 4, "lane": 2, "category": 1, "label": 2}
_COMPUTE = KINDS.index("compute")

SCRIPT = """
async function workbenchDetail(document, theme) {
  const {n, widths, packed, start, lanes, labels, keys, limit, colors, transfer, erred} = workbenchRecord;
  if (!workbenchRecord.columns) {
    const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    const raw = new Uint8Array(await new Response(stream).arrayBuffer());
    const columns = workbenchRecord.columns = {};
    let at = 0;
    for (const [name, width] of Object.entries(widths)) {
      const column = columns[name] = new Uint32Array(n);
      for (let byte = 0; byte < width; byte++, at += n)
        for (let row = 0; row < n; row++) column[row] |= raw[at + row] << (8 * byte);
    }
    columns.begin = new Float64Array(n);
    for (let row = 0, now = 0; row < n; row++) columns.begin[row] = now += columns.delta[row];
    columns.latest = new Float64Array(Math.ceil(n / 4096));
    for (let row = 0; row < n; row++) {
      const block = row >> 12;
      columns.latest[block] = Math.max(columns.latest[block], columns.begin[row] + columns.length[row]);
    }
  }
  const {begin, length, lane, category, label, nbytes, latest} = workbenchRecord.columns;
  const {page, palette} = colors[theme];
  const source = document.get_model_by_name('tasks'), time = document.get_model_by_name('time');
  // As `workbench.formats` has them.
  const three = (value, unit) => `${+value.toPrecision(3)} ${unit}`;
  const two = (n, large, small) => `${Math.floor(n / 60)} ${large}` + (n % 60 ? ` ${n % 60} ${small}` : '');
  const seconds = us => us >= 3599.5e6 ? two(Math.round(us / 6e7), 'h', 'min') :
    us >= 59.95e6 ? two(Math.round(us / 1e6), 'min', 's') :
    us >= 999500 ? three(us / 1e6, 's') : us >= 1000 ? three(us / 1000, 'ms') : us ? three(us, 'µs') : '0 s';
  const size = (bytes, units = ['B', 'kiB', 'MiB', 'GiB', 'TiB', 'PiB']) =>
    bytes < 999.5 || units.length === 1 ? three(bytes, units[0]) : size(bytes / 1024, units.slice(1));

  function inView(from, to) {
    const rows = [];
    for (let block = 0; block < latest.length; block++) {
      if (latest[block] < from) continue;
      if (begin[block << 12] > to) break;
      const end = Math.min(n, (block + 1) << 12);
      for (let row = block << 12; row < end && begin[row] <= to; row++)
        if (begin[row] + length[row] >= from) rows.push(row);
    }
    return rows;
  }

  function rectangles(from, to, pixels) {
    const rows = inView(from, to);
    const one = row => [begin[row], begin[row] + length[row], row, 1, length[row], 1];
    if (rows.length <= limit) return rows.map(one);
    const n_columns = Math.max(1, Math.min(pixels, Math.floor(limit / lanes.length / 1.5)));
    const width = (to - from) / n_columns, n_categories = palette.length;
    const n_slots = lanes.length * n_columns * n_categories;
    const busy = new Float32Array(n_slots), count = new Uint32Array(n_slots), which = new Uint32Array(n_slots);
    const found = [];
    for (const row of rows) {
      const first = Math.max(begin[row], from), last = Math.min(begin[row] + length[row], to);
      if (last - first >= width) { found.push(one(row)); continue; }
      const column = Math.min(n_columns - 1, Math.floor((first - from) / width));
      const slot = (lane[row] * n_columns + column) * n_categories + category[row];
      const edge = from + (column + 1) * width;
      busy[slot] += Math.min(last, edge) - first;
      count[slot]++;
      which[slot] = row;
      if (last > edge && column + 1 < n_columns) {
        busy[slot + n_categories] += last - edge;
        if (!count[slot + n_categories]) which[slot + n_categories] = row;
      }
    }
    for (let cell = 0; cell < lanes.length * n_columns; cell++) {
      const at = cell * n_categories, left = from + cell % n_columns * width;
      let most = -1, together = 0, counted = 0;
      for (let each = 0; each < n_categories; each++) {
        const taken = busy[at + each] + 1e-6 * count[at + each];
        if (!taken) continue;
        if (each < transfer) {
          together += busy[at + each];
          counted += count[at + each];
          if (most < 0 || taken > busy[at + most] + 1e-6 * count[at + most]) most = each;
        } else {
          found.push([left, left + width, which[at + each], Math.max(2, count[at + each]), busy[at + each],
            Math.min(1, busy[at + each] / width)]);
        }
      }
      if (most < 0) continue;
      const fill = Math.min(1, together / width);
      found.push([left, left + width, which[at + most], Math.max(2, counted), together, fill]);
    }
    return found;
  }

  function show() {
    const seen = time.end - time.start, zero = start;
    const pixels = Math.round(1.5 * window.innerWidth);
    const from = Math.max(0, 1000 * (time.start - zero - seen / 4)), to = 1000 * (time.end - zero + seen / 4);
    const found = rectangles(from, to, pixels);
    const order = row => category[row] === erred ? 1 : category[row] > erred ? -1 : 0;
    found.sort((one, other) => order(one[2]) - order(other[2]));
    const pixel = 1000 * seen / window.innerWidth;
    const data = {left: [], right: [], y: [], height: [], color: [], line: [], alpha: [], kind: [], name: [], more: [],
      worker: [], key: [], duration: [], nbytes: []};
    for (const [left, right, row, count, busy, fill] of found) {
      const kind = category[row], strip = kind >= transfer && kind < erred, several = count > 1;
      data.left.push(zero + left / 1000);
      data.right.push(zero + (kind === erred ? Math.max(right, left + 3 * pixel) : right) / 1000);
      data.y.push(lane[row] + (strip ? 0.29 : 0));
      data.height.push(strip ? 0.3 : 0.88);
      data.color.push(palette[kind]);
      data.line.push(several ? '#00000000' : right - left > 6 * pixel ? page : palette[kind]);
      data.alpha.push(several ? 0.25 + 0.75 * fill : 1);
      data.kind.push('');
      data.name.push(labels[label[row]]);
      data.more.push(several ? ' and more' : '');
      data.worker.push(lanes[lane[row]]);
      data.key.push(several ? 'zoom in to see each' : keys ? keys[row] : '');
      data.duration.push(several ? `${seconds(Math.round(busy))} together` : seconds(length[row]));
      data.nbytes.push(several ? '' : `result ${size(nbytes[row] * 1024)}`);
    }
    source.setv({data}, {sync: false});
  }

  let settle = 0;
  const moved = () => { clearTimeout(settle); settle = setTimeout(show, 120); };
  time.properties.start.change.connect(moved);
  time.properties.end.change.connect(moved);
}
"""


def record_script(
    tasks: Tasks,
    lane: npt.NDArray[np.int64],
    category: npt.NDArray[np.int64],
    lanes: Sequence[str],
    themes: Sequence[Theme],
    limit: int,
) -> str:
    """JavaScript that holds a record as `workbenchRecord`, and `workbenchDetail`, which shows it in a document.

    Parameters
    ----------
    lane, category
        Of each task: the row of the plot it is drawn in, and the index of its colour.
    lanes
        Name of the worker of each row of the plot.
    limit
        Most rectangles that are drawn at once.
    """
    order = np.argsort(tasks.start, kind="stable")
    begin = np.rint(1e6 * (tasks.start[order] - tasks.start[order[0]]))
    labels, label = _labels(tasks)
    columns = {
        "delta": np.diff(begin, prepend=0.0),
        "length": np.rint(1e6 * (tasks.stop - tasks.start)[order]),
        # Sizes are read, not added up: whole KiB will do.
        "nbytes": np.rint(tasks.nbytes[order] / 1024),
        "lane": lane[order],
        "category": category[order],
        "label": label[order],
    }
    planes = b"".join(_planes(columns[name], width) for name, width in _WIDTHS.items())
    told = {
        "n": len(tasks),
        "widths": _WIDTHS,
        "packed": base64.b64encode(gzip.compress(planes, 6, mtime=0)).decode(),
        "start": 1000 * float(tasks.start[order[0]]),
        "lanes": list(lanes),
        "labels": labels,
        "keys": [str(tasks.key[index])[:120] for index in order.tolist()] if len(tasks) <= WITH_KEYS else None,
        "limit": limit,
        "colors": {
            theme.name: {"page": theme.background, "palette": category_colors(theme)[:N_CATEGORIES]} for theme in themes
        },
        "transfer": TRANSFER,
        "erred": ERRED,
    }
    return f"const workbenchRecord = {json.dumps(told)};{SCRIPT}"


def _planes(column: npt.NDArray[Any], width: int) -> bytes:
    """Lowest bytes of all rows, then the next ones: like beside like, which compresses to a fraction."""
    whole = np.clip(column, 0, 256.0**width - 1).astype("<u4")
    return whole.view(np.uint8).reshape(-1, 4)[:, :width].T.tobytes()


def _labels(tasks: Tasks) -> tuple[list[str], npt.NDArray[np.int64]]:
    parts = np.stack([tasks.name.codes.astype(np.int64), tasks.kind.astype(np.int64), tasks.erred.astype(np.int64)])
    found, label = np.unique(parts, axis=1, return_inverse=True)
    texts = [
        (tasks.name.values[name] if kind == _COMPUTE else f"{KINDS[kind]} for {tasks.name.values[name]}")
        + (" (failed)" if erred else "")
        for name, kind, erred in found.T.tolist()
    ]
    return texts, label.reshape(-1)
