/**
 * Views that Python makes as HTML, shown and kept up to date: in Lab's sidebar and tabs, in notebooks, without Lab.
 *
 * A view stands where an element has `data-live="name"`, and is requested while it can be seen: not while what it is
 * in is folded or hidden. What a person does in it is said by attributes, so that a new view needs no code here:
 *
 * name                      of an input: what is chosen or typed goes to Python under it, and the views follow.
 *                           Python alone says which of several radio buttons is checked.
 *                           data-default is what stands there when nothing is chosen; data-list: one value of several, or some, with commas;
 *                           data-empty: nothing is a value, too;
 *                           data-alone: other choices whose names begin with this are taken back
 * data-choose='{}'          a click chooses these (null takes a choice back)
 * data-action='start'       a click has Python do this, see workbench/views/actions.py; data-arguments is what it gets,
 *                           and data-take names choices that it gets, too (all that begin with a name that ends with a
 *                           dot). data-then is chosen when it was done. What went wrong stands in the nearest element
 *                           whose data-notice is its name, or one of its arguments: "run=x".
 *                           So does data-meanwhile while it goes on
 * data-answer='{}'          of an action: choices that take parts of the answer, by their names there
 * data-confirm='Stop?'      the first click asks, the second does it; a style sheet shows the question
 * data-command, data-args   something that the place of this page does, such as a tab of Lab; after an action,
 *                           with the parts of the answer
 * data-figure='{}'          place of a drawing that is fed with events, of a cluster or a run
 * data-page                 a page of the server, in a new tab of the browser; with data-save saved as a file of that name
 * data-enlarge              the picture in it, as large as the window
 * data-fold                 id of what a click opens and closes
 * data-reveal               ids of what a click opens, of which it brings the last into view; where this page has none,
 *                           the command that shows a section is given them
 * data-copy                 copies the text that follows
 * data-first                the field that is selected when a fold is opened
 * data-drop                 of an input: a path that is dropped on it, or next to it in its section, becomes its value
 * data-settled              what stands there is read out when it has changed, and a moment has passed without a key
 * data-stop                 of a list: the Tab key stops once in its lines (data-line), and arrows go on from there
 */
import type { Watched } from '../tokens';
import { element, whenSeen } from './browser';
import { Figure } from './figure';
import type { IHost } from './host';
import type { Choices } from './link';
import { morph } from './morph';

/** What a page needs of the place where it is. */
export interface IChannel extends IHost {
  /** Show what went wrong that has no place on the page. */
  report(problem: string): void;
  /** Do something that Python can't, such as a tab of Lab. */
  command(name: string, args: object): void;
  copy(text: string): void;
  /** Under which the browser keeps what was chosen, until its tab is closed, and what was folded. */
  memory?: string;
}

/** What a page still knows when it is loaded again: what was chosen in forms. */
const LASTING = /^(profile|plan|workload|run|settings|cluster|compare|tour|result)($|\.)/;

/** Milliseconds without a key or another change before a text is read out. */
const SETTLED = 1000;

let views = 0;
let others = 0;

/** Attributes that name elements by their ids. */
const IDS = ['id', 'for', 'form', 'aria-controls', 'aria-describedby', 'aria-labelledby'];

/** Fields in which the page shows what was chosen. */
const FILLED = '[name]:not([type=radio])';

/** What came of an action, or goes on: next to the button that began it. */
interface IOutcome {
  text: string;
  isFine: boolean;
  button: HTMLElement;
  /** Its name and its arguments, one of which a notice has. */
  about: string[];
}

/** What is shown in a place: a view, with the views in it, or a figure. */
interface IPlace {
  /** Name of the view, or what the figure watches. */
  what: string;
  /** Of a view, as Python calls it. */
  id?: string;
  figure?: Figure;
  dispose(): void;
}

