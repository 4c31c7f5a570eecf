/**
 * A figure that Python makes and feeds: a cluster at work, or the record of a run. In a tab of Lab, in a notebook, or
 * wherever else there is an element and a channel to Python.
 */
import type { IFigure, IPatch, IWatchStatus, StreamMessage, Watched } from '../tokens';
import { embed, load } from './bokeh';
import type { IBokehPlot, IBokehRange, IBokehSource, IEmbedded } from './bokeh';
import { download, element } from './browser';
import type { IHost, IShown, Theme } from './host';

/** Messages kept while the figure is paused or hidden; beyond it the whole is requested from Python again. */
const QUEUE = 1000;
/** The source that holds the stretch of time to show while one follows. */
const WINDOW = 'window';
/** Milliseconds after the last pan or zoom before the detail of the view is requested from Python. */
const SETTLE = 150;
/** The plot that takes the room which the others leave. */
const STREAM = 'tasks_plot';
/** Pixels that aren't worth a layout. */
const SLIGHT = 3;

const DARK = window.matchMedia('(prefers-color-scheme: dark)');
const THEME_OF_VSCODE = 'data-vscode-theme-kind';

/** Figures that this page has drawn. */
let figures = 0;

type Action = 'pause' | 'follow' | 'load';

export class Figure implements IShown {
  readonly node = element('div', 'wb-Figure');
  /** Why nothing could be drawn. */
  problem = '';
  /** Called when the cluster has ended, and what is drawn is all that is left of it. */
  onEnd: () => void = () => undefined;

  constructor(
    readonly watched: Watched,
    private _host: IHost,
    /** Whether the task stream grows into what is free of the place. */
    private _fills = false
  ) {
    const bar = element('div', 'wb-Figure-bar');
    const button = (hook: string, label: string, act: () => void) => {
      const made = element('button', '', this._words(label));
      made.dataset['workbench'] = hook;
      made.onclick = act;
      bar.append(made);
      return made;
    };
    this._button = button('follow', 'Pause', () => this._do(this._stands ? 'follow' : 'pause'));
    // A pan as any other: it asks for detail.
    this._all = button('show-all', 'Show all', () => this._whole && this._range?.setv(this._whole));
    button('save-picture', 'Save as PNG', () => void this._save());
    bar.append(this._summary);
    this.node.dataset['workbench'] = 'figure';
    this._note.setAttribute('role', 'status');
    this.node.append(bar, this._note, this._place);
    this._seen.observe(this.node);
    this._resized.observe(this._place);
    this._colors.observe(document.body, {
      attributes: true,
      attributeFilter: ['data-jp-theme-light', THEME_OF_VSCODE]
    });
    DARK.addEventListener('change', this._recolor);
    this._refresh();
  }

  /** Draw a figure at the end of a place. */
  static at(place: HTMLElement, watched: Watched, host: IHost): Figure {
    const figure = new Figure(watched, host);
    place.append(figure.node);
    void figure.load();
    return figure;
  }

  /** Show a message in place of the summary of the cluster, or with an empty text that summary again. */
  say(text: string): void {
    this._said = text;
    this._refresh();
  }

  /** Draw it anew, for example in the colours of another theme. */
  async load(): Promise<void> {
    if (this._ended) {
      return;
    }
    const round = ++this._round;
    this.problem = '';
    this._unwatch();
    const theme = (this._theme = this._host.theme ?? pageTheme());
    const range = this._range;
    const kept = range && !this._following ? { start: range.start, end: range.end } : null;
    // Python finds out what there is to see while the page gets ready to show it.
    this._ready = false;
    this._live = true;
    this._watch();
    this._refresh();
    try {
      const figure = await this._host.link.read<IFigure>('figure', { ...this.watched, theme });
      const bokeh = await load(figure.bokeh, address => this._host.script(address));
      if (round !== this._round) {
        return;
      }
      this._embedded?.dispose();
      const embedded = await embed(bokeh, figure.item, this._place);
      if (round !== this._round) {
        embedded.dispose();
        return;
      }
      this._embedded = embedded;
    } catch (error) {
      if (round === this._round) {
        this._unwatch();
        this.problem = (error as Error).message;
        this._refresh();
      }
      return;
    }
    this._ready = true;
    ['start', 'end'].forEach(edge => this._range?.properties[edge].change.connect(() => this._moved()));
    this._least = this._model<IBokehPlot>(STREAM)?.height ?? 0;
    if (this._place.firstElementChild) {
      this._resized.observe(this._place.firstElementChild);
    }
    this._drain();
    if (kept) {
      // As after a pan, the detail of the view is requested from Python.
      this._range?.setv(kept);
    }
    this._refresh();
  }

