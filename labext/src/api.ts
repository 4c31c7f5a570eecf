/** The REST calls of our server extension. No other file fetches. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { IChange, IFigure, IState, Watched, Wish } from './tokens';

const ROOT = 'workbench/api';

/** An answer other than 2xx, with the server's own sentence. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number
  ) {
    super(message);
  }
}

export interface IPolled extends IChange {
  cursor?: string;
  gone?: string | null;
}

export class Api {
  readonly settings = ServerConnection.makeSettings();

  /** The cell that connects a notebook to a cluster. */
  async cell(cluster: string): Promise<string> {
    return (await this._json<{ cell: string }>('GET', ['clusters', cluster])).cell;
  }

  /** Do what a verb of the REST interface does, at a path below it. */
  async send(verb: string, path: string, body: object): Promise<unknown> {
    const parts = path.split('/').map(decodeURIComponent);
    return this._json(verb, parts, verb === 'DELETE' ? undefined : body);
  }

  /** Address of the page that tells of a run or a comparison, to be opened in a tab of the browser. */
  reportUrl({ run, comparison }: Watched): string {
    return this._withToken(this._url(run ? ['runs', run, 'report'] : ['comparisons', comparison ?? '', 'page']));
  }

  /** Address of a page below the Jupyter server, such as Dask's own dashboard, to be opened in a browser tab. */
  pageUrl(path: string): string {
    return this._withToken(URLExt.join(this.settings.baseUrl, path));
  }

  /** All that changes by itself; the answer is held back, up to `wait` seconds, until there is more than at `since`. */
  state(since: number, wait: number): Promise<IState> {
    return this._json('POST', ['state'], { since, wait });
  }

  /** A figure without anything in it. */
  figure(watched: Watched, theme: string): Promise<IFigure> {
    return this._json('GET', ['figures', ...kindAndName(watched)], undefined, { theme });
  }

  /** What has changed in a figure or a view, where the stream can't say it. */
  patches(wish: Wish, body: object): Promise<IPolled> {
    if ('view' in wish) {
      return this._json('POST', ['views', wish.view], body);
    }
    const { theme, ...watched } = wish;
    return this._json('POST', ['figures', ...kindAndName(watched), 'patches'], { theme, ...body });
  }

  /** Text of a script at an address that the server gave. */
  async script(url: string): Promise<string> {
    const address = new URL(url, this.settings.baseUrl).href;
    const response = await ServerConnection.makeRequest(address, {}, this.settings);
    if (!response.ok) {
      throw await errorOf(response);
    }
    return response.text();
  }

  /** A WebSocket to the stream of states and patches. */
  socket(): WebSocket {
    const url = URLExt.join(this.settings.wsUrl, ROOT, 'stream');
    return new this.settings.WebSocket(this._withToken(url));
  }

  private _url(path: string[], query: Record<string, string> = {}): string {
    const url = URLExt.join(this.settings.baseUrl, ROOT, ...path.map(encodeURIComponent));
    return url + (Object.keys(query).length ? URLExt.objectToQueryString(query) : '');
  }

  private _withToken(url: string): string {
    const token = this.settings.appendToken && this.settings.token;
    return token ? `${url}${url.includes('?') ? '&' : '?'}token=${encodeURIComponent(token)}` : url;
  }

  private async _json<T>(method: string, path: string[], body?: unknown, query?: Record<string, string>): Promise<T> {
    const init: RequestInit = { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(this._url(path, query), init, this.settings);
    } catch {
      throw new ApiError('The Jupyter server does not answer. Is it still running?', 0);
    }
    if (!response.ok) {
      throw await errorOf(response);
    }
    return (await response.json()) as T;
  }
}

/** 'cluster', 'run' or 'comparison', and which. */
export function kindAndName(watched: Watched): string[] {
  return Object.entries(watched)[0];
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text();
  try {
    const answer = JSON.parse(text) as { message?: string };
    if (answer.message && answer.message !== response.statusText) {
      return new ApiError(answer.message, response.status);
    }
  } catch {
    // Not our JSON: a proxy or Jupyter itself answered.
  }
  return new ApiError(`The Jupyter server answered ${response.status} ${response.statusText}.`, response.status);
}
