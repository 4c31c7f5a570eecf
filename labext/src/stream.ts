/**
 * The push from the server: one WebSocket for the page, opened again when it breaks. Where something between browser
 * and server blocks WebSockets, the same messages come from asking again and again.
 */
import { Signal } from '@lumino/signaling';

import { ApiError } from './api';
import type { Api } from './api';
import type { Connection, IState, StreamMessage, Wish } from './tokens';

/** Milliseconds before the state is asked for again. */
const POLL = 1000;
/** Seconds for which the server may hold an answer back until something changes. */
const HELD = 2;
/** Milliseconds before the socket is tried again: first, and at most. */
const RETRY = [500, 15000];
/** Failed sockets in a row, while the server answers otherwise, before we say that something blocks them. */
const PATIENCE = 2;

/** The part of a figure that is in view, in milliseconds of time and in pixels. */
interface IRange {
  start: number;
  end: number;
  width: number;
}

interface IWatch {
  request: Wish;
  /** What the server calls this figure while it is polled. */
  cursor?: string;
  range?: IRange;
}

export class Stream {
  constructor(private _api: Api) {}

  readonly message = new Signal<this, StreamMessage>(this);
  readonly connectionChanged = new Signal<this, Connection>(this);
  connection: Connection = 'connecting';

  /** Connect, and stay connected: the socket is tried again when it breaks. */
  open(): void {
    window.clearTimeout(this._retry);
    if (this._socket) {
      return;
    }
    const socket = this._api.socket();
    this._socket = socket;
    socket.onopen = () => {
      this._send({ type: 'choose', choices: this._choices });
      this._watches.forEach(({ request }, watch) => this._send({ type: 'watch', watch, ...request }));
    };
    socket.onmessage = event => this._receive(JSON.parse((event as MessageEvent<string>).data) as StreamMessage);
    socket.onclose = () => this._broken();
  }

  /** What views and figures say: `watch`, `unwatch`, `choose`, `range`; after a broken connection it is said again. */
  send(message: object): void {
    const { type, watch, choices, ...request } = message as { type: string; watch: string; choices: object };
    if (type === 'watch') {
      this._watches.set(watch, { request: request as unknown as Wish });
    } else if (type === 'unwatch') {
      this._watches.delete(watch);
    } else if (type === 'range') {
      Object.assign(this._watches.get(watch) ?? {}, { range: request });
    } else {
      this._choices = { ...this._choices, ...choices };
    }
    this._send(message);
  }

  private _receive(message: StreamMessage): void {
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
    this._failures += 1;
    const pause = Math.min(RETRY[0] * 2 ** (this._failures - 1), RETRY[1]);
    this._retry = window.setTimeout(() => this.open(), pause);
    if (!this._polling) {
      void this._pollState();
    }
  }

  /** Ask for the state until the socket brings it again. */
  private async _pollState(): Promise<void> {
    window.clearTimeout(this._poll);
    this._polling = true;
    if (!document.hidden) {
      await Promise.all([this._readState(), ...[...this._watches].map(each => this._readPatches(...each))]);
    }
    this._polling = false;
    if (this.connection !== 'pushed') {
      const pause = this.connection === 'missing' ? RETRY[1] : POLL;
      this._poll = window.setTimeout(() => void this._pollState(), pause);
    }
  }

  private async _readState(): Promise<void> {
    // Figures move, so nobody waits for the state while one is open.
    const wait = this.connection === 'polling' && this._watches.size === 0 ? HELD : 0;
    let state: IState;
    try {
      state = await this._api.state(this._cursor, wait);
    } catch (error) {
      this._become(error instanceof ApiError && error.status === 404 ? 'missing' : 'down');
      return;
    }
    if (this.connection === 'down') {
      // What failed while nothing answered says nothing of what blocks sockets.
      this._failures = 1;
      this.open();
    }
    if (this._failures === 0) {
      return;
    }
    this._become(this._failures >= PATIENCE ? 'polling' : 'connecting');
    if (state.cursor !== this._cursor) {
      this._cursor = state.cursor;
      this.message.emit({ type: 'state', ...state });
    }
  }

  private async _readPatches(id: string, watch: IWatch): Promise<void> {
    const { request, range, cursor } = watch;
    if (this.connection !== 'polling') {
      return;
    }
    watch.range = undefined;
    try {
      const body = 'view' in request ? { choices: this._choices } : { cursor, range };
      const answer = await this._api.patches(request, body);
      watch.cursor = answer.cursor;
      this.message.emit({ type: 'patches', watch: id, ...answer });
      if (answer.gone) {
        this.message.emit({ type: 'gone', watch: id, message: answer.gone });
      }
    } catch (error) {
      this.message.emit({ type: 'gone', watch: id, message: (error as Error).message });
    }
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

  private _choices: object = {};
  private _cursor = 0;
  private _failures = 0;
  private _poll = 0;
  private _polling = false;
  private _retry = 0;
  private _socket: WebSocket | null = null;
  private readonly _watches = new Map<string, IWatch>();
}
