import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import type { IModel } from '../src/page/kernel';
import widget from '../src/page/notebook';

/** Tells of every element that it can be seen. */
class Seen {
  constructor(private _tell: (entries: object[]) => void) {}
  observe(target: Element): void {
    this._tell([{ target, isIntersecting: true }]);
  }
  disconnect(): void {}
}

type Message = Record<string, unknown>;

let sent: Message[];
let heard: (text: string) => void;
let removed: () => void;
let place: HTMLElement;

const options = { view: 'wide', theme: 'dark', kernel: 'kernel-1' };

/** anywidget's model, whose other end is the test. */
function model(given: object): IModel {
  const values: Record<string, unknown> = { view: 'page', options: given, styles: '' };
  return {
    get: name => values[name],
    send: text => void sent.push(JSON.parse(text) as Message),
    on: (_, callback) => (heard = callback),
    off: () => (heard = () => undefined)
  };
}

/** Show the widget, and return what is in its element. */
function mount(given: object): HTMLElement {
  const el = document.createElement('div');
  document.body.append(el);
  removed = widget.render({ model: model(given), el });
  return el.shadowRoot!.querySelector<HTMLElement>('.wb-Cell')!;
}

/** Have the kernel say something to this page. */
function say(message: Message): void {
  heard(JSON.stringify({ page: sent[0]['page'], ...message }));
}

/** Have the kernel make the view of this name. */
function show(name: string, html: string): void {
  say({ type: 'patches', watch: last('watch', 'view', name)['watch'], html });
}

function last(type: string, key = 'type', value: unknown = type): Message {
  return sent.filter(each => each['type'] === type && each[key] === value).at(-1)!;
}

function click(hook: string): void {
  place.querySelector<HTMLElement>(`[data-workbench="${hook}"]`)!.click();
}

async function settled(): Promise<void> {
  await vi.advanceTimersByTimeAsync(50);
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('IntersectionObserver', Seen);
  Element.prototype.scrollIntoView = () => undefined;
  sent = [];
  document.body.replaceChildren();
  place = mount(options);
});

afterEach(() => {
  removed();
  vi.useRealTimers();
});

test('the kernel is greeted until it answers, and then asked for the view', async () => {
  expect(sent).toMatchObject([{ type: 'hello' }]);
  await vi.advanceTimersByTimeAsync(9000);
  expect(sent.every(each => each['type'] === 'hello')).toBe(true);
  expect(sent.length).toBeGreaterThan(2);
  expect(place.textContent).toContain('The kernel has not answered yet');
  say({ type: 'ready' });
  expect(last('watch')).toMatchObject({ view: 'wide' });
  show('wide', '<p>Hardware</p>');
  expect(place.textContent).toBe('Hardware');
});

test('a page whose kernel has ended says so, and another kernel is nothing to it', () => {
  say({ type: 'ready' });
  show('wide', '<p>Hardware</p>');
  const gone = (kernel: string) => window.dispatchEvent(new CustomEvent('workbench-gone', { detail: kernel }));
  gone('kernel-2');
  expect(place.textContent).toBe('Hardware');
  gone('kernel-1');
  expect(place.firstElementChild!.textContent).toContain('The kernel of this cell has ended.');
  expect(place.querySelector<HTMLElement>('[data-live="wide"]')!.inert).toBe(true);
});

test('what is chosen and not confirmed is told of, again after the next click', async () => {
  say({ type: 'ready' });
  show('wide', '<button data-workbench="b" data-choose=\'{"profile": "gpu"}\'>GPU</button>');
  for (let tries = 0; tries < 2; tries++) {
    click('b');
    expect(place.textContent).toBe('GPU');
    await vi.advanceTimersByTimeAsync(9000);
    expect(place.textContent).toContain('The kernel has not answered yet');
  }
});

test('a kernel that knows no page any more is told again what is chosen and watched', async () => {
  say({ type: 'ready' });
  show('wide', '<button data-workbench="b" data-choose=\'{"profile": "gpu"}\'>GPU</button>');
  click('b');
  await settled();
  const before = sent.length;
  say({ type: 'again' });
  expect(sent.slice(before)).toMatchObject([{ type: 'hello' }]);
  say({ type: 'ready' });
  expect(sent.slice(before + 1)).toMatchObject([
    { type: 'choose', choices: { profile: 'gpu' } },
    { type: 'watch', view: 'wide' }
  ]);
});

