/** A tab that shows a cluster at work, or the record of a run: a Bokeh figure fed with patches. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import { IThemeManager, MainAreaWidget, ToolbarButton, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';
import { downloadIcon, fastForwardIcon, fileIcon, pauseIcon, runIcon, Toolbar } from '@jupyterlab/ui-components';
import type { ToolbarButtonComponent } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { kindAndName } from './api';
import { watchIcon } from './icons';
import type { Model } from './model';
import { Figure } from './page/figure';
import type { Theme } from './page/figure';
import { show } from './shell';
import { Commands, DOMAIN, IModel } from './tokens';
import type { Watched } from './tokens';

/** Figure in a tab of Lab. */
class FigureContent extends Widget {
  readonly changed = new Signal<this, void>(this);
  readonly figure: Figure;

  constructor(
    readonly watched: Watched,
    /** What the tab is called. */
    readonly called: string,
    model: Model,
    theme: () => Theme,
    private _restored: boolean
  ) {
    const figure = new Figure(watched, model.channel, theme);
    super({ node: figure.node });
    this.figure = figure;
    figure.fills = true;
    figure.keeps = true;
    figure.onChange = () => this.changed.emit();
    model.message.connect((_, message) => figure.receive(message), this);
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
      // A tab of a run that was deleted meanwhile isn't restored.
      void this.figure.load().then(() => this._restored && this.figure.failed && this.parent?.dispose());
    }
  }

  private _loaded = false;
}

/** The tab: the figure below a toolbar. */
function figureTab(content: FigureContent, model: Model, trans: TranslationBundle): MainAreaWidget<FigureContent> {
  const tab = new MainAreaWidget({ content });
  const { watched } = content;
  tab.id = tabId(watched);
  tab.title.icon = watchIcon;
  tab.title.closable = true;
  const [kind, name] = kindAndName(watched);
  const simulated = model.simulated && !content.called.startsWith('SIMULATED');
  tab.title.label = simulated ? `SIMULATED · ${content.called}` : content.called;
  tab.title.caption = watched.cluster
    ? trans.__('Tasks, CPU and memory of %1', name)
    : trans.__('What is kept of the %1 %2', kind, name);
  if (watched.cluster) {
    addLiveButtons(tab, trans);
    content.changed.connect(() => {
      if (content.figure.ended) {
        tab.title.label = trans.__('%1 (ended)', content.called);
        tab.title.caption = trans.__('What the cluster %1 did', name);
      }
    });
  }
  addButtons(tab, trans);
  if (watched.cluster) {
    addSummary(tab);
  } else {
    addButton(tab.toolbar, 'report', {
      icon: fileIcon,
      label: trans.__('Report'),
      tooltip: trans.__('Open it as a page in a new tab'),
      onClick: () => window.open(model.api.reportUrl(name), '_blank', 'noopener')
    });
  }
  return tab;
}

function addButton(toolbar: Toolbar, name: string, options: ToolbarButtonComponent.IProps): ToolbarButton {
  const button = new ToolbarButton(options);
  toolbar.addItem(name, button);
  return button;
}

function addLiveButtons({ content, toolbar }: MainAreaWidget<FigureContent>, trans: TranslationBundle): void {
  const { figure } = content;
  const pause = addButton(toolbar, 'pause', {
    icon: pauseIcon,
    pressedIcon: runIcon,
    tooltip: trans.__('Pause'),
    pressedTooltip: trans.__('Go on'),
    dataset: { workbench: 'pause' },
    onClick: () => figure.pause(!figure.paused)
  });
  const follow = addButton(toolbar, 'follow', {
    icon: fastForwardIcon,
    tooltip: trans.__('Follow: keep the latest in view'),
    pressedTooltip: trans.__('Following: a pan or zoom ends it'),
    dataset: { workbench: 'follow' },
    onClick: () => figure.follow(!figure.following)
  });
  const refresh = () => {
    pause.pressed = figure.paused;
    follow.pressed = figure.following;
    [pause, follow].forEach(each => each.setHidden(figure.ended));
  };
  content.changed.connect(refresh);
  refresh();
}

