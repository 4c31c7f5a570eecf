/** Tabs of ours, their icons, and where they are shown. */
import type { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import { LabIcon } from '@jupyterlab/ui-components';
import { TabPanel, Widget } from '@lumino/widgets';

import watchSvg from '../style/icons/watch.svg';
import workbenchSvg from '../style/icons/workbench.svg';

/** Bars of a task stream on a bench. */
export const workbenchIcon = new LabIcon({ name: 'dask-workbench:bench', svgstr: workbenchSvg });

/** A task stream. */
export const watchIcon = new LabIcon({ name: 'dask-workbench:watch', svgstr: watchSvg });

/** A widget in the middle of Lab. */
export class Tab extends Widget {
  constructor(id: string, label: string, icon: LabIcon) {
    super();
    this.id = id;
    Object.assign(this.title, { label, icon, closable: true });
  }

  /** Lab takes for the current tab the one that has the focus. */
  protected onActivateRequest(): void {
    this.node.tabIndex = -1;
    this.node.focus({ preventScroll: true });
  }
}

/** Show a widget as a tab of Lab; in Notebook 7, whose middle takes the notebook alone, below or next to it. */
export function show(
  app: JupyterFrontEnd,
  lab: ILabShell | null,
  tab: Widget,
  options?: DocumentRegistry.IOpenOptions
): void {
  if (!tab.isAttached && lab) {
    lab.add(tab, 'main', options);
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
}
