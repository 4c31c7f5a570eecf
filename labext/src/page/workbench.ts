/** All of the workbench in a cell: the views that Lab's sidebar shows, and below them the figure that is watched. */
import type { Watched } from '../tokens';
import { mountFigure } from './cell';
import type { IMounted } from './cell';
import type { Theme } from './figure';
import { download } from './download';
import { element } from './element';
import { memory } from './memory';
import type { Messages } from './messages';
import { Page } from './page';
import type { IChannel } from './page';

interface IOptions {
  /** Name of the view that all others are in. */
  view: string;
  /** Of figures; null follows the page. */
  theme: Theme | null;
  /** Whether it is the page, not a part of one: it keeps what was chosen, and has the title. */
  alone?: boolean;
}

/** What the kernel answers with that isn't JSON. */
interface IFile {
  name: string | null;
  kind: string;
  base64: string;
}

type Arguments = Record<string, string>;

const API = 'workbench/api/';

export function mountPage(host: HTMLElement, messages: Messages, { view, theme, alone }: IOptions): IMounted {
  const place = element('div', 'wb-Page');
  const said = element('p', 'wb-Page wb-Said wb-Banner');
  const watched = element('section', 'wb-Page wb-Watched');
  place.dataset['live'] = view;
  said.setAttribute('role', 'status');
  host.classList.toggle('wb-Wide', alone ?? false);
  host.append(place, said, watched);
  let figure: IMounted | null = null;

  const say = (text: string) => {
    said.textContent = text;
  };
  host.addEventListener('click', () => say(''), true);
  const hide = () => {
    figure?.dispose();
    figure = null;
    watched.replaceChildren();
  };
  const watch = ({ title, ...what }: Watched & { title?: string }) => {
    const [name] = Object.values(what);
    const node = below(title ?? name);
    figure = mountFigure(node, messages, { watched: what, theme });
  };
  /** A view of its own, below. */
  const inside = ({ view, label }: Arguments) => {
    const node = below(label);
    node.className = 'wb-Page';
    node.dataset['live'] = view;
    const shown = new Page(node, channel, [], page);
    figure = { receive: message => void shown.receive(message), dispose: () => shown.dispose() };
  };
  /** Room for what is watched, below the page. */
  const below = (name: string) => {
    hide();
    const title = element('header', 'wb-Row');
    const close = element('button', 'wb-Button jp-mod-styled', 'Close');
    const node = element('div');
    close.dataset['workbench'] = 'close-figure';
    close.onclick = hide;
    title.append(element('strong', 'wb-Card-title', name), close);
    watched.dataset['workbench'] = `watched-${name}`;
    watched.append(title, node);
    watched.scrollIntoView({ block: 'nearest' });
    return node;
  };
  const copy = async (text: string, where: string) => {
    try {
      await navigator.clipboard.writeText(text);
      say(`Copied${where}.`);
    } catch {
      // Only on this machine or over https has a page a clipboard.
      say(text);
    }
  };
  /** Put text into a cell, where Lab is around this one. */
  const insert = (source: string, type: string, run: boolean) => {
    const event = new CustomEvent('workbench-cell', { detail: { type, source, run }, cancelable: true });
    if (window.dispatchEvent(event)) {
      void copy(source, ': paste it into a cell');
    }
  };
  const commands: Record<string, (args: Arguments) => void> = {
    'dask-workbench:watch': watch,
    'dask-workbench:view': inside,
    'dask-workbench:cell': ({ text, type }) => insert(text, type ?? 'markdown', !type),
    'dask-workbench:connect': ({ cluster }) => {
      const found = messages.read<{ cell: string }>('cell', { cluster });
      found.then(({ cell }) => insert(cell, 'code', true)).catch((error: Error) => say(error.message));
    }
  };
  const command = (name: string, args: object) => commands[name]?.(args as Arguments);
  const channel: IChannel = {
    send: message => messages.send(message),
    act: (name, given) => messages.act(name, given),
    report: say,
    command,
    open: (path, name) => void open(messages, path, name).catch((error: Error) => say(error.message)),
    copy: text => void copy(text, ''),
    figure: (place, watched) => mountFigure(place, messages, { watched, theme }),
    memory: alone ? memory('dask-workbench:forms') : undefined
  };
  const page: Page = new Page(place, channel);
  return {
    receive: message => {
      if (message.type === 'do') {
        command(message['command'] as string, message['args'] as object);
      } else if (message.type === 'error') {
        say(message['message'] as string);
      } else if (!page.receive(message)) {
        figure?.receive(message);
      }
    },
    lost: text => {
      place.inert = true;
      host.prepend(said);
      say(`${text} Clusters and runs go on.`);
    },
    say,
    dispose: () => {
      hide();
      page.dispose();
    }
  };
}

/** Show a page of the kernel in a new tab, cut off from this one; save a file, or a page where no tab can be had. */
async function open(messages: Messages, path: string, name?: string): Promise<void> {
  // A tab that is opened later than the click would be blocked.
  const tab = name ? null : window.open('');
  try {
    const found = await messages.read<IFile>('file', { path: path.replace(API, '') });
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
