/** A tab that shows a cluster at work, the record of a run, or a comparison: a Bokeh figure fed with patches. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { IThemeManager, MainAreaWidget, ToolbarButton, WidgetTracker } from '@jupyterlab/apputils';
import { pauseIcon, runIcon, Toolbar, fastForwardIcon, fileIcon } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { kindAndName } from './api';
import { load } from './bokeh';
import { watchIcon } from './icons';
import type { Model } from './model';
import { Figure } from './page/figure';
import type { Theme } from './page/figure';
import { Commands, IModel } from './tokens';
import type { StreamMessage, Watched } from './tokens';

/** Figure in a tab of Lab. */
class FigureContent extends Widget {
  readonly changed = new Signal<this, void>(this);
  readonly figure: Figure;

  constructor(
    readonly watched: Watched,
    model: Model,
    theme: () => Theme
  ) {
    const { api, stream } = model;
    const figure = new Figure(
      watched,
      {
        send: message => stream.send(message),
        figure: (watched, theme) => api.figure(watched, theme),
        bokeh: ({ scripts }) => load(api, scripts)
      },
      theme
    );
    super({ node: figure.node });
    this.figure = figure;
    figure.onChange = () => this.changed.emit();
    stream.message.connect(this._receive, this);
  }

  dispose(): void {
    this.figure.dispose();
    Signal.clearData(this);
    super.dispose();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    if (!this._loaded) {
      this._loaded = true;
      void this.figure.load();
    }
  }

  private _receive(_: unknown, message: StreamMessage): void {
    this.figure.receive(message);
  }

  private _loaded = false;
}

/** The tab: the figure below a toolbar. */
function figureTab(content: FigureContent, model: Model): MainAreaWidget<FigureContent> {
  const tab = new MainAreaWidget({ content });
  const { watched } = content;
  tab.id = tabId(watched);
  tab.title.icon = watchIcon;
  tab.title.closable = true;
  const [kind, name] = kindAndName(watched);
  tab.title.label = titled(model, name);
  tab.title.caption = watched.cluster ? `Tasks, CPU and memory of ${name}` : `What is kept of the ${kind} ${name}`;
  if (watched.cluster) {
    addLiveButtons(tab);
  } else {
    tab.toolbar.addItem(
      'report',
      new ToolbarButton({
        icon: fileIcon,
        label: 'Report',
        tooltip: 'Open it as a page in a new tab',
        onClick: () => window.open(model.api.reportUrl(watched), '_blank', 'noopener')
      })
    );
  }
  return tab;
}

function addLiveButtons({ content, toolbar }: MainAreaWidget<FigureContent>): void {
  const { figure } = content;
  const pause = new ToolbarButton({
    icon: pauseIcon,
    pressedIcon: runIcon,
    tooltip: 'Pause',
    pressedTooltip: 'Go on',
    dataset: { workbench: 'pause' },
    onClick: () => figure.pause(!figure.paused)
  });
  const follow = new ToolbarButton({
    icon: fastForwardIcon,
    tooltip: 'Follow: keep the latest in view',
    pressedTooltip: 'Following: a pan or zoom ends it',
    dataset: { workbench: 'follow' },
    onClick: () => figure.follow(!figure.following)
  });
  const summary = new Widget();
  summary.addClass('wb-Figure-summary');
  summary.node.dataset['workbench'] = 'summary';
  const refresh = () => {
    pause.pressed = figure.paused;
    follow.pressed = figure.following;
    summary.node.textContent = figure.summary;
  };
  content.changed.connect(refresh);
  toolbar.addItem('pause', pause);
  toolbar.addItem('follow', follow);
  toolbar.addItem('spacer', Toolbar.createSpacerItem());
  toolbar.addItem('summary', summary);
  refresh();
}

/** A title, which says so where it is not of real GPUs. */
function titled(model: Model, title: string): string {
  return model.simulated ? `SIMULATED · ${title}` : title;
}

function tabId(watched: Watched): string {
  return ['dask-workbench', ...kindAndName(watched)].join('-');
}

export const figurePlugin: JupyterFrontEndPlugin<void> = {
  id: 'dask-workbench:figure',
  description: 'Tabs that show a cluster at work, or the record of a run.',
  autoStart: true,
  requires: [IModel],
  optional: [IThemeManager, ILayoutRestorer],
  activate: activateFigures
};

function activateFigures(
  app: JupyterFrontEnd,
  model: Model,
  themes: IThemeManager | null,
  restorer: ILayoutRestorer | null
): void {
  const tracker = new WidgetTracker<MainAreaWidget<FigureContent>>({ namespace: 'dask-workbench' });
  const theme = () => (themes?.theme && !themes.isLight(themes.theme) ? 'dark' : 'light');
  app.commands.addCommand(Commands.watch, {
    label: args => (args['cluster'] ? `Watch ${args['cluster'] as string}` : 'Watch Cluster'),
    caption: 'Tasks, CPU and memory of a cluster as they go',
    icon: args => (args['isPalette'] ? undefined : watchIcon),
    isEnabled: args => toWatched(args) !== null || model.ready.length > 0,
    execute: args => {
      const watched = toWatched(args) ?? (model.target && { cluster: model.target.name });
      if (!watched) {
        return;
      }
      const open = tracker.find(tab => tab.id === tabId(watched));
      const tab = open ?? figureTab(new FigureContent(watched, model, theme), model);
      if (!open) {
        void tracker.add(tab);
        app.shell.add(tab, 'main', { mode: tracker.size > 1 ? 'tab-after' : 'split-right' });
      }
      app.shell.activateById(tab.id);
    }
  });
  themes?.themeChanged.connect(() => tracker.forEach(tab => void tab.content.figure.load()));
  void restorer?.restore(tracker, {
    command: Commands.watch,
    args: tab => ({ ...tab.content.watched }),
    name: tab => tab.id
  });
}

function toWatched(args: object): Watched | null {
  const found = Object.entries(args).find(([kind, name]) => name && /^(cluster|run|comparison)$/.test(kind));
  return found ? Object.fromEntries([found]) : null;
}
