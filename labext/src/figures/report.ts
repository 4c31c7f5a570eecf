import type { IBokeh } from '../page/bokeh';
import detail from './detail';
import type { IRecord } from './detail';

interface IReport {
  /** Bokeh's JSON, which is drawn in the element `figure`. */
  figure: Record<'light' | 'dark', object>;
  /** What the page holds of the figure's tasks. */
  record: IRecord | null;
}

/** Draw the figure of a page that stands alone, light or dark as its reader has it. */
export default function report({ figure, record }: IReport): void {
  const { documents, embed } = (window as unknown as { Bokeh: IBokeh }).Bokeh;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const place = document.getElementById('figure')!;
  let shown: { clear(): void } | undefined;
  const show = async () => {
    const theme = dark.matches ? 'dark' : 'light';
    shown?.clear();
    place.replaceChildren();
    shown = await embed.embed_item(structuredClone(figure[theme]), place);
    if (record) {
      await detail(record, documents.at(-1)!, theme);
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
      const button = documents.map(each => each.get_model_by_name('play')).find(Boolean) as unknown as {
        tags: string[];
      };
      button.tags = ['now'];
    }
  });
}
