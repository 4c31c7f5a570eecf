/** BokehJS in Lab, from the bokeh package beside our server extension: its version is always that of the figure. */
import type { Api } from './api';
import { run } from './page/bokeh';
import type { IBokeh } from './page/bokeh';

const loaded = new Map<string, Promise<IBokeh>>();

/** Fetch the scripts and run them; once for all figures. */
export function load(api: Api, scripts: string[]): Promise<IBokeh> {
  const key = scripts.join();
  let promise = loaded.get(key);
  if (!promise) {
    promise = Promise.all(scripts.map(url => api.script(url))).then(run);
    promise.catch(() => loaded.delete(key));
    loaded.set(key, promise);
  }
  return promise;
}
