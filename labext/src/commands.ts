/** The sidebar in its place, and our commands in the palette and the launcher. */
import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, showDialog, WidgetTracker } from '@jupyterlab/apputils';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';

import { addFileCommands } from './files';
import { workbenchIcon } from './icons';
import type { Model } from './model';
import type { Notebooks } from './notebook';
import { show } from './shell';
import { Workbench } from './sidebar';
import { Commands, DOMAIN, IModel, INotebooks } from './tokens';
import type { ICluster } from './tokens';

const ID = 'dask-workbench:sidebar';
/** Sections of the sidebar, and what they are called. */
const sections = (trans: TranslationBundle): Record<string, string> => ({
  hardware: trans.__('Hardware'),
  clusters: trans.__('Clusters'),
  workloads: trans.__('Workload'),
  runs: trans.__('Runs'),
  compare: trans.__('Compare')
});
/** Whether this person has seen the sidebar before. */
const SEEN = 'dask-workbench:seen';

export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'The Workbench sidebar, and its commands.',
  autoStart: true,
  requires: [IModel, INotebooks],
  optional: [ILayoutRestorer, ICommandPalette, ILauncher, ISettingRegistry, IStateDB, ILabShell, ITranslator],
  activate: (
    app,
    model: Model,
    notebooks: Notebooks,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    settings: ISettingRegistry | null,
    memory: IStateDB | null,
    shell: ILabShell | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const machine = {
      view: 'machine',
      label: trans.__('This Machine'),
      caption: trans.__('Cores, memory, disk, network and GPUs, live')
    };
    const sidebar = new Workbench(model, notebooks, app.commands, memory, trans, 'sidebar', trans.__('Workbench'));
    app.shell.add(sidebar, 'left', { rank: 150, type: 'Workbench' });
    restorer?.add(sidebar, sidebar.id);
    addCommands(app, model, notebooks, sidebar, trans);
    const ofFiles = addFileCommands(app, sidebar, trans);
    addTabs(app, restorer, shell, trans, (view, label) => {
      return new Workbench(model, notebooks, app.commands, memory, trans, view, label, sidebar.page);
    });
    const category = trans.__('Workbench');
    [Commands.open, Commands.tab].forEach(command =>
      palette?.addItem({ command, category, args: { isPalette: true } })
    );
    [
      Commands.start,
      Commands.run,
      Commands.compare,
      Commands.watch,
      Commands.connect,
      Commands.workload,
      Commands.stopAll
    ].forEach(command => palette?.addItem({ command, category }));
    ofFiles.forEach(command => palette?.addItem({ command, category, args: { isPalette: true } }));
    Object.keys(sections(trans)).forEach(section => {
      palette?.addItem({ command: Commands.section, category, args: { section } });
    });
    launcher?.add({ command: Commands.tab, category: 'Other', rank: 10 });
    launcher?.add({ command: Commands.view, category: 'Other', rank: 11, args: machine });
    palette?.addItem({ command: Commands.view, category, args: { ...machine, isPalette: true } });
    const open = () => shell?.activateById(sidebar.id) ?? app.shell.activateById(sidebar.id);
    void app.restored.then(() => openOnStart(settings, memory, open));
  }
};

/** Tabs, of which there is one for each view. */
function addTabs(
  app: JupyterFrontEnd,
  restorer: ILayoutRestorer | null,
  lab: ILabShell | null,
  trans: TranslationBundle,
  make: (view: string, label: string) => Workbench
): void {
  const tracker = new WidgetTracker<Workbench>({ namespace: 'dask-workbench-tab' });
  const open = (view: string, label: string, options?: DocumentRegistry.IOpenOptions) => {
    const there = tracker.find(each => each.view === view) ?? make(view, label);
    if (!there.isAttached) {
      void tracker.add(there);
    }
    show(app, lab, there, options);
    return there.id;
  };
  app.commands.addCommand(Commands.tab, {
    label: args => (args['isPalette'] ? trans.__('Open the Workbench in a Tab') : trans.__('Workbench')),
    caption: trans.__('Dask clusters, workloads and runs, side by side'),
    icon: args => (args['isPalette'] ? undefined : workbenchIcon),
    execute: () => open('wide', trans.__('Workbench'))
  });
  app.commands.addCommand(Commands.view, {
    label: args => String(args['label'] ?? trans.__('View')),
    caption: args => String(args['caption'] ?? ''),
    icon: args => (args['isPalette'] ? undefined : workbenchIcon),
    execute: args => open(String(args['view']), String(args['label']))
  });
  void restorer?.restore(tracker, {
    command: Commands.view,
    args: ({ view, title }) => ({ view, label: title.label }),
    name: ({ view }) => view
  });
}