export class Page {
  /** Pages that have the same connection share what is chosen; only the first takes up what the browser has kept. */
  constructor(
    readonly node: HTMLElement,
    private _channel: IChannel
  ) {
    const { link, memory } = this._channel;
    const isFirst = !link.followers.size;
    const kept = (area: Area) =>
      JSON.parse((isFirst && memory && storage(area)?.getItem(memory)) || '[]') as [string, unknown][];
    this._suffix = isFirst ? '' : `--${++others}`;
    this._folds = new Map(kept('localStorage') as [string, boolean][]);
    link.choose(Object.fromEntries(kept('sessionStorage')));
    link.followers.add(this._settle);
    node.addEventListener('click', event => this._clicked(event));
    node.addEventListener('input', event => this._typed(event));
    // The Enter key in a field clicks the button of its form.
    node.addEventListener('submit', event => event.preventDefault());
    node.addEventListener('keydown', event => this._pressed(event));
    node.addEventListener('focusout', event => this._left(event));
    node.addEventListener('dragover', event => this._droppable(event.target) && event.preventDefault());
    node.addEventListener('drop', event => {
      const text = event.dataTransfer?.getData('text/plain').trim();
      if (text && this.drop(event.target, text)) {
        event.preventDefault();
      }
    });
    this._voice.setAttribute('role', 'status');
    node.after(this._voice);
    this._settle();
  }

  dispose(): void {
    this._channel.link.followers.delete(this._settle);
    window.clearTimeout(this._speaking);
    this._voice.remove();
    this._places.forEach(each => each.dispose());
  }

  /** Take in what Python says of a view; whether it was of one that is here. */
  receive(received: object): boolean {
    const message = received as { type: string; watch?: string; html?: string; message?: string };
    for (const [place, { id, figure }] of this._places) {
      figure?.receive(message);
      if (id && id === message.watch) {
        const next = document.createElement('template');
        if (message.type === 'patches') {
          next.innerHTML = message.html ?? '';
        } else {
          next.content.append(message.message ?? '');
        }
        this._makeUnique(next.content);
        const root = this.node.getRootNode() as Document;
        const had = root.activeElement as HTMLInputElement | null;
        const { name = '', value = '' } = had ?? {};
        const titles = [...place.querySelectorAll<HTMLElement>('[data-fold]')];
        // 4 is DOCUMENT_POSITION_FOLLOWING.
        const above = titles.filter(each => had && each.compareDocumentPosition(had) & 4);
        morph(place, next.content);
        this._settle();
        if (had && had !== root.activeElement) {
          // What was moved or made anew is worked in as before: the next keys would be lost. Who works with the keyboard
          // goes on above what has gone, where a second Enter does no harm.
          const isHere = had.isConnected && had.name === name;
          const again = isHere ? had : place.querySelector<HTMLInputElement>(`[name="${CSS.escape(name)}"]${FILLED}`);
          (again ?? above.findLast(each => each.offsetParent))?.focus();
          if (again && !(isHere && had.value === value)) {
            // With the cursor at its end: a field that was made anew has it at its beginning.
            again.value = '';
            again.value = value;
          }
        }
        return true;
      }
    }
    return false;
  }

  /** Choose things, and have the views follow. */
  choose(changes: Choices): void {
    this._channel.link.choose(changes);
    const lasting = Object.entries(this.choices).filter(([name]) => LASTING.test(name));
    this._keep('sessionStorage', lasting);
  }

  /** Say no more what went wrong, for example because the server answers again. */
  forgive(): void {
    this._outcomes.clear();
    this._settle();
  }

  /** Take a path that is dropped on a place, if one belongs there; without one, whether one would be taken. */
  drop(place: EventTarget | null, path = ''): boolean {
    const field = this._droppable(place);
    if (field && path) {
      field.value = path;
      this.choose({ [field.name]: path });
    }
    return Boolean(field);
  }

  /** Unfold the elements of these ids and show where the last of them begins; whether any is on this page. */
  reveal(ids: string): boolean {
    const each = ids.split(' ');
    each.forEach(id => this._fold(id, true));
    window.requestAnimationFrame(() => {
      const last = each.map(id => this._find(id)).findLast(found => found);
      // A run may be in the folded list of its comparison.
      for (let hidden = last?.closest('[hidden]'); hidden; hidden = hidden.parentElement?.closest('[hidden]')) {
        this._fold(this._plain(hidden.id), true);
      }
      last?.parentElement?.scrollIntoView({ block: 'start' });
    });
    return each.some(id => this._find(id));
  }

  /** Unfold a section, show where it begins, and put the focus on its title; then click a button or open a fold. */
  async skip(section: string, hook?: string): Promise<void> {
    const id = `wb-section-${section}`;
    await this._soon(`[data-fold="${id}"]`, title => {
      title.focus();
      // A sidebar that was closed is shown a moment later.
      return document.activeElement === title;
    });
    this.reveal(id);
    const found = hook && (await this._soon(`[data-workbench="${hook}"]:not([disabled])`));
    if (found instanceof HTMLDetailsElement) {
      found.open = true;
      found.scrollIntoView({ block: 'nearest' });
    } else if (found) {
      found.click();
    }
  }

