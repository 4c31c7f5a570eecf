/** Numbers and times as a person reads them. */

const UNITS = ['B', 'kiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** '1.5 GiB'. */
export function bytes(value: number): string {
  let power = 0;
  let rest = value;
  while (rest >= 1023.95 && power < UNITS.length - 1) {
    rest /= 1024;
    power += 1;
  }
  const digits = power === 0 || rest >= 100 ? 0 : 1;
  return `${rest.toFixed(digits).replace(/\.0$/, '')} ${UNITS[power]}`;
}

/** '3 workers', '1 worker'. */
export function count(n: number, noun: string): string {
  return `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;
}

/** '12 s', '4 min 5 s', '2 h 3 min'. */
export function wholeDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) {
    return `${whole} s`;
  }
  return whole < 3600
    ? `${Math.floor(whole / 60)} min ${whole % 60} s`
    : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
