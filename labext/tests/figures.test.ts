import { afterEach, expect, test, vi } from 'vitest';

import { drawn, rectangles, unpacked } from '../src/figures/detail';
import type { IRecord } from '../src/figures/detail';
import clock from '../src/figures/clock';
import elapsed from '../src/figures/elapsed';
import { duration, size } from '../src/figures/formats';
import gpus from '../src/figures/gpus';
import lane from '../src/figures/lane';
import play from '../src/figures/play';
import replayed from '../src/figures/replayed';
import seconds from '../src/figures/seconds';

afterEach(() => vi.unstubAllGlobals());

/** A Bokeh model that is given these properties. */
function model<T extends object>(values: T): T & { setv(values: object): void } {
  return Object.assign(values, {
    setv(changed: object) {
      Object.assign(values, changed);
    }
  });
}

test('a lane is labelled where it has a label', () => {
  const lanes = { data: { label: ['worker 0', ''] } };
  expect([0, 1, 2].map(tick => lane({ lanes, tick }))).toEqual(['worker 0', '', '']);
  expect(lane({ lanes: { data: {} }, tick: 0 })).toBe('');
});

test('a tooltip has the time of the day', () => {
  expect(clock({ value: new Date(2026, 10, 4, 9, 5, 7, 20).getTime() })).toBe('09:05:07.020');
});

test('a time axis counts from its origin in round steps', () => {
  const at = (origin: number) => ({ data: { origin: [origin] } });
  expect(elapsed({ tick: 1500, ticks: [0, 500], window: at(0) })).toBe('1.5 s');
  expect(elapsed({ tick: 5000, ticks: [0, 1000], window: at(1000) })).toBe('4 s');
  expect(elapsed({ tick: 90_000, ticks: [0, 90_000], window: at(0) })).toBe('1.5 min');
  expect(seconds({ cb_data: { start: 900, end: 13_000 }, window: at(1000) })).toEqual([1000, 6000, 11_000]);
  expect(seconds({ cb_data: { start: 0, end: 600_000 }, window: at(0) }).map(each => each / 60_000)).toEqual([
    0, 2, 4, 6, 8, 10
  ]);
  expect(seconds({ cb_data: { start: 0, end: 0 }, window: at(0) })).toEqual([]);
});

test('chosen plots of GPUs that have something to show are there, the last with a time axis', () => {
  const plots = [0, 1, 2].map(() => ({
    visible: false,
    height: 0,
    left: [{ visible: false }],
    below: [{ visible: false }]
  }));
  const axes = { data: { shown: [true, false, true], height: [50, 100, 100] } };
  gpus({ axes, plots, choice: { active: [0, 1, 2] }, time_axis: 20 });
  expect(plots.map(plot => [plot.visible, plot.left[0].visible, plot.below[0].visible, plot.height])).toEqual([
    [true, true, false, 50],
    [false, false, false, 100],
    [true, true, true, 120]
  ]);
  gpus({ axes, plots, choice: { active: [0] }, time_axis: 20 });
  expect(plots.map(plot => plot.height)).toEqual([70, 100, 100]);
});

function record(counts: object) {
  return { data: { start: [1000], end: [11_000], counts: [JSON.stringify(counts)] } };
}

const COUNTS = {
  names: [{ total: 4, started: [2, 4], done: [1, 3], erred: [0, 1] }],
  steps: 2,
  final: { done: [0.75], erred: [1], processing: [1], count: ['3 / 4, 1 failed'] }
};

test('what has come by a moment is shown, and all at the end', () => {
  const slider = model({ value: 6, end: 10, document: {} });
  const covers = [model({})];
  const heads = [model({})];
  const clock = model({});
  const progress = [model({ data: { name: ['add'] } as Record<string, unknown[]> })];
  const show = () => replayed({ slider, parts: [part], covers, heads, clock, progress });
  const part = record(COUNTS);
  show();
  expect(covers[0]).toMatchObject({ left: 7000, visible: true });
  expect(heads[0]).toMatchObject({ location: 7000, visible: true });
  expect(clock).toMatchObject({ text: '6.0 of 10.0 s' });
  expect(progress[0].data).toEqual({ name: ['add'], done: [0.25], erred: [0.25], processing: [0.5], count: ['1 / 4'] });
  slider.value = 10;
  show();
  expect(covers[0]).toMatchObject({ visible: false });
  expect(progress[0].data).toEqual({ name: ['add'], ...COUNTS.final });
});

