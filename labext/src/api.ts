/** The addresses of our server extension. No other file fetches. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { Watched } from './tokens';

const ROOT = 'workbench/api';
const STREAM = `${ROOT}/stream`;

export class Api {
  readonly settings = ServerConnection.makeSettings();

  /** Address of the report of a run, to be opened in a tab of the browser. */
  reportUrl(run: string): string {
    return this.pageUrl(URLExt.join(ROOT, 'runs', encodeURIComponent(run), 'report'));
  }

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

/** 'cluster' or 'run', and which. */
export function kindAndName(watched: Watched): string[] {
  return Object.entries(watched)[0];
}
