import type { Column, ISource } from './models';

interface ITapped {
  source: ISource & { selected: { indices: number[] } };
  /** The column that holds a task's name. */
  name: string;
  mark: ISource;
  lanes: ISource<{ worker?: Column<string> }>;
}

/** Mark the task that was clicked, and its worker where it has a lane; none, where it was marked. */
export default function tapped({ source, name, mark, lanes }: ITapped): void {
  const [row] = source.selected.indices;
  if (row === undefined) {
    return;
  }
  const task = source.data[name][row];
  const label = source.data['worker']?.[row] ?? '';
  const worker = label && (lanes.data.worker?.[Math.round(source.data['y'][row] as number)] ?? '');
  const again = mark.data['task']?.[0] === task && mark.data['label']?.[0] === label;
  const marked = { task, worker, label };
  mark.data = Object.fromEntries(Object.entries(marked).map(([key, value]) => [key, [again ? '' : value]]));
  source.selected.indices = [];
}
