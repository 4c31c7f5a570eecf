/** All of the workbench in a cell: the views that Lab's sidebar shows, and below them the figure that is watched. */
import type { Watched } from '../tokens';
import { element } from './browser';
import { Figure } from './figure';
import type { IHost, IShown } from './host';
import { Page } from './page';
import type { IChannel } from './page';

interface IOptions {
  /** Name of the view that all others are in. */
  view: string;
  /** Whether it is the page, not a part of one: it keeps what was chosen, and has the title. */
  alone?: boolean;
}

type Arguments = Record<string, string>;

export function mountPage(node: HTMLElement, host: IHost, { view, alone }: IOptions): IShown {
  const { link } = host;
  const place = element('div', 'wb-Page');
  const said = element('p', 'wb-Page wb-Said wb-Banner');
  const watched = element('section', 'wb-Page wb-Watched');
  place.dataset['live'] = view;
  said.setAttribute('role', 'status');
  node.classList.toggle('wb-Wide', alone ?? false);
  node.append(place, said, watched);
  let figure: Figure | Page | null = null;

  const say = (text: string, isLast = false) => {
    said.textContent = isLast ? `${text} Clusters and runs go on.` : text;
    if (isLast) {
      place.inert = true;
      node.prepend(said);
    }
  };
  node.addEventListener('click', () => say(''), true);
  const hide = () => {
    figure?.dispose();
    figure = null;
    watched.replaceChildren();
  };
  const watch = ({ title, ...what }: Watched & { title?: string }) => {
    const [name] = Object.values(what);
    figure = Figure.at(below(title ?? name), what, host);
  };
  /** A view of its own, below. */
  const inside = ({ view, label }: Arguments) => {
    const room = below(label);
    room.className = 'wb-Page';
    room.dataset['live'] = view;
    figure = new Page(room, channel, page);
  };
  /** Room for what is watched, below the page. */
  const below = (name: string) => {
    hide();
    const title = element('header', 'wb-Row');
    const close = element('button', 'wb-Button jp-mod-styled', 'Close');
    const room = element('div');
    close.dataset['workbench'] = 'close-figure';
    close.onclick = hide;
    title.append(element('strong', 'wb-Card-title', name), close);
    watched.dataset['workbench'] = `watched-${name}`;
    watched.append(title, room);
    watched.scrollIntoView({ block: 'nearest' });
    return room;
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
      const found = link.read<{ cell: string }>('cell', { cluster });
      found.then(({ cell }) => insert(cell, 'code', true)).catch((error: Error) => say(error.message));
    }
  };
  const command = (name: string, args: object) => commands[name]?.(args as Arguments);
  const channel: IChannel = {
    ...host,
    report: say,
    command,
    open: async (path, name) => {
      try {
        await host.open(path, name);
      } catch (error) {
        say((error as Error).message);
      }
    },
    copy: text => void copy(text, ''),
    memory: alone ? 'dask-workbench:forms' : undefined
  };
  const page: Page = new Page(place, channel);
  return {
    receive: received => {
      const message = received as { type: string; command: string; args: object; message: string };
      if (message.type === 'do') {
        command(message.command, message.args);
      } else if (message.type === 'error') {
        say(message.message);
      } else if (!page.receive(message)) {
        figure?.receive(message);
      }
    },
    say,
    dispose: () => {
      hide();
      page.dispose();
    }
  };
}
