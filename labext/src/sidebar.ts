/** The sidebar, and tabs with a view each: what stands in the way of hearing from the server, then the views that Python makes. */
import { Clipboard } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import type { IStateDB } from '@jupyterlab/statedb';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { workbenchIcon } from './icons';
import type { Model } from './model';
import type { Notebooks } from './notebook';
import { element } from './page/element';
import { memory } from './page/memory';
import { Figure } from './page/figure';
import type { Theme } from './page/figure';
import { Page } from './page/page';
import type { IDrawn } from './page/page';
import type { Connection, StreamMessage, Watched } from './tokens';

/** What Lab's file browser drags: paths below the folder that it shows. */
const FILES = 'application/x-jupyter-icontents';
/** Where what is folded is kept between two visits. */
const FOLDED = 'dask-workbench:folded';
/** Where what was chosen in forms is kept until this tab of the browser is closed. */
const FORMS = `dask-workbench:forms:${PageConfig.getBaseUrl()}`;

export class Workbench extends Widget {
  /** Shows one of Python's views; `wide` has side by side what `sidebar` has in a column. All share what is chosen. */
  constructor(
    private _model: Model,
    private _notebooks: Notebooks,
    private _commands: CommandRegistry,
    private _memory: IStateDB | null,
    private _trans: TranslationBundle,
    readonly view: string,
    label: string,
    private _sibling: Promise<Page> | null = null
  ) {
    super();
    const isTab = view !== 'sidebar';
    this.id = isTab ? `dask-workbench-tab-${view}` : 'dask-workbench';
    this.addClass(isTab ? 'wb-Wide' : 'wb-Sidebar');
    this.title.icon = workbenchIcon;
    this.title.caption = _trans.__('Workbench: Dask clusters, workloads and runs');
    if (isTab) {
      this.title.label = label;
      this.title.closable = true;
    }
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', label);
    this._banner.dataset['live'] = '';
    this.node.append(this._banner, this._host);
    this.page = this._recall();
    _model.changed.connect(this._showProblems, this);
    _model.connectionChanged.connect((_, now) => {
      if (now === 'open') {
        void this.page.then(page => page.forgive());
      }
    }, this);
    this._showProblems();
  }

  /** Go to a section, and click a button there. */
  async skip(section: string, hook?: string): Promise<void> {
    const page = await this.page;
    await page.skip(section);
    await (hook && page.press(hook));
  }

  /** Lab takes for the current tab the one that has the focus. */
  protected onActivateRequest(): void {
    if (this.view !== 'sidebar') {
      this.node.tabIndex = -1;
      this.node.focus({ preventScroll: true });
    }
  }

  dispose(): void {
    void this.page.then(page => page.dispose());
    Signal.clearData(this);
    super.dispose();
  }

  /** Not awaited by who makes the sidebar: Lab answers only when all extensions have started. */
  private async _recall(): Promise<Page> {
    const { api, stream } = this._model;
    const folded = await this._memory?.fetch(FOLDED).catch(() => null);
    this._host.dataset['live'] = this.view;
    const isTab = this.view !== 'sidebar';
    const page = new Page(
      this._host,
      {
        send: message => stream.link.send(message),
        act: (name, given) => stream.act(name, given),
        report: problem => this._model.report(problem),
        command: (name, args) => void this._commands.execute(name, { ...args }),
        open: (path, name) => {
          const href = api.pageUrl(path);
          if (name) {
            Object.assign(document.createElement('a'), { href, download: name }).click();
          } else {
            window.open(href, '_blank', 'noopener');
          }
        },
        copy: text => Clipboard.copyToSystem(text),
        figure: (place, watched) => drawn(place, watched, this._model),
        memory: memory(FORMS),
        translate: words => this._trans.__(words)
      },
      Array.isArray(folded) && !isTab ? folded.map(String) : [],
      await this._sibling
    );
    ['lm-dragenter', 'lm-dragover', 'lm-drop'].forEach(type =>
      this._host.addEventListener(type, event => dragged(event as IDragged, page))
    );
    page.onFold = ids => void (isTab || this._memory?.save(FOLDED, ids));
    this._model.message.connect((_, message) => message.type !== 'state' && page.receive(message));
    if (isTab) {
      return page;
    }
    const notebooks = () => {
      const open = [...this._notebooks.open()].map(([kernel, panel]) => [kernel, panel.title.label]);
      page.choose({ notebooks: Object.fromEntries(open) as Record<string, string> });
    };
    this._notebooks.changed.connect(notebooks);
    notebooks();
    return page;
  }

