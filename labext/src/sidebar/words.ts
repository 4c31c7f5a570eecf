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

/** '0.42 s', '12.3 s', '4 min 5 s', '2 h 3 min'. */
export function duration(seconds: number): string {
  if (seconds < 100) {
    return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  }
  return wholeDuration(seconds);
}

/** The same in whole seconds, for times that tick: '12 s', '4 min 5 s'. */
export function wholeDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) {
    return `${whole} s`;
  }
  return whole < 3600
    ? `${Math.floor(whole / 60)} min ${whole % 60} s`
    : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** 'just now', '5 min ago', '3 h ago', or a date. */
export function ago(epoch: number, now: number): string {
  const seconds = Math.max(0, now - epoch);
  if (seconds < 60) {
    return 'just now';
  }
  if (seconds < 3600) {
    return `${Math.floor(seconds / 60)} min ago`;
  }
  if (seconds < 86400) {
    return `${Math.floor(seconds / 3600)} h ago`;
  }
  return new Date(epoch * 1000).toLocaleDateString();
}

/** A number short enough for a line of results. */
export function number(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e6) {
    return String(value);
  }
  return Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3 ? value.toExponential(4) : value.toPrecision(6);
}

/** One line that says what came out of a run. */
export function result(value: Record<string, unknown>): string {
  const singular = value['singular_values'];
  if (Array.isArray(singular)) {
    const shown = singular.slice(0, 3).map(each => number(Number(each)));
    return `σ = ${shown.join(', ')}${singular.length > 3 ? `, … (${singular.length})` : ''}`;
  }
  if (typeof value['value'] === 'number') {
    return number(value['value']);
  }
  return Object.entries(value)
    .map(([key, each]) => `${key} ${typeof each === 'number' ? number(each) : JSON.stringify(each)}`)
    .join(' · ');
}
