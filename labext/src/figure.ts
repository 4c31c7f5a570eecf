/** A tab that shows a cluster at work, the record of a run, or a comparison: a Bokeh figure fed with patches. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { IThemeManager, MainAreaWidget, ToolbarButton, WidgetTracker } from '@jupyterlab/apputils';
import { pauseIcon, runIcon, Toolbar, fastForwardIcon, fileIcon } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { kindAndName } from './api';
import { embed } from './bokeh';
import type { IBokehRange, IBokehSource, IEmbedded } from './bokeh';
import { watchIcon } from './icons';
import type { Model } from './model';
import { Commands, IModel } from './tokens';
import type { IPatch, IWatchStatus, StreamMessage, Watched } from './tokens';

/** Messages kept while the figure is paused or hidden; beyond it the server is asked for the whole again. */
const QUEUE = 1000;
/** The source that holds the stretch of time to show while one follows. */
const WINDOW = 'window';
/** Milliseconds after the last pan or zoom before the server is asked for the detail of what is in view. */
const SETTLE = 150;

/** Figures that this page has drawn. */
let figures = 0;

/** The figure itself. */
export class Figure extends Widget {
  readonly changed = new Signal<this, void>(this);
  /** One line about the cluster, for the toolbar. */
  summary = '';

  constructor(
    readonly watched: Watched,
    private _model: Model,
    private _theme: () => 'light' | 'dark'
  ) {
    super();
    this.addClass('wb-Figure');
    this.node.dataset['workbench'] = 'figure';
    this._host.className = 'wb-Figure-host';
    this._note.className = 'wb-Figure-note';
    this._note.setAttribute('role', 'status');
    this.node.append(this._host, this._note);
    _model.stream.message.connect(this._receive, this);
  }

  get paused(): boolean {
    return this._paused;
  }

  get following(): boolean {
    return this._following;
  }

  pause(paused: boolean): void {
    this._paused = paused;
    this._drain();
    this.changed.emit();
  }

  /** Keep the latest in view, or leave the view where it is. */
  follow(following: boolean): void {
    this._following = following;
    this._showLatest();
    this.changed.emit();
  }

  /** Draw it anew, for example in the colours of another theme. */
  async load(): Promise<void> {
    const round = ++this._round;
    this._unwatch();
    this._say('Loading …');
    const theme = this._theme();
    const range = this._range;
    const kept = range && !this._following ? { start: range.start, end: range.end } : null;
    // The server finds out what there is to see while the page gets ready to show it.
    this._ready = false;
    this._watch();
    try {
      const figure = await this._model.api.figure(this.watched, theme);
      if (round !== this._round || this.isDisposed) {
        return;
      }
      this._embedded?.dispose();
      const embedded = await embed(this._model.api, figure, this._host);
      if (round !== this._round || this.isDisposed) {
        embedded.dispose();
        return;
      }
      this._embedded = embedded;
    } catch (error) {
      if (round === this._round) {
        this._unwatch();
        this._say((error as Error).message);
      }
      return;
    }
    this._ready = true;
    this._say(this._message);
    this._listen();
    this._drain();
    if (kept) {
      // As a pan does: the server is asked for the detail of what is in view.
      this._range?.setv(kept);
    }
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._unwatch();
    this._embedded?.dispose();
    window.clearTimeout(this._settle);
    Signal.clearData(this);
    super.dispose();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._drain();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    if (!this._embedded) {
      void this.load();
    }
  }

  private _watch(): void {
    this._id = `figure-${++figures}`;
    this._queue = [];
    this._window = null;
    this._message = '';
    this._model.stream.watch(this._id, { ...this.watched, theme: this._theme() });
  }

  private _unwatch(): void {
    if (this._id) {
      this._model.stream.unwatch(this._id);
      this._id = '';
    }
  }

  private _receive(_: unknown, message: StreamMessage): void {
    if (message.type === 'state' || !this._id || message.watch !== this._id) {
      return;
    }
    if (message.type === 'patches') {
      this._queue.push(message.patches ?? []);
      this._show(message.status ?? null);
      this._drain();
    } else {
      this._message = message.message;
      this._say(message.message);
      if (message.type === 'gone') {
        this._unwatch();
      }
    }
  }

  private _show(status: IWatchStatus | null): void {
    if (status) {
      this.summary = status.summary ?? '';
      this._message = status.message ?? '';
      if (this._ready) {
        this._say(this._message);
      }
      this.changed.emit();
    }
  }

