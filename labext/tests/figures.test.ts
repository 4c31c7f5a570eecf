import { afterEach, expect, test, vi } from 'vitest';

import clock from '../src/figures/clock';
import elapsed from '../src/figures/elapsed';
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
  const progress = model({ data: { name: ['add'] } as Record<string, unknown[]> });
  const played = record(COUNTS);
  const show = () => replayed({ slider, record: played, covers, heads, clock, progress });
  show();
  expect(covers[0]).toMatchObject({ left: 7000, visible: true });
  expect(heads[0]).toMatchObject({ location: 7000, visible: true });
  expect(clock).toMatchObject({ text: '6.0 of 10.0 s' });
  expect(progress.data).toEqual({ name: ['add'], done: [0.25], erred: [0.25], processing: [0.5], count: ['1 / 4'] });
  slider.value = 10;
  show();
  expect(covers[0]).toMatchObject({ visible: false });
  expect(progress.data).toEqual({ name: ['add'], ...COUNTS.final });
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
      record: record(COUNTS),
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