  /** Return an element as soon as it is there, and something worked with it; null after some seconds. */
  private async _soon(selector: string, act = (_: HTMLElement) => true): Promise<HTMLElement | null> {
    for (let tries = 0; tries < 200; tries++) {
      const found = this.node.querySelector<HTMLElement>(selector);
      if (found && act(found)) {
        return found;
      }
      await new Promise(resolve => setTimeout(resolve, 50));
    }
    return null;
  }

  /** The field in which a path goes that is dropped here. */
  private _droppable(place: EventTarget | null): HTMLInputElement | null | undefined {
    const here = place as Element;
    // Other fields take text as the browser does it.
    const around = here.matches('input, textarea') ? null : here.closest('.wb-Section');
    return here.closest<HTMLInputElement>('[data-drop]') ?? around?.querySelector('[data-drop]');
  }

  private _keep(area: Area, entries: [string, unknown][]): void {
    const { memory } = this._channel;
    if (memory) {
      storage(area)?.setItem(memory, JSON.stringify(entries));
    }
  }

  get choices(): Choices {
    return this._channel.link.choices;
  }

  // -- places of views

  /** After anything has changed: watch new places, leave those that are gone, and put back what only this page knows. */
  private readonly _settle = (): void => {
    const places = [this.node, ...this.node.querySelectorAll<HTMLElement>('[data-live], [data-figure]')];
    this._places.forEach((shown, place) => {
      if (!places.includes(place) || shown.what !== whatOf(place)) {
        shown.dispose();
        this._places.delete(place);
      }
    });
    places.forEach(place => this._places.has(place) || this._places.set(place, this._show(place)));
    this._folds.forEach((isOpen, id) => {
      this._find(id)?.toggleAttribute('hidden', !isOpen);
      this._each(`[data-fold="${CSS.escape(id)}"]`, each => each.setAttribute('aria-expanded', String(isOpen)));
    });
    this._each('[data-action]', each => each.setAttribute('aria-busy', String(this._busy.has(keyOf(each)))));
    this._each('[data-notice]', each => this._notify(each));
    this._each<HTMLInputElement>(FILLED, each => this._fill(each));
    this._each('[data-stop]', each => this._stopOnce(each));
    this._each<HTMLInputElement>('[type=radio]:checked', each => this._showChosen(each));
    this._showRefused();
    this._announce(false);
  };

  /** Have screen readers read out a text that has changed, but not for each key. */
  private _announce(isTyped: boolean): void {
    const text = this.node.querySelector('[data-settled]')?.textContent ?? '';
    if (isTyped || text !== this._pending) {
      window.clearTimeout(this._speaking);
      // What stands there at first is read out by nobody.
      this._spoken ||= text;
      this._pending = text;
      this._speaking = window.setTimeout(() => {
        if (text !== this._spoken) {
          this._voice.textContent = this._spoken = text;
        }
      }, SETTLED);
    }
  }

  /** Draw the figure of a place, or have Python send its view while it can be seen. */
  private _show(place: HTMLElement): IPlace {
    const what = whatOf(place);
    if (place.dataset['figure']) {
      place.replaceChildren();
      const figure = new Figure(place, JSON.parse(what) as Watched, this._channel);
      return { what, figure, dispose: () => figure.dispose() };
    }
    const id = `view-${++views}`;
    const watch = (isSeen: boolean) =>
      this._channel.link.send(isSeen ? { type: 'watch', watch: id, view: what } : { type: 'unwatch', watch: id });
    const dispose = whenSeen(place, watch, {
      // What is scrolled out of view is shown, by a sidebar or a notebook: or what is searched for would be missing.
      root: this.node.parentElement,
      rootMargin: '99999px',
      // The same for columns that scroll by themselves; TypeScript doesn't know it yet.
      ...{ scrollMargin: '99999px' }
    });
    return { what, id, dispose };
  }

  private _each<T extends HTMLElement = HTMLElement>(selector: string, act: (found: T) => void): void {
    this.node.querySelectorAll<T>(selector).forEach(act);
  }