function addCommands(
  app: JupyterFrontEnd,
  model: Model,
  notebooks: Notebooks,
  sidebar: Workbench,
  trans: TranslationBundle
): void {
  const { commands, shell } = app;
  const skip = (section: string, hook?: string) => {
    shell.activateById(sidebar.id);
    return sidebar.skip(section, hook);
  };
  const press = (command: string, label: string, section: string, hook: string) => {
    commands.addCommand(command, { label, execute: () => skip(section, hook) });
  };
  commands.addCommand(Commands.open, {
    label: args => (args['isPalette'] ? trans.__('Open the Workbench') : trans.__('Workbench')),
    caption: trans.__('Dask clusters, workloads and runs'),
    icon: args => (args['isPalette'] ? undefined : workbenchIcon),
    execute: () => shell.activateById(sidebar.id)
  });
  commands.addCommand(Commands.section, {
    label: args => trans.__('Go to %1', sections(trans)[String(args['section'])]),
    execute: args => skip(String(args['section']))
  });
  press(Commands.start, trans.__('Start the Chosen Hardware'), 'hardware', 'start');
  press(Commands.run, trans.__('Run the Chosen Workload'), 'workloads', 'run-button');
  press(Commands.compare, trans.__('Compare the Chosen Workload'), 'compare', 'compare');
  commands.addCommand(Commands.connect, {
    label: trans.__('Connect This Notebook to the Cluster'),
    isEnabled: args => Boolean(args['cluster']) || model.target !== null,
    execute: async args => {
      const cluster = args['cluster'] || model.target?.name;
      if (cluster) {
        const { cell } = await model.stream.link.read<{ cell: string }>('cell', { cluster });
        await notebooks.insert(cell, { run: true });
      }
    }
  });
  commands.addCommand(Commands.workload, {
    label: trans.__('Make This Cell a Workload'),
    isEnabled: () => notebooks.defined() !== null,
    execute: async () => {
      const name = notebooks.defined();
      if (name && (await notebooks.save(name))) {
        (await sidebar.page).choose({ workload: name });
        await skip('workloads');
      }
    }
  });
  app.contextMenu.addItem({ command: Commands.workload, selector: '.jp-Notebook .jp-CodeCell', rank: 20 });
  commands.addCommand(Commands.stopAll, {
    label: trans.__('Stop All Clusters'),
    isEnabled: () => model.clusters.length > 0,
    execute: async () => {
      if (await confirmStopAll(model.clusters, trans)) {
        await model.stream.act('stop_all').catch((error: Error) => model.report(error.message));
      }
    }
  });
  commands.addCommand(Commands.cell, {
    label: trans.__('Put a Text into a Cell'),
    execute: args => {
      const type = args['type'] === 'code' ? 'code' : 'markdown';
      return notebooks.insert(String(args['text'] ?? ''), { run: type === 'markdown', type });
    }
  });
  commands.addCommand(Commands.notebook, {
    label: trans.__('Show a Notebook'),
    execute: args => {
      const panel = notebooks.open().get(String(args['kernel']));
      if (panel) {
        shell.activateById(panel.id);
      }
    }
  });
  const dependent = [Commands.connect, Commands.stopAll, Commands.watch];
  model.changed.connect(() => dependent.forEach(command => commands.notifyCommandChanged(command)));
}

async function confirmStopAll(clusters: ICluster[], trans: TranslationBundle): Promise<boolean> {
  const answer = await showDialog({
    title: trans.__('Stop all clusters?'),
    body: trans.__('This ends %1. What their workers hold is lost.', clusters.map(each => each.name).join(', ')),
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('Stop all') })]
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
