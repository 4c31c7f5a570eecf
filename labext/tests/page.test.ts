import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { Page } from '../src/page/page';
import { Link } from '../src/page/link';
import type { IChannel } from '../src/page/page';

/** Tells of every element that it can be seen. */
class Seen {
  constructor(private _tell: (entries: object[]) => void) {}
  observe(target: Element): void {
    this._tell([{ target, isIntersecting: true }]);
  }
  disconnect(): void {}
}

let sent: Record<string, unknown>[];
let asked: unknown[][];
let refusal: string | null;
let page: Page;
let link: Link;
let channel: IChannel;

/** A connection that is open, whose other end is the test. */
function makeLink(): Link {
  const made = new Link(message => void sent.push(message as Record<string, unknown>));
  made.open();
  sent = [];
  return Object.assign(made, {
    act: (...action: unknown[]) => {
      asked.push(action);
      return refusal ? Promise.reject(new Error(refusal)) : Promise.resolve({ id: 'run-1' });
    },
    read: () => Promise.reject(new Error('There is no figure.'))
  });
}

/** Have Python answer the view of this name. */
function show(name: string, html: string): void {
  const { watch } = sent.find(each => each['view'] === name)!;
  page.receive({ type: 'patches', watch: watch as string, html });
}

function find<T extends HTMLElement = HTMLElement>(selector: string): T {
  return page.node.querySelector<T>(selector)!;
}

async function settled(): Promise<void> {
  await vi.advanceTimersByTimeAsync(50);
}

function typeInto(selector: string, text: string): void {
  const input = find<HTMLInputElement>(selector);
  input.value = text;
  input.dispatchEvent(new Event('input', { bubbles: true }));
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('IntersectionObserver', Seen);
  document.body.innerHTML = '<main data-live="sidebar"></main>';
  sent = [];
  asked = [];
  refusal = null;
  link = makeLink();
  channel = {
    link,
    script: () => Promise.resolve(''),
    report: problem => asked.push(['report', problem]),
    command: (name, args) => asked.push([name, args]),
    open: path => void asked.push(['open', path]),
    copy: text => asked.push(['copy', text])
  };
  page = new Page(document.querySelector('main')!, channel);
});

afterEach(() => {
  page.dispose();
  vi.useRealTimers();
});

test('views within a view are watched while they are there', () => {
  expect(sent).toMatchObject([{ type: 'watch', view: 'sidebar' }]);
  show('sidebar', '<div data-live="runs"></div>');
  expect(sent[1]).toMatchObject({ type: 'watch', view: 'runs' });
  show('sidebar', '<div data-live="clusters"></div>');
  expect(sent.slice(2)).toMatchObject([
    { type: 'unwatch', watch: sent[1]['watch'] },
    { type: 'watch', view: 'clusters' }
  ]);
});

test('what is typed goes to Python together, and an emptied field is chosen no more', async () => {
  show('sidebar', '<input name="plan.n" value="2"><input name="name">');
  typeInto('[name="plan.n"]', '3');
  typeInto('[name=name]', 'otter');
  await settled();
  expect(sent.at(-1)).toEqual({ type: 'choose', choices: { 'plan.n': '3', name: 'otter' } });
  typeInto('[name="plan.n"]', '');
  await settled();
  expect(sent.at(-1)).toEqual({ type: 'choose', choices: { 'plan.n': null } });
  expect(link.choices).toEqual({ name: 'otter' });
});

test('Python hears of a key at once', async () => {
  show('sidebar', '<input name="name">');
  typeInto('[name=name]', 'otter');
  await vi.advanceTimersByTimeAsync(1);
  expect(sent.at(-1)).toEqual({ type: 'choose', choices: { name: 'otter' } });
});

test('what is in something folded is unfolded with it', () => {
  show('sidebar', '<ul id="a" hidden><li><div id="b" hidden></div></li></ul><button data-reveal="b">Show</button>');
  Element.prototype.scrollIntoView = () => undefined;
  find('button').click();
  vi.runOnlyPendingTimers();
  expect(find('#a').hidden || find('#b').hidden).toBe(false);
});

test('a field shows what was chosen, else what Python says, and is left alone while somebody types', () => {
  show('sidebar', '<input name="a" value="2"><input name="b" value="2">');
  page.choose({ a: '5' });
  find('[name=b]').focus();
  find<HTMLInputElement>('[name=b]').value = '7.';
  show('sidebar', '<input name="a" value="4"><input name="b" value="4">');
  expect(find<HTMLInputElement>('[name=a]').value).toBe('5');
  expect(find<HTMLInputElement>('[name=b]').value).toBe('7.');
});

