/** What commands, badges and tabs know of clusters and runs. Knows no DOM; says `changed` when it did. */
import { Notification } from '@jupyterlab/apputils';
import { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import type { IHost } from './page/host';
import { Server, Stream } from './page/stream';
import type { ICluster, IRun, StreamMessage } from './tokens';

export class Model {
  readonly stream: Stream;
  readonly changed = new Signal<this, void>(this);
  readonly message = new Signal<this, StreamMessage>(this);

  clusters: ICluster[] = [];
  runs: IRun[] = [];
  /** Whether a GPU is simulated, which every title then says. */
  simulated = false;

  /** Connects to the server, and stays connected. */
  constructor(readonly trans: TranslationBundle) {
    const settings = ServerConnection.makeSettings();
    const { baseUrl, wsUrl, token, appendToken } = settings;
    const request = (address: string) => ServerConnection.makeRequest(address, {}, settings);
    const server = new Server(baseUrl, wsUrl, appendToken ? token : '', request);
    this.stream = new Stream(server);
    this.stream.onMessage = message => this._receive(message);
    this.stream.onConnection = () => this.changed.emit();
    this.stream.connect();
  }

  /** For views and figures. */
  get host(): IHost {
    return this.stream.host;
  }

  /** The youngest cluster that is ready. */
  get target(): ICluster | undefined {
    const ready = this.clusters.filter(each => each.status === 'ready');
    return ready.sort((one, other) => other.created - one.created)[0];
  }

  /** Show what went wrong that belongs to no place of the page, in place of the last such. */
  report(problem: string): void {
    Notification.dismiss(this._problem);
    this._problem = Notification.error(problem, { autoClose: false });
  }

  private _receive(message: StreamMessage): void {
    if (message.type === 'state') {
      this.clusters = message.clusters;
      this.runs = message.runs;
      this.simulated = message.simulated;
      this.changed.emit();
    } else if (message.type === 'error' && !message.watch) {
      this.report(message.message);
    }
    this.message.emit(message);
  }

  private _problem = 'none';
}
