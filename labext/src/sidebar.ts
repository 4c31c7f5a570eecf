/** The sidebar and the wide tab: what stands in the way of hearing from the server, then the views that Python makes. */
import { Clipboard } from '@jupyterlab/apputils';
import type { IStateDB } from '@jupyterlab/statedb';
import type { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { workbenchIcon } from './icons';
import type { Model } from './model';
import { Page } from './page/page';
import type { Connection, INotebooks } from './tokens';

/** Where what is folded is kept between two visits. */
const FOLDED = 'dask-workbench:folded';

export class Workbench extends Widget {
  /** `wide` shows side by side what the sidebar shows one below the other; both share what is chosen. */
  constructor(
    private _model: Model,
    private _notebooks: INotebooks,
    private _commands: CommandRegistry,
    private _memory: IStateDB | null,
    private _wide: boolean,
    private _beside: Promise<Page> | null = null
  ) {
    super();
    this.id = _wide ? 'dask-workbench-tab' : 'dask-workbench';
    this.addClass(_wide ? 'wb-Wide' : 'wb-Sidebar');
    this.title.icon = workbenchIcon;
    this.title.caption = 'Workbench: Dask clusters, workloads and runs';
    if (_wide) {
      this.title.label = 'Workbench';
      this.title.closable = true;
    }
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Workbench');
    this._banner.dataset['live'] = '';
    this.node.append(this._banner, this._host);
    this.page = this._recall();
    _model.changed.connect(this._tell, this);
    this._tell();
  }

  /** Unfold a section and show its beginning. */
  reveal(section: string): void {
    void this.page.then(page => page.reveal(`wb-section-${section}`));
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
    this._host.className = 'wb-Page';
    this._host.dataset['live'] = this._wide ? 'wide' : 'sidebar';
    const page = new Page(
      this._host,
      {
        send: message => stream.send(message),
        request: (verb, path, body) => api.send(verb, path, body),
        command: (name, args) => void this._commands.execute(name, { ...args }),
        open: path => window.open(api.pageUrl(path), '_blank', 'noopener'),
        copy: text => Clipboard.copyToSystem(text)
      },
      Array.isArray(folded) && !this._wide ? folded.map(String) : [],
      await this._beside
    );
    page.onFold = ids => void (this._wide || this._memory?.save(FOLDED, ids));
    stream.message.connect((_, message) => message.type !== 'state' && page.receive(message));
    if (this._wide) {
      return page;
    }
    const notebooks = () => {
      const open = this._notebooks.open().filter(each => each.kernel);
      page.choose({ notebooks: Object.fromEntries(open.map(each => [each.kernel, each.name])) });
    };
    this._notebooks.changed.connect(notebooks);
    notebooks();
    return page;
  }

  private _tell(): void {
    const { connection, problem } = this._model;
    this._host.hidden = connection === 'missing';
    this._banner.replaceChildren(
      ...(BANNERS[connection]
        ? [banner(BANNERS[connection], 'banner', 'Try again', () => this._model.stream.open(), connection)]
        : []),
      ...(problem ? [banner(problem, 'server-problem', 'Dismiss', () => this._model.dismiss())] : [])
    );
  }

  private readonly _banner = document.createElement('div');
  private readonly _host = document.createElement('div');
  readonly page: Promise<Page>;
}

function banner(text: string, hook: string, label: string, act: () => void, connection = ''): HTMLElement {
  const node = document.createElement('div');
  node.className = 'wb-Banner';
  node.setAttribute('role', 'alert');
  Object.assign(node.dataset, { workbench: hook, connection });
  const button = document.createElement('button');
  button.className = 'wb-Button jp-mod-styled';
  button.textContent = label;
  button.onclick = act;
  node.append(text, button);
  return node;
}

const BANNERS: Record<Connection, string | null> = {
  connecting: null,
  pushed: null,
  polling:
    'Something between this browser and Jupyter blocks WebSockets, so this page asks again and again instead. ' +
    'A proxy has to pass “Upgrade: websocket” on.',
  down: 'The Jupyter server does not answer. This page goes on trying; your clusters go on working.',
  missing:
    'The server half of dask-workbench is not running. Where Jupyter runs, “pip install .” in a clone of its repository, see that ' +
    '“jupyter server extension list” has workbench, and restart Jupyter.'
};
