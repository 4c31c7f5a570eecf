/**
 * A figure that Python makes and feeds: a cluster at work, or the record of a run. In a view, in a notebook, or
 * wherever else there is an element and a channel to Python.
 */
import type { IFigure, IPatch, IWatchStatus, StreamMessage, Watched } from '../tokens';
import { apply, embed, load } from './bokeh';
import type { IBokehModel, IBokehRange, IEmbedded } from './bokeh';
import { download, element, whenSeen } from './browser';
import type { IHost, IShown, Theme } from './host';

/** Messages kept while the figure is paused or hidden; beyond it the whole is requested from Python again. */
const QUEUE = 1000;
/** The source that holds the stretch of time to show while one follows. */
const WINDOW = 'window';
/** Milliseconds after the last pan or zoom before the detail of the view is requested from Python. */
const SETTLE = 150;

const DARK = window.matchMedia('(prefers-color-scheme: dark)');
const THEME_OF_VSCODE = 'data-vscode-theme-kind';

/** Figures that this page has drawn. */
let figures = 0;

/** Class of a figure that is the record of a cluster which has ended. */
const ENDED = 'wb-mod-ended';

export class Figure implements IShown {
  /** Draw a figure at the end of a place. */
  constructor(
    place: HTMLElement,
    private _watched: Watched,
    private _host: IHost
  ) {
    const bar = element('div', 'wb-Figure-bar');
    const button = (hook: string, label: string, act: () => void) => {
      const made = element('button', '', label);
      made.dataset['workbench'] = hook;
      made.onclick = act;
      bar.append(made);
      return made;
    };
    this._button = button('follow', 'Pause', () => this._toggle());
    // A pan as any other: it asks for detail.
    this._all = button('show-all', 'Show all', () => this._whole && this._range?.setv(this._whole));
    this._picture = button('save-picture', 'Save as PNG', () => void this._save());
    bar.append(this._summary);
    this._node.dataset['workbench'] = 'figure';
    this._note.setAttribute('role', 'status');
    this._node.append(bar, this._note, this._place);
    place.append(this._node);
    this._leave = whenSeen(this._node, isSeen => {
      this._isSeen = isSeen;
      this._drain();
    });
    this._colors.observe(document.body, {
      attributes: true,
      attributeFilter: ['data-jp-theme-light', THEME_OF_VSCODE]
    });
    DARK.addEventListener('change', this._recolor);
    void this._load();
  }

  /** Show a message in place of the summary of the cluster, or with an empty text that summary again. */
  say(text: string): void {
    this._said = text;
    this._refresh();
  }

  /** Take in what Python says of figures, if it is of this one. */
  receive(received: object): void {
    const message = received as StreamMessage | { type: 'load' };
    if (message.type === 'load') {
      void this._load();
      return;
    }
    if (message.type === 'state' || message.type === 'answer' || !this._id || message.watch !== this._id) {
      return;
    }
    if (message.type === 'patches') {
      this._queue?.push(message.patches ?? []);
      this._status = message.status ?? this._status;
    } else {
      this._status = { ...this._status, message: message.message };
    }
    if (message.type === 'gone') {
      this._unwatch();
      if (this._embedded && this._host.forgets && this._watched.cluster) {
        this._node.classList.add(ENDED);
        this._host.onFigure?.('ended');
      }
    }
    this._drain();
    this._refresh();
  }

  dispose(): void {
    this._round += 1;
    this._leave();
    this._unwatch();
    this._colors.disconnect();
    DARK.removeEventListener('change', this._recolor);
    this._embedded?.dispose();
    window.clearTimeout(this._settle);
  }

  /** Draw it anew, for example in the colours of another theme. */
  private async _load(): Promise<void> {
    if (this._node.classList.contains(ENDED)) {
      return;
    }
    const round = ++this._round;
    const range = this._mode === 'follow' ? null : this._range;
    const kept = range && { start: range.start, end: range.end };
    if (this._mode === 'pause') {
      this._mode = 'stay';
    }
    this._embedded?.dispose();
    this._embedded = null;
    this._problem = '';
    this._unwatch();
    const theme = (this._theme = this._host.theme ?? pageTheme());
    // Python finds out what there is to see while the page gets ready to show it.
    this._watch();
    this._refresh();
    try {
      const figure = await this._host.link.read<IFigure>('figure', { ...this._watched, theme });
      const bokeh = await load(figure.bokeh, address => this._host.script(address));
      const embedded = await embed(bokeh, figure.item, this._place);
      if (round !== this._round) {
        embedded.dispose();
        return;
      }
      this._embedded = embedded;
    } catch (error) {
      if (round === this._round) {
        this._unwatch();
        this._problem = (error as Error).message;
        this._refresh();
        this._host.onFigure?.('failed');
      }
      return;
    }
    ['start', 'end'].forEach(edge => this._range?.properties[edge].change.connect(() => this._moved()));
    this._drain();
    if (kept) {
      // As after a pan, the detail of the view is requested from Python.
      this._range?.setv(kept);
    }
    this._refresh();
  }

