/** What travels between the server and this extension, and what our plugins offer one another. */
import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';

import type { Model } from './model';

export interface IProfile {
  name: string;
  title: string;
  summary: string;
  available: boolean;
  reason: string | null;
}

export interface IBudget {
  limit: number;
  reserve: number;
  promised: number;
  left: number;
}

export interface IHardware {
  profiles: IProfile[];
  budget: IBudget;
  /** Whether a GPU is simulated, which every title then says. */
  simulated: boolean;
  /** Sections of the sidebar that hold one fragment each, after those that it has by itself. */
  sections: { id: string; title: string }[];
}

export interface IEnvironment {
  python: string;
  name: string;
  title: string;
  problems: string[];
}

export interface IClusterSpec {
  profile: string;
  n_workers: number;
  threads_per_worker: number;
  memory_limit: number;
  protocol: string;
  python: string | null;
  idle_timeout: number | null;
  devices: string[];
  why: string[];
}

export interface IPlan {
  spec: IClusterSpec;
  /** What empty fields come to. */
  hints: Record<string, string>;
  description: string;
  code: string;
  budget: IBudget | null;
  problem: string | null;
  /** What a person agrees to who starts it. */
  consent: string | null;
}

export type ClusterStatus = 'starting' | 'ready' | 'stopping' | 'failed' | 'lost' | 'unknown';

export interface ICluster {
  name: string;
  spec: IClusterSpec;
  status: ClusterStatus;
  stage: 'preparing' | 'scheduler' | 'workers' | 'ready';
  n_workers: number;
  n_workers_expected: number;
  adaptive: [number, number] | null;
  scheduler_address: string | null;
  created: number;
  expires_at: number | null;
  clients: string[];
  message: string | null;
  description: string;
  memory_used: number | null;
}

/** The part of JSON Schema that our forms draw. */
export interface ISchemaField {
  type?: string | string[];
  anyOf?: ISchemaField[];
  $ref?: string;
  enum?: unknown[];
  title?: string;
  description?: string;
  default?: unknown;
  unit?: string;
  examples?: unknown[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
}

export interface ISchema {
  properties?: Record<string, ISchemaField>;
  required?: string[];
  $defs?: Record<string, ISchemaField>;
}

export interface IWorkload {
  name: string;
  title: string;
  summary: string;
  help: string;
  schema: ISchema;
  source: string;
  presets: IPreset[];
}

/** Parameters that somebody has used before. */
export interface IPreset {
  name: string;
  title: string;
  source: string;
  parameters: FormValues;
  /** Kind of cluster that the text is about. */
  profile: string | null;
}

export interface INeeds {
  parameters: Record<string, unknown>;
  notes: string[];
  needs: Record<string, unknown>;
  fits: boolean | null;
  verdict: 'fits' | 'will spill' | "won't fit" | "can't run" | null;
  sentence: string;
  /** Code for a notebook; null without a cluster. */
  cell: string | null;
  /** Whether measuring the cluster would tell how long it takes. */
  calibrate?: boolean;
}

export type RunStatus = 'starting' | 'running' | 'done' | 'failed' | 'cancelled' | 'lost';

export interface IRun {
  id: string;
  workload: string;
  status: RunStatus;
  cluster: string | null;
}

/** A figure before anything is in it, and the scripts that draw it. */
export interface IFigure {
  item: Record<string, unknown>;
  bokeh: { version: string; scripts: string[] };
}

/** New columns for one data source of a figure. */
export interface IPatch {
  source: string;
  mode: 'stream' | 'replace';
  columns: Record<string, unknown[]>;
  rollover?: number | null;
}

/** What a figure tab shows, by its name: a cluster as it works, the record of a run, or a comparison. */
export type Watched = { cluster?: string; run?: string; comparison?: string };

/** What the stream brings: the patches of a figure, or the HTML of a fragment. */
export type Wish = (Watched & { theme: string }) | { fragment: string };

export type StreamMessage =
  | { type: 'state'; clusters: ICluster[]; runs: IRun[]; budget: IBudget | null; cursor: number }
  | { type: 'patches'; watch: string; patches?: IPatch[]; status?: IWatchStatus | null; html?: string }
  | { type: 'gone'; watch: string; message: string }
  | { type: 'error'; watch?: string; message: string };

/** A watched cluster, all workers together. */
export interface IWatchStatus {
  /** One line of numbers. */
  summary?: string;
  /** Why there is nothing to see yet. */
  message?: string | null;
}

/** Values of a form; a field that is absent is left to the server. */
export type FormValues = Record<string, unknown>;

/** How the page hears from the server. */
export type Connection = 'connecting' | 'pushed' | 'polling' | 'down' | 'missing';

/** A notebook that is open in this Lab. */
export interface IOpenNotebook {
  id: string;
  name: string;
  kernel: string | null;
  active: boolean;
  /** Show this notebook. */
  activate(): void;
}

export type CellType = 'code' | 'markdown';

export interface INotebooks {
  readonly changed: ISignal<INotebooks, void>;
  /** Notebooks that are open, in the order of their tabs. */
  open(): IOpenNotebook[];
  /** Add a cell that holds `source` to the active notebook, or to a new one, and run it when asked to. */
  insert(source: string, options: { run: boolean; type?: CellType }): Promise<void>;
}

/** Clusters, workloads and runs of this person, kept up to date. */
export const IModel = new Token<Model>('dask-workbench:IModel');

/** The notebooks that are open, and a way to put a cell into them. */
export const INotebooks = new Token<INotebooks>('dask-workbench:INotebooks');

/** Ids of our commands. */
export const Commands = {
  open: 'dask-workbench:open',
  runs: 'dask-workbench:open-runs',
  start: 'dask-workbench:start-default',
  stopAll: 'dask-workbench:stop-all',
  watch: 'dask-workbench:watch',
  connect: 'dask-workbench:connect',
  cell: 'dask-workbench:cell'
} as const;
