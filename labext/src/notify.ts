/** Says when a run has ended that took a while, wherever in Lab a person is by then. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { duration } from './figures/formats';
import type { Model } from './model';
import { Commands, DOMAIN, IModel } from './tokens';
import type { IRun, RunStatus } from './tokens';

/** Seconds of a run after which a notification shows its end: a person does something else by then. */
const LONG = 30;

type Ending = 'success' | 'error' | 'info';

const ENDINGS: Partial<Record<RunStatus, Ending>> = { done: 'success', failed: 'error', lost: 'error' };

/** Runs that went on when `before` was seen, took long and have ended since, each with how. */
export function ended(before: ReadonlyMap<string, number>, runs: IRun[], now: number): [IRun, Ending][] {
  return runs.flatMap(run => {
    const began = before.get(run.id);
    const how = ENDINGS[run.status];
    return began !== undefined && how && now - began >= LONG ? [[run, how] as [IRun, Ending]] : [];
  });
}

export const notifyPlugin: JupyterFrontEndPlugin<void> = {
  id: 'dask-workbench:notify',
  description: 'Says when a run has ended that took a while.',
  autoStart: true,
  requires: [IModel],
  optional: [ITranslator],
  activate: ({ commands }: JupyterFrontEnd, model: Model, translator: ITranslator | null) => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const going = new Map<string, number>();
    model.changed.connect(() => {
      const now = Date.now() / 1000;
      for (const [run, how] of ended(going, model.runs, now)) {
        const actions = [
          { label: trans.__('Show'), callback: () => void commands.execute(Commands.section, { section: 'runs' }) }
        ];
        const took = run.seconds ? `, ${duration(1e6 * run.seconds)}` : '';
        Notification.emit(trans.__('%1 on %2: %3', run.title, run.cluster, run.status) + took, how, {
          autoClose: 10000,
          actions
        });
      }
      const active = model.runs.filter(each => each.status === 'starting' || each.status === 'running');
      const began = new Map(active.map(each => [each.id, going.get(each.id) ?? each.started ?? now]));
      going.clear();
      began.forEach((when, id) => going.set(id, when));
    });
  }
};
