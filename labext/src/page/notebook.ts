/**
 * What Panel's component `Page` shows, see workbench/panels/page.py: the view that it names, with the messages between
 * them. To add a view, add a line to VIEWS; it gets an element, `Messages` as its channel (`send`, `request`) and
 * the component's options, and returns who takes in what the kernel says.
 */
import type { IBokehModel } from './bokeh';
import { mountFigure } from './cell';
import type { IMounted } from './cell';
import { Messages } from './messages';
import type { IModel } from './messages';
import { mountPage } from './workbench';

type Mount = (host: HTMLElement, messages: Messages, options: never) => IMounted;

const VIEWS: Record<string, Mount> = { figure: mountFigure, page: mountPage };

/** Said by Lab, where it is around this page, of a kernel: 'kernel-<id>'. */
const GONE = 'workbench-gone';

/** What we use of Panel's view: the Bokeh model that it is of. */
interface IView {
  model: IBokehModel;
}

/** Called by Panel for each place where the component is shown. */
export function render({
  model,
  view: at
}: {
  model: IModel & { view: string; options: string };
  view: IView;
}): HTMLElement {
  // Panel would hold each message back for 50 ms; ours wait for each other by themselves.
  at.model.document
    ?.roots()
    .forEach(each => each.properties['debounce'] && each.setv({ debounce: 0 }, { sync: false }));
  const host = document.createElement('div');
  host.className = 'wb-Cell';
  const messages = new Messages(model);
  const options = JSON.parse(model.options) as { kernel: string | null; static?: string };
  const view = VIEWS[model.view](host, messages, options as never);
  messages.onMessage = message => view.receive(message);
  at.model.document?.on_event('connection_lost', () =>
    view.lost?.('The server of this page has ended. Start it again and open its address.')
  );
  const gone = ({ detail }: CustomEventInit<string>) =>
    detail === options.kernel && view.lost?.('The kernel of this cell has ended. Run the cell again.');
  window.addEventListener(GONE, gone);
  messages.onSilence = text => view.say?.(text);
  // Without a kernel the picture that the notebook keeps takes the place of what is alive, see workbench/panels/static.py.
  const hiding = document.createElement('style');
  hiding.textContent = `.jp-OutputArea-child:has(#${options.static}), #${options.static} { display: none; }`;
  host.hidden = !!options.static && !!document.getElementById(options.static);
  messages.onReady = () => {
    host.hidden = false;
    if (options.static) {
      document.head.append(hiding);
    }
  };
  model.on('remove', () => {
    hiding.remove();
    window.removeEventListener(GONE, gone);
    view.dispose();
    messages.dispose();
  });
  return host;
}
