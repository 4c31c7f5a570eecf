/** What travels between the server and this extension, and what our plugins offer one another. */
import { Token } from '@lumino/coreutils';

import type { Model } from './model';
import type { Notebooks } from './notebook';
import type { IAnswer } from './page/link';

export type ClusterStatus = 'starting' | 'ready' | 'stopping' | 'failed' | 'lost' | 'unknown';

export interface ICluster {
  name: string;
  status: ClusterStatus;
  created: number;
  /** Dask clients of notebooks that are connected. */
  clients: string[];
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
  /** How far one is that goes on: '37 %', 'pass 4', 'checking'. */
  far?: string;
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

/** What changes by itself: clusters and runs. */
export interface IState {
  clusters: ICluster[];
  runs: IRun[];
  simulated: boolean;
}

/** What has changed in a figure or a view. */
export interface IChange {
  patches?: IPatch[];
  status?: IWatchStatus | null;
  html?: string;
}

export type StreamMessage =
  | ({ type: 'state' } & IState)
  | ({ type: 'patches'; watch: string } & IChange)
  | { type: 'gone'; watch: string; message: string }
  | IAnswer
  | { type: 'error'; watch?: string; message: string };

/** A watched cluster, all workers together. */
export interface IWatchStatus {
  /** One line of numbers. */
  summary?: string;
  /** Why there is nothing to see yet. */
  message?: string | null;
}

/** State of the socket to Python; `missing`: the server has no extension of ours. */
export type Connection = 'connecting' | 'open' | 'blocked' | 'down' | 'missing';

export type CellType = 'code' | 'markdown';

/** Clusters, workloads and runs of this person, kept up to date. */
export const IModel = new Token<Model>('dask-workbench:IModel');

/** The notebooks that are open, and a way to put a cell into them. */
export const INotebooks = new Token<Notebooks>('dask-workbench:INotebooks');

/** Under which our words are translated. */
export const DOMAIN = 'dask_workbench';

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
