/** What the sidebar, the commands and the notebooks show and ask for. Knows no DOM; says `changed` when it did. */
import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Signal } from '@lumino/signaling';

import { Api, ApiError } from './api';
import { Stream } from './stream';
import { IModel } from './tokens';
import type {
  Connection,
  FormValues,
  IBudget,
  ICluster,
  IEnvironment,
  IHardware,
  INeeds,
  IPlan,
  IPreset,
  IRun,
  ISchema,
  IWorkload,
  StreamMessage
} from './tokens';

/** Milliseconds after the last keystroke before the server is asked what a choice means. */
const DEBOUNCE = 150;
/** What the server leaves out of a cluster that has none of it. */
const EMPTY = {
  stage: 'ready' as const,
  adaptive: null,
  expires_at: null,
  clients: [],
  message: null,
  memory_used: null
};
/** Runs the sidebar keeps. */
export const LATEST = 50;

/** A sentence about what went wrong, and the field it belongs to. */
export interface IProblem {
  message: string;
  parameter: string | null;
}

export class Model {
  readonly api = new Api();
  readonly stream = new Stream(this.api);
  readonly changed = new Signal<this, void>(this);

  hardware: IHardware | null = null;
  environments: IEnvironment[] = [];
  budget: IBudget | null = null;
  clusters: ICluster[] = [];
  runs: IRun[] = [];
  workloads: IWorkload[] = [];

  profile = 'cpu';
  /** Name for the next cluster; empty to be given one. */
  name = '';
  plan: IPlan | null = null;
  workload: string | null = null;
  needs: INeeds | null = null;
  /** What the last calibration found. */
  calibrated: { name: string; found: string } | null = null;

  get connection(): Connection {
    return this.stream.connection;
  }

  /** Whether the lists of the server have arrived. */
  get loaded(): boolean {
    return this.hardware !== null;
  }

  get choices(): FormValues {
    return this._choices.get(this.profile) ?? {};
  }

  get schema(): ISchema | null {
    return this._schemas.get(this.profile) ?? null;
  }

  get selectedWorkload(): IWorkload | null {
    return this.workloads.find(each => each.name === this.workload) ?? null;
  }

  get parameters(): FormValues {
    return this._parameters.get(this.workload ?? '') ?? {};
  }

  /** Clusters that can take work. */
  get ready(): ICluster[] {
    return this.clusters.filter(each => each.status === 'ready');
  }

  /** The cluster that workloads run on: the chosen one while it is there, else the youngest that is ready. */
  get target(): ICluster | null {
    const ready = this.ready;
    return (
      ready.find(each => each.name === this._target) ??
      ready.reduce<ICluster | null>((best, each) => (best && best.created > each.created ? best : each), null)
    );
  }

  /** What went wrong at a place: 'server', 'plan', 'start', 'needs', 'run', 'cluster <name>'. */
  problem(place: string): IProblem | null {
    return this._problems.get(place) ?? null;
  }

  /** Take a problem off the screen. */
  dismiss(place: string): void {
    this._problems.delete(place);
    this.changed.emit();
  }

  /** Whether a request from that place is under way. */
  busy(place: string): boolean {
    return this._busy.has(place);
  }

  cluster(name: string): ICluster | null {
    return this.clusters.find(each => each.name === name) ?? null;
  }

  run(id: string): IRun | null {
    return this.runs.find(each => each.id === id) ?? null;
  }

  /** Connect to the server and read what doesn't change by itself. */
  open(): void {
    this.stream.message.connect((_, message) => this._receive(message));
    this.stream.connectionChanged.connect(() => this._connected());
    this.stream.open();
  }

  /** Read hardware, workloads and environments again. */
  async refresh(): Promise<void> {
    await this._do('hardware', async () => {
      const hardware = await this.api.hardware();
      this.hardware = hardware;
      this.budget = hardware.budget;
      const offered = hardware.profiles.filter(each => each.available);
      if (!offered.some(each => each.name === this.profile) && offered.length) {
        this.profile = offered[0].name;
      }
      this.workloads = await this.api.workloads();
    });
    if (this.hardware) {
      await this.selectProfile(this.profile);
    }
  }

  async selectProfile(profile: string): Promise<void> {
    this.profile = profile;
    this.plan = null;
    this._replan(0);
    await this._do('profile', async () => {
      if (!this._schemas.has(profile)) {
        this._schemas.set(profile, await this.api.profileSchema(profile));
      }
    });
  }

  choose(field: string, value: unknown): void {
    this._choices.set(this.profile, changedValues(this.choices, field, value));
    this._replan();
    this.changed.emit();
  }

