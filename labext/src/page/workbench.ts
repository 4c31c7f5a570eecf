/** All of the workbench in a cell: the views that Lab's sidebar shows, and below them the figure that is watched. */
import type { Watched } from '../tokens';
import { mountFigure } from './cell';
import type { IHost, IMounted } from './cell';
import type { Theme } from './figure';
import { element } from './element';
import { memory } from './memory';
import { Page } from './page';
import type { IChannel, IDrawn } from './page';

interface IOptions {
  /** Name of the view that all others are in. */
  view: string;
  /** Of figures; null follows the page. */
  theme: Theme | null;
  /** Whether it is the page, not a part of one: it keeps what was chosen, and has the title. */
  alone?: boolean;
}

type Arguments = Record<string, string>;

export function mountPage(node: HTMLElement, host: IHost, { view, theme, alone }: IOptions): IMounted {
  const { link } = host;
  const place = element('div', 'wb-Page');
  const said = element('p', 'wb-Page wb-Said wb-Banner');
  const watched = element('section', 'wb-Page wb-Watched');
  place.dataset['live'] = view;
  said.setAttribute('role', 'status');
  node.classList.toggle('wb-Wide', alone ?? false);
  node.append(place, said, watched);
  let figure: IDrawn | null = null;

  const say = (text: string) => {
    said.textContent = text;
  };
  node.addEventListener('click', () => say(''), true);
  const hide = () => {
    figure?.dispose();
    figure = null;
    watched.replaceChildren();
  };
  const watch = ({ title, ...what }: Watched & { title?: string }) => {
    const [name] = Object.values(what);
    figure = mountFigure(below(title ?? name), host, { watched: what, theme });
  };
  /** A view of its own, below. */
  const inside = ({ view, label }: Arguments) => {
    const room = below(label);
    room.className = 'wb-Page';
    room.dataset['live'] = view;
    const shown = new Page(room, channel, [], page);
    figure = { receive: message => void shown.receive(message as never), dispose: () => shown.dispose() };
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
    send: message => link.send(message),
    act: (name, given) => link.act(name, given),
    report: say,
    command,
    open: (path, name) => void host.open(path, name).catch((error: Error) => say(error.message)),
    copy: text => void copy(text, ''),
    figure: (place, watched) => mountFigure(place, host, { watched, theme }),
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
      node.prepend(said);
      say(`${text} Clusters and runs go on.`);
    },
    say,
    dispose: () => {
      hide();
      page.dispose();
    }
  };
}
