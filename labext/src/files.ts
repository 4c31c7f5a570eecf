/** Commands for a file that is selected in Lab's file browser: a look at its contents, its SVD, its mean. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';

import { fullPath } from './sidebar';
import type { Workbench } from './sidebar';
import { Commands } from './tokens';

const DATA = /\.(npy|npz|zarr|nc|h5|hdf5|grib2?|tiff?|csv|tsv|parquet)$/i;
const GENOTYPES = /\.(bed|vcz)$/i;

/** What we use of Lab's file browser. */
interface IBrowser {
  selectedItems?(): IterableIterator<{ path: string }>;
}

/** Full path of the file that is selected in the file browser; '' without one that we can read. */
function selected(app: JupyterFrontEnd): string {
  const browser = [...app.shell.widgets('left')].find(each => each.id === 'filebrowser') as IBrowser | undefined;
  const [first] = browser?.selectedItems?.() ?? [];
  const path = first?.path ?? '';
  return DATA.test(path) || GENOTYPES.test(path) ? fullPath(path) : '';
}

/** Add the commands, also to the menu of a file. */
export function addFileCommands(app: JupyterFrontEnd, sidebar: Workbench, trans: TranslationBundle): void {
  const offer = (
    command: string,
    [label, inPalette]: [string, string],
    [workload, genotypes]: [string, string],
    more: object = {},
    look = ''
  ) => {
    const workloadOf = (path: string) => (GENOTYPES.test(path) ? genotypes : workload);
    const isFit = () => Boolean(selected(app) && workloadOf(selected(app)));
    app.commands.addCommand(command, {
      label: args => (args['isPalette'] ? inPalette : label),
      isEnabled: isFit,
      isVisible: isFit,
      execute: async () => {
        const path = selected(app);
        const name = workloadOf(path);
        // What was chosen for another file doesn't fit this one.
        const past = Object.keys(sidebar.page.choices).filter(choice => choice.startsWith(`run.${name}.`));
        const given = Object.entries({ ...more, path }).map(([field, value]) => [`run.${name}.${field}`, value]);
        app.shell.activateById(sidebar.id);
        const cleared = Object.fromEntries(past.map(choice => [choice, null])) as object;
        sidebar.page.choose({ workload: name, ...cleared, ...(Object.fromEntries(given) as object) });
        await sidebar.page.skip('workloads', look);
      }
    });
    app.contextMenu.addItem({ command, selector: '.jp-DirListing-item', rank: 3 });
  };
  offer(
    Commands.look,
    [trans.__('Look'), trans.__('Look at the Selected File')],
    ['reduce_file', 'genotype_qc'],
    {},
    'holds'
  );
  offer(Commands.svd, [trans.__('SVD'), trans.__('SVD of the Selected File')], ['svd_of_file', 'genotype_pca']);
  offer(Commands.mean, [trans.__('Mean'), trans.__('Mean of the Selected File')], ['reduce_file', ''], {
    what: 'mean'
  });
}
