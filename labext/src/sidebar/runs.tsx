/** Runs: what is computed now and what was, with its answer and whether the answer checks out. */
import { closeIcon, deleteIcon, fileIcon, listIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Model } from '../model';
import type { IRun } from '../tokens';
import { Code, ConfirmButton, Faint, IconButton, Meter, Note, Problem, Section } from './parts';
import type { IActions, ISectionState } from './sidebar';
import { watchIcon } from '../icons';
import { ago, bytes, duration, result, wholeDuration } from './words';
import { h } from './h';

interface IProps {
  model: Model;
  section: ISectionState;
  actions: IActions;
  now: number;
}

export function RunsSection(props: IProps): JSX.Element {
  const { model, section } = props;
  return (
    <Section {...section} id="runs" title="Runs" note={model.runs.length || null}>
      {model.runs.length === 0 && <Note>Nothing has been run yet.</Note>}
      <ul className="wb-Runs">
        {model.runs.map(run => (
          <Run key={run.id} {...props} run={run} />
        ))}
      </ul>
    </Section>
  );
}

export function isActive(run: IRun): boolean {
  return run.status === 'starting' || run.status === 'running';
}

interface IRunProps extends IProps {
  run: IRun;
}

function Run(props: IRunProps): JSX.Element {
  const { run, model, now } = props;
  const [log, setLog] = React.useState<string | null>(null);
  const title = model.workloads.find(each => each.name === run.workload)?.title ?? run.workload;
  const readLog = () => {
    if (log !== null) {
      setLog(null);
      return;
    }
    model.api.runLog(run.id).then(setLog, (error: Error) => setLog(error.message));
  };
  return (
    <li
      className={`wb-Run wb-mod-${run.status}`}
      aria-label={`Run of ${title}, ${run.status}`}
      data-workbench={`run-${run.id}`}
      data-status={run.status}
    >
      <div className="wb-Run-line">
        <span className="wb-Dot" title={run.status} />
        <span className="wb-Run-title" title={parameters(run)}>
          {title}
        </span>
        <span className="wb-Muted" title={rate(run)} data-workbench="run-status">
          {when(run)}
        </span>
      </div>
      {isActive(run) && <Progress run={run} now={now} />}
      {run.result && <Outcome run={run} />}
      {run.error && (
        <p className="wb-Problem" data-workbench="run-error">
          {run.error}
        </p>
      )}
      <Buttons {...props} logOpen={log !== null} onLog={readLog} />
      {log !== null && <Code code={log || 'Nothing was logged.'} hook="run-log" atEnd />}
      <Problem problem={model.problem(`run ${run.id}`)} />
    </li>
  );
}

function Buttons(props: IRunProps & { logOpen: boolean; onLog: () => void }): JSX.Element {
  const { run, model, actions, now } = props;
  const busy = model.busy(`run ${run.id}`);
  const ended = run.stopped ?? run.created;
  const past = isActive(run) || ended === null ? null : ago(ended, now);
  const live = isActive(run) && run.cluster !== null && model.cluster(run.cluster) !== null;
  return (
    <div className="wb-Run-foot">
      <Faint title={parameters(run)}>{[run.cluster, past].filter(Boolean).join(' · ')}</Faint>
      <span className="wb-Icons">
        {isActive(run) && (
          <IconButton
            icon={closeIcon}
            label="Cancel"
            hook="cancel-run"
            disabled={busy}
            onClick={() => void model.cancelRun(run.id)}
          />
        )}
        <IconButton
          icon={watchIcon}
          label={live ? `Watch ${run.cluster}` : 'Watch what was recorded'}
          hook="watch-run"
          onClick={() => actions.watch(live && run.cluster ? { cluster: run.cluster } : { run: run.id })}
        />
        {!isActive(run) && (
          <IconButton
            icon={fileIcon}
            label="Open the report in a new tab"
            hook="report"
            onClick={() => window.open(model.api.reportUrl(run.id), '_blank', 'noopener')}
          />
        )}
        <IconButton icon={listIcon} label="Log" hook="run-log-button" pressed={props.logOpen} onClick={props.onLog} />
        {!isActive(run) && (
          <ConfirmButton
            icon={deleteIcon}
            label="Delete this run"
            question="Delete?"
            hook="delete-run"
            disabled={busy}
            onClick={() => void model.deleteRun(run.id)}
          />
        )}
      </span>
    </div>
  );
}

function Progress({ run, now }: { run: IRun; now: number }): JSX.Element {
  const done = run.progress?.done ?? 0;
  const total = run.progress?.total ?? 0;
  const elapsed = run.started ? ` · ${wholeDuration(now - run.started)}` : '';
  const text = total
    ? `${done.toLocaleString('en')} of ${total.toLocaleString('en')}${elapsed}`
    : 'building the graph …';
  return <Meter label="Tasks done" value={done} of={total} text={text} />;
}

function Outcome({ run }: { run: IRun }): JSX.Element {
  const { check } = run;
  return (
    <p className="wb-Run-result">
      {check && (
        <span
          className={check.passed ? 'wb-mod-passed' : 'wb-mod-wrong'}
          title={check.what}
          data-workbench={check.passed ? 'check-passed' : 'check-failed'}
        >
          {check.passed ? '✓' : '✗'}
          <span className="wb-hidden">{check.what}</span>
        </span>
      )}
      <span data-workbench="result" title={JSON.stringify(run.result)}>
        {result(run.result ?? {})}
      </span>
    </p>
  );
}

function when(run: IRun): string {
  if (run.status === 'done' && run.seconds !== null) {
    return duration(run.seconds);
  }
  return run.status;
}

/** Bytes per second, for those who look closer. */
function rate(run: IRun): string | undefined {
  return run.bytes_per_second ? `${bytes(run.bytes_per_second)}/s` : undefined;
}

function parameters(run: IRun): string {
  return Object.entries(run.parameters)
    .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
    .join('\n');
}