  /** Take in what Python says of figures, if it is of this one, or what Python code asks for. */
  receive(received: object): void {
    const message = received as StreamMessage | { type: 'do'; action: Action };
    if (message.type === 'do') {
      this._do(message.action);
      return;
    }
    if (message.type === 'state' || message.type === 'answer' || !this._id || message.watch !== this._id) {
      return;
    }
    if (message.type === 'patches') {
      this._queue.push(message.patches ?? []);
      this._status = message.status ?? this._status;
    } else {
      this._status = { ...this._status, message: message.message };
    }
    if (message.type === 'gone') {
      this._unwatch();
      this._live = false;
      this._ended = Boolean(this._host.forgets && this._ready && this.watched.cluster);
      this.node.classList.toggle('wb-mod-ended', this._ended);
      if (this._ended) {
        this.onEnd();
      }
    }
    this._drain();
    this._refresh();
  }

  dispose(): void {
    this._round += 1;
    this._unwatch();
    [this._seen, this._resized, this._colors].forEach(each => each.disconnect());
    DARK.removeEventListener('change', this._recolor);
    this._embedded?.dispose();
    window.clearTimeout(this._settle);
  }

  private async _save(): Promise<void> {
    if (this._embedded) {
      download(await this._embedded.picture(), `${Object.values(this.watched)[0]}.png`);
    }
  }

  /** Do what the button or Python code asks for: stand still, keep the latest in view, or draw all of it anew. */
  private _do(action: Action): void {
    if (action === 'load') {
      void this.load();
      return;
    }
    this._paused = action === 'pause';
    this._following ||= action === 'follow';
    this._drain();
    this._showLatest();
    this._refresh();
  }

  private get _stands(): boolean {
    return this._paused || !this._following;
  }

  private _words(words: string): string {
    return this._host.translate?.(words) ?? words;
  }

  private _refresh(): void {
    this._button.textContent = this._words(this._stands ? 'Follow' : 'Pause');
    this._button.hidden = !this._live || !this.watched.cluster;
    this._all.hidden = !this._whole;
    this._summary.textContent = this._said || ((this.watched.cluster && this._status.summary) ?? '');
    this._note.textContent = this.problem || (this._ready ? (this._status.message ?? '') : 'Loading …');
    this._note.hidden = !this._note.textContent;
  }

  private _watch(): void {
    this._id = `figure-${++figures}`;
    this._queue = [];
    this._window = null;
    this._status = { summary: this._status.summary };
    this._host.link.send({ type: 'watch', watch: this._id, ...this.watched, theme: this._theme });
  }

  private _unwatch(): void {
    if (this._id) {
      this._host.link.send({ type: 'unwatch', watch: this._id });
      this._id = '';
    }
  }

  /** Apply what has come, unless nobody sees it. What was the last is drawn all the same. */
  private _drain(): void {
    if (!this._ready || (this._live && (this._paused || !this._visible))) {
      if (this._queue.length > QUEUE) {
        this._missed = true;
        this._queue = [];
      }
      return;
    }
    if (this._missed && this._live) {
      this._missed = false;
      this._unwatch();
      this._watch();
      return;
    }
    const patches = this._queue.flat();
    this._queue = [];
    patches.forEach(patch => this._apply(patch));
    if (patches.length) {
      this._showLatest();
      this._refresh();
    }
    if (!this._live) {
      // It says what is to come, and nothing is.
      this._model<IBokehPlot>('empty')?.setv({ visible: false });
    }
  }

