/** The plugins of this extension. */
import { sidebarPlugin } from './commands';
import { figurePlugin } from './figure';
import { modelPlugin } from './model';
import { badgePlugin, notebooksPlugin } from './notebook';
import { notifyPlugin } from './notify';

export default [modelPlugin, notebooksPlugin, badgePlugin, figurePlugin, sidebarPlugin, notifyPlugin];
