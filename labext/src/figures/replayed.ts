import { QUIET } from './models';
import type { ICounts, IModel, IRecord, ISlider, ISource } from './models';

interface IReplayed {
  slider: ISlider;
  record: IRecord;
  /** What hides the part of each plot that is to come, and the line where it begins. */
  covers: IModel[];
  heads: IModel[];
  clock: IModel;
  /** The source of the progress bars. */
  progress: ISource & IModel;
}

/** Show a record as it was at the slider's second. */
export default function replayed({ slider, record, covers, heads, clock, progress }: IReplayed): void {
  const { start, end, counts } = record.data;
  if (!counts?.length || !start?.length || !end?.length) {
    return;
  }
  const over = slider.value >= slider.end;
  const head = start[0] + 1000 * slider.value;
  covers.forEach(cover => cover.setv({ left: head, visible: !over }, QUIET));
  heads.forEach(line => line.setv({ location: head, visible: !over }, QUIET));
  const digits = slider.end < 10 ? 2 : slider.end < 100 ? 1 : 0;
  const text = `${slider.value.toFixed(digits)} of ${slider.end.toFixed(digits)} s`;
  clock.setv({ text }, QUIET);
  if (record.read?.text !== counts[0]) {
    record.read = { text: counts[0], counts: JSON.parse(counts[0]) as ICounts, step: -1 };
  }
  const { steps, final } = record.read.counts;
  // One more than the last step is the end, in the words of the whole.
  const gone = Math.floor((steps * (head - start[0])) / (end[0] - start[0]));
  const step = over ? steps + 1 : Math.max(0, Math.min(steps, gone));
  if (record.read.step !== step) {
    record.read.step = step;
    progress.setv({ data: { ...progress.data, ...(over ? final : counted(record.read.counts, step)) } }, QUIET);
  }
}

const comma = (count: number) => count.toLocaleString('en-US');

/** Columns of progress bars after so many steps. */
function counted({ names }: ICounts, step: number): Record<string, unknown[]> {
  const shown: Record<string, unknown[]> = { done: [], erred: [], processing: [], count: [] };
  for (const { total, started, done, erred } of names) {
    const at = (counts: number[]) => (step ? (counts[step - 1] ?? counts.at(-1) ?? 0) : 0);
    const good = at(done);
    const bad = at(erred);
    shown['done'].push(good / total);
    shown['erred'].push((good + bad) / total);
    shown['processing'].push(Math.min(1, Math.max(at(started), good + bad) / total));
    shown['count'].push(`${comma(good)} / ${comma(total)}` + (bad ? `, ${bad} failed` : ''));
  }
  return shown;
}