test('a field is typed in as before though it is moved, or made anew, by what comes and goes around it', () => {
  const lines = () => find<HTMLInputElement>('[name=lines]');
  show('sidebar', '<p>Tick two.</p><div id="more"><input name="lines"></div>');
  lines().focus();
  typeInto('[name=lines]', 'cpu');
  for (const around of ['<b></b>', '<i></i><b></b>', '']) {
    show('sidebar', `${around}<div id="more"><input name="lines"></div>`);
    expect([document.activeElement, lines().value]).toEqual([lines(), 'cpu']);
  }
  show('sidebar', '<input name="other"><section><input name="lines"></section>');
  expect([document.activeElement, lines().value]).toEqual([lines(), 'cpu']);
});

test('an action gets what its button says and what was chosen at this moment', async () => {
  const take = '{"choices": "plan.cpu.", "name": "name"}';
  show(
    'sidebar',
    `<input name="plan.cpu.n" value="2"><button data-action="start" data-arguments='{"profile": "cpu"}'
      data-take='${take}' data-then='{"name": null}'>Start</button>`
  );
  page.choose({ name: 'otter' });
  typeInto('[name="plan.cpu.n"]', '4');
  find('button').click();
  expect(asked).toEqual([['start', { profile: 'cpu', choices: { n: '4' }, name: 'otter' }]]);
  expect(find('button').getAttribute('aria-busy')).toBe('true');
  await settled();
  expect(find('button').getAttribute('aria-busy')).toBe('false');
  expect(link.choices).toEqual({ 'plan.cpu.n': '4' });
});

test('what went wrong stands beside the button until something is chosen', async () => {
  refusal = 'There is no memory left.';
  show('sidebar', '<button data-action="run">Run</button><p data-notice="run"></p><input name="size">');
  find('button').click();
  await settled();
  expect(find('p').textContent).toBe('There is no memory left.');
  typeInto('[name=size]', '1GiB');
  expect(find('p').textContent).toBe('');
});

test('what goes on is said beside its button, and no longer when it has ended', async () => {
  show('sidebar', '<button data-action="x" data-meanwhile="Measuring …">M</button><p data-notice="x"></p>');
  find('button').click();
  expect(find('p').textContent).toBe('Measuring …');
  await settled();
  expect(find('p').textContent).toBe('');
});

test('a click unfolds what it leads to', () => {
  show('sidebar', '<button data-reveal="x">To it</button><div id="x" hidden>inside</div>');
  find('button').click();
  expect(find('#x').hidden).toBe(false);
});

test('what is on another page is shown there', () => {
  show('sidebar', '<button data-reveal="wb-fold-more wb-section-runs">Show</button>');
  find('button').click();
  expect(asked).toEqual([['dask-workbench:section', { section: 'runs', reveal: 'wb-fold-more wb-section-runs' }]]);
});

test('what can not be undone is asked first, and a click elsewhere takes that back', () => {
  show('sidebar', '<button data-action="delete_run" data-confirm="Delete?">D</button>');
  const button = find('button');
  button.click();
  expect([asked.length, button.dataset['asking']]).toEqual([0, '']);
  button.dispatchEvent(new FocusEvent('focusout', { bubbles: true }));
  expect(button.dataset['asking']).toBeUndefined();
  button.click();
  button.click();
  expect(asked).toEqual([['delete_run', {}]]);
});

test('several boxes of one name are one choice', async () => {
  show(
    'sidebar',
    '<input type="checkbox" name="t" value="a" data-list><input type="checkbox" name="t" value="b" data-list>'
  );
  const [a, b] = page.node.querySelectorAll('input');
  a.click();
  b.click();
  await settled();
  expect(link.choices['t']).toBe('a,b');
  a.click();
  b.click();
  expect(link.choices).toEqual({});
});

test('a box that stands for several is ticked when all of them are', () => {
  show('sidebar', ['a,b', 'a', 'b', 'c'].map(v => `<input type="checkbox" name="t" value="${v}" data-list>`).join(''));
  const [both, a, b, c] = page.node.querySelectorAll('input');
  c.click();
  both.click();
  expect([link.choices['t'], a.checked, b.checked]).toEqual(['a,b,c', true, true]);
  b.click();
  expect([link.choices['t'], both.checked]).toEqual(['a,c', false]);
});

