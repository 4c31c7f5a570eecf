/** BokehJS as figures use it, wherever it came from. */
import type { IPatch } from '../tokens';

/** What we use of a Bokeh model. */
export interface IBokehModel {
  setv(values: Record<string, unknown>, options?: { sync: boolean }): void;
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

interface IView {
  model: { document: IBokehDocument };
  /** All of it as it looks now, drawn once more. */
  export(type: 'png'): { to_blob(): Promise<Blob> };
}

interface IViewManager {
  roots: IView[];
  clear(): void;
}

export interface IBokeh {
  version: string;
  documents: IBokehDocument[];
  embed: { embed_item(item: object, target: HTMLElement): Promise<IViewManager> };
}

/** A figure on the page. */
export interface IEmbedded {
  document: IBokehDocument;
  /** What is seen, as PNG. */
  picture(): Promise<Blob>;
  dispose(): void;
}

/** Draw a figure, as Bokeh's JSON, into an element. */
export async function embed(bokeh: IBokeh, item: object, host: HTMLElement): Promise<IEmbedded> {
  const views = await bokeh.embed.embed_item(item, host);
  const [root] = views.roots;
  const { document } = root.model;
  return {
    document,
    picture: () => root.export('png').to_blob(),
    dispose: () => {
      views.clear();
      host.replaceChildren();
      const place = bokeh.documents.indexOf(document);
      if (place >= 0) {
        bokeh.documents.splice(place, 1);
      }
    }
  };
}

/** Change a figure as Python says; what it lacks is left out. */
export function apply(document: IBokehDocument, { source, mode, columns, rollover }: IPatch): void {
  const model = document.get_model_by_name(source) as IBokehSource | null;
  if (!model) {
    return;
  }
  if (mode === 'set') {
    model.setv(columns);
  } else if (mode === 'stream') {
    model.stream(columns, rollover ?? undefined);
  } else {
    model.data = columns;
  }
}

/** BokehJS by its version, for all figures of a page: each widget of a notebook has a copy of this module. */
const LOADED = '__dask_workbench_bokeh__';

/** BokehJS, run once for all figures of a page; `text` returns a script at its address. */
export function load(
  { version, scripts }: { version: string; scripts: string[] },
  text: (address: string) => Promise<string>
): Promise<IBokeh> {
  const page = window as unknown as Record<string, Map<string, Promise<IBokeh>> | undefined>;
  const loaded = (page[LOADED] ??= new Map<string, Promise<IBokeh>>());
  let promise = loaded.get(version);
  if (!promise) {
    promise = Promise.all(scripts.map(text)).then(run);
    promise.catch(() => loaded.delete(version));
    loaded.set(version, promise);
  }
  return promise;
}

/**
 * Run BokehJS's files with an object of ours in the place of `window`: a Bokeh that Panel or a notebook loaded stays
 * what it is, and theirs never sees ours. A script tag with text runs at once, so nothing can come in between.
 */
export function run(sources: string[]): IBokeh {
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
    throw new Error('BokehJS could not be run: the page’s Content-Security-Policy may forbid inline scripts.');
  }
  return root.Bokeh;
}