  /** Where the list of a choice scrolls: bring what has just been chosen into its view, whatever chose it. */
  private _showChosen({ parentElement, value }: HTMLInputElement): void {
    const entry = parentElement!;
    const list = entry.parentElement!;
    // By its value: an element may stand for another entry than before.
    if (this._chosen.get(list) === value || !list.clientHeight) {
      return;
    }
    this._chosen.set(list, value);
    const above = entry.getBoundingClientRect().top - list.getBoundingClientRect().top;
    if (above < 0 || above + entry.offsetHeight > list.clientHeight) {
      list.scrollTop += above - list.clientHeight / 2;
    }
  }

  /** Bring a field that has just been refused into view, with its message. */
  private _showRefused(): void {
    const refused = [...this.node.querySelectorAll('[aria-invalid=true]')];
    refused
      .filter(each => !this._refused.has(each.id))
      .forEach(each => each.closest('.wb-Field')?.scrollIntoView({ block: 'nearest' }));
    this._refused = new Set(refused.map(each => each.id));
  }

  /** Have the Tab key stop once in a list: where it was left, or else at its first line. */
  private _stopOnce(list: HTMLElement): void {
    const stops = linesOf(list).flat();
    const left = this._stops.get(list);
    const here = stops.find(each => each === left) ?? headOf(stops);
    stops.forEach(each => (each.tabIndex = each === here ? 0 : -1));
  }

  // -- what a person does

  private _clicked(event: Event): void {
    const button = (event.target as Element).closest<HTMLElement>('button, summary, [data-page]');
    if (!button || button.getAttribute('aria-busy') === 'true' || button.getAttribute('aria-disabled') === 'true') {
      return;
    }
    const { confirm, choose, action, command, args, page, save, fold, reveal, copy } = button.dataset;
    if (confirm && button.toggleAttribute('data-asking')) {
      return;
    }
    if (choose) {
      this.choose(parsed(choose));
    }
    if (action) {
      void this._act(button);
    } else if (command) {
      this._channel.command(command, parsed(args));
    }
    if (page) {
      void this._channel.open(page, save);
    }
    if (button.dataset['enlarge'] !== undefined) {
      enlarge(button.querySelector('img')!, this.node.parentNode!);
    }
    if (fold) {
      this._fold(fold, button.getAttribute('aria-expanded') !== 'true');
      const first = this._find(fold)?.querySelector<HTMLInputElement>('[data-first]');
      first?.focus();
      first?.select();
    }
    if (reveal && !this.reveal(reveal)) {
      // It is on another page, such as the sidebar when this is a tab.
      this._channel.command('dask-workbench:section', { section: reveal.split('wb-section-').at(-1), reveal });
    }
    if (copy !== undefined) {
      this._channel.copy(button.nextElementSibling?.textContent ?? '');
    }
  }

  private async _act(button: HTMLElement): Promise<void> {
    const { action = '', take, then, meanwhile, answer: parts, command, args } = button.dataset;
    const key = keyOf(button);
    const given = parsed(button.dataset['arguments']);
    Object.entries(parsed<string>(take)).forEach(([field, name]) => {
      const taken = name.endsWith('.') ? { ...(given[field] as object), ...this._below(name) } : this.choices[name];
      if (taken !== undefined) {
        given[field] = taken;
      }
    });
    const about = [action, ...Object.entries(given).map(([name, value]) => `${name}=${String(value)}`)];
    const say = (text: string, isFine: boolean) => this._outcomes.set(key, { text, isFine, button, about });
    this._busy.add(key);
    say(meanwhile ?? '', true);
    this._settle();
    try {
      const answer = (await this._channel.link.act(action, given)) as Choices;
      say('', true);
      const chosen = Object.entries(parsed<string>(parts)).map(([name, part]) => [name, answer[part]]);
      this.choose({ ...parsed(then), ...(Object.fromEntries(chosen) as Choices) });
      if (command) {
        this._channel.command(command, { ...parsed(args), ...answer });
      }
    } catch (error) {
      // What is to be typed in a terminal has a button here.
      const problem = (error as Error).message.replace(/:\s+workbench [a-z]+[^.;]*/g, '');
      say(problem, false);
      if (!this._noticeOf(about, button)) {
        this._channel.report(problem);
      }
    }
    this._busy.delete(key);
    this._settle();
  }

  /** Choices whose names begin with `prefix`, by the rest of the name. */
  private _below(prefix: string): Choices {
    const found = Object.entries(this.choices).filter(([name]) => name.startsWith(prefix));
    return Object.fromEntries(found.map(([name, value]) => [name.slice(prefix.length), value]));
  }

