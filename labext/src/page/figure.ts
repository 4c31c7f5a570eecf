/**
 * A figure that Python makes and feeds: a cluster at work, or the record of a run. In a tab of Lab, in a notebook, or
 * wherever else there is an element and a channel to Python.
 */
import type { IFigure, IPatch, IWatchStatus, StreamMessage, Watched } from '../tokens';
import { embed } from './bokeh';
import type { IBokeh, IBokehPlot, IBokehRange, IBokehSource, IEmbedded } from './bokeh';
import { download } from './download';
import { element } from './element';

export type Theme = 'light' | 'dark';

/** What a figure needs of the place where it is. Messages for it are handed to `receive`. */
export interface IFigureChannel {
  /** To Python: `watch`, `unwatch`, `range`; see workbench/views/screen.py. */
  send(message: object): void;
  /** The figure without anything in it. */
  figure(watched: Watched, theme: Theme): Promise<IFigure>;
  /** BokehJS in the version that the figure needs. */
  bokeh(needed: IFigure['bokeh']): Promise<IBokeh>;
}

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

/** Figures that this page has drawn. */
let figures = 0;

export class Figure {
  readonly node = element('div', 'wb-Figure');
  /** Called when something has changed that a toolbar shows. */
  onChange: () => void = () => undefined;
  /** One line about the cluster, for a toolbar. */
  summary = '';
  paused = false;
  following = true;
  /** Whether there is more to come. */
  live = true;
  /** Whether what is drawn is all that is left of a cluster that has ended: Jupyter's server keeps nothing of it. */
  keeps = false;
  /** Whether the cluster has ended, so that what is drawn is its record. */
  ended = false;
  /** Whether there was nothing to draw. */
  failed = false;
  /** Whether the task stream grows into what is free of the place. */
  fills = false;

  constructor(
    readonly watched: Watched,
    private _channel: IFigureChannel,
    private _theme: () => Theme
  ) {
    this.node.dataset['workbench'] = 'figure';
    this._note.setAttribute('role', 'status');
    this.node.append(this._host, this._note);
    this._seen.observe(this.node);
    this._resized.observe(this._host);
  }

  /** Whether it has an axis of time, of which more may be shown. */
  get stretches(): boolean {
    return this._whole !== null;
  }

  pause(paused: boolean): void {
    this.paused = paused;
    this._drain();
    this.onChange();
  }

  /** Keep the latest in view, or leave the view where it is. */
  follow(following: boolean): void {
    this.following = following;
    this._showLatest();
    this.onChange();
  }

  /** Show all that has happened. */
  showAll(): void {
    if (this._whole) {
      // As a pan does, which asks for detail.
      this._range?.setv(this._whole);
    }
  }

  /** Download what is seen, as PNG. */
  async save(): Promise<void> {
    if (this._embedded) {
      download(await this._embedded.picture(), `${Object.values(this.watched)[0]}.png`);
    }
  }

  /** Draw it anew, for example in the colours of another theme. */
  async load(): Promise<void> {
    if (this.ended) {
      // What is drawn is all that is left of it.
      return;
    }
    const round = ++this._round;
    this.failed = false;
    this._unwatch();
    this._say('Loading …');
    const theme = this._theme();
    const range = this._range;
    const kept = range && !this.following ? { start: range.start, end: range.end } : null;
    // Python finds out what there is to see while the page gets ready to show it.
    this._ready = false;
    this.live = true;
    this._watch();
    try {
      const figure = await this._channel.figure(this.watched, theme);
      const bokeh = await this._channel.bokeh(figure.bokeh);
      if (round !== this._round) {
        return;
      }
      this._embedded?.dispose();
      const embedded = await embed(bokeh, figure.item, this._host);
      if (round !== this._round) {
        embedded.dispose();
        return;
      }
      this._embedded = embedded;
    } catch (error) {
      if (round === this._round) {
        this._unwatch();
        this.failed = true;
        this._say((error as Error).message);
      }
      return;
    }
    this._ready = true;
    this._say(this._message);
    this._listen();
    this._least = this._model<IBokehPlot>(STREAM)?.height ?? 0;
    if (this._host.firstElementChild) {
      this._resized.observe(this._host.firstElementChild);
    }
    this._drain();
    if (kept) {
      // As after a pan, the detail of the view is requested from Python.
      this._range?.setv(kept);
    }
  }