  setName(name: string): void {
    this.name = name;
    this._problems.delete('start');
    this.changed.emit();
  }

  async loadEnvironments(): Promise<void> {
    await this._do('environments', async () => {
      this.environments = await this.api.environments();
    });
  }

  /** Start what is planned. Past the budget only with `force`. */
  async start(force = false): Promise<ICluster | null> {
    return this._do('start', async () => {
      // The GPUs that are seen to be proposed, though others may be idler by now.
      const devices = this.plan?.spec.devices.join();
      const choices = { ...(devices ? { devices } : {}), ...this.choices };
      const cluster = await this.api.startCluster(
        this.profile,
        choices,
        this.name.trim(),
        force,
        Boolean(this.plan?.consent)
      );
      this.name = '';
      this._upsertCluster(cluster);
      return cluster;
    });
  }

  /** Start a cluster of a profile as the server plans it by default. */
  async startDefault(profile = 'cpu'): Promise<ICluster | null> {
    return this._do('start', async () => {
      const cluster = await this.api.startCluster(profile, {}, '', false, false);
      this._upsertCluster(cluster);
      return cluster;
    });
  }

  /** Stop a cluster, cancel its start, or dismiss it when it has failed. */
  async stop(name: string): Promise<void> {
    await this._do(`cluster ${name}`, () => this.api.stopCluster(name));
  }

  async stopAll(): Promise<void> {
    await this._do('clusters', () => this.api.stopAll());
  }

  async scale(name: string, n_workers: number): Promise<void> {
    await this._do(`cluster ${name}`, () => this.api.scale(name, { n_workers }));
  }

  async adapt(name: string, minimum: number, maximum: number): Promise<void> {
    await this._do(`cluster ${name}`, () => this.api.scale(name, { minimum, maximum }));
  }

  async restartWorkers(name: string): Promise<void> {
    await this._do(`cluster ${name}`, () => this.api.restartWorkers(name));
  }

  /** Measure a cluster, and ask again how long the workload would take there. */
  async calibrate(name: string): Promise<void> {
    const found = await this._do(`calibrate ${name}`, () => this.api.calibrate(name));
    if (found) {
      this.calibrated = { name, found };
      this._review(0);
    }
  }

  selectWorkload(name: string | null): void {
    this.workload = name;
    this.needs = null;
    this._problems.delete('run');
    this._problems.delete('needs');
    this._review(0);
    this.changed.emit();
  }

  setParameter(field: string, value: unknown): void {
    if (this.workload) {
      this._parameters.set(this.workload, changedValues(this.parameters, field, value));
      this._problems.delete('run');
      this._review();
      this.changed.emit();
    }
  }

  /** The experiment of a text that the parameters begin from. */
  get preset(): IPreset | null {
    return this.selectedWorkload?.presets.find(each => each.name === this.parameters.preset) ?? null;
  }

  /** Begin from what somebody has used before, on such a cluster if that is known, or from the defaults. */
  usePreset(name: string): void {
    this._parameters.set(this.workload ?? '', name ? { preset: name } : {});
    const profile = this.preset?.profile;
    if (profile && this.hardware?.profiles.some(each => each.name === profile && each.available)) {
      this._target = this.ready.find(each => each.spec.profile === profile)?.name ?? this._target;
      void this.selectProfile(profile);
    }
    this.selectWorkload(this.workload);
  }

  setTarget(cluster: string): void {
    this._target = cluster;
    this._review(0);
    this.changed.emit();
  }

  /** Run the selected workload on the target cluster, past the warnings that are shown of it if there are any. */
  async submit(): Promise<IRun | null> {
    const { workload, target, needs } = this;
    if (!workload || !target) {
      return null;
    }
    return this._do('run', async () => {
      const tooBig = needs?.verdict === "won't fit";
      const run = await this.api.run(workload, this.parameters, target.name, tooBig);
      this._upsertRun(run);
      return run;
    });
  }

  /** Ask the server for what a fragment's button stands for. */
  async send(request: string, body: object): Promise<void> {
    await this._do('server', () => this.api.send(request, body));
  }

  private _receive(message: StreamMessage): void {
    if (message.type === 'state') {
      const before = fingerprint(this.clusters);
      this.clusters = message.clusters.map(each => ({ ...EMPTY, ...each }));
      this.runs = message.runs.slice(0, LATEST);
      this.budget = message.budget ?? this.budget;
      if (fingerprint(this.clusters) !== before) {
        this._replan();
        this._review();
      }
      this.changed.emit();
    } else if (message.type === 'error' && !message.watch) {
      this._note('server', { message: message.message, parameter: null });
      this.changed.emit();
    }
  }

