/** Workloads: the catalogue, the form of the selected one, whether it fits, and Run. */

import type { Model } from '../model';
import type { INeeds, IPreset, ISchema, IWorkload } from '../tokens';
import { asText, Form } from './form';
import { Button, Code, Faint, Fold, Note, Problem, Prose, Section, Toggle } from './parts';
import type { IActions, ISectionState } from './sidebar';
import { Fragment, h } from './h';

interface IProps {
  model: Model;
  section: ISectionState;
  actions: IActions;
}

export function WorkloadsSection({ model, section, actions }: IProps): JSX.Element {
  return (
    <Section {...section} id="workloads" title="Workloads">
      <ul className="wb-Catalogue">
        {model.workloads.map(workload => (
          <Workload key={workload.name} workload={workload} model={model} actions={actions} />
        ))}
      </ul>
    </Section>
  );
}

interface IWorkloadProps {
  model: Model;
  workload: IWorkload;
  actions: IActions;
}

function Workload({ model, workload, actions }: IWorkloadProps): JSX.Element {
  const selected = model.workload === workload.name;
  const body = `wb-workload-${workload.name}`;
  return (
    <li className={selected ? 'wb-mod-selected' : ''}>
      <Toggle
        kind="Entry"
        open={selected}
        controls={body}
        title={workload.summary}
        hook={`workload-${workload.name}`}
        onClick={() => model.selectWorkload(selected ? null : workload.name)}
      >
        {workload.title}
      </Toggle>
      {selected && (
        <div className="wb-Catalogue-body" id={body}>
          <Selected model={model} workload={workload} actions={actions} />
        </div>
      )}
    </li>
  );
}

function Selected({ model, workload, actions }: IWorkloadProps): JSX.Element {
  const { needs, target, preset } = model;
  const wrong = model.problem('needs') ?? model.problem('run');
  const fields = Object.keys(workload.schema.properties ?? {}).filter(
    name => name !== 'preset' && (preset || name !== 'scale')
  );
  const elsewhere = wrong && !fields.includes(wrong.parameter ?? '') ? wrong : null;
  const past = needs?.verdict === "won't fit" ? needs.sentence : null;
  return (
    <>
      <p className="wb-Summary">
        <Prose text={workload.summary} />
      </p>
      {workload.presets.length > 0 && <Presets model={model} workload={workload} />}
      <Form
        id={workload.name}
        schema={preset ? beginningFrom(preset, workload.schema) : workload.schema}
        fields={fields}
        hints={preset ? laidOut(needs) : undefined}
        values={model.parameters}
        problem={wrong}
        onChange={(field, value) => model.setParameter(field, value)}
      />
      <Target model={model} />
      <Problem problem={elsewhere} hook="run-problem" />
      {needs && !wrong && <Needs needs={needs} />}
      {target && <Calibrate model={model} name={target.name} />}
      <Fold label="Show code" hook="workload-source">
        {() => <Code code={needs?.cell ?? workload.source} hook="workload-code" />}
      </Fold>
      <div className="wb-Row wb-mod-end">
        <Button
          label="Insert into notebook"
          hook="insert-workload"
          title="Add a cell with this workload’s Dask code to the notebook"
          disabled={!needs?.cell}
          onClick={() => needs?.cell && actions.insert(needs.cell)}
        />
        <Button
          kind={past ? 'warn' : 'accept'}
          label={past ? 'Run anyway' : 'Run'}
          hook="run-button"
          title={target ? (past ?? `Run on ${target.name}`) : 'Start a cluster first'}
          disabled={!target || needs?.verdict === "can't run" || model.problem('needs') !== null || model.busy('run')}
          onClick={() => void model.submit()}
        />
      </div>
    </>
  );
}

