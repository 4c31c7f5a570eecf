const three = (value: number, unit: string) => `${+value.toPrecision(3)} ${unit}`;

/** Of µs, as `workbench.formats.duration` has it. */
export function duration(us: number): string {
  const two = (n: number, large: string, small: string) =>
    `${Math.floor(n / 60)} ${large}` + (n % 60 ? ` ${n % 60} ${small}` : '');
  if (us >= 3599.5e6) {
    return two(Math.round(us / 6e7), 'h', 'min');
  }
  if (us >= 59.95e6) {
    return two(Math.round(us / 1e6), 'min', 's');
  }
  return us >= 999_500 ? three(us / 1e6, 's') : us >= 1000 ? three(us / 1000, 'ms') : us ? three(us, 'µs') : '0 s';
}

/** As `workbench.formats.size` has it. */
export function size(bytes: number, units = ['B', 'kiB', 'MiB', 'GiB', 'TiB', 'PiB']): string {
  return bytes < 999.5 || units.length === 1 ? three(bytes, units[0]) : size(bytes / 1024, units.slice(1));
}