  private async _save(): Promise<void> {
    download(await this._embedded!.picture(), `${Object.values(this._watched)[0]}.png`);
  }

  private _toggle(): void {
    this._mode = this._mode === 'follow' ? 'pause' : 'follow';
    this._drain();
    this._showLatest();
    this._refresh();
  }

  private _refresh(): void {
    this._button.textContent = this._mode === 'follow' ? 'Pause' : 'Follow';
    this._button.hidden = !this._id || !this._watched.cluster;
    this._all.hidden = !this._whole;
    this._picture.hidden = !this._embedded;
    this._summary.textContent = this._said || ((this._watched.cluster && this._status.summary) ?? '');
    this._note.textContent = this._problem || (this._embedded ? (this._status.message ?? '') : 'Loading …');
    this._note.hidden = !this._note.textContent;
  }

  private _watch(): void {
    this._id = `figure-${++figures}`;
    this._queue = [];
    this._window = null;
    this._status = { summary: this._status.summary };
    this._host.link.send({ type: 'watch', watch: this._id, ...this._watched, theme: this._theme });
  }

  private _unwatch(): void {
    if (this._id) {
      this._host.link.send({ type: 'unwatch', watch: this._id });
      this._id = '';
    }
  }

  /** Apply what has come, unless nobody sees it. What was the last is drawn all the same. */
  private _drain(): void {
    if (!this._embedded || (this._id && (this._mode === 'pause' || !this._isSeen))) {
      if (this._queue && this._queue.length > QUEUE) {
        this._queue = null;
      }
      return;
    }
    if (!this._queue && this._id) {
      this._unwatch();
      this._watch();
      return;
    }
    const patches = this._queue?.flat() ?? [];
    this._queue = [];
    patches.forEach(patch => this._apply(patch));
    if (patches.length) {
      this._showLatest();
      this._refresh();
    }
    if (!this._id) {
      // It says what is to come, and nothing is.
      this._model('empty')?.setv({ visible: false });
    }
  }

  private _apply(patch: IPatch): void {
    this._ours = true;
    apply(this._embedded!.document, patch);
    this._ours = false;
    if (patch.source === WINDOW) {
      const { start, end, first, last } = patch.columns as Record<string, number[]>;
      this._window = { start: start[0], end: end[0] };
      this._whole = { start: first[0], end: last[0] };
    }
  }

  /** Move the time axis on, when it is to follow. */
  private _showLatest(): void {
    if (this._mode === 'follow' && this._window) {
      this._ours = true;
      this._range?.setv(this._window);
      this._ours = false;
    }
  }

  private _model<T extends IBokehModel = IBokehModel>(name: string): T | null {
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
    if (this._mode === 'follow') {
      this._mode = 'stay';
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
      void this._load();
    }
  };

  private readonly _all: HTMLElement;
  private readonly _button: HTMLElement;
  private readonly _colors = new MutationObserver(this._recolor);
  /** What is drawn; null while it is loaded. */
  private _embedded: IEmbedded | null = null;
  /** Name of what Python sends; '' when nothing more is to come. */
  private _id = '';
  private _isSeen = false;
  private readonly _leave: () => void;
  /** Whether the time axis moves on, or only what is drawn does, or nothing. */
  private _mode: 'follow' | 'stay' | 'pause' = 'follow';
  private readonly _node = element('div', 'wb-Figure');
  private readonly _note = element('div', 'wb-Figure-note');
  private _ours = false;
  private readonly _picture: HTMLElement;
  private readonly _place = element('div', 'wb-Figure-host');
  /** Why nothing could be drawn. */
  private _problem = '';
  /** What is to be drawn; null when it was too much. */
  private _queue: IPatch[][] | null = [];
  private _round = 0;
  private _said = '';
  private _settle = 0;
  private _status: IWatchStatus = {};
  private readonly _summary = element('span', 'wb-Figure-summary');
  private _theme: Theme = 'light';
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
