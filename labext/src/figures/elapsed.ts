import { origin } from './models';
import type { ISource } from './models';

/** The label of a tick: what has passed since the origin of the figure; ticks are in ms since the epoch. */
export default function elapsed({ tick, ticks, window }: { tick: number; ticks: number[]; window: ISource }): string {
  const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) / 1000 : 1;
  const seconds = (tick - origin(window)) / 1000;
  if (step >= 60) {
    return `${(seconds / 60).toFixed(step % 60 ? 1 : 0)} min`;
  }
  const decimals = step >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-6));
  return `${seconds.toFixed(decimals).replace(/^-(?=[0.]*$)/, '')} s`;
}