function addButtons({ content, toolbar }: MainAreaWidget<FigureContent>, trans: TranslationBundle): void {
  const { figure } = content;
  addButton(toolbar, 'all', {
    label: trans.__('Show all'),
    tooltip: trans.__('From the first task to the last'),
    dataset: { workbench: 'show-all' },
    onClick: () => figure.showAll()
  });
  addButton(toolbar, 'save', {
    icon: downloadIcon,
    tooltip: trans.__('Save as PNG'),
    dataset: { workbench: 'save-picture' },
    onClick: () => void figure.save()
  });
}

function addSummary({ content, toolbar }: MainAreaWidget<FigureContent>): void {
  const summary = new Widget();
  summary.addClass('wb-Figure-summary');
  summary.node.dataset['workbench'] = 'summary';
  content.changed.connect(() => (summary.node.textContent = content.figure.summary));
  toolbar.addItem('spacer', Toolbar.createSpacerItem());
  toolbar.addItem('summary', summary);
}

function tabId(watched: Watched): string {
  return ['dask-workbench', ...kindAndName(watched)].join('-');
}

export const figurePlugin: JupyterFrontEndPlugin<void> = {
  id: 'dask-workbench:figure',
  description: 'Tabs that show a cluster at work, or the record of a run.',
  autoStart: true,
  requires: [IModel],
  optional: [IThemeManager, ILayoutRestorer, ILabShell, ITranslator],
  activate: activateFigures
};

function activateFigures(
  app: JupyterFrontEnd,
  model: Model,
  themes: IThemeManager | null,
  restorer: ILayoutRestorer | null,
  lab: ILabShell | null,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load(DOMAIN);
  const tracker = new WidgetTracker<MainAreaWidget<FigureContent>>({ namespace: 'dask-workbench' });
  const theme = () => (themes?.theme && !themes.isLight(themes.theme) ? 'dark' : 'light');
  app.commands.addCommand(Commands.watch, {
    label: args => (args['cluster'] ? trans.__('Watch %1', args['cluster']) : trans.__('Watch Cluster')),
    caption: trans.__('Tasks, CPU and memory of a cluster as they go'),
    icon: args => (args['cluster'] ? watchIcon : undefined),
    isEnabled: args => toWatched(args) !== null || model.ready.length > 0,
    execute: args => {
      const watched = toWatched(args) ?? (model.target && { cluster: model.target.name });
      const isGone =
        args['restored'] && watched?.cluster && !model.clusters.some(({ name }) => name === watched.cluster);
      if (!watched || isGone) {
        return null;
      }
      const open = tracker.find(tab => tab.id === tabId(watched));
      const called = (args['title'] as string | undefined) ?? kindAndName(watched)[1];
      const tab =
        open ?? figureTab(new FigureContent(watched, called, model, theme, args['restored'] === true), model, trans);
      if (!open) {
        void tracker.add(tab);
      }
      show(app, lab, tab, { mode: tracker.size > 1 || isFree(lab) ? 'tab-after' : 'split-right' });
      return tab.id;
    }
  });
  themes?.themeChanged.connect(() => tracker.forEach(tab => void tab.content.figure.load()));
  void restorer?.restore(tracker, {
    command: Commands.watch,
    args: tab => ({ ...tab.content.watched, title: tab.content.called, restored: true }),
    // Of a cluster that was stopped meanwhile there is nothing to see.
    when: model.known,
    name: tab => tab.id
  });
}

/** Whether nothing is in the middle that one may want to see next to a figure. */
function isFree(lab: ILabShell | null): boolean {
  return [...(lab?.widgets('main') ?? [])].every(each => each.id.startsWith('launcher'));
}

function toWatched(args: object): Watched | null {
  const found = Object.entries(args).find(([kind, name]) => name && /^(cluster|run)$/.test(kind));
  return found ? Object.fromEntries([found]) : null;
}
