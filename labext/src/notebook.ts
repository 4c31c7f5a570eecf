/** The notebooks that are open: which cluster each is on, and visible cells put into them. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import type { Model } from './model';
import { element } from './page/element';
import { Commands, DOMAIN, IModel, INotebooks } from './tokens';
import type { CellType } from './tokens';

export class Notebooks {
  readonly changed = new Signal<this, void>(this);

  constructor(
    private _tracker: INotebookTracker,
    private _app: JupyterFrontEnd
  ) {
    const changed = () => this.changed.emit();
    _tracker.currentChanged.connect(changed);
    _tracker.widgetAdded.connect((_, panel) => {
      panel.sessionContext.kernelChanged.connect((_, { oldValue }) => {
        gone(oldValue?.id);
        changed();
      });
      panel.sessionContext.statusChanged.connect((_, status) => {
        if (/restart|dead/.test(status)) {
          gone(kernelOf(panel));
        }
      });
      panel.title.changed.connect(changed);
      panel.disposed.connect(changed);
      changed();
    });
  }

  /** Those that have a kernel, by its id. */
  open(): Map<string, NotebookPanel> {
    const found = new Map<string, NotebookPanel>();
    this._tracker.forEach(panel => found.set(kernelOf(panel) ?? '', panel));
    found.delete('');
    return found;
  }

  /** Add a cell that holds `source` to the active notebook, or to a new one, and run it when asked to; whether it ran well. */
  async insert(source: string, options: { run: boolean; type?: CellType }): Promise<boolean> {
    const panel = this._tracker.currentWidget ?? (await this._create());
    await panel.context.ready;
    this._app.shell.activateById(panel.id);
    const type = options.type ?? 'code';
    fillCell(panel, source, type);
    if (options.run && type === 'code') {
      await panel.sessionContext.ready;
    }
    const done = options.run && (await NotebookActions.run(panel.content, panel.sessionContext));
    await NotebookActions.focusActiveCell(panel.content, { preventScroll: false, waitUntilReady: true });
    return done;
  }

  /** Name of the last function that the active cell defines at its top; null where it defines none. */
  defined(): string | null {
    const model = this._tracker.activeCell?.model;
    const source = model?.type === 'code' ? model.sharedModel.getSource() : '';
    return [...source.matchAll(/^def ([A-Za-z]\w*)\(/gm)].at(-1)?.[1] ?? null;
  }

  /** Run the active cell as `%%workload`, at first after a cell that loads the magic; return whether it ran well. */
  async save(name: string): Promise<boolean> {
    const { content, sessionContext } = this._tracker.currentWidget!;
    const cell = content.activeCell!.model.sharedModel;
    await sessionContext.ready;
    if (!cell.source.startsWith('%%')) {
      cell.source = `%%workload ${name}\n${cell.source}`;
      NotebookActions.insertAbove(content);
      content.activeCell!.model.sharedModel.source = '%load_ext workbench';
      await NotebookActions.runAndAdvance(content, sessionContext);
    }
    return NotebookActions.run(content, sessionContext);
  }

  /** Put what a figure offers as a cell into the notebook; without one it stays with the figure. */
  offer(event: Event): void {
    const { type, source, run } = (event as CustomEvent<{ type: CellType; source: string; run?: boolean }>).detail;
    if (this._tracker.currentWidget) {
      event.preventDefault();
      void this.insert(source, { run: run ?? true, type });
    }
  }

  private async _create(): Promise<NotebookPanel> {
    return (await this._app.commands.execute('notebook:create-new', {
      kernelName: 'python3'
    })) as NotebookPanel;
  }
}

/** Put text into the active cell when it is an empty code cell, else into a new one below it. */
function fillCell({ content }: NotebookPanel, source: string, type: CellType): void {
  content.deselectAll();
  const active = content.activeCell;
  const empty = active?.model.type === 'code' && active.model.sharedModel.getSource().trim() === '';
  if (!empty) {
    NotebookActions.insertBelow(content);
  }
  NotebookActions.changeCellType(content, type);
  content.activeCell?.model.sharedModel.setSource(source.trimEnd());
}

/** Have the cells of a kernel know that it is no more, see page/notebook.ts. */
function gone(kernel: string | null | undefined): void {
  window.dispatchEvent(new CustomEvent('workbench-gone', { detail: `kernel-${kernel}` }));
}

function kernelOf(panel: NotebookPanel): string | null {
  return panel.sessionContext.session?.kernel?.id ?? null;
}

/** A word in the notebook's toolbar that says which cluster it is on; a click watches that cluster. */
class Badge extends Widget {
  constructor(
    private _panel: NotebookPanel,
    private _model: Model,
    private _commands: CommandRegistry,
    private _trans: TranslationBundle
  ) {
    super();
    this._button.dataset['workbench'] = 'badge';
    this._button.onclick = () => void this._commands.execute(Commands.watch, { cluster: this._cluster });
    this.node.append(this._button);
    _model.changed.connect(this._refresh, this);
    _panel.sessionContext.kernelChanged.connect(this._refresh, this);
    this._refresh();
  }

  dispose(): void {
    Signal.clearData(this);
    super.dispose();
  }

  private _refresh(): void {
    const client = `kernel-${kernelOf(this._panel)}`;
    const cluster = this._model.clusters.find(each => each.clients.some(name => name.includes(client)));
    const name = cluster?.name ?? '';
    this.setHidden(!cluster);
    if (name !== this._cluster) {
      this._cluster = name;
      this._button.textContent = name;
      this._button.title = this._trans.__('This notebook is on the Dask cluster %1. Click to watch it.', name);
    }
  }

  private readonly _button = element('button', 'wb-Badge');
  private _cluster = '';
}

export const notebooksPlugin: JupyterFrontEndPlugin<Notebooks> = {
  id: 'dask-workbench:notebooks',
  description: 'Knows the open notebooks and puts visible cells into them.',
  autoStart: true,
  requires: [INotebookTracker],
  provides: INotebooks,
  activate: (app, tracker: INotebookTracker) => {
    const notebooks = new Notebooks(tracker, app);
    window.addEventListener('workbench-cell', event => notebooks.offer(event));
    return notebooks;
  }
};

export const badgePlugin: JupyterFrontEndPlugin<void> = {
  id: 'dask-workbench:badge',
  description: 'Shows in the toolbar of a notebook which cluster it is on.',
  autoStart: true,
  requires: [IModel, IToolbarWidgetRegistry],
  optional: [ITranslator],
  activate: (app, model: Model, toolbars: IToolbarWidgetRegistry, translator: ITranslator | null) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const make = (panel: NotebookPanel) => new Badge(panel, model, app.commands, trans);
    toolbars.addFactory('Notebook', 'workbench-cluster', make);
  }
};
