/** The sidebar: what stands in the way of hearing from the server, then the sections. */
import { ReactWidget } from '@jupyterlab/apputils';
import type { IStateDB } from '@jupyterlab/statedb';
import type { Message } from '@lumino/messaging';

import { workbenchIcon } from '../icons';
import { isActive, LATEST } from '../model';
import type { Model } from '../model';
import type { Connection, ICluster, INotebooks, Watched } from '../tokens';
import { ClustersSection } from './clusters';
import { HardwareSection } from './hardware';
import { Button, Live, Section } from './parts';
import { WorkloadsSection } from './workloads';
import { Fragment, h } from './h';

/** Where the folded sections are kept between two visits. */
const FOLDED = 'dask-workbench:folded';

export interface ISectionState {
  open: boolean;
  onToggle: (id: string) => void;
}

/** What the sidebar asks of the rest of Lab. */
export interface IActions {
  /** Add the cell that connects the notebook, and run it. */
  connect(cluster: ICluster): void;
  /** Add a cell to the notebook. */
  insert(code: string): void;
  watch(watched: Watched): void;
}

export class Sidebar extends ReactWidget {
  constructor(
    private _model: Model,
    private _notebooks: INotebooks,
    private _actions: IActions,
    private _memory: IStateDB | null
  ) {
    super();
    this.id = 'dask-workbench';
    this.addClass('wb-Sidebar');
    this.title.icon = workbenchIcon;
    this.title.caption = 'Workbench: Dask clusters, workloads and runs';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Workbench');
    _model.changed.connect(this._refresh, this);
    _notebooks.changed.connect(this._refresh, this);
    this._recalled = this._recall();
  }

  /** Unfold a section and show its beginning. */
  reveal(section: string): void {
    void this._recalled.then(() => {
      this._fold(section, false);
      window.requestAnimationFrame(() => {
        this.node.querySelector(`[data-workbench="section-${section}"]`)?.scrollIntoView({ block: 'start' });
      });
    });
  }

  dispose(): void {
    window.clearTimeout(this._clock);
    super.dispose();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.update();
  }

  protected render(): JSX.Element {
    const model = this._model;
    const now = Date.now() / 1000;
    const folded = this._folded;
    const state = (id: string): ISectionState => ({ open: !folded?.has(id), onToggle: this._toggle });
    const shared = { model, notebooks: this._notebooks, actions: this._actions, now };
    this._tick();
    this.toggleClass('wb-mod-simulated', Boolean(model.hardware?.simulated));
    return (
      <>
        <Banner model={model} />
        {folded && model.connection !== 'missing' && (
          <>
            <HardwareSection {...shared} section={state('hardware')} />
            <ClustersSection {...shared} section={state('clusters')} />
            <WorkloadsSection {...shared} section={state('workloads')} />
            <Section {...state('runs')} id="runs" title="Runs" note={counted(model.runs.length)}>
              <Live name="runs" />
            </Section>
            {model.hardware?.sections.map(({ id, title }) => (
              <Section {...state(id)} key={id} id={id} title={title}>
                <Live name={id} />
              </Section>
            ))}
          </>
        )}
      </>
    );
  }

  /** Drawing costs nothing while nobody looks. */
  private _refresh(): void {
    if (this.isVisible) {
      this.update();
    }
  }

  /** Draw again when a clock on the screen has to move. */
  private _tick(): void {
    const { runs, clusters } = this._model;
    const fast = runs.some(isActive) || clusters.some(each => each.expires_at !== null);
    window.clearTimeout(this._clock);
    this._clock = window.setTimeout(() => this._refresh(), fast ? 1000 : 30000);
  }

  private readonly _toggle = (id: string): void => this._fold(id, !this._folded?.has(id));

  private _fold(id: string, fold: boolean): void {
    const folded = new Set(this._folded);
    if (fold) {
      folded.add(id);
    } else {
      folded.delete(id);
    }
    this._folded = folded;
    void this._memory?.save(FOLDED, [...folded]);
    this.update();
  }

  /** Not awaited by who makes the sidebar: Lab answers only when all extensions have started. */
  private async _recall(): Promise<void> {
    const folded = await this._memory?.fetch(FOLDED).catch(() => null);
    this._folded = new Set(Array.isArray(folded) ? folded.map(String) : []);
    this.update();
  }

  private _clock = 0;
  /** Sections that are folded; null, and none is drawn, until that is known. */
  private _folded: Set<string> | null = null;
  private readonly _recalled: Promise<void>;
}

/** How many runs there are, as far as the page knows: the server sends the latest. */
function counted(runs: number): string {
  return runs < LATEST ? `${runs || ''}` : `${LATEST}+`;
}

const BANNERS: Record<Connection, string | null> = {
  connecting: null,
  pushed: null,
  polling:
    'Something between this browser and Jupyter blocks WebSockets, so this page asks again and again instead. ' +
    'A proxy has to pass “Upgrade: websocket” on.',
  down: 'The Jupyter server does not answer. This page goes on trying; your clusters go on working.',
  missing:
    'The server half of dask-workbench is not running. Where Jupyter runs, “pip install .” in a clone of its repository, see that ' +
    '“jupyter server extension list” has workbench, and restart Jupyter.'
};

function Banner({ model }: { model: Model }): JSX.Element {
  const blocked = BANNERS[model.connection];
  const problem = model.problem('server');
  return (
    <>
      {blocked && (
        <div className="wb-Banner" role="alert" data-workbench="banner" data-connection={model.connection}>
          <p>{blocked}</p>
          <Button label="Try again" onClick={() => model.stream.open()} />
        </div>
      )}
      {problem && (
        <div className="wb-Banner" role="alert" data-workbench="server-problem">
          <p>{problem.message}</p>
          <Button label="Dismiss" onClick={() => model.dismiss('server')} />
        </div>
      )}
    </>
  );
}
