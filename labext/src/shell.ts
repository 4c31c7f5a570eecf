/** Where a tab of ours is shown. */
import type { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import { TabPanel } from '@lumino/widgets';
import type { Widget } from '@lumino/widgets';

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
    const content: Widget = tab instanceof MainAreaWidget ? (tab as MainAreaWidget).content : tab;
    content.node.style.minHeight = '45vh';
    ['down', 'right'].forEach(area => tab.parent ?? app.shell.add(tab, area));
  }
  app.shell.activateById(tab.id);
  const tabs = tab.parent?.parent;
  if (tabs instanceof TabPanel) {
    tabs.currentWidget = tab;
  }
}