test('what is folded stays so when the view is made anew', () => {
  const html = '<button data-fold="x" aria-expanded="true">X</button><div id="x">inside</div>';
  show('sidebar', html);
  find('button').click();
  show('sidebar', html.replace('inside', 'more inside'));
  expect([find('#x').hidden, find('button').getAttribute('aria-expanded')]).toEqual([true, 'false']);
});

const radios = (chosen: string, values = ['a', 'b']) =>
  `<form><div role="radiogroup">${values
    .map(v => `<label><input type="radio" name="p" value="${v}" ${v === chosen ? 'checked' : ''}>${v}</label>`)
    .join('')}</div></form>`;

test('of radio buttons the one is chosen that Python says, whichever was clicked', () => {
  show('sidebar', radios('a'));
  find('[value=b]').click();
  expect(link.choices).toEqual({ p: 'b' });
  show('sidebar', radios('b'));
  expect(find<HTMLInputElement>(':checked').value).toBe('b');
  find('[value=a]').click();
  // There is another list meanwhile, whose first is checked as before.
  show('sidebar', radios('b', ['b', 'c']));
  expect(find<HTMLInputElement>(':checked').value).toBe('b');
});

test('pages beside one another share what is chosen', () => {
  const other = document.body.appendChild(document.createElement('main'));
  const beside = new Page(other, channel);
  beside.choose({ profile: 'gpu' });
  expect(link.choices).toEqual({ profile: 'gpu' });
  beside.dispose();
});

test('ids are unique in a document, though two pages show the same view', () => {
  const other = document.body.appendChild(document.createElement('main'));
  other.dataset['live'] = 'wide';
  const beside = new Page(other, channel);
  const html = `<label for="size">Size</label><input id="size" aria-describedby="size-about"><i id="size-about"></i>
    <button data-fold="more" aria-controls="more"></button><div id="more" hidden></div>`;
  show('sidebar', html);
  beside.receive({ type: 'patches', watch: sent.find(each => each['view'] === 'wide')!['watch'] as string, html });
  const ids = [...document.querySelectorAll('[id]')].map(each => each.id);
  expect(new Set(ids).size).toBe(6);
  const input = other.querySelector('input')!;
  expect(document.getElementById(input.getAttribute('aria-describedby')!)!.parentElement).toBe(other);
  other.querySelector('button')!.click();
  expect(other.querySelector('div')!.hidden).toBe(false);
  expect(find('#more').hidden).toBe(true);
  expect(other.querySelector('label')!.htmlFor).toBe(input.id);
  beside.dispose();
});

test('a path that is dropped goes into the field below it, or into the first of its section', async () => {
  show(
    'sidebar',
    '<section class="wb-Section"><p></p><input name="k"><input name="to" data-drop=""><input name="of" data-drop=""></section><b></b>'
  );
  expect(page.drop(find('p'))).toBe(true);
  expect(page.drop(find('b'), '/data/a.nc') || page.drop(find('[name=k]'), '/data/a.nc')).toBe(false);
  page.drop(find('p'), '/data/a.nc');
  page.drop(find('[name=of]'), '/data/b.nc');
  await settled();
  expect(find<HTMLInputElement>('[name=to]').value).toBe('/data/a.nc');
  expect(link.choices).toEqual({ to: '/data/a.nc', of: '/data/b.nc' });
});

test('a list is one stop, in which arrows go from line to line and along a line', () => {
  const line = (n: number) =>
    `<li data-line><input type="checkbox" id="t${n}"><button id="a${n}" data-fold="f${n}"></button><button id="b${n}"></button>` +
    `<div class="wb-Drawer"><button id="c${n}"></button></div></li>`;
  show('sidebar', `<ul data-stop>${line(1)}${line(2)}</ul>`);
  const press = (key: string) =>
    document.activeElement!.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  const stops = () => [...page.node.querySelectorAll<HTMLElement>('ul [tabindex="0"]')].map(each => each.id);
  expect(stops()).toEqual(['a1']);
  find('#a1').focus();
  ['ArrowRight', 'ArrowRight', 'ArrowDown', 'ArrowLeft'].forEach(press);
  expect(document.activeElement!.id).toBe('t2');
  expect(stops()).toEqual(['t2']);
});

