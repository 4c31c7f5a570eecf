import { QUIET } from './models';
import type { IModel, IRecord, ISlider } from './models';

interface IPlay {
  slider: ISlider;
  record: IRecord;
  button: IModel;
  /** Of the button: to play, and to pause. */
  labels: [string, string];
  speed: { active: number | null };
  speeds: number[];
  time: IModel & { start: number; end: number };
}

/** Move the slider on as time passes, and the time axis with it; stop where it is moved already. */
export default function play({ slider, record, button, labels, speed, speeds, time }: IPlay): void {
  const stop = () => {
    slider.playing = null;
    button.setv({ label: labels[0] }, QUIET);
  };
  if (slider.playing) {
    stop();
    return;
  }
  const mine = {};
  slider.playing = mine;
  button.setv({ label: labels[1] }, QUIET);
  if (slider.value >= slider.end) {
    slider.setv({ value: 0 }, QUIET);
  }
  let last = performance.now();
  const step = (now: number) => {
    if (slider.playing !== mine || !slider.document) {
      return;
    }
    const passed = (Math.max(0, now - last) / 1000) * speeds[speed.active ?? 0];
    const value = Math.min(slider.end, slider.value + passed);
    last = now;
    slider.setv({ value }, QUIET);
    const head = (record.data.start?.[0] ?? 0) + 1000 * value;
    const width = time.end - time.start;
    if (head > time.end || head < time.start) {
      time.setv({ start: head - 0.05 * width, end: head + 0.95 * width });
    }
    if (value >= slider.end) {
      stop();
    } else {
      requestAnimationFrame(step);
    }
  };
  requestAnimationFrame(step);
}
