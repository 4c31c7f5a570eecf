import type { IBokeh } from '../page/bokeh';
import detail from './detail';
import type { IRecord } from './detail';

interface IReport {
  /** Figures, light and dark, by the ids of the elements in which they are drawn. */
  items: Record<string, Record<'light' | 'dark', object>>;
  /** What the page holds of the tasks that the figure named `figure` shows. */
  record: IRecord | null;
}

/** Draw the figures of a page that stands alone, light or dark as its reader has it. */
export default function report({ items, record }: IReport): void {
  const { documents, embed } = (window as unknown as { Bokeh: IBokeh }).Bokeh;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  let shown: Promise<{ clear(): void }>[] = [];
  const show = async () => {
    const before = shown;
    const theme = dark.matches ? 'dark' : 'light';
    shown = [];
    (await Promise.all(before)).forEach(each => each.clear());
    for (const [id, item] of Object.entries(items)) {
      const place = document.getElementById(id)!;
      place.replaceChildren();
      shown.push(embed.embed_item(structuredClone(item[theme]), place));
    }
    await Promise.all(shown);
    const ours = documents.findLast(each => each.get_model_by_name('replay') !== null);
    if (record && ours) {
      await detail(record, ours, theme);
    }
  };
  dark.addEventListener('change', () => void show());
  void show().then(() => {
    if (location.hash === '#replay') {
      document.getElementById('figure')?.scrollIntoView();
      const button = documents.map(each => each.get_model_by_name('play')).find(Boolean) as unknown as {
        tags: string[];
      };
      button.tags = ['now'];
    }
  });
}
