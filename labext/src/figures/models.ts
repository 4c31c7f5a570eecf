/** Bokeh's models as the functions of this folder use them; each function becomes JavaScript within a document. */

export type Column<T = unknown> = ArrayLike<T> & Iterable<T>;

export interface ISource<T = Record<string, Column>> {
  data: T;
}

export interface IModel {
  setv(values: object, options?: { sync: boolean }): void;
}

/** Drawn, and not sent to Python: a slider's head passes sixty times a second. */
export const QUIET = { sync: false };

/** A record that is played: when it starts and ends (ms since the epoch), and its counts as JSON. */
export interface IRecord extends ISource<{ start?: number[]; end?: number[]; counts?: string[] }> {
  /** What of `counts` was parsed, and the last step of it that was shown. */
  read?: { text: string; counts: ICounts; step: number };
}

export interface ICounts {
  names: { total: number; started: number[]; done: number[]; erred: number[] }[];
  steps: number;
  final: Record<string, unknown[]>;
}

export interface ISlider extends IModel {
  value: number;
  end: number;
  document: object | null;
  /** The part that moves it; another one, or nobody, ends that. */
  playing?: object | null;
}

/** Zero of a figure's time axis, in ms since the epoch. */
export function origin(window: ISource): number {
  return Number(window.data['origin']?.[0] ?? 0);
}