  private _showProblems(): void {
    const { problem, stream } = this._model;
    const { connection } = stream;
    const trans = this._trans;
    const message = wrong(connection, trans);
    this._host.hidden = connection === 'missing';
    this._banner.replaceChildren(
      ...(message ? [banner(message, 'banner', trans.__('Try again'), () => stream.open(), connection)] : []),
      ...(problem ? [banner(problem, 'server-problem', trans.__('Dismiss'), () => this._model.dismiss())] : [])
    );
  }

  private readonly _banner = element('div');
  private readonly _host = element('div', 'wb-Page');
  readonly page: Promise<Page>;
}

/** Draw a cluster or a run in a view, in Lab's colours. */
function drawn(place: HTMLElement, watched: Watched, { channel }: Model): IDrawn {
  const theme = (): Theme => (document.body.dataset['jpThemeLight'] === 'false' ? 'dark' : 'light');
  const figure = new Figure(watched, channel, theme);
  figure.keeps = true;
  const colors = new MutationObserver(() => void figure.load());
  colors.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-light'] });
  place.append(figure.node);
  void figure.load();
  return {
    receive: message => figure.receive(message as StreamMessage),
    dispose: () => {
      colors.disconnect();
      figure.dispose();
    }
  };
}

/** What we use of Lumino's drag events. */
interface IDragged extends Event {
  mimeData: { getData(mime: string): unknown };
  readonly proposedAction: string;
  dropAction: string;
}

/** Path of a file on the server, given its path in Lab's file browser: where collaboration is on, a drive precedes it. */
export function fullPath(path: string): string {
  return `${PageConfig.getOption('serverRoot').replace(/\/$/, '')}/${path.replace(/^RTC:/, '')}`;
}

/** A file of Lab's browser, over a place where its path may go or let go there. */
function dragged(event: IDragged, page: Page): void {
  const [first] = (event.mimeData.getData(FILES) ?? []) as string[];
  if (first === undefined) {
    return;
  }
  if (page.drop(event.target, event.type === 'lm-drop' ? fullPath(first) : '')) {
    event.preventDefault();
    event.stopPropagation();
    event.dropAction = event.proposedAction;
  }
}

function banner(text: string, hook: string, label: string, act: () => void, connection = ''): HTMLElement {
  const node = element('div', 'wb-Banner');
  node.setAttribute('role', 'alert');
  Object.assign(node.dataset, { workbench: hook, connection });
  const button = element('button', 'wb-Button jp-mod-styled', label);
  button.onclick = act;
  node.append(text, button);
  return node;
}

/** What is to be said of a connection that isn't as it should be. */
function wrong(connection: Connection, trans: TranslationBundle): string | null {
  switch (connection) {
    case 'blocked':
      return trans.__(
        'Something between this page and the Jupyter server blocks WebSockets, which notebooks need, too. Have the proxy pass on “Upgrade: websocket”.'
      );
    case 'down':
      return trans.__('The Jupyter server does not answer. This page goes on trying; your clusters go on working.');
    case 'missing':
      return trans.__(
        'The server half of dask-workbench is not running. Install it where Jupyter runs, see that “jupyter server extension list” has workbench, and restart Jupyter.'
      );
    default:
      return null;
  }
}
