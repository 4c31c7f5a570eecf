import type { IBokeh } from '../page/bokeh';

/** Draw the figure of a page that stands alone, light or dark as its reader has it; both are Bokeh's JSON. */
export default function report(figures: Record<'light' | 'dark', object>): void {
  const { documents, embed } = (window as unknown as { Bokeh: IBokeh }).Bokeh;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const place = document.getElementById('figure')!;
  let shown: { clear(): void } | undefined;
  const show = async () => {
    shown?.clear();
    place.replaceChildren();
    shown = await embed.embed_item(structuredClone(figures[dark.matches ? 'dark' : 'light']), place);
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
