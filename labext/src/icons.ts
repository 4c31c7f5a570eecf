import { LabIcon } from '@jupyterlab/ui-components';

import watchSvg from '../style/icons/watch.svg';
import workbenchSvg from '../style/icons/workbench.svg';

/** Bars of a task stream on a bench. */
export const workbenchIcon = new LabIcon({ name: 'dask-workbench:bench', svgstr: workbenchSvg });

/** A task stream. */
export const watchIcon = new LabIcon({ name: 'dask-workbench:watch', svgstr: watchSvg });