  private _typed(event: Event): void {
    const input = event.target as HTMLInputElement;
    const { name, dataset } = input;
    if (!name) {
      return;
    }
    this._outcomes.clear();
    this._announce(true);
    let value: unknown = input.value;
    if (dataset['list'] !== undefined) {
      const boxes = [...this.node.querySelectorAll<HTMLInputElement>(`[name="${CSS.escape(name)}"]:checked`)];
      const chosen = new Set(boxes.flatMap(each => each.value.split(',')));
      // One box may stand for several, which have boxes of their own.
      input.value.split(',').forEach(each => void (input.checked ? chosen.add(each) : chosen.delete(each)));
      value = [...chosen].join() || null;
    } else if (input.type === 'checkbox') {
      value = input.checked;
    } else if (input.type === 'number') {
      value = Number.isFinite(input.valueAsNumber) ? Math.max(0, Math.round(input.valueAsNumber)) : null;
    } else if (
      (input.value === '' && dataset['empty'] === undefined) ||
      (input.tagName === 'SELECT' && input.value === dataset['default'])
    ) {
      value = null;
    }
    const others = dataset['alone'] ? Object.keys(this._below(dataset['alone'])) : [];
    this.choose({ ...Object.fromEntries(others.map(each => [dataset['alone'] + each, null])), [name]: value });
  }

  private _pressed(event: KeyboardEvent): void {
    const target = event.target as HTMLInputElement;
    const { dataset, name, value } = target;
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const isVertical = /Up|Down/.test(event.key);
    if (event.key === 'Escape') {
      target.removeAttribute('data-asking');
      const word = target.closest('.wb-Browse')?.querySelector<HTMLElement>('[aria-expanded="true"]');
      word?.focus();
      word?.click();
    } else if (step && this._walk(target, step, isVertical)) {
      event.preventDefault();
    } else if (step && isVertical && dataset['step'] !== undefined && Number.isFinite(Number(value))) {
      event.preventDefault();
      target.value = String(Math.max(Number(dataset['minimum'] ?? -Infinity), Number(value) - step));
      this.choose({ [name]: target.value });
    }
  }

  /** From one section or line of a list to the next, or along a line; whether the key does that here. */
  private _walk(from: HTMLElement, step: number, isVertical: boolean): boolean {
    const list = from.closest<HTMLElement>('[data-stop]');
    const sections = [...this.node.querySelectorAll<HTMLElement>('[data-fold^="wb-section-"]')].map(title => [title]);
    const lines = list ? linesOf(list) : sections;
    const line = lines.find(each => each.includes(from));
    if (!line) {
      return false;
    }
    const to = isVertical ? headOf(lines[lines.indexOf(line) + step] ?? []) : line[line.indexOf(from) + step];
    if (list && to) {
      this._stops.set(list, to);
      this._stopOnce(list);
    }
    to?.focus();
    return true;
  }

  private _left(event: FocusEvent): void {
    const left = event.target as HTMLInputElement;
    left.removeAttribute('data-asking');
    if (left.matches(FILLED)) {
      window.setTimeout(() => this._fill(left));
    }
  }

  // -- what only this page knows

  /** Show in a field what was chosen, or what it comes to; never while somebody types in it. */
  private _fill(field: HTMLInputElement): void {
    const chosen = this.choices[field.name];
    if (field.dataset['list'] !== undefined) {
      const all = String(chosen).split(',');
      field.checked = chosen ? field.value.split(',').every(each => all.includes(each)) : field.defaultChecked;
    } else if (field.type === 'checkbox') {
      field.checked = (chosen as boolean | undefined) ?? field.defaultChecked;
    } else if (field !== (field.getRootNode() as Document).activeElement || field.tagName === 'SELECT') {
      const shown = String(chosen ?? field.defaultValue);
      if (field.tagName === 'SELECT') {
        const options = [...(field as unknown as HTMLSelectElement).options];
        const option =
          options.find(each => each.value === (chosen ?? field.dataset['default'])) ??
          options.find(each => each.defaultSelected);
        field.value = option?.value ?? field.value;
      } else if (field.value !== shown) {
        field.value = shown;
      }
      if (field.dataset['drop'] !== undefined) {
        // The end of a long path, its file, says more than its beginning; the whole path is a tooltip.
        field.title = shown;
        field.scrollLeft = field.scrollWidth;
      }
    }
  }