test('a click asks the kernel, and what went wrong stands in its place', async () => {
  say({ type: 'ready' });
  show('wide', '<button data-workbench="b" data-action="run">Run</button><p data-notice="run"></p>');
  click('b');
  const { id, name } = last('action');
  expect(name).toBe('run');
  say({ type: 'answer', id, message: 'It is too large.' });
  await settled();
  expect(place.querySelector('[data-notice]')!.textContent).toBe('It is too large.');
});

test('code goes into a cell where Lab takes it, else to the clipboard', async () => {
  const taken: unknown[] = [];
  const copied: string[] = [];
  vi.stubGlobal('navigator', { clipboard: { writeText: (text: string) => Promise.resolve(void copied.push(text)) } });
  const take = (event: Event) => {
    taken.push((event as CustomEvent<unknown>).detail);
    event.preventDefault();
  };
  const command = 'data-command="dask-workbench:cell" data-args=\'{"text": "x", "type": "code"}\'';
  say({ type: 'ready' });
  show('wide', `<button data-workbench="b" ${command}>Insert</button>`);
  window.addEventListener('workbench-cell', take);
  click('b');
  window.removeEventListener('workbench-cell', take);
  click('b');
  await settled();
  expect(taken).toEqual([{ type: 'code', source: 'x', run: false }]);
  expect(copied).toEqual(['x']);
  expect(place.textContent).toContain('Copied: paste it into a cell.');
});

test('what is watched is shown below until it is closed', async () => {
  say({ type: 'ready' });
  show(
    'wide',
    `<button data-workbench="b" data-command="dask-workbench:watch" data-args='{"run": "r1"}'>Watch</button>`
  );
  click('b');
  show('watch:run:r1', `<div data-figure='{"run": "r1"}'></div>`);
  expect(last('watch')).toMatchObject({ run: 'r1', theme: 'dark' });
  expect(last('action')).toMatchObject({ name: 'figure', arguments: { run: 'r1', theme: 'dark' } });
  const { watch } = last('watch');
  expect(place.querySelector('[data-workbench="watched-r1"] strong')!.textContent).toBe('r1');
  click('close-figure');
  expect(last('unwatch')).toMatchObject({ watch });
  expect(place.querySelector('.wb-Watched')!.textContent).toBe('');
  await settled();
});

test('what the kernel says went wrong stands until the next click', () => {
  say({ type: 'ready' });
  say({ type: 'error', message: 'The scheduler does not answer.' });
  expect(place.querySelector('.wb-Said')!.textContent).toBe('The scheduler does not answer.');
  place.click();
  expect(place.querySelector('.wb-Said')!.textContent).toBe('');
});

test('a page that is taken away says so', () => {
  say({ type: 'ready' });
  removed();
  expect(sent.at(-1)).toMatchObject({ type: 'bye' });
});

test('an action that waits for a silent kernel is told of, until that speaks', async () => {
  say({ type: 'ready' });
  show('wide', '<button data-workbench="b" data-action="run">Run</button>');
  click('b');
  await vi.advanceTimersByTimeAsync(9000);
  expect(place.textContent).toContain('The kernel has not answered yet');
  say({ type: 'answer', id: last('action')['id'], value: {} });
  expect(place.textContent).not.toContain('The kernel has not answered yet');
});

test('the picture that a notebook keeps stands in for a kernel that does not answer', () => {
  removed();
  sent = [];
  document.body.innerHTML = '<div class="jp-OutputArea-child"><div id="wb-static-1">picture</div></div>';
  place = mount({ ...options, static: 'wb-static-1' });
  const picture = document.getElementById('wb-static-1')!;
  expect(place.hidden).toBe(true);
  expect(getComputedStyle(picture).display).not.toBe('none');
  say({ type: 'ready' });
  expect(place.hidden).toBe(false);
  expect(getComputedStyle(picture).display).toBe('none');
});
