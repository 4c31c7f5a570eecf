/** Says when a run has ended that took a while, unless its tab is seen. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';

import type { Model } from './model';
import { Commands } from './tokens';
import type { IRun, RunStatus } from './tokens';

/** Seconds of a run after which a notification shows its end: a person does something else by then. */
const LONG = 30;

type Ending = 'success' | 'error' | 'info';

const ENDINGS: Partial<Record<RunStatus, Ending>> = { done: 'success', failed: 'error', lost: 'error' };

/** Return runs that were active at the times of `before`, took long and have ended since, each with how. */
export function ended(before: ReadonlyMap<string, number>, runs: IRun[], now: number): [IRun, Ending][] {
  return runs.flatMap(run => {
    const began = before.get(run.id);
    const how = ENDINGS[run.status];
    const isNews = began !== undefined && now - began >= LONG && !isSeen(run);
    return isNews && how ? [[run, how] as [IRun, Ending]] : [];
  });
}

/** Return whether the tab of a run is in front, in a window that is visible; see workbench/views/result.py. */
function isSeen({ id }: IRun): boolean {
  const result = document.querySelector(`[data-workbench="result-${CSS.escape(id)}"]`);
  return !document.hidden && result !== null && result.checkVisibility();
}

/** Write seconds as `workbench.formats.duration` does; only runs that took long have notifications. */
export function duration(seconds: number): string {
  const two = (n: number, large: string, small: string) =>
    `${Math.floor(n / 60)} ${large}` + (n % 60 ? ` ${n % 60} ${small}` : '');
  if (seconds >= 3599.5) {
    return two(Math.round(seconds / 60), 'h', 'min');
  }
  return seconds >= 59.95 ? two(Math.round(seconds), 'min', 's') : `${+seconds.toPrecision(3)} s`;
}

export function addNotifications({ commands }: JupyterFrontEnd, model: Model): void {
  const { trans } = model;
  const show = () => void commands.execute(Commands.section, { section: 'runs' });
  let going = new Map<string, number>();
  model.changed.connect(() => {
    const now = Date.now() / 1000;
    for (const [run, how] of ended(going, model.runs, now)) {
      const took = run.seconds ? `, ${duration(run.seconds)}` : '';
      Notification.emit(trans.__('%1 on %2: %3', run.title, run.cluster, run.status) + took, how, {
        autoClose: 10000,
        actions: [{ label: trans.__('Show'), callback: show }]
      });
    }
    const active = model.runs.filter(each => each.status === 'starting' || each.status === 'running');
    going = new Map(active.map(each => [each.id, going.get(each.id) ?? each.started ?? now]));
  });
}