  private _connected(): void {
    if (!this.loaded && !this.busy('hardware') && this.connection !== 'missing' && this.connection !== 'down') {
      void this.refresh();
    }
    this.changed.emit();
  }

  private _upsertCluster(cluster: ICluster): void {
    if (!this.cluster(cluster.name)) {
      this.clusters = [...this.clusters, cluster];
    }
  }

  private _upsertRun(run: IRun): void {
    if (!this.run(run.id)) {
      this.runs = [run, ...this.runs].slice(0, LATEST);
    }
  }

  private _replan(pause = DEBOUNCE): void {
    window.clearTimeout(this._planTimer);
    this._planTimer = window.setTimeout(() => void this._plan(), pause);
  }

  private async _plan(): Promise<void> {
    if (!this.hardware?.profiles.some(each => each.name === this.profile && each.available)) {
      return;
    }
    const { profile, choices } = this;
    this._planAsked.abort();
    const { signal } = (this._planAsked = new AbortController());
    const answer = await settled(this.api.plan(profile, choices, signal));
    if (signal.aborted) {
      return;
    }
    this.plan = answer.value ?? this.plan;
    this.budget = answer.value?.budget ?? this.budget;
    this._note('plan', answer.problem);
    this.changed.emit();
  }

  private _review(pause = DEBOUNCE): void {
    window.clearTimeout(this._needsTimer);
    this._needsTimer = window.setTimeout(() => void this._needs(), pause);
  }

  private async _needs(): Promise<void> {
    const { workload } = this;
    if (!workload) {
      return;
    }
    this._needsAsked.abort();
    const { signal } = (this._needsAsked = new AbortController());
    const answer = await settled(this.api.needs(workload, this.parameters, this.target?.name ?? null, signal));
    if (signal.aborted) {
      return;
    }
    this.needs = answer.value;
    this._note('needs', answer.problem);
    this.changed.emit();
  }

  /** Do what was asked for at a place; a problem is kept there and null is given back. */
  private async _do<T>(place: string, action: () => Promise<T>): Promise<T | null> {
    this._busy.add(place);
    this._problems.delete(place);
    this.changed.emit();
    const answer = await settled(action());
    this._busy.delete(place);
    this._note(place, answer.problem);
    this.changed.emit();
    return answer.value;
  }

  private _note(place: string, problem: IProblem | null): void {
    if (problem) {
      this._problems.set(place, problem);
    } else {
      this._problems.delete(place);
    }
  }

  private readonly _busy = new Set<string>();
  private readonly _choices = new Map<string, FormValues>();
  private readonly _parameters = new Map<string, FormValues>();
  private readonly _problems = new Map<string, IProblem>();
  private readonly _schemas = new Map<string, ISchema>();
  private _needsAsked = new AbortController();
  private _needsTimer = 0;
  private _planAsked = new AbortController();
  private _planTimer = 0;
  private _target: string | null = null;
}

/** Whether a notebook's kernel is among the clients of a cluster. */
export function isOn(kernel: string | null, cluster: ICluster): boolean {
  return kernel !== null && cluster.clients.some(client => client.includes(`kernel-${kernel}`));
}

export function isActive(run: IRun): boolean {
  return run.status === 'starting' || run.status === 'running';
}

interface ISettled<T> {
  value: T | null;
  problem: IProblem | null;
}

async function settled<T>(promise: Promise<T>): Promise<ISettled<T>> {
  try {
    return { value: await promise, problem: null };
  } catch (error) {
    if (!(error instanceof ApiError)) {
      throw error;
    }
    // Sentences about a parameter begin with its name.
    const parameter = error.parameter ?? error.message.split(/\W/, 1)[0];
    return { value: null, problem: { message: error.message, parameter } };
  }
}

/** Values with one field set, or left to the server when it is emptied. */
function changedValues(values: FormValues, field: string, value: unknown): FormValues {
  const { [field]: _, ...rest } = values;
  return value === undefined || value === '' ? rest : { ...rest, [field]: value };
}

/** What of the clusters decides plans and needs. */
function fingerprint(clusters: ICluster[]): string {
  return clusters
    .map(each => [each.name, each.status, each.n_workers_expected, each.spec.memory_limit].join())
    .join(';');
}

export const modelPlugin: JupyterFrontEndPlugin<Model> = {
  id: 'dask-workbench:model',
  description: 'Keeps clusters, workloads and runs up to date.',
  autoStart: true,
  provides: IModel,
  activate: () => {
    const model = new Model();
    model.open();
    return model;
  }
};