/** The fields with the preset's values in place of the defaults; how large it is follows from scale, size or shape. */
function beginningFrom({ parameters }: IPreset, schema: ISchema): ISchema {
  const properties = Object.entries(schema.properties ?? {}).map(([name, field]) => [
    name,
    { ...field, default: SIZES.includes(name) ? undefined : (parameters[name] ?? field.default) }
  ]);
  return { ...schema, properties: Object.fromEntries(properties) as ISchema['properties'] };
}

const SIZES = ['size', 'shape', 'chunks'];

/** Shape and blocks as the server found them, for fields that are left open. */
function laidOut(needs: INeeds | null): Record<string, string> {
  const known = SIZES.filter(name => needs?.parameters[name] !== undefined);
  return Object.fromEntries(known.map(name => [name, asText(needs?.parameters[name])]));
}

/** Experiments of the texts, to begin from. */
function Presets({ model, workload }: { model: Model; workload: IWorkload }): JSX.Element {
  const { presets } = workload;
  const { preset: used, target } = model;
  return (
    <>
      <div className="wb-Field wb-mod-wide">
        <label htmlFor="wb-preset">Preset</label>
        <span className="wb-Field-control">
          <select
            id="wb-preset"
            className="jp-mod-styled"
            data-workbench="preset"
            title={used?.source}
            value={used?.name ?? ''}
            onChange={event => model.usePreset(event.target.value)}
          >
            <option value="">none</option>
            {presets.map(each => (
              <option key={each.name} value={each.name} title={each.source}>
                {each.title}
              </option>
            ))}
          </select>
        </span>
      </div>
      {used && (
        <Note>
          {used.title}. From: {used.source}
        </Note>
      )}
      {used?.profile && target && target.spec.profile !== used.profile && (
        <Note>
          The text is about a cluster of the profile {used.profile}; the one below is {target.spec.profile}.
        </Note>
      )}
    </>
  );
}

function Target({ model }: { model: Model }): JSX.Element {
  const { ready, target } = model;
  return (
    <div className="wb-Form">
      <div className="wb-Field wb-mod-wide">
        <label htmlFor="wb-target">Cluster</label>
        <span className="wb-Field-control">
          {ready.length === 0 ? (
            <Faint>{waiting(model)}</Faint>
          ) : (
            <select
              id="wb-target"
              className="jp-mod-styled"
              data-workbench="field-cluster"
              value={target?.name}
              onChange={event => model.setTarget(event.target.value)}
            >
              {ready.map(each => (
                <option key={each.name} value={each.name}>
                  {each.name} ({each.description})
                </option>
              ))}
            </select>
          )}
        </span>
      </div>
    </div>
  );
}

function waiting(model: Model): string {
  return model.clusters.some(each => each.status === 'starting')
    ? 'waiting for a cluster to be ready …'
    : 'none is running: start one above';
}

/** The way to what a forecast lacks: the cluster is measured, and the forecast asked for again. */
function Calibrate({ model, name }: { model: Model; name: string }): JSX.Element {
  const { needs, calibrated } = model;
  const busy = model.busy(`calibrate ${name}`);
  return (
    <div aria-live="polite" data-workbench="calibration">
      <Problem problem={model.problem(`calibrate ${name}`)} />
      {calibrated?.name === name && !busy && <Note>{calibrated.found}</Note>}
      {busy && <Note>Measuring {name}, some seconds …</Note>}
      {(needs?.calibrate || busy) && (
        <Button
          label="Calibrate"
          hook="calibrate"
          title={`Measure ${name} for some seconds, so that forecasts know how long things take`}
          disabled={busy}
          onClick={() => void model.calibrate(name)}
        />
      )}
    </div>
  );
}

function Needs({ needs }: { needs: INeeds }): JSX.Element {
  const verdict = needs.fits === null ? '' : needs.fits ? ' wb-mod-fits' : ' wb-mod-toobig';
  return (
    <div className={`wb-Needs${verdict}`} aria-live="polite" data-workbench="needs">
      <p>{needs.sentence}</p>
      {needs.notes.map(note => (
        <Note key={note}>{note}</Note>
      ))}
    </div>
  );
}