  /** Take in what Python says of figures, if it is of this one. */
  receive(message: StreamMessage): void {
    if (message.type === 'state' || message.type === 'answer' || !this._id || message.watch !== this._id) {
      return;
    }
    if (message.type === 'patches') {
      this._queue.push(message.patches ?? []);
      this._show(message.status ?? null);
      this._drain();
    } else {
      this._message = message.message;
      if (this._ready) {
        this._say(this._message);
      }
      if (message.type === 'gone') {
        this._unwatch();
        this.live = false;
        this._drain();
        this.ended = this.keeps && this._ready && Boolean(this.watched.cluster);
        this.node.classList.toggle('wb-mod-ended', this.ended);
      }
      this.onChange();
    }
  }

  dispose(): void {
    this._round += 1;
    this._unwatch();
    this._seen.disconnect();
    this._resized.disconnect();
    this._embedded?.dispose();
    window.clearTimeout(this._settle);
  }

  private _watch(): void {
    this._id = `figure-${++figures}`;
    this._queue = [];
    this._window = null;
    this._message = '';
    this._channel.send({ type: 'watch', watch: this._id, ...this.watched, theme: this._theme() });
  }

  private _unwatch(): void {
    if (this._id) {
      this._channel.send({ type: 'unwatch', watch: this._id });
      this._id = '';
    }
  }

  private _show(status: IWatchStatus | null): void {
    if (status) {
      this.summary = status.summary ?? '';
      this._message = status.message ?? '';
      if (this._ready) {
        this._say(this._message);
      }
      this.onChange();
    }
  }

  /** Apply what has come, unless nobody sees it. What was the last is drawn all the same. */
  private _drain(): void {
    if (!this._ready || (this.live && (this.paused || !this._visible))) {
      if (this._queue.length > QUEUE) {
        this._missed = true;
        this._queue = [];
      }
      return;
    }
    if (this._missed && this.live) {
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
    }
    if (!this.live) {
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
      const begins = !this._whole;
      this._whole = { start: first[0], end: last[0] };
      if (begins) {
        this.onChange();
      }
    } else if (source === STREAM) {
      this._least = columns['height'] as number;
      this._fill();
    }
  }

  /** Let the stream have what the plots below it leave of the place, or what its lanes need. */
  private _fill(): void {
    const [stream, root] = [this._model<IBokehPlot>(STREAM), this._host.firstElementChild];
    if (!this.fills || !stream || !root || !this._host.clientHeight) {
      return;
    }
    const { height } = stream;
    const free = this._host.clientHeight - (root as HTMLElement).offsetHeight;
    const wanted = Math.max(this._least, height + free);
    if (Math.abs(wanted - height) > SLIGHT) {
      stream.setv({ height: wanted });
    }
  }

  /** Move the time axis on, when it is to follow. */
  private _showLatest(): void {
    if (this.following && !this.paused && this._window) {
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

  private _listen(): void {
    const range = this._range;
    const moved = () => this._moved();
    range?.properties['start'].change.connect(moved);
    range?.properties['end'].change.connect(moved);
  }

  /** The person has panned or zoomed: stop following, and ask for the detail of what is in view now. */
  private _moved(): void {
    const range = this._range;
    if (this._ours || !range) {
      return;
    }
    if (this.following) {
      this.following = false;
      this.onChange();
    }
    window.clearTimeout(this._settle);
    this._settle = window.setTimeout(() => {
      if (this._id) {
        const { start, end } = range;
        this._channel.send({ type: 'range', watch: this._id, start, end, width: this._host.clientWidth });
      }
    }, SETTLE);
  }

  private _say(sentence: string): void {
    this._note.textContent = sentence;
    this._note.hidden = !sentence;
  }

  private _embedded: IEmbedded | null = null;
  private readonly _host = element('div', 'wb-Figure-host');
  private _id = '';
  /** Pixels that the stream's lanes need. */
  private _least = 0;
  private _message = '';
  private _missed = false;
  private readonly _note = element('div', 'wb-Figure-note');
  private _ours = false;
  private _queue: IPatch[][] = [];
  private _ready = false;
  private readonly _resized = new ResizeObserver(() => this._fill());
  private _round = 0;
  private readonly _seen = new IntersectionObserver(entries => {
    this._visible = entries[entries.length - 1].isIntersecting;
    this._drain();
  });
  private _settle = 0;
  private _visible = false;
  private _whole: { start: number; end: number } | null = null;
  private _window: { start: number; end: number } | null = null;
}
