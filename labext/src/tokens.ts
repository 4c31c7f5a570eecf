/** What travels between the server and this extension, and the ids of our commands. */
import type { IAnswer } from './page/link';

export interface ICluster {
  name: string;
  status: 'starting' | 'ready' | 'stopping' | 'failed' | 'lost' | 'unknown';
  created: number;
  /** Dask clients of notebooks that are connected, once the cluster has been asked. */
  clients?: string[];
}

export type RunStatus = 'starting' | 'running' | 'done' | 'failed' | 'cancelled' | 'lost';

export interface IRun {
  id: string;
  /** What a person called it, else what its workload is called. */
  title: string;
  /** Seconds since the epoch; null before it began. */
  started: number | null;
  status: RunStatus;
  cluster: string | null;
  /** How long it took, of one that is done. */
  seconds?: number | null;
}

/** A figure before anything is in it, and the scripts that draw it. */
export interface IFigure {
  item: Record<string, unknown>;
  bokeh: { version: string; scripts: string[] };
}

/** New columns for one data source of a figure, or properties of another of its models; `source` is its name. */
export interface IPatch {
  source: string;
  mode: 'stream' | 'replace' | 'set';
  columns: Record<string, unknown>;
  rollover?: number | null;
}

/** What a figure tab shows, by its name: a cluster as it works, or the record of a run. */
export type Watched = { cluster?: string; run?: string };

/** A watched cluster, all workers together. */
export interface IWatchStatus {
  /** One line of numbers. */
  summary?: string;
  /** Why there is nothing to see yet. */
  message?: string | null;
}

export type StreamMessage =
  /** What changes by itself. */
  | { type: 'state'; clusters: ICluster[]; runs: IRun[]; simulated: boolean }
  /** What has changed in a figure or a view. */
  | { type: 'patches'; watch: string; patches?: IPatch[]; status?: IWatchStatus | null; html?: string }
  | { type: 'gone'; watch: string; message: string }
  | IAnswer
  | { type: 'error'; watch?: string; message: string };

/** State of the socket to Python; `missing`: the server has no extension of ours. */
export type Connection = 'connecting' | 'open' | 'blocked' | 'down' | 'missing';

/** Ids of our commands. */
export const Commands = {
  open: 'dask-workbench:open',
  tab: 'dask-workbench:open-tab',
  view: 'dask-workbench:view',
  section: 'dask-workbench:section',
  start: 'dask-workbench:start',
  run: 'dask-workbench:run',
  compare: 'dask-workbench:compare',
  stopAll: 'dask-workbench:stop-all',
  watch: 'dask-workbench:watch',
  connect: 'dask-workbench:connect',
  cell: 'dask-workbench:cell',
  notebook: 'dask-workbench:notebook',
  workload: 'dask-workbench:make-workload',
  look: 'dask-workbench:look-at-file',
  svd: 'dask-workbench:svd-of-file',
  mean: 'dask-workbench:mean-of-file'
} as const;