test('Escape closes the browser of files in which the focus is, and its word has the focus then', () => {
  const word = `<button id="word" aria-expanded="true" data-choose='{"browse.path": null}'>Close</button>`;
  show('sidebar', `<div class="wb-Browse">${word}<button id="entry"></button></div><input id="beside">`);
  page.choose({ 'browse.path': '.' });
  const escape = () => new KeyboardEvent('keydown', { key: 'Escape', bubbles: true });
  find('#beside').dispatchEvent(escape());
  expect(link.choices).toEqual({ 'browse.path': '.' });
  find('#entry').dispatchEvent(escape());
  expect(link.choices).toEqual({});
  expect(document.activeElement!.id).toBe('word');
});

test('arrows go from one section to the next', () => {
  show('sidebar', '<button data-fold="wb-section-a" id="a"></button><button data-fold="wb-section-b" id="b"></button>');
  find('#a').focus();
  find('#a').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown', bubbles: true }));
  expect(document.activeElement!.id).toBe('b');
});

test('a fold that is opened has its first field selected, and its form is sent by its button alone', async () => {
  const row = (n: number) =>
    `<button data-fold="fold-${n}">Scale</button><form id="fold-${n}" hidden>
     <input name="scale.${n}" value="2" data-first>
     <button data-action="scale" data-arguments='{"cluster": "${n}"}' data-take='{"n": "scale.${n}"}'>Apply</button></form>`;
  show('sidebar', row(1) + row(2));
  find('[data-fold="fold-2"]').click();
  const field = find<HTMLInputElement>('[name="scale.2"]');
  expect([document.activeElement, field.selectionEnd]).toEqual([field, 1]);
  typeInto('[name="scale.2"]', '3');
  find('#fold-2 button').click();
  await settled();
  expect(asked).toEqual([['scale', { cluster: '2', n: '3' }]]);
  expect(find('#fold-2').dispatchEvent(new Event('submit', { bubbles: true, cancelable: true }))).toBe(false);
});

test('what was folded is folded from the first moment on when a page is loaded again', () => {
  localStorage.setItem('forms', '[["x",false]]');
  page.dispose();
  sent = [];
  document.body.innerHTML = '<main data-live="sidebar"></main>';
  page = new Page(document.querySelector('main')!, { ...channel, memory: 'forms' });
  const open = 'aria-expanded="true"';
  show(
    'sidebar',
    `<button data-fold="x" ${open}></button><div id="x"></div><button data-fold="y" ${open}></button><i id="y"></i>`
  );
  expect(find('#x').hidden).toBe(true);
  find('[data-fold=y]').click();
  find('[data-fold=x]').click();
  expect(localStorage.getItem('forms')).toBe('[["y",false]]');
});

test('a page that is loaded again says what was chosen in its forms, and forgets the rest', async () => {
  page.dispose();
  sessionStorage.setItem('forms', '[["run.array_sum.size","2GiB"]]');
  const again = new Page(document.createElement('main'), { ...channel, memory: 'forms' });
  await settled();
  expect(sent.at(-1)).toEqual({ type: 'choose', choices: { 'run.array_sum.size': '2GiB' } });
  again.choose({ 'plan.cpu.memory': '1GiB', 'runs.ticked': 'a', workload: 'array_sum' });
  const kept = Object.fromEntries(JSON.parse(sessionStorage.getItem('forms')!) as [string, unknown][]) as object;
  expect(kept).toEqual({ 'run.array_sum.size': '2GiB', 'plan.cpu.memory': '1GiB', workload: 'array_sum' });
  again.dispose();
});

test('what is chosen where a list scrolls is brought into view, once', () => {
  show('sidebar', radios('a'));
  const [group, second] = [find('[role=radiogroup]'), find('label:last-child')];
  Object.defineProperty(group, 'clientHeight', { value: 100 });
  second.getBoundingClientRect = () => ({ top: 300 }) as DOMRect;
  show('sidebar', radios('b'));
  expect(group.scrollTop).toBe(250);
  group.scrollTop = 10;
  show('sidebar', radios('b'));
  expect(group.scrollTop).toBe(10);
});

test('a button is pressed from outside as soon as it can be, and a section gone to', async () => {
  show(
    'sidebar',
    '<button data-fold="wb-section-a">A</button><div id="wb-section-a" hidden></div><button data-workbench="go" data-action="go" disabled>Go</button>'
  );
  await settled();
  const pressed = page.skip('a', 'go');
  await settled();
  expect(document.activeElement).toBe(find('[data-fold]'));
  expect(find('#wb-section-a').hidden).toBe(false);
  expect(asked).toEqual([]);
  find<HTMLButtonElement>('[data-workbench="go"]').disabled = false;
  await vi.advanceTimersByTimeAsync(200);
  await pressed;
  expect(asked).toEqual([['go', {}]]);
});

