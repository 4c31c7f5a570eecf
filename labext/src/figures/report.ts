import { apply, embed } from '../page/bokeh';
import type { IBokeh, IBokehRange, IEmbedded } from '../page/bokeh';
import type { IPatch } from '../tokens';

interface IDrawn {
  /** Bokeh's JSON of an empty figure. */
  item: object;
  /** What fills it. */
  patches: IPatch[];
}

/** Draw the figure of a page that stands alone, light or dark as its reader has it. */
export default function report(figures: Record<'light' | 'dark', IDrawn>): void {
  const bokeh = (window as unknown as { Bokeh: IBokeh }).Bokeh;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const place = document.getElementById('figure')!;
  let shown: IEmbedded | undefined;
  const show = async () => {
    shown?.dispose();
    const { item, patches } = structuredClone(figures[dark.matches ? 'dark' : 'light']);
    shown = await embed(bokeh, item, place);
    for (const patch of patches) {
      apply(shown.document, patch);
      if (patch.source === 'window') {
        const { start, end } = patch.columns as Record<string, number[]>;
        (shown.document.get_model_by_name('time') as IBokehRange).setv({ start: start[0], end: end[0] });
      }
    }
  };
  let last = show();
  // One after the other, or two would draw in the same place.
  dark.addEventListener('change', () => {
    last = last.then(show);
  });
  void last.then(() => {
    if (location.hash === '#replay') {
      place.scrollIntoView();
      shown!.document.get_model_by_name('play')!.setv({ tags: ['now'] });
    }
  });
}
