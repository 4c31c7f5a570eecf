/** The notebooks that are open: which cluster each is on, and visible cells put into them. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { NotebookActions } from '@jupyterlab/notebook';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import type { Model } from './model';
import { element } from './page/browser';
import { Commands } from './tokens';

type CellType = 'code' | 'markdown';

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
    window.addEventListener('workbench-cell', event => this._offer(event));
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
    const create = () => this._app.commands.execute('notebook:create-new', { kernelName: 'python3' });
    const panel = this._tracker.currentWidget ?? ((await create()) as NotebookPanel);
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
  private _offer(event: Event): void {
    const { type, source, run } = (event as CustomEvent<{ type: CellType; source: string; run?: boolean }>).detail;
    if (this._tracker.currentWidget) {
      event.preventDefault();
      void this.insert(source, { run: run ?? true, type });
    }
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

/** Show in the toolbar of each notebook the cluster that it is on; a click watches that cluster. */
export function addBadges({ commands }: JupyterFrontEnd, model: Model, toolbars: IToolbarWidgetRegistry): void {
  toolbars.addFactory<NotebookPanel>('Notebook', 'workbench-cluster', panel => {
    const badge = new Widget();
    const button = element('button', 'wb-Badge');
    button.dataset['workbench'] = 'badge';
    button.onclick = () => void commands.execute(Commands.watch, { cluster: button.textContent });
    badge.node.append(button);
    const refresh = () => {
      const client = `kernel-${kernelOf(panel)}`;
      const cluster = model.clusters.find(each => each.clients?.some(name => name.includes(client)));
      badge.setHidden(!cluster);
      if (cluster && cluster.name !== button.textContent) {
        button.textContent = cluster.name;
        button.title = model.trans.__('This notebook is on the Dask cluster %1. Click to watch it.', cluster.name);
      }
    };
    model.changed.connect(refresh, badge);
    panel.sessionContext.kernelChanged.connect(refresh, badge);
    refresh();
    return badge;
  });
}
