import { duration, size } from './formats';
import type { IBokehDocument, IBokehRange, IBokehSource } from '../page/bokeh';

/** Every task of a record; see workbench/figures/detail.py. */
export interface IRecord {
  n: number;
  /** Bytes of each column. */
  widths: Record<Name, number>;
  /** The columns' bytes, compressed, as base64. */
  packed: string;
  /** When the first task starts, ms since the epoch; other times are µs since then. */
  start: number;
  /** Workers, from top to bottom. */
  lanes: string[];
  labels: string[];
  keys: string[] | null;
  /** Most rectangles that are drawn at once. */
  limit: number;
  colors: Record<string, { page: string; palette: string[] }>;
  /** The first category that isn't computing, and the one of what failed. */
  transfer: number;
  erred: number;
  columns?: IColumns;
}

type Name = 'delta' | 'length' | 'nbytes' | 'lane' | 'category' | 'label';

interface IColumns extends Record<Name, Uint32Array> {
  begin: Float64Array;
}

/** Its first and last moment, the task it is coloured and named after, how many it stands for, their time, its share. */
type Rectangle = [left: number, right: number, row: number, count: number, busy: number, fill: number];

/** Milliseconds after the last pan or zoom before the tasks in view are drawn. */
const SETTLE = 120;

/** Draw what of a record is in view of a document, at any zoom, without a server. */
export default async function detail(record: IRecord, document: IBokehDocument, theme: string): Promise<void> {
  const columns = (record.columns ??= await unpacked(record));
  const source = document.get_model_by_name('tasks') as IBokehSource;
  const time = document.get_model_by_name('time') as IBokehRange;
  const show = () => {
    const seen = time.end - time.start;
    const from = Math.max(0, 1000 * (time.start - record.start - seen / 4));
    const to = 1000 * (time.end - record.start + seen / 4);
    const pixels = Math.round(1.5 * window.innerWidth);
    const found = rectangles(record, columns, from, to, pixels);
    const data = drawn(record, columns, found, theme, (1000 * seen) / window.innerWidth);
    source.setv({ data }, { sync: false });
  };
  let settle = 0;
  const moved = () => {
    window.clearTimeout(settle);
    settle = window.setTimeout(show, SETTLE);
  };
  time.properties['start'].change.connect(moved);
  time.properties['end'].change.connect(moved);
}

export async function unpacked({ n, widths, packed }: IRecord): Promise<IColumns> {
  const bytes = Uint8Array.from(atob(packed), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer());
  const columns: Record<string, Uint32Array> = {};
  let at = 0;
  for (const [name, width] of Object.entries(widths)) {
    const column = (columns[name] = new Uint32Array(n));
    for (let byte = 0; byte < width; byte++, at += n) {
      for (let row = 0; row < n; row++) {
        column[row] |= raw[at + row] << (8 * byte);
      }
    }
  }
  let now = 0;
  const begin = Float64Array.from(columns['delta'], delta => (now += delta));
  return { ...columns, begin } as IColumns;
}

/** Rows of tasks, by their begins: 3 ms for a million. */
function inView({ begin, length }: IColumns, from: number, to: number): number[] {
  const rows: number[] = [];
  for (let row = 0; begin[row] <= to; row++) {
    if (begin[row] + length[row] >= from) {
      rows.push(row);
    }
  }
  return rows;
}

/**
 * Tasks wider than a pixel column as they are; of the others one rectangle for each lane and column, and one for each
 * category that isn't computing. As `workbench.figures.timeline` does it.
 */
