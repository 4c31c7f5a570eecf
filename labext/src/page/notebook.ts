/**
 * What the widget of a notebook shows, see workbench/panels/widget.py: the view that it names, connected to the kernel.
 * To add a view, add a line to VIEWS.
 */
import { download, element } from './browser';
import { Figure } from './figure';
import type { IHost, IShown, Theme } from './host';
import { Kernel } from './kernel';
import type { IModel } from './kernel';
import type { Link } from './link';
import { Server, Stream } from './stream';
import { mountPage } from './workbench';
import type { Watched } from '../tokens';

interface IOptions {
  /** Of a figure. */
  watched: Watched;
  /** Of a page: the view that all others are in. */
  view: string;
  theme: Theme | null;
  kernel: string | null;
  /** Id of the output that the notebook keeps. */
  static?: string;
}

const VIEWS: Record<string, (node: HTMLElement, host: IHost, options: IOptions) => IShown> = {
  figure: (node, host, { watched }) => new Figure(node, watched, host),
  page: mountPage
};

/** Said by Lab, where it is around this page, of a kernel: 'kernel-<id>'. */
const GONE = 'workbench-gone';

/** What the kernel answers with that isn't JSON. */
interface IFile {
  name: string | null;
  kind: string;
  base64: string;
}

const API = 'workbench/api/';

/** Called by anywidget for each place where the widget is shown; returns what ends that. */
function render({ model, el }: { model: IModel; el: HTMLElement }): () => void {
  const root = el.attachShadow({ mode: 'open' });
  const node = element('div', 'wb-Cell');
  root.append(element('style', '', model.get('styles') as string), node);
  const options = model.get('options') as IOptions;
  const kernel = new Kernel(model);
  const { link } = kernel;
  const host: IHost = {
    link,
    script: address => link.read('script', { name: new URL(address, 'http://localhost').pathname.split('/').pop() }),
    open: (path, name) => open(link, path, name),
    theme: options.theme
  };
  const view = VIEWS[model.get('view') as string](node, host, options);
  kernel.onMessage = message => view.receive(message);
  kernel.onSilence = text => view.say(text);
  const gone = ({ detail }: CustomEventInit<string>) =>
    detail === options.kernel && view.say('The kernel of this cell has ended. Run the cell again.', true);
  window.addEventListener(GONE, gone);
  // Without a kernel the output that the notebook keeps takes the place of what is alive, see workbench/panels/static.py.
  const hiding = element(
    'style',
    '',
    `.jp-OutputArea-child:has(#${options.static}), #${options.static} { display: none; }`
  );
  node.hidden = !!options.static && !!document.getElementById(options.static);
  kernel.onReady = () => {
    node.hidden = false;
    if (options.static) {
      document.head.append(hiding);
    }
  };
  return () => {
    hiding.remove();
    window.removeEventListener(GONE, gone);
    view.dispose();
    kernel.dispose();
  };
}

/** Show a page of the kernel in a new tab, cut off from this one; save a file, or a page where no tab can be had. */
async function open(link: Link, path: string, name?: string): Promise<void> {
  // A tab that is opened later than the click would be blocked.
  const tab = name ? null : window.open('');
  try {
    const found = await link.read<IFile>('file', { path: path.replace(API, '') });
    const bytes = Uint8Array.from(atob(found.base64), each => each.charCodeAt(0));
    const blob = new Blob([bytes], { type: found.kind });
    if (tab) {
      const frame = tab.document.createElement('iframe');
      frame.sandbox.add('allow-scripts', 'allow-downloads');
      frame.style.cssText = 'position:fixed;inset:0;width:100%;height:100%;border:0';
      // Or a link to another part of the page would lead out of it.
      frame.srcdoc = `<base href="about:srcdoc">${await blob.text()}`;
      tab.document.title = path.replace(API, '');
      tab.document.body.append(frame);
    } else {
      download(blob, name ?? found.name ?? 'workbench.html');
    }
  } catch (error) {
    tab?.close();
    throw error;
  }
}

/** Show the workbench as a page of its own at the root of a server, see workbench/server/standalone.py. */
function mountAlone(node: HTMLElement): void {
  const stream = new Stream(new Server(document.baseURI));
  const view = mountPage(node, stream.host, { view: 'wide', alone: true });
  stream.onMessage = message => view.receive(message);
  stream.onConnection = now =>
    view.say(now === 'down' ? 'The server of this page does not answer. Clusters and runs go on.' : '');
  stream.connect();
}

export default { render, mountAlone };
