/** Tabs that show a cluster at work, or the record of a run. */
import type { ILabShell, ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';

import type { Model } from './model';
import { Figure } from './page/figure';
import { show, Tab, watchIcon } from './shell';
import { Commands } from './tokens';
import type { Watched } from './tokens';

class FigureTab extends Tab {
  constructor(
    readonly watched: Watched,
    /** What the tab is called. */
    readonly called: string,
    { host, message, simulated, trans }: Model,
    private _isRestored: boolean
  ) {
    super(tabId(watched), simulated && !called.startsWith('SIMULATED') ? `SIMULATED · ${called}` : called, watchIcon);
    const [kind, name] = Object.entries(watched)[0];
    this.title.caption = watched.cluster
      ? trans.__('Tasks, CPU and memory of %1', name)
      : trans.__('What is kept of the %1 %2', kind, name);
    this._figure = new Figure(watched, host, true);
    this._figure.onEnd = () => {
      this.title.label = trans.__('%1 (ended)', called);
      this.title.caption = trans.__('What the cluster %1 did', name);
    };
    this.node.append(this._figure.node);
    message.connect((_, received) => this._figure.receive(received), this);
  }

  dispose(): void {
    this._figure.dispose();
    super.dispose();
  }

  protected onAfterAttach(): void {
    if (!this._isLoaded) {
      this._isLoaded = true;
      // A tab of a run that was deleted meanwhile isn't restored.
      void this._figure.load().then(() => this._isRestored && this._figure.problem && this.dispose());
    }
  }

  private readonly _figure: Figure;
  private _isLoaded = false;
}

function tabId(watched: Watched): string {
  return ['dask-workbench', ...Object.entries(watched)[0]].join('-');
}

/** Add the command that shows such a tab. */
export function addFigures(
  app: JupyterFrontEnd,
  model: Model,
  restorer: ILayoutRestorer | null,
  lab: ILabShell | null
): void {
  const { trans } = model;
  const tracker = new WidgetTracker<FigureTab>({ namespace: 'dask-workbench' });
  app.commands.addCommand(Commands.watch, {
    label: args => (args['cluster'] ? trans.__('Watch %1', args['cluster']) : trans.__('Watch Cluster')),
    caption: trans.__('Tasks, CPU and memory of a cluster as they go'),
    icon: args => (args['cluster'] ? watchIcon : undefined),
    isEnabled: args => toWatched(args) !== null || model.target !== undefined,
    execute: args => {
      const watched = toWatched(args) ?? (model.target && { cluster: model.target.name });
      const isRestored = args['restored'] === true;
      const isGone = isRestored && watched?.cluster && !model.clusters.some(({ name }) => name === watched.cluster);
      if (!watched || isGone) {
        return null;
      }
      const called = String(args['title'] ?? Object.values(watched)[0]);
      const open = tracker.find(tab => tab.id === tabId(watched));
      const tab = open ?? new FigureTab(watched, called, model, isRestored);
      if (!open) {
        void tracker.add(tab);
      }
      show(app, lab, tab, { mode: tracker.size > 1 || isFree(lab) ? 'tab-after' : 'split-right' });
      return tab.id;
    }
  });
  void restorer?.restore(tracker, {
    command: Commands.watch,
    args: tab => ({ ...tab.watched, title: tab.called, restored: true }),
    // Of a cluster that was stopped meanwhile there is nothing to see.
    when: model.known.promise,
    name: tab => tab.id
  });
}

/** Whether nothing is in the middle that one may want to see next to a figure. */
function isFree(lab: ILabShell | null): boolean {
  return [...(lab?.widgets('main') ?? [])].every(each => each.id.startsWith('launcher'));
}

function toWatched(args: object): Watched | null {
  const found = Object.entries(args).find(([kind, name]) => name && /^(cluster|run)$/.test(kind));
  return found ? Object.fromEntries([found]) : null;
}
