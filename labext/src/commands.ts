/** The sidebar in its place, and our commands in the palette and the launcher. */
import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, showDialog, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';

import { workbenchIcon } from './icons';
import type { Model } from './model';
import { Workbench } from './sidebar';
import { Commands, IModel, INotebooks } from './tokens';
import type { ICluster } from './tokens';

const ID = 'dask-workbench:sidebar';
/** Whether this person has seen the sidebar before. */
const SEEN = 'dask-workbench:seen';
const CATEGORY = 'Workbench';

export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'The Workbench sidebar, and its commands.',
  autoStart: true,
  requires: [IModel, INotebooks],
  optional: [ILayoutRestorer, ICommandPalette, ILauncher, ISettingRegistry, IStateDB, ILabShell],
  activate: (
    app,
    model: Model,
    notebooks: INotebooks,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    settings: ISettingRegistry | null,
    memory: IStateDB | null,
    shell: ILabShell | null
  ) => {
    const sidebar = new Workbench(model, notebooks, app.commands, memory, false);
    app.shell.add(sidebar, 'left', { rank: 150, type: 'Workbench' });
    restorer?.add(sidebar, sidebar.id);
    addCommands(app, model, notebooks, sidebar);
    addTab(app, restorer, () => new Workbench(model, notebooks, app.commands, memory, true, sidebar.page));
    [
      Commands.open,
      Commands.tab,
      Commands.start,
      Commands.watch,
      Commands.connect,
      Commands.runs,
      Commands.stopAll
    ].forEach(command => palette?.addItem({ command, category: CATEGORY, args: { isPalette: true } }));
    launcher?.add({ command: Commands.tab, category: 'Other', rank: 10 });
    const open = () => shell?.activateById(sidebar.id) ?? app.shell.activateById(sidebar.id);
    void app.restored.then(() => openOnStart(settings, memory, open));
  }
};

/** The wide tab, of which there is one. */
function addTab(app: JupyterFrontEnd, restorer: ILayoutRestorer | null, make: () => Workbench): void {
  const tracker = new WidgetTracker<Workbench>({ namespace: 'dask-workbench-tab' });
  app.commands.addCommand(Commands.tab, {
    label: args => (args['isPalette'] ? 'Open the Workbench in a Tab' : 'Workbench'),
    caption: 'Dask clusters, workloads and runs, side by side',
    icon: args => (args['isPalette'] ? undefined : workbenchIcon),
    execute: () => {
      const open = tracker.currentWidget ?? make();
      if (!open.isAttached) {
        void tracker.add(open);
        app.shell.add(open, 'main');
      }
      app.shell.activateById(open.id);
    }
  });
  void restorer?.restore(tracker, { command: Commands.tab, name: () => 'tab' });
}

async function connect(model: Model, notebooks: INotebooks, cluster: { name: string }): Promise<void> {
  await notebooks.insert(await model.api.cell(cluster.name), { run: true });
}

function addCommands(app: JupyterFrontEnd, model: Model, notebooks: INotebooks, sidebar: Workbench): void {
  const { commands, shell } = app;
  const reveal = (section: string) => {
    shell.activateById(sidebar.id);
    sidebar.reveal(section);
  };
  commands.addCommand(Commands.open, {
    label: args => (args['isPalette'] ? 'Open the Workbench' : 'Workbench'),
    caption: 'Dask clusters, workloads and runs',
    icon: args => (args['isPalette'] ? undefined : workbenchIcon),
    execute: () => shell.activateById(sidebar.id)
  });
  commands.addCommand(Commands.runs, { label: 'Show the Runs', execute: () => reveal('runs') });
  commands.addCommand(Commands.start, {
    label: 'Start the Default CPU Cluster',
    execute: async () => {
      reveal('clusters');
      await model.request('POST', 'clusters', { profile: 'cpu' });
    }
  });
  commands.addCommand(Commands.connect, {
    label: 'Connect This Notebook to the Cluster',
    isEnabled: args => toCluster(args) !== null || model.target !== null,
    execute: args => {
      const cluster = toCluster(args) ?? model.target;
      return cluster && connect(model, notebooks, cluster);
    }
  });
  commands.addCommand(Commands.stopAll, {
    label: 'Stop All Clusters',
    isEnabled: () => model.clusters.length > 0,
    execute: async () => {
      if (await confirmStopAll(model.clusters)) {
        await model.request('DELETE', 'clusters');
      }
    }
  });
  commands.addCommand(Commands.cell, {
    label: 'Put a Text into a Cell',
    execute: args => {
      const type = args['type'] === 'code' ? 'code' : 'markdown';
      return notebooks.insert(String(args['text'] ?? ''), { run: type === 'markdown', type });
    }
  });
  commands.addCommand(Commands.notebook, {
    label: 'Show a Notebook',
    execute: args => {
      notebooks
        .open()
        .find(each => each.kernel === args['kernel'])
        ?.activate();
    }
  });
  const dependent = [Commands.connect, Commands.stopAll, Commands.watch];
  model.changed.connect(() => dependent.forEach(command => commands.notifyCommandChanged(command)));
}

function toCluster(args: object): { name: string } | null {
  const { cluster } = args as { cluster?: string };
  return cluster ? { name: cluster } : null;
}

async function confirmStopAll(clusters: ICluster[]): Promise<boolean> {
  const answer = await showDialog({
    title: 'Stop all clusters?',
    body: `This ends ${clusters.map(each => each.name).join(', ')}. What their workers hold is lost.`,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Stop all' })]
  });
  return answer.button.accept;
}

async function openOnStart(
  settings: ISettingRegistry | null,
  memory: IStateDB | null,
  open: () => void
): Promise<void> {
  const loaded = await settings?.load(ID).catch(() => null);
  const when = loaded?.get('openOnStart').composite ?? 'first';
  const seen = await memory?.fetch(SEEN);
  if (when === 'always' || (when === 'first' && !seen)) {
    open();
  }
  await memory?.save(SEEN, true);
}
