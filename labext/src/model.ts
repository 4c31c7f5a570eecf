/** What commands, badges and tabs know of clusters and runs. Knows no DOM; says `changed` when it did. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { PromiseDelegate } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';

import { Api } from './api';
import { openPage } from './page/browser';
import type { IHost } from './page/host';
import { Stream } from './page/stream';
import type { Connection, ICluster, IRun, StreamMessage } from './tokens';

/** Milliseconds for which Lab's layout waits for what there is. */
const PATIENCE = 3000;

export class Model {
  readonly api = new Api();
  readonly stream = new Stream(this.api);
  readonly changed = new Signal<this, void>(this);
  readonly connectionChanged = new Signal<this, Connection>(this);
  readonly message = new Signal<this, StreamMessage>(this);

  /** For views and figures. */
  readonly host: IHost = {
    link: this.stream.link,
    script: url => this.api.script(url),
    open: (path, name) => openPage(this.api.pageUrl(path), name),
    translate: words => this.trans.__(words),
    forgets: true
  };

  /** Resolved when the server has first said what there is, or doesn't say it for a while. */
  readonly known = new PromiseDelegate<void>();

  clusters: ICluster[] = [];
  runs: IRun[] = [];
  /** Whether a GPU is simulated, which every title then says. */
  simulated = false;
  /** What went wrong that belongs to no place of the page. */
  problem: string | null = null;

  /** Connects to the server, and stays connected. */
  constructor(readonly trans: TranslationBundle) {
    window.setTimeout(() => this.known.resolve(), PATIENCE);
    this.stream.onMessage = message => this._receive(message);
    this.stream.onConnection = connection => {
      this.connectionChanged.emit(connection);
      this.changed.emit();
    };
    this.stream.open();
  }

  /** The youngest cluster that is ready. */
  get target(): ICluster | undefined {
    const ready = this.clusters.filter(each => each.status === 'ready');
    return ready.sort((one, other) => other.created - one.created)[0];
  }

  /** Take a problem off the screen. */
  dismiss(): void {
    this.problem = null;
    this.changed.emit();
  }

  /** Show what went wrong that belongs to no place of the page. */
  report(problem: string): void {
    this.problem = problem;
    this.changed.emit();
  }

  private _receive(message: StreamMessage): void {
    if (message.type === 'state') {
      this.clusters = message.clusters;
      this.runs = message.runs;
      this.simulated = message.simulated;
      this.known.resolve();
      this.changed.emit();
    } else if (message.type === 'error' && !message.watch) {
      this.report(message.message);
    }
    this.message.emit(message);
  }
}