  /** Apply what has come, unless nobody sees it. */
  private _drain(): void {
    if (this._paused || !this.isVisible || !this._ready) {
      if (this._queue.length > QUEUE) {
        this._missed = true;
        this._queue = [];
      }
      return;
    }
    if (this._missed) {
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
  }

  private _apply(patch: IPatch): void {
    const source = this._embedded?.document.get_model_by_name(patch.source) as IBokehSource | null | undefined;
    if (!source) {
      return;
    }
    if (patch.mode === 'stream') {
      source.stream(patch.columns, patch.rollover ?? undefined);
    } else {
      source.data = patch.columns;
    }
    if (patch.source === WINDOW) {
      this._window = { start: Number(patch.columns['start'][0]), end: Number(patch.columns['end'][0]) };
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

  private get _range(): IBokehRange | null {
    return (this._embedded?.document.get_model_by_name('time') as IBokehRange | null | undefined) ?? null;
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
    if (this._following) {
      this._following = false;
      this.changed.emit();
    }
    window.clearTimeout(this._settle);
    this._settle = window.setTimeout(() => {
      if (this._id) {
        this._model.stream.range(this._id, range.start, range.end, this._host.clientWidth);
      }
    }, SETTLE);
  }

  private _say(sentence: string): void {
    this._note.textContent = sentence;
    this._note.hidden = !sentence;
  }

  private _embedded: IEmbedded | null = null;
  private _following = true;
  private readonly _host = document.createElement('div');
  private _id = '';
  private _message = '';
  private _missed = false;
  private readonly _note = document.createElement('div');
  private _ours = false;
  private _paused = false;
  private _queue: IPatch[][] = [];
  private _ready = false;
  private _round = 0;
  private _settle = 0;
  private _window: { start: number; end: number } | null = null;
}

/** The tab: the figure below a toolbar. */
function figureTab(figure: Figure, model: Model): MainAreaWidget<Figure> {
  const tab = new MainAreaWidget({ content: figure });
  const { watched } = figure;
  tab.id = tabId(watched);
  tab.title.icon = watchIcon;
  tab.title.closable = true;
  const [kind, name] = kindAndName(watched);
  tab.title.label = titled(model, name);
  tab.title.caption = watched.cluster ? `Tasks, CPU and memory of ${name}` : `What is kept of the ${kind} ${name}`;
  if (watched.cluster) {
    addLiveButtons(tab);
  } else {
    tab.toolbar.addItem(
      'report',
      new ToolbarButton({
        icon: fileIcon,
        label: 'Report',
        tooltip: 'Open it as a page in a new tab',
        onClick: () => window.open(model.api.reportUrl(watched), '_blank', 'noopener')
      })
    );
  }
  return tab;
}

function addLiveButtons({ content, toolbar }: MainAreaWidget<Figure>): void {
  const pause = new ToolbarButton({
    icon: pauseIcon,
    pressedIcon: runIcon,
    tooltip: 'Pause',
    pressedTooltip: 'Go on',
    dataset: { workbench: 'pause' },
    onClick: () => content.pause(!content.paused)
  });
  const follow = new ToolbarButton({
    icon: fastForwardIcon,
    tooltip: 'Follow: keep the latest in view',
    pressedTooltip: 'Following: a pan or zoom ends it',
    dataset: { workbench: 'follow' },
    onClick: () => content.follow(!content.following)
  });
  const summary = new Widget();
  summary.addClass('wb-Figure-summary');
  summary.node.dataset['workbench'] = 'summary';
  const refresh = () => {
    pause.pressed = content.paused;
    follow.pressed = content.following;
    summary.node.textContent = content.summary;
  };
  content.changed.connect(refresh);
  toolbar.addItem('pause', pause);
  toolbar.addItem('follow', follow);
  toolbar.addItem('spacer', Toolbar.createSpacerItem());
  toolbar.addItem('summary', summary);
  refresh();
}

/** A title, which says so where it is not of real GPUs. */
function titled(model: Model, title: string): string {
  return model.hardware?.simulated ? `SIMULATED · ${title}` : title;
}

function tabId(watched: Watched): string {
  return ['dask-workbench', ...kindAndName(watched)].join('-');
}

export const figurePlugin: JupyterFrontEndPlugin<void> = {
  id: 'dask-workbench:figure',
  description: 'Tabs that show a cluster at work, or the record of a run.',
  autoStart: true,
  requires: [IModel],
  optional: [IThemeManager, ILayoutRestorer],
  activate: activateFigures
};

function activateFigures(
  app: JupyterFrontEnd,
  model: Model,
  themes: IThemeManager | null,
  restorer: ILayoutRestorer | null
): void {
  const tracker = new WidgetTracker<MainAreaWidget<Figure>>({ namespace: 'dask-workbench' });
  const theme = () => (themes?.theme && !themes.isLight(themes.theme) ? 'dark' : 'light');
  app.commands.addCommand(Commands.watch, {
    label: args => (args['cluster'] ? `Watch ${args['cluster'] as string}` : 'Watch Cluster'),
    caption: 'Tasks, CPU and memory of a cluster as they go',
    icon: args => (args['isPalette'] ? undefined : watchIcon),
    isEnabled: args => toWatched(args) !== null || model.ready.length > 0,
    execute: args => {
      const watched = toWatched(args) ?? (model.target && { cluster: model.target.name });
      if (!watched) {
        return;
      }
      const open = tracker.find(tab => tab.id === tabId(watched));
      const tab = open ?? figureTab(new Figure(watched, model, theme), model);
      if (!open) {
        void tracker.add(tab);
        app.shell.add(tab, 'main', { mode: tracker.size > 1 ? 'tab-after' : 'split-right' });
      }
      app.shell.activateById(tab.id);
    }
  });
  themes?.themeChanged.connect(() => tracker.forEach(tab => void tab.content.load()));
  void restorer?.restore(tracker, {
    command: Commands.watch,
    args: tab => ({ ...tab.content.watched }),
    name: tab => tab.id
  });
}

function toWatched(args: object): Watched | null {
  const found = Object.entries(args).find(([kind, name]) => name && /^(cluster|run|comparison)$/.test(kind));
  return found ? Object.fromEntries([found]) : null;
}
