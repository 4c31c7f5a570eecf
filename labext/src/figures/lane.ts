import type { Column, ISource } from './models';

interface ILabels {
  lanes: ISource<{ label?: Column<string> }>;
  tick: number;
}

/** The label of a lane, which is the row of a source. */
export default function lane({ lanes, tick }: ILabels): string {
  return lanes.data.label?.[Math.round(tick)] ?? '';
}
