/** What commands, badges and tabs know of clusters and runs. Knows no DOM; says `changed` when it did. */
import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Signal } from '@lumino/signaling';

import { Api } from './api';
import { load } from './page/bokeh';
import type { IFigureChannel } from './page/figure';
import { Stream } from './page/stream';
import { IModel } from './tokens';
import type { Connection, ICluster, IRun, StreamMessage } from './tokens';

/** Milliseconds for which Lab's layout waits for what there is. */
const PATIENCE = 3000;

export class Model {
  readonly api = new Api();
  readonly stream = new Stream(this.api);
  readonly changed = new Signal<this, void>(this);
  readonly connectionChanged = new Signal<this, Connection>(this);
  readonly message = new Signal<this, StreamMessage>(this);

  /** Connects figures to Python. */
  readonly channel: IFigureChannel = {
    send: message => this.stream.link.send(message),
    figure: (watched, theme) => this.stream.link.read('figure', { ...watched, theme }),
    bokeh: needed => load(needed, url => this.api.script(url))
  };

  /** Kept when the server has first said what there is, or doesn't say it for a while. */
  readonly known = new Promise<void>(resolve => {
    this._isKnown = resolve;
    window.setTimeout(resolve, PATIENCE);
  });

  clusters: ICluster[] = [];
  runs: IRun[] = [];
  /** Whether a GPU is simulated, which every title then says. */
  simulated = false;
  /** What went wrong that belongs to no place of the page. */
  problem: string | null = null;

  /** Clusters that can take work. */
  get ready(): ICluster[] {
    return this.clusters.filter(each => each.status === 'ready');
  }

  /** The youngest cluster that is ready. */
  get target(): ICluster | null {
    return this.ready.reduce<ICluster | null>(
      (best, each) => (best && best.created > each.created ? best : each),
      null
    );
  }

  /** Take a problem off the screen. */
  dismiss(): void {
    this.problem = null;
    this.changed.emit();
  }

  /** Connect to the server, and stay connected. */
  open(): void {
    this.stream.onMessage = message => this._receive(message);
    this.stream.onConnection = connection => {
      this.connectionChanged.emit(connection);
      this.changed.emit();
    };
    this.stream.open();
  }

  /** Show what went wrong that belongs to no place of the page. */
  report(problem: string): void {
    this.problem = problem;
    this.changed.emit();
  }

  declare private _isKnown: () => void;

  private _receive(message: StreamMessage): void {
    if (message.type === 'state') {
      this.clusters = message.clusters.map(each => ({ ...each, clients: each.clients ?? [] }));
      this.runs = message.runs;
      this.simulated = message.simulated;
      this._isKnown();
      this.changed.emit();
    } else if (message.type === 'error' && !message.watch) {
      this.report(message.message);
    }
    this.message.emit(message);
  }
}

export const modelPlugin: JupyterFrontEndPlugin<Model> = {
  id: 'dask-workbench:model',
  description: 'Keeps clusters, workloads and runs up to date.',
  autoStart: true,
  provides: IModel,
  activate: () => {
    const model = new Model();
    model.open();
    return model;
  }
};