  private _apply(patch: IPatch): void {
    const { source, mode, columns } = patch;
    const model = this._model<IBokehSource>(source);
    if (!model) {
      return;
    }
    this._ours = true;
    if (mode === 'set') {
      model.setv(columns);
    } else if (mode === 'stream') {
      model.stream(columns, patch.rollover ?? undefined);
    } else {
      model.data = columns;
    }
    this._ours = false;
    if (source === WINDOW) {
      const { start, end, first, last } = columns as Record<string, number[]>;
      this._window = { start: start[0], end: end[0] };
      this._whole = { start: first[0], end: last[0] };
    } else if (source === STREAM) {
      this._least = columns['height'] as number;
      this._fill();
    }
  }

  /** Let the stream have what the plots below it leave of the place, or what its lanes need. */
  private _fill(): void {
    const [stream, root] = [this._model<IBokehPlot>(STREAM), this._place.firstElementChild];
    if (!this._fills || !stream || !root || !this._place.clientHeight) {
      return;
    }
    const { height } = stream;
    const free = this._place.clientHeight - (root as HTMLElement).offsetHeight;
    const wanted = Math.max(this._least, height + free);
    if (Math.abs(wanted - height) > SLIGHT) {
      stream.setv({ height: wanted });
    }
  }

  /** Move the time axis on, when it is to follow. */
  private _showLatest(): void {
    if (this._following && !this._paused && this._window) {
      this._ours = true;
      this._range?.setv(this._window);
      this._ours = false;
    }
  }

  private _model<T>(name: string): T | null {
    return (this._embedded?.document.get_model_by_name(name) ?? null) as T | null;
  }

  private get _range(): IBokehRange | null {
    return this._model('time');
  }

  /** The person has panned or zoomed: stop following, and ask for the detail of what is in view now. */
  private _moved(): void {
    const range = this._range;
    if (this._ours || !range) {
      return;
    }
    if (this._following) {
      this._following = false;
      this._refresh();
    }
    window.clearTimeout(this._settle);
    this._settle = window.setTimeout(() => {
      if (this._id) {
        const { start, end } = range;
        this._host.link.send({ type: 'range', watch: this._id, start, end, width: this._place.clientWidth });
      }
    }, SETTLE);
  }

  private readonly _recolor = (): void => {
    if ((this._host.theme ?? pageTheme()) !== this._theme) {
      void this.load();
    }
  };

  private readonly _all: HTMLElement;
  private readonly _button: HTMLElement;
  private readonly _colors = new MutationObserver(this._recolor);
  private _embedded: IEmbedded | null = null;
  private _ended = false;
  private _following = true;
  private _id = '';
  /** Pixels that the stream's lanes need. */
  private _least = 0;
  /** Whether there is more to come. */
  private _live = true;
  private _missed = false;
  private readonly _note = element('div', 'wb-Figure-note');
  private _ours = false;
  private _paused = false;
  private readonly _place = element('div', 'wb-Figure-host');
  private _queue: IPatch[][] = [];
  private _ready = false;
  private readonly _resized = new ResizeObserver(() => this._fill());
  private _round = 0;
  private readonly _seen = new IntersectionObserver(entries => {
    this._visible = entries[entries.length - 1].isIntersecting;
    this._drain();
  });
  private _said = '';
  private _settle = 0;
  private _status: IWatchStatus = {};
  private readonly _summary = element('span', 'wb-Figure-summary');
  private _theme: Theme = 'light';
  private _visible = false;
  private _whole: { start: number; end: number } | null = null;
  private _window: { start: number; end: number } | null = null;
}

function pageTheme(): Theme {
  const { body } = document;
  const isDark = body.dataset['jpThemeLight'] === 'false' || body.getAttribute(THEME_OF_VSCODE)?.includes('dark');
  // A page that leaves light or dark to the browser.
  const follows = getComputedStyle(body).colorScheme === 'light dark' && DARK.matches;
  return isDark || follows ? 'dark' : 'light';
}
