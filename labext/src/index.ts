/** The plugin: sidebar, tabs and commands, the cluster of a notebook in its toolbar, notifications of ended runs. */
import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { addCommands, addTabs, offer } from './commands';
import { addFileCommands } from './files';
import { Model } from './model';
import { addBadges, Notebooks } from './notebook';
import { addNotifications } from './notify';
import { Workbench } from './sidebar';

const ID = 'dask-workbench:sidebar';
/** Whether this person has seen the sidebar before. */
const SEEN = 'dask-workbench:seen';

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Dask clusters, workloads and runs.',
  autoStart: true,
  requires: [INotebookTracker, IToolbarWidgetRegistry],
  optional: [ILayoutRestorer, ICommandPalette, ILauncher, ISettingRegistry, IStateDB, ILabShell, ITranslator],
  activate: (
    app,
    tracker: INotebookTracker,
    toolbars: IToolbarWidgetRegistry,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    settings: ISettingRegistry | null,
    memory: IStateDB | null,
    lab: ILabShell | null,
    translator: ITranslator | null
  ) => {
    const model = new Model((translator ?? nullTranslator).load('dask_workbench'));
    const notebooks = new Notebooks(tracker, app);
    const make = (view: string, label: string, isRestored = false) =>
      new Workbench(model, notebooks, app.commands, view, label, isRestored);
    const sidebar = make('sidebar', model.trans.__('Workbench'));
    app.shell.add(sidebar, 'left', { rank: 150, type: 'Workbench' });
    restorer?.add(sidebar, sidebar.id);
    addBadges(app, model, toolbars);
    addNotifications(app, model);
    addTabs(app, model, restorer, lab, make);
    addCommands(app, model, notebooks, sidebar);
    addFileCommands(app, sidebar, model.trans);
    offer(model.trans, palette, launcher);
    void app.restored.then(async () => {
      const loaded = await settings?.load(ID).catch(() => null);
      const when = loaded?.get('openOnStart').composite ?? 'first';
      if (when === 'always' || (when === 'first' && !(await memory?.fetch(SEEN)))) {
        app.shell.activateById(sidebar.id);
      }
      await memory?.save(SEEN, true);
    });
  }
};

export default plugin;