test('the focus goes to the title above what has gone', () => {
  // happy-dom lays nothing out.
  Object.defineProperty(HTMLElement.prototype, 'offsetParent', {
    get(this: HTMLElement) {
      return this.isConnected ? document.body : null;
    }
  });
  const line = (name: string) => `<li id="${name}"><button>x</button><button data-fold="${name}">${name}</button></li>`;
  const title = '<h2><button data-fold="runs">Runs</button></h2>';
  show('sidebar', `${title}<ul>${line('a')}${line('b')}</ul>`);
  find('#b button').focus();
  show('sidebar', `${title}<ul>${line('a')}</ul>`);
  expect(document.activeElement?.textContent).toBe('a');
  find('#a button').focus();
  show('sidebar', `${title}<ul></ul>`);
  expect(document.activeElement?.textContent).toBe('Runs');
});

test('what starts a run chooses it and opens its tab once it is granted, and not where it is refused', async () => {
  const attributes = `data-action="run" data-answer='{"result.run": "id"}' data-command="view" data-args='{"a":1}'`;
  show('sidebar', `<button ${attributes}>Run</button>`);
  refusal = 'It does not fit.';
  find('button').click();
  await settled();
  expect(asked).toEqual([
    ['run', {}],
    ['report', 'It does not fit.']
  ]);
  refusal = null;
  find('button').click();
  await settled();
  expect(asked.slice(2)).toEqual([
    ['run', {}],
    ['view', { a: 1, id: 'run-1' }]
  ]);
  expect(link.choices).toEqual({ 'result.run': 'run-1' });
});

test('a figure is drawn once where it has a place, and ends with it', () => {
  const figures = () => sent.filter(each => each['cluster'] ?? each['run']);
  show('sidebar', `<p>37 %</p><div data-figure='{"cluster":"otter"}'></div>`);
  show('sidebar', `<p>38 %</p><div data-figure='{"cluster":"otter"}'></div>`);
  expect(figures()).toMatchObject([{ type: 'watch', cluster: 'otter' }]);
  expect(find('[data-figure] [role=status]').textContent).toBe('Loading …');
  show('sidebar', `<p>done</p><div data-figure='{"run":"run-1"}'></div>`);
  expect(figures()).toMatchObject([{ cluster: 'otter' }, { type: 'watch', run: 'run-1' }]);
  const ended = () => sent.filter(each => each['type'] === 'unwatch').map(each => each['watch']);
  expect(ended()).toEqual([figures()[0]['watch']]);
  // Its element becomes another's.
  show('sidebar', '<p>done</p><div>Where the time went</div>');
  expect(ended()).toEqual(figures().map(each => each['watch']));
  expect(page.node.textContent).toBe('doneWhere the time went');
});

test('what went wrong stands next to the button that asked for it', async () => {
  const card = (name: string) => `<article id="${name}">
    <button data-action="restart" data-arguments='{"cluster": "${name}"}'>Restart</button>
    <button data-action="run">Run</button><p data-notice="cluster=${name}"></p></article>`;
  show(
    'sidebar',
    `${card('one')}${card('two')}<section><button data-action="run">Run</button>
    <p data-notice="run"></p></section><p data-notice="run"></p>`
  );
  refusal = 'It is busy.';
  find('#two [data-action=restart]').click();
  await settled();
  const said = () => [...page.node.querySelectorAll('[data-notice]')].map(each => each.textContent);
  expect(said()).toEqual(['', 'It is busy.', '', '']);
  find('section button').click();
  await settled();
  expect(said()).toEqual(['', 'It is busy.', 'It is busy.', '']);
});

test('a plan is read out when it has settled, and not for each key', async () => {
  const plan = (text: string) => show('sidebar', `<input name="plan.cpu.n_workers"><p data-settled>${text}</p>`);
  const voice = () => document.querySelector('[role=status]')!.textContent;
  plan('1 worker');
  await vi.advanceTimersByTimeAsync(2000);
  expect(voice()).toBe('');
  typeInto('input', '1');
  plan('1 worker × 2 threads');
  await vi.advanceTimersByTimeAsync(900);
  typeInto('input', '12');
  await vi.advanceTimersByTimeAsync(900);
  expect(voice()).toBe('');
  plan('12 workers');
  await vi.advanceTimersByTimeAsync(900);
  expect(voice()).toBe('');
  await vi.advanceTimersByTimeAsync(200);
  expect(voice()).toBe('12 workers');
});
