const DAY = 86_400_000;

/** The label of a tick, ms since the epoch: a time of the reader's day, as exact as its neighbours are near. */
export default function time({ tick, ticks }: { tick: number; ticks: number[] }): string {
  const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : 1000;
  const date = new Date(tick);
  const two = (value: number) => String(value).padStart(2, '0');
  if (step >= DAY) {
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  }
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (step >= 60_000) {
    return minutes;
  }
  const decimals = step >= 1000 ? 0 : Math.min(6, Math.ceil(-Math.log10(step / 1000) - 1e-9));
  const seconds = date.getSeconds() + (decimals ? (tick % 1000) / 1000 : 0);
  return `${minutes}:${seconds.toFixed(decimals).padStart(decimals ? decimals + 3 : 2, '0')}`;
}
