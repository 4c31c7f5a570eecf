import type { ISource } from './models';

interface IDimmed {
  xs: ArrayLike<unknown>;
  source: ISource;
  mark: ISource;
  /** Names of a column of `mark`, and of that of the source which must hold the same. */
  columns: [string, string][];
  least: number;
}

/** Opacity of each row of a source: of what isn't marked little. */
export default function dimmed({ xs, source, mark, columns, least }: IDimmed): number[] {
  const wanted = columns
    .map(([key, column]) => [mark.data[key]?.[0], source.data[column]] as const)
    .filter(([value]) => value);
  return Array.from(xs, (alpha, row) => {
    const paler = wanted.some(([value, column]) => column?.[row] !== value);
    return (typeof alpha === 'number' ? alpha : 1) * (paler ? least : 1);
  });
}
