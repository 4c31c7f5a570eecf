/** The addresses of our server extension. No other file fetches. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

const ROOT = 'workbench/api';
const STREAM = `${ROOT}/stream`;

export class Api {
  readonly settings = ServerConnection.makeSettings();

  /** Address of a page below the Jupyter server, such as Dask's own dashboard, to be opened in a browser tab. */
  pageUrl(path: string): string {
    return this._withToken(URLExt.join(this.settings.baseUrl, path));
  }

  /** Text of a script at an address that the server gave. */
  async script(url: string): Promise<string> {
    const address = new URL(url, this.settings.baseUrl).href;
    const response = await ServerConnection.makeRequest(address, {}, this.settings);
    if (!response.ok) {
      throw new Error(`The Jupyter server answered ${response.status} ${response.statusText}.`);
    }
    return response.text();
  }

  /** A WebSocket to Python. */
  socket(): WebSocket {
    return new this.settings.WebSocket(this._withToken(URLExt.join(this.settings.wsUrl, STREAM)));
  }

  /** The status with which the server answers a plain request for the socket's address; 0 if it doesn't answer. */
  async probe(): Promise<number> {
    const url = URLExt.join(this.settings.baseUrl, STREAM);
    return ServerConnection.makeRequest(url, {}, this.settings).then(
      response => response.status,
      () => 0
    );
  }

  private _withToken(url: string): string {
    const token = this.settings.appendToken && this.settings.token;
    return token ? `${url}${url.includes('?') ? '&' : '?'}token=${encodeURIComponent(token)}` : url;
  }
}
