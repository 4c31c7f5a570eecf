import { origin } from './models';
import type { ISource } from './models';

/** About as many labels as an axis has. */
const MANY = 6;
/** Steps above ten seconds. */
const LONG = [15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21_600, 43_200];

/** Ticks at round times since the origin of the figure, in ms since the epoch. */
export default function seconds({
  cb_data,
  window
}: {
  cb_data: { start: number; end: number };
  window: ISource;
}): number[] {
  const { start, end } = cb_data;
  const least = (end - start) / 1000 / MANY;
  if (!(least > 0)) {
    return [];
  }
  const power = 10 ** Math.floor(Math.log10(least));
  const steps = least <= 10 ? [power, 2 * power, 5 * power, 10 * power] : LONG;
  const step = 1000 * (steps.find(each => each >= least) ?? Math.ceil(least / 86_400) * 86_400);
  const zero = origin(window);
  const first = Math.ceil((start - zero) / step);
  const count = Math.max(0, Math.floor((end - zero) / step) - first + 1);
  return Array.from({ length: count }, (_, place) => zero + (first + place) * step);
}
