interface IElapsed {
  tick: number;
  ticks: number[];
  origin: number;
}

/** The label of a tick: what has passed since `origin`; all in ms since the epoch. */
export default function elapsed({ tick, ticks, origin }: IElapsed): string {
  const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) / 1000 : 1;
  const seconds = (tick - origin) / 1000;
  if (step >= 60) {
    return `${(seconds / 60).toFixed(step % 60 ? 1 : 0)} min`;
  }
  const decimals = step >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(step) - 1e-9));
  return `${seconds.toFixed(decimals)} s`;
}
