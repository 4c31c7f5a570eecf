/** Our commands, in the palette and the launcher, and the tabs that they open. */
import type { ILabShell, ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, WidgetTracker } from '@jupyterlab/apputils';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { ILauncher } from '@jupyterlab/launcher';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { LabIcon } from '@jupyterlab/ui-components';
import type { ReadonlyJSONObject, ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { TabPanel } from '@lumino/widgets';

import type { Model } from './model';
import type { Notebooks } from './notebook';
import { watchIcon, workbenchIcon } from './sidebar';
import type { Workbench } from './sidebar';
import { Commands } from './tokens';

/** Sections of the sidebar, and what they are called. */
const sections = (trans: TranslationBundle): Record<string, string> => ({
  hardware: trans.__('Hardware'),
  clusters: trans.__('Clusters'),
  workloads: trans.__('Workload'),
  runs: trans.__('Runs'),
  compare: trans.__('Compare')
});
/** Commands that mean something with arguments only. */
const NOT_IN_PALETTE: string[] = [Commands.view, Commands.section, Commands.cell, Commands.notebook];
/** Commands that have another name in the palette than where they are known to be ours. */
const RENAMED: string[] = [Commands.open, Commands.tab, Commands.look, Commands.svd, Commands.mean];

/** Offer commands in the palette and the launcher. */
export function offer(trans: TranslationBundle, palette: ICommandPalette | null, launcher: ILauncher | null): void {
  const machine = {
    view: 'machine',
    label: trans.__('This Machine'),
    caption: trans.__('Cores, memory, disk, network and GPUs, live')
  };
  const add = (command: string, args?: ReadonlyJSONObject) =>
    palette?.addItem({ command, category: trans.__('Workbench'), args });
  const offered = Object.values(Commands).filter(command => !NOT_IN_PALETTE.includes(command));
  offered.forEach(command => add(command, RENAMED.includes(command) ? { isPalette: true } : undefined));
  Object.keys(sections(trans)).forEach(section => add(Commands.section, { section }));
  add(Commands.view, { ...machine, isPalette: true });
  launcher?.add({ command: Commands.tab, category: 'Other', rank: 10 });
  launcher?.add({ command: Commands.view, category: 'Other', rank: 11, args: machine });
}

/** Tabs, of which there is one for each view. */
export function addTabs(
  app: JupyterFrontEnd,
  model: Model,
  restorer: ILayoutRestorer | null,
  lab: ILabShell | null,
  make: (view: string, label: string, isRestored: boolean) => Workbench
): void {
  const { trans } = model;
  const tracker = new WidgetTracker<Workbench>({ namespace: 'dask-workbench-tab' });
  /** In Notebook 7, whose middle takes the notebook alone, a tab is below or next to it. */
  const open = (view: string, label: string, isRestored = false) => {
    const isNextTo = view.startsWith('watch:') && !tracker.find(each => each.view.startsWith('watch:')) && !isFree(lab);
    const tab = tracker.find(each => each.view === view) ?? make(view, label, isRestored);
    if (!tab.isAttached) {
      void tracker.add(tab);
    }
    if (!tab.isAttached && lab) {
      // The first figure is seen next to what is there.
      lab.add(tab, 'main', isNextTo ? { mode: 'split-right' } : {});
    } else if (!tab.isAttached) {
      // That place is as high as what is in it asks for.
      tab.node.style.minHeight = '45vh';
      ['down', 'right'].forEach(area => tab.parent ?? app.shell.add(tab, area));
    }
    app.shell.activateById(tab.id);
    const tabs = tab.parent?.parent;
    if (tabs instanceof TabPanel) {
      tabs.currentWidget = tab;
    }
    return tab.id;
  };
  app.commands.addCommand(Commands.tab, {
    label: args => (args['isPalette'] ? trans.__('Open the Workbench in a Tab') : trans.__('Workbench')),
    caption: trans.__('Dask clusters, workloads and runs, side by side'),
    icon,
    execute: () => open('wide', trans.__('Workbench'))
  });
  app.commands.addCommand(Commands.view, {
    label: args => String(args['label'] ?? trans.__('View')),
    caption: args => String(args['caption'] ?? ''),
    icon,
    execute: args => open(String(args['view']), String(args['label']), args['isRestored'] === true)
  });
  app.commands.addCommand(Commands.watch, {
    label: args => (args['cluster'] ? trans.__('Watch %1', args['cluster']) : trans.__('Watch Cluster')),
    caption: trans.__('Tasks, CPU and memory of a cluster as they go'),
    icon: args => (args['cluster'] ? watchIcon : undefined),
    isEnabled: args => Boolean(args['cluster'] ?? args['run'] ?? model.target),
    execute: ({ cluster, run, title }) => {
      const name = String(run ?? cluster ?? model.target?.name);
      return open(`watch:${run ? 'run' : 'cluster'}:${name}`, String(title ?? name));
    }
  });
  void restorer?.restore(tracker, {
    command: Commands.view,
    args: ({ view, label }) => ({ view, label, isRestored: true }),
    name: ({ view }) => view
  });
}

export function addCommands(app: JupyterFrontEnd, model: Model, notebooks: Notebooks, sidebar: Workbench): void {
  const { commands, shell } = app;
  const { trans } = model;
  const skip = (section: string, hook?: string) => {
    shell.activateById(sidebar.id);
    return sidebar.page.skip(section, hook);
  };
  const press = (command: string, label: string, section: string, hook: string) => {
    commands.addCommand(command, { label, execute: () => skip(section, hook) });
  };
  commands.addCommand(Commands.open, {
    label: args => (args['isPalette'] ? trans.__('Open the Workbench') : trans.__('Workbench')),
    caption: trans.__('Dask clusters, workloads and runs'),
    icon,
    execute: () => shell.activateById(sidebar.id)
  });
  commands.addCommand(Commands.section, {
    label: args => trans.__('Go to %1', sections(trans)[String(args['section'])]),
    execute: async ({ section, reveal }) => {
      await skip(String(section));
      if (reveal) {
        sidebar.page.reveal(String(reveal));
      }
    }
  });
  press(Commands.start, trans.__('Start the Chosen Hardware'), 'hardware', 'start');
  press(Commands.run, trans.__('Run the Chosen Workload'), 'workloads', 'run-button');
  press(Commands.compare, trans.__('Compare the Chosen Workload'), 'compare', 'compare');
  commands.addCommand(Commands.connect, {
    label: trans.__('Connect This Notebook to the Cluster'),
    isEnabled: () => model.target !== undefined,
    execute: async () => {
      const { cell } = await model.host.link.read<{ cell: string }>('cell', { cluster: model.target?.name });
      await notebooks.insert(cell, { run: true });
    }
  });
  commands.addCommand(Commands.workload, {
    label: trans.__('Make This Cell a Workload'),
    isEnabled: () => notebooks.defined() !== null,
    execute: async () => {
      const name = notebooks.defined();
      if (name && (await notebooks.save(name))) {
        sidebar.page.choose({ workload: name });
        await skip('workloads');
      }
    }
  });
  app.contextMenu.addItem({ command: Commands.workload, selector: '.jp-Notebook .jp-CodeCell', rank: 20 });
  commands.addCommand(Commands.stopAll, {
    label: trans.__('Stop All Clusters'),
    isEnabled: () => model.clusters.length > 0,
    execute: async () => {
      const names = model.clusters.map(each => each.name).join(', ');
      const answer = await showDialog({
        title: trans.__('Stop all clusters?'),
        body: trans.__('This ends %1. What their workers hold is lost.', names),
        buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('Stop all') })]
      });
      if (answer.button.accept) {
        await model.host.link.act('stop_all').catch((error: Error) => model.report(error.message));
      }
    }
  });
  commands.addCommand(Commands.cell, {
    label: trans.__('Put a Text into a Cell'),
    execute: args => {
      const type = args['type'] === 'code' ? 'code' : 'markdown';
      return notebooks.insert(String(args['text'] ?? ''), { run: args['run'] === true || type === 'markdown', type });
    }
  });
  commands.addCommand(Commands.notebook, {
    label: trans.__('Show a Notebook'),
    execute: args => shell.activateById(notebooks.open().get(String(args['kernel']))?.id ?? '')
  });
  const dependent = [Commands.connect, Commands.stopAll, Commands.watch];
  model.changed.connect(() => dependent.forEach(command => commands.notifyCommandChanged(command)));
}

/** Whether nothing is in the middle that one may want to see next to a figure. */
function isFree(lab: ILabShell | null): boolean {
  return [...(lab?.widgets('main') ?? [])].every(each => each.id.startsWith('launcher'));
}

/** An item of the palette has no icon. */
function icon(args: ReadonlyPartialJSONObject): LabIcon | undefined {
  return args['isPalette'] ? undefined : workbenchIcon;
}
