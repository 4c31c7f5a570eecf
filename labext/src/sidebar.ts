/** The sidebar, and tabs with a view each: what stands in the way of hearing from the server, then the views that Python makes. */
import { Clipboard } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { LabIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';

import type { Model } from './model';
import type { Notebooks } from './notebook';
import { element } from './page/browser';
import { Page } from './page/page';
import type { Connection } from './tokens';
import watchSvg from '../style/icons/watch.svg';
import workbenchSvg from '../style/icons/workbench.svg';

/** Bars of a task stream on a bench. */
export const workbenchIcon = new LabIcon({ name: 'dask-workbench:bench', svgstr: workbenchSvg });
/** A task stream. */
export const watchIcon = new LabIcon({ name: 'dask-workbench:watch', svgstr: watchSvg });

/** What Lab's file browser drags: paths below the folder that it shows. */
const FILES = 'application/x-jupyter-icontents';
/** Where the browser keeps what was chosen in forms, and what was folded. */
const FORMS = `dask-workbench:forms:${PageConfig.getBaseUrl()}`;

export class Workbench extends Widget {
  /**
   * Shows one of Python's views: `wide` has side by side what `sidebar` has in a column, `watch:` is a figure. All share
   * what is chosen.
   */
  constructor(
    private _model: Model,
    notebooks: Notebooks,
    commands: CommandRegistry,
    readonly view: string,
    readonly label: string,
    isRestored = false
  ) {
    super();
    const isTab = (this._isTab = view !== 'sidebar');
    this.id = isTab ? `dask-workbench-tab-${view}` : 'dask-workbench';
    this.title.icon = this._isFigure ? watchIcon : workbenchIcon;
    this.title.closable = isTab;
    this.title.caption = this._isFigure
      ? _model.trans.__('Tasks, CPU and memory of %1', view.split(':')[2])
      : _model.trans.__('Workbench: Dask clusters, workloads and runs');
    this.addClass(isTab ? 'wb-Wide' : 'wb-Sidebar');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', label);
    this._banner.setAttribute('role', 'alert');
    this._banner.dataset['workbench'] = 'banner';
    this.node.append(this._banner, this._host);
    this._host.dataset['live'] = view;
    const page = new Page(this._host, {
      ..._model.host,
      report: problem => _model.report(problem),
      command: (name, args) => void commands.execute(name, { ...args }),
      copy: text => Clipboard.copyToSystem(text),
      onFigure: state => {
        this._hasEnded ||= this._isFigure && state === 'ended';
        this._refresh();
        if (this._isFigure && isRestored && state === 'failed') {
          // What it showed was deleted meanwhile.
          this.dispose();
        }
      },
      memory: FORMS
    });
    this.page = page;
    ['lm-dragenter', 'lm-dragover', 'lm-drop'].forEach(type =>
      this._host.addEventListener(type, event => dragged(event as IDragged, page))
    );
    _model.message.connect((_, message) => message.type !== 'state' && page.receive(message), this);
    if (!isTab) {
      const names = () => {
        const open = [...notebooks.open()].map(([kernel, panel]) => [kernel, panel.title.label]);
        page.choose({ notebooks: Object.fromEntries(open) as Record<string, string> });
      };
      notebooks.changed.connect(names, this);
      names();
    }
    _model.changed.connect(this._refresh, this);
    this._refresh();
  }

  /** Lab takes for the current tab the one that has the focus. */
  protected onActivateRequest(): void {
    if (this._isTab) {
      this.node.tabIndex = -1;
      this.node.focus({ preventScroll: true });
    }
  }

  dispose(): void {
    this.page.dispose();
    super.dispose();
  }

  private get _isFigure(): boolean {
    return this.view.startsWith('watch:');
  }

  private _refresh(): void {
    const { simulated, stream, trans } = this._model;
    if (this._isTab) {
      const label = this._hasEnded ? trans.__('%1 (ended)', this.label) : this.label;
      const isSimulated = simulated && this._isFigure && !label.startsWith('SIMULATED');
      this.title.label = isSimulated ? `SIMULATED · ${label}` : label;
    }
    const message = wrong(trans)[stream.connection];
    this._host.hidden = stream.connection === 'missing';
    const again = element('button', 'wb-Button jp-mod-styled', trans.__('Try again'));
    again.onclick = () => stream.connect();
    if (stream.connection === 'open' && this._banner.dataset['connection'] !== 'open') {
      this.page.forgive();
    }
    this._banner.dataset['connection'] = stream.connection;
    this._banner.className = message ? 'wb-Banner' : '';
    this._banner.replaceChildren(...(message ? [message, again] : []));
  }

  private readonly _banner = element('div');
  private _hasEnded = false;
  private readonly _host = element('div', 'wb-Page');
  private readonly _isTab: boolean;
  readonly page: Page;
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

/** What is to be said of a connection that isn't as it should be. */
const wrong = (trans: TranslationBundle): Partial<Record<Connection, string>> => ({
  blocked: trans.__(
    'Something between this page and the Jupyter server blocks WebSockets, which notebooks need, too. Have the proxy pass on “Upgrade: websocket”.'
  ),
  down: trans.__('The Jupyter server does not answer. This page goes on trying; your clusters go on working.'),
  missing: trans.__(
    'The server half of dask-workbench is not running. Install it where Jupyter runs, see that “jupyter server extension list” has workbench, and restart Jupyter.'
  )
});