  private _notify(place: HTMLElement): void {
    const { text, isFine } = [...this._outcomes.values()].find(
      ({ text, button, about }) => text && this._noticeOf(about, button) === place
    ) ?? { text: '', isFine: false };
    place.classList.toggle('wb-mod-fine', isFine);
    if (place.textContent !== text) {
      place.textContent = text;
      if (text && !isFine) {
        place.scrollIntoView({ block: 'nearest' });
      }
    }
  }

  /** Where it is said what came of an action: near the button that began it. */
  private _noticeOf(about: string[], button: HTMLElement): HTMLElement | null {
    for (let near: HTMLElement | null = button; near; near = near === this.node ? null : near.parentElement) {
      const notices = [...near.querySelectorAll<HTMLElement>('[data-notice]')];
      const found = notices.find(each => about.includes(each.dataset['notice']!));
      if (found) {
        return found;
      }
    }
    // The button has gone since.
    return this.node.contains(button) ? null : this._noticeOf(about, this.node);
  }

  private _fold(id: string, isOpen: boolean): void {
    this._folds.set(id, isOpen);
    if (!this._suffix) {
      const folded = [...this._folds].filter(([, isOpen]) => !isOpen);
      this._keep('localStorage', folded);
    }
    this._settle();
  }

  private _find(id: string): HTMLElement | null {
    return this.node.querySelector<HTMLElement>(`#${CSS.escape(id + this._suffix)}`);
  }

  /** Give elements ids that no other page of this document has, though it shows the same views. */
  private _makeUnique(made: DocumentFragment): void {
    if (this._suffix) {
      IDS.forEach(name =>
        made.querySelectorAll(`[${name}]`).forEach(each => {
          const ids = each.getAttribute(name)!.split(' ');
          each.setAttribute(name, ids.map(id => id + this._suffix).join(' '));
        })
      );
    }
  }

  /** An id as Python knows it. */
  private _plain(id: string): string {
    return id.slice(0, id.length - this._suffix.length);
  }

  private readonly _busy = new Set<string>();
  private readonly _chosen = new WeakMap<HTMLElement, string>();
  private readonly _folds: Map<string, boolean>;
  private readonly _outcomes = new Map<string, IOutcome>();
  private _refused = new Set<string>();
  private readonly _places = new Map<HTMLElement, IPlace>();
  private _pending = '';
  private _speaking = 0;
  private _spoken = '';
  private readonly _voice = element('p', 'wb-hidden');
  private readonly _stops = new WeakMap<HTMLElement, HTMLElement>();
  private readonly _suffix: string;
}

type Area = 'sessionStorage' | 'localStorage';

/** What the browser keeps for its tab, or for good; null where it forbids that. */
function storage(area: Area): Storage | null {
  try {
    return window[area];
  } catch {
    return null;
  }
}

/** An object of an attribute; an empty one without it. */
function parsed<T = unknown>(text = '{}'): Record<string, T> {
  return JSON.parse(text) as Record<string, T>;
}

/** Name of the view of a place, or what its figure watches. */
function whatOf({ dataset }: HTMLElement): string {
  return dataset['figure'] ?? dataset['live'] ?? '';
}

/** What an action is busy under: a button may be made anew meanwhile. */
function keyOf({ dataset }: HTMLElement): string {
  return `${dataset['action']} ${dataset['arguments'] ?? ''}`;
}

/** What can be pressed in each line of a list that is seen, without what a line unfolds. */
function linesOf(list: HTMLElement): HTMLElement[][] {
  const lines = [...list.querySelectorAll<HTMLElement>('[data-line]')].filter(line => !line.closest('[hidden]'));
  return lines.map(line =>
    [...line.querySelectorAll<HTMLElement>('button:not(:disabled), input:not(:disabled)')].filter(
      each => each.closest('[data-line]') === line && !each.closest('.wb-Drawer')
    )
  );
}

/** Show a picture as large as the window until a click or the Escape key. */
function enlarge(picture: HTMLImageElement, place: ParentNode): void {
  const dialog = element('dialog', 'wb-Page wb-Enlarged');
  const close = element('button', 'wb-Link', '×');
  close.setAttribute('aria-label', 'Close');
  dialog.setAttribute('aria-label', picture.alt);
  dialog.append(picture.cloneNode(), close);
  dialog.onclick = () => dialog.close();
  dialog.onclose = () => dialog.remove();
  place.append(dialog);
  dialog.showModal();
}

/** What stands for a line: its title. */
function headOf(line: HTMLElement[]): HTMLElement | undefined {
  return line.find(each => each.dataset['fold']) ?? line[0];
}
