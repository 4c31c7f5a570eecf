/** A figure below a cell of a notebook: a line with a button and what the cluster does, and the figure. */
import type { StreamMessage, Watched } from '../tokens';
import { load } from './bokeh';
import { element } from './element';
import { Figure } from './figure';
import type { Theme } from './figure';
import type { IMessage, Link } from './link';

/** What a cell and a page of its own do each in their way. */
export interface IHost {
  link: Link;
  /** Text of a script of Python's, by its address. */
  script(address: string): Promise<string>;
  /** Open a page of Python's in a new tab of the browser, or save it as a file of this name. */
  open(path: string, name?: string): Promise<void>;
}

export interface IOptions {
  watched: Watched;
  /** Null follows the page. */
  theme: Theme | null;
}

/** What is in a cell. */
export interface IMounted {
  /** Take in a message of Python's. */
  receive(message: IMessage): void;
  /** Say that the kernel has ended: actions reach nobody any more. */
  lost(text: string): void;
  /** Say that Python is silent, or with an empty text that it no longer is. */
  say(text: string): void;
  dispose(): void;
}

export function mountFigure(node: HTMLElement, { link, script }: IHost, options: IOptions): IMounted {
  const theme = () => options.theme ?? pageTheme();
  const figure = new Figure(
    options.watched,
    {
      send: message => link.send(message),
      figure: (watched, theme) => link.read('figure', { ...watched, theme }),
      bokeh: needed => load(needed, script)
    },
    theme
  );
  const bar = element('div', 'wb-Figure-bar');
  const [button, all, save] = ['', 'Show all', 'Save as PNG'].map(text => element('button', '', text));
  const summary = element('span', 'wb-Figure-summary');
  all.onclick = () => figure.showAll();
  save.onclick = () => void figure.save();
  bar.append(button, all, save, summary);
  const follow = () => {
    const stands = figure.paused || !figure.following;
    figure.pause(!stands);
    if (stands) {
      figure.follow(true);
    }
  };
  button.onclick = follow;
  let said = '';
  figure.onChange = () => {
    button.textContent = figure.paused || !figure.following ? 'Follow' : 'Pause';
    button.hidden = !figure.live || !options.watched.cluster;
    all.hidden = !figure.stretches;
    summary.textContent = said || figure.summary;
  };
  figure.onChange();
  node.append(bar, figure.node);
  const say = (text: string) => {
    said = text;
    figure.onChange();
  };
  const look = () => {
    if (theme() !== shown) {
      shown = theme();
      draw();
    }
  };
  const observer = new MutationObserver(look);
  DARK.addEventListener('change', look);
  const draw = () => void figure.load().then(figure.onChange);
  let shown = theme();
  observer.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-light', THEME_OF_VSCODE] });
  draw();
  return {
    receive: message => {
      if (message.type === 'do') {
        act(figure, message['action'] as string);
      } else {
        figure.receive(message as unknown as StreamMessage);
      }
    },
    lost: say,
    say,
    dispose: () => {
      observer.disconnect();
      DARK.removeEventListener('change', look);
      figure.dispose();
    }
  };
}

/** Do what Python code asks for. */
function act(figure: Figure, action: string): void {
  if (action === 'load') {
    void figure.load();
  } else {
    figure.pause(action === 'pause');
    figure.follow(action === 'follow' || figure.following);
  }
}

const DARK = window.matchMedia('(prefers-color-scheme: dark)');
const THEME_OF_VSCODE = 'data-vscode-theme-kind';

function pageTheme(): Theme {
  const { body } = document;
  const isDark = body.dataset['jpThemeLight'] === 'false' || body.getAttribute(THEME_OF_VSCODE)?.includes('dark');
  // A page that leaves light or dark to the browser.
  const follows = getComputedStyle(body).colorScheme === 'light dark' && DARK.matches;
  return isDark || follows ? 'dark' : 'light';
}
