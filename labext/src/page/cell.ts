/** A figure below a cell of a notebook: a line with a button and what the cluster does, and the figure. */
import type { IFigure, StreamMessage, Watched } from '../tokens';
import { load } from './bokeh';
import type { IBokeh } from './bokeh';
import { element } from './element';
import { Figure } from './figure';
import type { Theme } from './figure';
import type { IMessage, Messages } from './messages';

export interface IOptions {
  watched: Watched;
  /** Null follows the page. */
  theme: Theme | null;
}

/** What is in a cell. */
export interface IMounted {
  /** Take in what the kernel says. */
  receive(message: IMessage): void;
  /** Say that the kernel, or the server of the page, has gone: actions reach nobody any more. */
  lost?(text: string): void;
  /** Say that the kernel is silent, or with an empty text that it no longer is. */
  say?(text: string): void;
  dispose(): void;
}

export function mountFigure(host: HTMLElement, messages: Messages, options: IOptions): IMounted {
  const theme = () => options.theme ?? pageTheme();
  const figure = new Figure(
    options.watched,
    {
      send: message => messages.send(message),
      figure: (watched, theme) => messages.read('figure', { ...watched, theme }),
      bokeh: needed => bokeh(messages, needed)
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
  host.append(bar, figure.node);
  const say = (text: string) => {
    said = text;
    figure.onChange();
  };
  const look = () => {
    if (theme() !== shown) {
      shown = theme();
      load();
    }
  };
  const observer = new MutationObserver(look);
  DARK.addEventListener('change', look);
  const load = () => void figure.load().then(figure.onChange);
  let shown = theme();
  observer.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-light', THEME_OF_VSCODE] });
  load();
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

/** Panel's BokehJS where it fits, else one of our own from the kernel. */
function bokeh(messages: Messages, { version, scripts }: IFigure['bokeh']): Promise<IBokeh> {
  const theirs = (window as unknown as { Bokeh?: IBokeh }).Bokeh;
  return theirs?.version === version ? Promise.resolve(theirs) : load(scripts, each => script(messages, each));
}

/** Text of a script, by the last part of its address. */
function script(messages: Messages, address: string): Promise<string> {
  const { pathname } = new URL(address, 'http://localhost');
  return messages.read('script', { name: pathname.split('/').pop() });
}
