/** The connection to Python: one WebSocket for the page, opened again when it breaks. */
import { Signal } from '@lumino/signaling';

import type { Api } from './api';
import { Actions } from './page/actions';
import type { Connection, StreamMessage } from './tokens';

/** Milliseconds before the socket is opened again, also where something must be changed first. */
const [RETRY, RARELY] = [1000, 15000];
/** Failed sockets in a row, while the server answers otherwise, after which something must block them. */
const PATIENCE = 2;
/** What the server answers to a request for the socket's address that isn't for a socket. */
const NO_SOCKET = [400, 426];

export class Stream {
  constructor(private _api: Api) {}

  readonly message = new Signal<this, StreamMessage>(this);
  readonly connectionChanged = new Signal<this, Connection>(this);
  connection: Connection = 'connecting';

  /** Connect, and stay connected. */
  open(): void {
    window.clearTimeout(this._retry);
    if (this._socket) {
      return;
    }
    const socket = this._api.socket();
    let opened = false;
    this._socket = socket;
    socket.onopen = () => {
      opened = true;
      this._send({ type: 'choose', choices: this._choices });
      this._watches.forEach(watch => this._send(watch));
      this._actions.open();
    };
    socket.onmessage = event => this._receive(JSON.parse((event as MessageEvent<string>).data) as StreamMessage);
    socket.onclose = () => void this._broken(opened);
  }

  /** What views and figures say: `watch`, `unwatch`, `choose`, `range`; the first three again after a broken connection. */
  send(message: object): void {
    const { type, watch, choices } = message as { type: string; watch: string; choices: object };
    if (type === 'watch') {
      this._watches.set(watch, message);
    } else if (type === 'unwatch') {
      this._watches.delete(watch);
    } else if (type === 'choose') {
      this._choices = { ...this._choices, ...choices };
    }
    this._send(message);
  }

  /** Have Python perform an action, which is never repeated by itself. */
  act(name: string, given: object = {}): Promise<unknown> {
    this.open();
    return this._actions.perform(name, given);
  }

  /** Have Python perform an action that only reads; after a broken connection it is sent again. */
  read<T>(name: string, given: object): Promise<T> {
    return this._actions.perform(name, given, true) as Promise<T>;
  }

  private _receive(message: StreamMessage): void {
    if (message.type === 'answer') {
      this._actions.receive(message);
      return;
    }
    if (message.type === 'state') {
      this._blocked = 0;
      this._become('open');
    }
    this.message.emit(message);
  }

  private async _broken(opened: boolean): Promise<void> {
    this._socket = null;
    this._actions.close('The Jupyter server does not answer, so nothing was done. Is it still running?');
    const status = await this._api.probe();
    if (this._socket) {
      return;
    }
    const answers = NO_SOCKET.includes(status);
    this._blocked = answers && !opened ? this._blocked + 1 : 0;
    const blocked = this._blocked >= PATIENCE;
    this._become(status === 404 ? 'missing' : !answers ? 'down' : blocked ? 'blocked' : 'connecting');
    this._retry = window.setTimeout(() => this.open(), status === 404 || blocked ? RARELY : RETRY);
  }

  private _become(connection: Connection): void {
    if (connection !== this.connection) {
      this.connection = connection;
      this.connectionChanged.emit(connection);
    }
  }

  private _send(message: object): void {
    if (this._socket?.readyState === WebSocket.OPEN) {
      this._socket.send(JSON.stringify(message));
    }
  }

  private readonly _actions = new Actions(message => this._send(message));
  private _blocked = 0;
  private _choices: object = {};
  private _retry = 0;
  private _socket: WebSocket | null = null;
  private readonly _watches = new Map<string, object>();
}
