/** Clusters: how far each is, what it uses, and what can be done with it. */
import {
  caretDownIcon,
  closeIcon,
  codeIcon,
  launchIcon,
  listIcon,
  notebookIcon,
  refreshIcon,
  stopIcon
} from '@jupyterlab/ui-components';
import * as React from 'react';

import { isActive, isOn } from '../model';
import type { Model } from '../model';
import type { ICluster, INotebooks } from '../tokens';
import { Button, ConfirmButton, Faint, Fold, Icon, IconButton, Live, Meter, Note, Problem, Section } from './parts';
import type { IActions, ISectionState } from './sidebar';
import { bytes, count, wholeDuration } from './words';
import { Fragment, h } from './h';

/** Seconds before the end of a lease from which it is shown. */
const NEAR = 600;

interface IProps {
  model: Model;
  section: ISectionState;
  notebooks: INotebooks;
  actions: IActions;
  now: number;
}

export function ClustersSection(props: IProps): JSX.Element {
  const { model, section } = props;
  const { clusters } = model;
  return (
    <Section
      {...section}
      id="clusters"
      title="Clusters"
      note={clusters.length || null}
      actions={
        clusters.length > 1 && (
          <ConfirmButton
            icon={stopIcon}
            label="Stop everything"
            question={`Stop all ${clusters.length}?`}
            hook="stop-all"
            disabled={model.busy('clusters')}
            onClick={() => void model.stopAll()}
          />
        )
      }
    >
      <Problem problem={model.problem('clusters')} />
      {clusters.length === 0 && <Note>No cluster is running. Pick a profile above and press Start.</Note>}
      {clusters.map(cluster => (
        <Cluster key={cluster.name} {...props} cluster={cluster} />
      ))}
    </Section>
  );
}

interface IClusterProps extends IProps {
  cluster: ICluster;
}

function Cluster(props: IClusterProps): JSX.Element {
  const { cluster, model } = props;
  return (
    <article
      className={`wb-Card wb-mod-${cluster.status}`}
      aria-label={`Cluster ${cluster.name}`}
      data-workbench={`cluster-${cluster.name}`}
      data-status={cluster.status}
    >
      <header className="wb-Card-header">
        <span className="wb-Dot" aria-hidden="true" />
        <strong className="wb-Card-title">{cluster.name}</strong>
        <span className="wb-Muted" data-workbench="stage">
          {stage(cluster)}
        </span>
        {(cluster.status === 'starting' || cluster.status === 'ready') && <Stop cluster={cluster} model={model} />}
      </header>
      {cluster.status === 'starting' && <Starting cluster={cluster} />}
      {cluster.status === 'ready' && <Ready {...props} />}
      {cluster.status === 'unknown' && <Note>{cluster.message}</Note>}
      {(cluster.status === 'failed' || cluster.status === 'lost') && <Failed cluster={cluster} model={model} />}
      <Problem problem={model.problem(`cluster ${cluster.name}`)} />
    </article>
  );
}

function isBusy(model: Model, cluster: ICluster): boolean {
  return model.busy(`cluster ${cluster.name}`);
}

/** One or two words for how far a cluster is. */
function stage(cluster: ICluster): string {
  const expected = cluster.n_workers_expected || cluster.spec.n_workers;
  switch (cluster.status) {
    case 'starting':
      return {
        preparing: 'preparing',
        scheduler: 'scheduler up',
        workers: `workers ${cluster.n_workers} of ${expected}`,
        ready: 'ready'
      }[cluster.stage];
    case 'ready':
      return cluster.n_workers === cluster.n_workers_expected || cluster.adaptive
        ? 'ready'
        : `workers ${cluster.n_workers} of ${expected}`;
    default:
      return cluster.status;
  }
}

