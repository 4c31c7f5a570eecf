/** All of the workbench in a cell: the views that Lab's sidebar shows, and below them the figure that is watched. */
import { element } from './browser';
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
  const place = element('div', 'wb-Page');
  const said = element('p', 'wb-Page wb-Said wb-Banner');
  const watched = element('section', 'wb-Page wb-Watched');
  place.dataset['live'] = view;
  said.setAttribute('role', 'status');
  node.classList.toggle('wb-Wide', alone ?? false);
  node.append(place, said, watched);
  let shown: Page | null = null;

  const say = (text: string, isLast = false) => {
    said.textContent = isLast ? `${text} Clusters and runs go on.` : text;
    if (isLast) {
      place.inert = true;
      node.prepend(said);
    }
  };
  node.addEventListener('click', () => say(''), true);
  const hide = () => {
    shown?.dispose();
    shown = null;
    watched.replaceChildren();
  };
  /** Show a view below the page. */
  const show = (view: string, label: string) => {
    hide();
    const title = element('header', 'wb-Row');
    const close = element('button', 'wb-Button jp-mod-styled', 'Close');
    const room = element('div', 'wb-Page');
    close.dataset['workbench'] = 'close-figure';
    close.onclick = hide;
    title.append(element('strong', 'wb-Card-title', label), close);
    watched.dataset['workbench'] = `watched-${label}`;
    watched.append(title, room);
    watched.scrollIntoView({ block: 'nearest' });
    room.dataset['live'] = view;
    shown = new Page(room, channel);
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
    'dask-workbench:watch': ({ title, ...what }) => {
      const [[kind, name]] = Object.entries(what);
      show(`watch:${kind}:${name}`, title ?? name);
    },
    'dask-workbench:view': ({ view, label }) => show(view, label),
    'dask-workbench:section': ({ reveal }) => page.reveal(reveal),
    'dask-workbench:cell': ({ text, type, run }) => insert(text, type ?? 'markdown', Boolean(run) || !type)
  };
  const channel: IChannel = {
    ...host,
    report: say,
    command: (name, args) => commands[name]?.(args as Arguments),
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
      const message = received as { type: string; message: string };
      if (message.type === 'error') {
        say(message.message);
      } else if (!page.receive(message)) {
        shown?.receive(message);
      }
    },
    say,
    dispose: () => {
      hide();
      page.dispose();
    }
  };
}
