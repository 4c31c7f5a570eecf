/** The connection to a server: one WebSocket for the page, opened again when it breaks. */
import type { Connection, StreamMessage } from '../tokens';
import { openPage } from './browser';
import type { IHost } from './host';
import { Link } from './link';

const STREAM = 'workbench/api/stream';

/** Milliseconds before the socket is opened again, also where something must be changed first. */
const [RETRY, RARELY] = [1000, 15000];
/** Failed sockets in a row, while the server answers otherwise, after which something must block them. */
const PATIENCE = 2;
/** What the server answers to a request for the socket's address that isn't for a socket. */
const NO_SOCKET = [400, 426];

/** A server with our extension. Addresses are those of Jupyter, or of the page itself. */
export class Server {
  constructor(
    private _base: string,
    private _sockets = _base.replace(/^http/, 'ws'),
    private _token = '',
    private _request = (address: string): Promise<Response> => fetch(address)
  ) {}

  /** A WebSocket to Python. */
  socket(): WebSocket {
    return new WebSocket(this._withToken(this._sockets, STREAM));
  }

  /** The status with which it answers a plain request for the socket's address; 0 if it doesn't answer. */
  probe(): Promise<number> {
    return this._request(new URL(STREAM, this._base).href).then(
      response => response.status,
      () => 0
    );
  }

  /** Text of a script. */
  async script(path: string): Promise<string> {
    const response = await this._request(new URL(path, this._base).href);
    if (!response.ok) {
      throw new Error(`The server answered ${response.status} ${response.statusText}.`);
    }
    return response.text();
  }

  /** Open a page in a tab of the browser, such as Dask's own dashboard, or save it as a file of this name. */
  open(path: string, name?: string): void {
    openPage(this._withToken(this._base, path), name);
  }

  private _withToken(base: string, path: string): string {
    const url = new URL(path, base);
    if (this._token) {
      url.searchParams.append('token', this._token);
    }
    return url.href;
  }
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
    () => this.connect()
  );

  /** For views and figures. */
  readonly host: IHost;

  constructor(private _server: Server) {
    const open = (path: string, name?: string) => _server.open(path, name);
    this.host = { link: this.link, script: path => _server.script(path), open, forgets: true };
  }

  /** Connect, and stay connected. */
  connect(): void {
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
    this._retry = window.setTimeout(() => this.connect(), status === 404 || blocked ? RARELY : RETRY);
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