function Stop({ cluster, model }: { cluster: ICluster; model: Model }): JSX.Element {
  const starting = cluster.status === 'starting';
  return (
    <ConfirmButton
      icon={starting ? closeIcon : stopIcon}
      label={starting ? `Cancel the start of ${cluster.name}` : `Stop ${cluster.name}`}
      question={stopQuestion(model, cluster)}
      hook={starting ? 'cancel-start' : 'stop'}
      disabled={isBusy(model, cluster)}
      onClick={() => void model.stop(cluster.name)}
    />
  );
}

function Starting({ cluster }: { cluster: ICluster }): JSX.Element {
  const expected = cluster.n_workers_expected || cluster.spec.n_workers;
  const reached = { preparing: 0.1, scheduler: 0.4, workers: 0.5 + (0.5 * cluster.n_workers) / expected, ready: 1 };
  return <Meter label={`Start of ${cluster.name}`} value={reached[cluster.stage]} of={1} text="" />;
}

function Failed({ cluster, model }: { cluster: ICluster; model: Model }): JSX.Element {
  return (
    <>
      <p className="wb-Problem" role="alert">
        {cluster.message ?? 'It ended without saying why.'}
      </p>
      <Fold label="Last lines of the log">{() => <Live name={`log-tail:${cluster.name}`} />}</Fold>
      <div className="wb-Row wb-mod-end">
        <Button label="Dismiss" hook="dismiss" onClick={() => void model.stop(cluster.name)} />
      </div>
    </>
  );
}

type Drawer = 'workers' | 'logs' | 'code' | null;

function Ready(props: IClusterProps): JSX.Element {
  const { cluster, model, actions, now } = props;
  const [drawer, setDrawer] = React.useState<Drawer>(null);
  const toggle = (which: Drawer) => setDrawer(drawer === which ? null : which);
  const left = cluster.expires_at === null ? Infinity : cluster.expires_at - now;
  const limit = cluster.n_workers * cluster.spec.memory_limit;
  return (
    <>
      <div className="wb-Cluster-size">
        <button
          className="wb-Link"
          aria-expanded={drawer === 'workers'}
          title="Change the number of workers"
          data-workbench="scale"
          onClick={() => toggle('workers')}
        >
          {size(cluster)}
          <Icon icon={caretDownIcon} />
        </button>
        {cluster.memory_used !== null ? (
          <Meter
            memory
            label={`Memory used by ${cluster.name}`}
            value={cluster.memory_used}
            of={limit}
            text={`${bytes(cluster.memory_used)} of ${bytes(limit)}`}
          />
        ) : (
          <Faint>{bytes(limit)}</Faint>
        )}
      </div>
      {drawer === 'workers' && <Scale cluster={cluster} model={model} />}
      {cluster.spec.devices.length > 0 && <Live name={`cluster:${cluster.name}`} />}
      <Connected cluster={cluster} notebooks={props.notebooks} />
      {left < NEAR && (
        <p className="wb-Lease" role="status" data-workbench="lease">
          Idle: ends itself in {wholeDuration(left)}.
        </p>
      )}
      <div className="wb-Row">
        <Button
          label="Connect"
          hook="connect"
          title="Add a cell to the notebook that connects it, and run the cell"
          onClick={() => actions.connect(cluster)}
        />
        <Button
          label="Watch"
          hook="watch"
          title="Tasks, CPU and memory as they go"
          onClick={() => actions.watch({ cluster: cluster.name })}
        />
        <span className="wb-Icons">
          <IconButton
            icon={launchIcon}
            label="Dask’s own dashboard, in a new tab"
            hook="dashboard"
            onClick={() => window.open(model.api.dashboardUrl(cluster.name), '_blank', 'noopener')}
          />
          <IconButton
            icon={refreshIcon}
            label="Restart the workers: their data are lost"
            hook="restart"
            disabled={isBusy(model, cluster)}
            onClick={() => void model.restartWorkers(cluster.name)}
          />
          <IconButton
            icon={listIcon}
            label="Logs"
            hook="logs"
            pressed={drawer === 'logs'}
            onClick={() => toggle('logs')}
          />
          <IconButton
            icon={codeIcon}
            label="Code"
            hook="code"
            pressed={drawer === 'code'}
            onClick={() => toggle('code')}
          />
        </span>
      </div>
      {(drawer === 'logs' || drawer === 'code') && (
        <div className="wb-Drawer">
          <Live name={`${drawer}:${cluster.name}`} />
        </div>
      )}
    </>
  );
}

