import type { ISource } from './models';

interface IPlot {
  visible: boolean;
  height: number;
  left: { visible: boolean }[];
  below: { visible: boolean }[];
}

interface IGpus {
  /** For each plot whether it has something to show, and its height without a time axis. */
  axes: ISource<{ shown: boolean[]; height: number[] }>;
  plots: IPlot[];
  choice: { active: number[] };
  /** Pixels. */
  time_axis: number;
}

/** Show the plots of GPUs that are chosen and have something to show, the last with a time axis. */
export default function gpus({ axes, plots, choice, time_axis }: IGpus): void {
  const { shown, height } = axes.data;
  const there = plots.map((_, index) => !!shown[index] && choice.active.includes(index));
  const last = there.lastIndexOf(true);
  plots.forEach((plot, index) => {
    plot.visible = there[index];
    // A hidden plot whose axis is not hidden computes the layout of all plots anew in every frame of a pan.
    plot.left[0].visible = there[index];
    plot.below[0].visible = index === last;
    plot.height = (height[index] ?? plot.height) + (index === last ? time_axis : 0);
  });
}
