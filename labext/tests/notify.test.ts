import { expect, test, vi } from 'vitest';

vi.mock('@jupyterlab/apputils', () => ({ Notification: {} }));

import { duration, ended } from '../src/notify';

const run = { id: 'r', title: 'sum', workload: 'array_sum', cluster: 'otter', started: 100 };

test('the end of a run is told that took long and was seen to go on', () => {
  const done = { ...run, status: 'done' as const };
  expect(ended(new Map([['r', 100]]), [done], 131)).toEqual([[done, 'success']]);
  expect(ended(new Map([['r', 100]]), [done], 129)).toEqual([]);
  expect(ended(new Map(), [done], 500)).toEqual([]);
});

test('one that failed is an error, and one that a person cancelled is not told of', () => {
  const before = new Map([['r', 0]]);
  const failed = { ...run, status: 'failed' as const };
  expect(ended(before, [failed], 60)).toEqual([[failed, 'error']]);
  expect(ended(before, [{ ...run, status: 'cancelled' as const }], 60)).toEqual([]);
});

test('a run whose tab is in front and visible needs no notification', () => {
  const done = { ...run, status: 'done' as const };
  const news = () => ended(new Map([['r', 0]]), [done], 60).length;
  document.body.innerHTML = '<article data-workbench="result-r"></article>';
  const tab = document.body.firstElementChild!;
  tab.checkVisibility = () => true;
  expect(news()).toBe(0);
  const hidden = vi.spyOn(document, 'hidden', 'get').mockReturnValue(true);
  expect(news()).toBe(1);
  hidden.mockRestore();
  tab.checkVisibility = () => false;
  expect(news()).toBe(1);
});

test('durations are written as Python writes them', () => {
  expect([31, 59.9499, 235, 3660].map(duration)).toEqual(['31 s', '59.9 s', '3 min 55 s', '1 h 1 min']);
});