function size(cluster: ICluster): string {
  const bounds = cluster.adaptive ? ` (${cluster.adaptive.join('–')})` : '';
  return `${count(cluster.n_workers, 'worker')}${bounds} × ${count(cluster.spec.threads_per_worker, 'thread')}`;
}

/** What stopping would end, or null where one click is enough. */
function stopQuestion(model: Model, cluster: ICluster): string | null {
  const active = model.runs.filter(run => run.cluster === cluster.name && isActive(run));
  return active.length ? `Stop with ${count(active.length, 'run')}?` : null;
}

function Connected({ cluster, notebooks }: { cluster: ICluster; notebooks: INotebooks }): JSX.Element | null {
  const connected = notebooks.open().filter(each => isOn(each.kernel, cluster));
  return connected.length === 0 ? null : (
    <ul className="wb-Notebooks" aria-label={`Notebooks on ${cluster.name}`} data-workbench="notebooks">
      {connected.map(each => (
        <li key={each.id}>
          <button className="wb-Link" title={`${each.name} is on ${cluster.name}`} onClick={() => each.activate()}>
            <Icon icon={notebookIcon} />
            <span>{each.name}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

function Scale({ cluster, model }: { cluster: ICluster; model: Model }): JSX.Element {
  const here = cluster.n_workers_expected || cluster.n_workers;
  const [adaptive, setAdaptive] = React.useState(cluster.adaptive !== null);
  const [n, setN] = React.useState(here);
  const [bounds, setBounds] = React.useState(cluster.adaptive ?? [1, Math.max(2, here)]);
  const busy = isBusy(model, cluster);
  const same = adaptive
    ? cluster.adaptive?.[0] === bounds[0] && cluster.adaptive[1] === bounds[1]
    : cluster.adaptive === null && n === here;
  const apply = () => void (adaptive ? model.adapt(cluster.name, bounds[0], bounds[1]) : model.scale(cluster.name, n));
  return (
    <div className="wb-Drawer wb-Row" role="group" aria-label={`Workers of ${cluster.name}`}>
      {adaptive ? (
        <>
          <Count label="fewest" hook="minimum" value={bounds[0]} onChange={value => setBounds([value, bounds[1]])} />
          –
          <Count label="most" hook="maximum" value={bounds[1]} onChange={value => setBounds([bounds[0], value])} />
        </>
      ) : (
        <>
          <Step sign="−" label="One worker fewer" disabled={n <= 1} onClick={() => setN(n - 1)} />
          <Count label="workers" hook="n-workers" value={n} onChange={setN} />
          <Step sign="+" label="One worker more" onClick={() => setN(n + 1)} />
        </>
      )}
      <label className="wb-Check" title="The number of workers follows the load between two bounds">
        <input
          type="checkbox"
          checked={adaptive}
          data-workbench="adaptive"
          onChange={event => setAdaptive(event.target.checked)}
        />
        adaptive
      </label>
      <Button label="Apply" hook="apply-scale" disabled={busy || same} onClick={apply} />
    </div>
  );
}

function Step(props: { sign: string; label: string; disabled?: boolean; onClick: () => void }): JSX.Element {
  return (
    <button
      className="wb-Button wb-Step jp-mod-styled"
      aria-label={props.label}
      title={props.label}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      {props.sign}
    </button>
  );
}

function Count(props: { label: string; hook: string; value: number; onChange: (value: number) => void }): JSX.Element {
  return (
    <input
      className="wb-Count jp-mod-styled"
      type="number"
      min={props.hook === 'minimum' ? 0 : 1}
      aria-label={props.label}
      title={props.label}
      data-workbench={props.hook}
      value={props.value}
      onChange={event => props.onChange(Math.max(0, Math.round(Number(event.target.value))))}
    />
  );
}
