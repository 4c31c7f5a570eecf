/** The connection to a server: one WebSocket for the page, opened again when it breaks. */
import type { Connection, StreamMessage } from '../tokens';
import { Link } from './link';

/** Milliseconds before the socket is opened again, also where something must be changed first. */
const [RETRY, RARELY] = [1000, 15000];
/** Failed sockets in a row, while the server answers otherwise, after which something must block them. */
const PATIENCE = 2;
/** What the server answers to a request for the socket's address that isn't for a socket. */
const NO_SOCKET = [400, 426];

/** What we use of a server. */
export interface IServer {
  /** A WebSocket to Python. */
  socket(): WebSocket;
  /** The status with which it answers a plain request for the socket's address; 0 if it doesn't answer. */
  probe(): Promise<number>;
}

export class Stream {
  /** Called with each message but answers. */
  onMessage: (message: StreamMessage) => void = () => undefined;
  /** Called when `connection` has changed. */
  onConnection: (connection: Connection) => void = () => undefined;
  connection: Connection = 'connecting';
  readonly link = new Link(
    message => {
      if (this._socket?.readyState === WebSocket.OPEN) {
        this._socket.send(JSON.stringify(message));
      }
    },
    () => this.open()
  );

  constructor(private _server: IServer) {}

  /** Connect, and stay connected. */
  open(): void {
    window.clearTimeout(this._retry);
    if (this._socket) {
      return;
    }
    const socket = this._server.socket();
    let opened = false;
    this._socket = socket;
    socket.onopen = () => {
      opened = true;
      this.link.open();
    };
    socket.onmessage = event => this._receive(JSON.parse((event as MessageEvent<string>).data) as StreamMessage);
    socket.onclose = () => void this._broken(opened);
  }

  private _receive(message: StreamMessage): void {
    if (message.type === 'answer') {
      this.link.receive(message);
      return;
    }
    if (message.type === 'state') {
      this._blocked = 0;
      this._become('open');
    }
    this.onMessage(message);
  }

  private async _broken(opened: boolean): Promise<void> {
    this._socket = null;
    this.link.close('The Jupyter server does not answer, so nothing was done. Is it still running?');
    const status = await this._server.probe();
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
      this.onConnection(connection);
    }
  }

  private _blocked = 0;
  private _retry = 0;
  private _socket: WebSocket | null = null;
}
