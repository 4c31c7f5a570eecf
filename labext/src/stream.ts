/**
 * The push from the server: one WebSocket for the page, opened again when it breaks, and GET state instead of it
 * where something between browser and server blocks WebSockets.
 */
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { ApiError } from './api';
import type { Api, IState } from './api';
import type { Connection, StreamMessage, Watched } from './tokens';

/** Milliseconds between two polls. */
const POLL = 2000;
/** Milliseconds before the socket is tried again: first, and at most. */
const RETRY = [500, 15000];
/** Failed sockets in a row, while the server answers otherwise, before we say that something blocks them. */
const PATIENCE = 2;

type WatchRequest = Watched & { theme: string };

export class Stream implements IDisposable {
  constructor(private _api: Api) {}

  readonly message = new Signal<this, StreamMessage>(this);
  readonly connectionChanged = new Signal<this, Connection>(this);

  get connection(): Connection {
    return this._connection;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  /** Connect, and stay connected. */
  open(): void {
    this._connect();
  }

  dispose(): void {
    this._disposed = true;
    window.clearTimeout(this._retry);
    window.clearTimeout(this._poll);
    this._socket?.close();
    Signal.clearData(this);
  }

  /** Try at once, instead of after the pause. */
  retry(): void {
    this._failures = 0;
    window.clearTimeout(this._retry);
    if (!this._socket) {
      this._connect();
    }
  }

  /** Ask for the patches of a figure; asked for again by itself after a broken connection. */
  watch(id: string, request: WatchRequest): void {
    this._watches.set(id, request);
    this._send({ type: 'watch', watch: id, ...request });
  }

  unwatch(id: string): void {
    if (this._watches.delete(id)) {
      this._send({ type: 'unwatch', watch: id });
    }
  }

  /** Tell the server which part of a figure is in view, in milliseconds of time and in pixels. */
  range(id: string, start: number, end: number, width: number): void {
    this._send({ type: 'range', watch: id, start, end, width });
  }

  private _connect(): void {
    if (this._disposed) {
      return;
    }
    let socket: WebSocket;
    try {
      socket = this._api.socket();
    } catch {
      this._broken();
      return;
    }
    this._socket = socket;
    socket.onopen = () => {
      for (const [watch, request] of this._watches) {
        this._send({ type: 'watch', watch, ...request });
      }
    };
    socket.onmessage = event => this._receive(event as MessageEvent<string>);
    socket.onclose = () => {
      if (this._socket === socket) {
        this._broken();
      }
    };
  }

  private _receive(event: MessageEvent<string>): void {
    const message = JSON.parse(event.data) as StreamMessage;
    if (message.type === 'state') {
      this._failures = 0;
      this._cursor = message.cursor;
      window.clearTimeout(this._poll);
      this._become('pushed');
    }
    this.message.emit(message);
  }

  private _broken(): void {
    this._socket = null;
    if (this._disposed) {
      return;
    }
    this._failures += 1;
    const pause = Math.min(RETRY[0] * 2 ** (this._failures - 1), RETRY[1]);
    this._retry = window.setTimeout(() => this._connect(), pause);
    window.clearTimeout(this._poll);
    void this._ask();
  }

  private async _ask(): Promise<void> {
    if (!document.hidden) {
      await this._askState();
    }
    if (!this._disposed && this._connection !== 'pushed') {
      this._poll = window.setTimeout(() => void this._ask(), POLL);
    }
  }

  private async _askState(): Promise<void> {
    let state: IState;
    try {
      state = await this._api.state(this._cursor);
    } catch (error) {
      this._become(error instanceof ApiError && error.status === 404 ? 'missing' : 'down');
      return;
    }
    if (this._socket?.readyState === WebSocket.OPEN) {
      return;
    }
    this._cursor = state.cursor;
    this._become(this._failures >= PATIENCE ? 'polling' : 'connecting');
    this.message.emit({ type: 'state', budget: null, ...state });
  }

  private _become(connection: Connection): void {
    if (connection !== this._connection) {
      this._connection = connection;
      this.connectionChanged.emit(connection);
    }
  }

  private _send(message: object): void {
    if (this._socket?.readyState === WebSocket.OPEN) {
      this._socket.send(JSON.stringify(message));
    }
  }

  private _connection: Connection = 'connecting';
  private _cursor = 0;
  private _disposed = false;
  private _failures = 0;
  private _poll = 0;
  private _retry = 0;
  private _socket: WebSocket | null = null;
  private readonly _watches = new Map<string, WatchRequest>();
}