export function rectangles(record: IRecord, columns: IColumns, from: number, to: number, pixels: number): Rectangle[] {
  const { lanes, limit, transfer, colors } = record;
  const { begin, length, lane, category } = columns;
  const rows = inView(columns, from, to);
  const one = (row: number): Rectangle => [begin[row], begin[row] + length[row], row, 1, length[row], 1];
  if (rows.length <= limit) {
    return rows.map(one);
  }
  const nColumns = Math.max(1, Math.min(pixels, Math.floor(limit / lanes.length / 1.5)));
  const width = (to - from) / nColumns;
  const nCategories = Object.values(colors)[0].palette.length;
  const nSlots = lanes.length * nColumns * nCategories;
  const busy = new Float32Array(nSlots);
  const count = new Uint32Array(nSlots);
  const which = new Uint32Array(nSlots);
  const found: Rectangle[] = [];
  for (const row of rows) {
    const first = Math.max(begin[row], from);
    const last = Math.min(begin[row] + length[row], to);
    if (last - first >= width) {
      found.push(one(row));
      continue;
    }
    const column = Math.min(nColumns - 1, Math.floor((first - from) / width));
    const slot = (lane[row] * nColumns + column) * nCategories + category[row];
    const edge = from + (column + 1) * width;
    busy[slot] += Math.min(last, edge) - first;
    count[slot]++;
    which[slot] = row;
    if (last > edge && column + 1 < nColumns) {
      busy[slot + nCategories] += last - edge;
      if (!count[slot + nCategories]) {
        which[slot + nCategories] = row;
      }
    }
  }
  for (let cell = 0; cell < lanes.length * nColumns; cell++) {
    const at = cell * nCategories;
    const left = from + (cell % nColumns) * width;
    let most = -1;
    let together = 0;
    let counted = 0;
    for (let slot = at; slot < at + nCategories; slot++) {
      const taken = busy[slot] + 1e-6 * count[slot];
      if (!taken) {
        continue;
      }
      if (slot - at < transfer) {
        together += busy[slot];
        counted += count[slot];
        most = most < 0 || taken > busy[most] + 1e-6 * count[most] ? slot : most;
      } else {
        const fill = Math.min(1, busy[slot] / width);
        found.push([left, left + width, which[slot], Math.max(2, count[slot]), busy[slot], fill]);
      }
    }
    if (most >= 0) {
      const fill = Math.min(1, together / width);
      found.push([left, left + width, which[most], Math.max(2, counted), together, fill]);
    }
  }
  return found;
}

/** Columns of the source of tasks, as `LiveFigure` makes them; `pixel` is µs. */
export function drawn(
  { start, lanes, labels, keys, colors, transfer, erred }: IRecord,
  { lane, category, label, nbytes, length }: IColumns,
  found: Rectangle[],
  theme: string,
  pixel: number
): Record<string, unknown[]> {
  const { page, palette } = colors[theme];
  // What failed is drawn last, over its neighbors, and what others computed first.
  const order = ([, , row]: Rectangle) => (category[row] === erred ? 1 : category[row] > erred ? -1 : 0);
  const rows = [...found]
    .sort((one, other) => order(one) - order(other))
    .map(([left, right, row, count, busy, fill]) => {
      const kind = category[row];
      const strip = kind >= transfer && kind < erred;
      const several = count > 1;
      return {
        left: start + left / 1000,
        right: start + (kind === erred ? Math.max(right, left + 3 * pixel) : right) / 1000,
        y: lane[row] + (strip ? 0.29 : 0),
        height: strip ? 0.3 : 0.88,
        color: palette[kind],
        line: several ? '#00000000' : right - left > 6 * pixel ? page : palette[kind],
        alpha: several ? 0.25 + 0.75 * fill : 1,
        kind: '',
        name: labels[label[row]],
        more: several ? ' and more' : '',
        worker: lanes[lane[row]],
        key: several ? 'zoom in to see each' : (keys?.[row] ?? ''),
        duration: several ? `${duration(Math.round(busy))} together` : duration(length[row]),
        nbytes: several ? '' : `result ${size(nbytes[row] * 1024)}`
      };
    });
  const names = ['left', 'right', 'y', 'height', 'color', 'line', 'alpha', 'kind', 'name', 'more', 'worker'] as const;
  const columns = [...names, 'key', 'duration', 'nbytes'] as (keyof (typeof rows)[number])[];
  return Object.fromEntries(columns.map(name => [name, rows.map(row => row[name])]));
}