test('playing moves the slider with the time, and a second click stops it', () => {
  const frames: ((now: number) => void)[] = [];
  vi.stubGlobal('requestAnimationFrame', (step: (now: number) => void) => frames.push(step));
  vi.stubGlobal('performance', { now: () => 0 });
  const slider = model({ value: 10, end: 10, document: {}, playing: null as object | null });
  const button = model({ label: 'Play' });
  const range = model({ start: 1000, end: 3000 });
  const click = () =>
    play({
      slider,
      parts: [record(COUNTS)],
      button,
      labels: ['Play', 'Pause'],
      speed: { active: 1 },
      speeds: [1, 10],
      time: range
    });
  click();
  expect([slider.value, button.label]).toEqual([0, 'Pause']);
  frames.shift()!(300);
  expect(slider.value).toBe(3);
  expect(range.start).toBe(3900);
  frames.shift()!(2000);
  expect([slider.value, button.label, frames.length]).toEqual([10, 'Play', 0]);
  click();
  click();
  expect(button.label).toBe('Play');
  frames.shift()!(100);
  expect(frames).toHaveLength(0);
});

/** Two workers: a task of 4 ms on each, then a hundred of 10 µs on the first, the last of which failed. */
async function tasks(limit: number): Promise<IRecord> {
  const n = 102;
  const columns = {
    delta: [0, 0, 4000, ...Array<number>(99).fill(20)],
    length: [4000, 4000, ...Array<number>(100).fill(10)],
    lane: [0, 1, ...Array<number>(100).fill(0)],
    category: [...Array<number>(101).fill(0), 2],
    label: Array<number>(n).fill(0)
  };
  const bytes = [columns.delta, columns.length].flatMap(column => [
    ...column.map(x => x & 255),
    ...column.map(x => x >> 8)
  ]);
  bytes.push(...columns.lane, ...columns.category, ...columns.label);
  const stream = new Blob([Uint8Array.from(bytes)]).stream().pipeThrough(new CompressionStream('gzip'));
  const packed = new Uint8Array(await new Response(stream).arrayBuffer());
  return {
    n,
    widths: { delta: 2, length: 2, lane: 1, category: 1, label: 1, nbytes: 0 },
    packed: btoa(String.fromCharCode(...packed)),
    start: 50,
    lanes: ['0', '1'],
    labels: ['add'],
    keys: null,
    limit,
    colors: { light: { page: '#fff', palette: ['#00f', '#888', '#f00'] } },
    transfer: 1,
    erred: 2
  };
}

test('a packed record gives its tasks back', async () => {
  const columns = await unpacked(await tasks(10));
  expect([...columns.begin.slice(0, 4)]).toEqual([0, 0, 4000, 4020]);
  expect([...columns.length.slice(0, 3)]).toEqual([4000, 4000, 10]);
  expect([...columns.lane.slice(0, 3)]).toEqual([0, 1, 0]);
});

test('few tasks are drawn one by one, many in rectangles that hold the time of all', async () => {
  const found = await tasks(30);
  const columns = await unpacked(found);
  expect(rectangles(found, columns, 0, 4015, 100).map(each => each[2])).toEqual([0, 1, 2]);
  const many = rectangles(found, columns, 0, 6000, 100);
  expect(many.length).toBeLessThan(30);
  const together = many.reduce((sum, [, , , , busy]) => sum + busy, 0);
  expect(together).toBeCloseTo(9000, 2);
});

test('what failed is drawn last and in words that a person reads', async () => {
  const found = await tasks(1000);
  const columns = await unpacked(found);
  const shown = drawn(found, columns, rectangles(found, columns, 0, 6000, 100), 'light', 100);
  expect(shown['color'].at(-1)).toBe('#f00');
  expect(shown['left'][0]).toBe(50);
  expect(shown['duration'].slice(0, 3)).toEqual(['4 ms', '4 ms', '10 µs']);
  expect(new Set(Object.values(shown).map(column => column.length))).toEqual(new Set([102]));
});

test('durations and sizes are written as Python writes them', () => {
  expect([0, 12, 1500, 59_949_999, 235e6, 3.6e9 + 6e7].map(duration)).toEqual([
    '0 s',
    '12 µs',
    '1.5 ms',
    '59.9 s',
    '3 min 55 s',
    '1 h 1 min'
  ]);
  expect([0, 999, 1024, 3 * 2 ** 30].map(each => size(each))).toEqual(['0 B', '999 B', '1 kiB', '3 GiB']);
});
