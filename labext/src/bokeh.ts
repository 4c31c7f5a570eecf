/** BokehJS, from the bokeh package beside our server extension: its version is always that of the figure. */
import type { Api } from './api';

/** What we use of a Bokeh model. */
export interface IBokehModel {
  document: IBokehDocument | null;
  setv(values: Record<string, unknown>): void;
  properties: Record<string, { change: { connect(slot: () => void): void } }>;
}

export interface IBokehSource extends IBokehModel {
  data: Record<string, unknown>;
  stream(columns: Record<string, unknown>, rollover?: number): void;
}

export interface IBokehRange extends IBokehModel {
  start: number;
  end: number;
}

export interface IBokehDocument {
  get_model_by_name(name: string): IBokehModel | null;
}

interface IViewManager {
  roots: { model: IBokehModel }[];
  clear(): void;
}

interface IBokeh {
  embed: { embed_item(item: object, target: HTMLElement): Promise<IViewManager> };
}

/** A figure on the page. */
export interface IEmbedded {
  document: IBokehDocument;
  dispose(): void;
}

const FILES = ['bokeh.min.js', 'bokeh-widgets.min.js'];
const loaded = new Map<string, Promise<IBokeh>>();

/** Draw a json_item into an element. */
export async function embed(api: Api, item: Record<string, unknown>, host: HTMLElement): Promise<IEmbedded> {
  const version = String((item['doc'] as { version?: string } | undefined)?.version ?? '');
  const bokeh = await load(api, version);
  const views = await bokeh.embed.embed_item(item, host);
  const { document } = views.roots[0].model;
  if (!document) {
    throw new Error('The figure came without a document.');
  }
  return {
    document,
    dispose: () => {
      views.clear();
      host.replaceChildren();
    }
  };
}

function load(api: Api, version: string): Promise<IBokeh> {
  let promise = loaded.get(version);
  if (!promise) {
    promise = fetchAndRun(api, version);
    promise.catch(() => loaded.delete(version));
    loaded.set(version, promise);
  }
  return promise;
}

/**
 * Run the files with an object of ours in the place of `window`: a Bokeh that Panel or a notebook loaded stays what it
 * is, and theirs never sees ours. A script tag with text runs at once, so nothing can come in between.
 */
async function fetchAndRun(api: Api, version: string): Promise<IBokeh> {
  const sources = await Promise.all(FILES.map(file => api.bokehScript(file, version)));
  const root: { Bokeh?: IBokeh } = {};
  const slot = '__dask_workbench_root__';
  const page = window as unknown as Record<string, unknown>;
  page[slot] = root;
  try {
    for (const source of sources) {
      const script = document.createElement('script');
      script.textContent = `(function () {\n${source}\n}).call(window.${slot});`;
      document.head.append(script);
      script.remove();
    }
  } finally {
    delete page[slot];
  }
  if (!root.Bokeh) {
    throw new Error(
      'BokehJS could not be run: the page’s Content-Security-Policy may forbid inline scripts.'
    );
  }
  return root.Bokeh;
}
